"""Prices, as they come: doubles in, decimals kept, both out, to the cent, over restarts.

The oracle is Python's own `Decimal`: what a double is written as, and the nearest double of a sum.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.streams import FileStream

import holdfast as hf

pytestmark = pytest.mark.spark

LEDGER = "user string, price decimal(10, 2), balance decimal(12, 2), rounded double, prices long"


def sales(seed: int, rows: int = 2_000, users: int = 20) -> pa.Table:
    draw = random.Random(seed)
    return pa.table(
        {
            "user": [f"user{draw.randrange(users)}" for _ in range(rows)],
            "price": [draw.randrange(-50_000, 1_000_000) / 100 for _ in range(rows)],
        }
    )


def expected(batches: list[pa.Table]) -> list[tuple[Any, ...]]:
    """User, price, balance, the balance as a double, and how many prices of the user there were; of each row."""
    balances: dict[str, Decimal] = {}
    prices: dict[str, set[float]] = {}
    found = []
    for batch in batches:
        for row in batch.to_pylist():
            user, price = row["user"], Decimal(repr(row["price"])).quantize(Decimal("0.01"))
            balances[user] = balances.get(user, Decimal(0)) + price
            prices.setdefault(user, set()).add(row["price"])
            found.append((user, price, balances[user], float(balances[user]), len(prices[user])))
    return sorted(found)


@pytest.mark.parametrize("form", ["key by key", "batches"])
def test_prices_are_right_to_the_cent(stream: FileStream, form: str) -> None:
    """One double in eight was refused, and the query stood still; one balance in nine was another double."""

    def add(balance: Decimal, price: Decimal) -> Decimal:
        return balance + price

    class Ledger(hf.KeyedProcessor):
        balance = hf.ReducingState(pa.decimal128(12, 2), add)
        rounded = hf.ValueState(pa.float64())
        prices = hf.MapState(pa.float64(), pa.bool_())

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[dict[str, Any]]:
            for price in rows["price"].to_pylist():
                self.balance.add(price)
                balance = self.balance.get()
                self.rounded.update(balance)
                self.prices.put(Decimal(repr(price)), True)  # whichever way it is given, it is one key
                self.prices.put(price, True)
                yield {
                    "user": key[0],
                    "price": price,
                    "balance": balance,
                    "rounded": self.rounded.value(),
                    "prices": len(list(self.prices.keys())),
                }

    class LedgerOfBatches(hf.BatchProcessor):
        balance = hf.ReducingState(pa.decimal128(12, 2), add)
        seen = hf.ReducingState(pa.int64(), "sum")
        prices = hf.MapState(pa.float64(), pa.bool_())

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> pa.RecordBatch:
            user, price = batch["user"], batch["price"]
            counted = []
            for one in range(batch.num_rows):  # a row may be the second of its price in this batch
                at = slice(one, one + 1)
                is_new = pc.invert(self.prices.contains(user[at], price[at].cast(pa.decimal128(12, 2))))
                self.prices.put(user[at], price[at], True)
                counted.append(self.seen.add(user[at], is_new.cast(pa.int64())))
            balance = self.balance.add(user, price)
            columns = [user, price, balance, balance, pa.concat_arrays(counted)]
            return pa.RecordBatch.from_arrays(columns, ["user", "price", "balance", "rounded", "prices"])

    processor = Ledger() if form == "key by key" else LedgerOfBatches()
    batches = [sales(seed, rows=400) for seed in range(4)]
    found: list[tuple[Any, ...]] = []
    for two in (batches[:2], batches[2:]):
        stream.write(*two)
        for table in stream.run(hf.keyed("user", processor, LEDGER, name="ledger")):
            found += [tuple(row.values()) for row in table.to_pylist()]
    assert sorted(found) == expected(batches)
