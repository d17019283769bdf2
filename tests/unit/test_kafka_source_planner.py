"""What the planner makes of answers that prove less than they seem to: a partition left out, an end that went back.

Against brokers: tests/integration/kafka/test_kafka_plans.py. Here the brokers say what is rare.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.errors import Corrupt
from holdfast.source.kafka.cluster import Topics
from holdfast.source.kafka.options import SourceOptions
from holdfast.source.kafka.planner import StreamPlanner
from holdfast.source.kafka.subscription import Partition

A, B = ("t", 0), ("t", 1)


class Brokers:
    """Says what a test wants said, in place of `Cluster`."""

    reads_committed = True

    def __init__(self) -> None:
        self.stable: dict[Partition, int] = {A: 10, B: 10}
        self.high: dict[Partition, int] = {}
        self.topic_id = "id"
        self.silent: set[Partition] = set()
        self.ms = 0.0
        self.later: list[dict[str, Any]] = []  # what they say after each pause, in turn

    def pause(self, seconds: float) -> None:
        self.ms += 1000 * seconds
        if self.later:
            vars(self).update(self.later.pop(0))

    def now_ms(self) -> int:
        return int(self.ms)

    def elapsed_ms(self) -> float:
        return self.ms

    def topics(self) -> Topics:
        return Topics(sorted(self.stable), {"t": self.topic_id} if self.stable else {})

    def available(self) -> tuple[Topics, dict[Partition, int]]:
        return self.topics(), {key: end for key, end in self.stable.items() if key not in self.silent}

    def earliest(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 0)

    def high_watermarks(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return {key: self.high.get(key, self.stable[key]) for key in partitions}

    def resolve(self, bound: object, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 0)

    def commit_group(self, group: str, positions: object) -> None:
        pass


class Stream:
    """A query over `Brokers`."""

    def __init__(self, brokers: Brokers, **options: str) -> None:
        texts = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t", "startingOffsets": "earliest", **options}
        self.planner = StreamPlanner(
            SourceOptions.parse(texts, streaming=True),
            brokers,  # type: ignore[arg-type]
            clock=brokers,
            pause=brokers.pause,
        )
        self.offset: dict[str, Any] = self.planner.initial()

    def batch(self) -> list[tuple[int, int, int]]:
        end = self.planner.latest(self.offset)
        ranges = [(part.partition, part.start, part.end) for part in self.planner.ranges(self.offset, end)]
        self.offset = end
        return ranges


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_partition_whose_leader_does_not_answer_waits_and_is_not_read_from_its_start_again(fail: str) -> None:
    """It was left out of the offset, was new to the next batch, and its rows came twice."""
    brokers = Brokers()
    stream = Stream(brokers, failOnDataLoss=fail)
    assert stream.batch() == [(0, 0, 10), (1, 0, 10)]
    brokers.silent, brokers.stable = {B}, {A: 12, B: 12}
    assert stream.batch() == [(0, 10, 12)]
    brokers.silent = set()
    assert stream.batch() == [(1, 10, 12)]


def test_a_broker_that_does_not_know_its_topics_yet_makes_nothing_new() -> None:
    """Its partitions were left out of the offset, were new to the next batch, and their rows came twice."""
    brokers = Brokers()
    stream = Stream(brokers, failOnDataLoss="false")
    assert stream.batch() == [(0, 0, 10), (1, 0, 10)]
    brokers.stable, there = {}, brokers.stable
    assert stream.batch() == []
    assert stream.batch() == []
    brokers.stable = {**there, A: 12}
    assert stream.batch() == [(0, 10, 12)]


def test_a_topic_that_comes_back_as_another_one_is_read_from_its_start() -> None:
    brokers = Brokers()
    stream = Stream(brokers, failOnDataLoss="false")
    assert stream.batch() == [(0, 0, 10), (1, 0, 10)]
    brokers.stable = {}
    assert stream.batch() == []
    brokers.stable, brokers.topic_id = {A: 3}, "another"
    assert stream.batch() == [(0, 0, 3)]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_last_stable_offset_before_what_was_read_is_no_truncation_while_the_log_is_there(fail: str) -> None:
    """Read uncommitted before, read committed now: what is open was read already. It waits."""
    brokers = Brokers()
    stream = Stream(brokers, failOnDataLoss=fail)
    stream.batch()
    brokers.stable, brokers.high = {A: 7, B: 13}, {A: 14, B: 13}
    assert stream.batch() == [(1, 10, 13)]
    brokers.stable = {A: 14, B: 13}
    assert stream.batch() == [(0, 10, 14)]


def test_a_log_that_ends_before_what_was_read_is_a_truncation() -> None:
    brokers = Brokers()
    strict, lossy = Stream(brokers), Stream(brokers, failOnDataLoss="false")
    for stream in (strict, lossy):
        stream.batch()
    brokers.stable = {A: 7, B: 10}
    with pytest.raises(Corrupt, match=r"t-0 ends at 7, but was read up to 10 already: its log was truncated"):
        strict.batch()
    assert lossy.batch() == []
    brokers.stable = {A: 9, B: 10}
    assert lossy.batch() == [(0, 7, 9)]


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize(
    "old",
    [{"stable": {}}, {"stable": {A: 7, B: 10}}, {"topic_id": "of long ago"}],
    ids=["unlisted", "shorter", "another"],
)
def test_what_a_broker_says_that_has_just_started_is_no_loss(fail: str, old: dict[str, Any]) -> None:
    """One answer was proof: the query was Corrupt, or, with failOnDataLoss false, rows were left out or came twice."""
    brokers = Brokers()
    stream = Stream(brokers, failOnDataLoss=fail)
    assert stream.batch() == [(0, 0, 10), (1, 0, 10)]
    now = {"stable": {A: 12, B: 10}, "topic_id": "id"}
    vars(brokers).update(old)
    brokers.later = [{}, {}, now]
    assert stream.batch() == [(0, 10, 12)]
    assert brokers.ms > 0


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("old", [{"stable": {}}, {"topic_id": "of long ago"}], ids=["unlisted", "another"])
def test_a_replay_asks_again_for_a_topic_that_a_broker_does_not_know_yet(fail: str, old: dict[str, Any]) -> None:
    """With failOnDataLoss false its rows were left out of a batch that others had seen with them."""
    brokers = Brokers()
    stream = Stream(brokers, failOnDataLoss=fail)
    start, end = stream.offset, stream.planner.latest(stream.offset)
    resumed = Stream(brokers, failOnDataLoss=fail)
    vars(brokers).update(old)
    brokers.later = [{}, {"stable": {A: 10, B: 10}, "topic_id": "id"}]
    assert [(part.partition, part.start, part.end) for part in resumed.planner.ranges(start, end)] == [
        (0, 0, 10),
        (1, 0, 10),
    ]
