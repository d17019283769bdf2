"""What the tests of the Kafka source do with a real broker: topics, records, transactions, reading without Spark."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from holdfast.source.kafka.cluster import Cluster
from holdfast.source.kafka.consumers import ConsumerPool
from holdfast.source.kafka.offsets import Range
from holdfast.source.kafka.options import SourceOptions
from holdfast.source.kafka.planner import StreamPlanner
from holdfast.source.kafka.reading import read_range
from holdfast.testing import KafkaBroker, KafkaCluster

_numbers = itertools.count()
_quiet = logging.getLogger("tests.kafka")


class KafkaWorld:
    """One broker, seen from the outside."""

    def __init__(self, broker: KafkaBroker | KafkaCluster) -> None:
        self.broker = broker
        self.servers = broker.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self.servers}, logger=_quiet)
        idempotent = {"linger.ms": 5, "enable.idempotence": True}  # brokers die under tests, and nothing may come twice
        self._producer = Producer({"bootstrap.servers": self.servers, **idempotent}, logger=_quiet)

    def topic(self, partitions: int = 1, name: str | None = None, **config: str) -> str:
        """Creates a topic; ``__`` in a setting's name stands for a dot."""
        name = name or f"topic-{next(_numbers)}"
        settings = {"retention.ms": "-1"}  # tests stamp records as they like, and some are of 1970
        settings.update((key.replace("__", "."), value) for key, value in config.items())
        self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(120)
        eventually(lambda: len(self.admin.list_topics(name, 10).topics[name].partitions) == partitions)
        # An older broker names a leader before that one knows.
        eventually(lambda: all(self.end_of(name, number) == 0 for number in range(partitions)))
        return name

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | None],
        partition: int = 0,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        timestamp_ms: int = 0,
    ) -> None:
        """Records in this order, acknowledged."""
        failures: list[Any] = []
        for value in values:
            while True:
                try:
                    self._producer.produce(
                        topic,
                        value,
                        key,
                        partition,
                        on_delivery=lambda error, _: failures.append(error) if error else None,
                        timestamp=timestamp_ms,
                        headers=list(headers) if headers else None,
                    )
                    break
                except KafkaException:
                    # The producer has yet to hear of a partition that was added.
                    self._producer.list_topics(topic, 10)
        assert self._producer.flush(120) == 0
        assert not failures, failures

    def transaction(self, topic: str, values: Sequence[bytes], commit: bool, partition: int = 0) -> range:
        """Records in one transaction, and its end, whose marker the broker writes in its own time; their offsets."""
        start = self.end_of(topic, partition)
        end = start + len(values) + 1
        producer = self.begin(topic, values, partition)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        eventually(lambda: self.end_of(topic, partition) == end)
        return range(start, end - 1)

    def end_of(self, topic: str, partition: int = 0) -> int:
        """The last stable offset."""
        place = TopicPartition(topic, partition)
        stable = self.admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED)
        return int(stable[place].result(120).offset)

    def is_settled(self, topic: str, partition: int) -> bool:
        """Whether no transaction is open, and no marker is still to come."""
        place = TopicPartition(topic, partition)
        written = self.admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        return self.end_of(topic, partition) == int(written[place].result(120).offset)

    def transactional_producer(self) -> Producer:
        """One that goes from transaction to transaction."""
        settings = {"bootstrap.servers": self.servers, "transactional.id": f"id-{next(_numbers)}", "linger.ms": 0}
        producer = Producer(settings, logger=_quiet)
        producer.init_transactions(30)
        return producer

    def group_offset(self, group: str, topic: str, partition: int = 0) -> int:
        """What a consumer group has committed; negative: nothing. By a consumer: librdkafka's admin client follows a
        null pointer where the group's coordinator has just started.
        """
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group}, logger=_quiet)
        try:
            [place] = consumer.committed([TopicPartition(topic, partition)], 30)
            return int(place.offset)
        finally:
            consumer.close()

    def begin(self, topic: str, values: Iterable[bytes], partition: int = 0) -> Producer:
        """A transaction that stays open."""
        transactional_id = f"id-{next(_numbers)}"
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": transactional_id}, logger=_quiet)
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=partition)
        producer.flush(120)
        return producer

    def add_partitions(self, topic: str, total: int) -> None:
        """More partitions for a topic."""
        self.admin.create_partitions([NewPartitions(topic, total)])[topic].result(120)
        eventually(lambda: len(self.admin.list_topics(topic, 10).topics[topic].partitions) == total)

    def delete_topic(self, topic: str) -> None:
        """And wait until it is gone."""
        self.admin.delete_topics([topic])[topic].result(120)
        eventually(lambda: topic not in self.admin.list_topics(timeout=10).topics)

    def delete_before(self, topic: str, offset: int, partition: int = 0) -> None:
        """What retention does: records before an offset are gone."""
        place = TopicPartition(topic, partition, offset)
        for future in self.admin.delete_records([place]).values():
            future.result(120)

    def options(self, **options: object) -> dict[str, str]:
        """A source's options."""
        return {"kafka.bootstrap.servers": self.servers, **{name: str(value) for name, value in options.items()}}

    def source(self, streaming: bool = True, **options: object) -> SourceOptions:
        """The same, parsed."""
        return SourceOptions.parse(self.options(**options), streaming)


class Stream:
    """Plays Spark to a planner and reads what it plans: a stream without a JVM."""

    def __init__(self, options: SourceOptions, pool: ConsumerPool) -> None:
        self.options = options
        self.pool = pool
        self.planner = StreamPlanner(options, Cluster(options))
        self.offset: dict[str, Any] = self.planner.initial()

    def resume(self) -> Stream:
        """The same query in a new process: nothing but the offset is known."""
        resumed = object.__new__(Stream)
        resumed.options, resumed.pool, resumed.offset = self.options, self.pool, self.offset
        resumed.planner = StreamPlanner(self.options, Cluster(self.options))
        return resumed

    def batch(self) -> list[bytes]:
        """The values of the next batch."""
        end = self.planner.latest(self.offset)
        ranges = self.planner.ranges(self.offset, end)
        self.offset = end
        return self.read(ranges)

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        """The values of ranges, in their order."""
        tables = [batch for part in ranges for batch in read_range(self.options, part, self.pool)]
        return [value for batch in tables for value in batch.column("value").to_pylist()]


def read_all(options: SourceOptions, part: Range, pool: ConsumerPool) -> pa.Table:
    """One range."""
    return pa.Table.from_batches(list(read_range(options, part, pool)))


def values(start: int, end: int, prefix: str = "v") -> list[bytes]:
    """``v0``, ``v1``, …"""
    return [f"{prefix}{number}".encode() for number in range(start, end)]


def eventually(question: Callable[[], bool], within_s: float = 120.0) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            if question():
                return
        except (KafkaException, KeyError):
            pass
        assert time.monotonic() < deadline, f"not true within {within_s:g} s"
        time.sleep(0.05)
