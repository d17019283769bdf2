"""How Spark's users move rows to and from Kafka without Holdfast.

foreachBatch with a producer in each task; and Spark's own connector, a JVM plug-in, where Maven has it for this Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.errors import Unavailable
from holdfast.testing.kafka_jars import COPY_GOAL, run_maven

#: As the sink sets them where nobody says otherwise: nothing in the client's settings makes the difference.
PRODUCER = {
    "enable.idempotence": True,
    "partitioner": "murmur2_random",
    "linger.ms": 5,
    "queue.buffering.max.kbytes": 65536,
    "reconnect.backoff.ms": 10,
}
# What pyspark does not have of the connector already.
_ARTIFACTS = "spark-sql-kafka-0-10_2.13,spark-token-provider-kafka-0-10_2.13,kafka-clients,commons-pool2"
_POM = """<project><modelVersion>4.0.0</modelVersion><groupId>holdfast</groupId><artifactId>spark-connector</artifactId>
<version>1</version><packaging>pom</packaging><dependencies><dependency><groupId>org.apache.spark</groupId>
<artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{version}</version></dependency></dependencies></project>
"""


def write_by_foreach_batch(
    rows: DataFrame, servers: str, topic: str, checkpoint: Path, trigger: Mapping[str, str]
) -> StreamingQuery:
    """Rows (key string, value string) by foreachBatch and an idempotent producer in each task. A batch that is replayed
    is sent again: what it writes is there twice. Rows come to the producer in Arrow batches, quicker than as Rows.
    """

    def send(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": servers, **PRODUCER})
        sent = 0
        for batch in batches:
            for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist()):
                try:
                    producer.produce(topic, value, key)
                except BufferError:  # the queue is full
                    producer.poll(1)
                    producer.produce(topic, value, key)
            producer.poll(0)
            sent += batch.num_rows
        left = producer.flush(120)
        if left:
            raise RuntimeError(f"expected all of {sent} rows delivered, found {left} waiting after 120 s")
        yield pa.record_batch({"sent": [sent]})

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.mapInArrow(send, "sent long").collect()

    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger).start()


def connector_jars(folder: Path) -> list[str] | None:
    """The jars of Spark's own connector, for ``spark.jars``; None where Maven has none for this Spark, and says so."""
    pom, jars = folder / "pom.xml", folder / "connector"
    minor = ".".join(pyspark.__version__.split(".")[:2])
    pom.write_text(_POM.format(version=f"{minor}.0"), encoding="utf-8")
    copied = [f"-DoutputDirectory={jars}", "-DincludeScope=runtime", f"-DincludeArtifactIds={_ARTIFACTS}"]
    try:
        run_maven(["-f", str(pom), COPY_GOAL, *copied])
    except Unavailable as error:
        reason = str(error).strip().splitlines()[-1][:200]
        print(f"# Spark's own connector is left out: Maven has none for Spark {minor} ({reason})", flush=True)
        return None
    return sorted(map(str, jars.iterdir()))
