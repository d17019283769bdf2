"""Topics that were deleted while a stream goes on for months: when its offset names them no more, and what stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.test_kafka_source_planner import A, Brokers, Stream, source

from holdfast.source.kafka.deleted import LEFT_OUT_AFTER_MS
from holdfast.source.kafka.doubt import DOUBT_MS
from holdfast.source.kafka.planner import StreamPlanner

MINUTE_MS, HOUR_MS = 60_000.0, 3_600_000.0
U = ("u", 0)


def test_topics_that_come_and_are_deleted_each_hour_do_not_stay_in_the_offset() -> None:
    """A pattern over topics by the hour: the offset named each that there ever was, in each batch, for ever."""
    brokers, sizes = Brokers(), []
    brokers.stable = {("clicks-0000", 0): 10}
    stream = Stream(brokers, subscribePattern="clicks-.*", failOnDataLoss="false")
    stream.batch()
    for hour in range(1, 60):
        brokers.ms += HOUR_MS
        brokers.stable[f"clicks-{hour:04d}", 0] = 10
        brokers.stable.pop((f"clicks-{hour - 24:04d}", 0), None)
        assert stream.batch() == [(0, 0, 10)]
        sizes.append(len(json.dumps(stream.offset)))
    assert sizes[-1] == sizes[30]
    assert len(stream.offset["offsets"]) <= 26
    assert stream.offset["topic_ids"].keys() == stream.offset["offsets"].keys() > stream.offset["gone"].keys()


def left_out(brokers: Brokers, **there: Any) -> Stream:
    """A query of t and u, of which u is not there any more, as ``there`` has it."""
    brokers.stable = {A: 10, U: 10}
    stream = Stream(brokers, subscribe="t,u", failOnDataLoss="false")
    assert stream.batch() == [(0, 0, 10), (0, 0, 10)]
    vars(brokers).update({"stable": {A: 10}, **there})
    assert stream.batch() == []
    return stream


def later(brokers: Brokers, stream: Stream, ms: float) -> Stream:
    """The same query in a new process, as of runs with Trigger.AvailableNow, after a while."""
    brokers.ms += ms
    planner = StreamPlanner(
        source(subscribe="t,u"),
        brokers,  # type: ignore[arg-type]
        clock=brokers,
        pause=brokers.pause,
    )
    stream.planner, stream.offset = planner, json.loads(json.dumps(stream.offset))
    return stream


@pytest.mark.parametrize("runs", [1, 5])
def test_a_topic_that_does_not_exist_for_an_hour_is_left_out_and_a_namesake_is_read_from_its_start(runs: int) -> None:
    brokers = Brokers()
    stream = left_out(brokers)
    assert stream.offset["gone"] == {"u": [0]}
    assert stream.offset["unknown_since"] == {"u": brokers.now_ms()}
    for _ in range(runs):
        assert "u" in stream.offset["offsets"]
        later(brokers, stream, LEFT_OUT_AFTER_MS / runs + 1)
        begun_ms, asked = brokers.ms, brokers.asked_for_unknown
        assert stream.batch() == []
        is_last = "u" not in stream.offset["offsets"]
        assert (brokers.ms - begun_ms >= DOUBT_MS) == is_last, "only where the hour is over it is waited for"
        assert (brokers.asked_for_unknown - asked > 1) == is_last, "one answer of a run is no proof"
    assert not stream.offset.keys() & {"gone", "unknown_since"}
    assert stream.offset["offsets"] == {"t": {"0": 10}} and stream.offset["topic_ids"] == {"t": "id"}
    known = stream.offset
    assert stream.batch() == [] and stream.offset == known, "no batch more for it"
    brokers.stable = {A: 10, U: 3}
    assert stream.batch() == [(0, 0, 3)]


@pytest.mark.parametrize(
    "there", [{"stable": {A: 10, U: 10}, "not_subscribed": {"u"}}, {"hidden": {"u"}}], ids=["not subscribed", "hidden"]
)
def test_a_topic_that_exists_or_that_nobody_may_describe_goes_on_where_it_was_after_a_year(
    there: dict[str, Any],
) -> None:
    brokers = Brokers()
    stream = left_out(brokers, **there)
    for _ in range(9):
        later(brokers, stream, 1000 * HOUR_MS)
        assert stream.batch() == []
    assert stream.offset["gone"] == {"u": [0]} and "unknown_since" not in stream.offset
    vars(brokers).update({"stable": {A: 10, U: 15}, "not_subscribed": set(), "hidden": set()})
    assert stream.batch() == [(0, 10, 15)]


def test_a_topic_that_is_known_again_in_between_has_not_been_unknown_for_an_hour() -> None:
    """Of brokers of which one is cut off, each question may meet another one."""
    brokers = Brokers()
    stream = left_out(brokers)
    for hidden in ({"u"}, set(), {"u"}, set()):
        brokers.hidden = hidden
        later(brokers, stream, 0.7 * LEFT_OUT_AFTER_MS)
        assert stream.batch() == []
    brokers.stable = {A: 10, U: 15}
    assert stream.batch() == [(0, 10, 15)]


@pytest.mark.parametrize("answers", [1, 2, 10])
def test_a_run_of_an_hour_later_that_meets_a_broker_which_has_just_started_leaves_nothing_out(answers: int) -> None:
    """Nobody had asked in between, as of a run each night: after two answers a topic that had always been there was
    read from its start, and all its rows came twice.
    """
    brokers = Brokers()
    stream = left_out(brokers)
    later(brokers, stream, 8 * HOUR_MS)
    brokers.later = [*[{}] * (answers - 1), {"stable": {A: 10, U: 15}}]
    assert stream.batch() == []
    assert stream.offset["gone"] == {"u": [0]} and "unknown_since" not in stream.offset
    assert stream.batch() == [(0, 10, 15)]


def test_a_query_that_goes_on_waits_for_no_second_answer() -> None:
    brokers = Brokers()
    stream = left_out(brokers)
    begun_ms, minutes = brokers.ms, 0
    while "gone" in stream.offset:
        brokers.ms += MINUTE_MS
        minutes += 1
        assert stream.batch() == []
    assert minutes == 60 and brokers.ms == begun_ms + minutes * MINUTE_MS


def test_a_question_that_nobody_answers_says_nothing_of_a_topic() -> None:
    """The hour began anew after each."""
    brokers = Brokers()
    stream = left_out(brokers)
    since = stream.offset["unknown_since"]
    for ms in (0.6, 0.6):
        brokers.unanswered = {"u"}
        later(brokers, stream, ms * LEFT_OUT_AFTER_MS)
        assert stream.batch() == []
        assert stream.offset["unknown_since"] == since and "u" in stream.offset["offsets"]
    brokers.unanswered, brokers.later = set(), [{}, {"unanswered": {"u"}}]
    assert later(brokers, stream, MINUTE_MS).batch() == []
    assert stream.offset["unknown_since"] == since and "u" in stream.offset["offsets"]
    brokers.unanswered = set()
    assert later(brokers, stream, MINUTE_MS).batch() == []
    assert "u" not in stream.offset["offsets"]


def test_the_brokers_are_not_asked_in_each_batch_for_a_topic_that_is_not_read_any_more() -> None:
    brokers = Brokers()
    stream = left_out(brokers, stable={A: 10, U: 10}, not_subscribed={"u"})
    for _ in range(600):
        brokers.ms += 1000
        stream.batch()
    assert 2 <= brokers.asked_for_unknown <= 12


def test_a_batch_that_was_planned_before_reads_the_same_after_its_topic_is_left_out() -> None:
    brokers = Brokers()
    stream = left_out(brokers)
    start = stream.offset
    later(brokers, stream, LEFT_OUT_AFTER_MS)
    brokers.stable = {A: 12}
    assert stream.batch() == [(0, 10, 12)]
    end = json.loads(json.dumps(stream.offset))
    assert "u" not in end["offsets"]
    brokers.stable = {A: 20, U: 99}
    again = later(brokers, stream, 1000)
    assert [(part.topic, part.start, part.end) for part in again.planner.ranges(start, end)] == [("t", 10, 12)]
