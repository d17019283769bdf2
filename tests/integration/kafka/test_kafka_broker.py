"""The broker for tests is a real one: its data outlives kills, it dies with its owner, its errors say what to do."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.kafka.kafka_world import KafkaWorld, eventually, values
from tests.kafka_reading import read_committed

from holdfast.cli import main
from holdfast.errors import Corrupt, InvalidRequest, Unavailable
from holdfast.testing import KafkaBroker, KafkaCluster, kafka_jars
from holdfast.testing.kafka_broker import read_running, stop_running
from holdfast.testing.kafka_config import free_port
from holdfast.testing.kafka_process import Installation, java_command, process_start


@pytest.fixture
def own_broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running


def test_data_and_ports_outlive_a_kill_and_a_stop(own_broker: KafkaBroker) -> None:
    world = KafkaWorld(own_broker)
    topic = world.topic()
    world.produce(topic, values(0, 5))
    address = own_broker.bootstrap_servers
    own_broker.kill()
    assert not own_broker.running
    own_broker.restart()
    eventually(lambda: world.end_of(topic) == 5)
    own_broker.restart()
    eventually(lambda: world.end_of(topic) == 5)
    assert own_broker.bootstrap_servers == address
    with pytest.raises(InvalidRequest, match="is running already, as process"):
        own_broker.start()
    with pytest.raises(InvalidRequest, match="A broker is running on .* already, as process"):
        KafkaBroker(own_broker.data).start()


def test_only_loopback_is_listened_on(broker: KafkaBroker) -> None:
    own = {
        os.readlink(f"/proc/{broker.pid}/fd/{fd}")
        for fd in os.listdir(f"/proc/{broker.pid}/fd")
        if _is_link(broker, fd)
    }
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{broker.pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                listening.append(fields[1].rpartition(":")[0])
    assert listening
    # 127.0.0.1, as itself and as IPv6 writes it.
    assert set(listening) <= {"0100007F", "0000000000000000FFFF00000100007F"}


def _is_link(broker: KafkaBroker, fd: str) -> bool:
    return os.path.islink(f"/proc/{broker.pid}/fd/{fd}")


def test_it_dies_with_its_owner() -> None:
    program = (
        "import os, signal; from holdfast.testing import KafkaBroker; broker = KafkaBroker().start();"
        " print(broker.pid, broker.data, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid, data = done.stdout.split()
    eventually(lambda: process_start(int(pid)) is None)
    subprocess.run(["rm", "-rf", data], check=True)


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        broker = KafkaBroker(tmp_path, port=taken.getsockname()[1])
        with pytest.raises(
            Unavailable, match=r"(?s)ended with 1 before it was ready. The end of .*broker.log.*[Aa]ddress"
        ):
            broker.start()


def test_without_java_or_maven(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kafka_jars.kafka_jars()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(Unavailable, match="needs Java 17 .*Install a JRE, or set JAVA_HOME"):
        KafkaBroker(tmp_path / "data").start()
    monkeypatch.setenv("HOLDFAST_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(Unavailable, match="`mvn` was not found on PATH. Install Maven"):
        KafkaBroker(tmp_path / "data").start()


def test_a_maven_that_cannot_fetch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho '[ERROR] no route to host'\nexit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("HOLDFAST_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(Unavailable, match=r"(?s)could not fetch Apache Kafka \(exit 1\).*mirror.*no route to host"):
        kafka_jars.kafka_jars()
    assert not [path for path in (tmp_path / "cache").iterdir() if not path.name.startswith(".")]


def test_a_jar_that_is_not_the_locked_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOLDFAST_KAFKA_VERSION", "4.3.1")
    lock = kafka_jars.lock_of()
    assert len(lock.jars) == 46
    maven = tmp_path / "mvn"
    copies = "; ".join(f"echo other > $folder/{jar.file_name}" for jar in lock.jars)
    maven.write_text(
        f'#!/bin/sh\nfor last; do :; done; folder="${{last#-DoutputDirectory=}}"\nmkdir -p "$folder"; {copies}\n'
    )
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("HOLDFAST_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(Corrupt, match=r"at.yawk.lz4:lz4-java.*expected 1002267 bytes with SHA-256 .*found 6 bytes"):
        kafka_jars.kafka_jars()


def test_the_environment_has_options_for_the_jvm_of_each_broker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOLDFAST_KAFKA_OPTS", "-Xlog:disable '-Dname=two words'")
    command = java_command(Installation([], tmp_path), "Main", ["first"], ["-Xmx1g"])
    options = command[1 : command.index("Main")]
    assert {"-Xlog:disable", "-Dname=two words", "-Xmx1g"} <= set(options)
    assert options.index("-Dname=two words") < options.index("-Xmx1g"), "a broker's own come last, and win"


def test_a_release_is_chosen_by_what_it_begins_with(monkeypatch: pytest.MonkeyPatch) -> None:
    known = kafka_jars.releases()
    monkeypatch.delenv("HOLDFAST_KAFKA_VERSION", raising=False)
    assert kafka_jars.lock_of().kafka_version == known[-1]
    assert kafka_jars.lock_of("3").kafka_version == kafka_jars.lock_of("3.9").kafka_version == "3.9.1"
    monkeypatch.setenv("HOLDFAST_KAFKA_VERSION", "4.0.0")
    assert kafka_jars.lock_of().kafka_version == "4.0.0"
    assert kafka_jars.lock_of("4.0").kafka_version == "4.0.1"
    with pytest.raises(
        InvalidRequest, match=r"Kafka 4\.30 is not one of the releases that are locked: 3\.0\.2, .*4\.3\.1"
    ):
        KafkaBroker(version="4.30")


@pytest.mark.slow
@pytest.mark.parametrize("version", kafka_jars.releases())
def test_every_locked_release_serves_transactions_and_comes_back_after_a_kill(version: str) -> None:
    with KafkaBroker(version=version) as broker:
        assert broker.version == version
        world = KafkaWorld(broker)
        topic = world.topic()
        world.transaction(topic, [b"v"], commit=True)
        broker.kill()
        broker.start()
        eventually(lambda: world.end_of(topic) == 2)
        eventually(lambda: read_committed(world.servers, topic) == [b"v"])


@pytest.mark.slow
@pytest.mark.parametrize(("version", "features"), [("3.3", {}), ("3.9", {}), ("4.3", {"transaction.version": 0})])
def test_three_brokers_of_which_two_must_have_it_go_on_without_one(version: str, features: dict[str, int]) -> None:
    settings = {"min.insync.replicas": "2", "transaction.state.log.min.isr": "2"}
    with KafkaCluster(3, version=version, features=features, settings=settings) as cluster:
        world = KafkaWorld(cluster.brokers[0])
        world.admin.create_topics([NewTopic("three", 1, 3)])["three"].result(120)
        eventually(lambda: world.end_of("three") == 0)
        world.begin("three", [b"before"]).commit_transaction(60)
        cluster.broker(3).kill()
        world.begin("three", [b"after"]).commit_transaction(60)
        eventually(lambda: read_committed(cluster.bootstrap_servers, "three") == [b"before", b"after"])
        cluster.broker(3).start()


def test_settings_that_would_leave_loopback_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="Settings listeners belong to KafkaBroker"):
        KafkaBroker(tmp_path, settings={"listeners": "PLAINTEXT://0.0.0.0:9092"}).start()


def test_a_coordinator_moves_when_its_broker_is_killed() -> None:
    with KafkaCluster(2) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}, logger=logging.getLogger("tests.kafka"))
        admin.create_topics([NewTopic("moved", 1, 2)])["moved"].result(120)

        def transact() -> None:
            producer = Producer(
                {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "one"},
                logger=logging.getLogger("tests.kafka"),
            )
            producer.init_transactions(60)
            producer.begin_transaction()
            producer.produce("moved", b"v")
            producer.commit_transaction(60)

        transact()
        before = _leader(admin, "__transaction_state")
        cluster.broker(before).kill()
        transact()
        assert _leader(admin, "__transaction_state") != before
        assert cluster.broker(before).restart().running


def _leader(admin: AdminClient, topic: str) -> int:
    """Of the partition that the coordinator of transactional id "one" is the leader of."""
    partitions = admin.list_topics(topic, 30).topics[topic].partitions
    java_hash = 0
    for letter in "one":
        java_hash = (31 * java_hash + ord(letter)) & 0xFFFFFFFF
    return int(partitions[(java_hash & 0x7FFFFFFF) % len(partitions)].leader)


def test_the_command_line(tmp_path: Path) -> None:
    port = str(free_port(set()))
    run = CliRunner().invoke
    started = run(main, ["broker", "start", "--port", port, "--data", str(tmp_path), "--json"])
    assert started.exit_code == 0, started.output
    found = json.loads(started.output)
    try:
        assert found["bootstrap_servers"] == f"127.0.0.1:{port}"
        assert read_running(tmp_path) is not None
        again = run(main, ["broker", "start", "--data", str(tmp_path)])
        assert again.exit_code == 1
        assert "is running on" in again.output
        stopped = run(main, ["broker", "stop", "--data", str(tmp_path), "--json"])
        assert json.loads(stopped.output) == {"stopped": True, "pid": found["pid"], "data": str(tmp_path)}
        assert run(main, ["broker", "stop", "--data", str(tmp_path)]).exit_code == 1
    finally:
        stop_running(tmp_path)
