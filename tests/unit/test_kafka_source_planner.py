"""What the planner makes of answers that prove less than they seem to: a partition left out, an end that went back.

Against brokers: tests/integration/kafka/test_kafka_plans.py. Here the brokers say what is rare.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from holdfast.errors import Corrupt, InvalidRequest, Unavailable
from holdfast.source.kafka import batch as batch_module
from holdfast.source.kafka.batch import KafkaBatchReader, plan_batch
from holdfast.source.kafka.cluster import Topics
from holdfast.source.kafka.consumers import ConsumerPool, PooledConsumer
from holdfast.source.kafka.offsets import Range, SourceOffset
from holdfast.source.kafka.options import SourceOptions
from holdfast.source.kafka.planner import StreamPlanner
from holdfast.source.kafka.reading import read_range
from holdfast.source.kafka.stream import KafkaStreamReader
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
        self.silent_starts: set[Partition] = set()
        self.not_subscribed: set[str] = set()
        self.hidden: set[str] = set()  # they refuse to say whether these exist
        self.unanswered: set[str] = set()  # whether these exist is asked in vain
        self.asked_for_unknown = 0
        self.ms = 0.0
        self.later: list[dict[str, Any]] = []  # what they say after each pause, in turn
        self.told: object = None  # as the group's offsets

    def pause(self, seconds: float) -> None:
        self.ms += 1000 * seconds
        if self.later:
            vars(self).update(self.later.pop(0))

    def now_ms(self) -> int:
        return int(self.ms)

    def elapsed_ms(self) -> float:
        return self.ms

    def topics(self) -> Topics:
        return self.topics_of({topic for topic, _ in self.stable} - self.not_subscribed)

    def topics_of(self, names: set[str]) -> Topics:
        partitions = sorted(key for key in self.stable if key[0] in names)
        return Topics(partitions, {topic: self.topic_id for topic, _ in partitions})

    def existing(self, names: set[str]) -> dict[str, bool]:
        self.asked_for_unknown += 1
        there = {topic for topic, _ in self.stable} | self.hidden
        return {topic: topic in there for topic in names - self.unanswered}

    def available(self) -> tuple[Topics, dict[Partition, int]]:
        topics = self.topics()
        return topics, {key: self.stable[key] for key in topics.partitions if key not in self.silent}

    def earliest(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return {key: 0 for key in partitions if key not in self.silent_starts}

    def latest(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return {key: self.stable[key] for key in partitions if key not in self.silent}

    def high_watermarks(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return {key: self.high.get(key, self.stable[key]) for key in partitions}

    def resolve(self, bound: object, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 0)

    def commit_group(self, group: str, positions: object) -> None:
        self.told = positions


class NoConsumers(ConsumerPool):
    """Nobody may ask."""

    def lease(self, config: object, wanted: Range) -> PooledConsumer:
        raise AssertionError(f"a consumer was asked for {wanted}")


def source(streaming: bool = True, **options: Any) -> SourceOptions:
    what = {} if {"subscribePattern", "assign"} & options.keys() else {"subscribe": "t"}
    texts = {"kafka.bootstrap.servers": "nowhere:1", "startingOffsets": "earliest", **what, **options}
    return SourceOptions.parse(texts, streaming)


class Stream:
    """A query over `Brokers`."""

    def __init__(self, brokers: Brokers, **options: Any) -> None:
        self.planner = StreamPlanner(
            source(**options),
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


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_new_partition_whose_start_nobody_says_is_read_from_there_later(fail: str) -> None:
    """It was read from its end: with failOnDataLoss false what it had was left out, else it was told as lost."""
    brokers = Brokers()
    stream = Stream(brokers, failOnDataLoss=fail)
    assert stream.batch() == [(0, 0, 10), (1, 0, 10)]
    new = ("t", 2)
    brokers.stable, brokers.silent_starts = {A: 12, B: 10, new: 7}, {new}
    assert stream.batch() == [(0, 10, 12)]
    brokers.silent_starts = set()
    assert stream.batch() == [(2, 0, 7)]


@pytest.mark.parametrize(
    ("then", "told"),
    [
        ({"subscribe": "u"}, r"t-0, t-1 were read before, and subscribe u does not name them any more: .* left out\. "),
        ({"subscribePattern": "u.*"}, r"t-0, t-1 were read before, and subscribePattern 'u.*' does not name them"),
        ({"assign": '{"t":[0]}'}, r"t-1 were read before, and assign t-0 does not name them"),
        ({"subscribePattern": "t.*"}, r"t-0, t-1 do not exist any more, or this user may not describe them: "),
    ],
    ids=str,
)
def test_what_is_not_subscribed_to_any_more_is_not_told_as_deleted(then: dict[str, str], told: str) -> None:
    stream = Stream(Brokers())
    stream.batch()
    brokers = Brokers()
    brokers.stable = {A: 10} if "assign" in then else {}
    planner = StreamPlanner(source(**then), brokers, clock=brokers, pause=brokers.pause)  # type: ignore[arg-type]
    with pytest.raises(Corrupt, match=told):
        planner.latest(stream.offset)


def a_loss_that_was_accepted(brokers: Brokers, there: dict[str, Any]) -> Stream:
    """A query with failOnDataLoss after one run without it, in which nothing of u was there any more, as ``there`` has
    it.
    """
    brokers.stable = {A: 10, ("u", 0): 10}
    both, lossy = Stream(brokers, subscribe="t,u"), Stream(brokers, failOnDataLoss="false", subscribe="t,u")
    assert both.batch() == [(0, 0, 10), (0, 0, 10)]
    vars(brokers).update(there)
    lossy.offset = both.offset
    assert lossy.batch() == []
    assert lossy.offset["gone"] == {"u": [0]}
    strict = Stream(brokers)
    strict.offset = json.loads(json.dumps(lossy.offset))
    return strict


@pytest.mark.parametrize("there", [{"stable": {A: 10}}, {"not_subscribed": {"u"}}], ids=["deleted", "not subscribed"])
def test_a_loss_that_was_accepted_once_is_not_told_again(there: dict[str, Any]) -> None:
    """The query stopped at each later start with failOnDataLoss, for ever."""
    brokers = Brokers()
    strict = a_loss_that_was_accepted(brokers, there)
    assert strict.batch() == []
    brokers.stable = {**brokers.stable, A: 12}
    assert strict.batch() == [(0, 10, 12)]
    assert strict.offset["gone"] == {"u": [0]}
    brokers.stable, brokers.not_subscribed = {A: 12, ("u", 0): 15}, set()
    assert strict.batch() == [(0, 10, 15)], "it is back, and goes on where it was"
    assert "gone" not in strict.offset
    brokers.stable = {A: 12}
    with pytest.raises(Corrupt, match="u-0 "):
        strict.batch()


def test_a_loss_that_nobody_accepted_is_told_beside_one_that_was() -> None:
    brokers = Brokers()
    strict = a_loss_that_was_accepted(brokers, {"stable": {A: 10}})
    brokers.stable = {B: 10}
    with pytest.raises(Corrupt, match=r"^t-0 do not exist any more"):
        strict.batch()


def test_a_topic_whose_loss_was_accepted_may_come_back_as_another_one() -> None:
    brokers = Brokers()
    strict = a_loss_that_was_accepted(brokers, {"stable": {A: 10}})
    ids = {"t": "id", "u": "another"}
    brokers.stable = {A: 10, ("u", 0): 3}
    brokers.topics_of = lambda names: Topics(sorted(brokers.stable), ids)  # type: ignore[method-assign, assignment]
    assert strict.batch() == [(0, 0, 3)]


def test_a_topic_that_comes_back_as_another_one_is_read_from_its_start() -> None:
    brokers = Brokers()
    stream = Stream(brokers, failOnDataLoss="false")
    assert stream.batch() == [(0, 0, 10), (1, 0, 10)]
    brokers.stable = {}
    assert stream.batch() == []
    brokers.stable, brokers.topic_id = {A: 3}, "another"
    assert stream.batch() == [(0, 0, 3)]


def test_a_broker_that_knows_no_topic_ids_makes_none_forgotten() -> None:
    """While brokers are upgraded from below 2.8: what was recorded gave way to none, so a topic that was made anew
    meanwhile was gone on with where the old one had been. And each such answer was a batch without rows.
    """
    brokers = Brokers()
    stream = Stream(brokers, failOnDataLoss="false")
    assert stream.batch() == [(0, 0, 10), (1, 0, 10)]
    known, brokers.topic_id = stream.offset, "AAAAAAAAAAAAAAAAAAAAAA"
    assert stream.batch() == [] and stream.offset == known
    brokers.stable = {A: 30, B: 30}
    assert stream.batch() == [(0, 10, 30), (1, 10, 30)]
    brokers.topic_id, brokers.stable = "another", {A: 50}
    assert stream.batch() == [(0, 0, 50)]


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


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_replay_reads_what_is_not_subscribed_to_any_more(fail: str) -> None:
    """It was told as deleted; with failOnDataLoss false its rows were left out of a batch that had them."""
    brokers = Brokers()
    brokers.stable = {A: 10, ("u", 0): 10}
    stream = Stream(brokers, failOnDataLoss=fail, subscribe="t,u")
    start, end = stream.offset, stream.planner.latest(stream.offset)
    brokers.not_subscribed = {"u"}
    planner = Stream(brokers, failOnDataLoss=fail).planner
    assert [(part.topic, part.start, part.end) for part in planner.ranges(start, end)] == [("t", 0, 10), ("u", 0, 10)]
    brokers.stable = {A: 10}
    planner = Stream(brokers, failOnDataLoss=fail).planner
    if fail == "true":
        with pytest.raises(
            Corrupt, match=r"u-0 \[0, 10\) is to be read again, but the partition does not exist any more"
        ):
            planner.ranges(start, end)
    else:
        found = planner.ranges(start, end)
        assert [(part.topic, part.start, part.end) for part in found] == [("t", 0, 10), ("u", 0, 0)]


@pytest.mark.parametrize("options", [{}, {"minPartitions": "9"}, {"maxRecordsPerPartition": "4"}], ids=str)
@pytest.mark.parametrize("became", ["deleted", "another"])
def test_what_a_replay_cannot_read_any_more_leaves_its_numbers_to_no_other_task(
    became: str, options: dict[str, Any]
) -> None:
    """With failOnDataLoss false its ranges were left out, and those after it became tasks of other numbers: what was
    lost of one counted as done, and its rows were read into nothing.
    """
    brokers = Brokers()
    brokers.stable = {("a", 0): 10, ("b", 0): 20, ("b", 1): 5, ("c", 0): 10}
    first = Stream(brokers, failOnDataLoss="false", subscribe="a,b,c", **options)
    start, end = first.offset, first.planner.latest(first.offset)
    planned = first.planner.ranges(start, end)
    if became == "deleted":
        del brokers.stable["a", 0], brokers.stable["b", 1]
    else:
        ids = {"a": "another", "b": "id", "c": "id"}
        brokers.topics_of = lambda names: Topics(sorted(brokers.stable), ids)  # type: ignore[method-assign, assignment]
    lost = {("a", 0), ("b", 1)} if became == "deleted" else {("a", 0)}
    read = source(failOnDataLoss="false", subscribe="a,b,c", **options)
    again = StreamPlanner(read, brokers, clock=brokers, pause=brokers.pause)  # type: ignore[arg-type]
    assert again.ranges(start, end) == [
        part._replace(end=part.start) if (part.topic, part.partition) in lost else part for part in planned
    ]


SPLITS: list[dict[str, Any]] = [{}, {"minPartitions": "4"}, {"minPartitions": "6"}, {"maxRecordsPerPartition": "3"}]


@pytest.mark.parametrize("then", SPLITS, ids=str)
@pytest.mark.parametrize("before", SPLITS, ids=str)
def test_a_replay_has_the_tasks_that_the_batch_had_whatever_the_options_say_by_then(
    before: dict[str, Any], then: dict[str, Any]
) -> None:
    """The header of at-least-once says the number of the task and of the row in it. A replay that was split otherwise
    had other rows under the same headers: rows that nobody had seen were dropped as repeats.
    """
    brokers = Brokers()
    first = Stream(brokers, **before)
    start, end = first.offset, json.loads(json.dumps(first.planner.latest(first.offset)))
    planned = first.planner.ranges(start, end)
    again = Stream(brokers, **then)
    assert again.planner.ranges(start, end) == planned
    again.offset = end
    assert again.planner.latest(end) == end, "other options alone make no batch"
    brokers.stable = {A: 20, B: 20}
    later = again.batch()
    fresh = Stream(brokers, **then)
    fresh.offset = end
    assert later == fresh.batch(), "the next batch goes by the options of its time"
    assert (len(later) == len(planned)) == (before == then)


def test_a_batch_that_an_earlier_version_planned_is_split_by_the_options() -> None:
    brokers = Brokers()
    first = Stream(brokers, minPartitions="4")
    start, end = first.offset, first.planner.latest(first.offset)
    planned = first.planner.ranges(start, end)
    del end["split"]
    assert Stream(brokers, minPartitions="4").planner.ranges(start, end) == planned


def test_a_task_of_nothing_asks_nobody() -> None:
    """Of a topic that is gone there is no leader to wait for."""
    for fail in ("true", "false"):
        assert list(read_range(source(failOnDataLoss=fail), Range("t", 0, 5, 5), NoConsumers())) == []


def exactly(brokers: Brokers, starts: dict[Partition, int]) -> None:
    """``startingOffsets`` as the real one takes them: of all partitions there are, and no other."""

    def resolve(bound: object, partitions: Sequence[Partition]) -> dict[Partition, int]:
        if set(partitions) != set(starts):
            raise InvalidRequest("Offsets by partition must name exactly the partitions")
        return starts

    brokers.resolve = resolve  # type: ignore[method-assign]


@pytest.mark.parametrize("says_start", [True, False], ids=["4.2", "4.0"])
def test_batch_0_is_run_again_though_its_topic_has_grown(says_start: bool) -> None:
    """Spark asks for the start once more, and the options do not name all there is now. The logged end has it."""
    options = source(startingOffsets='{"t":{"0":5}}')
    brokers = Brokers()
    brokers.stable = {A: 10}
    exactly(brokers, {A: 5})

    def started() -> tuple[StreamPlanner, dict[str, Any]]:
        planner = StreamPlanner(options, brokers, clock=brokers, pause=brokers.pause)  # type: ignore[arg-type]
        reader = KafkaStreamReader(options)
        reader._made = planner
        return planner, json.loads(json.dumps(reader.initialOffset()))

    planner, start = started()
    end = planner.latest(start)
    brokers.stable = {A: 12, B: 3}
    planner, start = started()
    assert [(part.partition, part.start, part.end) for part in planner.ranges(start, end)] == [(0, 5, 10)]
    after = planner.latest(end if says_start else None)
    assert [(part.partition, part.start, part.end) for part in planner.ranges(end, after)] == [(0, 10, 12), (1, 0, 3)]
    planner, start = started()
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="must name exactly the partitions"):
            planner.latest(start if says_start else None)


def available_now(brokers: Brokers, later: list[dict[str, Any]], **options: str) -> list[tuple[int, int, int]]:
    """What a run of Trigger.AvailableNow reads after a first one, all of it; and what ``brokers`` say then."""
    stream = Stream(Brokers(), **options)
    assert stream.batch() == [(0, 0, 10), (1, 0, 10)]
    run = Stream(brokers, **options)
    brokers.later = later
    run.offset = stream.offset
    run.planner.fix_end()
    read: list[tuple[int, int, int]] = []
    while batch := run.batch():
        read += batch
    return read


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize(
    "old",
    [{"stable": {A: 12}}, {"stable": {A: 12, B: 7}}, {"stable": {A: 12, B: 7}, "high": {A: 12}}],
    ids=["unlisted", "shorter", "shorter and committed"],
)
def test_a_doubt_of_one_partition_moves_the_fixed_end_of_no_other(fail: str, old: dict[str, Any]) -> None:
    """What came after the start of a run of Trigger.AvailableNow was read too, for as long as there was something."""
    brokers = Brokers()
    vars(brokers).update(old)
    later = [{}, {"stable": {A: 20, B: 15}}]
    assert available_now(brokers, later, failOnDataLoss=fail) == [(0, 10, 12), (1, 10, 15)]


def test_a_doubt_of_one_partition_forgets_no_other() -> None:
    """A later answer of another broker lacked it, and the run ended before it was read."""
    brokers = Brokers()
    brokers.stable = {A: 12, B: 7}
    assert available_now(brokers, [{"stable": {B: 15}}, {}]) == [(0, 10, 12), (1, 10, 15)]


def test_a_topic_that_another_broker_takes_for_one_of_long_ago_moves_no_fixed_end() -> None:
    brokers = Brokers()
    brokers.stable = {A: 12}
    later = [{"topic_id": "of long ago", "stable": {A: 3, B: 3}}, {"topic_id": "id", "stable": {A: 20, B: 15}}]
    assert available_now(brokers, later) == [(0, 10, 12), (1, 10, 15)]


def test_a_topic_that_was_of_long_ago_when_the_end_was_fixed_is_looked_at_as_a_whole() -> None:
    brokers = Brokers()
    brokers.topic_id, brokers.stable = "of long ago", {A: 3, B: 3}
    assert available_now(brokers, [{"topic_id": "id", "stable": {A: 12, B: 10}}]) == [(0, 10, 12)]


def test_a_run_that_reads_what_there_is_waits_for_a_leader_that_does_not_know_its_partition_yet() -> None:
    """The run ended without what the partition had."""
    brokers = Brokers()
    brokers.stable, brokers.silent = {A: 12, B: 12}, {B}
    later = [{}, {"silent": set(), "stable": {A: 20, B: 12}}]
    assert available_now(brokers, later) == [(0, 10, 12), (1, 10, 12)]


def test_a_run_that_reads_what_there_is_ends_with_an_error_where_a_leader_never_says_it() -> None:
    brokers = Brokers()
    brokers.stable, brokers.silent = {A: 12, B: 12}, {B}
    with pytest.raises(Unavailable, match=r"nowhere:1 has t-1, but did not say where they end"):
        available_now(brokers, [])


def test_what_is_deleted_while_its_end_is_asked_for_is_told_as_lost() -> None:
    brokers = Brokers()
    brokers.stable, brokers.silent = {A: 12, B: 12}, {B}
    with pytest.raises(Corrupt, match=r"t-1 do not exist any more"):
        available_now(brokers, [{}, {"stable": {A: 12}}])


@pytest.mark.parametrize("options", [{}, {"subscribePattern": "t.*"}, {"subscribe": "t,u"}], ids=str)
def test_a_new_query_waits_for_what_a_broker_does_not_list_yet(options: dict[str, str]) -> None:
    """It was refused; or, by a pattern, began with nothing, and what had been there was lost to startingOffsets."""
    brokers = Brokers()
    there, brokers.stable = {A: 10, **({("u", 0): 10} if "subscribe" in options else {})}, {}
    brokers.later = [{"stable": {A: 10}}, {"stable": there}]
    assert sorted(SourceOffset.from_json(Stream(brokers, **options).offset).positions) == sorted(there)
    assert 0 < brokers.ms < 2_000


def test_what_is_not_there_after_a_while_does_not_exist() -> None:
    brokers = Brokers()
    brokers.stable = {}
    with pytest.raises(InvalidRequest, match=r"subscribe t: t does not exist at nowhere:1"):
        Stream(brokers)
    assert brokers.ms >= 10_000
    assert Stream(brokers, subscribePattern="t.*").batch() == [], "it waits for topics to come"


def test_a_batch_read_waits_for_all_that_it_names() -> None:
    """It read the topics that one broker listed, and left out the others without a word."""
    brokers = Brokers()
    brokers.stable = {A: 10}
    both = source(streaming=False, subscribe="t,u", endingOffsets="latest")
    with pytest.raises(InvalidRequest, match=r"subscribe t, u: u does not exist"):
        plan_batch(both, brokers, brokers, brokers.pause)  # type: ignore[arg-type]
    brokers.later = [{"stable": {A: 10, ("u", 0): 10}}]
    brokers.resolve = lambda bound, keys: dict.fromkeys(keys, 0 if bound is both.starting else 10)  # type: ignore[assignment]
    found = plan_batch(both, brokers, brokers, brokers.pause)  # type: ignore[arg-type]
    assert [(part.topic, part.start, part.end) for part in found] == [("t", 0, 10), ("u", 0, 10)]


def bounded(brokers: Brokers, starts: dict[Partition, int], ends: dict[Partition, int]) -> None:
    """Reads of these options start and end so."""
    brokers.resolve = lambda bound, keys: dict(ends if bound.offsets == ends else starts)  # type: ignore[assignment, attr-defined]


@pytest.mark.parametrize("later", [[], [{"high": {A: 20, B: 10}}]], ids=["never", "later"])
@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_batch_read_past_the_end_of_a_log_is_told_when_it_is_planned(
    fail: str, later: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """Its task waited for minutes for what was not there. What an open transaction holds back is there."""
    brokers = Brokers()
    brokers.stable, brokers.high, brokers.later = {A: 8, B: 10}, {A: 10, B: 10}, later
    bounded(brokers, {A: 0, B: 0}, {A: 20, B: 10})
    options = source(streaming=False, failOnDataLoss=fail, endingOffsets='{"t":{"0":20,"1":10}}')

    def planned() -> list[tuple[int, int, int]]:
        found = plan_batch(options, brokers, brokers, brokers.pause)  # type: ignore[arg-type]
        return [(part.partition, part.start, part.end) for part in found]

    if later:
        assert planned() == [(0, 0, 20), (1, 0, 10)]
    elif fail == "true":
        with pytest.raises(InvalidRequest, match=r"t-0: endingOffsets has 20, but the partition ends at 10\. Use"):
            planned()
    else:
        assert planned() == [(0, 0, 8), (1, 0, 10)]
        assert "t-0: endingOffsets has 20, but the partition ends at 10" in caplog.text


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_new_query_that_names_an_offset_past_the_end_is_told_so(fail: str, caplog: pytest.LogCaptureFixture) -> None:
    """It was told that it had read so far already, and that the log was truncated."""
    brokers = Brokers()
    bounded(brokers, {A: 1000, B: 0}, {})
    stream = Stream(brokers, failOnDataLoss=fail, startingOffsets='{"t":{"0":1000,"1":0}}')
    if fail == "true":
        with pytest.raises(InvalidRequest, match=r"t-0: startingOffsets has 1000, but the partition ends at 10\. Use"):
            stream.batch()
    else:
        assert stream.batch() == [(1, 0, 10)]
        assert "t-0: startingOffsets has 1000, but the partition ends at 10" in caplog.text
        brokers.stable = {A: 12, B: 10}
        assert stream.batch() == [(0, 10, 12)]


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("made_by_spark", [None, InputPartition(None)], ids=["4.0", "4.3"])
def test_a_batch_read_of_nothing_has_no_rows(
    monkeypatch: pytest.MonkeyPatch, made_by_spark: InputPartition | None, fail: str
) -> None:
    """Spark runs one task where no range is planned: it failed with an AttributeError."""
    monkeypatch.setattr(batch_module, "prepare_worker_process", lambda: None)
    reader = KafkaBatchReader(source(streaming=False, failOnDataLoss=fail))
    assert list(reader.read(made_by_spark)) == []
