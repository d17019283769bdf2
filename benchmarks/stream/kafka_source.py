"""The Kafka source in Spark against bare consumers: rows a second from a topic of 4 partitions, 100-byte messages.

The topic is written in transactions, some of one to five messages, with aborted ones between them: offsets have gaps.

Spark: local[2], `holdfast-kafka` into the noop sink, Trigger.AvailableNow, the batches after the first. The bare
client: one process a core with a plain confluent-kafka consumer on half of the partitions, `consume(10_000)` and each
message's value; and the same with the source's own client settings. Where Maven has Spark's own connector for this
Spark, that too. All of them share the machine with the broker, in turns.

Figures: kafka_source.rows_per_s, kafka_source.vs_bare_client.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.figures import IN_TURNS, arguments, at_least, in_turns, middle, ratio
from benchmarks.records import recorded
from benchmarks.stream.kafka_rivals import connector_jars
from benchmarks.stream.workload import start_session
from benchmarks.turns import turns
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.source.kafka.consumers import _DEFAULTS as SOURCE_SETTINGS
from holdfast.testing import KafkaBroker
from holdfast.testing.kafka_feed import Record, TransactionalFeed

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

TOPIC = "messages"
PARTITIONS = 4
PROCESSES = 2
MESSAGE_BYTES = 100
FEED_ROWS = 100_000  # at a time
OURS, CONNECTOR = "holdfast-kafka", "Spark's connector"
SOURCES = {OURS: "holdfast-kafka", CONNECTOR: "kafka"}
CLIENTS: dict[str, dict[str, Any]] = {"bare": {}, "tuned": dict(SOURCE_SETTINGS)}


def fill(servers: str, rows: int) -> None:
    """Spread evenly, random bytes, so that nothing compresses; most of it in large transactions."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    settings = {"linger.ms": 20, "batch.size": 1 << 20, "queue.buffering.max.messages": 500_000}
    feed = TransactionalFeed(servers, TOPIC, "feed-of-messages", small_max=20, rest_rows=50_000, config=settings)
    pool = os.urandom(1 << 20)
    starts = [row * 61 % (len(pool) - MESSAGE_BYTES) for row in range(FEED_ROWS)]
    for first in range(0, rows, FEED_ROWS):
        feed.send(
            Record(pool[start : start + MESSAGE_BYTES], partition=row % PARTITIONS)
            for row, start in enumerate(starts[: rows - first])
        )


def consume(servers: str, partitions: list[int], rows: int, settings: dict[str, Any], times: Queue[Any]) -> None:
    """One bare consumer; says when it had its first and its last message."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bare", "enable.auto.commit": False, **settings})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in partitions])
    seen = len(consumer.consume(1, 30))
    started = time.time()
    size = 0
    while seen < rows:
        values: list[Any] = [message.value() for message in consumer.consume(min(10_000, rows - seen), 0.1)]
        seen += len(values)
        size += len(values) and len(values[0])
    times.put((started, time.time(), size))
    consumer.close()


def bare(servers: str, rows: int, settings: dict[str, Any]) -> float:
    """Rows a second of all processes together."""
    context = multiprocessing.get_context("spawn")
    times: Queue[Any] = context.Queue()
    shares = [list(range(first, PARTITIONS, PROCESSES)) for first in range(PROCESSES)]
    processes = [
        context.Process(target=consume, args=(servers, share, rows // PROCESSES, settings, times)) for share in shares
    ]
    for process in processes:
        process.start()
    ran = [times.get(timeout=300) for _ in processes]
    for process in processes:
        process.join()
    return rows / (max(end for _, end, _ in ran) - min(start for start, _, _ in ran))


def in_spark(spark: SparkSession, servers: str, batch_rows: int, checkpoint: Path, source: str) -> float:
    """Rows a second: the median of the batches after the first, whole triggers."""
    stream = (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch_rows)
        .load()
    )
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [batch for batch in query.recentProgress if batch["numInputRows"] >= batch_rows * 0.9]
    return statistics.median(
        batch["numInputRows"] / batch["durationMs"]["triggerExecution"] * 1000 for batch in progress[1:]
    )


def measure(folder: Path, servers: str, rows: int, batch_rows: int, rounds: int) -> dict[str, list[float]]:
    """Rows a second of each way in each round."""
    jars = connector_jars(folder)
    settings: dict[str, Any] = {"spark__jars": ",".join(jars)} if jars else {}
    spark = start_session(folder, **settings)
    hf.register_sources(spark)

    def once(way: str) -> float:
        if way in CLIENTS:
            found = bare(servers, rows, CLIENTS[way])
        else:
            found = in_spark(spark, servers, batch_rows, folder / f"checkpoint-{uuid.uuid4().hex}", SOURCES[way])
        print(f"{way:<18} {found:,.0f} rows/s", flush=True)
        return found

    found = turns([*CLIENTS, OURS, *([CONNECTOR] if jars else [])], rounds, once)
    spark.stop()
    return found


def main() -> None:
    """Turns: bare, tuned, Holdfast, Spark's connector; and back."""
    parser = arguments(__doc__, rows=4_000_000, batch_rows=1_000_000, rounds=6)
    given = parser.parse_args()
    rows, batch_rows, rounds = given.rows, given.batch_rows, given.rounds
    if given.short:
        rows, batch_rows, rounds = 400_000, 100_000, 1
    with recorded(given) as folder, KafkaBroker(folder / "broker", heap="1g") as broker:
        fill(broker.bootstrap_servers, rows)
        rates = measure(folder, broker.bootstrap_servers, rows, batch_rows, rounds)
        left_out = "" if CONNECTOR in rates else "; Spark's own connector is left out: Maven has none for this Spark"
        ours, note = rates[OURS], f"batches of {batch_rows:,}{left_out}"
        middle("kafka_source.rows_per_s", ours, at_least(350_000), note, IN_TURNS)
        bare_client, tuned = in_turns(ours, rates["bare"]), in_turns(ours, rates["tuned"])
        ratio("kafka_source.vs_bare_client", bare_client, note="librdkafka's own settings")
        ratio("kafka_source.vs_tuned_client", tuned, at_least(0.8), "the source's own settings")
        if CONNECTOR in rates:
            ratio("kafka_source.vs_spark_connector", in_turns(ours, rates[CONNECTOR]), note="nothing of it in Python")


if __name__ == "__main__":
    main()
