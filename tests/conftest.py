"""Fixtures of all tests: one Spark session, streams whose batches a test writes itself, one Kafka broker, one HDFS.

Spark and Holdfast are imported in the fixtures: most tests need neither.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from tests import azure_server, file_times, hdfs_server, kafka_jvm, left_out, s3_server
from tests.spark_jvm import set_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.integration.kafka.kafka_world import KafkaWorld
    from tests.streams import FileStream

    from holdfast.testing import KafkaBroker


_OPEN_FILES_MAX = 750
_NOBODY = 65534

# No test is timed: machines are shared. Where a change is judged the examples are always the same; elsewhere, and in
# nightly runs, they are others each time, and a failure prints its own.
hypothesis.settings.register_profile("holdfast", deadline=None, print_blob=True, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("holdfast")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kafka-version", metavar="RELEASE", help="run Kafka's brokers in this release: 3.9, 4.0, …")
    parser.addoption("--record-file-times", action="store_true", help="write tests/file_times.json anew")


def pytest_configure(config: pytest.Config) -> None:
    set_environment()
    kafka_jvm.set_environment()
    # By the environment: the programs that a test starts shall run the same one.
    version = config.getoption("--kafka-version")
    if version:
        os.environ["HOLDFAST_KAFKA_VERSION"] = version
    # Before any JVM starts, whose workers inherit them; and no person's own are ever used.
    os.environ.update({**s3_server.CREDENTIALS, **azure_server.CREDENTIALS})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "s3" in getattr(item, "fixturenames", ()):
            item.add_marker("long")  # its server starts in seconds, and answers in some milliseconds
    file_times.by_time(items)


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # what is frozen when Python ends is told as leaked, by what counts its own objects


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in left_out.told(terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line)
    if config.getoption("--record-file-times"):
        stats = terminalreporter.stats.values()
        file_times.record(one for told in stats for one in told if isinstance(one, pytest.TestReport))


@pytest.fixture(scope="session")
def spark_of_all_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from tests.spark_sessions import start_session

    # Tasks may fail once: a test of retries needs it, and the others do not notice.
    session = start_session("local[2,2]", tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture
def spark(spark_of_all_tests: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """A session of the test's own, in the one JVM: its settings and views go with it."""
    session = spark_of_all_tests.newSession()
    session.conf.set("spark.holdfast.checkpoint.dir", str(tmp_path / "state"))
    session.conf.set("spark.holdfast.local.dir", str(tmp_path / "local"))
    yield session
    for query in session.streams.active:
        query.stop()


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> FileStream:
    """A stream of files: one batch a file."""
    from tests.streams import FileStream

    return FileStream(spark, tmp_path)


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Callable[[str], FileStream]:
    """Several streams in one test, each in its own folder."""
    from tests.streams import FileStream

    def make(name: str) -> FileStream:
        folder = tmp_path / name
        os.makedirs(folder)
        return FileStream(spark, folder)

    return make


@pytest.fixture(scope="module", autouse=True)
def nothing_open_outlives_its_tests() -> Iterator[None]:
    """Connections to brokers that are gone would go on asking, in a thread that later tests can hear. And files that
    stay open for as long as their process lives are too many in a process of two thousand tests: py4j's server ends
    without a word where a socket gets a number of 1,024 or more, and whoever waits for a call-back waits for ever.
    """
    gc.freeze()  # what is there now stays; to look through it again takes 80 ms after each test, a second after a file
    yield
    gc.collect()
    wire = sys.modules.get("holdfast.kafka.wire")
    if wire is not None:
        for connection in list(wire._wires.values()):
            connection.close()
    host = sys.modules.get("holdfast.checkpoint.host")
    while host is not None and host._held:
        os.close(host._held.popitem()[1])
    assert len(os.listdir("/proc/self/fd")) < _OPEN_FILES_MAX, "these tests leave files open"


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder of a user whom permissions bind, as whom the test runs: root is nobody meanwhile. Not in `tmp_path`,
    which only its owner may enter.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-tests-") as folder:
        if os.geteuid() != 0:
            yield Path(folder)
            return
        os.chown(folder, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, 0)  # not the effective one alone: access(2) asks for the other
        try:
            yield Path(folder)
        finally:
            os.setresuid(0, 0, 0)


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    """One Kafka broker for all tests that need one. Without Java or Maven they fail, and say so; nothing is skipped."""
    from holdfast.testing import KafkaBroker

    with KafkaBroker(settings={"log.initial.task.delay.ms": "500"}) as running:
        yield running


@pytest.fixture(scope="session")
def kafka(broker: KafkaBroker) -> KafkaWorld:
    """The broker, seen from the outside."""
    from tests.integration.kafka.kafka_world import KafkaWorld

    return KafkaWorld(broker)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3_server.S3Server]:
    """An S3 server."""
    with s3_server.s3_server(tmp_path_factory.mktemp("s3") / "server.log") as server:
        yield server


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[azure_server.AzureServer]:
    """Azure's emulator, where it is installed."""
    program = azure_server.azurite()
    if program is None:
        pytest.skip("azurite is not installed: `make azurite`, which needs npm")
    with azure_server.azure_server(program, tmp_path_factory.mktemp("azure") / "server.log") as server:
        yield server


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hdfs_server.HdfsServer]:
    """An HDFS, where its jars are to be had. It starts a JVM: tests that need it are marked `spark`."""
    try:
        hdfs_server.minicluster_jars()
    except hdfs_server.Absent as error:
        pytest.skip(f"no HDFS to try against: {error}")
    with hdfs_server.hdfs_server(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


@pytest.fixture
def no_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose root cannot be written, without a volume for /tmp."""

    def refuse() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp', '/var/tmp', '/usr/tmp', '/']")

    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "gettempdir", refuse)


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user is a number that no list of users has."""
    for name in ("HOME", "XDG_CACHE_HOME", "HOLDFAST_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
