"""Why Kafka cannot be reached stands in the error: librdkafka says it beside its answers, and keeps it until somebody
listens. What a wrong password and a wrong certificate say: tests/integration/kafka/test_kafka_source_security.py.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import Unavailable
from holdfast.sink.kafka import transactional_writer
from holdfast.sink.kafka.fitness import Fitness
from holdfast.sink.kafka.sending import SendingProducer
from holdfast.sink.kafka.sink import KafkaSink
from holdfast.source.kafka.cluster import Cluster
from holdfast.source.kafka.options import SourceOptions


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
