"""Reducing states: by functions of the core and by Python functions, vectorised and per key."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_count import examples
from tests.unit.state_bench import USER, bind, make_store, purchases, run

import holdfast as hf
from holdfast.errors import InvalidRequest
from holdfast.state.declarations import ReducingFunction


def reducing(type: pa.DataType, function: ReducingFunction | Callable[[Any, Any], Any]) -> tuple[type, type]:
    """A batch processor and a keyed one with the same state."""

    class Batch(hf.BatchProcessor):
        state = hf.ReducingState(type, function)

    class Keyed(hf.KeyedProcessor):
        state = hf.ReducingState(type, function)

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
            self.state.get()
            for amount in rows["amount"].to_pylist():
                self.state.add(amount)
            return {"user": key[0], "result": self.state.get()}

    return Batch, Keyed


FUNCTIONS: dict[ReducingFunction, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b,
    "product": lambda a, b: a * b,
    "min": min,
    "max": max,
    "first": lambda a, b: a,
    "last": lambda a, b: b,
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("written_in", ["core", "python"])
def test_the_result_after_each_row(function: ReducingFunction, written_in: str) -> None:
    batch_class, _ = reducing(pa.int64(), function if written_in == "core" else FUNCTIONS[function])
    processor = batch_class()
    users, amounts = ["ada", "bob", "ada", "ada", "bob"], [3, 5, None, 2, 7]
    seen: dict[str, list[int]] = {}
    expected = []
    for user, amount in zip(users, amounts):
        if amount is not None:
            seen.setdefault(user, []).append(amount)
        expected.append(functools.reduce(FUNCTIONS[function], seen[user]))
    with bind(processor, USER):
        found = processor.state.add(users, pa.array(amounts))
        assert found.to_pylist() == expected
        assert found.type == pa.int64()
        assert processor.state.get(["bob", "eve", "ada"]).to_pylist() == [expected[4], None, expected[3]]


@pytest.mark.parametrize("function", ["sum", FUNCTIONS["sum"]], ids=["core", "python"])
def test_add_only_and_clear(function: Any) -> None:
    processor = reducing(pa.int64(), function)[0]()
    with bind(processor, USER):
        processor.state.add_only(["ada", "bob", "ada"], [1, 2, 3])
        processor.state.clear(["bob"])
        processor.state.add_only(["bob", "eve"], [4, None])
        assert processor.state.get(["ada", "bob", "eve"]).to_pylist() == [4, 4, None]


def test_booleans() -> None:
    both, either = (reducing(pa.bool_(), name)[0]() for name in ("bool_and", "bool_or"))
    with bind(both, USER), bind(either, USER):
        assert both.state.add(["ada"] * 3, [True, False, True]).to_pylist() == [True, False, False]
        assert either.state.add(["ada"] * 3, [False, True, False]).to_pylist() == [False, True, True]


@pytest.mark.parametrize("kind", [0, 1], ids=["batch", "keyed"])
def test_a_sum_never_wraps(kind: int) -> None:
    processor = reducing(pa.int64(), "sum")[kind]()
    batch = purchases(["ada", "ada"], [2**63 - 1, 1])
    with pytest.raises(InvalidRequest, match="state 'state'"):
        if kind:
            run(processor, [batch], pa.schema([("user", pa.string()), ("result", pa.int64())]))
        else:
            with bind(processor, USER):
                processor.state.add(batch, batch["amount"])


def test_a_python_function_of_structs() -> None:
    def wider(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return {"low": min(a["low"], b["low"]), "high": max(a["high"], b["high"])}

    processor = reducing(pa.struct([("low", pa.int64()), ("high", pa.int64())]), wider)[0]()
    with bind(processor, USER):
        spans = [{"low": 3, "high": 4}, {"low": 1, "high": 2}, {"low": 9, "high": 9}]
        found = processor.state.add(["ada"] * 3, spans)
        assert found.to_pylist() == [{"low": 3, "high": 4}, {"low": 1, "high": 4}, {"low": 1, "high": 9}]


@pytest.mark.parametrize("kind", [0, 1], ids=["batch", "keyed"])
def test_a_function_that_forgets_to_return_is_named(kind: int) -> None:
    processor = reducing(pa.int64(), lambda a, b: None)[kind]()
    batch = purchases(["ada", "ada"], [1, 2])
    with pytest.raises(InvalidRequest, match="state 'state': its function returned None for 1 and 2"):
        if kind:
            run(processor, [batch], USER)
        else:
            with bind(processor, USER):
                processor.state.add(batch, batch["amount"])


def test_one_call_a_row_and_none_for_the_first() -> None:
    calls: list[tuple[int, int]] = []

    def noting(a: int, b: int) -> int:
        calls.append((a, b))
        return a + b

    processor = reducing(pa.int64(), noting)[0]()
    with bind(processor, USER):
        processor.state.add_only(["ada", "bob", "ada", "ada"], [1, 2, 3, 4])
    assert calls == [(1, 3), (4, 4)]


VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-1000, 1000),
    pa.int16(): st.integers(-3, 3),
    pa.float64(): st.floats(allow_infinity=True, allow_nan=True),
    pa.float32(): st.floats(width=32, allow_nan=True),
    pa.string(): st.text(max_size=3),
    pa.binary(): st.binary(max_size=3),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
}


def allowed(type: pa.DataType) -> list[ReducingFunction]:
    names: list[ReducingFunction] = ["sum", "product", "min", "max", "first", "last", "bool_and", "bool_or"]
    found = []
    for name in names:
        try:
            hf.ReducingState(type, name)
        except InvalidRequest:
            continue
        found.append(name)
    return found


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_per_key_and_vectorised_say_the_same(data: st.DataObject) -> None:
    """A key's running result is computed in Python where that is exact; what is stored is always the core's."""
    type = data.draw(st.sampled_from(list(VALUES)))
    function = data.draw(st.sampled_from(allowed(type)))
    size = 3 if function == "product" else 8
    column = st.lists(st.none() | VALUES[type], min_size=1, max_size=size)
    batches = data.draw(st.lists(column, min_size=1, max_size=2))
    batch_class, keyed_class = reducing(type, function)
    output = pa.schema([("user", pa.string()), ("result", type)])
    ours, theirs = make_store(), make_store()
    for values in batches:
        rows = pa.record_batch({"user": ["ada"] * len(values), "amount": pa.array(values, type)})
        found = run(keyed_class(), [rows], output, ours)
        vectorised = batch_class()
        with bind(vectorised, USER, theirs):
            expected = vectorised.state.add(rows, rows["amount"])[-1].as_py()
        assert repr(found[0]["result"]) == repr(expected)
    stored = batch_class()
    with bind(stored, USER, ours):
        assert repr(stored.state.get(["ada"])[0].as_py()) == repr(expected)


@pytest.mark.parametrize(("type", "value"), [(pa.struct([]), {}), (pa.binary(0), b"")], ids=str)
def test_a_value_without_bytes_is_a_value(type: pa.DataType, value: Any) -> None:
    class Kept(hf.BatchProcessor):
        state = hf.ReducingState(type, "last")

    processor = Kept()
    with bind(processor, USER):
        assert processor.state.add(["ada", "bob"], pa.array([value, None], type)).to_pylist() == [value, None]
        assert processor.state.get(["bob", "ada"]).to_pylist() == [None, value]


def test_a_key_clears_and_adds_again() -> None:
    class Clears(hf.KeyedProcessor):
        state = hf.ReducingState(pa.int64(), "sum")

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
            self.state.add(100)
            before = self.state.get()
            self.state.clear()
            cleared = self.state.get()
            self.state.add(1)
            self.state.add(None)
            return {"user": key[0], "before": before, "cleared": cleared, "after": self.state.get()}

    output = pa.schema([("user", pa.string()), *((name, pa.int64()) for name in ("before", "cleared", "after"))])
    store = make_store()
    run(Clears(), [purchases(["ada"], [0])], output, store)
    found = run(Clears(), [purchases(["bob", "ada"], [0, 0])], output, store)
    assert found == [
        {"user": "bob", "before": 100, "cleared": None, "after": 1},
        {"user": "ada", "before": 101, "cleared": None, "after": 1},
    ]


@pytest.mark.parametrize("function", ["sum", FUNCTIONS["sum"]], ids=["core", "python"])
def test_a_wrong_value_is_named(function: Any) -> None:
    class Wrong(hf.KeyedProcessor):
        state = hf.ReducingState(pa.int64(), function)

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            self.state.add(1.5)

    with pytest.raises(InvalidRequest, match=r"state 'state': expected int64, found 1.5"):
        run(Wrong(), [purchases(["ada"], [0])], USER)


@pytest.mark.parametrize(
    ("user", "named"),
    [
        ("a" * 59 + "ä", "'" + "a" * 59 + "…'"),
        ("€" * 20, "'" + "€" * 20 + "'"),
        ("€" * 21, "'" + "€" * 20 + "…'"),
        ("a\0b\n", r"'a\x00b\x0a'"),
        (b"\xff\xfe", "0xfffe"),
        (b"a\xe2\x82", "0x61e282"),
        (b"\xed\xa0\x80", "0xeda080"),
    ],
)
def test_a_key_in_an_error_is_cut_between_characters(user: str | bytes, named: str) -> None:
    """Cut in the middle of one, the message was no text, and the error became another."""
    processor = reducing(pa.int64(), "sum")[0]()
    data = user.encode() if isinstance(user, str) else user
    keys = pa.StringArray.from_buffers(
        2, pa.array([0, len(data), 2 * len(data)], pa.int32()).buffers()[1], pa.py_buffer(data * 2)
    )
    with bind(processor, USER), pytest.raises(InvalidRequest) as caught:
        processor.state.add(keys, [2**63 - 1, 1])
    assert f"key {named}: the sum does not fit into int64" in str(caught.value)
