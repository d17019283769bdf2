"""server.properties of a test broker: loopback only, one folder, quick to start and to come back after a kill."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import InvalidRequest, Unavailable

HOST = "127.0.0.1"
CLIENTS = "PLAINTEXT"
CONTROLLERS = "CONTROLLER"

# The broker is one process on one machine, often beside a Spark that uses all its cores.
_DEFAULTS = {
    "auto.create.topics.enable": "false",
    # Rejoin and fail over in seconds: a broker that was killed may register again once its old session has expired.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "250",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.max.timeout.ms": "3600000",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.initial.task.delay.ms": "1000",
    "num.io.threads": "4",
    "num.network.threads": "2",
    "controlled.shutdown.enable": "true",
}


@dataclass(frozen=True)
class NodePlace:
    """Where one node stands in its cluster.

    Attributes
    ----------
    node_id
        Unique in the cluster.
    roles
        ``("broker", "controller")`` for a cluster of one process.
    controller_id, controller_port
        The one controller, on loopback.
    brokers
        How many brokers the cluster has: the replication of the internal topics.
    """

    node_id: int
    roles: tuple[str, ...]
    controller_id: int
    controller_port: int
    brokers: int = 1


def server_properties(
    place: NodePlace, data: Path, ports: Mapping[str, int], protocols: Mapping[str, str], settings: Mapping[str, str]
) -> str:
    """The file's text.

    Parameters
    ----------
    ports, protocols
        By listener name: its port and its security protocol, controller's excluded.
    settings
        Kafka's own names; they win over the defaults, but not over the listeners, or the broker could leave loopback.
    """
    forbidden = sorted(set(settings) & {"listeners", "advertised.listeners", "process.roles", "node.id", "log.dirs"})
    if forbidden:
        raise InvalidRequest(
            f"Settings {', '.join(forbidden)} belong to KafkaBroker: use its parameters (port, listeners, data) instead"
        )
    replicas = str(min(place.brokers, 3))
    listeners = {name: f"{name}://{HOST}:{port}" for name, port in ports.items()} if "broker" in place.roles else {}
    own = {
        "process.roles": ",".join(place.roles),
        "node.id": str(place.node_id),
        "controller.quorum.voters": f"{place.controller_id}@{HOST}:{place.controller_port}",
        "controller.listener.names": CONTROLLERS,
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in {**protocols, CONTROLLERS: "PLAINTEXT"}.items()
        ),
        "log.dirs": str(data / "kraft"),
    }
    if "broker" in place.roles:
        own["advertised.listeners"] = ",".join(listeners.values())
        own["inter.broker.listener.name"] = CLIENTS
    if "controller" in place.roles:
        listeners[CONTROLLERS] = f"{CONTROLLERS}://{HOST}:{place.controller_port}"
    own["listeners"] = ",".join(listeners.values())
    replication = {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
        "default.replication.factor": replicas,
    }
    lines = {**_DEFAULTS, **replication, **settings, **own}
    return "".join(f"{name}={value}\n" for name, value in sorted(lines.items()))


LOG4J_PROPERTIES = """\
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{1} - %m%n
"""


def free_port(taken: set[int]) -> int:
    """A free loopback port below the ephemeral range.

    The port must still be ours when a killed broker comes back: a client that keeps connecting to a port of the
    ephemeral range can be given that very port as its own.
    """
    lowest, highest = 20000, min(_ephemeral_from(), 32768)
    for _ in range(200):
        port = random.randrange(lowest, highest) if lowest < highest else 0
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            port = int(probe.getsockname()[1])
        if port not in taken:
            return port
    raise Unavailable(f"No free port on {HOST} between {lowest} and {highest}")


def _ephemeral_from() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return 32768
