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
from tests.tls_handshakes import FIRST, KEY, SECOND, Handshakes

from holdfast.clock import SystemClock
from holdfast.errors import InvalidRequest, Unavailable
from holdfast.kafka import client as client_module
from holdfast.kafka.client import admin_client, heard
from holdfast.kafka.oauth import FetchedTokens
from holdfast.kafka.renewed import FILES, stamps
from holdfast.kafka.security import SECURITY
from holdfast.kafka.wire import Wire
from holdfast.sink.kafka.plain_writer import ProducerPool
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
    """Its admin clients end with it."""
    monkeypatch.setattr(client_module, "_admin_clients", {})
    monkeypatch.setattr(client_module, "_retired", [])
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
    pool = ConsumerPool()

    def read() -> None:
        consumer = pool.lease({**files.config, "group.id": "g"}, Range("t", 0, 5, 9))
        with suppress(confluent_kafka.KafkaException):
            consumer.client.list_topics(timeout=0.3)
        pool.give_back(consumer, intact=False)

    return read


def of_a_task_that_writes(files: Files) -> Callable[[], None]:
    pool = ProducerPool()

    def write() -> None:
        producer = pool.lease(files.config, SystemClock())
        with suppress(confluent_kafka.KafkaException):
            producer.client.list_topics(timeout=0.3)
        pool.give_back(files.config, producer)

    return write


def of_lag_tools(files: Files) -> Callable[[], None]:
    offsets, position = GroupOffsets(files.config, "g", SystemClock()), iter(range(99))
    return lambda: offsets.commit({("t", 0): next(position)})


def of_transactions(files: Files) -> Callable[[], None]:
    wire = Wire(files.config)

    def ask() -> None:
        with pytest.raises(Unavailable, match="did not tell"):
            wire.call("tell its brokers", 300, wire.brokers)

    return ask


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


@pytest.mark.parametrize("client", [of_the_driver, of_a_task_that_reads, of_a_task_that_writes, of_transactions])
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
