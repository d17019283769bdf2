"""Aggregating states: by functions of the core, by Python classes, and by sketches."""

from __future__ import annotations

import datetime as dt
import statistics
import sys
from decimal import Decimal
from typing import Any, NamedTuple

import datasketches
import numpy as np
import pyarrow as pa
import pytest
from tests.unit.state_bench import USER, bind, make_store, purchases, reopened, run
from tests.unit.test_declarations import MEAN, Mean

import holdfast as hf
from holdfast.errors import InvalidRequest, Unavailable
from holdfast.state import Processor
from holdfast.testing import Harness


class Mixed(NamedTuple):
    """An accumulator whose fields stand in another order."""

    n: int
    sum: float


def aggregating(type: pa.DataType, function: Any, **types: pa.DataType) -> tuple[type, type]:
    """A batch processor and a keyed one with the same state."""

    class Batch(hf.BatchProcessor):
        state = hf.AggregatingState(type, function, **types)

    class Keyed(hf.KeyedProcessor):
        state = hf.AggregatingState(type, function, **types)

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
            for amount in rows["amount"].to_pylist():
                self.state.add(amount)
            return {"user": key[0], "result": self.state.get()}

    return Batch, Keyed


def results(processor: Processor, batches: list[pa.RecordBatch], type: pa.DataType) -> list[Any]:
    store = make_store()
    output = pa.schema([("user", pa.string()), ("result", type)])
    return [[row["result"] for row in run(processor, [batch], output, store)] for batch in batches]


@pytest.mark.parametrize(
    ("function", "expected", "type"),
    [
        ("count", [1, 2, 1, 3], pa.int64()),
        ("avg", [1.0, 1.5, 5.0, 3.0], pa.float64()),
        ("variance", [None, 0.5, None, statistics.variance([1, 2, 6])], pa.float64()),
        ("stddev", [None, 0.5**0.5, None, statistics.stdev([1, 2, 6])], pa.float64()),
        ("approx_count_distinct", [1, 2, 1, 3], pa.int64()),
    ],
)
def test_the_result_after_each_row(function: str, expected: list[Any], type: pa.DataType) -> None:
    batch_class, keyed_class = aggregating(pa.int64(), function)
    processor = batch_class()
    with bind(processor, USER):
        found = processor.state.add(["ada", "ada", "bob", "ada"], [1, 2, 5, 6])
        assert found.type == type
        assert found.to_pylist() == [None if e is None else pytest.approx(e) for e in expected]
        assert processor.state.get(["bob", "ada"]).to_pylist() == found.take(pa.array([2, 3])).to_pylist()
    keyed = results(keyed_class(), [purchases(["ada", "bob"], [1, 5]), purchases(["ada", "ada"], [2, 6])], type)
    assert keyed == [[expected[0], expected[2]], [pytest.approx(expected[3])]]


def test_a_python_class_vectorised() -> None:
    processor = aggregating(pa.float64(), Mean, accumulator=MEAN, result=pa.float64())[0]()
    with bind(processor, USER):
        found = processor.state.add(["ada", "bob", "ada", "eve"], [1.0, 5.0, 2.0, None])
        assert found.to_pylist() == [1.0, 5.0, 1.5, None]
        processor.state.add_only(["ada"], [6])
        assert processor.state.get(["ada", "eve", "ada"]).to_pylist() == [3.0, None, 3.0]
        processor.state.clear(["ada"])
        assert processor.state.get(["ada", "bob"]).to_pylist() == [None, 5.0]


def test_a_python_class_per_key() -> None:
    processor = aggregating(pa.float64(), Mean, accumulator=MEAN, result=pa.float64())[1]()
    batches = [purchases(["ada", "bob", "ada"], [1, 5, 2]), purchases(["ada", "eve"], [6, None])]
    assert results(processor, batches, pa.float64()) == [[1.5, 5.0], [3.0, None]]


@pytest.mark.parametrize(
    ("accumulator", "kept"),
    [
        ({"sum": 1.5, "n": 2, "note": "?"}, None),
        ({"sum": 1.5, "n": Decimal("2.5")}, None),
        ({"sum": 1.5, "n": np.float64(2.5)}, None),
        ({"sum": 1.5, "n": True}, None),
        ({"sum": Decimal("1.5"), "n": 2.0}, {"sum": 1.5, "n": 2}),
        (Mixed(2, 1.0), {"sum": 1.0, "n": 2}),
    ],
)
@pytest.mark.parametrize("form", [0, 1], ids=["batch", "keyed"])
def test_of_an_accumulator_is_kept_what_its_type_says_or_nothing(accumulator: Any, kept: Any, form: int) -> None:
    """A key at a time, Arrow made of it what it could: 2 of 2.5, and of a named tuple its fields by their places."""

    class Gives(Mean):
        def add(self, old: Any, value: Any) -> Any:
            return accumulator

        def result(self, accumulator: Any) -> float:
            return 0.0

    class Adds(hf.BatchProcessor):
        state = hf.AggregatingState(pa.float64(), Gives, accumulator=MEAN, result=pa.float64())

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            self.state.add_only(batch, batch["amount"])

    class Raw(hf.BatchProcessor):
        state = hf.ValueState(MEAN)

    keyed = aggregating(pa.float64(), Gives, accumulator=MEAN, result=pa.float64())[1]
    store, output = make_store(), pa.schema([("user", pa.string()), ("result", pa.float64())])
    given = [purchases(["ada", "bob"], [1, 2])]
    if kept is None:
        with pytest.raises(InvalidRequest, match="state 'state', accumulators: expected struct<sum: double, n: int64>"):
            run(keyed() if form else Adds(), given, output, store)
        return
    run(keyed() if form else Adds(), given, output, store)
    raw = Raw()
    with bind(raw, USER, reopened(store)):
        assert raw.state.get(["ada", "bob"]).to_pylist() == [kept, kept]


class Distinct(hf.AggregateFunction[list[int]]):
    """Changes its accumulator in place and gives it away as the result."""

    def create(self) -> list[int]:
        return []

    def add(self, accumulator: list[int], value: int) -> list[int]:
        if value not in accumulator:
            accumulator.append(value)
        return accumulator

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        return [*a, *(value for value in b if value not in a)]

    def result(self, accumulator: list[int]) -> list[int]:
        return accumulator


def test_a_result_is_not_changed_by_later_rows() -> None:
    processor = aggregating(pa.int64(), Distinct, accumulator=pa.list_(pa.int64()), result=pa.list_(pa.int64()))[0]()
    with bind(processor, USER):
        found = processor.state.add(["ada"] * 3, [1, 2, 1])
        assert found.to_pylist() == [[1], [1, 2], [1, 2]]


def test_accumulators_are_arrow_values() -> None:
    """What a class keeps is read back by any other reader of the same type."""
    processor = aggregating(pa.float64(), Mean, accumulator=MEAN, result=pa.float64())[0]()

    class Raw(hf.BatchProcessor):
        state = hf.ValueState(MEAN)

    store, raw = make_store(), Raw()
    with bind(processor, USER, store):
        processor.state.add_only(["ada", "ada"], [1, 2])
    with bind(raw, USER, reopened(store)):
        assert raw.state.get(["ada"]).to_pylist() == [{"sum": 3.0, "n": 2}]


def test_what_a_class_does_wrong_is_named() -> None:
    class Forgets(Mean):
        def add(self, accumulator: Any, value: Any) -> Any:
            accumulator["sum"] += value

    class Odd(Mean):
        def result(self, accumulator: Any) -> Any:
            return "much"

    processor = aggregating(pa.float64(), Forgets, accumulator=MEAN, result=pa.float64())[0]()
    with bind(processor, USER), pytest.raises(InvalidRequest, match=r"state 'state': Forgets.add returned None"):
        processor.state.add(["ada"], [1])
    processor = aggregating(pa.float64(), Odd, accumulator=MEAN, result=pa.float64())[0]()
    with (
        bind(processor, USER),
        pytest.raises(InvalidRequest, match=r"state 'state', results: expected double, found 'much'"),
    ):
        processor.state.add(["ada"], [1])


@pytest.mark.parametrize(
    ("type", "values"),
    [
        (pa.string(), ["", "a", "b", "a", None]),
        (pa.binary(), [b"", b"a", b"b", b"a", None]),
        (pa.float64(), [0.0, 1.5, float("nan"), float("nan"), None]),
        (pa.uint64(), [2**64 - 1, 0, 1, 0, None]),
        (pa.date32(), [dt.date(2026, 1, 1), dt.date(2026, 1, 2), dt.date(2026, 1, 3), dt.date(2026, 1, 3), None]),
        (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, d, tzinfo=dt.timezone.utc) for d in (1, 2, 3, 3)]),
    ],
    ids=str,
)
def test_distinct_values_of_any_key_type(type: pa.DataType, values: list[Any]) -> None:
    batch_class, keyed_class = aggregating(type, "approx_count_distinct")
    processor = batch_class()
    column = pa.array(values, type)
    with bind(processor, USER):
        processor.state.add_only(["ada"] * len(values), column.dictionary_encode())
        assert processor.state.get(["ada", "bob"]).to_pylist() == [3, None]
    rows = pa.record_batch({"user": ["ada"] * len(values), "amount": column})
    assert results(keyed_class(), [rows, rows], pa.int64()) == [[3], [3]]


def test_the_error_of_the_sketch_is_as_documented() -> None:
    processor = aggregating(pa.int64(), "approx_count_distinct")[0]()
    with bind(processor, USER):
        for start in range(0, 100_000, 20_000):
            processor.state.add_only(["ada"] * 20_000, list(range(start, start + 20_000)))
        found = processor.state.get(["ada"])[0].as_py()
    assert abs(found - 100_000) < 3 * 0.0163 * 100_000


def test_stored_sketches_are_the_library_s_own() -> None:
    processor = aggregating(pa.int64(), "approx_count_distinct")[0]()

    class Raw(hf.BatchProcessor):
        state = hf.ValueState(pa.binary())

    store, raw = make_store(), Raw()
    with bind(processor, USER, store):
        processor.state.add_only(["ada"] * 3, [1, 2, 3])
        processor.state.add_only(["bob"] * 50_000, list(range(50_000)))
    with bind(raw, USER, reopened(store)):
        small, large = raw.state.get(["ada", "bob"]).to_pylist()
    assert round(datasketches.hll_sketch.deserialize(small).get_estimate()) == 3
    assert len(small) < 64
    assert len(large) < 4096


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    processor = aggregating(pa.int64(), "approx_count_distinct")[0]()
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises(Unavailable, match=r"pip install 'holdfast-spark\[sketch\]'"):
        bind(processor, USER)


class OfTuples(hf.AggregateFunction[Any]):
    def create(self) -> Any:
        return 0.0, 0

    def add(self, accumulator: Any, value: float) -> Any:
        return accumulator[0] + value, accumulator[1] + 1

    def result(self, accumulator: Any) -> float:
        return accumulator[0]


class OfEither(hf.AggregateFunction[Any]):
    """Says of what class the accumulator was that it was given."""

    def create(self) -> Any:
        return Mixed(0, 0.1)

    def add(self, accumulator: Any, value: float) -> Any:
        assert type(accumulator) is dict
        return Mixed(accumulator["n"] + 1, accumulator["sum"] + value)

    def result(self, accumulator: Any) -> float:
        return accumulator["sum"]


class OfSets(hf.AggregateFunction[Any]):
    def create(self) -> Any:
        return set()

    def add(self, accumulator: Any, value: float) -> Any:
        return {*accumulator, value}

    def result(self, accumulator: Any) -> float:
        return accumulator[0]


class Exact(hf.AggregateFunction[Any]):
    def create(self) -> Any:
        return 0.1

    def add(self, accumulator: Any, value: float) -> Any:
        return accumulator + value / 3

    def result(self, accumulator: Any) -> float:
        return accumulator


def added(form: int, function: Any, accumulator: pa.DataType, batches: list[list[int]]) -> list[float]:
    """The last result of each batch."""

    class Adds(hf.BatchProcessor):
        state = hf.AggregatingState(pa.float64(), function, accumulator=accumulator, result=pa.float64())

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
            return {"result": self.state.add(batch, batch["amount"])[-1].as_py()}

    keyed = aggregating(pa.float64(), function, accumulator=accumulator, result=pa.float64())[1]
    output = "user string, result double" if form else "result double"
    with Harness(keyed() if form else Adds(), "user", "user string, amount long", output) as harness:
        return [
            harness.process([{"user": "ada", "amount": one} for one in amounts])["result"][-1].as_py()
            for amounts in batches
        ]


FLOATS = pa.struct([("sum", pa.float32()), ("n", pa.int64())])


@pytest.mark.parametrize("form", [0, 1], ids=["batch", "keyed"])
@pytest.mark.parametrize(
    ("function", "accumulator"),
    [(OfEither, MEAN), (OfEither, FLOATS), (OfSets, pa.list_(pa.float64())), (Exact, pa.float32())],
)
def test_an_accumulator_is_the_same_within_a_batch_as_in_the_next(
    function: Any, accumulator: pa.DataType, form: int
) -> None:
    """A tuple was one in its batch, and a dict in the next; a float32 was exact in its batch, and then rounded."""
    together = added(form, function, accumulator, [[1, 2], [3, 4]])
    one_by_one = added(form, function, accumulator, [[1], [2], [3], [4]])
    assert together == one_by_one[1::2]


@pytest.mark.parametrize("form", [0, 1], ids=["batch", "keyed"])
def test_a_class_that_takes_no_dicts_for_structs_fails_at_its_first_row(form: int) -> None:
    """It was right in the first batch, and died in the second."""
    with pytest.raises(KeyError, match="0"):
        added(form, OfTuples, MEAN, [[1]])


def test_merge_may_be_left_out() -> None:
    """Nothing asks for it."""

    class Longest:
        def create(self) -> float:
            return 0.0

        def add(self, accumulator: float, value: float) -> float:
            return max(accumulator, value)

        def result(self, accumulator: float) -> float:
            return accumulator

    assert added(0, Longest, pa.float64(), [[3, 1], [2], [4]]) == [3.0, 3.0, 4.0]
