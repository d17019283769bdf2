"""Kafka worlds of several brokers, and brokers that are away: what the nightly campaigns run against.

One broker is in tests.faults.eos_kafka_world; everything else is the same.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.faults.eos_kafka_world import BrokerOut, KafkaWorld
from tests.faults.strikes import Outage

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
    """Two brokers, of which the one that follows asks for news every two seconds only.

    Kafka answers that a transaction is committed once its coordinator has written that down, for which one broker is
    enough here. Its markers make the rows visible, and count when both brokers have them: two seconds later. So whoever
    says done at the answer's word is seen to lie, in every batch.
    """

    brokers = 2
    replication = 2
    settings: Mapping[str, str] = {
        "transaction.state.log.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "replica.fetch.min.bytes": "1048576",
        "replica.fetch.wait.max.ms": "2000",
        "replica.lag.time.max.ms": "30000",
    }
