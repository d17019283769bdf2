"""Why Kafka cannot be reached stands in the error: librdkafka says it beside its answers, and keeps it until somebody
listens. What a wrong password and a wrong certificate say: tests/integration/kafka/test_kafka_source_security.py.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from holdfast.clock import SystemClock
from holdfast.errors import Unavailable
from holdfast.kafka.client import ConnectionErrors
from holdfast.sink.kafka import transactional_writer
from holdfast.sink.kafka.fitness import Fitness
from holdfast.sink.kafka.sending import SendingProducer
from holdfast.sink.kafka.sink import KafkaSink
from holdfast.source.kafka.cluster import Cluster
from holdfast.source.kafka.options import SourceOptions


class Said:
    """An error as a client's ``error_cb`` gets it, whose text is given."""

    _ALL_BROKERS_DOWN = KafkaError._ALL_BROKERS_DOWN

    def __init__(self, text: str, code: int = KafkaError._SSL) -> None:
        self._text, self._code = text, code

    def str(self) -> str:
        return self._text

    def code(self) -> int:
        return self._code


@pytest.fixture
def servers() -> Iterator[str]:
    """An address at which nobody listens, of this test alone."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def test_of_a_source(servers: str, caplog: pytest.LogCaptureFixture) -> None:
    """It waited for two minutes, and named no cause."""
    source = SourceOptions.parse({"kafka.bootstrap.servers": servers, "subscribe": "t"}, streaming=True)
    with pytest.raises(Unavailable, match=f"did not say the partitions of subscribe t: .*{servers}.*refused"):
        Cluster(source, answer_within_ms=1000).topics()
    assert "Connection refused" in caplog.text


def test_of_a_sink(servers: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Unavailable, match=f"did not describe topic t: .*{servers}.*Connection refused"):
        Fitness(KafkaSink(servers, "t").options, answer_within_ms=1000).check()
    assert "Connection refused" in caplog.text


def test_of_a_transaction(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional_writer, "INITIALISE_WITHIN_S", 1.0)
    options = KafkaSink(servers, "t").options
    producer = SendingProducer({**options.producer(), "transactional.id": "one"}, "Transaction one", SystemClock())
    with pytest.raises(Unavailable, match=f"could not be initialised: .*{servers}.*Connection refused"):
        transactional_writer.Initialisation(producer, options, "Transaction one").wait()
    producer.drop()


def test_of_records_without_a_transaction(servers: str) -> None:
    options = KafkaSink(servers, "t", mode="none").options
    producer = SendingProducer({**options.producer(), "message.timeout.ms": "1000"}, "Producer", SystemClock())
    producer.send_one("t", 0, b"k", b"v")
    with pytest.raises(Unavailable, match=f"_MSG_TIMED_OUT.*last word.*{servers}.*Connection refused"):
        producer.flush(60_000)
    producer.drop()


def test_a_word_that_says_less_does_not_displace_one_that_says_more() -> None:
    """Of a certificate that was refused librdkafka told twice, and which of the two came last was chance."""
    ours, other = "ssl://b:1/bootstrap: ", "ssl://c:2/bootstrap: "
    told = "error:0A000086:SSL routines::certificate verify failed"
    full = f"{ours}SSL handshake failed: {told}: look at ssl.ca.location (after 5ms in state SSL_HANDSHAKE)"
    refused = f"{other}Connect to 10.0.0.1 failed: Connection refused (after 0ms in state CONNECT)"
    errors = ConnectionErrors({})
    assert errors.last_in_words() == ""
    for text, then in (
        (f"{ours}{told} (after 20ms in state SSL_HANDSHAKE)", f"{ours}{told} (after 20ms in state SSL_HANDSHAKE)"),
        (full, full),
        (f"{ours}{told} (after 23ms in state SSL_HANDSHAKE)", full),
        (f"{ours}{told} (after 20ms in state SSL_HANDSHAKE, 1 identical error(s) suppressed)", full),
        (refused, refused),
        (full, full),
    ):
        assert errors.add(Said(text)) == text
        assert errors.last_in_words().endswith(f": {then}")
    errors.add(Said("2/2 brokers are down", KafkaError._ALL_BROKERS_DOWN))
    assert errors.last_in_words().endswith(f": {full}")
    assert errors.last_in_words(errors.count - 1).endswith(": 2/2 brokers are down"), "all that was said since"
    assert errors.last_in_words(errors.count) == ""


def test_an_answer_to_one_takes_no_reason_from_another() -> None:
    """Queries with one configuration share a client. Whoever was answered wiped what the others were to be told."""
    errors = ConnectionErrors({})
    errors.add(Said("before"))
    since = errors.count
    errors.add(Said("refused: broker 1"))
    assert errors.last_in_words(errors.count) == "", "asked later, and answered"
    assert errors.last_in_words(since).endswith(": refused: broker 1")
    for _ in range(1000):
        errors.add(Said("refused: broker 2"))
    assert errors.last_in_words(since).endswith(": refused: broker 2")
