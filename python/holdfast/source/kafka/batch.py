"""The batch reader: both ends are settled when Spark plans the query, on the driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from holdfast.clock import Clock, SystemClock
from holdfast.errors import Corrupt, InvalidRequest
from holdfast.kafka.client import logger
from holdfast.source.kafka.admission import split
from holdfast.source.kafka.cluster import Cluster
from holdfast.source.kafka.doubt import Doubt, starting_topics
from holdfast.source.kafka.offsets import Range
from holdfast.source.kafka.options import SourceOptions
from holdfast.source.kafka.reading import read_range
from holdfast.source.kafka.stream import RangePartition
from holdfast.spark.worker_process import prepare_worker_process


def plan_batch(
    options: SourceOptions, cluster: Cluster, clock: Clock | None = None, pause: Callable[[float], None] = time.sleep
) -> list[Range]:
    """The ranges of one batch read."""
    topics = starting_topics(options, cluster, Doubt(clock or SystemClock(), pause))
    if not topics.partitions:
        raise InvalidRequest(f"{options.subscription}: nothing of it exists at {options.client['bootstrap.servers']}")
    starts = cluster.resolve(options.starting, topics.partitions)
    ends = cluster.resolve(options.ending, topics.partitions)
    earliest = cluster.earliest(topics.partitions)
    ranges = []
    for (topic, number), end in sorted(ends.items()):
        start = starts[topic, number]
        first = earliest.get((topic, number), start)
        if start < first and start < end:
            message = f"{topic}-{number}: startingOffsets has {start}, but the partition starts at {first}"
            if options.fail_on_data_loss:
                raise Corrupt(f"{message}. Set failOnDataLoss to false to read what is left")
            logger.warning("%s; going on because failOnDataLoss is false", message)
            start = first
        if start < end:
            ranges.append(Range(topic, number, start, end, topics.topic_ids.get(topic, "")))
    return split(ranges, options.min_partitions, options.max_records_per_partition)


class KafkaBatchReader(DataSourceReader):
    """Behind ``spark.read``."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Spark: the tasks."""
        return [RangePartition(part) for part in plan_batch(self.options, Cluster(self.options))]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Spark, in a task: the rows of one of them."""
        prepare_worker_process()
        # Where nothing is to be read, Spark makes one task all the same: of None (4.0), or a partition without a value.
        if partition is None or partition.value is None:
            return iter(())
        return read_range(self.options, partition.value)
