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
from holdfast.source.kafka.offsets import Positions, Range
from holdfast.source.kafka.options import SourceOptions
from holdfast.source.kafka.reading import read_range
from holdfast.source.kafka.stream import RangePartition
from holdfast.source.kafka.subscription import Partition
from holdfast.spark.worker_process import prepare_worker_process


def plan_batch(
    options: SourceOptions, cluster: Cluster, clock: Clock | None = None, pause: Callable[[float], None] = time.sleep
) -> list[Range]:
    """The ranges of one batch read."""
    clock = clock or SystemClock()
    topics = starting_topics(options, cluster, Doubt(clock, pause))
    if not topics.partitions:
        raise InvalidRequest(f"{options.subscription}: nothing of it exists at {options.client['bootstrap.servers']}")
    starts = cluster.resolve(options.starting, topics.partitions)
    ends = _within(options, cluster, cluster.resolve(options.ending, topics.partitions), Doubt(clock, pause))
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
    return split(ranges, *options.split)


def _within(options: SourceOptions, cluster: Cluster, ends: Positions, doubt: Doubt) -> Positions:
    """Ends that are given as offsets may be past those of the logs: a task would wait for what never comes."""
    named = sorted(key for key, end in (options.ending.offsets or {}).items() if end > 0)
    while past := _past(ends, cluster.high_watermarks(named)):
        if not doubt.lasts():
            break
    for (topic, number), high in past.items():
        message = f"{topic}-{number}: endingOffsets has {ends[topic, number]}, but the partition ends at {high}"
        if options.fail_on_data_loss:
            raise InvalidRequest(
                f"{message}. Use an offset up to that, or -1 for its end, or set failOnDataLoss to false to read what"
                " there is"
            )
        logger.warning("%s; going on because failOnDataLoss is false", message)
    # What an open transaction holds back may be waited for only where somebody has named it.
    return {**ends, **past, **cluster.latest(sorted(past))}


def _past(ends: Positions, high: Positions) -> dict[Partition, int]:
    return {key: end for key, end in sorted(high.items()) if end < ends[key]}


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
