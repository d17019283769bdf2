"""What a stream reads from batch to batch, against a real broker, Spark played by the test."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration.kafka.kafka_world import KafkaWorld, Stream, eventually, values
from tests.spark_files import SparkFiles

import holdfast as hf
from holdfast.errors import Corrupt, InvalidRequest, Unavailable
from holdfast.source.kafka import doubt
from holdfast.source.kafka.batch import plan_batch
from holdfast.source.kafka.cluster import Cluster
from holdfast.source.kafka.consumers import ConsumerPool
from holdfast.source.kafka.planner import StreamPlanner
from holdfast.testing import KafkaBroker


class StillClock:
    """Goes when a test says so."""

    ms = 0

    def now_ms(self) -> int:
        return self.ms

    def elapsed_ms(self) -> float:
        return self.ms


@pytest.fixture
def short_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks lost is asked for again for a second: ten, of which the guide speaks, are no other code."""
    monkeypatch.setattr(doubt, "DOUBT_MS", 1_000.0)


@pytest.fixture(scope="module")
def topic(kafka: KafkaWorld) -> str:
    """As :func:`stamped` makes it; nothing is written to it any more, and nothing deleted."""
    return stamped(kafka)


def stamped(kafka: KafkaWorld) -> str:
    """Two partitions with ten records each, stamped 1000, 2000, … 10000."""
    name = kafka.topic(2)
    for partition in (0, 1):
        for at in range(10):
            kafka.produce(name, [f"{partition}/{at}".encode()], partition, timestamp_ms=1000 * (at + 1))
    return name


def starts_at(kafka: KafkaWorld, **options: Any) -> dict[str, int]:
    options = {"failOnDataLoss": "true", **options}
    source = kafka.source(**options)
    (offsets,) = StreamPlanner(source, Cluster(source)).initial()["offsets"].values()
    return offsets


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("startingOffsets", "earliest", [0, 0]),
        ("startingOffsets", "latest", [10, 10]),
        ("startingOffsets", {"0": 3, "1": -2}, [3, 0]),
        ("startingOffsets", {"0": -1, "1": 5}, [10, 5]),
        ("startingTimestamp", "4000", [3, 3]),
        ("startingTimestamp", "4001", [4, 4]),
        ("startingOffsetsByTimestamp", {"0": 1, "1": 10_000}, [0, 9]),
    ],
)
def test_starts(kafka: KafkaWorld, topic: str, option: str, value: object, expected: list[int]) -> None:
    text = json.dumps({topic: value}) if isinstance(value, dict) else value
    assert starts_at(kafka, subscribe=topic, **{option: text}) == {"0": expected[0], "1": expected[1]}


def test_without_a_word_a_stream_starts_at_the_latest_and_a_batch_at_the_earliest(
    kafka: KafkaWorld, topic: str
) -> None:
    assert starts_at(kafka, subscribe=topic) == {"0": 10, "1": 10}
    batch = kafka.source(streaming=False, subscribe=topic)
    assert [(part.start, part.end) for part in plan_batch(batch, Cluster(batch))] == [(0, 10), (0, 10)]


def test_a_timestamp_after_the_last_record(kafka: KafkaWorld, topic: str) -> None:
    with pytest.raises(InvalidRequest, match=r"No record at or after .*startingOffsetsByTimestampStrategy"):
        starts_at(kafka, subscribe=topic, startingTimestamp=99_000)
    latest = starts_at(kafka, subscribe=topic, startingTimestamp=99_000, startingOffsetsByTimestampStrategy="latest")
    assert latest == {"0": 10, "1": 10}


def test_a_restore_goes_on_with_topics_that_have_grown_since(
    kafka: KafkaWorld, pool: ConsumerPool, tmp_path: Path
) -> None:
    topic = kafka.topic(1)
    kafka.produce(topic, values(0, 5), 0)
    SparkFiles(tmp_path, "5c2e3f6a-0000-4000-8000-00000000000a").commit(0, [])
    planned = (tmp_path / "offsets" / "0").read_text().split("\n")
    (tmp_path / "offsets" / "0").write_text("\n".join([*planned[:2], json.dumps({topic: {"0": 3}})]))
    kafka.add_partitions(topic, 2)
    kafka.produce(topic, values(5, 8), 1)
    restore = hf.Restore(tmp_path)
    with pytest.raises(InvalidRequest, match=r"restore.kafka_offsets\(options=…\) names them too"):
        starts_at(kafka, subscribe=topic, startingOffsets=restore.kafka_offsets())
    options = kafka.options(subscribe=topic, startingOffsets="latest")
    offsets = restore.kafka_offsets(options=options)
    assert json.loads(offsets) == {topic: {"0": 3, "1": -2}}  # as Spark's connector reads it too
    stream = Stream(kafka.source(subscribe=topic, startingOffsets=offsets), pool)
    assert sorted(stream.batch()) == values(3, 8)


def test_offsets_must_name_all_partitions(kafka: KafkaWorld, topic: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"Expected {topic}-0, {topic}-1, found {topic}-1"):
        starts_at(kafka, subscribe=topic, startingOffsets=json.dumps({topic: {"1": 3}}))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"endingOffsets": {"0": 4, "1": -1}}, [(0, 4), (0, 10)]),
        ({"endingTimestamp": "4000"}, [(0, 3), (0, 3)]),
        ({"endingTimestamp": "99000"}, [(0, 10), (0, 10)]),
        ({"endingOffsetsByTimestamp": {"0": 2000, "1": 99_000}}, [(0, 1), (0, 10)]),
        ({"startingOffsets": {"0": 2, "1": 9}, "endingOffsets": {"0": 2, "1": 10}}, [(9, 10)]),
        ({"minPartitions": "5"}, [(0, 2), (2, 5), (5, 10), (0, 5), (5, 10)]),
        ({"maxRecordsPerPartition": "5"}, [(0, 5), (5, 10), (0, 5), (5, 10)]),
    ],
)
def test_batch_reads(
    kafka: KafkaWorld, topic: str, options: dict[str, object], expected: list[tuple[int, int]]
) -> None:
    texts = {name: json.dumps({topic: value}) if isinstance(value, dict) else value for name, value in options.items()}
    source = kafka.source(streaming=False, subscribe=topic, **texts)
    found = [(part.start, part.end) for part in plan_batch(source, Cluster(source))]
    assert found == expected


def test_a_batch_read_of_what_retention_took(kafka: KafkaWorld) -> None:
    topic = stamped(kafka)
    kafka.delete_before(topic, 5)
    options = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 2, "1": 2}})}
    source = kafka.source(streaming=False, **options)
    with pytest.raises(Corrupt, match=rf"{topic}-0: startingOffsets has 2, but the partition starts at 5"):
        plan_batch(source, Cluster(source))
    lossy = kafka.source(streaming=False, failOnDataLoss="false", **options)
    assert [part.start for part in plan_batch(lossy, Cluster(lossy))] == [5, 2]


@pytest.mark.usefixtures("short_doubt")
def test_what_does_not_exist_is_named(kafka: KafkaWorld, topic: str) -> None:
    with pytest.raises(InvalidRequest, match=r"subscribe nosuch, .*: nosuch does not exist at 127.0.0.1"):
        starts_at(kafka, subscribe=f"nosuch,{topic}")
    with pytest.raises(InvalidRequest, match=rf"{topic}-7 does not exist"):
        starts_at(kafka, assign=json.dumps({topic: [0, 7]}))


def test_no_broker_is_an_error_that_names_it(kafka: KafkaWorld) -> None:
    nowhere: dict[str, Any] = {"kafka.bootstrap.servers": "127.0.0.1:1"}
    options = kafka.source(subscribe="t", **nowhere)
    with pytest.raises(Unavailable, match=r"Kafka at 127.0.0.1:1 did not say the partitions of subscribe t"):
        Cluster(options, answer_within_ms=1500).topics()


def test_assign_reads_only_those(kafka: KafkaWorld, topic: str, pool: ConsumerPool) -> None:
    stream = Stream(kafka.source(assign=json.dumps({topic: [1]}), startingOffsets="earliest"), pool)
    assert stream.batch() == [f"1/{at}".encode() for at in range(10)]


def test_limits_hold_and_no_partition_starves(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    topic = kafka.topic(3)
    kafka.produce(topic, values(0, 900), 0)
    kafka.produce(topic, values(0, 99), 1)
    kafka.produce(topic, [b"one"], 2)
    stream = Stream(kafka.source(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=100), pool)
    sizes = []
    while batch := stream.batch():
        sizes.append(len(batch))
        assert b"one" in batch or len(sizes) > 1
    assert sum(sizes) == 1000
    assert max(sizes) <= 102


def test_few_records_wait_for_more_or_for_the_delay(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    topic = kafka.topic()
    kafka.produce(topic, values(0, 5))
    stream = Stream(
        kafka.source(subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger=50, maxTriggerDelay="1500 ms"),
        pool,
    )
    clock = StillClock()
    stream.planner = StreamPlanner(stream.options, Cluster(stream.options), clock)
    assert len(stream.batch()) == 5, "the first batch does not wait"
    kafka.produce(topic, values(0, 49))
    assert stream.batch() == []
    kafka.produce(topic, values(49, 50))
    assert len(stream.batch()) == 50
    kafka.produce(topic, [b"late"])
    assert stream.batch() == []
    clock.ms += 1500
    assert stream.batch() == [b"late"]


def test_latest_means_when_the_query_first_started_also_on_a_replay(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [b"before"])
    stream = Stream(kafka.source(subscribe=topic), pool)
    kafka.produce(topic, values(0, 10))
    start = stream.offset
    logged = stream.planner.latest(start)
    kafka.produce(topic, values(10, 20))
    # Killed after Spark logged batch 0 and before it ran: Spark asks the new process for the start once more.
    again = stream.resume()
    fresh = again.planner.initial()
    assert fresh["offsets"] == {topic: {"0": 21}}
    assert again.read(again.planner.ranges(fresh, logged)) == values(0, 10)
    again.offset = logged
    assert again.batch() == values(10, 20)


def test_an_empty_first_batch_keeps_the_start(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    topic = kafka.topic()
    stream = Stream(kafka.source(subscribe=topic), pool)
    assert stream.batch() == []
    kafka.produce(topic, values(0, 3))
    assert stream.resume().batch() == values(0, 3)


def test_partitions_added_while_running(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    topic = kafka.topic(1)
    stream = Stream(kafka.source(subscribe=topic), pool)
    stream.batch()
    kafka.add_partitions(topic, 3)
    kafka.produce(topic, [b"new"], 2)
    kafka.produce(topic, [b"old"], 0)
    start = stream.offset
    eventually(lambda: stream.planner.latest(start)["offsets"][topic].get("2") == 1)
    assert sorted(stream.batch()) == [b"new", b"old"]
    assert stream.offset["starts"] == {topic: {"0": 0, "1": 0, "2": 0}}
    kafka.produce(topic, [b"more"], 2)
    assert stream.resume().batch() == [b"more"]


@pytest.mark.usefixtures("short_doubt")
def test_topics_that_match_a_pattern_come_and_are_read_from_their_start(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    stream = Stream(kafka.source(subscribePattern=r"late-\d+"), pool)
    assert stream.batch() == []
    kafka.topic(name="late-1")
    kafka.topic(name="late-no")
    kafka.produce("late-1", values(0, 3))
    kafka.produce("late-no", [b"no"])
    assert stream.batch() == values(0, 3)


def test_a_pattern_leaves_out_what_the_brokers_call_internal_and_nothing_else(
    kafka: KafkaWorld, pool: ConsumerPool
) -> None:
    """As Kafka's own consumer: a topic whose name only begins as theirs do was never read."""
    kafka.group_offset("some-group", kafka.topic())  # makes __consumer_offsets
    topic = kafka.topic(name=f"__changes-{kafka.topic()}")
    kafka.produce(topic, values(0, 3))
    found = Cluster(kafka.source(subscribePattern="__.*")).topics().partitions
    assert (topic, 0) in found
    assert not {name for name, _ in found} & {"__consumer_offsets", "__transaction_state"}
    stream = Stream(kafka.source(subscribePattern=r"__changes-.*", startingOffsets="earliest"), pool)
    assert stream.batch() == values(0, 3)
    named = Cluster(kafka.source(subscribe="__consumer_offsets")).topics().partitions
    assert named, "whoever names it gets it"


def test_an_open_transaction_that_holds_a_stream_back_is_said(
    kafka: KafkaWorld, pool: ConsumerPool, caplog: pytest.LogCaptureFixture
) -> None:
    """All figures said that the stream was at the end of the log."""
    topic = kafka.topic(2)
    kafka.produce(topic, values(0, 2))
    options = kafka.source(subscribe=topic, startingOffsets="earliest")
    stream = Stream(options, pool)
    clock = StillClock()
    stream.planner = StreamPlanner(options, Cluster(options), clock)
    transaction = kafka.begin(topic, values(2, 5))
    read: list[bytes] = []
    with caplog.at_level(logging.WARNING, "holdfast.kafka"):
        for _ in range(9):
            read += stream.batch()
            clock.ms += 6_000
        assert read == values(0, 2)
        waiting = stream.planner.newest()["waiting"]
        assert {place: (one["high_watermark"], one["waiting_ms"]) for place, one in waiting.items()} == {
            f"{topic}-0": (5, 48_000)
        }
        [warning] = caplog.messages
        assert f"{topic}-0 has waited for 30 s at offset 2, its last stable offset; its high watermark is 5" in warning
        transaction.commit_transaction(30)
        eventually(lambda: kafka.end_of(topic) == 6)
        assert stream.batch() == values(2, 5)
    assert f"{topic}-0 goes on at offset 2" in caplog.messages[-1]
    assert stream.planner.newest()["waiting"] == {}


def topic_that_was_read_and_deleted(kafka: KafkaWorld, pool: ConsumerPool) -> tuple[str, Stream, Stream]:
    """Its name, and two streams that have read it: one that stops at a loss, and one that goes on."""
    topic = kafka.topic()
    kafka.produce(topic, values(0, 10))
    strict = Stream(kafka.source(subscribe=topic, startingOffsets="earliest"), pool)
    lossy = Stream(kafka.source(subscribe=topic, startingOffsets="earliest", failOnDataLoss="false"), pool)
    assert strict.batch() == lossy.batch() == values(0, 10)
    kafka.delete_topic(topic)
    return topic, strict, lossy


@pytest.mark.usefixtures("short_doubt")
def test_a_topic_that_was_created_again(
    kafka: KafkaWorld, pool: ConsumerPool, caplog: pytest.LogCaptureFixture
) -> None:
    topic, strict, lossy = topic_that_was_read_and_deleted(kafka, pool)
    with pytest.raises(Corrupt, match=rf"{topic}-0 do not exist any more"):
        strict.batch()
    kafka.topic(name=topic)
    # More than before: by its offsets alone, the new topic could not be told from the old one.
    kafka.produce(topic, values(0, 15, "new"))
    with pytest.raises(Corrupt, match=rf"Topic {topic} was deleted and created again .*failOnDataLoss"):
        strict.batch()
    with caplog.at_level(logging.WARNING, "holdfast.kafka"):
        read: list[bytes] = []

        def is_read() -> bool:
            read.extend(lossy.batch())
            return bool(read)

        eventually(is_read)  # its client may still know the old topic
    assert read == values(0, 15, "new")
    assert "was deleted and created again" in caplog.text
    kafka.produce(topic, [b"more"])
    assert lossy.batch() == [b"more"]


@pytest.mark.usefixtures("short_doubt")
def test_a_replay_does_not_take_a_namesake_for_the_topic(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    topic = kafka.topic()
    kafka.produce(topic, values(0, 10))
    stream = Stream(kafka.source(subscribe=topic, startingOffsets="earliest"), pool)
    start = stream.offset
    logged = stream.planner.latest(start)
    kafka.delete_topic(topic)
    kafka.topic(name=topic)
    kafka.produce(topic, values(0, 10, "other"))
    with pytest.raises(Corrupt, match=r"is to be read again, but the topic was deleted and created again"):
        stream.resume().planner.ranges(start, logged)


def test_retention_overtakes_a_stream(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    topic = kafka.topic()
    kafka.produce(topic, values(0, 10))
    options: dict[str, Any] = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 5}
    strict, lossy = (Stream(kafka.source(failOnDataLoss=fail, **options), pool) for fail in ("true", "false"))
    assert strict.batch() == lossy.batch() == values(0, 5)
    kafka.delete_before(topic, 8)
    pool.clear()  # else the consumers have it already
    with pytest.raises(Corrupt, match=r"Retention or a truncation overtook the query"):
        strict.batch()
    assert lossy.batch() == values(8, 10)


def test_an_open_transaction_holds_readers_back(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [b"before"])
    stream = Stream(kafka.source(subscribe=topic, startingOffsets="earliest"), pool)
    transaction = kafka.begin(topic, [b"inside"])
    kafka.produce(topic, [b"after"])
    assert stream.batch() == [b"before"]
    assert stream.batch() == []
    transaction.commit_transaction(30)
    eventually(lambda: kafka.end_of(topic) == 4)
    assert stream.batch() == [b"inside", b"after"]
    assert stream.batch() == []


def test_lag_tools_see_the_query(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    topic = kafka.topic()
    kafka.produce(topic, values(0, 7))
    mine: dict[str, Any] = {"kafka.group.id": "mine"}
    named = Stream(kafka.source(subscribe=topic, startingOffsets="earliest", **mine), pool)
    unnamed = Stream(kafka.source(subscribe=topic, startingOffsets="earliest", groupIdPrefix="app"), pool)
    silent = Stream(kafka.source(subscribe=topic, startingOffsets="earliest", commitGroupOffsets="false"), pool)

    for stream in (named, unnamed, silent):
        assert len(stream.batch()) == 7
        assert stream.batch() == []
    # A query asks for more again and again, and says what was not heard once more.
    eventually(lambda: named.batch() == [] and kafka.group_offset("mine", topic) == 7)
    eventually(lambda: unnamed.batch() == [] and kafka.group_offset(f"app-{unnamed.offset['source']}", topic) == 7)
    groups = [group.group_id for group in kafka.admin.list_consumer_groups().result(120).valid]
    assert not any(str(silent.offset["source"]) in group for group in groups)
    # What is committed there is for eyes only: the stream goes on where its own offset is, whoever moves the group.
    moved = ConsumerGroupTopicPartitions("mine", [TopicPartition(topic, 0, 2)])
    kafka.admin.alter_consumer_group_offsets([moved])["mine"].result(120)
    kafka.produce(topic, [b"more"])
    resumed = named.resume()
    assert resumed.batch() == [b"more"]
    assert resumed.batch() == []
    eventually(lambda: resumed.batch() == [] and kafka.group_offset("mine", topic) == 8)


def test_lag_tools_see_what_is_in_a_checkpoint_and_not_what_is_planned(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    """A batch that is killed must not be seen as done."""

    topic = kafka.topic()
    kafka.produce(topic, values(0, 10))
    group = f"group-of-{topic}"
    named: dict[str, Any] = {"kafka.group.id": group}
    options = kafka.source(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=4, **named)

    def shown(stream: Stream, offset: int) -> bool:
        """Each question says it anew: what a coordinator that is just being found refuses is not lost."""
        stream.planner.latest(stream.offset)
        return kafka.group_offset(group, topic) == offset

    stream = Stream(options, pool)
    assert stream.batch() == values(0, 4)
    # Spark asks for the end of the next batch only after the one before is in its log of commits.
    end = stream.planner.latest(stream.offset)
    assert stream.read(stream.planner.ranges(stream.offset, end)) == values(4, 8)
    eventually(lambda: shown(stream, 4))
    replayed = stream.resume()
    assert replayed.batch() == values(4, 8)
    eventually(lambda: shown(replayed, 8))


def test_the_end_can_be_fixed(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    topic = kafka.topic()
    kafka.produce(topic, values(0, 10))
    stream = Stream(
        kafka.source(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=4, minOffsetsPerTrigger=4), pool
    )
    stream.planner.fix_end()
    kafka.produce(topic, values(10, 20))
    assert [len(stream.batch()) for _ in range(4)] == [4, 4, 2, 0]


def test_without_a_start_the_plan_goes_on_from_its_last_batch(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    """Spark 4.0 and 4.1 do not say where a batch starts."""
    topic = kafka.topic()
    kafka.produce(topic, values(0, 10))
    stream = Stream(kafka.source(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=6), pool)
    start, read = stream.offset, []
    for _ in range(3):
        end = stream.planner.latest(None)
        read.append(stream.read(stream.planner.ranges(start, end)))
        start = end
    assert read == [values(0, 6), values(6, 10), []]


def restarted(stream: Stream, end: dict[str, Any]) -> Stream:
    """As Spark 4.0 and 4.1 start a query again: the newest offset of the log, twice, is all they say of the past."""
    again = stream.resume()
    again.offset = end
    assert again.planner.ranges(end, end) == []
    return again


def test_without_a_start_limits_hold_for_the_first_batch_after_a_restart(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    """It took all there was: more than could be committed within the time of a transaction, for ever."""
    topic = kafka.topic()
    kafka.produce(topic, values(0, 10))
    stream = Stream(kafka.source(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=6), pool)
    start = stream.offset
    end = stream.planner.latest(None)
    assert stream.read(stream.planner.ranges(start, end)) == values(0, 6)
    kafka.produce(topic, values(10, 30))
    read = []
    for _ in range(5):
        again = restarted(stream, end)
        start, end = end, again.planner.latest(None)
        read.append(again.read(again.planner.ranges(start, end)))
    assert read == [values(6, 12), values(12, 18), values(18, 24), values(24, 30), []]
    # Partitions that came meanwhile are read from their start, and the group keeps its name.
    kafka.add_partitions(topic, 2)
    kafka.produce(topic, values(0, 7), 1)
    again = restarted(stream, end)
    start, end = end, again.planner.latest(None)
    assert again.read(again.planner.ranges(start, end)) == values(0, 6)
    assert end["source"] == stream.offset["source"]


def test_without_a_start_limits_hold_for_the_first_batch_of_all(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    """Spark 4.0 and 4.1 ask how far to go before they ask where to start."""
    topic = kafka.topic()
    kafka.produce(topic, values(0, 10))
    stream = Stream(kafka.source(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=6), pool)
    new = stream.resume()
    end = new.planner.latest(None)
    start = new.planner.initial()
    assert new.read(new.planner.ranges(start, end)) == values(0, 6)


def test_without_a_start_latest_is_settled_once(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    """Records that came between the two questions were behind the end, and in front of the start."""
    topic = kafka.topic()
    kafka.produce(topic, values(0, 10))
    new = Stream(kafka.source(subscribe=topic), pool).resume()
    end = new.planner.latest(None)
    kafka.produce(topic, values(10, 15))
    start = new.planner.initial()
    assert new.read(new.planner.ranges(start, end)) == []
    new.offset = end
    assert new.batch() == values(10, 15)


def test_an_offset_that_was_planned_without_its_start_is_read_for_ever(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    """The first Holdfast planned so after a restart on Spark 4.0 and 4.1: all there is, and no source's name."""
    topic = kafka.topic()
    kafka.produce(topic, values(0, 10))
    stream = Stream(kafka.source(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=6), pool)
    start = stream.offset
    end = stream.planner.latest(None)
    assert len(stream.read(stream.planner.ranges(start, end))) == 6
    logged = {**stream.planner.newest()}
    assert "source" not in logged
    kafka.produce(topic, values(10, 13))
    again = restarted(stream, logged)
    assert again.read(again.planner.ranges(end, logged)) == values(6, 10)
    later = again.planner.latest(None)
    assert again.read(again.planner.ranges(logged, later)) == values(10, 13)
    assert later["source"] == stream.offset["source"]


@pytest.mark.usefixtures("short_doubt")
def test_without_a_start_what_was_lost_while_the_query_was_away_is_found_all_the_same(
    kafka: KafkaWorld, pool: ConsumerPool
) -> None:
    topic, strict, lossy = topic_that_was_read_and_deleted(kafka, pool)
    kafka.topic(name=topic)
    kafka.produce(topic, values(0, 20, "new"))
    again = restarted(strict, strict.offset)
    eventually(lambda: again.planner.newest()["offsets"] == {topic: {"0": 20}})
    with pytest.raises(Corrupt, match=rf"Topic {topic} was deleted and created again .*failOnDataLoss"):
        again.planner.latest(None)
    again = restarted(lossy, lossy.offset)
    end = again.planner.latest(None)
    for _ in range(2):  # a replay reads the same
        assert again.read(again.planner.ranges(again.offset, end)) == values(0, 20, "new")


_COMMITS_AND_ENDS = """
import gc, sys
from holdfast.source.kafka.options import SourceOptions
from holdfast.source.kafka.stream import stream_reader
reader = stream_reader(SourceOptions.parse({"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2]}, True))
start = reader.planner.initial()
reader.commit(start)
if sys.argv[3] == "stop":
    reader.stop()
del reader
gc.collect()
"""


@pytest.mark.parametrize("end", ["stop", "let go"])
def test_a_query_that_told_lag_tools_is_gone_at_once_though_nobody_answered(kafka: KafkaWorld, end: str) -> None:
    """A process that forgot a planner whose last word was on its way worked for 45 s, with two cores, on nothing."""
    topic = kafka.topic()
    command = [sys.executable, "-c", _COMMITS_AND_ENDS, kafka.servers, topic, end]
    program = subprocess.Popen(command)
    _, status, used = os.wait4(program.pid, 0)
    program.returncode = os.waitstatus_to_exitcode(status)
    assert program.returncode == 0
    assert used.ru_utime < 20  # processor time of this one child, of which imports take one or two


@pytest.mark.slow
def test_a_coordinator_that_goes_away_while_lag_tools_are_told_harms_nothing() -> None:
    """librdkafka's admin client would abort the whole process: an assertion in rd_kafka_enq_once_del_source_return."""

    with KafkaBroker() as broker:
        world = KafkaWorld(broker)
        topic = world.topic()
        cluster = Cluster(world.source(subscribe=topic))
        cluster.commit_group("mine", {(topic, 0): 1})
        for offset in range(2, 5):
            broker.kill()
            cluster.commit_group("mine", {(topic, 0): offset})
            time.sleep(11)  # longer than such a question is waited for
            broker.start()
        cluster.commit_group("mine", {(topic, 0): 9})
        eventually(lambda: world.group_offset("mine", topic) == 9)
