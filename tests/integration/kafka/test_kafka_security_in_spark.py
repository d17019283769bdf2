"""docs/guide/security.md, tried: a query over TLS, with a login and no more permissions than the page names, whose
password is found nowhere afterwards.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from tests.integration.kafka.conftest import PASSWORD, STORE_PASSWORD
from tests.integration.kafka.kafka_world import KafkaWorld, eventually, values
from tests.kafka_reading import read_committed

import holdfast as hf
from holdfast.commit.epochs import Driver
from holdfast.commit.sink import Scope, SinkTask
from holdfast.sink.kafka.fitness import Fitness
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


def allow(world: KafkaWorld, permissions: Sequence[tuple[Any, str, Any, Any]]) -> None:
    bindings = [
        AclBinding(kind, name, pattern, "User:me", "*", operation, AclPermissionType.ALLOW)
        for kind, name, pattern, operation in permissions
    ]
    for made in world.admin.create_acls(bindings).values():
        made.result(120)


def secure_options(certificate: Path) -> dict[str, str]:
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.ca.location": str(certificate / "broker.pem"),
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "me",
        "kafka.sasl.password": PASSWORD,
    }


@pytest.mark.parametrize("witness_topic", ["holdfast-witness", None])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_topic_that_may_not_be_written_to_is_told_with_what_to_grant(
    guarded: KafkaBroker, certificate: Path, witness_topic: str | None, at_once: bool
) -> None:
    """It was told as "Local: Purged in queue", which is what became of the records."""
    world = KafkaWorld(guarded)
    topic = world.topic()
    described = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, AclOperation.DESCRIBE)
    allow(world, [*PERMISSIONS, described])
    servers, options = guarded.address("SECURE"), secure_options(certificate)
    sink = hf.KafkaSink(servers, topic, witness_topic=witness_topic, options=options)
    Fitness(sink.options).check()
    scope = Scope(str(uuid.uuid4()), "run", 1, sink.name)
    claim = sink.claim(scope, Driver("run", "localhost", 1, 0), (), lambda traces: None)
    writer = sink.open(SinkTask(replace(scope, claim=claim), 0, 0, 0, 0))
    row = pa.RecordBatch.from_pydict({"key": ["k"], "value": ["v"]})
    with pytest.raises(hf.Unavailable, match=rf"authorization failed.*\. Grant .* WRITE on .*'{topic}'$"):
        for _ in range(1 if at_once else 1_000):
            writer.write(row)
            time.sleep(0 if at_once else 0.02)
        writer.prepare()
    writer.abort()


def test_a_secure_query_with_the_permissions_of_the_guide(
    guarded: KafkaBroker, certificate: Path, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.INFO, "py4j")  # PySpark's bridge to Java: at DEBUG it logs all that a program says
    world = KafkaWorld(guarded)
    world.topic(2, "guarded-in"), world.topic(2, "guarded-out")
    allow(world, PERMISSIONS)
    world.produce("guarded-in", values(0, 100))
    secure = secure_options(certificate)
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
