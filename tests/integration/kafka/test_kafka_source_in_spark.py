"""The Kafka source in Spark: batch reads, limits, Trigger.AvailableNow, restarts, a broker that goes and comes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.integration.kafka.kafka_world import KafkaWorld, eventually, values
from tests.spark_sessions import SPARK_RELEASE, worker_path

import holdfast as hf
from holdfast.testing import KafkaBroker
from holdfast.testing.kafka_feed import Record, TransactionalFeed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark

DRIVER = Path(__file__).with_name("killed_query.py")


@pytest.fixture
def registered(spark: SparkSession) -> SparkSession:
    hf.register_sources(spark)
    hf.register_sources(spark)
    return spark


class Collected:
    """A query that keeps each batch's rows."""

    def __init__(self, spark: SparkSession, options: dict[str, str], checkpoint: Path) -> None:
        self.batches: dict[int, list[Any]] = {}
        self._frame = spark.readStream.format("holdfast-kafka").options(**options).load()
        self._checkpoint = str(checkpoint)

    def start(self, **trigger: Any) -> StreamingQuery:
        def keep(frame: DataFrame, batch_id: int) -> None:
            self.batches[batch_id] = frame.collect()

        writer = self._frame.writeStream.foreachBatch(keep).option("checkpointLocation", self._checkpoint)
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def values(self) -> list[bytes]:
        return [bytes(row.value) for _, rows in sorted(self.batches.items()) for row in rows]


def test_a_batch_read(kafka: KafkaWorld, registered: SparkSession) -> None:
    topic = kafka.topic(2)
    kafka.produce(topic, values(0, 100), 0, key=b"k", headers=[("a", b"1")], timestamp_ms=1_700_000_000_123)
    kafka.produce(topic, values(0, 50), 1)
    options = {"KAFKA.BOOTSTRAP.SERVERS": kafka.servers, "Subscribe": topic, "includeheaders": "TRUE"}
    frame = registered.read.format("holdfast-kafka").options(**options).load()
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    assert frame.count() == 150
    row = frame.where("partition = 0 and offset = 7").selectExpr("*", "cast(timestamp as double) as seconds").first()
    assert row is not None
    assert (bytes(row.key), bytes(row.value), row.topic, row.seconds) == (b"k", b"v7", topic, 1_700_000_000.123)
    assert [(header.key, bytes(header.value)) for header in row.headers] == [("a", b"1")]
    split = registered.read.format("holdfast-kafka").options(**options, minPartitions="6").load()
    assert split.rdd.getNumPartitions() == 6
    assert split.count() == 150


def test_a_batch_read_of_a_topic_without_records(kafka: KafkaWorld, registered: SparkSession) -> None:
    """It failed with an AttributeError: Spark runs a task even where none is planned."""
    frame = registered.read.format("holdfast-kafka").options(**kafka.options(subscribe=kafka.topic(2))).load()
    assert frame.collect() == []


def test_wrong_options_are_said_before_anything_is_read(kafka: KafkaWorld, registered: SparkSession) -> None:
    reader = registered.read.format("holdfast-kafka")
    with pytest.raises(Exception, match="'subscirbe' is not an option of holdfast-kafka. The nearest is 'subscribe'"):
        reader.options(**kafka.options(subscirbe="t")).load().count()
    with pytest.raises(Exception, match="A Kafka source has fixed columns"):
        registered.read.format("holdfast-kafka").schema("a int").options(**kafka.options(subscribe="t")).load().count()


@pytest.mark.skipif(SPARK_RELEASE < (4, 2), reason="Spark 4.0 and 4.1 ask once how far to go: the guide's kafka_source")
def test_available_now_in_limited_batches_and_a_restart(
    kafka: KafkaWorld, registered: SparkSession, tmp_path: Path
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, values(0, 100))
    options = kafka.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    stream = Collected(registered, options | {"kafka.group.id": topic}, tmp_path / "checkpoint")
    query = stream.start()
    assert query.awaitTermination(120)
    assert [len(rows) for rows in stream.batches.values()] == [40, 40, 20]
    assert stream.values() == values(0, 100)
    # The last batch is seen by lag tools too, though Spark never tells the source that it is committed.
    eventually(lambda: kafka.group_offset(topic, topic) == 100)
    progress = query.lastProgress
    assert progress is not None
    assert json.loads(progress["sources"][0]["latestOffset"])["offsets"] == {topic: {"0": 100}}

    kafka.produce(topic, values(100, 110))
    stream.start().awaitTermination(120)
    assert stream.values() == values(0, 110)
    stream.start().awaitTermination(120)
    assert stream.values() == values(0, 110)


@pytest.mark.parametrize(("limit", "tasks"), [(9, 1), (40, 5)])
def test_a_topic_of_small_transactions_in_limited_batches_and_restarts(
    kafka: KafkaWorld, registered: SparkSession, tmp_path: Path, limit: int, tasks: int
) -> None:
    """Rows were lost where a fetch brought the end of the log and rows of the next batch; on every Spark, each once."""
    topic = kafka.topic()
    feed = TransactionalFeed(kafka.servers, topic, f"feed-{topic}", seed=limit)
    options = kafka.options(
        subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=limit, minPartitions=tasks
    )
    stream = Collected(registered, options, tmp_path / "checkpoint")
    for run in range(2):
        feed.send(Record(value, partition=0) for value in values(30 * run, 30 * (run + 1)))
        eventually(lambda: kafka.is_settled(topic, 0))
        query = stream.start(processingTime="0 seconds")
        eventually(lambda so_far=30 * (run + 1): len(stream.values()) >= so_far, within_s=120)  # type: ignore[misc]
        query.stop()
    assert stream.values() == values(0, 60)
    assert max(len(rows) for rows in stream.batches.values()) <= limit


def test_metrics_say_which_partition_waits_for_an_open_transaction_and_for_how_long(
    kafka: KafkaWorld, registered: SparkSession, tmp_path: Path
) -> None:
    """Lag was 0 while nothing moved: the driver's log alone said why."""
    topic = kafka.topic(2)
    kafka.produce(topic, values(0, 2), 1)
    stream = Collected(registered, kafka.options(subscribe=topic, startingOffsets="earliest"), tmp_path / "checkpoint")
    registered.conf.set("spark.sql.streaming.noDataProgressEventInterval", 500)
    began_ms = time.time() * 1000
    try:
        query = stream.start(processingTime="100 milliseconds")
    finally:
        registered.conf.unset("spark.sql.streaming.noDataProgressEventInterval")
    eventually(lambda: len(stream.values()) == 2, within_s=120)
    transaction = kafka.begin(topic, values(2, 5), 1)
    if SPARK_RELEASE < (4, 2):
        assert hf.metrics(query).stalls is None
    else:
        eventually(lambda: bool(hf.metrics(query).stalls), within_s=120)
        [stall] = hf.metrics(query).stalls or ()
        assert (stall.topic, stall.partition) == (topic, 1)
        assert (stall.last_stable_offset, stall.high_watermark, stall.records_waiting) == (2, 5, 3)
        assert began_ms < stall.since_ms <= time.time() * 1000
        eventually(lambda: all(one.waiting_ms > 1000 for one in hf.metrics(query).stalls or ()), within_s=60)
    transaction.commit_transaction(30)
    eventually(lambda: stream.values() == values(0, 5), within_s=60)
    if SPARK_RELEASE >= (4, 2):
        eventually(lambda: hf.metrics(query).stalls == (), within_s=60)
    query.stop()


def test_a_stream_outlives_its_broker(registered: SparkSession, tmp_path: Path) -> None:
    with KafkaBroker() as broker:
        kafka = KafkaWorld(broker)
        topic = kafka.topic(2)
        options = kafka.options(subscribe=topic, startingOffsets="earliest")
        stream = Collected(registered, options, tmp_path / "checkpoint")
        query = stream.start(processingTime="200 milliseconds")
        kafka.produce(topic, values(0, 10))
        eventually(lambda: len(stream.values()) == 10, within_s=120)
        broker.kill()
        time.sleep(2)
        broker.restart()
        kafka.produce(topic, values(10, 20), 1)
        eventually(lambda: len(stream.values()) == 20, within_s=120)
        query.stop()
    assert sorted(stream.values()) == sorted(values(0, 20))
    assert query.exception() is None


def test_lost_data_stops_a_query_with_a_clear_error(
    kafka: KafkaWorld, registered: SparkSession, tmp_path: Path
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, values(0, 10))
    options = kafka.options(subscribe=topic, startingOffsets="earliest")
    stream = Collected(registered, options, tmp_path / "checkpoint")
    stream.start().awaitTermination(120)
    kafka.delete_topic(topic)
    kafka.topic(name=topic)
    kafka.produce(topic, values(0, 20, "new"))
    with pytest.raises(Exception, match="was deleted and created again"):
        stream.start().awaitTermination(120)
    lossy = Collected(registered, {**options, "failOnDataLoss": "false"}, tmp_path / "checkpoint")
    lossy.start().awaitTermination(120)
    assert lossy.values() == values(0, 20, "new")


def test_a_topic_that_one_run_without_fail_on_data_loss_took_out_of_a_query_stays_out(
    kafka: KafkaWorld, registered: SparkSession, tmp_path: Path
) -> None:
    """Each later run with failOnDataLoss stopped, for ever, and a restore named the topic."""
    topic, other = kafka.topic(), kafka.topic()
    kafka.produce(topic, values(0, 3))
    kafka.produce(other, values(3, 6))
    options = kafka.options(subscribe=f"{topic},{other}", startingOffsets="earliest")
    both = Collected(registered, options, tmp_path / "checkpoint")
    both.start().awaitTermination(120)
    assert sorted(both.values()) == values(0, 6)
    options["subscribe"] = topic
    with pytest.raises(Exception, match=f"subscribe {topic} does not name them any more"):
        Collected(registered, options, tmp_path / "checkpoint").start().awaitTermination(120)
    lossy = Collected(registered, {**options, "failOnDataLoss": "false"}, tmp_path / "checkpoint")
    lossy.start().awaitTermination(120)
    assert lossy.values() == []
    kafka.produce(topic, values(6, 9))
    strict = Collected(registered, options, tmp_path / "checkpoint")
    strict.start().awaitTermination(120)
    assert strict.values() == values(6, 9)
    assert json.loads(hf.Restore(tmp_path / "checkpoint").kafka_offsets()) == {topic: {"0": 6}}


def test_inputs_that_are_connected_go_on_by_their_topics(
    kafka: KafkaWorld, registered: SparkSession, tmp_path: Path
) -> None:
    """The guide counted sources in the program's order: Spark has them in that of the inputs' names."""

    class Seen(hf.BatchProcessor):
        """How often a value came, from either topic."""

        seen = hf.ReducingState(pa.int64(), "sum")

        def process_views(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
            yield batch.append_column("seen", self.seen.add(batch, pa.array([1] * batch.num_rows)))

        process_clicks = process_views

    topics = {"views": kafka.topic(), "clicks": kafka.topic()}
    kafka.produce(topics["views"], values(0, 3))
    kafka.produce(topics["clicks"], values(0, 5))

    def run(name: str, starts: dict[str, str], restore: hf.Restore | None = None) -> list[tuple[bytes, int]]:
        found: list[tuple[bytes, int]] = []
        inputs = {}
        for given, topic in topics.items():
            options = kafka.options(subscribe=topic, startingOffsets=starts[given])
            inputs[given] = registered.readStream.format("holdfast-kafka").options(**options).load().select("value")
        frame = hf.connect(
            inputs, "value", Seen(), "value binary, seen long", name="seen", restore=restore, settings={"slots": 2}
        )
        writer = frame.writeStream.foreachBatch(lambda rows, _: found.extend(rows.collect()))
        checkpoint = str(tmp_path / name)
        hf.start(writer.trigger(availableNow=True), checkpoint=checkpoint).awaitTermination(120)
        return sorted((bytes(value), seen) for value, seen in found)

    run("old", {"views": "earliest", "clicks": "earliest"})
    restore = hf.Restore(tmp_path / "old")
    assert [json.loads(restore.kafka_offsets(number)) for number in (0, 1)] == [
        {topics["clicks"]: {"0": 5}},
        {topics["views"]: {"0": 3}},
    ]
    with pytest.raises(hf.InvalidRequest, match="which source of Kafka.*give topic="):
        restore.kafka_offsets()
    kafka.produce(topics["views"], values(3, 4))
    kafka.produce(topics["clicks"], values(4, 6))
    starts = {given: restore.kafka_offsets(topic=topic) for given, topic in topics.items()}
    assert run("new", starts, restore) == [(b"v3", 2), (b"v4", 2), (b"v5", 1)]


class Full(dict[int, Any]):
    """Takes no batch."""

    def __setitem__(self, key: int, value: Any) -> None:
        raise RuntimeError("nothing more fits in")


def test_batch_0_runs_again_after_its_topic_has_grown(
    kafka: KafkaWorld, registered: SparkSession, tmp_path: Path
) -> None:
    """No start came past it: the options did not name the new partition."""
    topic = kafka.topic(1)
    kafka.produce(topic, values(0, 5))
    options = kafka.options(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 2}}))
    stream = Collected(registered, options, tmp_path / "checkpoint")
    stream.batches = Full()
    with pytest.raises(Exception, match="nothing more fits in"):
        stream.start().awaitTermination(120)
    kafka.add_partitions(topic, 2)
    kafka.produce(topic, values(5, 8), 1)
    stream.batches = {}
    query = stream.start(processingTime="0 seconds")
    eventually(lambda: len(stream.values()) == 6, within_s=120)
    query.stop()
    assert stream.values() == values(2, 8)
    fresh = Collected(registered, options, tmp_path / "another checkpoint")
    with pytest.raises(Exception, match=f"Expected {topic}-0, {topic}-1, found {topic}-0"):
        fresh.start().awaitTermination(120)


def test_kill_9_and_the_replay_reads_the_same(kafka: KafkaWorld, tmp_path: Path) -> None:
    """Killed in batch 0, which starts at "latest", and in a later one; what comes meanwhile must not change them. It
    comes in transactions, amid aborted ones, so that what a batch may read is more than what is in it.
    """
    topic = kafka.topic(3)
    for partition in range(3):
        kafka.produce(topic, values(0, 50, "before"), partition)
    committed: set[tuple[int, int]] = set()

    def batches() -> list[tuple[int, list[list[int]]]]:
        return [tuple(json.loads(line)) for line in (tmp_path / "batches").read_text().splitlines()]

    def run(wait_in: int, until: Callable[[], bool]) -> None:
        with (tmp_path / f"log-{wait_in}").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, str(DRIVER), kafka.servers, topic, str(tmp_path), str(wait_in)],
                env={**os.environ, "PYTHONPATH": worker_path()},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            eventually(until, within_s=200)
            for partition in range(3 if wait_in >= 0 else 0):
                kafka.transaction(topic, values(0, 4, "aborted"), commit=False, partition=partition)
                offsets = kafka.transaction(topic, values(0, 100 + partition), commit=True, partition=partition)
                committed.update((partition, offset) for offset in offsets)
                kafka.transaction(topic, values(0, 2, "aborted"), commit=False, partition=partition)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    run(0, (tmp_path / "reached-0").exists)
    run(2, (tmp_path / "reached-2").exists)
    run(-1, lambda: {tuple(row) for _, rows in batches() for row in rows} == committed)

    attempts: dict[int, list[list[list[int]]]] = {}
    for batch_id, rows in batches():
        attempts.setdefault(batch_id, []).append(rows)
    assert len(attempts[0]) == len(attempts[2]) == 2
    assert all(rows == same[0] for same in attempts.values() for rows in same), attempts
    read = sorted(tuple(row) for same in attempts.values() for row in same[0])
    assert read == sorted(committed), "all since the first start, each once"
