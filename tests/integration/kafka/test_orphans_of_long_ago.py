"""Names of transactions are a ring of sixteen drivers: what those of long ago have open looks like what newer ones do.

Their witnesses tell them apart, and the coordinator ends one of them only as it was found.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec
from tests.integration.kafka.kafka_world import KafkaWorld, eventually
from tests.kafka_reading import read_committed

from holdfast.commit.epochs import Driver
from holdfast.commit.sink import Committable, Outcome, Scope, SinkTask, SinkWriter
from holdfast.errors import HoldfastError
from holdfast.kafka.transactional_ids import pattern_of
from holdfast.kafka.transactions import ONGOING, Prepared, Transactions
from holdfast.sink.kafka import KafkaSink
from holdfast.sink.kafka.fitness import Fitness
from holdfast.testing import KafkaBroker

QUERY = "7d1fd7a2-6d4e-4b0a-9f56-7a5c1f0e9d11"
NOW = 40
_numbers = itertools.count()


class Drivers:
    """The drivers of one sink, by their epochs."""

    def __init__(self, kafka: KafkaWorld) -> None:
        self.kafka = kafka
        self.topic = kafka.topic()
        self.sink = KafkaSink(kafka.servers, self.topic, name=f"ring-{next(_numbers)}")
        Fitness(self.sink.options).check()
        self.transactions = Transactions(self.sink.options.client, 30_000)

    def start(self, epoch: int, kept: tuple[Committable, ...] = ()) -> Scope:
        """One takes the sink over."""
        scope = Scope(QUERY, f"run-{epoch}", epoch, self.sink.name)
        claim = self.sink.claim(scope, Driver(scope.run_id, "localhost", 1, 0), kept, lambda traces: None)
        return replace(scope, claim=claim)

    def opened(self, scope: Scope, value: str = "v") -> SinkWriter:
        """A task that has written one row, which lies open in the topic."""
        before = self._high()
        writer = self.sink.open(SinkTask(scope, 0, 0, 0, 0))
        writer.write(row(value))
        eventually(lambda: self._high() > before and bool(self.is_open()))
        return writer

    def is_open(self) -> list[str]:
        return [name for name, _ in self.transactions.listing(pattern_of(QUERY, self.sink.name), [ONGOING])]

    def check_readers_go_on(self) -> None:
        self.kafka.produce(self.topic, [b"of somebody else"])
        eventually(lambda: read_committed(self.kafka.servers, self.topic)[-1:] == [b"of somebody else"], 60)

    def _high(self) -> int:
        place = TopicPartition(self.topic, 0)
        asked = self.kafka.admin.list_offsets(
            {place: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_UNCOMMITTED
        )
        return int(asked[place].result(120).offset)


def row(value: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"key": ["k"], "value": [value]})


def goes_on_writing(writer: SinkWriter) -> Committable | None:
    try:
        writer.write(row("late"))
        return writer.prepare()
    except HoldfastError:
        return None


def _of(found: Committable) -> Prepared:
    body = found.body
    return Prepared(body["transactional_id"], body["producer_id"], body["producer_epoch"])


@pytest.fixture
def drivers(kafka: KafkaWorld) -> Drivers:
    return Drivers(kafka)


@pytest.mark.parametrize("ago", [13, 15])
def test_what_a_driver_of_long_ago_has_open_does_not_stop_a_start(drivers: Drivers, ago: int) -> None:
    """Each start ended with Unavailable, until the transaction's time limit: its witness had not ended."""
    orphan = drivers.opened(drivers.start(NOW - ago))
    now = drivers.start(NOW)
    assert drivers.is_open() == []
    late = goes_on_writing(orphan)
    assert late is None or drivers.sink.commit(now, [late]) == [Outcome.LOST]
    drivers.check_readers_go_on()
    assert read_committed(drivers.kafka.servers, drivers.topic) == [b"of somebody else"]


@pytest.mark.parametrize("ago", [12, 13, 14, 15, 16, 17])
def test_what_a_driver_of_long_ago_opens_late_stalls_readers_for_seconds_only(drivers: Drivers, ago: int) -> None:
    """Of three of sixteen it stalled them until its time limit, 15 minutes; so did that of sixteen drivers ago."""
    before, now = drivers.start(NOW - ago), drivers.start(NOW)
    orphan = drivers.opened(before)
    assert drivers.sink.abort_late(now, (), own=False) == 1
    assert drivers.sink.abort_late(now, (), own=False) == 0
    assert goes_on_writing(orphan) is None
    drivers.check_readers_go_on()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.0.0"])
def test_the_oldest_brokers_that_can_do_it_do_it(version: str) -> None:
    with KafkaBroker(version=version) as broker:
        drivers = Drivers(KafkaWorld(broker))
        before, now = drivers.start(NOW - 14), drivers.start(NOW)
        orphan = drivers.opened(before)
        assert drivers.sink.abort_late(now, (), own=False) == 1
        assert goes_on_writing(orphan) is None
        drivers.check_readers_go_on()


@pytest.mark.slow
def test_where_the_features_of_the_cluster_are_old_it_is_left_to_its_time_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody can say there which of two producers of one name is to be aborted, and be sure to get that one."""
    with KafkaBroker(features={"transaction.version": 0}) as broker:
        drivers = Drivers(KafkaWorld(broker))
        before, now = drivers.start(NOW - 14), drivers.start(NOW)
        found = drivers.opened(before).prepare()
        assert found is not None
        for _ in range(2):
            assert drivers.sink.abort_late(now, (), own=False) == 0
        assert drivers.is_open() == [found.body["transactional_id"]]
        drivers.transactions.end([_of(found)], commit=False)
        assert drivers.is_open() == [], "its coordinator still does what it is asked"
        assert [said for said in caplog.messages if "holdfast transactions abort" in said][1:] == []
        assert "transaction.version 2" in caplog.text


@pytest.mark.parametrize("after", [1, 2, 3])
def test_what_newer_drivers_have_open_is_left_alone(drivers: Drivers, after: int) -> None:
    now = drivers.start(NOW)
    newer = drivers.start(NOW + after)
    found = drivers.opened(newer).prepare()
    assert found is not None
    assert drivers.sink.abort_late(now, (), own=False) == 0
    assert drivers.sink.recover(now, []) == 0
    assert drivers.sink.commit(newer, [found]) == [Outcome.DONE]


def test_what_a_record_names_is_kept_however_many_drivers_died_since(drivers: Drivers) -> None:
    found = drivers.opened(drivers.start(NOW - 14)).prepare()
    assert found is not None
    now = drivers.start(NOW, (found,))
    assert drivers.sink.recover(now, [found]) == 0
    assert drivers.sink.commit(now, [found]) == [Outcome.DONE]


def test_a_newer_driver_that_takes_the_name_between_look_and_act_loses_nothing(drivers: Drivers) -> None:
    """It stalls for any time between the two, and thirteen drivers ago have the names of three drivers later."""
    before, _ = drivers.start(NOW - 13), drivers.start(NOW)
    drivers.opened(before)
    [seen] = drivers.transactions.describe(drivers.is_open())
    assert seen is not None
    newer = drivers.start(NOW + 3)
    found = drivers.opened(newer).prepare()
    assert found is not None
    assert found.body["transactional_id"] == seen.transactional_id
    assert drivers.transactions.fence_as_found([seen.prepared]) == []
    assert drivers.sink.commit(newer, [found]) == [Outcome.DONE]
    assert drivers.transactions.fence_as_found([Prepared("holdfast-nobody", 1, 0)]) == []


def test_a_topic_that_is_made_again_while_a_task_writes_is_not_taken_for_written(drivers: Drivers) -> None:
    """The producer goes on in the new topic, so that its leader calls the transaction open there; the rows that were
    acknowledged before are gone, and the commit said done.
    """
    now = drivers.start(NOW)
    writer = drivers.opened(now, "gone with its topic")
    drivers.kafka.delete_topic(drivers.topic)
    drivers.kafka.topic(name=drivers.topic)
    writer.write(row("there"))
    prepared = writer.prepare()
    assert prepared is not None and prepared.rows == 2
    assert drivers.sink.commit(now, [prepared]) == [Outcome.LOST]
    drivers.check_readers_go_on()
    assert read_committed(drivers.kafka.servers, drivers.topic) == [b"of somebody else"]
