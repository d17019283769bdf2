"""Baskets as a user of Spark's transformWithState keeps them, and as one of Holdfast does. Spark's workers import this
module.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming import StatefulProcessor

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A shop may be null.
KEY = "shop string, number int"
OUTPUT = f"{KEY}, said string"
HOUR_MS = 3_600_000
#: A row: a product, or none, its size, an amount.
Bought = tuple[str | None, int, int]


def said(
    total: int,
    profile: tuple[int, str | None],
    items: Iterable[tuple[str | None, int]],
    sold: Mapping[str, int],
    recent: str | None,
    brief: Iterable[str | None],
    prices: Mapping[tuple[str, int], int],
) -> str:
    """What a key's states hold after a batch: all of them, as one text."""
    by_size = sorted((product, size, price) for (product, size), price in prices.items())
    held = [total, profile, list(items), sorted(sold.items()), recent, list(brief), by_size]
    return json.dumps(held)


class SparkBasket(StatefulProcessor):
    """Each kind of state that Spark has, with and without a time to live, and a timer for each call."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.total = handle.getValueState("total", "total long")
        self.profile = handle.getValueState("profile", "visits int, last string")
        self.items = handle.getListState("items", "product string, amount long")
        self.sold = handle.getMapState("sold", "product string", "amount long")
        self.recent = handle.getValueState("recent", "product string", HOUR_MS)
        self.brief = handle.getListState("brief", "product string", 1)
        self.prices = handle.getMapState("prices", "product string, size int", "price long", HOUR_MS)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        for frame in rows:
            bought = list(zip(frame["product"], frame["size"].tolist(), frame["amount"].tolist()))
            self.total.update(((self.total.get() or (0,))[0] + sum(amount for _, _, amount in bought),))
            self.profile.update(((self.profile.get() or (0,))[0] + len(bought), bought[-1][0]))
            self.recent.update((bought[-1][0],))
            for product, size, amount in bought:
                self.items.appendValue((product, amount))
                self.brief.appendValue((product,))
                name = product or "none"
                self.sold.updateValue((name,), ((self.sold.getValue((name,)) or (0,))[0] + amount,))
                self.prices.updateValue((name, size), (amount,))
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1)
        text = said(
            self.total.get()[0],
            tuple(self.profile.get()),
            [tuple(one) for one in self.items.get()],
            {product: amount for (product,), (amount,) in self.sold.iterator()},
            self.recent.get()[0],
            [product for (product,) in self.brief.get()],
            {tuple(name): price for name, (price,) in self.prices.iterator()},
        )
        yield pd.DataFrame({"shop": [key[0]], "number": [key[1]], "said": [text]})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame({"shop": [key[0]], "number": [key[1]], "said": ["timer"]})


def by_transform_with_state(events: DataFrame) -> DataFrame:
    """Baskets by Spark's own state."""
    made: DataFrame = events.groupBy("shop", "number").transformWithStateInPandas(
        SparkBasket(), OUTPUT, "append", "ProcessingTime"
    )
    return made


class Basket(hf.KeyedProcessor):
    """The same, without the struct around a single field. What lived for a millisecond lives for an hour."""

    total = hf.ValueState(pa.int64())
    profile = hf.ValueState(pa.struct([("visits", pa.int32()), ("last", pa.string())]))
    items = hf.ListState(pa.struct([("product", pa.string()), ("amount", pa.int64())]))
    sold = hf.MapState(pa.string(), pa.int64())
    recent = hf.ValueState(pa.string(), ttl="1 h")
    brief = hf.ListState(pa.string(), ttl="1 h")
    prices = hf.MapState(pa.struct([("product", pa.string()), ("size", pa.int32())]), pa.int64(), ttl="1 h")
    timers = hf.Timers("processing")

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[Any]:
        bought: list[Bought] = [(row["product"], row["size"], row["amount"]) for row in rows.to_pylist()]
        visits = (self.profile.value() or {"visits": 0})["visits"]
        self.total.update((self.total.value() or 0) + sum(amount for _, _, amount in bought))
        self.profile.update({"visits": visits + len(bought), "last": bought[-1][0]})
        self.recent.update(bought[-1][0])
        for product, size, amount in bought:
            self.items.add({"product": product, "amount": amount})
            self.brief.add(product)
            name = product or "none"
            self.sold.put(name, (self.sold.get(name) or 0) + amount)
            self.prices.put({"product": name, "size": size}, amount)
        profile = self.profile.value()
        yield (
            *key,
            said(
                self.total.value(),
                (profile["visits"], profile["last"]),
                [(one["product"], one["amount"]) for one in self.items.get()],
                dict(self.sold.items()),
                self.recent.value(),
                self.brief.get(),
                {(name["product"], name["size"]): price for name, price in self.prices.items()},
            ),
        )

    def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: hf.Context) -> Iterator[Any]:
        yield *key, "timer"
