"""An independent reader of Kafka: plain consumers that know nothing of Holdfast, and wait for nothing that a user's
consumer would not wait for. So a commit that says done before its rows are visible is seen to be a lie.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

_quiet = logging.getLogger("tests.kafka")
WITHIN_S = 120.0


def read_messages(servers: str, topic: str, isolation: str = "read_committed", **config: str) -> list[Any]:
    """The messages of all partitions up to their last stable offsets, each partition in its order."""
    settings = {"bootstrap.servers": servers, "group.id": "tests", "isolation.level": isolation, **config}
    whole = {"enable.partition.eof": True, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    quick = {"fetch.wait.max.ms": 20}  # the end of a partition is told by an answer without records
    consumer = Consumer({**quick, **settings, **whole}, logger=_quiet)
    try:
        numbers = list(consumer.list_topics(topic, WITHIN_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        told: KafkaError | None = None
        left, found, deadline = set(numbers), [], time.monotonic() + WITHIN_S
        while left:
            assert time.monotonic() < deadline, f"{topic}: partitions {left} did not end within {WITHIN_S:g} s: {told}"
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            else:  # a broker is away, and may come back
                told = error
        return sorted(found, key=lambda message: (message.partition(), message.offset()))
    finally:
        consumer.close()


def read_committed(servers: str, topic: str) -> list[bytes]:
    """The values that a read_committed consumer sees."""
    return [message.value() for message in read_messages(servers, topic)]


def unstable(servers: str, topic: str) -> dict[int, tuple[int, int]]:
    """Partitions whose readers stand still before the end: their last stable offsets, and their ends."""
    admin = AdminClient({"bootstrap.servers": servers}, logger=_quiet)
    numbers = admin.list_topics(topic, WITHIN_S).topics[topic].partitions
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in numbers}
    ends = [
        {place.partition: future.result(WITHIN_S).offset for place, future in found.items()}
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        for found in [admin.list_offsets(asked, isolation_level=level)]
    ]
    # Below 0: the leader did not answer.
    return {
        number: (ends[0][number], ends[1][number]) for number in numbers if not 0 <= ends[0][number] == ends[1][number]
    }


def wait_until_stable(servers: str, topic: str, within_s: float = WITHIN_S) -> None:
    """Until no transaction is open in a topic: Kafka answers that one has ended first, and writes its marker after.

    Only for what ended without a sink's commit, which waits for that itself.
    """
    deadline = time.monotonic() + within_s
    while left := unstable(servers, topic):
        assert time.monotonic() < deadline, f"{topic}: still open after {within_s:g} s: {left}"
        time.sleep(0.02)
