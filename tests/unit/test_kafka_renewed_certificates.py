"""Certificates are renewed on disk while a process lives: whom the brokers see then, by each client that lives on."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import pytest
from tests.offline_wire import OfflineWire
from tests.tls_handshakes import FIRST, KEY, SECOND, Handshakes

from holdfast.clock import SystemClock
from holdfast.commit.epochs import Driver
from holdfast.commit.sink import Scope, SinkTask
from holdfast.errors import InvalidRequest, Unavailable
from holdfast.kafka import client as client_module
from holdfast.kafka import renewed as renewed_module
from holdfast.kafka import wire as wire_module
from holdfast.kafka.client import admin_client, heard
from holdfast.kafka.oauth import FetchedTokens
from holdfast.kafka.renewed import FILES, Renewed, stamps
from holdfast.kafka.security import SECURITY
from holdfast.kafka.transactions import Transactions
from holdfast.kafka.wire import wire_to
from holdfast.sink.kafka import KafkaSink, transactional_writer
from holdfast.sink.kafka.claim import Claim
from holdfast.sink.kafka.options import SinkOptions
from holdfast.sink.kafka.plain_writer import ProducerPool
from holdfast.sink.kafka.transactional_writer import TransactionalWriter
from holdfast.source.kafka.consumers import ConsumerPool
from holdfast.source.kafka.group_offsets import GroupOffsets
from holdfast.source.kafka.offsets import Range


@dataclass
class Files:
    """A client's certificate and key, as an agent of the machine renews them."""

    folder: Path
    broker: Handshakes

    def renew(self, certificate: str, key: str = KEY) -> None:
        """Each by a rename, one after the other."""
        for name, text in (("client.pem", certificate), ("client.key", key)):
            (self.folder / "next").write_text(text)
            os.replace(self.folder / "next", self.folder / name)

    @property
    def config(self) -> dict[str, str]:
        return {
            "bootstrap.servers": self.broker.address,
            "security.protocol": "ssl",
            "ssl.ca.location": str(self.folder / "broker.pem"),
            "ssl.certificate.location": str(self.folder / "client.pem"),
            "ssl.key.location": str(self.folder / "client.key"),
            "reconnect.backoff.ms": "10",
            "reconnect.backoff.max.ms": "50",
        }


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    """Its clients of the process end with it. Nobody waits for a renewal."""
    monkeypatch.setattr(client_module, "_admin_clients", {})
    monkeypatch.setattr(client_module, "_retired", [])
    monkeypatch.setattr(wire_module, "_wires", {})
    monkeypatch.setattr(renewed_module, "sleep", lambda _: None)
    monkeypatch.setattr(transactional_writer, "INITIALISE_WITHIN_S", 0.3)
    made = Files(tmp_path, Handshakes(tmp_path))
    made.renew(FIRST)
    yield made
    made.broker.close()


def of_the_driver(files: Files) -> Callable[[], None]:
    def ask() -> None:
        with suppress(confluent_kafka.KafkaException):
            admin_client(files.config).list_topics(timeout=0.3)

    return ask


def of_a_task_that_reads(files: Files) -> Callable[[], None]:
    return of_tasks_that_read(files, 1)


def of_tasks_that_read(files: Files, count: int = 2) -> Callable[[], None]:
    pool, part = ConsumerPool(), Range("t", 0, 5, 9)

    def read() -> None:
        for consumer in [pool.lease({**files.config, "group.id": "g"}, part) for _ in range(count)]:
            with suppress(confluent_kafka.KafkaException):
                consumer.client.list_topics(timeout=0.3)
            pool.give_back(consumer, intact=False)

    return read


def of_a_task_that_writes(files: Files) -> Callable[[], None]:
    return of_tasks_that_write(files, 1)


def of_tasks_that_write(files: Files, count: int = 2) -> Callable[[], None]:
    pool = ProducerPool()

    def write() -> None:
        for producer in [pool.lease(files.config, SystemClock()) for _ in range(count)]:
            with suppress(confluent_kafka.KafkaException):
                producer.client.list_topics(timeout=0.3)
            pool.give_back(files.config, producer)

    return write


def of_lag_tools(files: Files) -> Callable[[], None]:
    offsets, position = GroupOffsets(files.config, "g", SystemClock()), iter(range(99))
    return lambda: offsets.commit({("t", 0): next(position)})


def of_transactions(files: Files) -> Callable[[], None]:
    def ask() -> None:
        wire = wire_to(files.config)
        with pytest.raises(Unavailable, match="did not tell"):
            wire.call("tell its brokers", 300, wire.brokers)

    return ask


def of_a_task_whose_range_stands_still(files: Files) -> Callable[[], None]:
    pool, part = ConsumerPool(), Range("t", 0, 5, 9)
    consumer = pool.lease({**files.config, "group.id": "g"}, part)

    def watch() -> None:
        pool.watch(consumer, part, 200)
        with suppress(confluent_kafka.KafkaException):
            consumer.client.list_topics(timeout=0.3)
        pool.give_back(consumer, intact=True)

    return watch


def of_a_task_in_a_transaction(files: Files) -> Callable[[], None]:
    scope = Scope("2b1f6a52-59c1-4f41-a7a8-4a1c1d1b9a10", "run-1", 1, "kafka", {})
    options, task = exactly_once(files), SinkTask(scope, 0, 0, 0, 9)
    return lambda: TransactionalWriter(options, task).abort()


def of_a_driver_that_starts(files: Files) -> Callable[[], None]:
    scope, driver = Scope("2b1f6a52-59c1-4f41-a7a8-4a1c1d1b9a10", "run-1", 1, "kafka", {}), Driver("run-1", "h", 1, 0)
    claim = Claim(exactly_once(files), Transactions(files.config, 300.0, OfflineWire()), scope, driver)

    def begin() -> None:
        with pytest.raises(Unavailable, match="could not be initialised"):
            claim.make([], None, lambda _: None, lambda: None)

    return begin


def exactly_once(files: Files) -> SinkOptions:
    options = {f"kafka.{name}": value for name, value in files.config.items() if name != "bootstrap.servers"}
    return KafkaSink(files.broker.address, "t", key=None, witness_topic=None, options=options).options


@pytest.mark.parametrize(
    "client", [of_the_driver, of_a_task_that_reads, of_a_task_that_writes, of_lag_tools, of_transactions]
)
def test_brokers_see_the_renewed_certificate(files: Files, client: Callable[[Files], Callable[[], None]]) -> None:
    """A client that lives on showed the one that it began with, dead or not, until its process ended."""
    ask = client(files)
    ask()
    files.broker.wait_for("first")
    files.renew(SECOND)
    ask()
    files.broker.wait_for("second")


@pytest.mark.parametrize(
    "client",
    [
        of_the_driver,
        of_a_task_that_reads,
        of_tasks_that_read,
        of_a_task_that_writes,
        of_tasks_that_write,
        of_lag_tools,
        of_transactions,
    ],
)
def test_while_a_renewal_is_half_done_the_certificate_before_is_used(
    files: Files, client: Callable[[Files], Callable[[], None]], caplog: pytest.LogCaptureFixture
) -> None:
    """Its key comes a moment later. A query would have ended in between."""
    ask = client(files)
    ask()
    files.renew(SECOND, key="half of a key")
    ask()
    files.broker.wait_for("first")
    assert "have changed and cannot be used yet" in caplog.text
    files.renew(SECOND)
    ask()
    files.broker.wait_for("second")


@pytest.mark.parametrize(
    "client",
    [
        of_the_driver,
        of_a_task_that_reads,
        of_a_task_that_writes,
        of_transactions,
        of_a_task_whose_range_stands_still,
        of_a_task_in_a_transaction,
        of_a_driver_that_starts,
    ],
)
def test_who_has_no_client_waits_while_a_renewal_is_half_done(
    files: Files, client: Callable[[Files], Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each transaction, and each process that begins: the query ended, and nobody tried again."""
    ask = client(files)
    monkeypatch.setattr(renewed_module, "sleep", lambda _: files.renew(SECOND))
    files.renew(SECOND, key="half of a key")
    ask()
    files.broker.wait_for("second")


def test_all_clients_with_a_certificate_that_was_renewed_are_given_back(files: Files) -> None:
    """Also those that nobody asks for any more."""
    producers, consumers, part = ProducerPool(), ConsumerPool(), Range("t", 0, 5, 9)
    config = {**files.config, "group.id": "g"}
    writing = [producers.lease(files.config, SystemClock()) for _ in range(3)]
    reading = [consumers.lease(config, part) for _ in range(3)]
    for producer, consumer in zip(writing, reading):
        producers.give_back(files.config, producer)
        consumers.give_back(consumer, intact=True)
    files.renew(SECOND)
    producers.lease(files.config, SystemClock()).drop()
    consumers.lease(config, part).close()
    assert [producer.client for producer in writing] == [None, None, None]
    for consumer in reading:
        with pytest.raises(RuntimeError, match="closed"):
            consumer.client.assignment()


def test_a_renewal_that_is_refused_for_a_moment_is_used_then(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    """Files that come as an administrator's own and are handed over a moment later, or a process that had no descriptor
    left: the certificate before was shown until the next renewal, months later.
    """
    refusals = [InvalidRequest("Permission denied"), InvalidRequest("Permission denied")]

    def make() -> str:
        text = (files.folder / "client.pem").read_text()
        if text == SECOND and refusals:
            raise refusals.pop()
        return text

    renewed = Renewed(files.config, make)
    files.renew(SECOND)
    assert [renewed.now() for _ in range(4)] == [FIRST, FIRST, SECOND, SECOND]
    assert caplog.text.count("cannot be used yet") == 1


def test_a_file_that_somebody_else_may_read_now_is_looked_at_anew(files: Files) -> None:
    before, key, other = stamps(files.config), files.folder / "client.key", files.folder / "other"
    other.touch()
    while other.stat().st_ctime_ns <= key.stat().st_ctime_ns:  # a file system's clock ticks some hundred times a second
        other.touch()
    key.chmod(0o640)
    assert stamps(files.config) != before


class Hours:
    """A clock that is told what time it is."""

    ms = 0.0

    def elapsed_ms(self) -> float:
        return self.ms

    def now_ms(self) -> int:
        return int(self.ms)


def test_an_admin_client_goes_some_minutes_after_its_certificate(files: Files) -> None:
    """Certificates that live for an hour leave thousands a year. Nor does it go while an answer may come."""
    clock, clients = Hours(), []
    for certificate in (FIRST, SECOND, FIRST, SECOND):
        files.renew(certificate)
        clients.append(weakref.ref(admin_client(files.config, clock)))
        assert admin_client(files.config, clock) is clients[-1]()
        assert heard(files.config) >= 0
        gc.collect()
        assert [client() is not None for client in clients] == [False] * (len(clients) - 2) + [True] * min(
            2, len(clients)
        )
        clock.ms += 3_600_000


def test_a_provider_of_tokens_is_trusted_by_the_file_of_now(files: Files) -> None:
    trusted = files.folder / "ca.pem"
    trusted.write_text(FIRST)
    oidc = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": f"https://{files.broker.address}/token",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "secret",
        "https.ca.location": str(trusted),
    }
    tokens = FetchedTokens(oidc)
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        tokens.token()
    trusted.write_text((files.folder / "broker.pem").read_text())
    with pytest.raises(OSError) as now:
        tokens.token()
    assert "CERTIFICATE_VERIFY_FAILED" not in str(now.value), "it is trusted; that it takes nobody is another thing"


def test_each_option_that_names_a_file_which_clients_read_once_is_looked_at(tmp_path: Path) -> None:
    known = {name for name in SECURITY if name.startswith(("ssl.", "https.")) and name.endswith(".location")}
    assert set(FILES) == known - {"ssl.engine.location"}
    for name in FILES:
        config = {name: str(tmp_path / name)}
        found = [stamps(config)]
        for text in ("a", "b"):
            (tmp_path / "next").write_text(text)
            os.replace(tmp_path / "next", tmp_path / name)
            found.append(stamps(config))
        assert len(set(found)) == 3


def test_files_that_could_never_be_used_are_refused(files: Files) -> None:
    files.renew(FIRST, key="half of a key")
    for client in (of_the_driver, of_a_task_that_reads, of_a_task_that_writes, of_transactions):
        with pytest.raises(InvalidRequest, match=r"kafka\.ssl|refused its configuration"):
            client(files)()
