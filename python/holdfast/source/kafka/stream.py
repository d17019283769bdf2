"""The streaming reader behind Spark's interface: `StreamPlanner` on the driver, `read_range` in the tasks.

Spark pickles a reader for its tasks, so a reader holds options only, and makes its planner when first asked to plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from holdfast.source.kafka.cluster import Cluster
from holdfast.source.kafka.offsets import Range
from holdfast.source.kafka.options import SourceOptions
from holdfast.source.kafka.planner import StreamPlanner
from holdfast.source.kafka.reading import read_range
from holdfast.spark.worker_process import prepare_worker_process


class RangePartition(InputPartition):
    """One task's part of a batch."""

    def __init__(self, part: Range) -> None:
        super().__init__(part)


class KafkaStreamReader(DataSourceStreamReader):
    """What all versions of Spark call in the same way. Abstract: a subclass says how far a batch goes."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._made: StreamPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "_made": None}

    @property
    def planner(self) -> StreamPlanner:
        """The plan of this query; only the driver has one."""
        if self._made is None:
            self._made = StreamPlanner(self.options, Cluster(self.options))
        return self._made

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Spark: where a query without a checkpoint starts."""
        return self.planner.start()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Spark: the tasks of a batch."""
        return [RangePartition(part) for part in self.planner.ranges(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Spark, in a task: the rows of one of them."""
        prepare_worker_process()
        return read_range(self.options, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark: all before ``end`` is in a checkpoint."""
        self.planner.commit(end)

    def stop(self) -> None:
        """Spark: the query has ended. What groups are to be told of it is told before its process goes."""
        if self._made is not None:
            self._made.close()


class UnlimitedStreamReader(KafkaStreamReader):
    """For Spark 4.0 and 4.1, which say neither where a batch starts nor how much it may take.

    The limits of the options hold all the same: the planner knows where it planned the last batch to end, and a query
    that is started again is told by Spark where it is, as a batch from there to there, before anything else.
    """

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """Spark: where the next batch ends."""
        return self.planner.latest(None)


def stream_reader(options: SourceOptions) -> DataSourceStreamReader:
    """The reader for the Spark at hand."""
    try:
        from holdfast.source.kafka.stream_admission import AdmissionStreamReader
    except ImportError:
        return UnlimitedStreamReader(options)
    return AdmissionStreamReader(options)
