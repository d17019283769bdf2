"""The Kafka source in Spark against bare consumers: rows a second from a topic of 4 partitions, 100-byte messages.

The topic is written in transactions, some of one to five messages, with aborted ones between them: offsets have gaps.

Spark: local[2], `holdfast-kafka` into the noop sink, Trigger.AvailableNow, the batches after the first. The bare
client: one process a core with a plain confluent-kafka consumer on half of the partitions, `consume(10_000)` and each
message's value; and, for a note, the same with the source's own client settings. All of them share the machine with
the broker, in turns.

Figures: kafka_source.rows_per_s, kafka_source.vs_bare_client.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.figures import Measured, arguments, at_least, figure, in_turns, ratio
from benchmarks.records import recorded
from benchmarks.stream.workload import start_session
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
        values = [message.value() for message in consumer.consume(min(10_000, rows - seen), 0.1)]
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


def in_spark(spark: SparkSession, servers: str, batch_rows: int, checkpoint: Path) -> list[float]:
    """Rows a second of each batch after the first, whole triggers."""
    stream = (
        spark.readStream.format("holdfast-kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch_rows)
        .load()
    )
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [batch for batch in query.recentProgress if batch["numInputRows"] >= batch_rows * 0.9]
    return [batch["numInputRows"] / batch["durationMs"]["triggerExecution"] * 1000 for batch in progress[1:]]


def main() -> None:
    """Turns: bare, Spark, bare, Spark, …"""
    parser = arguments(__doc__, rows=4_000_000, batch_rows=1_000_000, rounds=3)
    given = parser.parse_args()
    rows, batch_rows, rounds = given.rows, given.batch_rows, given.rounds
    if given.short:
        rows, batch_rows, rounds = 400_000, 100_000, 1
    ours: list[float] = []
    theirs: list[float] = []
    tuned: list[float] = []
    with recorded(given) as folder, KafkaBroker(folder / "broker", heap="1g") as broker:
        servers = broker.bootstrap_servers
        fill(servers, rows)
        spark = start_session(folder)
        hf.register_sources(spark)
        for turn in range(rounds):
            theirs.append(bare(servers, rows, {}))
            tuned.append(bare(servers, rows, dict(SOURCE_SETTINGS)))
            ours += in_spark(spark, servers, batch_rows, folder / f"checkpoint-{turn}")
        spark.stop()
        measured = Measured.again(ours)
        figure(
            "kafka_source.rows_per_s",
            statistics.median(ours),
            at_least(350_000),
            f"batches of {batch_rows:,}",
            measured,
        )
        ratio("kafka_source.vs_bare_client", in_turns(ours, theirs), at_least(0.8), "librdkafka's default settings")
        ratio("kafka_source.vs_tuned_client", in_turns(ours, tuned), note="the source's own settings")


if __name__ == "__main__":
    main()
