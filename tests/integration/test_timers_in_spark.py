"""Timers in real queries: of keys and slots without rows, of idle queries, over restarts and replays, exactly once."""

from __future__ import annotations

import random
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.silence_oracle import START, Alert, silent_users
from tests.streams import FileStream
from tests.timer_processors import (
    ALERTS,
    EVENTS,
    REMINDERS,
    CountedAlerts,
    NoReminders,
    Reminders,
    SilentUsers,
    SilentUsersVectorised,
)

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Batch = list[tuple[str, datetime]]


def made(seed: int, batches: int = 9, users: int = 16) -> list[Batch]:
    """Batches of some users' events, each later than the one before; some are alone, so most slots get no rows."""
    draw = random.Random(seed)
    found: list[Batch] = []
    for number in range(batches):
        some = range(users) if number % 3 == 0 else [draw.randrange(users)]
        found.append(
            [
                (f"user{user}", START + timedelta(minutes=100 * number + draw.randrange(90)))
                for user in some
                for _ in "ab"
            ]
        )
    return found


def table(batch: Batch) -> pa.Table:
    return pa.Table.from_arrays([*map(pa.array, zip(*batch))], schema=EVENTS)


def alerts(tables: list[pa.Table]) -> list[Alert]:
    return sorted(tuple(row.values()) for found in tables for row in found.to_pylist())


@pytest.mark.parametrize("processor", [SilentUsers, SilentUsersVectorised])
def test_timers_fire_in_order_also_of_keys_and_slots_without_rows(stream: FileStream, processor: type) -> None:
    batches = made(1)
    operator = hf.keyed("user", processor(), ALERTS, name="silent", watermark=("ts", "0 seconds"), ticks="never")
    stream.write(*map(table, batches[:4]))
    found = stream.run(operator)
    stream.write(*map(table, batches[4:]))
    found += stream.run(operator)
    expected = silent_users(batches)
    assert len(expected) > 30
    assert alerts(found) == sorted(expected)
    for batch in found:
        for user in {*batch["user"].to_pylist()}:
            mine = [row["time"] for row in batch.to_pylist() if row["user"] == user]
            assert mine == sorted(mine)


def test_an_inherited_watermark_reaches_timers_behind_ticks(stream: FileStream) -> None:
    batches = made(2)
    stream.write(*map(table, batches))
    operator = hf.keyed("user", SilentUsers(), ALERTS, name="silent", ticks="1 day")
    found = stream.run(lambda events: events.withWatermark("ts", "0 seconds").transform(operator))
    assert alerts(found) == sorted(silent_users(batches))


#: Spark takes them, Arrow knows none of them. The first is Spark's default where the JVM has -Duser.timezone=GMT+8.
ZONES = ["GMT+08:00", "-13:33:33", "PST"]
ALERTS_IN_UTC = ["user", "batch", "events", "unix_micros(silent_since) AS since", "unix_micros(time) AS time"]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("inherited", [False, True])
def test_a_session_may_have_a_time_zone_that_arrow_does_not_know(
    stream: FileStream, zone: str, inherited: bool
) -> None:
    """Every batch of every operator ended with pyarrow's error."""
    batches = made(3)
    stream.write(*map(table, batches))
    stream.spark.conf.set("spark.sql.session.timeZone", zone)
    watermark = None if inherited else ("ts", "0 seconds")
    operator = hf.keyed("user", SilentUsers(), ALERTS, name="silent", watermark=watermark, ticks="1 day")

    def alerts_in_utc(events: DataFrame) -> DataFrame:
        marked = events.withWatermark("ts", "0 seconds") if inherited else events
        return operator(marked).selectExpr(*ALERTS_IN_UTC)

    found = [tuple(row.values()) for batch in stream.run(alerts_in_utc) for row in batch.to_pylist()]
    zero = datetime(1970, 1, 1, tzinfo=START.tzinfo)
    expected = [
        (*told[:3], *((time - zero) // timedelta(microseconds=1) for time in told[3:]))
        for told in silent_users(batches)
    ]
    assert len(expected) > 30
    assert sorted(found) == sorted(expected)


def test_what_the_last_watermark_makes_due_fires_in_the_next_run(stream: FileStream) -> None:
    """Trigger.AvailableNow ends a run, not the input: nothing fires before its time."""
    operator = hf.keyed("user", SilentUsers(), ALERTS, name="silent", watermark=("ts", "0 seconds"), ticks="never")
    stream.write(table([("a", START)]), table([("b", START + timedelta(hours=2))]))
    assert alerts(stream.run(operator)) == []
    stream.write(table([("c", START + timedelta(hours=2))]))
    assert [(alert[0], alert[1], alert[4]) for alert in alerts(stream.run(operator))] == [
        ("a", 2, START + timedelta(hours=1)),
        ("a", 2, START + timedelta(hours=2)),
    ]


def test_a_watermark_behind_timers_of_event_time_waits_for_them_unless_the_furthest_counts(
    stream: FileStream, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark takes the least watermark, and that of what has had no row is 0: neither operator gives anything."""
    spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
    first = hf.keyed("user", SilentUsers(), ALERTS, name="silent", watermark=("ts", "0 seconds"), ticks="never")
    then = hf.keyed("user", CountedAlerts(), "user string, n long", name="counted", watermark=("time", "0 seconds"))

    def both(events: DataFrame) -> DataFrame:
        return events.transform(first).transform(then)

    def said() -> list[str]:
        lines = [record.getMessage() for record in caplog.records if record.name == "holdfast.spark"]
        return [line for line in lines if "behind operator" in line]

    stream.write(*(table([(user, START + timedelta(hours=hours))]) for user, hours in [("a", 0), ("b", 2), ("c", 5)]))
    assert [batch.to_pylist() for batch in stream.run(both)] == [[], [], []]
    [line] = said()
    assert line.startswith("operator 'counted': it has a watermark behind operator 'silent'.")
    assert "Set spark.sql.streaming.multipleWatermarkPolicy to max" in line
    stream.start_anew()
    caplog.clear()
    spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", "max")
    assert [batch.to_pylist() for batch in stream.run(both)] == [[], [], [{"user": "a", "n": 2}]]
    assert not said()


def test_a_replay_fires_what_fired(stream: FileStream) -> None:
    batches = made(3)
    operator = hf.keyed("user", SilentUsers(), ALERTS, name="silent", watermark=("ts", "0 seconds"), ticks="never")
    stream.write(*map(table, batches))
    stream.run(operator)
    first = dict(stream.output)
    stream.roll_back(1)
    stream.run(operator)
    assert stream.output == first


def test_an_idle_query_fires_in_time(stream: FileStream) -> None:
    stream.write(pa.table({"user": ["a", "b"], "seconds": [0, 3]}))
    operator = hf.keyed("user", Reminders(), REMINDERS, name="reminders", ticks="1 second")
    query = stream.start(stream.events().transform(operator), processingTime="200 milliseconds")
    try:
        until = time.monotonic() + 120
        while sum(map(len, stream.output.values())) < 2:
            assert query.isActive, query.exception()
            assert time.monotonic() < until
            time.sleep(0.2)
        idle_batches = max(stream.output)
        until = time.monotonic() + 120
        while max(stream.output) == idle_batches:
            assert time.monotonic() < until, "ticks go on"
            time.sleep(0.05)
    finally:
        query.stop()
    rows = [row for _, found in sorted(stream.output.items()) for row in found.to_pylist()]
    assert [(row["user"], row["asked"], row["late"]) for row in rows] == [("a", 0, True), ("b", 0, True)]
    assert rows[1]["batch"] > 0


def test_an_idle_query_fires_what_the_last_watermark_made_due(stream: FileStream) -> None:
    stream.write(table([("a", START)]), table([("b", START + timedelta(hours=1))]))
    operator = hf.keyed("user", SilentUsers(), ALERTS, name="silent", watermark=("ts", "0 seconds"), ticks="1 second")
    query = stream.start(stream.events().transform(operator), processingTime="200 milliseconds")
    try:
        until = time.monotonic() + 120
        while not sum(map(len, stream.output.values())) or max(stream.output) < 5:
            assert query.isActive, query.exception()
            assert time.monotonic() < until
            time.sleep(0.2)
    finally:
        query.stop()
    assert [(alert[0], alert[4]) for alert in alerts(list(stream.output.values()))] == [
        ("a", START + timedelta(hours=1))
    ]


def test_timers_are_added_to_an_operator_that_had_none(stream: FileStream) -> None:
    stream.write(pa.table({"user": ["a"], "seconds": [0]}))
    stream.run(hf.keyed("user", NoReminders(), REMINDERS, name="reminders"))
    operator = hf.keyed("user", Reminders(), REMINDERS, name="reminders", ticks="never")
    stream.write(pa.table({"user": ["b"], "seconds": [0]}))
    assert [row["user"] for found in stream.run(operator) for row in found.to_pylist()] == ["b"]
    stream.write(pa.table({"user": ["c"], "seconds": [1]}))
    assert stream.run(operator)[-1].num_rows == 0
    time.sleep(1)
    stream.write(pa.table({"user": ["d"], "seconds": [100]}))
    assert [row["user"] for found in stream.run(operator) for row in found.to_pylist()] == ["c"]


def test_ticks_that_are_silent_wait_for_timers(stream: FileStream) -> None:
    """An operator that may get timers later, in a query that will have to be woken."""
    stream.write(pa.table({"user": ["a"], "seconds": [1]}))
    stream.run(hf.keyed("user", NoReminders(), REMINDERS, name="reminders", ticks="1 hour"))
    assert stream.committed() == [0]
    stream.write(pa.table({"user": ["b"], "seconds": [1]}))
    operator = hf.keyed("user", Reminders(), REMINDERS, name="reminders", ticks="1 second")
    stream.run(operator)
    time.sleep(1.1)
    assert [row["user"] for found in stream.run(operator) for row in found.to_pylist()] == ["b"], "by a tick alone"


def test_output_of_timers_is_visible_exactly_once(stream: FileStream, tmp_path: Path) -> None:
    batches = made(4)
    stream.write(*map(table, batches))
    path = str(tmp_path / "out")

    def run() -> None:
        operator = hf.keyed("user", SilentUsers(), ALERTS, name="silent", watermark=("ts", "0 seconds"), ticks="never")
        frame = stream.events().transform(operator)
        hf.write_exactly_once(
            frame, hf.FileSink(path), checkpoint=stream.checkpoint, trigger={"availableNow": True}
        ).awaitTermination()

    run()
    assert alerts([hf.FileSink.read(path)]) == sorted(silent_users(batches))
    stream.roll_back(1)  # its record is there: versions are taken over, of slots too that had timers and no rows
    run()
    assert alerts([hf.FileSink.read(path)]) == sorted(silent_users(batches))
    later = [*batches, *[[(user, when + timedelta(hours=9)) for user, when in batch] for batch in batches[:2]]]
    stream.write(*map(table, later[len(batches) :]))
    run()
    assert alerts([hf.FileSink.read(path)]) == sorted(silent_users(later))


def test_timers_that_cannot_be_are_refused_before_the_query_starts(stream: FileStream, spark: SparkSession) -> None:
    stream.write(table([("a", START)]))
    events = stream.events()
    with pytest.raises(hf.InvalidRequest, match="has the timers 'silent', and Spark runs no batch while no rows come"):
        hf.keyed("user", SilentUsers(), ALERTS, name="silent", watermark=("ts", "0 seconds"))
    with pytest.raises(hf.InvalidRequest, match="timers 'silent' go by event time, and there is no watermark"):
        events.transform(hf.keyed("user", SilentUsers(), ALERTS, name="silent", ticks="never"))
    renamed = events.withColumnRenamed("user", "namespace").withWatermark("ts", "0 seconds")
    with pytest.raises(hf.InvalidRequest, match="key column 'namespace' has the name of a column that on_timers"):
        renamed.transform(hf.keyed("namespace", SilentUsersVectorised(), ALERTS, name="silent", ticks="never"))
