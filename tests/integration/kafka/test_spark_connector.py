"""A DataFrame from Spark's own Kafka connector works as well as one from the package's source."""

from __future__ import annotations

import json
from pathlib import Path

import pyspark
import pytest
from tests.integration.kafka.kafka_world import KafkaWorld
from tests.kafka_reading import read_messages
from tests.spark_sessions import run_module

from holdfast.errors import Unavailable
from holdfast.testing.kafka_jars import COPY_GOAL, run_maven

# What pyspark does not have of it already.
_ARTIFACTS = "spark-sql-kafka-0-10_2.13,spark-token-provider-kafka-0-10_2.13,kafka-clients,commons-pool2"
_POM = """<project><modelVersion>4.0.0</modelVersion><groupId>holdfast</groupId><artifactId>spark-connector</artifactId>
<version>1</version><packaging>pom</packaging><dependencies><dependency><groupId>org.apache.spark</groupId>
<artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{version}</version></dependency></dependencies></project>
"""


@pytest.fixture(scope="module")
def connector(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its jars, for ``spark.jars``; skipped where Maven gets none for this Spark."""
    folder = tmp_path_factory.mktemp("connector")
    pom = folder / "pom.xml"
    minor = ".".join(pyspark.__version__.split(".")[:2])
    pom.write_text(_POM.format(version=f"{minor}.0"), encoding="utf-8")
    jars = folder / "jars"
    copied = [f"-DoutputDirectory={jars}", "-DincludeScope=runtime", f"-DincludeArtifactIds={_ARTIFACTS}"]
    try:
        run_maven(["-f", str(pom), COPY_GOAL, *copied])
    except Unavailable as error:  # registries have it for some releases of Spark only
        pytest.skip(f"no spark-sql-kafka-0-10_2.13 {minor}.0 (`make oldest` runs this on Spark 4.0): {error}")
    return ",".join(sorted(map(str, jars.iterdir())))


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_sparks_own_source_feeds_state_and_the_exactly_once_sink(
    kafka: KafkaWorld, connector: str, tmp_path: Path
) -> None:
    source, target = kafka.topic(2), kafka.topic(2)

    def run(amounts: range) -> None:
        for user in range(4):
            mine = [str(amount).encode() for amount in amounts if amount % 4 == user]
            kafka.produce(source, mine, partition=user % 2, key=f"user{user}".encode())
        given = [kafka.servers, source, target, str(tmp_path), connector]
        run_module("tests.integration.kafka.spark_connector_query", *given, timeout_s=400)

    run(range(200))
    run(range(200, 250))  # started again: from Spark's offsets and the state that belongs to them
    found: dict[str, list[tuple[int, int]]] = {}
    for message in read_messages(kafka.servers, target):
        row = json.loads(message.value())
        found.setdefault(message.key().decode(), []).append((row["amount"], row["total"]))
    for user in range(4):
        amounts = [amount for amount in range(250) if amount % 4 == user]
        assert found.pop(f"user{user}") == [(amount, sum(amounts[: n + 1])) for n, amount in enumerate(amounts)]
    assert not found
