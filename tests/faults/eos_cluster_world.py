"""Kafka worlds of several brokers, and brokers that are away: what the nightly campaigns run against.

One broker is in tests.faults.eos_kafka_world; everything else is the same.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.faults.eos_kafka_world import BrokerOut, KafkaWorld
from tests.faults.strikes import Outage
from tests.integration.kafka.kafka_world import eventually
from tests.kafka_reading import unstable

from holdfast.testing import KafkaCluster

AWAY_S = float(os.environ.get("HOLDFAST_AWAY_S", "60"))


class BrokerDeadWorld(KafkaWorld):
    """A broker that stays away for a minute when it is killed."""

    def outage(self) -> BrokerOut:
        return BrokerOut(self.broker, AWAY_S, asleep=False)


class BrokerAsleepWorld(KafkaWorld):
    """A broker that stands still for a minute, its connections open."""

    def outage(self) -> BrokerOut:
        return BrokerOut(self.broker, AWAY_S, asleep=True)


class ClusterWorld(KafkaWorld):
    """The same topics on several brokers."""

    brokers = 3
    settings: Mapping[str, str] = {}

    def start_brokers(self) -> KafkaCluster:
        return KafkaCluster(self.brokers, settings={**self.broker_settings(), **self.settings}).start()

    @property
    def cluster(self) -> KafkaCluster:
        """In the harness."""
        assert isinstance(self._brokers, KafkaCluster), "open it first"
        return self._brokers

    def outage(self) -> Outage | None:
        """Brokers go and come by themselves."""
        return None


class RollingWorld(ClusterWorld):
    """Three brokers, everything on all three, two of which must have a write. One after the other is killed with
    kill -9, as soon as the last one that was has caught up.
    """

    settings: Mapping[str, str] = {
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "transaction.state.log.min.isr": "2",
    }
    replication = 3

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.killed = 0
        self._ends = threading.Event()
        self._roller = threading.Thread(target=self._roll, daemon=True)

    def open(self) -> None:
        super().open()
        self._roller.start()

    def close(self) -> None:
        self._ends.set()
        if self._roller.is_alive():
            self._roller.join()
        super().close()

    def _roll(self) -> None:
        while not self._ends.is_set():
            broker = self.cluster.brokers[self.killed % self.brokers]
            broker.kill()
            self.killed += 1
            self._ends.wait(2.0)
            broker.start()
            while not self._ends.is_set() and not self._is_whole():
                time.sleep(0.2)
            self._ends.wait(1.0)

    def _is_whole(self) -> bool:
        """Whether every partition has all its replicas in sync, Kafka's own topics too."""
        try:
            topics = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers}).list_topics(timeout=5).topics
        except KafkaException:
            return False
        partitions = [partition for topic in topics.values() for partition in topic.partitions.values()]
        return all(len(partition.isrs) == len(partition.replicas) for partition in partitions)


class LateMarkersWorld(ClusterWorld):
    """Two brokers, of which the second only follows, and falls asleep at every turn.

    Kafka answers that a transaction is committed once its coordinator has written that down, which is on the first
    broker alone. The markers must reach the follower too, as long as that counts as in sync. So rows become visible
    seconds after the answer, and whoever says done at the answer's word is seen to lie.
    """

    brokers = 2
    settings: Mapping[str, str] = {
        "transaction.state.log.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "replica.lag.time.max.ms": "4000",
        "broker.session.timeout.ms": "30000",
    }

    def start_brokers(self) -> KafkaCluster:
        cluster = KafkaCluster(self.brokers, settings={**self.broker_settings(), **self.settings})
        cluster.controller.launch()
        cluster.broker(1).start()
        # Makes the topic of the transactions' states, where there is one broker yet.
        Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "first"}).init_transactions(60)
        cluster.broker(2).start()
        return cluster

    def create_topic(self, name: str, partitions: int) -> None:
        """The first broker leads; what comes in is there alone."""
        assert self._kafka is not None
        places = [[1] if name == "events" else [1, 2]] * partitions
        wanted = NewTopic(name, partitions, replica_assignment=places, config={"retention.ms": "-1"})
        self._kafka.admin.create_topics([wanted])[name].result(30)
        eventually(lambda: not unstable(self.cluster.bootstrap_servers, name))

    def outage(self) -> Outage | None:
        return FollowerAsleep(self.cluster)


class FollowerAsleep:
    """The second broker of a cluster: what the first one leads goes on."""

    seconds = 8.0
    is_readable = True

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    def begin(self) -> list[int]:
        os.kill(self._cluster.broker(2).pid, signal.SIGSTOP)
        return [self._cluster.broker(2).pid]

    def end(self) -> None:
        os.kill(self._cluster.broker(2).pid, signal.SIGCONT)
