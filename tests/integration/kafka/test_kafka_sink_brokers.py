"""The Kafka sink while brokers go away, come back, and hand over what they led."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from confluent_kafka import ElectionType, KafkaException
from tests.integration.kafka.kafka_world import KafkaWorld, eventually
from tests.integration.kafka.test_kafka_sink import make, prepared, rows, scope
from tests.kafka_reading import read_committed

from holdfast.commit.sink import Committable, Outcome
from holdfast.errors import Unavailable
from holdfast.kafka.transactions import Transactions
from holdfast.sink.kafka import KafkaSink
from holdfast.sink.kafka import sink as sink_module
from holdfast.testing import KafkaBroker, KafkaCluster


@pytest.mark.slow  # the short form is test_eos_broker_faults.py's, with a query
def test_a_broker_killed_between_prepare_and_commit_loses_nothing() -> None:
    with KafkaBroker() as broker:
        topic = KafkaWorld(broker).topic(partitions=2)
        sink = make(broker.bootstrap_servers, topic)
        first = prepared(sink)
        assert sink.commit(scope(sink), [first]) == [Outcome.DONE]
        second = prepared(sink, rows(10), batch=1)
        broker.kill()
        broker.start()
        assert sink.commit(scope(sink), [second]) == [Outcome.DONE]
        assert sorted(read_committed(broker.bootstrap_servers, topic)) == [b"v0", b"v1", b"v10", b"v11"]


def test_a_broker_that_is_away_is_to_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_module, "PATIENCE_MS", 1500.0)
    with KafkaBroker() as broker:
        topic = KafkaWorld(broker).topic()
        sink = make(broker.bootstrap_servers, topic)
        one = prepared(sink)
        broker.kill()
        for question in (
            lambda: sink.commit(scope(sink), [one]),
            lambda: sink.abort(scope(sink), [one]),
            lambda: sink.recover(scope(sink), [one]),
        ):
            with pytest.raises(Unavailable, match=r"did not (commit|abort|list).* within 1.5 s"):
                question()
        broker.start()
        monkeypatch.undo()
        assert sink.recover(scope(sink), [one]) == 0
        assert sink.commit(scope(sink), [one]) == [Outcome.DONE]
        assert read_committed(broker.bootstrap_servers, topic) == [b"v0", b"v1"]


@pytest.fixture(scope="module")
def two_brokers() -> Iterator[KafkaCluster]:
    with KafkaCluster(2) as running:
        yield running


@pytest.fixture
def cluster(two_brokers: KafkaCluster) -> KafkaCluster:
    """Both brokers are alive, and each is the coordinator of its share, as when they were new."""
    for broker in two_brokers.brokers:
        if not broker.running:
            broker.start()
    admin, coordinators = KafkaWorld(two_brokers).admin, "__transaction_state"

    def shared() -> bool:
        with suppress(KafkaException):  # where each is there already
            admin.elect_leaders(ElectionType.PREFERRED).result(120)
        partitions = admin.list_topics(coordinators, 10).topics[coordinators].partitions.values()
        return {partition.leader for partition in partitions} in (set(), {1, 2})  # none: not made yet

    eventually(shared)
    return two_brokers


def test_a_coordinator_that_moves_is_found_again(cluster: KafkaCluster) -> None:
    servers = cluster.bootstrap_servers
    world = KafkaWorld(cluster)
    topic = world.topic(name="moving")
    leader = world.admin.list_topics(topic, 10).topics[topic].partitions[0].leader
    sink, one = _prepared_with(servers, topic, lambda coordinator: coordinator != leader)
    cluster.broker(3 - leader).kill()
    assert sink.commit(scope(sink), [one]) == [Outcome.DONE]
    eventually(lambda: read_committed(servers, topic) == [b"v0", b"v1"])


def test_a_partition_without_a_leader_is_waited_for(cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka would leave out its marker and call the transaction complete: invisible for ever."""
    servers = cluster.bootstrap_servers
    world = KafkaWorld(cluster)
    topic = world.topic(name="leaderless")  # one replica

    def leader_of_it() -> int:
        return int(world.admin.list_topics(topic, 10).topics[topic].partitions[0].leader)

    leader = leader_of_it()
    sink, one = _prepared_with(servers, topic, lambda coordinator: coordinator == leader)
    monkeypatch.setattr(sink_module, "PATIENCE_MS", 2500.0)
    cluster.broker(leader).kill()
    eventually(lambda: leader_of_it() == -1)  # and so the transaction has another coordinator
    for question in (lambda: sink.commit(scope(sink), [one]), lambda: sink.recover(scope(sink), [])):
        with pytest.raises(Unavailable):
            question()
    cluster.broker(leader).start()
    monkeypatch.undo()
    assert sink.commit(scope(sink), [one]) == [Outcome.DONE]
    eventually(lambda: read_committed(servers, topic) == [b"v0", b"v1"])


def _prepared_with(servers: str, topic: str, fits: Callable[[int], bool]) -> tuple[KafkaSink, Committable]:
    """A transaction whose coordinator is the one wanted: ids spread over the brokers by their hash."""
    known = Transactions({"bootstrap.servers": servers}, 60_000)
    while True:
        sink = make(servers, topic)
        one = prepared(sink)
        [found] = known.describe([one.body["transactional_id"]])
        assert found is not None
        if fits(found.coordinator):
            return sink, one
        sink.abort(scope(sink), [one])
