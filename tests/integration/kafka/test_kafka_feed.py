"""What the feed of all harnesses writes: each record once, in order, amid markers and aborted records."""

from __future__ import annotations

from itertools import pairwise

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.integration.kafka.kafka_world import KafkaWorld, eventually
from tests.kafka_reading import read_messages

from holdfast.testing.kafka_feed import Record, TransactionalFeed


def records(count: int, partitions: int = 2) -> list[Record]:
    return [Record(b"%d" % at, b"k%d" % at, at % partitions) for at in range(count)]


def seen(kafka: KafkaWorld, topic: str, isolation: str = "read_committed") -> list[tuple[int, bytes]]:
    for partition in range(2):
        eventually(lambda at=partition: kafka.is_settled(topic, at))  # type: ignore[misc]
    return [(message.partition(), message.value()) for message in read_messages(kafka.servers, topic, isolation)]


def in_order(count: int) -> list[tuple[int, bytes]]:
    return [(partition, b"%d" % at) for partition in range(2) for at in range(partition, count, 2)]


def test_readers_see_each_record_once_and_none_of_the_aborted(kafka: KafkaWorld) -> None:
    topic = kafka.topic(2)
    TransactionalFeed(kafka.servers, topic, f"feed-{topic}", seed=1).send(records(60))
    assert seen(kafka, topic) == in_order(60)
    all_there_is = seen(kafka, topic, "read_uncommitted")
    decoys = [value for _, value in all_there_is if value == b"aborted"]
    assert len(decoys) == len(all_there_is) - 60 > 0
    messages = [message for message in read_messages(kafka.servers, topic) if message.partition() == 0]
    gaps = [b.offset() - a.offset() > 1 for a, b in pairwise(messages)]
    assert sum(gaps) > 5, "a marker is never far"


def test_few_small_transactions_and_the_rest_in_large_ones(kafka: KafkaWorld) -> None:
    topic = kafka.topic(2)
    feed = TransactionalFeed(kafka.servers, topic, f"feed-{topic}", small_max=2, rest_rows=500)
    feed.send(records(2000))
    assert seen(kafka, topic) == in_order(2000)
    assert sum(kafka.end_of(topic, partition) for partition in range(2)) < 2100


def test_what_was_aborted_on_the_way_is_written_once_more(kafka: KafkaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = kafka.topic(2)
    feed = TransactionalFeed(kafka.servers, topic, f"feed-{topic}", seed=1)
    producer, ends = feed._producer, iter([True, False, True, True])

    class Refusing:
        """Some commits fail, as when the coordinator has timed the transaction out."""

        def __getattr__(self, name: str) -> object:
            return getattr(producer, name)

        def commit_transaction(self, within_s: float) -> None:
            if not next(ends, True):
                raise KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE, "refused", False, False, True))
            producer.commit_transaction(within_s)

    monkeypatch.setattr(feed, "_producer", Refusing())
    feed.send(records(30))
    assert seen(kafka, topic) == in_order(30)


def test_a_feed_that_is_made_again_aborts_what_was_left_open(kafka: KafkaWorld) -> None:
    topic = kafka.topic(2)
    first = TransactionalFeed(kafka.servers, topic, f"feed-{topic}")
    first._produce(records(3))
    TransactionalFeed(kafka.servers, topic, f"feed-{topic}").send(records(4))
    assert seen(kafka, topic) == in_order(4)
