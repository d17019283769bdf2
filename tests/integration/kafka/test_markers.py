"""Transactions that their coordinator calls complete while a partition waits for the marker: what a broker leaves that
dies right after it has answered. Made here on demand: this broker takes writes of producers whose transaction is over.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from tests.integration.kafka.kafka_world import KafkaWorld, eventually
from tests.kafka_reading import read_committed

from holdfast.commit.sink import Committable, Outcome, Scope
from holdfast.kafka.markers import Markers
from holdfast.kafka.transactional_ids import TransactionalId
from holdfast.kafka.transactions import Prepared, Transactions
from holdfast.sink.kafka import KafkaSink
from holdfast.testing import KafkaBroker

ID = str(TransactionalId("query", "kafka", 1, 0, 0, 0))


@pytest.fixture(scope="module")
def lax() -> Iterator[KafkaWorld]:
    with KafkaBroker(settings={"transaction.partition.verification.enable": "false"}) as broker:
        yield KafkaWorld(broker)


class Ended:
    """A transaction that has ended with one record, and one more that came after its marker: open for ever."""

    def __init__(self, world: KafkaWorld, commit: bool) -> None:
        self.topic = world.topic()
        self.known = Transactions({"bootstrap.servers": world.servers}, 30_000)
        producer = Producer({"bootstrap.servers": world.servers, "transactional.id": ID})
        producer.init_transactions(30)
        producer.begin_transaction()
        self._write(producer, b"before")
        [found] = self.known.describe([ID])
        assert found is not None
        self.one = Prepared(ID, found.producer_id, found.producer_epoch, (self.topic,))
        self.known.end([self.one], commit)
        eventually(lambda: world.end_of(self.topic) == 2)
        self._write(producer, b"after")
        world.produce(self.topic, [b"of somebody else"])

    def _write(self, producer: Producer, value: bytes) -> None:
        producer.produce(self.topic, value, partition=0)
        assert producer.flush(120) == 0


def test_what_was_committed_is_visible_once_its_missing_marker_is_written(
    lax: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    ended = Ended(lax, commit=True)
    assert read_committed(lax.servers, ended.topic) == [b"before"]  # readers stand still
    Markers(ended.known).wait_for([ended.one], [ended.topic], None)
    assert read_committed(lax.servers, ended.topic) == [b"before", b"after", b"of somebody else"]
    assert f"missing in {ended.topic}-0 to commit transaction {ID}" in caplog.text


def test_a_stray_whose_marker_is_missing_stalls_nobody_after_a_sweep(lax: KafkaWorld) -> None:
    ended = Ended(lax, commit=False)
    assert read_committed(lax.servers, ended.topic) == []
    Markers(ended.known).sweep([ID], [ended.topic])
    assert read_committed(lax.servers, ended.topic) == [b"of somebody else"]


def test_the_sink_looks_for_missing_markers_when_it_commits_again_and_when_it_recovers(lax: KafkaWorld) -> None:
    """A driver that was killed together with the broker: its successor finds the transaction complete."""
    scope = Scope("query", "run", 1, "kafka")
    for commit, visible in ((True, [b"before", b"after", b"of somebody else"]), (False, [b"of somebody else"])):
        ended = Ended(lax, commit)
        sink = KafkaSink(lax.servers, ended.topic, witness_topic=None)  # nobody has claimed it
        if commit:
            body = {"transactional_id": ID, "producer_id": ended.one.producer_id, "topics": [ended.topic]}
            named = Committable(0, 0, 1, 6, {**body, "producer_epoch": ended.one.producer_epoch})
            assert sink.commit(scope, [named]) == [Outcome.DONE]
        else:
            assert sink.recover(scope, []) == 0
        assert read_committed(lax.servers, ended.topic) == visible


def test_an_open_transaction_stays_open(lax: KafkaWorld) -> None:
    """It is at its coordinator, too: a sweep has no business with it."""
    topic = lax.topic()
    producer = Producer({"bootstrap.servers": lax.servers, "transactional.id": ID})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"mine", partition=0)
    assert producer.flush(120) == 0
    Markers(Transactions({"bootstrap.servers": lax.servers}, 30_000)).sweep([ID], [topic])
    assert read_committed(lax.servers, topic) == []
    producer.commit_transaction(30)
    eventually(lambda: read_committed(lax.servers, topic) == [b"mine"])
