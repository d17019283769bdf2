"""A running sum by key in each of the ways that PySpark has, and the empty pipe that moves rows and keeps nothing.

All take rows (key long, amount long). Those that keep state give one row for each key that changed and batch, but for
Holdfast, which gives one for each key and 65,536 rows at most: never less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

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
    packed = rows.mapInArrow(pack.pack_function(plan), pack.packed_schema(None))
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


def spark_sql(rows: DataFrame) -> DataFrame:
    """Spark's own aggregation; nothing goes to Python."""
    return rows.groupBy("key").agg({"amount": "sum"})


def apply_in_pandas(rows: DataFrame) -> DataFrame:
    """What PySpark's users write: one group a key."""
    return rows.groupBy("key").applyInPandasWithState(_add, TOTALS, "total long", "update", "NoTimeout")


def _add(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    total = state.get[0] if state.exists else 0
    for frame in frames:
        total += int(frame["amount"].sum())
    state.update((total,))
    yield pd.DataFrame({"key": [key[0]], "total": [total]})


class SumProcessor(StatefulProcessor):
    """The same for transformWithStateInPandas."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        total = (self._total.get() or (0,))[0]
        for frame in rows:
            total += int(frame["amount"].sum())
        self._total.update((total,))
        yield pd.DataFrame({"key": [key[0]], "total": [total]})

    def close(self) -> None:
        pass


def transform_with_state(rows: DataFrame) -> DataFrame:
    """Spark 4's own operator for Python."""
    return rows.groupBy("key").transformWithStateInPandas(SumProcessor(), TOTALS, "Update", "None")


# Output mode that each way takes.
WAYS: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "empty pipe": (empty_pipe, "append"),
    "holdfast": (holdfast, "append"),
    "holdfast, a total for each row": (lambda rows: holdfast(rows, SumsForEachRow()), "append"),
    "holdfast, no output": (lambda rows: holdfast(rows, SilentSums()), "append"),
    "holdfast, no output, hashmap": (
        lambda rows: holdfast(rows, SilentSums(), **{"state.backend": "hashmap"}),
        "append",
    ),
    "Spark SQL": (spark_sql, "update"),
    "applyInPandasWithState": (apply_in_pandas, "update"),
    "transformWithStateInPandas": (transform_with_state, "update"),
}
