"""Each visible record once, through batches of any size, from topics as the world writes them; a real broker.

Transactions of one to five records, aborted ones between them, plain records, compacted stretches. What must be read is
known from what the test wrote and committed, never from the reader that is tried.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest
from tests.integration.kafka.kafka_world import KafkaWorld, Stream, eventually
from tests.kafka_reading import read_messages

from holdfast.source.kafka.consumers import ConsumerPool
from holdfast.source.kafka.reading import read_range


class Written:
    """A topic, and what was committed to each of its partitions, in order."""

    def __init__(self, kafka: KafkaWorld, partitions: int, seed: int) -> None:
        self.topic = kafka.topic(partitions)
        self.committed: dict[int, list[bytes]] = defaultdict(list)
        self._kafka, self._partitions = kafka, partitions
        self._draw = random.Random(seed)
        self._numbers = 0

    def write(self, transactions: int, rows_max: int = 5) -> None:
        """So many stretches, each in a partition of its own choice."""
        feed = self._kafka.transactional_producer()
        for _ in range(transactions):
            partition = self._draw.randrange(self._partitions)
            kind = self._draw.choice(["committed", "committed", "committed", "aborted", "plain"])
            values = [b"%d/%d" % (partition, self._numbers + at) for at in range(self._draw.randint(1, rows_max))]
            self._numbers += len(values)
            if kind == "plain":
                self._kafka.produce(self.topic, values, partition)
            else:
                feed.begin_transaction()
                for value in values:
                    feed.produce(self.topic, value, partition=partition)
                feed.flush(120)
                feed.commit_transaction(30) if kind == "committed" else feed.abort_transaction(30)
            if kind != "aborted":
                self.committed[partition] += values

    def settle(self) -> None:
        """Kafka answers first and writes markers after: wait for the last stable offsets to reach the end."""
        for partition in range(self._partitions):
            eventually(lambda at=partition: self._kafka.is_settled(self.topic, at))  # type: ignore[misc]


def by_partition(values: list[bytes]) -> dict[int, list[bytes]]:
    """Values in the order in which they came, by the partition that they name."""
    found: dict[int, list[bytes]] = defaultdict(list)
    for value in values:
        found[int(value.split(b"/")[0])].append(value)
    return found


@pytest.fixture(scope="module")
def written(kafka: KafkaWorld) -> Written:
    topic = Written(kafka, 2, seed=11)
    topic.write(60)
    topic.settle()
    return topic


@pytest.mark.parametrize(("limit", "tasks"), [(1, None), (2, 5), (3, None), (7, 5), (20, None), (45, 5)])
def test_all_limits_read_all_that_is_visible(
    kafka: KafkaWorld, pool: ConsumerPool, written: Written, limit: int, tasks: int | None
) -> None:
    """Trigger.AvailableNow: up to what there was, in batches of ``limit`` offsets. Any limit, and any split of a log:
    tests/model/test_kafka_reading_model.py.
    """
    more: dict[str, Any] = {} if tasks is None else {"minPartitions": tasks}
    source = kafka.source(subscribe=written.topic, startingOffsets="earliest", maxOffsetsPerTrigger=limit, **more)
    stream = Stream(source, pool)
    stream.planner.fix_end()
    read: list[bytes] = []
    while (end := stream.planner.latest(stream.offset)) != stream.offset:
        read += stream.read(stream.planner.ranges(stream.offset, end))
        stream.offset = end
    assert by_partition(read) == written.committed


def test_rows_that_came_with_the_end_of_the_log_are_read(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    """80 transactions of one record, whose rows a reader that went by the end of the log lost: 30 of [100, 160)."""
    topic = kafka.topic()
    producer = kafka.transactional_producer()
    for number in range(80):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        producer.commit_transaction(30)
    eventually(lambda: kafka.end_of(topic) == 160)
    for limit in (9, 25, 33, 60, 98, 100):
        stream = Stream(
            kafka.source(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=limit), ConsumerPool()
        )
        read: list[bytes] = []
        for _ in range(160 // limit + 1):
            read += stream.batch()
        stream.pool.clear()
        assert read == [b"%d" % number for number in range(80)], limit


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_that_is_restarted_while_transactions_come_reads_each_row_once(kafka: KafkaWorld, seed: int) -> None:
    """Continuous: idle in between, other limits after a restart, batches that are run again, open transactions."""
    draw = random.Random(seed)
    written = Written(kafka, 2, seed)
    pool = ConsumerPool()

    def options(limit: int, tasks: int) -> Any:
        return kafka.source(
            subscribe=written.topic, startingOffsets="earliest", maxOffsetsPerTrigger=limit, minPartitions=tasks
        )

    stream = Stream(options(5, 1), pool)
    read: list[bytes] = []
    for _ in range(40):
        act = draw.choice(["write", "write", "batch", "batch", "batch", "restart", "replay", "abandon"])
        if act == "write":
            written.write(draw.randint(1, 6))
        elif act == "batch":
            read += stream.batch()
        elif act == "restart":
            if draw.random() < 0.5:
                pool.clear()
            stream.options = options(draw.choice([1, 3, 9, 40]), draw.choice([1, 2, 4]))
            stream = stream.resume()
        else:
            end = stream.planner.latest(stream.offset)
            ranges = stream.planner.ranges(stream.offset, end)
            first = stream.read(ranges) if act == "replay" else []
            for part in ranges if act == "abandon" else []:
                batches: Any = read_range(stream.options, part, pool)
                next(batches, None)
                batches.close()
            again = stream.read(ranges)
            assert act == "abandon" or again == first
            read += again
            stream.offset = end
    written.settle()
    while (end := stream.planner.latest(stream.offset)) != stream.offset:
        read += stream.read(stream.planner.ranges(stream.offset, end))
        stream.offset = end
    pool.clear()
    assert by_partition(read) == written.committed


def test_a_compacted_topic_through_all_limits(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    """The last value of each key is there, at its offset, and nothing that was not written there."""
    topic = kafka.topic(
        cleanup__policy="compact",
        segment__ms="100",
        min__cleanable__dirty__ratio="0.01",
        max__compaction__lag__ms="100",
    )
    producer = kafka.transactional_producer()
    draw = random.Random(3)
    written: dict[int, tuple[bytes, bytes]] = {}
    last: dict[bytes, int] = {}

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        pending[message.offset()] = message.key(), message.value()

    def write(transactions: int) -> None:
        for _ in range(transactions):
            pending.clear()
            producer.begin_transaction()
            for _ in range(draw.randint(1, 5)):
                key, value = b"k%d" % draw.randrange(12), b"%d" % draw.getrandbits(60)
                producer.produce(topic, value, key, 0, on_delivery=delivered)
            producer.flush(120)
            if draw.random() < 0.3:
                producer.abort_transaction(30)
                continue
            producer.commit_transaction(30)
            written.update(pending)
            for offset, (key, _) in sorted(pending.items()):
                last[key] = offset

    pending: dict[int, tuple[bytes, bytes]] = {}

    def compacted() -> bool:
        write(8)
        eventually(lambda: kafka.is_settled(topic, 0))
        return len(read_messages(kafka.servers, topic)) < len(written) // 2

    eventually(compacted, within_s=120)
    for limit, tasks in ((1, 1), (4, 3), (13, 1), (10_000, 7)):
        source = kafka.source(
            subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=limit, minPartitions=tasks
        )
        stream = Stream(source, pool)
        stream.planner.fix_end()
        found: dict[int, tuple[bytes, bytes]] = {}
        while (end := stream.planner.latest(stream.offset)) != stream.offset:
            for part in stream.planner.ranges(stream.offset, end):
                for batch in read_range(source, part, pool):
                    columns = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
                    for offset, key, value in zip(*columns):
                        assert offset > max(found, default=-1)
                        found[offset] = key, value
            stream.offset = end
        assert found.items() <= written.items()
        assert set(last.values()) <= set(found), "the newest of each key is there"
