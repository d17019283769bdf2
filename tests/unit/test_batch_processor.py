"""Batch processors at work: life cycle, what they may give, and how what is wrong is told."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.unit.state_bench import USER, USER_SHOP, bind, make_context, make_store, purchases, run, users_error

import holdfast as hf
from holdfast.errors import InvalidRequest

TOTALS = pa.schema([("user", pa.string()), ("amount", pa.int64()), ("total", pa.int64())])


class RunningTotal(hf.BatchProcessor):
    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        yield batch.append_column("total", self.total.add(batch, batch["amount"]))


def giving(produced: Any, output: pa.Schema = TOTALS) -> list[dict[str, Any]]:
    """Output rows of a processor that returns this."""

    class Gives(hf.BatchProcessor):
        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
            return produced

    return run(Gives(), [purchases(["ada"], [0])], output)


def test_running_totals_over_batches() -> None:
    store = make_store()
    first = run(RunningTotal(), [purchases(["ada", "bob", "ada"], [1, 2, 3]), purchases(["bob"], [4])], TOTALS, store)
    second = run(RunningTotal(), [purchases(["ada"], [10])], TOTALS, store)
    assert [row["total"] for row in first + second] == [1, 2, 4, 6, 14]


def test_several_key_columns() -> None:
    rows = pa.record_batch(
        {"amount": [1, 2, 3], "shop": pa.array([1, 2, 1], pa.int32()), "user": ["ada", "ada", "ada"]}
    )
    output = pa.schema([("user", pa.string()), ("total", pa.int64())])
    assert [row["total"] for row in run(RunningTotalOnly(), [rows], output, keys=USER_SHOP)] == [1, 2, 4]


class RunningTotalOnly(RunningTotal):
    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
        return pa.record_batch({"total": self.total.add(batch, batch["amount"]), "user": batch["user"]})


def test_a_batch_passes_as_it_is() -> None:
    batch = purchases(["ada"], [1])

    class Passes(hf.BatchProcessor):
        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> pa.RecordBatch:
            return batch

    with bind(Passes(), batch.schema) as bound:
        assert [out is batch for _, out in bound.process(batch, make_context())] == [True]


class Note(NamedTuple):
    user: str
    amount: int
    total: int


class Two(NamedTuple):
    amount: int
    user: str
    total: int


ROW = {"user": "ada", "amount": 1, "total": 2}


@pytest.mark.parametrize(
    "produced",
    [
        pa.record_batch({"user": ["ada"], "amount": [1], "total": [2]}),
        pa.record_batch(
            {"total": pa.array([2], pa.int32()), "amount": [1], "user": pa.array(["ada"], pa.large_string())}
        ),
        pa.table({"user": pa.array(["ada"]).dictionary_encode(), "amount": [1], "total": [2]}),
        pd.DataFrame({"total": [2], "user": ["ada"], "amount": np.array([1], np.int16)}),
        pd.DataFrame({"total": [2.0], "user": ["ada"], "amount": pd.Series([1], dtype=object)}),
        ROW,
        ("ada", 1, 2),
        Note("ada", 1, 2),
        [ROW],
        [[ROW]],
        iter([None, ROW]),
        {"user": "ada", "amount": np.int64(1), "total": 2.0},
    ],
    ids=lambda produced: type(produced).__name__,
)
def test_what_may_be_given(produced: Any) -> None:
    assert giving(produced) == [ROW]


@pytest.mark.parametrize(
    "produced",
    [
        None,
        [],
        iter(()),
        [None],
        pa.table({"user": [], "amount": [], "total": []}),
        pd.DataFrame({"user": [], "amount": [], "total": []}),
        pa.Table.from_pylist([]),
        pa.RecordBatch.from_pylist([]),
        pd.DataFrame([]),
    ],
)
def test_nothing_may_be_given(produced: Any) -> None:
    assert giving(produced) == []


@pytest.mark.parametrize("nothing", [pa.Table.from_pylist([]), pa.RecordBatch.from_pylist([]), pd.DataFrame([])])
def test_rows_made_of_an_empty_list_are_nothing_among_others(nothing: Any) -> None:
    """Who has no rows has no columns: their absence stopped the query."""
    assert giving([ROW, nothing, ROW]) == giving(iter([nothing, ROW, ROW])) == [ROW, ROW]


def test_pieces_of_several_kinds_keep_their_order() -> None:
    frame = pd.DataFrame({"user": ["c"], "amount": [3], "total": [3]})
    table = pa.table({"user": ["d"], "amount": [4], "total": [4]})
    other = pa.table({"total": [5], "user": ["e"], "amount": [5]})
    pieces = [
        {"user": "a", "amount": 1, "total": 1},
        ("b", 2, 2),
        frame,
        frame,
        table,
        table.to_batches()[0],
        other,
        ("f", 6, 6),
    ]
    assert "".join(row["user"] for row in giving(pieces)) == "abccddef"


def test_frames_of_different_types_are_not_mixed_up() -> None:
    """Put together first, 2**53 + 1 would become a float and lose its last digit."""
    frames = [
        pd.DataFrame({"user": ["a"], "amount": [2**53 + 1], "total": [0]}),
        pd.DataFrame({"user": ["b"], "amount": [float("nan")], "total": [0]}),
    ]
    assert [row["amount"] for row in giving(frames)] == [2**53 + 1, None]


@pytest.mark.parametrize(
    ("produced", "message"),
    [
        (
            {"user": "ada", "amount": 1},
            "output column 'total' is missing: expected user, amount, total, found a dict of user, amount",
        ),
        ({**ROW, "tip": 1}, "output has an extra column 'tip': expected user, amount, total"),
        ({"user": "ada", "amount": 1, "totals": 1}, "output column 'total' is missing"),
        ({**ROW, "total": "2"}, r"output column 'total': expected int64, found '2' \(str\)"),
        ({**ROW, "total": 2.5}, r"output column 'total': expected int64, found 2.5"),
        ({**ROW, "user": 7}, r"output column 'user': expected string, found 7 \(int\)"),
        (("ada", 1), r"expected tuples of 3 values \(user, amount, total\), found 2"),
        (
            Two(1, "a", 2),
            "expected the columns user, amount, total in this",
        ),
        (
            pa.table({"user": ["ada"], "amount": [1]}),
            "output column 'total' is missing: .*found a batch of user, amount",
        ),
        (pa.table({**{k: [v] for k, v in ROW.items()}, "tip": [1]}), "extra column 'tip'"),
        (pa.table([["a"], [1], [2], [3]], ["user", "amount", "total", "total"]), "extra column 'total'"),
        (
            pa.table({"user": ["ada"], "amount": [1], "total": ["2"]}),
            "output column 'total': expected int64, found string",
        ),
        (
            pa.table({"user": ["ada"], "amount": [1], "total": [2.5]}),
            "output column 'total': found double, which does not fit int64",
        ),
        (
            pa.table({"user": ["ada"], "amount": [1], "total": [True]}),
            "output column 'total': expected int64, found bool",
        ),
        (
            pd.DataFrame({"user": ["ada"], "amount": [1]}),
            "output column 'total' is missing: .*found a frame of user, amount",
        ),
        (
            pd.DataFrame({"user": [7], "amount": [1], "total": [2]}),
            "output column 'user': expected string, found int64",
        ),
        (pa.table({"user": []}), "output column 'amount' is missing: .*found a batch of user"),
        (pd.DataFrame({"user": []}), "output column 'amount' is missing: .*found a frame of user"),
        (pd.DataFrame(index=[0, 1]), "output column 'user' is missing: .*found a frame of no columns"),
        ("ada", "output: expected a dict, a tuple, .*found str 'ada'"),
        (7, "output: expected a dict, a tuple, .*found int 7"),
        ([7], "output: expected a dict, a tuple, .*found int 7"),
    ],
)
def test_what_is_wrong_is_named(produced: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        giving(produced)


ONLY_USERS = pa.schema([pa.field("user", pa.string(), nullable=False)])


@pytest.mark.parametrize(
    "produced",
    [
        {"user": None},
        pa.table({"user": pa.array([None], pa.string())}),
        pa.table([pa.array([None], pa.string())], schema=ONLY_USERS),
        pa.record_batch([pa.array([None], pa.string())], schema=ONLY_USERS),
    ],
)
def test_nulls_where_none_may_be(produced: Any) -> None:
    """Spark ends with an IllegalStateException of its JVM."""
    with pytest.raises(InvalidRequest, match="output column 'user': expected string without nulls, found 1"):
        giving(produced, ONLY_USERS)


REQUIRED = pa.struct([pa.field("id", pa.int64(), nullable=False)])
DEEP = pa.struct([pa.field("inner", pa.list_(pa.field("element", REQUIRED, nullable=False)))])
OPTIONAL = pa.struct([("id", pa.int64())])


@pytest.mark.parametrize(
    ("type", "given", "value", "path"),
    [
        (REQUIRED, REQUIRED, {"id": None}, "found null in column.id"),
        (REQUIRED, OPTIONAL, {"id": None}, "found null in column.id"),
        (pa.list_(REQUIRED), pa.list_(REQUIRED), [{"id": 1}, {"id": None}], "found null in column.item.id"),
        (DEEP, DEEP, {"inner": [None]}, "found null in column.inner.element"),
        (DEEP, DEEP, {"inner": [{"id": None}]}, "found null in column.inner.element.id"),
        (
            pa.map_(pa.string(), REQUIRED),
            pa.map_(pa.string(), REQUIRED),
            [("a", {"id": None})],
            "found null in column.value.id",
        ),
    ],
)
@pytest.mark.parametrize("form", ["batch", "table", "rows"])
def test_nulls_where_none_may_be_within_a_column(
    type: pa.DataType, given: pa.DataType, value: Any, path: str, form: str
) -> None:
    """In Arrow they came through, and a FileSink told of them without a word of which operator gave them."""
    output = pa.schema([pa.field("column", type)])
    batch = pa.record_batch([pa.array([value, value], given).slice(1)], names=["column"])
    produced = {"batch": batch, "table": pa.Table.from_batches([batch] * 2), "rows": batch.to_pylist()}[form]
    told = path if form != "rows" else "is null where a value must be|found null in"
    with pytest.raises(InvalidRequest, match=f"output column 'column': expected .*({told})"):
        giving(produced, output)


@pytest.mark.parametrize("type", [REQUIRED, pa.list_(REQUIRED), DEEP, pa.map_(pa.string(), REQUIRED)], ids=str)
def test_nulls_below_nulls_may_be_within_a_column(type: pa.DataType) -> None:
    """Spark and Arrow have them there; so has a slice's array before and behind it."""
    there = {"id": 1}
    value = {str(REQUIRED): there, str(DEEP): {"inner": [there]}}.get(str(type))
    if value is None:
        value = [("a", there)] if pa.types.is_map(type) else [there]
    wrong = pa.array([None, {"id": None}], pa.struct([("id", pa.int64())]))
    column = pa.array([None, value, None], type)
    if type.equals(REQUIRED):
        column = pa.concat_arrays([pa.StructArray.from_arrays(wrong.flatten(), fields=list(REQUIRED)), column]).slice(2)
    output = pa.schema([pa.field("column", type)])
    batch = pa.record_batch([column], schema=output)
    expected = [{"column": None}, {"column": value}, {"column": None}]
    for produced in (batch, pa.Table.from_batches([batch]), expected):
        assert giving(produced, output) == expected


def test_types_of_output() -> None:
    output = pa.schema(
        [
            ("at", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
            ("price", pa.decimal128(10, 2)),
            ("nested", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
            ("tags", pa.map_(pa.string(), pa.int64())),
        ]
    )
    row = {
        "at": dt.datetime(2026, 11, 21, 9, tzinfo=dt.timezone.utc),
        "day": dt.date(2026, 11, 21),
        "price": Decimal("1.50"),
        "nested": {"a": 1, "b": ["x", None]},
        "tags": [("k", 1)],
    }
    batch = pa.RecordBatch.from_pylist([row], output)
    narrower = batch.set_column(0, "at", batch["at"].cast(pa.timestamp("ms", "UTC")))
    swapped = pa.array([{"b": ["x", None], "a": 1}], pa.struct([("b", pa.list_(pa.large_string())), ("a", pa.int8())]))
    assert giving([row, narrower, batch.set_column(3, "nested", swapped)], output) == [row] * 3


def test_open_comes_before_the_first_rows_and_close_after_the_last() -> None:
    seen: list[str] = []

    class Notes(hf.BatchProcessor):
        state = hf.ValueState(pa.int64())

        def open(self, ctx: hf.Context) -> None:
            self.state.put(["ada"], [1])
            seen.append(f"open {ctx.batch_id}")

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            seen.append(f"rows {batch.num_rows} of {self.state.get(batch).to_pylist()}")

        def close(self) -> None:
            seen.append("close")
            with pytest.raises(InvalidRequest, match="outside a call"):
                self.state  # noqa: B018

    run(Notes(), [purchases(["ada"], [0]), purchases([], []), purchases(["bob"], [0])], USER)
    assert seen == ["open 1", "rows 1 of [1]", "rows 1 of [None]", "close"]


def test_close_is_called_when_process_fails_and_not_without_open() -> None:
    closed: list[int] = []

    class Fails(hf.BatchProcessor):
        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
            raise KeyError("mine")

        def close(self) -> None:
            closed.append(1)

    with bind(Fails(), USER):
        pass
    assert closed == []
    with pytest.raises((KeyError, RuntimeError)):
        run(Fails(), [purchases(["ada"], [0])], USER)
    assert closed == [1]


@pytest.mark.parametrize("late", [False, True], ids=["at once", "while it yields"])
def test_an_exception_of_the_user_s_comes_through_with_a_note(late: bool) -> None:
    class Fails(hf.BatchProcessor):
        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
            if late:
                return (1 // 0 for _ in range(1))
            return 1 // 0

    with pytest.raises((ZeroDivisionError, RuntimeError)) as caught:
        run(Fails(), [purchases(["ada"], [0])], USER)
    error, note = users_error(caught.value)
    assert isinstance(error, ZeroDivisionError)
    assert note == "while Fails ran operator 'totals', slot 0 of 4, batch 1"


@pytest.mark.parametrize("form", [hf.BatchProcessor, hf.KeyedProcessor])
def test_what_a_generator_returns_is_not_lost_silently(form: type) -> None:
    """One branch yields, the other returns: Python drops what the second gives."""

    def judged(last: Any) -> Any:
        yield {"user": "ada", "amount": 1, "total": 1}
        return last

    class Both(form):
        def process(self, *given: Any) -> Any:
            return judged(self.last)

        last: Any = None

    rows = [purchases(["ada"], [1])]
    nothing: Any
    for nothing in (None, [], ()):
        Both.last = nothing
        assert len(run(Both(), rows, TOTALS)) == 1
    Both.last = [{"user": "ada", "amount": 2, "total": 2}]
    with pytest.raises(
        InvalidRequest, match=r"judged yields, so what it returns is lost.*found \[\{'user': 'ada'.*yield from"
    ):
        run(Both(), rows, TOTALS)


def test_output_streams() -> None:
    """A piece that is yielded is handed on before the next one is asked for."""
    steps: list[str] = []

    class Streams(hf.BatchProcessor):
        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[Any]:
            for user in ("a", "b"):
                steps.append(f"make {user}")
                yield {"user": user}

    with bind(Streams(), USER) as bound:
        for _, out in bound.process(purchases(["ada"], [0]), make_context()):
            steps.append(f"got {out['user'][0]}")
    assert steps == ["make a", "got a", "make b", "got b"]
