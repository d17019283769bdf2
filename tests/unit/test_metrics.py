"""What an operator did in a batch: counted by one slot, told as text, added up, and the same in a harness."""

from __future__ import annotations

import json
import logging
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.streaming.query import StreamingQuery
from tests.unit.state_bench import Backend

import holdfast as hf
from holdfast.spark.metrics import RUNS_MAX, log_metrics, operators_in
from holdfast.spark.operator_metrics import OperatorMetrics
from holdfast.spark.slot_metrics import SlotMetrics
from holdfast.testing import Harness

UTC = timezone.utc
NOON = datetime(2027, 1, 15, 12, tzinfo=UTC)
LATE, ODD = hf.SideOutput("late"), hf.SideOutput("odd", "user string")


class Total(hf.BatchProcessor):
    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        ctx.counters.add("batches")
        yield batch.append_column("total", self.total.add(batch, batch["amount"]))


class TotalByKey(hf.KeyedProcessor):
    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[Any]:
        for amount in rows["amount"].to_pylist():
            self.total.add(amount)
            yield key[0], amount, self.total.get()


IN, OUT = "user string, amount long", "user string, amount long, total long"


def rows(**amounts: int) -> list[dict[str, Any]]:
    return [{"user": user, "amount": amount} for user, amount in amounts.items()]


def progress(**observed: Any) -> Any:
    return SimpleNamespace(observedMetrics=observed, batchId=3, id="q", runId="r", name=None, sources=[])


# --- one slot, told and added up
def test_what_a_slot_tells_is_read_as_it_was() -> None:
    told = SlotMetrics(slot=2, task=9, rows_in={"input": 5}, opened="equal", fold_ms=1.26, counters={"ü": -(1 << 62)})
    text = told.to_text()
    assert text.isascii()
    assert json.loads(text).keys() == {"slot", "task", "rows_in", "opened", "fold_ms", "counters"}, "no zeros"
    assert SlotMetrics.from_text(text) == SlotMetrics(
        slot=2, task=9, rows_in={"input": 5}, opened="equal", fold_ms=1.3, counters={"ü": -(1 << 62)}
    )


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[]",
        "{}",
        '["slot"]',
        "1",
        "null",
        '{"slot": "1"}',
        '{"slot": true}',
        '{"rows_in": 3}',
        '{"counters": {"a": 1.5}}',
    ],
)
def test_what_no_slot_told_is_not_counted(text: Any) -> None:
    assert SlotMetrics.from_text(text) is None
    whole = SlotMetrics(slot=1, lookups=4).to_text()
    found = operators_in(progress(**{"holdfast.a.1": {"slots": [text, whole]}}))
    assert (found["a"].slots, found["a"].lookups) == (1, 4)


def test_a_later_holdfast_may_tell_more() -> None:
    assert SlotMetrics.from_text('{"slot": 1, "moons": 4}') == SlotMetrics(slot=1)


def test_slots_are_added_up_and_the_slowest_is_named() -> None:
    told = [
        SlotMetrics(slot=0, rows_in={"a": 1, "b": 2}, lookups=3, opened="restore", slot_ms=5.0, counters={"x": 1}),
        SlotMetrics(slot=1, rows_in={"b": 5}, lookups=4, opened="fallback", slot_ms=7.0, counters={"y": 2, "x": 1}),
        SlotMetrics(slot=2, taken_over=1, opened="equal"),
    ]
    found = OperatorMetrics.of("op", 8, told)
    assert (found.operator, found.batch_id, found.slots, found.slots_taken_over) == ("op", 8, 3, 1)
    assert found.rows_in == {"a": 1, "b": 7}
    assert found.lookups == 7
    assert found.opened == {"equal": 1, "fallback": 1, "restore": 1}
    assert found.restores == 2
    assert (found.slot_ms_max, found.slot_ms_sum) == (7.0, 12.0)
    assert found.counters == {"x": 2, "y": 2}
    with pytest.raises(FrozenInstanceError):
        found.lookups = 1  # type: ignore[misc]


def test_every_figure_of_a_slot_reaches_the_operators_metrics() -> None:
    names = {one.name: str(one.type) for one in fields(SlotMetrics)}
    told: dict[str, Any] = {
        name: {"dict[str, int]": {"n": number}, "int": number, "float": float(number), "str": f"way {number}"}[kind]
        for number, (name, kind) in enumerate(names.items(), 2)
    }
    found = OperatorMetrics.of("op", 0, [SlotMetrics(**told)]).to_dict()
    for name, value in told.items():
        if name in ("slot", "task"):
            continue
        also = {"taken_over": "slots_taken_over", "slot_ms": "slot_ms_sum"}.get(name, name)
        also = f"{also}_max" if also in ("open_ms", "prepare_ms") else also
        assert found[also] == ({value: 1} if name == "opened" else value), name


def test_a_task_that_ran_again_counts_once_as_it_ran_last() -> None:
    """Spark's observed metrics have both, where a stage ran again for a shuffle file that was lost."""
    first, again = SlotMetrics(slot=1, task=4, lookups=10), SlotMetrics(slot=1, task=12, lookups=11)
    for told in ([first, again], [again, first]):
        found = OperatorMetrics.of("op", 0, told)
        assert (found.slots, found.lookups) == (1, 11)


def test_metrics_are_json() -> None:
    told = OperatorMetrics.of("op", 0, [SlotMetrics(opened="restore")]).to_dict()
    assert json.loads(json.dumps(told)) == told
    assert told["restores"] == 1


def test_the_guide_explains_every_figure() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/guide/metrics.md").read_text(encoding="utf-8")
    of_operators, of_sources = (
        {name for row in re.findall(r"^\| (`.*?) \|", part, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
        for part in page.split("## Sources that wait")
    )
    assert of_operators == OperatorMetrics.of("op", 0, ()).to_dict().keys()
    assert of_sources == hf.SourceStall(0, "t", 0, 1, 2, 3, 4).to_dict().keys()


# --- what Spark tells
@pytest.mark.parametrize(
    "observed",
    [{}, None, {"mine": {"rows": 1}}, {"holdfast.": {}}, {"holdfast.a": {"slots": []}}, {"holdfast.a.1": {}}],
)
def test_what_is_not_of_an_operator_is_none(observed: Any) -> None:
    assert operators_in(SimpleNamespace(observedMetrics=observed, batchId=1)) == {}  # type: ignore[arg-type]


def test_names_of_operators_may_have_dots() -> None:
    slots = {"slots": [SlotMetrics(slot=0, lookups=1).to_text()]}
    found = operators_in(
        progress(**{"holdfast.a.b.1f": slots, "holdfast.0.2e": {"slots": []}, "holdfast.c.3": {"slots": None}})
    )
    assert [(name, one.operator, one.slots) for name, one in found.items()] == [
        ("0", "0", 0),
        ("a.b", "a.b", 1),
        ("c", "c", 0),
    ]


def test_metrics_of_what_is_no_query_are_refused() -> None:
    with pytest.raises(hf.InvalidRequest, match="expected a StreamingQuery"):
        hf.metrics("query")  # type: ignore[arg-type]
    with pytest.raises(hf.InvalidRequest, match="expected a function"):
        hf.MetricsListener("log")  # type: ignore[arg-type]


def test_a_jvm_that_is_gone_is_unavailable() -> None:
    class Gone(StreamingQuery):
        def __init__(self) -> None:
            pass

        @property
        def lastProgress(self) -> Any:
            raise ConnectionRefusedError(111, "Connection refused")

    with pytest.raises(hf.Unavailable, match="Spark's driver is gone"):
        hf.metrics(Gone())


class Idle(StreamingQuery):
    """A query as Spark tells of it: the last hundred progresses, without observed metrics where no batch ran."""

    def __init__(self, run: str) -> None:
        self.run, self.told, self.read = run, deque[Any](maxlen=100), 0

    def batch(self, number: int) -> None:
        slots = {"slots": [SlotMetrics(slot=0, rows_in={"input": number}).to_text()]}
        self.told.append(self._progress(number, {"holdfast.a.1": slots}))

    def idle(self, following: int, times: int) -> None:
        self.told.extend(self._progress(following, {}) for _ in range(times))

    def _progress(self, number: int, observed: dict[str, Any]) -> Any:
        return SimpleNamespace(observedMetrics=observed, batchId=number, runId=self.run, sources=[])

    @property
    def lastProgress(self) -> Any:
        return self.told[-1] if self.told else None

    @property
    def recentProgress(self) -> Any:
        self.read += 1
        return list(self.told)


def rows_of(query: StreamingQuery) -> dict[str, dict[str, int]]:
    return {name: one.rows_in for name, one in hf.metrics(query).items()}


def test_a_query_that_is_idle_for_long_has_the_figures_of_its_last_batch() -> None:
    query = Idle("long idle")
    query.idle(0, 3)
    assert rows_of(query) == {}
    query.batch(0)
    query.idle(1, 2)
    assert rows_of(query) == {"a": {"input": 0}}
    query.batch(1)
    query.idle(2, 1)
    for _ in range(300):
        assert rows_of(query) == {"a": {"input": 1}}
        query.idle(2, 1)
    assert query.read == 3, "once for each time that it became idle"
    again = Idle("long idle")
    again.told = query.told
    assert rows_of(again) == {"a": {"input": 1}}, "another object of the same run"


def test_who_saw_the_last_batch_itself_has_its_figures_once_spark_has_forgotten_it() -> None:
    query = Idle("seen")
    query.batch(7)
    assert rows_of(query) == {"a": {"input": 7}}
    query.idle(8, 150)
    assert rows_of(query) == rows_of(query) == {"a": {"input": 7}}


def test_figures_of_an_earlier_batch_are_not_told_as_those_of_the_last() -> None:
    query = Idle("unseen")
    query.batch(7)
    assert rows_of(query) == {"a": {"input": 7}}
    query.batch(8)
    query.idle(9, 150)
    assert rows_of(query) == {}, "nobody asked while Spark knew batch 8"
    query.batch(9)
    assert rows_of(query) == {"a": {"input": 9}}


def test_figures_of_few_runs_are_kept() -> None:
    first = Idle("run 0")
    first.batch(0)
    for number in range(1, RUNS_MAX + 1):
        assert rows_of(first) == {"a": {"input": 0}}
        other = Idle(f"run {number}")
        other.batch(number)
        hf.metrics(other)
    for query in (first, other):
        query.idle(query.told[-1].batchId + 1, 150)
        assert rows_of(query) != {}
    for number in range(RUNS_MAX):
        other = Idle(f"later run {number}")
        other.batch(number)
        hf.metrics(other)
    assert rows_of(first) == {}


def test_a_listener_is_called_for_batches_with_operators_only() -> None:
    seen: list[hf.BatchMetrics] = []
    listener = hf.MetricsListener(seen.append)
    slots = {"slots": [SlotMetrics(slot=0, lookups=1).to_text()]}
    listener.onQueryProgress(SimpleNamespace(progress=progress(mine={"n": 1})))  # type: ignore[arg-type]
    assert seen == []
    listener.onQueryProgress(SimpleNamespace(progress=progress(**{"holdfast.a.1": slots})))  # type: ignore[arg-type]
    [batch] = seen
    assert (batch.query_id, batch.run_id, batch.query_name, batch.batch_id) == ("q", "r", None, 3)
    assert batch.operators["a"].lookups == 1
    assert json.loads(json.dumps(batch.to_dict())) == batch.to_dict()


def test_a_callback_that_fails_is_said_once_and_called_again(caplog: pytest.LogCaptureFixture) -> None:
    calls = []

    def callback(batch: hf.BatchMetrics) -> None:
        calls.append(batch)
        raise RuntimeError("the monitoring is down")

    listener = hf.MetricsListener(callback)
    event: Any = SimpleNamespace(progress=progress(**{"holdfast.a.1": {"slots": []}}))
    with caplog.at_level(logging.INFO, "holdfast.metrics"):
        for _ in range(3):
            listener.onQueryProgress(event)
    assert len(calls) == 3
    [said] = caplog.records
    assert said.levelno == logging.ERROR
    assert "the monitoring is down" in str(said.exc_text)


def test_a_line_for_each_operator_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    told = [OperatorMetrics.of(name, 12, [SlotMetrics(rows_in={"input": 70})]) for name in ("a", "totals")]
    batch = hf.BatchMetrics("0f" * 16, "run", None, 12, {one.operator: one for one in told})
    with caplog.at_level(logging.INFO, "holdfast.metrics"):
        log_metrics(batch)
    first, second = (record.getMessage() for record in caplog.records)
    assert len(first) == len(second), "aligned"
    assert "batch     12  totals" in second
    assert "in        70" in second


# --- what a batch counts, in a harness
@pytest.mark.parametrize("processor", [Total(), TotalByKey()], ids=["batch", "keyed"])
@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_rows_and_entries_of_a_batch(processor: Any, backend: Backend) -> None:
    with Harness(processor, "user", IN, OUT, backend=backend) as harness:
        with pytest.raises(hf.InvalidRequest, match="process a batch first"):
            harness.metrics  # noqa: B018
        harness.process(rows(ada=1, bob=2), rows(ada=3))
        found = harness.metrics
        assert (found.operator, found.batch_id, found.slots) == ("under-test", 0, 1)
        assert (found.rows_in, found.rows_out) == ({"input": 3}, {"main": 3})
        assert (found.entries_written, found.entries_removed, found.entries_expired) == (2, 0, 0)
        assert found.lookups >= 2
        assert found.delta_bytes > 0
        assert found.memory_entries >= 2
        assert found.memory_bytes > 0
        assert found.slot_ms_max == found.slot_ms_sum > 0
        assert found.opened == {"new": 1}
        harness.process(rows(eve=1))
        assert harness.metrics.rows_in == {"input": 1}, "of this batch alone"
        assert harness.metrics.entries_written == 1
        assert harness.metrics.opened == {"equal": 1}


def test_a_replay_and_a_failed_batch_count_for_themselves() -> None:
    class Picky(Total):
        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
            yield from super().process(batch, ctx)
            if pc.min(batch["amount"]).as_py() < 0:
                raise ValueError("below 0")

    with Harness(Picky(), "user", IN, OUT) as harness:
        harness.process(rows(ada=1, bob=2))
        first = harness.metrics
        harness.replay()
        again = harness.metrics
        assert (again.rows_in, again.counters, again.entries_written) == ({"input": 2}, {"batches": 1}, 2)
        assert again.delta_bytes == first.delta_bytes
        with pytest.raises(ValueError, match="below 0"):
            harness.process(rows(ada=-1))
        assert (harness.metrics.batch_id, harness.metrics.slots, harness.metrics.counters) == (1, 0, {})
        harness.process(rows(ada=1))
        assert (harness.metrics.rows_in, harness.metrics.lookups) == ({"input": 1}, 1), "nothing of what failed"


def test_outputs_and_late_rows() -> None:
    class Odd(hf.BatchProcessor):
        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
            ctx.output(ODD, batch.filter(pc.equal(pc.bit_wise_and(batch["amount"], 1), 1)).select(["user"]))
            yield batch.drop_columns(["at"])

    timed = IN + ", at timestamp"
    batch = [{"user": "ada", "amount": n, "at": NOON + timedelta(seconds=n)} for n in range(6)]
    with Harness(Odd(), "user", timed, IN, side_outputs=[ODD], event_time="at", late=LATE) as harness:
        harness.process(batch)
        assert harness.metrics.rows_out == {"main": 6, "odd": 3}
        harness.watermark_ms = int(NOON.timestamp() * 1000) + 1000
        harness.process(batch)
        found = harness.metrics
        assert found.rows_in == {"input": 6}
        assert found.rows_out == {"late": 2, "main": 4, "odd": 2}
        assert (found.late_rows_kept, found.late_rows_dropped, found.late_rows_aside) == (0, 0, 2)


class Alarm(hf.KeyedProcessor):
    due = hf.Timers("processing")

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
        for amount in rows["amount"].to_pylist():
            self.due.register(ctx.timestamp + timedelta(seconds=amount))
        self.due.delete(ctx.timestamp + timedelta(seconds=1000))

    def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: hf.Context) -> Any:
        return {"user": key[0]}


class AlarmByBatch(hf.BatchProcessor):
    due = hf.Timers("processing")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        at = pc.add(pa.scalar(ctx.timestamp), pc.multiply(batch["amount"], 1_000_000).cast(pa.duration("us")))
        self.due.register(batch, at)
        one = pa.record_batch({"user": pc.unique(batch["user"])})
        self.due.delete(one, pa.array([ctx.timestamp + timedelta(seconds=1000)] * len(one), pa.timestamp("us", "UTC")))

    def on_timers(self, batch: pa.RecordBatch, ctx: hf.Context) -> pa.RecordBatch:
        return batch.select(["user"])


@pytest.mark.parametrize("processor", [Alarm(), AlarmByBatch()], ids=["keyed", "batch"])
def test_timers_that_are_set_removed_and_fire(processor: Any) -> None:
    with Harness(processor, "user", IN, "user string") as harness:
        harness.process([*rows(ada=5, bob=5), *rows(ada=20)])
        found = harness.metrics
        assert (found.timers_registered, found.timers_deleted, found.timers_fired) == (3, 2, 0)
        harness.advance(6_000)
        harness.process()
        found = harness.metrics
        assert (found.slots, found.timers_fired, found.timers_registered) == (1, 2, 0)
        assert (found.rows_in, found.rows_out) == ({}, {"main": 2})
        assert found.entries_removed >= 2


@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_entries_that_have_expired(backend: Backend) -> None:
    class Brief(hf.BatchProcessor):
        seen = hf.ValueState(pa.int64(), ttl="10 s")
        all = hf.ListState(pa.int64(), ttl="10 s")

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            self.seen.get(batch)
            self.all.get(batch)
            self.seen.put(batch, batch["amount"])
            self.all.add(batch, batch["amount"])

    with Harness(Brief(), "user", IN, IN, backend=backend) as harness:
        harness.process(rows(ada=1, bob=2, eve=3))
        harness.advance(5_000)
        harness.process(rows(ada=1))
        assert harness.metrics.entries_expired == 0
        harness.advance(8_000)
        harness.process(rows(ada=1, bob=2))
        # ada's list element of the first batch, bob's value and element; eve's are found in memory by themselves
        assert harness.metrics.entries_expired == 5


def test_what_expires_on_disk_is_told_with_the_fold() -> None:
    class Brief(hf.BatchProcessor):
        seen = hf.ValueState(pa.int64(), ttl="10 s")

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            self.seen.put(batch, batch["amount"])

    settings = {"fold.deltas.max": 1, "snapshot.deltas.max": 1}
    with Harness(Brief(), "user", IN, IN, settings=settings) as harness:
        told = []
        for number in range(6):
            harness.process(rows(**{f"u{number}": 1, f"v{number}": 1}))
            told.append(harness.metrics)
            harness._background.drain()
            harness.advance(11_000)
        for one in told[1:]:  # each tells of what was done between it and the batch before
            assert (one.folds, one.snapshots) == (1, 1)
            assert one.fold_ms > 0
            assert one.snapshot_bytes > 0
            assert one.disk_bytes > 0
        assert told[0].folds == 0
        assert sum(one.fold_expired_entries for one in told) == 2 * 4, "all but those of the last two batches"


def test_ways_to_open_a_slot() -> None:
    with Harness(Total(), "user", IN, OUT, settings={"fold.deltas.max": 2, "snapshot.deltas.max": 2}) as harness:
        for number in range(6):
            harness.process(rows(ada=number))
        harness.kill(lose_local_copies=True)
        harness.process(rows(ada=1))
        found = harness.metrics
        assert found.opened == {"restore": 1}
        assert found.restores == 1
        assert found.restored_bytes > 0


def test_a_batch_that_outgrows_its_memory_spills() -> None:
    with Harness(Total(), "user", IN, OUT, settings={"memory.batch.max": "1 MiB"}) as harness:
        batch = pa.table({"user": [f"user{n:030d}" for n in range(40_000)], "amount": list(range(40_000))})
        harness.process(*[batch.slice(at, 4_000) for at in range(0, 40_000, 4_000)])
        found = harness.metrics
        assert found.spills > 0
        assert found.entries_written == 40_000
        assert found.disk_bytes > 0
