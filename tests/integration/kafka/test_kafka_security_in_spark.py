"""docs/guide/security.md, tried: a query over TLS, with a login and no more permissions than the page names, whose
password is found nowhere afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from tests.integration.kafka.conftest import PASSWORD, STORE_PASSWORD
from tests.integration.kafka.kafka_world import KafkaWorld, eventually, values
from tests.kafka_reading import read_committed

import holdfast as hf
from holdfast.testing import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
# The rows of the page: what, by which name, how the name is meant, and what may be done with it.
PERMISSIONS = [
    (ResourceType.TOPIC, "guarded-in", ResourcePatternType.LITERAL, AclOperation.READ),
    (ResourceType.GROUP, "holdfast-kafka-source-", ResourcePatternType.PREFIXED, AclOperation.READ),
    (ResourceType.TOPIC, "guarded-out", ResourcePatternType.LITERAL, AclOperation.WRITE),
    (ResourceType.TOPIC, "holdfast-witness", ResourcePatternType.LITERAL, AclOperation.READ),
    (ResourceType.TOPIC, "holdfast-witness", ResourcePatternType.LITERAL, AclOperation.WRITE),
    (ResourceType.TOPIC, "holdfast-witness", ResourcePatternType.LITERAL, AclOperation.CREATE),
    (ResourceType.TRANSACTIONAL_ID, "holdfast-", ResourcePatternType.PREFIXED, AclOperation.WRITE),
]


@pytest.fixture(scope="module")
def guarded(certificate: Path) -> Iterator[KafkaBroker]:
    """TLS and a login on one listener, and permissions for each user; without a login one may do all."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f'{_PLAIN} required user_me="{PASSWORD}";',
        "ssl.keystore.location": str(certificate / "broker.p12"),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.keystore.type": "PKCS12",
    }
    with KafkaBroker(settings=settings, listeners={"SECURE": "SASL_SSL"}) as running:
        yield running


def test_a_secure_query_with_the_permissions_of_the_guide(
    guarded: KafkaBroker, certificate: Path, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.INFO, "py4j")  # PySpark's bridge to Java: at DEBUG it logs all that a program says
    world = KafkaWorld(guarded)
    world.topic(2, "guarded-in"), world.topic(2, "guarded-out")
    bindings = [
        AclBinding(kind, name, pattern, "User:me", "*", operation, AclPermissionType.ALLOW)
        for kind, name, pattern, operation in PERMISSIONS
    ]
    for made in world.admin.create_acls(bindings).values():
        made.result(120)
    world.produce("guarded-in", values(0, 100))
    secure = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.ca.location": str(certificate / "broker.pem"),
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "me",
        "kafka.sasl.password": PASSWORD,
    }
    servers = guarded.address("SECURE")

    hf.register_sources(spark)
    source = {"kafka.bootstrap.servers": servers, "subscribe": "guarded-in", "startingOffsets": "earliest", **secure}
    events = spark.readStream.format("holdfast-kafka").options(**source).load()
    sink = hf.KafkaSink(servers, "guarded-out", options=secure)
    checkpoint = tmp_path / "checkpoint"
    query = hf.write_exactly_once(
        events.select("key", "value"), sink, checkpoint=checkpoint, trigger={"availableNow": True}
    )
    assert query.awaitTermination(120)

    assert sorted(read_committed(guarded.bootstrap_servers, "guarded-out")) == sorted(values(0, 100))
    groups = lambda: [group.group_id for group in world.admin.list_consumer_groups().result(120).valid]  # noqa: E731
    eventually(lambda: any(group.startswith("holdfast-kafka-source-") for group in groups()))
    assert not [line for line in caplog.text.splitlines() if PASSWORD in line]
    assert PASSWORD not in events._jdf.queryExecution().toString()
    assert PASSWORD not in str(query.lastProgress)
    told = [path for path in checkpoint.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]
    assert not told, told
