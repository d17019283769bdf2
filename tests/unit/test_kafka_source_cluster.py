"""What the driver makes of brokers that know less than they will in a moment: nothing is left out without a word."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from holdfast.errors import InvalidRequest, Unavailable
from holdfast.source.kafka import cluster as cluster_module
from holdfast.source.kafka.bounds import EARLIEST, LATEST, Bound
from holdfast.source.kafka.cluster import Cluster, Topics
from holdfast.source.kafka.options import SourceOptions
from holdfast.source.kafka.subscription import Partition

A, B = ("t", 0), ("t", 1)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Of topic t, with two partitions; no broker is asked."""
    monkeypatch.setattr(cluster_module, "admin_client", lambda config: None)
    options = SourceOptions.parse({"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}, streaming=True)
    made = Cluster(options)
    monkeypatch.setattr(made, "topics", lambda: Topics([A, B], {"t": "id"}))
    return made


def answer(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, *answers: Mapping[Partition, int]) -> None:
    """What leaders say of offsets, question by question; the last answer stays."""
    left = list(answers)

    def list_offsets(specs: Mapping[Partition, Any], within_s: float, *, least: int, committed: bool) -> Any:
        said = left.pop(0) if len(left) > 1 else left[0]
        return {key: offset for key, offset in said.items() if key in specs}

    monkeypatch.setattr(cluster, "_list_offsets", list_offsets)


@pytest.mark.parametrize("bound", [EARLIEST, LATEST, Bound(timestamp_ms=5)])
def test_a_partition_whose_offsets_nobody_says_is_not_left_out_of_a_read(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, bound: Bound
) -> None:
    """A batch read skipped it and its rows; a stream that starts at the latest read it from its start later."""
    answer(monkeypatch, cluster, {A: 3})
    with pytest.raises(Unavailable, match=r"has t-1, but did not say its offsets"):
        cluster.resolve(bound, [A, B])
    answer(monkeypatch, cluster, {A: 3, B: 4})
    assert cluster.resolve(bound, [A, B]) == {A: 3, B: 4}


def test_a_leader_that_does_not_know_its_partition_yet_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> None:
    answer(monkeypatch, cluster, {A: 3}, {A: 3}, {A: 4, B: 4})
    assert cluster.available()[1] == {A: 4, B: 4}
    answer(monkeypatch, cluster, {A: 3})
    assert cluster.available()[1] == {A: 3}, "in the end it is told without it: the planner keeps its place"


class HangingLeader:
    """Brokers of which one hangs, until others lead what it led: what librdkafka answers then, and how late."""

    def __init__(self, hangs_until_ms: float) -> None:
        self.at_ms = 0.0
        self.hangs_until_ms = hangs_until_ms

    def elapsed_ms(self) -> float:
        return self.at_ms

    def now_ms(self) -> int:
        return int(self.at_ms)

    def list_offsets(
        self, asked: Mapping[TopicPartition, Any], *, isolation_level: Any, request_timeout: float
    ) -> dict[TopicPartition, Future[Any]]:
        hangs = self.at_ms < self.hangs_until_ms
        self.at_ms += request_timeout * 1000 if hangs else 1
        return {place: self._said(-1001 if hangs and place.partition == 1 else 7) for place in asked}

    def _said(self, offset: int) -> Future[Any]:
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(offset=offset))
        return answer

    def list_topics(self, timeout: float) -> Any:
        if self.at_ms < self.hangs_until_ms:
            self.at_ms += timeout * 1000
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return SimpleNamespace(topics={"t": None})


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> HangingLeader:
    """For 70 s."""
    made = HangingLeader(70_000)
    monkeypatch.setattr(cluster_module, "admin_client", lambda config: made)
    monkeypatch.setattr(cluster_module, "time", SimpleNamespace(sleep=lambda seconds: None))
    return made


def test_a_leader_that_hangs_is_not_taken_for_one_whose_partitions_end_at_minus_1001(hanging: HangingLeader) -> None:
    """librdkafka gives that offset, and no error. A query would have started there, or called the log truncated; one
    that starts at a time would have started at the end, without the rows in between.
    """
    for read_committed in ("read_committed", "read_uncommitted"):
        hanging.at_ms = 0.0
        given = {"kafka.bootstrap.servers": "n:1", "subscribe": "t", "kafka.isolation.level": read_committed}
        cluster = Cluster(SourceOptions.parse(given, streaming=True), hanging)
        assert cluster.latest([A, B]) == {A: 7, B: 7}
        for ask in (cluster.earliest, cluster.high_watermarks):
            hanging.at_ms = 0.0
            assert ask([A, B]) == {A: 7, B: 7}
        for bound in (EARLIEST, LATEST, Bound(timestamp_ms=5, latest_if_none=True)):
            hanging.at_ms = 0.0
            assert cluster.resolve(bound, [A, B]) == {A: 7, B: 7}


def test_brokers_of_which_none_leads_what_is_asked_for_end_no_query(
    monkeypatch: pytest.MonkeyPatch, hanging: HangingLeader
) -> None:
    """Just after they have started again: librdkafka says so at once, in a word that no protocol has. The next
    batch, or a report of progress, ended the query.
    """
    refusals = [0]

    def said(offset: int) -> Future[Any]:
        answer: Future[Any] = Future()
        if refusals[0]:
            answer.set_exception(KafkaException(KafkaError(KafkaError._NOENT, "No leaders found")))
        else:
            answer.set_result(SimpleNamespace(offset=offset))
        return answer

    monkeypatch.setattr(hanging, "_said", said)
    hanging.hangs_until_ms = 0.0
    cluster = Cluster(
        SourceOptions.parse({"kafka.bootstrap.servers": "n:1", "subscribe": "t"}, streaming=True), hanging
    )

    def topics() -> Topics:
        refusals[0] -= refusals[0] > 0
        return Topics([A, B], {"t": "id"})

    monkeypatch.setattr(cluster, "topics", topics)
    refusals[0] = 4
    assert cluster.available()[1] == {A: 7, B: 7}
    refusals[0] = 400
    assert cluster.available()[1] == {}, "in the end it is told without them: the planner keeps its place"
    with pytest.raises(Unavailable, match="has t-0, t-1, but did not say its offsets"):
        cluster.resolve(LATEST, [A, B])


def test_brokers_that_are_away_for_more_than_a_minute_end_no_query(hanging: HangingLeader) -> None:
    """Its tasks and commits wait for two minutes; the driver's questions did not."""
    options = SourceOptions.parse({"kafka.bootstrap.servers": "n:1", "subscribePattern": "t"}, streaming=True)
    cluster = Cluster(options, hanging)
    assert cluster._ask("topics", lambda within_s: list(hanging.list_topics(timeout=within_s).topics)) == ["t"]
    assert 70_000 <= hanging.at_ms < 120_000


def test_a_broker_that_hangs_does_not_keep_a_question_for_all_of_its_time(hanging: HangingLeader) -> None:
    """What it led is led by another one within seconds: the question is asked again."""
    hanging.hangs_until_ms = 6_000
    given = {"kafka.bootstrap.servers": "n:1", "subscribe": "t", "kafka.socket.timeout.ms": "5000"}
    assert Cluster(SourceOptions.parse(given, streaming=True), hanging).latest([A, B]) == {A: 7, B: 7}
    assert hanging.at_ms < 15_000


def test_a_leader_that_hangs_for_longer_than_the_limit_is_named(hanging: HangingLeader) -> None:
    hanging.hangs_until_ms = 1e9
    given = {"kafka.bootstrap.servers": "n:1", "subscribe": "t"}
    with pytest.raises(Unavailable, match=r"did not say the latest offsets of subscribe t: .*leaders of t-1 did not"):
        Cluster(SourceOptions.parse(given, streaming=True), hanging).latest([A, B])


def test_a_partition_that_a_leader_does_not_know_is_not_started_at_its_end_in_place_of_a_time(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> None:
    """Asked for its end a moment later, it knew."""
    answer(monkeypatch, cluster, {A: 3}, {A: 9, B: 9})
    with pytest.raises(Unavailable, match=r"has t-1, but did not say its offsets"):
        cluster.resolve(Bound(timestamp_ms=5, latest_if_none=True), [A, B])


def test_a_partition_without_a_record_so_late_whose_end_nobody_says_is_not_left_out_of_a_read(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> None:
    """It ended at -1, and a batch read skipped all of it without a word."""
    answer(monkeypatch, cluster, {A: 3, B: -1}, {})
    with pytest.raises(Unavailable, match=r"has t-1, but did not say its offsets"):
        cluster.resolve(Bound(timestamp_ms=5, latest_if_none=True), [A, B])
    answer(monkeypatch, cluster, {A: 3, B: -1}, {B: 9})
    assert cluster.resolve(Bound(timestamp_ms=5, latest_if_none=True), [A, B]) == {A: 3, B: 9}


@pytest.mark.parametrize("code", ["FENCED_LEADER_EPOCH", "NOT_LEADER_FOR_PARTITION", "OFFSET_NOT_AVAILABLE"])
def test_a_leader_that_moves_ends_no_query(monkeypatch: pytest.MonkeyPatch, hanging: HangingLeader, code: str) -> None:
    """Brokers that roll answer so, at once and for seconds: four tries of 10 ms each were over before that."""
    hanging.hangs_until_ms, times = 0, iter(range(50))

    def moved(offset: int) -> Future[Any]:
        answer: Future[Any] = Future()
        if next(times, None) is None:
            answer.set_result(SimpleNamespace(offset=offset))
        else:
            answer.set_exception(KafkaException(KafkaError(getattr(KafkaError, code))))
        return answer

    monkeypatch.setattr(hanging, "_said", moved)
    given = {"kafka.bootstrap.servers": "n:1", "subscribe": "t"}
    assert Cluster(SourceOptions.parse(given, streaming=True), hanging).latest([A, B]) == {A: 7, B: 7}


def test_a_topic_that_may_not_be_described_any_more_is_left_out_of_those_that_are_named(
    monkeypatch: pytest.MonkeyPatch, hanging: HangingLeader
) -> None:
    """For a batch that is run again after it: else the query could never go on, whatever its options."""

    def describe(names: Any, request_timeout: float) -> dict[str, Future[Any]]:
        answers: dict[str, Future[Any]] = {"t": Future(), "u": Future()}
        answers["t"].set_result(SimpleNamespace(partitions=[SimpleNamespace(id=0)], topic_id="of-t", is_internal=False))
        answers["u"].set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
        return answers

    monkeypatch.setattr(hanging, "describe_topics", describe, raising=False)
    given = {"kafka.bootstrap.servers": "n:1", "subscribe": "t,u", "fetchOffset.numRetries": "1"}
    cluster = Cluster(SourceOptions.parse(given, streaming=True), hanging)
    found = cluster.topics_of({"t", "u"})
    assert (found.partitions, found.topic_ids) == ([("t", 0)], {"t": "of-t"})
    with pytest.raises(Unavailable, match="TOPIC_AUTHORIZATION_FAILED"):
        cluster.topics()


def test_what_is_refused_is_asked_for_a_few_times_only(monkeypatch: pytest.MonkeyPatch, hanging: HangingLeader) -> None:
    asked = []

    def refused(offset: int) -> Future[Any]:
        asked.append(offset)
        answer: Future[Any] = Future()
        answer.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
        return answer

    monkeypatch.setattr(hanging, "_said", refused)
    given = {"kafka.bootstrap.servers": "n:1", "subscribe": "t", "fetchOffset.numRetries": "2"}
    with pytest.raises(Unavailable, match="TOPIC_AUTHORIZATION_FAILED"):
        Cluster(SourceOptions.parse(given, streaming=True), hanging).latest([A])
    assert len(asked) == 3


def test_a_restore_may_name_what_a_pattern_leaves_out(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    """What Spark's own source and earlier releases read of a pattern: the start was refused, with the advice to do what
    had just been done.
    """
    given = {"kafka.bootstrap.servers": "nowhere:1", "subscribePattern": ".*"}
    by_pattern = Cluster(SourceOptions.parse(given, streaming=True))
    answer(monkeypatch, by_pattern, {})
    restored = Bound(offsets={A: 3, B: 4, ("holdfast-witness", 0): 7})
    assert by_pattern.resolve(restored, [A, B]) == {A: 3, B: 4}
    with pytest.raises(InvalidRequest, match="Expected t-0, found holdfast-witness-0, t-0, t-1"):
        by_pattern.resolve(restored, [A])
    with pytest.raises(InvalidRequest, match="Expected t-0, t-1, found holdfast-witness-0, t-0, t-1"):
        cluster.resolve(restored, [A, B])


def test_only_what_the_brokers_say_does_not_exist_is_missing(
    monkeypatch: pytest.MonkeyPatch, hanging: HangingLeader
) -> None:
    """A refusal, or no answer, is no proof against a topic: its position would be lost. Nor does it end the query."""
    codes = {"deleted": KafkaError.UNKNOWN_TOPIC_OR_PART, "hidden": KafkaError.TOPIC_AUTHORIZATION_FAILED}
    codes.update(late=KafkaError._TIMED_OUT, leaderless=KafkaError._NOENT)

    def describe(names: Any, request_timeout: float) -> dict[str, Future[Any]]:
        answers: dict[str, Future[Any]] = {name: Future() for name in (*codes, "there")}
        answers["there"].set_result(SimpleNamespace(partitions=[], topic_id="id", is_internal=False))
        for name, code in codes.items():
            answers[name].set_exception(KafkaException(KafkaError(code)))
        return answers

    monkeypatch.setattr(hanging, "describe_topics", describe, raising=False)
    given = {"kafka.bootstrap.servers": "n:1", "subscribe": "there"}
    cluster = Cluster(SourceOptions.parse(given, streaming=True), hanging)
    assert cluster.existing({*codes, "there"}) == {"deleted": False, "hidden": True, "there": True}
