"""A topic that is deleted and created again between a batch's plan and the end of its reading."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.kafka.kafka_world import KafkaWorld, Stream, values

from holdfast.errors import Corrupt, Unavailable
from holdfast.source.kafka import doubt
from holdfast.source.kafka.cluster import Cluster
from holdfast.source.kafka.consumers import ConsumerPool
from holdfast.source.kafka.reading import BATCH_ROWS, read_range


@pytest.fixture(autouse=True)
def brokers_are_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they say is true at once."""
    monkeypatch.setattr(doubt, "DOUBT_MS", 0)


def test_a_namesake_is_not_read_where_the_topic_was_planned(kafka: KafkaWorld, pool: ConsumerPool) -> None:
    """It has other rows at the same offsets: they were given, and after that the same ones once more, as its first."""
    topic = kafka.topic()
    kafka.produce(topic, values(0, 10))
    options: dict[str, Any] = {"subscribe": topic, "startingOffsets": "earliest"}
    strict, lossy = (Stream(kafka.source(failOnDataLoss=fail, **options), pool) for fail in ("true", "false"))
    planned = [stream.planner.ranges(stream.offset, stream.planner.latest(stream.offset)) for stream in (strict, lossy)]
    kafka.delete_topic(topic)
    kafka.topic(name=topic)
    kafka.produce(topic, values(0, 20, "new"))
    with pytest.raises(Corrupt, match=rf"{topic}-0 .*was deleted and created again .*failOnDataLoss"):
        strict.read(planned[0])
    assert lossy.read(planned[1]) == []


@pytest.mark.parametrize(("fails", "error"), [("true", Corrupt), ("false", Unavailable)])
def test_a_topic_that_is_created_again_while_it_is_read_ends_the_task(
    kafka: KafkaWorld, pool: ConsumerPool, fails: str, error: type[Exception]
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, values(0, BATCH_ROWS + 10))
    stream = Stream(kafka.source(subscribe=topic, startingOffsets="earliest", failOnDataLoss=fails), pool)
    (part,) = stream.planner.ranges(stream.offset, stream.planner.latest(stream.offset))
    reading = read_range(stream.options, part, pool)
    assert next(reading).num_rows
    kafka.delete_topic(topic)
    kafka.topic(name=topic)
    kafka.produce(topic, values(0, BATCH_ROWS + 10, "new"))
    with pytest.raises(error, match="was deleted and created again"):
        list(reading)
    if fails == "false":
        assert stream.read([part]) == []  # as Spark's next attempt has it


@pytest.mark.parametrize("became", ["deleted", "another"])
def test_a_replay_reads_what_is_left_in_the_tasks_that_it_had(
    kafka: KafkaWorld, pool: ConsumerPool, became: str
) -> None:
    """Of the topic that is gone its tasks are left, without rows; those behind it keep their numbers, and the cuts."""
    gone, kept = sorted([kafka.topic(), kafka.topic()])
    kafka.produce(gone, values(0, 6, "gone"))
    kafka.produce(kept, values(0, 10))
    options: dict[str, Any] = {"subscribe": f"{gone},{kept}", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    stream = Stream(kafka.source(minPartitions=5, **options), pool)
    start, logged = stream.offset, stream.planner.latest(stream.offset)
    first = [stream.read([part]) for part in stream.planner.ranges(start, logged)]
    kafka.delete_topic(gone)
    if became == "another":
        kafka.topic(name=gone)
        kafka.produce(gone, values(0, 6, "new"))
    again = stream.resume()
    replayed = [again.read([part]) for part in again.planner.ranges(start, logged)]
    assert len(first) == 5
    assert replayed == [[value for value in task if not value.startswith(b"gone")] for task in first]
    assert [value for task in replayed for value in task] == values(0, 10)


def test_a_broker_that_knows_the_topic_of_long_ago_is_asked_again(
    kafka: KafkaWorld, pool: ConsumerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, values(0, 10))
    stream = Stream(kafka.source(subscribe=topic, startingOffsets="earliest", failOnDataLoss="true"), pool)
    monkeypatch.undo()
    ranges = stream.planner.ranges(stream.offset, stream.planner.latest(stream.offset))
    truth, said = Cluster.topic_id, ["idOfLongAgo"]
    monkeypatch.setattr(Cluster, "topic_id", lambda self, name: said.pop() if said else truth(self, name))
    assert stream.read(ranges) == values(0, 10)
    assert not said
