"""Side outputs and late rows below Spark: where rows go, what is refused, what is counted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark
from tests.unit.state_bench import USER, bind, make_context, make_store, purchases

import holdfast as hf
from holdfast.spark.inputs import InputFrame
from holdfast.spark.side_outputs import side_schemas
from holdfast.state import BatchCounts, Input, TaggedRows, check_side_outputs

REFUSED = hf.SideOutput("refused")
SMALL = hf.SideOutput("small")
REASON = pa.schema([pa.field("user", pa.string()), pa.field("why", pa.string(), False)])
SIDES = {"refused": REASON, "small": USER}
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
AT_MS = int(START.timestamp() * 1000)


class Sorting(hf.BatchProcessor):
    """Users of more than three letters to the main output, those of two or three aside, one letter is refused."""

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[Any]:
        for user in batch["user"].to_pylist():
            if len(user) == 1:
                ctx.output(REFUSED, (user, "too short"))
            elif len(user) <= 3:
                ctx.output(SMALL, [{"user": user}])
            else:
                yield {"user": user}


class SortingByKey(hf.KeyedProcessor):
    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
        return [list(Sorting().process(rows.select(["user"]).to_batches()[0], ctx))]


def gathered(given: list[TaggedRows]) -> dict[str | None, list[dict[str, Any]]]:
    found: dict[str | None, list[dict[str, Any]]] = {}
    for output, rows in given:
        found.setdefault(output, []).extend(rows.to_pylist())
    return found


def outputs(processor: Any, *batches: pa.RecordBatch, **options: Any) -> dict[str | None, list[dict[str, Any]]]:
    ctx = make_context()
    with bind(processor, USER, **{"side_outputs": SIDES, **options}) as bound:
        given = [tagged for batch in batches for tagged in bound.process(batch, ctx)]
        return gathered([*given, *bound.finish(ctx)])


@pytest.mark.parametrize("processor", [Sorting(), SortingByKey()], ids=["batch", "keyed"])
def test_each_output_gets_its_rows_in_their_order(processor: Any) -> None:
    users = ["grace", "a", "bob", "edgar", "b", "ada", "henry"]
    found = outputs(processor, purchases(users[:3], [1] * 3), purchases(users[3:], [1] * 4))
    assert [row["user"] for row in found[None]] == ["grace", "edgar", "henry"]
    assert found["refused"] == [{"user": "a", "why": "too short"}, {"user": "b", "why": "too short"}]
    assert [row["user"] for row in found["small"]] == ["bob", "ada"]


def test_rows_that_open_sends_are_not_lost() -> None:
    class Opening(hf.BatchProcessor):
        def open(self, ctx: hf.Context) -> None:
            ctx.output(SMALL, {"user": "open"})

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            return None

    assert outputs(Opening()) == {"small": [{"user": "open"}]}


def test_large_side_outputs_do_not_wait_for_the_end() -> None:
    """A keyed processor's rows aside leave with their chunk: all of them at once could be many times the input."""

    class Aside(hf.KeyedProcessor):
        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            ctx.output(SMALL, {"user": key[0]})

    batch = purchases([f"u{i}" for i in range(5000)], [0] * 5000)
    ctx = make_context()
    with bind(Aside(), USER, side_outputs=SIDES) as bound:
        pieces = [*bound.process(batch, ctx), *bound.finish(ctx)]
    assert len(pieces) > 2
    assert sum(rows.num_rows for _, rows in pieces) == 5000


@pytest.mark.parametrize(
    ("tag", "rows", "message"),
    [
        (hf.SideOutput("other"), {"user": "x"}, r"no side output 'other', it has 'refused', 'small'; add the tag"),
        ("small", {"user": "x"}, r"expected an hf\.SideOutput, found str 'small'"),
        (SMALL, {"name": "x"}, r"side output 'small' column 'user' is missing"),
        (SMALL, 7, r"side output 'small': expected a dict"),
        (REFUSED, {"user": "x", "why": None}, r"side output 'refused' column 'why': .* without nulls"),
    ],
)
def test_what_fits_no_side_output_is_refused(tag: Any, rows: Any, message: str) -> None:
    class Wrong(hf.BatchProcessor):
        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            ctx.output(tag, rows)

    with pytest.raises(hf.InvalidRequest, match=message):
        outputs(Wrong(), purchases(["ada"], [1]))


def test_a_row_that_was_refused_aside_is_not_forgotten_when_the_processor_catches_the_error() -> None:
    """Dead letters are sent from except clauses, which would swallow that the letter itself was lost."""

    class Catching(hf.BatchProcessor):
        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> pa.RecordBatch:
            try:
                ctx.output(SMALL, [{"user": "kept"}, 7])
            except hf.InvalidRequest:
                pass
            return batch.select(["user"])

    with pytest.raises(hf.InvalidRequest, match="side output 'small': expected a dict"):
        outputs(Catching(), purchases(["ada"], [1]))


def test_rows_after_the_end_are_refused() -> None:
    class Closing(hf.BatchProcessor):
        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            self.ctx = ctx

        def close(self) -> None:
            self.ctx.output(SMALL, {"user": "late"})

    with pytest.raises(hf.InvalidRequest, match="the slot's rows are done"):
        outputs(Closing(), purchases(["ada"], [1]))


def test_a_bare_context_has_no_side_outputs() -> None:
    with pytest.raises(hf.InvalidRequest, match="bare context"):
        make_context().output(SMALL, {"user": "x"})


@pytest.mark.parametrize("name", ["", "main", "MAIN", "two words", "1st", "a" * 65, "a.b", None])
def test_a_name_that_is_no_column_is_refused(name: Any) -> None:
    with pytest.raises(hf.InvalidRequest, match="SideOutput: name is"):
        hf.SideOutput(name)


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ([hf.SideOutput("late"), hf.SideOutput("LATE")], "two side outputs are named 'late' and 'LATE'"),
        (hf.SideOutput("late"), "expected a list"),
        (["late"], r"expected an hf\.SideOutput"),
        ([hf.SideOutput(f"s{i}") for i in range(251)], "251 side outputs; at most 250"),
    ],
)
def test_wrong_side_outputs_are_refused(tags: Any, message: str) -> None:
    with pytest.raises(hf.InvalidRequest, match=message):
        check_side_outputs(tags, "operator 'totals'")


def timed(*seconds: int | None) -> pa.RecordBatch:
    times = [None if at is None else START + timedelta(seconds=at) for at in seconds]
    return pa.record_batch(
        {"user": [str(at) for at in seconds], "ts": pa.array(times, pa.timestamp("us", "UTC"))},
    )


class Names(hf.BatchProcessor):
    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> pa.RecordBatch:
        return batch.select(["user"])


class NamesByKey(hf.KeyedProcessor):
    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> dict[str, Any]:
        return {"user": key[0]}


@pytest.mark.parametrize("processor", [Names(), NamesByKey()], ids=["batch", "keyed"])
@pytest.mark.parametrize(
    ("late", "main", "aside"),
    [
        ("keep", ["0", "9", "10", "11", "None"], None),
        ("drop", ["11", "None"], None),
        (hf.SideOutput("late"), ["11", "None"], ["0", "9", "10"]),
    ],
    ids=["keep", "drop", "aside"],
)
def test_late_rows_go_where_the_input_says_and_are_counted(processor: Any, late: Any, main: Any, aside: Any) -> None:
    """A row at the watermark is late, as in Flink and Spark; one without a time is not."""
    batch = timed(0, 9, 10, 11, None)
    ctx = make_context(watermark_ms=AT_MS + 10_000)
    inputs = [Input(event_time="ts", late=late)]
    with bind(processor, USER, inputs=inputs, side_outputs={"late": batch.schema}) as bound:
        found = gathered([*bound.process(batch, ctx), *bound.finish(ctx)])
    assert [row["user"] for row in found[None]] == main
    assert [row["user"] for row in found["late"]] == aside if aside else "late" not in found
    told = {"keep": "late_rows_kept", "drop": "late_rows_dropped"}.get(late, "late_rows_aside")
    assert bound.counts == BatchCounts(**{told: 3})


@pytest.mark.parametrize("watermark_ms", [None, 0])
def test_nothing_is_late_before_the_first_watermark(watermark_ms: int | None) -> None:
    """Spark tells the first batch 0, by which rows of before 1970 would be late: they would be lost."""
    batch = timed(0).set_column(
        1, "ts", pa.array([datetime(1960, 1, 1, tzinfo=timezone.utc)], pa.timestamp("us", "UTC"))
    )
    ctx = make_context(watermark_ms=watermark_ms)
    with bind(Names(), USER, inputs=[Input(event_time="ts", late="drop")]) as bound:
        assert gathered([*bound.process(batch, ctx), *bound.finish(ctx)]) == {None: [{"user": "0"}]}
    assert bound.counts == BatchCounts()


@pytest.mark.parametrize(("known", "said", "fits"), [(False, True, True), (False, False, True), (True, False, False)])
def test_a_schema_for_late_rows_may_say_less_of_nulls_than_spark_knows(known: bool, said: bool, fits: bool) -> None:
    """Whether a field within a column has nulls follows from the plan; DDL says it of none."""
    inner = [
        spark.StructType([spark.StructField("region", spark.StringType(), nullable)]) for nullable in (known, said)
    ]
    rows, own = (spark.StructType([spark.StructField("at", kind, True)]) for kind in inner)
    tag = hf.SideOutput("late", own)
    frame: Any = SimpleNamespace(schema=rows)
    inputs = [InputFrame(None, frame, "user", ("ts", "1 minute"), tag)]
    if fits:
        assert side_schemas([tag], inputs, "o") == {"late": own}
    else:
        with pytest.raises(hf.InvalidRequest, match="its columns are at struct<region: string not null>; late rows"):
            side_schemas([tag], inputs, "o")


def test_late_rows_touch_no_state() -> None:
    class Total(hf.BatchProcessor):
        total = hf.ReducingState(pa.int64(), "sum")

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            self.total.add_only(batch, 1)

    store = make_store()
    with bind(Total(), USER, store, inputs=[Input(event_time="ts", late="drop")]) as bound:
        ctx = make_context(watermark_ms=AT_MS)
        assert list(bound.process(timed(-5, 0), ctx)) == []
        list(bound.finish(ctx))
    assert pa.record_batch(store.take_delta()).num_rows == 0
