"""Metrics of operators in real Spark: what plain Python counts over the same input, whatever the sink, over restarts,
replays and tasks that run again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.counting_processors import Counting, KilledOnce
from tests.integration import test_side_outputs_in_spark as with_sides
from tests.integration import test_together as together
from tests.processors import TOTALS, RunningTotal
from tests.spark_sessions import run_module
from tests.streams import FileStream
from tests.timer_processors import REMINDERS, Reminders

import holdfast as hf
from holdfast.spark.metrics import operators_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark
SLOTS = 2


def events(number: int) -> pa.Table:
    users = [f"u{(number * 7 + row * row) % 23}" for row in range(100)]
    return pa.table({"user": users, "amount": list(range(number, number + 100))})


def counted(number: int) -> dict[str, Any]:
    """Of one batch, by plain Python."""
    rows = events(number).to_pylist()
    return {
        "rows_in": {"input": len(rows)},
        "rows_out": {"main": len(rows)},
        "entries_written": len({row["user"] for row in rows}),
        "lookups": len(rows),
        "counters": {"amount": sum(row["amount"] for row in rows)},
    }


def told(query: StreamingQuery, operator: str) -> dict[int, hf.OperatorMetrics]:
    """By batch, all that Spark still knows of a query."""
    found = [operators_in(progress) for progress in query.recentProgress]
    return {one[operator].batch_id: one[operator] for one in found if operator in one}


def part(metrics: hf.OperatorMetrics) -> dict[str, Any]:
    return {name: getattr(metrics, name) for name in counted(0)}


def finished(writer: Any, checkpoint: Path) -> StreamingQuery:
    query = hf.start(writer.trigger(availableNow=True), checkpoint=checkpoint)
    query.awaitTermination()
    return query


def totals(processor: Any, **options: Any) -> Any:
    return hf.keyed("user", processor, TOTALS, **{"name": "totals", **options})


def test_a_plain_sink_restarts_and_a_replay(stream: FileStream, tmp_path: Path) -> None:
    stream.write(*map(events, range(3)))
    writer = stream.events().transform(totals(Counting())).writeStream.format("noop")
    query = finished(writer, stream.checkpoint)
    found = told(query, "totals")
    assert {number: part(one) for number, one in found.items()} == {number: counted(number) for number in range(3)}
    assert hf.metrics(query) == {"totals": found[2]}, "the last batch, also of a query that has ended"
    assert found[0].opened == {"new": SLOTS}
    assert all(one.slots == SLOTS and one.delta_bytes > 0 and one.memory_bytes > 0 for one in found.values())
    assert all(0 < one.slot_ms_max <= one.slot_ms_sum for one in found.values())

    stream.roll_back(1)
    stream.write(events(3))
    found = told(finished(writer, stream.checkpoint), "totals")
    assert {number: part(one) for number, one in found.items()} == {2: counted(2), 3: counted(3)}, "2 once, as replayed"


def test_an_idle_query_has_the_figures_of_its_last_batch_when_spark_has_forgotten_it(
    stream: FileStream, spark: SparkSession
) -> None:
    """Spark tells of a query without a batch to run under the number of the next one."""
    few = {"spark.sql.streaming.numRecentProgressUpdates": "4", "spark.sql.streaming.noDataProgressEventInterval": "50"}
    stream.write(events(0))
    for name, value in few.items():
        spark.conf.set(name, value)
    try:
        writer = stream.events().transform(totals(Counting())).writeStream.format("noop")
        query = hf.start(writer.trigger(processingTime="50 milliseconds"), checkpoint=stream.checkpoint)
    finally:
        for name in few:
            spark.conf.unset(name)
    try:
        query.processAllAvailable()
        assert part(hf.metrics(query)["totals"]) == counted(0)
        while told(query, "totals"):
            time.sleep(0.1)
        assert {progress.batchId for progress in query.recentProgress} == {1}
        found = hf.metrics(query)["totals"]
        assert (found.batch_id, part(found)) == (0, counted(0))
    finally:
        query.stop()


def test_foreach_batch_and_two_operators_of_which_one_worker_is_killed(
    stream: FileStream, spark: SparkSession, tmp_path: Path
) -> None:
    """The first operator's slots are followed by a shuffle."""
    spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
    stream.write(*map(events, range(2)))
    marker = tmp_path / "killed"

    def two(frame: DataFrame) -> DataFrame:
        first = frame.transform(totals(KilledOnce(str(marker)), name="first"))
        return first.drop("total").transform(totals(RunningTotal(), name="second"))

    query = stream.start(two(stream.events()))
    query.awaitTermination()
    assert marker.exists()
    assert sum(len(table) for table in stream.output.values()) == 200
    assert {number: part(one) for number, one in told(query, "first").items()} == {0: counted(0), 1: counted(1)}
    without = {number: {**counted(number), "counters": {}} for number in range(2)}
    assert {number: part(one) for number, one in told(query, "second").items()} == without
    assert set(hf.metrics(query)) == {"first", "second"}


def test_a_stage_that_runs_again_for_lost_shuffle_files_counts_once(tmp_path: Path) -> None:
    """Spark's observed metrics have both runs of its slots, up to some release."""
    told = json.loads(run_module("tests.integration.lost_shuffle_query", str(tmp_path), timeout_s=300).stdout)
    first, second = (told["metrics"][name] for name in ("first", "second"))
    assert told["runs"] > first["slots"] > 0, "the stage ran again"
    assert {name: first[name] for name in counted(0)} == counted(0)
    assert {name: second[name] for name in counted(0)} == {**counted(0), "counters": {}}


def test_side_outputs_late_rows_and_a_batch_whose_output_was_visible(stream: FileStream, tmp_path: Path) -> None:
    outputs = with_sides.Outputs(stream, tmp_path)
    batches = [with_sides.events(number) for number in range(4)]
    expected = with_sides.expected(batches)

    def run() -> dict[int, hf.OperatorMetrics]:
        routes = {None: "main", with_sides.LATE: "late", with_sides.REFUSED: "refused"}
        sinks = {tag: hf.FileSink(outputs.paths[name], name=name) for tag, name in routes.items()}
        query = hf.write_exactly_once(
            outputs.frame(), sinks, checkpoint=stream.checkpoint, trigger={"availableNow": True}
        )
        query.awaitTermination()
        return told(query, "totals")

    stream.write(*batches)
    found = run()
    assert sorted(found) == list(range(4))
    assert all(one.rows_in == {"input": 300} for one in found.values())
    for name, rows in expected.items():
        assert sum(one.rows_out.get(name, 0) for one in found.values()) == len(rows), name
    assert sum(one.late_rows_aside for one in found.values()) == len(expected["late"])
    assert not any(one.late_rows_kept or one.late_rows_dropped or one.slots_taken_over for one in found.values())

    stream.roll_back(1)  # after the commit record: nothing of it is computed again
    [(number, again)] = run().items()
    assert number == 3
    assert again.slots == again.slots_taken_over > 0
    assert (again.rows_in, again.rows_out, again.lookups) == ({}, {}, 0)
    assert again.delta_bytes == found[3].delta_bytes, "of the version that was taken over"
    assert outputs.found() == expected


def test_several_inputs_timers_and_a_time_to_live(streams: Callable[[str], FileStream], tmp_path: Path) -> None:
    orders, payments = streams("orders"), streams("payments")
    numbers = range(together.BATCHES)
    orders.write(*map(together.orders, numbers))
    payments.write(*map(together.payments, numbers))
    frame = hf.connect(
        {"orders": orders.events(), "payments": payments.events()},
        {"orders": "order_id", "payments": "order"},
        together.WaitingByKey(),
        together.PAID,
        name="waiting",
        watermark=together.MARKS,
        side_outputs=[together.UNPAID],
        ticks="never",
        settings={"slots": 1},
    )
    query = finished(frame.writeStream.format("noop"), tmp_path / "checkpoint")
    found = told(query, "waiting")
    paid, unpaid = together.expected()
    assert len(paid) > 0
    rows_in = {number: one.rows_in for number, one in found.items() if number in numbers}
    assert rows_in == {number: {"orders": 100, "payments": 150} for number in numbers}
    by_batch: dict[int, int] = dict.fromkeys(found, 0)
    for *_, number in unpaid:
        by_batch[number] += 1
    assert {number: one.timers_fired for number, one in found.items() if number in numbers} == by_batch
    assert {number: one.rows_out.get("unpaid", 0) for number, one in found.items()} == by_batch
    assert sum(one.timers_registered for one in found.values()) == 100 * together.BATCHES
    assert sum(one.entries_expired for one in found.values()) > 0


def test_before_the_first_batch_between_batches_and_without_operators(stream: FileStream, tmp_path: Path) -> None:
    stream.write(pa.table({"user": ["a", "b"], "seconds": [0, 1]}))
    plain = finished(stream.events().writeStream.format("noop"), tmp_path / "plain")
    assert plain.lastProgress is not None
    assert hf.metrics(plain) == {}
    operator = hf.keyed("user", Reminders(), REMINDERS, name="reminders", ticks="1 second")
    query = stream.start(stream.events().transform(operator), processingTime="200 milliseconds")
    try:
        seen = [hf.metrics(query)]
        assert seen == [{}], "no batch has ended"
        until = time.monotonic() + 180
        while sum(one["reminders"].timers_fired for one in seen if one) < 2 or seen[-1]["reminders"].slots:
            assert query.isActive, query.exception()
            assert time.monotonic() < until, seen
            found = hf.metrics(query)
            if found != seen[-1]:
                seen.append(found)
            time.sleep(0.05)
        assert all(seen[1:]), "ticks without a timer are batches too, in which no slot is called"
        assert seen[-1]["reminders"].batch_id > 0
    finally:
        query.stop()
    assert hf.metrics(query)["reminders"].rows_in == {}


def test_a_listener_sees_each_batch_and_outlives_its_callback(stream: FileStream, spark: SparkSession) -> None:
    stream.write(*map(events, range(3)))
    seen: list[hf.BatchMetrics] = []

    def callback(batch: hf.BatchMetrics) -> None:
        seen.append(batch)
        raise RuntimeError("the monitoring is down")

    listener = hf.MetricsListener(callback)
    spark.streams.addListener(listener)
    try:
        query = stream.start(stream.events().transform(totals(Counting())))
        query.awaitTermination()
        until = time.monotonic() + 180
        while len(seen) < 3 and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(listener)
    assert [batch.batch_id for batch in seen] == [0, 1, 2]
    assert {(batch.query_id, batch.run_id) for batch in seen} == {(str(query.id), str(query.runId))}
    assert [part(batch.operators["totals"]) for batch in seen] == [counted(number) for number in range(3)]
