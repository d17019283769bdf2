"""A running sum by key as Holdfast keeps it, and the empty pipe that moves rows and keeps nothing.

All take rows (key long, amount long). Holdfast gives one row for each key and 65,536 rows at most, where the rivals
(benchmarks/stream/rivals.py) give one for each key that changed and batch: never less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState

import holdfast as hf
from holdfast.spark import blobs, pack
from holdfast.spark.labels import spread_labels

TOTALS = "key long, total long"
_ROWS = pa.schema([("key", pa.int64()), ("amount", pa.int64())])
_SLOTS = 2


class Sums(hf.BatchProcessor):
    """Adds, and gives the new total of each key in the batch at hand."""

    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> pa.RecordBatch:
        totals = self.total.add(batch, batch["amount"])
        last = ~pd.Series(batch["key"].to_numpy()).duplicated(keep="last").to_numpy()
        given = pa.RecordBatch.from_arrays([batch["key"], totals], names=["key", "total"])
        return given.filter(pa.array(last))


class SumsForEachRow(hf.BatchProcessor):
    """Adds, and gives the total after each row."""

    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [batch["key"], self.total.add(batch, batch["amount"])], names=["key", "total"]
        )


class SilentSums(hf.BatchProcessor):
    """Adds, and gives nothing: to be held against the empty pipe, which gives nothing either."""

    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.total.add_only(batch, batch["amount"])


def holdfast(rows: DataFrame, processor: hf.BatchProcessor | None = None, **settings: Any) -> DataFrame:
    """Holdfast, as anybody would write it."""
    return rows.transform(hf.keyed("key", processor or Sums(), TOTALS, name="sums", settings=settings))


def empty_pipe(rows: DataFrame) -> DataFrame:
    """The same packing and shuffling, rows read in Python, a pointer in Spark's state; no store, no checkpoint."""
    labels = spread_labels(_SLOTS, _SLOTS)
    plan = pack.PackPlan(
        operator="pipe",
        schema=_ROWS,
        key_schema=pa.schema([_ROWS.field("key")]),
        null_keys=False,
        max_parallelism=4096,
        labels=lambda: labels,
        event_time_column=None,
        memory_max_bytes=32 << 20,
        blob_max_bytes=1 << 20,
        arrow_rows_max=10_000,
    )
    packed = pack.for_slots(rows.mapInArrow(pack.pack_function(plan), pack.PACKED_SCHEMA), watermarked=False)
    return packed.groupBy("slot").applyInPandasWithState(_move, "rows long", "pointer string", "append", "NoTimeout")


def _move(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    count = 0
    for frame in frames:
        for data in frame["blob"]:
            if data is not None:
                count += blobs.Blob.open(pa.py_buffer(data), "the empty pipe").read(_ROWS).num_rows
    if count:
        state.update((f"{count}",))
        yield pd.DataFrame({"rows": [count]})


@dataclass(frozen=True)
class Way:
    """How totals are kept: the query, its output mode, and Spark's settings for it."""

    build: Callable[[DataFrame], DataFrame]
    output_mode: Literal["append", "update"] = "append"
    conf: Mapping[str, str] = field(default_factory=dict)


OURS = {
    "empty pipe": Way(empty_pipe),
    "holdfast": Way(holdfast),
    "holdfast, a total for each row": Way(lambda rows: holdfast(rows, SumsForEachRow())),
    "holdfast, no output": Way(lambda rows: holdfast(rows, SilentSums())),
    "holdfast, no output, hashmap": Way(lambda rows: holdfast(rows, SilentSums(), **{"state.backend": "hashmap"})),
}
