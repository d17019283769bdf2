"""TLS and SASL pass through, and their secrets show nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.kafka.conftest import PASSWORD
from tests.integration.kafka.kafka_world import KafkaWorld, Stream, values

from holdfast.errors import InvalidRequest, Unavailable
from holdfast.source.kafka.cluster import Cluster
from holdfast.source.kafka.consumers import ConsumerPool
from holdfast.source.kafka.options import SourceOptions
from holdfast.testing import KafkaBroker


@pytest.fixture(scope="module")
def topic(secure: KafkaBroker) -> str:
    world = KafkaWorld(secure)
    name = world.topic()
    world.produce(name, values(0, 10))
    return name


def options(secure: KafkaBroker, listener: str, topic: str, **client: str) -> SourceOptions:
    given = {"kafka.bootstrap.servers": secure.address(listener), "subscribe": topic, "startingOffsets": "earliest"}
    given |= {f"kafka.{name.replace('__', '.')}": value for name, value in client.items()}
    return SourceOptions.parse(given, streaming=True)


def test_tls(secure: KafkaBroker, certificate: Path, topic: str, pool: ConsumerPool) -> None:
    trusted = options(secure, "TLS", topic, security__protocol="SSL", ssl__ca__location=str(certificate / "broker.pem"))
    assert Stream(trusted, pool).batch() == values(0, 10)
    untrusted = options(secure, "TLS", topic, security__protocol="SSL")
    with pytest.raises(Unavailable, match=r"did not say the partitions of subscribe topic.*SSL handshake failed"):
        Cluster(untrusted, answer_within_ms=2000).topics()


def test_sasl_over_tls_as_librdkafka_says_it(
    secure: KafkaBroker, certificate: Path, topic: str, pool: ConsumerPool
) -> None:
    source = options(
        secure,
        "BOTH",
        topic,
        security__protocol="SASL_SSL",
        sasl__mechanism="PLAIN",
        sasl__username="me",
        sasl__password=PASSWORD,
        ssl__ca__location=str(certificate / "broker.pem"),
    )
    assert Stream(source, pool).batch() == values(0, 10)


def test_sasl_as_sparks_users_say_it(secure: KafkaBroker, topic: str, pool: ConsumerPool) -> None:
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="{PASSWORD}";'
    source = options(
        secure,
        "LOGIN",
        topic,
        security__protocol="SASL_PLAINTEXT",
        sasl__mechanism="PLAIN",
        sasl__jaas__config=jaas,
    )
    stream = Stream(source, pool)
    assert stream.batch() == values(0, 10)
    for shown in (repr(source), str(stream.offset), repr(stream.planner.ranges({**stream.offset}, stream.offset))):
        assert PASSWORD not in shown


def test_a_wrong_password_is_an_error_without_it(
    secure: KafkaBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = options(
        secure,
        "LOGIN",
        topic,
        security__protocol="SASL_PLAINTEXT",
        sasl__mechanism="PLAIN",
        sasl__username="me",
        sasl__password="wrong-and-secret",
    )
    with pytest.raises(Unavailable) as raised:
        Cluster(source, answer_within_ms=3000).topics()
    assert "did not say the partitions" in str(raised.value)
    assert "SASL authentication error: Authentication failed" in str(raised.value)
    assert "Authentication failed" in caplog.text
    assert "wrong-and-secret" not in str(raised.value)
    assert "wrong-and-secret" not in caplog.text


def test_a_refused_configuration_is_an_error_without_its_secrets(secure: KafkaBroker, topic: str) -> None:
    with pytest.raises(InvalidRequest, match="refused its configuration.*no.such.thing") as raised:
        Cluster(options(secure, "TLS", topic, sasl__password=PASSWORD, no__such__thing="1"))
    assert PASSWORD not in str(raised.value)
    assert "kafka.sasl.password (secret)" in str(raised.value)
