"""An independent reader of Kafka: a plain consumer, from the start of a topic to its last stable offset."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from holdfast.kafka.transactions import Transactions

_quiet = logging.getLogger("tests.kafka")
WITHIN_S = 30.0


def wait_for_markers(servers: str) -> None:
    """Until each transaction whose end is decided has ended: Kafka answers first, and writes the markers after."""
    known, deadline = Transactions({"bootstrap.servers": servers}, WITHIN_S * 1000), time.monotonic() + WITHIN_S
    while left := known.listing(".*", ("PrepareCommit", "PrepareAbort")):
        assert time.monotonic() < deadline, f"{left} did not end within {WITHIN_S:g} s"
        time.sleep(0.02)


def read_messages(
    servers: str, topic: str, isolation: str = "read_committed", starts: Mapping[int, int] | None = None, **config: str
) -> list[Any]:
    """The messages of all partitions, each partition in its order, from ``starts`` on where it has the partition."""
    wait_for_markers(servers)
    settings = {"bootstrap.servers": servers, "group.id": "tests", "isolation.level": isolation, **config}
    consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False}, logger=_quiet)
    try:
        numbers = list(consumer.list_topics(topic, WITHIN_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, (starts or {}).get(number, 0)) for number in numbers])
        left, found, deadline = set(numbers), [], time.monotonic() + WITHIN_S
        while left:
            assert time.monotonic() < deadline, f"{topic}: partitions {left} did not end within {WITHIN_S:g} s"
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error():
                left.discard(message.partition())
            else:
                found.append(message)
        return sorted(found, key=lambda message: (message.partition(), message.offset()))
    finally:
        consumer.close()


def read_committed(servers: str, topic: str) -> list[bytes]:
    """The values that a read_committed consumer sees."""
    return [message.value() for message in read_messages(servers, topic)]
