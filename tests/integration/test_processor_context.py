"""What a processor is told of its surroundings: batch, time, randomness, watermark, counters; the same in a replay."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.processors import SURROUNDINGS, Passing, Remembering, Surroundings
from tests.streams import FileStream

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def seen(tables: list[pa.Table]) -> list[list[dict[str, Any]]]:
    return [sorted(table.to_pylist(), key=lambda row: row["slot"]) for table in tables]


def test_the_context_tells_batch_slot_and_time(stream: FileStream) -> None:
    stream.write(*(pa.table({"k": list(range(50))}) for _ in range(2)))
    output = seen(stream.run(hf.keyed("k", Surroundings(), SURROUNDINGS, name="here")))
    for batch_id, rows in enumerate(output):
        assert [(row["batch_id"], row["slot"], row["slots"]) for row in rows] == [(batch_id, 0, 2), (batch_id, 1, 2)]
        assert len({row["timestamp"] for row in rows}) == 1
        assert abs(rows[0]["timestamp"] - datetime.now(timezone.utc)) < timedelta(minutes=10)
        assert {row["watermark_ms"] for row in rows} == {None}
        assert {row["operator"] for row in rows} == {"here"}
    assert len({row["query_id"] for rows in output for row in rows}) == 1
    assert len({row["random"] for rows in output for row in rows}) == 4


def test_a_replay_is_told_the_same(stream: FileStream) -> None:
    stream.write(*(pa.table({"k": list(range(50))}) for _ in range(2)))
    operator = hf.keyed("k", Surroundings(), SURROUNDINGS, name="here")
    first = seen(stream.run(operator))
    stream.roll_back(1)
    assert seen(stream.run(operator)) == first[1:]


def test_each_slot_of_a_task_has_a_processor_of_its_own(stream: FileStream) -> None:
    """Two tasks run eight slots: what the processor kept of one slot was there in the next. A broadcast variable is all
    of theirs: where it has arrived, Spark lets nobody copy it.
    """
    stream.write(pa.table({"k": list(range(200))}))
    broadcast = stream.spark.sparkContext.broadcast("has arrived")
    operator = hf.keyed("k", Remembering(broadcast), "slot int, seen int", name="here", settings={"slots": 8})
    [rows] = seen(stream.run(operator))
    assert [(row["slot"], row["seen"]) for row in rows] == [(slot, slot) for slot in range(8)]


def timed(*minutes: int) -> pa.Table:
    times = [START + timedelta(minutes=minute) for minute in minutes]
    return pa.table({"k": list(range(len(minutes))), "ts": pa.array(times, pa.timestamp("us", "UTC"))})


@pytest.mark.parametrize("inherited", [False, True], ids=["declared", "inherited"])
def test_the_watermark_moves_and_drops_nothing(stream: FileStream, inherited: bool) -> None:
    stream.write(timed(*range(40)), timed(*range(60, 100)), timed(*[0] * 40), timed(*[101] * 40))
    operator = hf.keyed(
        "k", Surroundings(), SURROUNDINGS, name="here", watermark=None if inherited else ("ts", "10 minutes")
    )
    events = stream.events()
    query = stream.start((events.withWatermark("ts", "10 minutes") if inherited else events).transform(operator))
    query.awaitTermination()
    output = seen([table for _, table in sorted(stream.output.items()) if table.num_rows])
    assert [sum(row["rows"] for row in rows) for rows in output] == [40, 40, 40, 40]
    marks = [{row["watermark_ms"] for row in rows} for rows in output]
    at = int(START.timestamp() * 1000)
    assert marks == [{0}, {at + 29 * 60_000}, {at + 89 * 60_000}, {at + 89 * 60_000}]


@pytest.mark.parametrize("inherited", [False, True], ids=["declared", "inherited"])
def test_times_of_any_year_move_the_watermark_as_far_as_they_can(stream: FileStream, inherited: bool) -> None:
    """A row of a year outside 1677 to 2262 ended a query with a watermark of its own for good."""
    years = [datetime(1, 1, 1, tzinfo=timezone.utc), datetime(9999, 12, 31, tzinfo=timezone.utc), START]
    kind = pa.timestamp("us", "UTC")
    stream.write(*(pa.table({"k": list(range(40)), "ts": pa.array([at] * 40, kind)}) for at in years))
    declared = None if inherited else ("ts", "10 minutes")
    operator = hf.keyed("k", Surroundings(), SURROUNDINGS, name="here", watermark=declared)
    events = stream.events()
    query = stream.start((events.withWatermark("ts", "10 minutes") if inherited else events).transform(operator))
    query.awaitTermination()
    output = seen([table for _, table in sorted(stream.output.items()) if table.num_rows])
    assert [sum(row["rows"] for row in rows) for rows in output] == [40, 40, 40]
    last = datetime(9999, 12, 31, tzinfo=timezone.utc) if inherited else datetime(2262, 4, 11, tzinfo=timezone.utc)
    reached = int((last - timedelta(minutes=10)).timestamp() * 1000)
    assert [{row["watermark_ms"] for row in rows} for rows in output] == [{0}, {0}, {reached}]


def test_watermarks_in_a_chain_of_operators(stream: FileStream, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
    stream.write(timed(*range(40)), timed(*range(60, 100)))
    first = hf.keyed("k", Passing(), "k long, ts timestamp", name="first", watermark=("ts", "10 minutes"))
    second = hf.keyed("k", Surroundings(), SURROUNDINGS, name="second", watermark=("ts", "10 minutes"))
    output = seen(
        [table for table in stream.run(lambda frame: frame.transform(first).transform(second)) if table.num_rows]
    )
    assert [sum(row["rows"] for row in rows) for rows in output] == [40, 40]


@pytest.mark.parametrize("aside", [False, True], ids=["main", "side"])
def test_a_schema_taken_from_a_dataframe_brings_no_watermark_with_it(
    stream: FileStream, spark: SparkSession, aside: bool
) -> None:
    """Behind an operator Spark tells none: the note of one in a column's metadata refused ``watermark=`` there, and
    without it the watermark was 0 for ever.
    """
    spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
    stream.write(timed(*range(40)), timed(*range(60, 100)), timed(*range(110, 120)))
    events = stream.events().withWatermark("ts", "10 minutes")
    tag = hf.SideOutput("more", events.schema)
    first = hf.keyed("k", Passing(), events.schema, name="first", side_outputs=[tag] if aside else [])
    second = hf.keyed("k", Surroundings(), SURROUNDINGS, name="second", watermark=("ts", "10 minutes"))
    passed = events.transform(first)
    assert not (aside and any(field.metadata for field in hf.select_output(passed, tag).schema.fields))
    query = stream.start((hf.select_output(passed) if aside else passed).transform(second))
    query.awaitTermination()
    output = seen([table for _, table in sorted(stream.output.items()) if table.num_rows])
    at = int(START.timestamp() * 1000)
    assert [{row["watermark_ms"] for row in rows} for rows in output] == [
        {0},
        {at + 29 * 60_000},
        {at + 89 * 60_000},
    ]


def test_a_second_watermark_is_refused(stream: FileStream) -> None:
    stream.write(timed(1))
    operator = hf.keyed("k", Surroundings(), SURROUNDINGS, name="here", watermark=("ts", "1 minute"))
    with pytest.raises(hf.InvalidRequest, match="already has a watermark"):
        stream.events().withWatermark("ts", "10 minutes").transform(operator)
