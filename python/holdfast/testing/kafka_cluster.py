"""Several brokers and one controller, for tests in which a coordinator or a leader moves."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import final

from holdfast.errors import InvalidRequest
from holdfast.testing.kafka_broker import START_TIMEOUT_S, KafkaBroker
from holdfast.testing.kafka_config import NodePlace, free_port

_CONTROLLER_ID = 100


@final
class KafkaCluster:
    """``brokers`` Kafka brokers with ids 1, 2, … and a controller of its own process, so that any broker may be killed.

    Internal topics are replicated to all brokers (at most three). ``version`` and ``features`` are `KafkaBroker`'s.
    """

    def __init__(
        self,
        brokers: int = 2,
        *,
        version: str | None = None,
        features: Mapping[str, int] | None = None,
        settings: Mapping[str, str] | None = None,
        heap: str = "256m",
    ) -> None:
        if not 1 <= brokers <= 5:
            raise InvalidRequest(f"brokers={brokers}: expected 1 to 5 on one machine")
        self.data = Path(tempfile.mkdtemp(prefix="holdfast-kafka-cluster-"))
        controller_port = free_port(set())
        taken = {controller_port}
        self.brokers: list[KafkaBroker] = []
        for node_id in (_CONTROLLER_ID, *range(1, brokers + 1)):
            role = "controller" if node_id == _CONTROLLER_ID else "broker"
            place = NodePlace(node_id, (role,), _CONTROLLER_ID, controller_port, brokers)
            port = free_port(taken)
            taken.add(port)
            node = KafkaBroker(
                self.data / f"{role}-{node_id}",
                version=version,
                features=features,
                port=port,
                settings=settings,
                heap=heap,
                place=place,
            )
            if role == "controller":
                self.controller = node
            else:
                self.brokers.append(node)

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def broker(self, node_id: int) -> KafkaBroker:
        """The broker with an id, as clients see it in metadata."""
        return self.brokers[node_id - 1]

    def start(self, timeout_s: float = START_TIMEOUT_S) -> KafkaCluster:
        """Start all nodes side by side and wait until each is ready."""
        nodes = [self.controller, *self.brokers]
        for node in nodes:
            node.launch()
        for node in nodes:
            node.wait_ready(timeout_s)
        return self

    def close(self) -> None:
        """Kill all nodes and delete their data."""
        for node in (*self.brokers, self.controller):
            node.kill()
            node.close()
        shutil.rmtree(self.data, ignore_errors=True)

    def __enter__(self) -> KafkaCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
