"""The core without Spark, in one process: states against plain Python, a delta into another store, a base by RocksDB.

Prints a digest of all bytes that it made. They are the same on every architecture: what one wrote, another opens.
"""

from __future__ import annotations

import hashlib
import platform
import random
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast as hf
from holdfast import _core
from holdfast.doctor import try_rocksdb
from holdfast.state import BoundProcessor, Context, declared_states

KEY_GROUPS = 16
ROWS, BATCHES, USERS = 2000, 3, 300
USER = pa.schema([pa.field("user", pa.string())])
OUTPUT = pa.schema([("user", pa.string()), ("total", pa.int64()), ("mean", pa.float64()), ("last", pa.string())])


class Figures(hf.BatchProcessor):
    """A fold in the core, an aggregate, a map and a value: each kind of row that the core encodes."""

    total = hf.ReducingState(pa.int64(), "sum")
    mean = hf.AggregatingState(pa.float64(), "avg")
    shops = hf.MapState(pa.string(), pa.int64())
    last = hf.ValueState(pa.string())

    def process(self, batch, ctx):
        """One row out a row in."""
        self.shops.put(batch, batch["shop"], batch["amount"])
        self.last.put(batch, batch["shop"])
        total = self.total.add(batch, batch["amount"])
        mean = self.mean.add(batch, batch["amount"].cast(pa.float64()))
        columns = [batch["user"], total, mean, self.last.get(batch)]
        yield pa.RecordBatch.from_arrays(columns, schema=OUTPUT)


def make_store() -> _core.Store:
    """An empty store of all key groups."""
    return _core.Store(USER, max_parallelism=KEY_GROUPS, first_key_group=0, end_key_group=KEY_GROUPS)


def run_batch(store: _core.Store, batch: pa.RecordBatch, number: int) -> list[dict[str, Any]]:
    """What the processor gives for one batch."""
    context = Context(query_id="q-1", operator="figures", timestamp_ms=0, slot=0, slots=1, batch_id=number)
    states = [(name, place) for place, (name, _) in enumerate(declared_states(Figures()), start=1)]
    with BoundProcessor(Figures(), store, USER, states, OUTPUT) as bound:
        given = [*bound.process(batch, context), *bound.finish(context)]
    return [row for _, out in given for row in out.to_pylist()]


def main(folder: Path) -> None:
    """Stops with an AssertionError when a figure differs."""
    chance = random.Random(7)
    totals: defaultdict[str, int] = defaultdict(int)
    counts: defaultdict[str, int] = defaultdict(int)
    digest = hashlib.sha256()
    store, copy = make_store(), make_store()
    for number in range(1, BATCHES + 1):
        users = [f"user-{chance.randrange(USERS)}" for _ in range(ROWS)]
        amounts = [chance.randrange(-(2**40), 2**40) for _ in range(ROWS)]
        shops = [f"shop-{chance.randrange(20)}" for _ in range(ROWS)]
        store.begin(number)
        rows = run_batch(store, pa.record_batch({"user": users, "amount": amounts, "shop": shops}), number)
        assert len(rows) == ROWS
        for user, amount, row in zip(users, amounts, rows):
            totals[user] += amount
            counts[user] += 1
            assert (row["user"], row["total"]) == (user, totals[user]), f"expected {totals[user]}, found {row}"
            assert abs(row["mean"] - totals[user] / counts[user]) <= 1e-6 * max(1, abs(row["mean"])), row
        delta = pa.record_batch(store.take_delta())
        for name in delta.schema.names:
            digest.update(repr(delta[name].to_pylist()).encode())
        copy.apply_delta(delta, number)
        store.commit()
    copy.begin(BATCHES + 1)
    empty_add = pa.record_batch({"user": sorted(totals), "amount": [0] * len(totals), "shop": ["none"] * len(totals)})
    again = run_batch(copy, empty_add, BATCHES + 1)
    assert [row["total"] for row in again] == [totals[user] for user in sorted(totals)], "the copy has other totals"
    try_rocksdb(str(folder / "base"))
    print(f"{platform.machine()}: {BATCHES * ROWS} rows exact, a base written and read; digest {digest.hexdigest()}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
