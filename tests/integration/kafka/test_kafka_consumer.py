"""What the source relies on in a client: one suite over librdkafka with a real broker, and over the model of it.

The model stands in for the client in tests/model/test_kafka_reading_model.py; what it says there counts only as long
as it passes the same suite.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any, Protocol

import pytest
from confluent_kafka import KafkaError, TopicPartition
from tests.integration.kafka.kafka_world import KafkaWorld, eventually
from tests.partition_log import TOPIC, LogConsumer, PartitionLog

from holdfast.source.kafka.consumers import connected

_values = itertools.count()


class Side(Protocol):
    """A log that can be written, and a consumer of it."""

    topic: str
    client: Any

    def plain(self, count: int) -> None: ...

    def transaction(self, count: int, commit: bool) -> None: ...

    def open_transaction(self, count: int) -> None: ...

    def end_transaction(self, commit: bool) -> None: ...

    def delete_before(self, offset: int) -> None: ...


class ModelSide(PartitionLog):
    """The model."""

    topic = TOPIC

    def __init__(self) -> None:
        super().__init__()
        self.client = LogConsumer(self)


class BrokerSide:
    """A topic of a real broker, and librdkafka."""

    def __init__(self, kafka: KafkaWorld) -> None:
        self._kafka = kafka
        self._open: Any = None
        self.topic = kafka.topic()
        options = kafka.source(subscribe=self.topic)
        self.client = connected(options.client)

    def _new(self, count: int) -> list[bytes]:
        return [f"v{next(_values)}".encode() for _ in range(count)]

    def plain(self, count: int) -> None:
        self._kafka.produce(self.topic, self._new(count))

    def transaction(self, count: int, commit: bool) -> None:
        self._kafka.transaction(self.topic, self._new(count), commit)

    def open_transaction(self, count: int) -> None:
        self._open = self._kafka.begin(self.topic, self._new(count))

    def end_transaction(self, commit: bool) -> None:
        before = self._kafka.end_of(self.topic)
        self._open.commit_transaction(30) if commit else self._open.abort_transaction(30)
        eventually(lambda: self._kafka.end_of(self.topic) > before)

    def delete_before(self, offset: int) -> None:
        self._kafka.delete_before(self.topic, offset)


@pytest.fixture(params=["model", "librdkafka"])
def side(request: pytest.FixtureRequest) -> Iterator[Side]:
    made: Side = ModelSide() if request.param == "model" else BrokerSide(request.getfixturevalue("kafka"))
    yield made
    made.client.close()


def assign(side: Side, offset: int) -> None:
    side.client.assign([TopicPartition(side.topic, 0, offset)])


def until_event(side: Side, at_most: int = 1000) -> list[tuple[str, int]]:
    """What comes, up to an event and with it; or so many."""
    found: list[tuple[str, int]] = []
    deadline = time.monotonic() + 120
    while len(found) < at_most:
        assert time.monotonic() < deadline, found
        message = side.client.poll(0.1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append(("record", message.offset()))
        elif error.code() in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET):
            found.append((error.name(), message.offset()))
            return found
    return found


def records(*offsets: int) -> list[tuple[str, int]]:
    return [("record", offset) for offset in offsets]


END = "_PARTITION_EOF"


def test_the_end_comes_after_all_records_and_names_what_follows_the_last_marker(side: Side) -> None:
    side.plain(2)
    side.transaction(2, commit=True)
    side.transaction(3, commit=False)
    assign(side, 0)
    assert until_event(side) == [*records(0, 1, 2, 3), (END, 9)]
    assert side.client.poll(0.3) is None, "the end is said once"
    side.transaction(1, commit=False)
    assert until_event(side) == [(END, 11)], "and again when there is another, even if nothing came"
    side.transaction(1, commit=True)
    assert until_event(side) == [*records(11), (END, 13)]


def test_one_call_can_bring_records_an_end_and_records(side: Side) -> None:
    """Why an end counts for what came before it only, and what came with it must not be forgotten."""
    side.transaction(2, commit=True)
    assign(side, 0)
    assert until_event(side, at_most=1) == records(0)
    time.sleep(0.3)
    side.transaction(2, commit=True)
    found: list[Any] = []
    deadline = time.monotonic() + 120
    while not (found and found[-1].error()) and time.monotonic() < deadline:
        time.sleep(0.3)
        found += side.client.consume(100, 0.1)
    # Whether the first end, 3, was still said depends on what the client had fetched by then.
    told = [("end" if message.error() else "record", message.offset()) for message in found]
    assert [one for one in told if one != ("end", 3)] == [("record", 1), ("record", 3), ("record", 4), ("end", 6)]


def test_the_end_is_the_last_stable_offset(side: Side) -> None:
    side.plain(1)
    side.open_transaction(2)
    assign(side, 0)
    assert until_event(side) == [*records(0), (END, 1)]
    place = TopicPartition(side.topic, 0)
    assert side.client.get_watermark_offsets(place, timeout=120.0, cached=False) == (0, 1)
    side.end_transaction(commit=True)
    assert until_event(side) == [*records(1, 2), (END, 4)]


def test_a_pause_drops_what_was_fetched_and_a_resumption_fetches_it_again(side: Side) -> None:
    side.transaction(5, commit=True)
    place = TopicPartition(side.topic, 0)
    assign(side, 0)
    assert until_event(side, at_most=2) == records(0, 1)
    side.client.pause([place])
    time.sleep(0.2)
    assert side.client.poll(0.3) is None
    side.client.resume([place])
    assert until_event(side) == [*records(2, 3, 4), (END, 6)]
    side.client.pause([place])
    side.plain(2)
    side.client.resume([place])
    found = until_event(side)
    if found == [(END, 6)]:  # it asked before it heard of the two
        found = until_event(side)
    assert found == [*records(6, 7), (END, 8)]


def test_a_pause_before_anything_but_the_end_came(side: Side) -> None:
    """The client goes on where it was assigned: it has no record to go on behind."""
    side.transaction(3, commit=False)
    place = TopicPartition(side.topic, 0)
    assign(side, 0)
    assert until_event(side) == [(END, 4)]
    side.client.pause([place])
    side.plain(2)
    side.client.resume([place])
    found = until_event(side)
    if found == [(END, 4)]:
        found = until_event(side)
    assert found == [*records(4, 5), (END, 6)]


def test_a_new_assignment_drops_what_was_fetched_for_the_old_one(side: Side) -> None:
    side.plain(6)
    assign(side, 0)
    assert until_event(side, at_most=2) == records(0, 1)
    assign(side, 4)
    assert until_event(side) == [*records(4, 5), (END, 6)]
    assign(side, 1)
    assert until_event(side) == [*records(1, 2, 3, 4, 5), (END, 6)]
    assign(side, 6)
    assert until_event(side) == [(END, 6)]


def test_what_retention_took_is_one_error(side: Side) -> None:
    side.plain(6)
    side.delete_before(4)
    assign(side, 2)
    [(name, _)] = until_event(side)
    assert name == "_AUTO_OFFSET_RESET"
    assert side.client.poll(0.5) is None, "nothing comes after it"
    assign(side, 4)
    assert until_event(side) == [*records(4, 5), (END, 6)]


def test_an_offset_past_the_log_is_one_error(side: Side) -> None:
    side.plain(2)
    assign(side, 7)
    [(name, _)] = until_event(side)
    assert name == "_AUTO_OFFSET_RESET"
