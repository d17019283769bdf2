"""A source that has nothing but the time, so that a query without rows runs a batch now and then.

Its offsets are milliseconds: the last whole multiple of the interval, whatever the interval was before. They stand in
Spark's offset log, so a replay has the same, and never go back when the clock does. Where the clock was ahead, of this
driver or of one before, they go on by a millisecond a tick until its time has come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructField, StructType, TimestampType

from holdfast import _core
from holdfast.clock import Clock, SystemClock

FORMAT = "holdfast-ticks"
_INTERVAL = "intervalMs"
_NAMES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


class TicksDataSource(DataSource):
    """One row a batch, whose interval has passed since the last: the time that it passed."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return FORMAT

    def schema(self) -> StructType:
        """Spark: the columns."""
        return StructType([StructField("tick", TimestampType())])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Spark: for ``spark.readStream``."""
        interval_ms = int(self.options[_INTERVAL])
        try:
            from holdfast.spark.tick_admission import AdmissionTicksReader
        except ImportError:
            return UnlimitedTicksReader(interval_ms)
        return AdmissionTicksReader(interval_ms)


class TickPartition(InputPartition):
    """The one task of a batch with a tick: its time."""

    def __init__(self, ms: int) -> None:
        super().__init__(ms)


class TicksReader(DataSourceStreamReader):
    """What all versions of Spark call in the same way. Abstract: a subclass says when a batch ends."""

    def __init__(self, interval_ms: int, clock: Clock | None = None) -> None:
        self.interval_ms = interval_ms
        self.clock = clock or SystemClock()
        self._ahead: tuple[int, float] | None = None  # an offset that is ahead of the clock, and since when it is known

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Spark: where a query without a checkpoint starts."""
        return {"ms": 0}

    def latest(self, after_ms: int) -> dict[str, Any]:
        """The last tick, at or after one that there was. With the interval 0 there are no more."""
        if self.interval_ms == 0:
            return {"ms": after_ms}
        now_ms = self.clock.now_ms()
        due_ms = now_ms - now_ms % self.interval_ms
        if after_ms - due_ms <= self.interval_ms:
            return {"ms": max(after_ms, due_ms)}
        return {"ms": after_ms + 1 if self._has_waited(after_ms) else after_ms}

    def _has_waited(self, after_ms: int) -> bool:
        """Whether an offset has stood here for an interval, by the clock that never goes back."""
        elapsed_ms = self.clock.elapsed_ms()
        if self._ahead is None or self._ahead[0] != after_ms:
            self._ahead = (after_ms, elapsed_ms)
        return elapsed_ms - self._ahead[1] >= self.interval_ms

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Spark: the tasks of a batch."""
        return [TickPartition(end["ms"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Spark, in a task: the row."""
        yield pa.record_batch({"tick": pa.array([partition.value * 1000], pa.timestamp("us", "UTC"))})

    def commit(self, end: dict[str, Any]) -> None:
        """Spark: all before ``end`` is in a checkpoint."""


class UnlimitedTicksReader(TicksReader):
    """For Spark 4.0 and 4.1, which do not say where a batch starts; it is where the last one that was planned ended."""

    def __init__(self, interval_ms: int, clock: Clock | None = None) -> None:
        super().__init__(interval_ms, clock)
        self._last_ms = 0

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """Spark: where the next batch ends."""
        return self.latest(self._last_ms)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Spark: the tasks of a batch. A query that is started again asks for its last one before anything else."""
        self._last_ms = max(self._last_ms, end["ms"])
        return super().partitions(start, end)


def ticks(spark: SparkSession, interval_ms: int, operator: str) -> DataFrame:
    """A streaming DataFrame with a row in each batch that begins an interval; with the interval 0 it never has any.

    Where the session wants all sources to have names (4.2 and later), it is named after the operator.
    """
    spark.dataSource.register(TicksDataSource)
    reader = spark.readStream.format(FORMAT).option(_INTERVAL, interval_ms)
    if str(spark.conf.get(_NAMES, "false")).lower() == "true":
        reader = reader.name(f"holdfast_ticks_{_core.xxh64(operator.encode()):016x}")
    return reader.load()
