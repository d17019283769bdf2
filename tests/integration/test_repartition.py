"""A checkpoint whose state Spark has repartitioned goes on in place: more tasks, or fewer, for the slots it has."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from tests.integration.test_exactly_once import Output
from tests.integration.test_rescale import Streams, expected, some, told, totals
from tests.kafka_reading import read_committed
from tests.processors import Remembers
from tests.repartitioned import ROCKSDB, needs_repartitioning, repartition
from tests.silence_oracle import START, silent_users
from tests.timer_processors import ALERTS, SilentUsers
from tests.timer_processors import EVENTS as TIMED

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from tests.integration.kafka.kafka_world import KafkaWorld
    from tests.streams import FileStream

pytestmark = [pytest.mark.spark, needs_repartitioning]
SLOTS = 8


@pytest.fixture(autouse=True)
def by_rocksdb(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)


def visible(output: Output) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in output.rows().to_pylist())


def tasks_of_slots(spark: SparkSession, stream: FileStream) -> list[int]:
    """How many slots each of Spark's partitions has now, ascending."""
    state = spark.read.format("statestore").load(str(stream.checkpoint))
    return sorted(Counter(row["partition_id"] for row in state.select("partition_id").collect()).values())


def remembered(batches: list[pa.Table]) -> list[tuple[str, int, int]]:
    """What `Remembers` gives: a row for each user of a batch, of all amounts so far in their order."""
    amounts: dict[str, list[int]] = defaultdict(list)
    found = []
    for batch in batches:
        for row in batch.to_pylist():
            amounts[row["user"]].append(row["amount"])
        for user in set(batch["user"].to_pylist()):
            weighed = sum(place * amount for place, amount in enumerate(amounts[user]))
            found.append((user, sum(amounts[user]), weighed))
    return sorted(found)


@pytest.mark.parametrize("changelogs", [pytest.param("true", marks=pytest.mark.slow), "false"])
def test_repartitioned_2_4_3_1_gives_the_rows_of_a_query_that_never_was(
    streams: Streams, spark: SparkSession, tmp_path: Path, changelogs: str
) -> None:
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", changelogs)
    batches = some(21, 8)
    moved = Output(streams("moved"), tmp_path / "moved")
    for number, partitions in enumerate((2, 4, 3, 1)):
        if number:
            repartition(spark, moved.stream.checkpoint, partitions)
        moved.stream.write(*batches[2 * number : 2 * number + 2])
        given = {"slots": SLOTS} if number % 2 == 0 else {}  # left out, it follows the record
        moved.run(moved.stream.events().transform(totals(processor=Remembers(), settings=given)))
        shares = [SLOTS // partitions + (part < SLOTS % partitions) for part in range(partitions)]
        assert tasks_of_slots(spark, moved.stream) == sorted(shares)
    assert visible(moved) == remembered(batches)
    assert moved.rows().num_rows > 100
    assert [record.partitions for record in moved.records()] == [2, 2, 4, 4, 3, 3, 1, 1]
    assert [record.batch_id for record in moved.records()] == [0, 1, 3, 4, 6, 7, 9, 10]


def test_rows_in_kafka_are_there_once_over_repartitions(
    streams: Streams, spark: SparkSession, kafka: KafkaWorld
) -> None:
    """More tasks have transactional ids of their own, fewer leave some behind; each second batch is replayed."""
    batches, topic = some(25, 6), kafka.topic(partitions=2)
    output = Output(streams("moved"), Path("unused"))
    sink = hf.KafkaSink(kafka.servers, topic)

    def run() -> None:
        rows = output.stream.events().transform(totals(SLOTS))
        output.run(rows.selectExpr("user AS key", "to_json(struct(*)) AS value"), sink)

    for number, partitions in enumerate((2, 4, 1)):
        if number:
            repartition(spark, output.stream.checkpoint, partitions)
        for batch in batches[2 * number : 2 * number + 2]:
            output.stream.write(batch)
            run()
        output.stream.roll_back(1)
        run()
    found = [json.loads(value) for value in read_committed(kafka.servers, topic)]
    rows = sorted((row["user"], row["amount"], row["total"]) for row in found)
    assert rows == sorted(row for batch in expected(batches) for row in batch)


def test_timers_and_the_watermark_go_on(streams: Streams, spark: SparkSession) -> None:
    def silent() -> Callable[[DataFrame], DataFrame]:
        given: dict[str, Any] = {"watermark": ("ts", "0 seconds"), "ticks": "never", "settings": {"slots": SLOTS}}
        return hf.keyed("user", SilentUsers(), ALERTS, name="silent", **given)

    crowd = [(f"user{number}", START + timedelta(seconds=number)) for number in range(20)]
    hours = [[("user0", START + timedelta(hours=later))] for later in (2, 4, 5)]
    tables = [pa.Table.from_arrays([*map(pa.array, zip(*rows))], schema=TIMED) for rows in [crowd, *hours]]
    stream, rows = streams("moved"), []
    for number, table in enumerate(tables):
        if number in (1, 3):
            repartition(spark, stream.checkpoint, 2 + number)
        stream.write(table)
        rows += [row for batch in told(stream.run(silent())) for row in batch]
    due = silent_users([crowd, *hours])
    # But for the batch: two of them are Spark's own.
    assert sorted((user, *other) for user, _, *other in rows) == sorted((user, *other) for user, _, *other in due)
    assert len(rows) > 40


def test_a_replay_after_a_repartition_takes_over_what_is_visible(
    streams: Streams, spark: SparkSession, tmp_path: Path
) -> None:
    """The first batch after it was killed between its record and Spark's commit."""
    batches = some(22, 3)
    output = Output(streams("moved"), tmp_path / "moved")
    output.stream.write(batches[0])
    output.run(output.stream.events().transform(totals(SLOTS)))
    repartition(spark, output.stream.checkpoint, 3)
    output.stream.write(batches[1])
    output.run(output.stream.events().transform(totals(SLOTS)))
    assert output.stream.committed() == [0, 1, 2]
    output.stream.roll_back(1)
    output.stream.write(batches[2])
    output.run(output.stream.events().transform(totals(SLOTS)))
    assert visible(output) == sorted(row for batch in expected(batches) for row in batch)
    assert [record.epoch for record in output.records()] == [1, 2, 3]


def test_another_number_of_slots_is_refused_and_begins_in_a_new_checkpoint(
    streams: Streams, spark: SparkSession, tmp_path: Path
) -> None:
    batches = some(23, 4)
    old, new = streams("old"), streams("new")
    old.write(*batches[:2])
    found = told(old.run(totals(2)))
    repartition(spark, old.checkpoint, 3)
    old.write(batches[2])
    with pytest.raises(Exception, match=r"slots: recorded 2, declared 3 \(.*restore=, docs/guide/rescale.md"):
        old.run(totals(3))
    found += told(old.run(totals(2)))
    with hf.Checkpoint(old.checkpoint, state=tmp_path / "state", spark=spark) as checkpoint:
        for batch_id in (1, 2, 3):  # 2 is Spark's
            assert sorted(checkpoint.at(batch_id).handles["totals"]) == [0, 1]
    repartition(spark, old.checkpoint, 2)  # the newest batch is Spark's
    new.write(batches[3])
    found += told(new.run(totals(3, restore=hf.Restore(old.checkpoint))))
    assert found == expected(batches)


def test_a_repartition_that_did_not_end_stops_the_query_until_it_is_done_again(
    stream: FileStream, spark: SparkSession
) -> None:
    batches = some(24, 2)
    stream.write(batches[0])
    found = told(stream.run(totals(SLOTS)))
    repartition(spark, stream.checkpoint, 4)
    stream.roll_back(1)  # it was killed before Spark's commit
    stream.write(batches[1])
    with pytest.raises(Exception, match=r"STREAMING_UNFINISHED_REPARTITION_DETECTED[\s\S]*retry the repartitioning"):
        stream.run(totals(SLOTS))
    repartition(spark, stream.checkpoint, 4)
    found += told(stream.run(totals(SLOTS)))
    assert found == expected(batches)


def numbers(spark: SparkSession) -> DataFrame:
    """Twenty a batch. Unlike a source of files this one reads again what it is asked for."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).option("numPartitions", 1)
    return source.load().selectExpr("CAST(value % 7 AS STRING) AS user", "value AS amount").transform(totals(SLOTS))


def check_numbers(rows: list[tuple[Any, ...]]) -> None:
    """Each once, from 0 on, with the sum of those of its key so far."""
    found = {int(amount): (str(user), int(total)) for user, amount, total in rows}
    assert sorted(int(row[1]) for row in rows) == list(range(len(rows)))
    for key in range(7):
        own = np.arange(key, len(rows), 7)
        assert [found[amount] for amount in own.tolist()] == [(str(key), total) for total in np.cumsum(own).tolist()]


def take_back(checkpoint: Path, *names: str) -> None:
    for name in names:
        path = checkpoint / name
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def test_a_repartition_in_place_of_batches_that_were_rolled_back(streams: Streams, spark: SparkSession) -> None:
    """They left changelogs, of the partitions that were: what Spark wrote as it repartitioned counts."""
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    stream = streams("moved")

    def run() -> None:
        def keep(batch: DataFrame, batch_id: int) -> None:
            stream.output[batch_id] = batch.toArrow()

        writer = numbers(spark).writeStream.foreachBatch(keep).trigger(availableNow=True)
        hf.start(writer, checkpoint=stream.checkpoint).awaitTermination()

    for _ in range(4):
        run()
    take_back(stream.checkpoint, "commits/3", "offsets/3")
    repartition(spark, stream.checkpoint, 3)
    for _ in range(3):
        run()
    assert stream.committed() == [0, 1, 2, 3, 4, 5, 6]
    assert [path.name for path in sorted(stream.checkpoint.glob("state/0/0/4.*"))] == ["4.changelog", "4.zip"]
    kept = [stream.output[batch_id] for batch_id in (0, 1, 2, 4, 5, 6)]
    check_numbers([row for batch in told(kept) for row in batch])


def test_a_visible_batch_that_was_rolled_back_for_a_repartition_is_not_written_twice(
    streams: Streams, spark: SparkSession, tmp_path: Path
) -> None:
    output = Output(streams("moved"), tmp_path / "moved")
    for _ in range(2):
        output.run(numbers(spark))
    take_back(output.stream.checkpoint, "commits/1", "offsets/1")
    repartition(spark, output.stream.checkpoint, 3)
    before = visible(output)
    with pytest.raises(hf.Incompatible, match="batch 1 is visible.*was rolled back, and its state repartitioned"):
        output.run(numbers(spark))
    assert visible(output) == before


def test_a_visible_batch_that_a_repartition_gave_up_is_not_written_twice(
    streams: Streams, spark: SparkSession, tmp_path: Path
) -> None:
    """Spark warns of it, and does it where it is told to: what the batch has read is read again by the next one."""
    output = Output(streams("moved"), tmp_path / "moved")
    checkpoint = output.stream.checkpoint

    for _ in range(2):
        output.run(numbers(spark))
    output.stream.roll_back(1)  # it was killed between its record and Spark's commit
    with pytest.raises(Exception, match="LAST_BATCH_FAILED"):
        repartition(spark, checkpoint, 3)
    repartition(spark, checkpoint, 3, enforce_exactly_once_sink=False)
    before = visible(output)
    for _ in range(2):  # a second start says it too
        with pytest.raises(hf.Incompatible, match="batch 1 is visible.*delete commits/1 and later.*each 3.zip below"):
            output.run(numbers(spark))
    assert visible(output) == before
    with pytest.raises(hf.Incompatible, match="Spark has given that batch up"):
        hf.Restore(checkpoint).kafka_offsets()

    snapshots = [str(path.relative_to(checkpoint)) for path in checkpoint.glob("state/*/*/3.zip")]
    assert len(snapshots) == 3
    take_back(checkpoint, "commits/1", "commits/2", "offsets/2", "offsets/3", *snapshots)
    output.run(numbers(spark))
    repartition(spark, checkpoint, 3)
    output.run(numbers(spark))
    check_numbers(visible(output))
    assert output.rows().num_rows >= 60
