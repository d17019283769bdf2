"""A real Apache Kafka broker on loopback, for tests and demos: KRaft, one process, its data in one folder."""

from __future__ import annotations

import atexit
import base64
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import final

from holdfast.errors import InvalidRequest, Unavailable
from holdfast.testing import kafka_probe
from holdfast.testing.kafka_config import CLIENTS, HOST, LOG4J_PROPERTIES, NodePlace, free_port, server_properties
from holdfast.testing.kafka_jars import kafka_jars, lock_of
from holdfast.testing.kafka_process import (
    Installation,
    KafkaProcess,
    end_foreign,
    java_command,
    process_start,
    run_tool,
)

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 15.0
_RUNNING_FILE = "broker.json"


@final
class KafkaBroker:
    """One Kafka node. Start it, use ``bootstrap_servers``, stop it, kill it, start it again on the same data and ports.

    Parameters
    ----------
    data
        Folder of the broker's data and logs, kept. None: a temporary one, deleted by ``close``.
    version
        A release of Kafka that kafka_locks has: ``"3.9"``, or ``"3.9.1"``. None: the one that the environment names in
        ``HOLDFAST_KAFKA_VERSION``, else the newest.
    features
        Levels to format new data with, by Kafka's own names: ``{"transaction.version": 0}`` is how a broker of today
        serves a cluster that came from 3.x and was not finalised. Kafka 3.9 and later.
    port
        Port of the plaintext listener on 127.0.0.1. None: a free one, the same after every restart.
    settings
        Lines for server.properties, with Kafka's own names.
    listeners
        More listeners by name, with their security protocol: ``{"SECURE": "SASL_SSL"}``; see ``address``.
    heap
        Java's ``-Xmx``.
    jvm_options
        More options for Java. Those of all brokers may stand in the environment's ``HOLDFAST_KAFKA_OPTS``.
    detached
        The broker outlives this process; otherwise it is killed with it, however it ends.
    place
        Its place in a larger cluster; `KafkaCluster` passes it.

    Notes
    -----
    Nothing but 127.0.0.1 is ever listened on. Used by one thread at a time; a forked child must leave it alone.
    """

    def __init__(
        self,
        data: str | os.PathLike[str] | None = None,
        *,
        version: str | None = None,
        features: Mapping[str, int] | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        heap: str = "256m",
        jvm_options: Sequence[str] = (),
        detached: bool = False,
        place: NodePlace | None = None,
    ) -> None:
        if detached and data is None:
            raise InvalidRequest("A detached broker needs a data folder that outlives this process: pass data=")
        self._lock = lock_of(version)
        self._features = dict(features or {})
        self._temporary = data is None
        self.data = Path(tempfile.mkdtemp(prefix="holdfast-kafka-") if data is None else data).resolve()
        self._protocols = {CLIENTS: "PLAINTEXT", **(listeners or {})}
        self._settings = dict(settings or {})
        self._jvm_options = (f"-Xmx{heap}", *jvm_options)
        self._detached = detached
        taken: set[int] = {place.controller_port} if place else set()
        self.ports: dict[str, int] = {}
        for name in self._protocols:
            self.ports[name] = port if name == CLIENTS and port is not None else free_port(taken)
            taken.add(self.ports[name])
        self._place = place or NodePlace(1, ("broker", "controller"), 1, free_port(taken))
        self._process: KafkaProcess | None = None
        self._owner_pid = os.getpid()
        self._at_exit: Callable[[], None] = self.close
        if not detached:
            atexit.register(self._at_exit)

    @property
    def version(self) -> str:
        """The release of Kafka, in full."""
        return self._lock.kafka_version

    @property
    def node_id(self) -> int:
        """The node's id in its cluster."""
        return self._place.node_id

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the plaintext listener."""
        return self.address(CLIENTS)

    def address(self, listener: str) -> str:
        """``host:port`` of a listener by name."""
        return f"{HOST}:{self.ports[listener]}"

    @property
    def running(self) -> bool:
        """Whether its process is alive."""
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        if self._process is None:
            raise InvalidRequest("The broker is not running: call start() first")
        return self._process.pid

    @property
    def log_file(self) -> Path:
        """What the broker logs, over all its starts."""
        return self.data / "broker.log"

    def start(self, timeout_s: float = START_TIMEOUT_S) -> KafkaBroker:
        """Start the broker and wait until clients can use it.

        Raises
        ------
        Unavailable
            Java, Maven or the network is missing, the port is taken, or the broker did not become ready in time; the
            message has the end of its log.
        """
        self.launch()
        self.wait_ready(timeout_s)
        return self

    def launch(self) -> None:
        """Start the process without waiting for it to be ready."""
        if self.running:
            raise InvalidRequest(f"The broker on {self.bootstrap_servers} is running already, as process {self.pid}")
        self._refuse_second_owner()
        kafka = Installation(kafka_jars(self._lock), self.data)
        self.data.mkdir(parents=True, exist_ok=True)
        properties = self.data / "server.properties"
        (self.data / "log4j2.properties").write_text(LOG4J_PROPERTIES)
        properties.write_text(server_properties(self._place, self.data, self.ports, self._protocols, self._settings))
        if not (self.data / "kraft" / "meta.properties").exists():
            self._format(kafka, properties)
        command = java_command(kafka, "kafka.Kafka", [str(properties)], self._jvm_options)
        self._process = KafkaProcess(command, self.log_file, self._detached)
        running = {
            "pid": self._process.pid,
            "started": process_start(self._process.pid),
            "bootstrap_servers": self.bootstrap_servers if "broker" in self._place.roles else None,
        }
        (self.data / _RUNNING_FILE).write_text(json.dumps(running))

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the broker answers, and its own metadata names it."""
        deadline = time.monotonic() + timeout_s
        while not self._is_ready():
            if not self.running:
                code = self._process.exit_code if self._process else None
                raise Unavailable(f"The Kafka broker ended with {code} before it was ready. {self._log_end()}")
            if time.monotonic() > deadline:
                self.kill()
                raise Unavailable(f"The Kafka broker was not ready within {timeout_s:g} s. {self._log_end()}")
            time.sleep(0.02)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Shut down in good order; killed when that takes longer than ``timeout_s``. The data stays."""
        if self._process is not None:
            self._process.terminate(timeout_s)
        self._ended()

    def kill(self) -> None:
        """kill -9. The data stays."""
        if self._process is not None:
            self._process.kill()
        self._ended()

    def restart(self, timeout_s: float = START_TIMEOUT_S) -> KafkaBroker:
        """Start again on the same data and ports, after a stop if it is running."""
        if self.running:
            self.stop()
        return self.start(timeout_s)

    def close(self) -> None:
        """End the broker, and delete its folder if it was a temporary one. Harmless when repeated."""
        if os.getpid() != self._owner_pid:
            return
        atexit.unregister(self._at_exit)
        if self._temporary:
            self.kill()
            shutil.rmtree(self.data, ignore_errors=True)
        else:
            self.stop()

    def __enter__(self) -> KafkaBroker:
        return self if self.running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _is_ready(self) -> bool:
        if "broker" not in self._place.roles:
            return kafka_probe.answers(HOST, self._place.controller_port)
        port = self.ports[CLIENTS]
        return kafka_probe.answers(HOST, port) and self.node_id in kafka_probe.known_brokers(HOST, port)

    def _format(self, kafka: Installation, properties: Path) -> None:
        # One id for all nodes of a cluster: it is made of the controller's place, which they share.
        # Never a leading "-", which Kafka's command line takes for an option.
        name = uuid.uuid5(uuid.NAMESPACE_OID, f"holdfast:{self._place.controller_id}@{self._place.controller_port}")
        cluster_id = "h" + base64.urlsafe_b64encode(name.bytes).decode()[1:22]
        arguments = ["format", "--ignore-formatted", "-t", cluster_id, "-c", str(properties)]
        for feature, level in self._features.items():
            arguments += ["--feature", f"{feature}={level}"]
        run_tool(kafka, "kafka.tools.StorageTool", arguments)

    def _refuse_second_owner(self) -> None:
        running = read_running(self.data)
        if running is not None:
            raise InvalidRequest(
                f"A broker is running on {self.data} already, as process {running['pid']}."
                " Stop it, or use another folder"
            )

    def _log_end(self) -> str:
        try:
            return f"The end of {self.log_file}:\n{self.log_file.read_text(errors='replace')[-3000:]}"
        except OSError as error:
            return f"It has no log: {error}"

    def _ended(self) -> None:
        self._process = None
        (self.data / _RUNNING_FILE).unlink(missing_ok=True)


def read_running(data: str | os.PathLike[str]) -> dict[str, object] | None:
    """Process id and address of the broker that runs on a data folder; None when there is none."""
    try:
        running = json.loads(Path(data, _RUNNING_FILE).read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(running, dict) or running.get("started") is None:
        return None
    return running if process_start(running["pid"]) == running["started"] else None


def stop_running(data: str | os.PathLike[str], timeout_s: float = STOP_TIMEOUT_S) -> bool:
    """Stop the broker that runs on a data folder, whoever started it. False: none was running."""
    running = read_running(data)
    if running is None:
        return False
    ended = end_foreign(int(str(running["pid"])), int(str(running["started"])), timeout_s)
    Path(data, _RUNNING_FILE).unlink(missing_ok=True)
    return ended
