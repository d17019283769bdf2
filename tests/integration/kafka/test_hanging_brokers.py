"""One of three brokers hangs: it answers nothing, and its connections stay open. What it led others lead within
seconds, and whoever asks it must notice by himself.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic
from tests.integration.kafka.kafka_world import KafkaWorld
from tests.kafka_query import KafkaQuery, listen
from tests.kafka_reading import unstable

from holdfast.kafka.transactions import Transactions
from holdfast.source.kafka.cluster import Cluster
from holdfast.source.kafka.options import SourceOptions
from holdfast.testing import KafkaBroker, KafkaCluster

PARTITIONS = 6


@pytest.fixture(scope="module")
def three() -> Iterator[KafkaCluster]:
    with KafkaCluster(3) as running:
        yield running


@contextmanager
def hanging(broker: KafkaBroker) -> Iterator[None]:
    """Asleep until the block ends."""
    pid = broker.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def create(three: KafkaCluster, topic: str, partitions: int) -> KafkaWorld:
    world = KafkaWorld(three.brokers[0])
    world.admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(120)
    _wait_until_whole(three, topic)
    return world


def _wait_until_whole(three: KafkaCluster, topic: str) -> None:
    """Until all replicas are in sync and all leaders answer; one that has just woken up may not, for a while."""
    admin = KafkaWorld(three.brokers[0]).admin

    def is_whole() -> bool:
        try:
            partitions = admin.list_topics(topic, 10).topics[topic].partitions.values()
            return all(len(part.isrs) == 3 for part in partitions) and not unstable(three.bootstrap_servers, topic)
        except KafkaException:
            return False

    deadline = time.monotonic() + 120
    while not is_whole():
        assert time.monotonic() < deadline, f"{topic}: not all replicas are in sync"
        time.sleep(0.2)


def test_the_source_goes_on_when_one_of_three_brokers_hangs(three: KafkaCluster) -> None:
    """Its client waited for the one that it took for the controller, and gave -1001 for partitions that it had led."""
    world = create(three, "in", PARTITIONS)
    world.produce("in", [b"one", b"two", b"three"], 3)
    expected = {("in", number): 3 if number == 3 else 0 for number in range(PARTITIONS)}
    for number, broker in enumerate(three.brokers):
        given = {
            "kafka.bootstrap.servers": three.bootstrap_servers,
            "subscribe": "in",
            "kafka.socket.timeout.ms": "2000",
            "kafka.client.id": f"hanging-{number}",  # a client of its own
        }
        cluster = Cluster(SourceOptions.parse(given, streaming=True))
        assert cluster.available()[1] == expected
        with hanging(broker):
            for _ in range(3):
                topics, latest = cluster.available()
                assert latest == expected
                assert len(topics.partitions) == PARTITIONS
                assert cluster.earliest(topics.partitions) == dict.fromkeys(expected, 0)
        _wait_until_whole(three, "in")


def test_a_batch_is_committed_though_the_coordinator_of_its_transactions_hangs(
    three: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen(monkeypatch)
    create(three, "out", 2)
    query = KafkaQuery(three.bootstrap_servers, "out", tmp_path, options={"kafka.socket.timeout.ms": 5000})
    query.retry_max_ms = 120_000
    asleep: list[int] = []

    def hang() -> None:
        [one, *_] = query.records()[-1].sinks["kafka"].committables
        [known] = Transactions({"bootstrap.servers": three.bootstrap_servers}, 30_000).describe(
            [one.body["transactional_id"]]
        )
        assert known is not None
        asleep.append(three.broker(known.coordinator).pid)
        os.kill(asleep[0], signal.SIGSTOP)

    query.strike("after_record", hang)
    try:
        query.run_to_the_end()
    finally:
        for pid in asleep:
            os.kill(pid, signal.SIGCONT)
    assert asleep
    assert query.ends == [None], "nothing of it ends the query"
    query.check()
