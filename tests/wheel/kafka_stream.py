"""The second thing a user of the wheel does: a stateful stream from Kafka to Kafka, exactly once, over a kill -9.

Starts a real broker, feeds a topic, runs this file as the job, which dies in the middle of a commit, and runs it again.
A plain read_committed consumer, which knows nothing of Holdfast, counts what is visible. Runs outside the tree.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from stream import RunningTotal

import holdfast as hf
from holdfast.testing import KafkaBroker

SOURCE, OUTPUT = "amounts", "totals"
PARTITIONS = 2
ROWS, USERS = 2000, 7
BATCH_ROWS = 500
BATCHES_BEFORE_DEATH = 2
JOB_S_MAX, READING_S_MAX = 300, 180


def run_job(folder: Path, servers: str) -> None:
    """Reads what is in the source and was not read yet."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.holdfast.checkpoint.dir", str(folder / "state"))
        .config("spark.holdfast.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    hf.register_sources(spark)
    messages = (
        spark.readStream.format("holdfast-kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", BATCH_ROWS)
        .load()
    )
    amounts = messages.select(
        sql.from_json(messages.value.cast("string"), "user string, amount long").alias("row")
    ).select("row.*")
    totals = amounts.transform(hf.keyed("user", RunningTotal(), "user string, amount long, total long", name="totals"))
    sink = hf.KafkaSink(servers, OUTPUT, key="user", value="*")
    checkpoint = folder / "checkpoint"
    hf.write_exactly_once(totals, sink, checkpoint=checkpoint, trigger={"availableNow": True}).awaitTermination()
    spark.stop()


def feed(servers: str) -> dict[str, list[int]]:
    """Fills the source; gives each user's amounts, in their order."""
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in (SOURCE, OUTPUT)]).values():
        made.result(120)
    producer, fed = Producer({"bootstrap.servers": servers}), defaultdict(list)
    for amount in range(ROWS):
        user = f"user-{amount % USERS}"
        fed[user].append(amount)
        producer.produce(SOURCE, json.dumps({"user": user, "amount": amount}), key=user)
    assert producer.flush(120) == 0
    return fed


def visible(servers: str) -> dict[str, list[tuple[int, int]]]:
    """Each user's (amount, total), as a read_committed consumer sees them."""
    settings = {"group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True}
    reader = Consumer({"bootstrap.servers": servers, "enable.auto.commit": False, **settings})
    reader.assign([TopicPartition(OUTPUT, number, 0) for number in range(PARTITIONS)])
    left, rows, deadline = set(range(PARTITIONS)), defaultdict(list), time.monotonic() + READING_S_MAX
    while left:
        assert time.monotonic() < deadline, f"partitions {left} did not end within {READING_S_MAX} s"
        for message in reader.consume(1000, 0.2):
            if message.error():
                left.discard(message.partition())
            else:
                key, value = message.key(), message.value()
                assert key is not None and value is not None
                row = json.loads(value)
                rows[key.decode()].append((row["amount"], row["total"]))
    reader.close()
    return rows


def start(folder: Path, servers: str, **environment: str) -> int:
    """One run of the job, in a session of its own; gives its exit code when nothing of it is left."""
    job = subprocess.Popen(
        [sys.executable, __file__, str(folder), servers],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), **environment},  # workers import RunningTotal
        start_new_session=True,
    )
    try:
        return job.wait(JOB_S_MAX)
    finally:
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if os.getsid(int(entry.name)) == job.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
            except ProcessLookupError:  # it has ended by itself
                continue


def main(folder: Path) -> None:
    """Stops with an AssertionError when a row is lost, twice or wrong."""
    fault = folder / "fault"
    with KafkaBroker() as broker:
        servers = broker.bootstrap_servers
        fed = feed(servers)
        fault.write_text(f"mid_commit:{BATCHES_BEFORE_DEATH}", encoding="utf-8")
        code = start(folder, servers, HOLDFAST_FAULT_FILE=str(fault))
        assert code == -signal.SIGKILL, f"the first run was to be killed while it commits; it ended with {code}"
        assert sum(map(len, visible(servers).values())) < ROWS, "all was committed before the kill: it proves nothing"
        assert start(folder, servers) == 0, "the second run failed"
        found = visible(servers)
    for user, amounts in fed.items():
        expected = [(amount, sum(amounts[: number + 1])) for number, amount in enumerate(amounts)]
        assert found[user] == expected, f"{user}: expected {expected[:5]}…, found {found[user][:5]}…"
    assert found.keys() == fed.keys()
    print(f"Kafka to Kafka over a kill -9: {ROWS} rows, lost 0, twice 0, all totals exact")


if __name__ == "__main__":
    if sys.argv[2:]:
        run_job(Path(sys.argv[1]), sys.argv[2])
    else:
        main(Path(sys.argv[1]))
