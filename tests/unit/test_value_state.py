"""Value states, vectorised and per key, and the forms in which keys and values are taken."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.unit.state_bench import USER, USER_SHOP, bind, make_store, purchases, run

import holdfast as hf
from holdfast.errors import InvalidRequest
from holdfast.state import BatchValueState


class Last(hf.BatchProcessor):
    last = hf.ValueState(pa.int64())


@pytest.fixture
def last() -> Iterator[BatchValueState]:
    processor = Last()
    with bind(processor, USER):
        yield processor.last


@pytest.fixture
def by_shop() -> Iterator[BatchValueState]:
    processor = Last()
    with bind(processor, USER_SHOP, keys=USER_SHOP):
        yield processor.last


def test_put_then_get(last: BatchValueState) -> None:
    last.put(["ada", "bob"], [1, 2])
    assert last.get(["bob", "eve", "ada"]).to_pylist() == [2, None, 1]
    assert last.contains(["bob", "eve"]).to_pylist() == [True, False]
    assert last.get(["ada"]).type == pa.int64()


def test_the_last_row_of_a_key_wins(last: BatchValueState) -> None:
    last.put(["ada", "bob", "ada"], [1, 2, 3])
    assert last.get(["ada", "bob"]).to_pylist() == [3, 2]


def test_clear_and_null_forget(last: BatchValueState) -> None:
    last.put(["ada", "bob", "eve"], [1, 2, 3])
    last.clear(["ada"])
    last.put(["bob"], None)
    assert last.get(["ada", "bob", "eve"]).to_pylist() == [None, None, 3]
    assert last.contains(["ada", "bob", "eve"]).to_pylist() == [False, False, True]


@pytest.mark.parametrize(
    "keys",
    [
        ["ada", "bob"],
        ("ada", "bob"),
        pa.array(["ada", "bob"]),
        pa.array(["ada", "bob"], pa.large_string()),
        pa.array(["ada", "bob"], pa.string_view()),
        # Put together of views over pieces: pyarrow 18 exports what comes of it by a pointer to nothing.
        pa.concat_arrays([pa.array(["ada"]).cast(pa.string_view()), pa.array(["bob"]).cast(pa.string_view())]),
        pa.array(["ada", "bob"]).dictionary_encode(),
        pa.chunked_array([["ada"], ["bob"]]),
        pa.chunked_array([pa.array(["ada"], pa.large_string()), pa.array(["bob"], pa.large_string())]),
        np.array(["ada", "bob"]),
        np.array(["ada", "bob"], object),
        pd.Series(["ada", "bob"]),
        pd.Series(["ada", "bob"], dtype=object),
        pd.Index(["ada", "bob"]),
        pd.Categorical(["ada", "bob"]),
        pd.array(["ada", "bob"]),
        pd.DataFrame({"amount": [0, 0], "user": ["ada", "bob"]}),
        pa.table({"amount": [0, 0], "user": ["ada", "bob"]}),
        pa.record_batch({"amount": [0, 0], "user": ["ada", "bob"]}),
        pa.array([{"user": "ada"}, {"user": "bob"}]),
        [pa.array(["ada", "bob"])],
        [["ada", "bob"]],
    ],
    ids=lambda keys: str(type(keys).__name__),
)
def test_forms_of_keys(last: BatchValueState, keys: Any) -> None:
    last.put(["bob", "ada"], [2, 1])
    assert last.get(keys).to_pylist() == [1, 2]


@pytest.mark.parametrize(
    "keys",
    [
        [pa.array(["ada", "bob"]), pa.array([1, 2], pa.int32())],
        (pd.Series(["ada", "bob"]), np.array([1, 2])),
        [["ada", "bob"], [1, 2]],
        pa.record_batch({"shop": pa.array([1, 2], pa.int64()), "x": [0, 0], "user": ["ada", "bob"]}),
        pa.array([{"shop": 1, "user": "ada"}, {"shop": 2, "user": "bob"}]),
        pd.DataFrame({"user": ["ada", "bob"], "shop": [1, 2]}),
    ],
    ids=lambda keys: str(type(keys).__name__),
)
def test_forms_of_several_key_columns(by_shop: BatchValueState, keys: Any) -> None:
    by_shop.put([["bob", "ada", "ada"], [2, 2, 1]], [22, 12, 11])
    assert by_shop.get(keys).to_pylist() == [11, 22]


@pytest.mark.parametrize(
    "values",
    [
        [1, 2],
        pa.array([1, 2]),
        pa.array([1, 2], pa.int8()),
        pa.chunked_array([[1], [2]]),
        pa.array([1, 2]).dictionary_encode(),
        np.array([1, 2]),
        np.array([1.0, 2.0]),
        pd.Series([1, 2]),
        pd.Series([1, 2], dtype="Int64"),
        pd.Series([1, 2], dtype=object),
        range(1, 3),
    ],
    ids=lambda values: str(type(values).__name__),
)
def test_forms_of_values(last: BatchValueState, values: Any) -> None:
    last.put(["ada", "bob"], values)
    assert last.get(["ada", "bob"]).to_pylist() == [1, 2]


@pytest.mark.parametrize("value", [7, 7.0, np.int32(7), pa.scalar(7), np.array(7)], ids=repr)
def test_one_value_for_all_rows(last: BatchValueState, value: Any) -> None:
    last.put(["ada", "bob"], value)
    assert last.get(["ada", "bob"]).to_pylist() == [7, 7]


@pytest.mark.parametrize("nothing", [[], np.array([]), pd.Series([], dtype=float), pa.array([])])
def test_no_values_are_of_any_type(nothing: Any) -> None:
    """numpy and pandas make doubles of them."""

    class Names(hf.BatchProcessor):
        names = hf.ValueState(pa.string())

    processor = Names()
    with bind(processor, USER):
        processor.names.put(nothing, nothing)
        assert len(processor.names.get(nothing)) == 0


class Cut(hf.BatchProcessor):
    """Bytes and text in each place where values of numpy's go."""

    value = hf.ValueState(pa.binary())
    texts = hf.ListState(pa.string())
    entries = hf.MapState(pa.binary(), pa.string())
    timers = hf.Timers("event")

    def on_timers(self, batch: pa.RecordBatch, ctx: hf.Context) -> None: ...


BYTES, TEXTS = [b"a\0b", b"a\0c", b"\0d"], ["a\0b", "a\0c", "\0d"]


@pytest.mark.parametrize("form", [np.array, lambda values: pd.Series(np.array(values)).array, list])
def test_text_and_bytes_of_numpy_go_on_after_a_nul(form: Callable[[list[Any]], Any]) -> None:
    """Arrow cuts those of numpy's arrays at the first NUL, which one SHA-256 digest in eight has: keys became one."""
    processor, places = Cut(), pa.schema([("place", pa.string()), ("digest", pa.binary())])
    keys = [form(TEXTS), form(BYTES)]
    with bind(processor, USER, make_store(places), places):
        processor.value.put(keys, form(BYTES))
        assert processor.value.get([TEXTS, BYTES]).to_pylist() == BYTES
        processor.texts.add(keys, form(TEXTS))
        assert processor.texts.get([TEXTS, BYTES]).to_pylist() == [[text] for text in TEXTS]
        one = [np.array(["ada"] * 3), [b"\0"] * 3]
        processor.entries.put(one, form(BYTES), form(TEXTS))
        assert processor.entries.entries([["ada"], [b"\0"]]).to_pylist() == [sorted(zip(BYTES, TEXTS))]
        processor.timers.register(one, pa.array([1] * 3, pa.timestamp("us", "UTC")), form(TEXTS))
        [timers] = processor.timers.list([["ada"], [b"\0"]]).to_pylist()
        assert [timer["namespace"] for timer in timers] == sorted(TEXTS)
        scalar = np.array(BYTES)[0]
        assert isinstance(scalar, np.bytes_)
        processor.value.put(keys, scalar)
        processor.texts.add(keys, np.array(TEXTS)[1])
        assert processor.value.get([TEXTS, BYTES]).to_pylist() == [b"a\0b"] * 3
        assert processor.texts.get([TEXTS, BYTES]).to_pylist() == [[text, "a\0c"] for text in TEXTS]


@pytest.mark.parametrize("rows", [zip(np.array(TEXTS), np.array(BYTES)), {"user": TEXTS, "seen": np.array(BYTES)}])
def test_output_of_numpy_goes_on_after_a_nul(rows: Any) -> None:
    class Gives(hf.KeyedProcessor):
        names = hf.MapState(pa.string(), pa.binary())
        timers = hf.Timers("processing")

        def process(self, key: tuple[Any, ...], _: pa.Table, ctx: hf.Context) -> Any:
            self.names.put(np.str_("a\0b"), np.bytes_(b"\0b"))
            self.names.put_all({np.str_("a\0c"): np.bytes_(b"\0c")})
            assert self.names.items() == [("a\0b", b"\0b"), ("a\0c", b"\0c")]
            self.timers.register(ctx.timestamp, np.str_("a\0b"))
            assert [namespace for _, namespace in self.timers.list()] == ["a\0b"]
            if not isinstance(rows, dict):
                return list(rows)
            frame = pd.DataFrame({"user": rows["user"]})
            frame["seen"] = pd.Series(rows["seen"])
            assert frame["seen"].dtype.kind == "S"
            return frame

        def on_timer(self, key: tuple[Any, ...], time: Any, namespace: str, ctx: hf.Context) -> None: ...

    output = pa.schema([("user", pa.string()), ("seen", pa.binary())])
    given = run(Gives(), [purchases(["ada"], [0])], output)
    assert [tuple(row.values()) for row in given] == list(zip(TEXTS, BYTES))


def test_missing_numbers_in_pandas_are_nulls(last: BatchValueState) -> None:
    last.put(["ada", "bob"], pd.Series([1.0, float("nan")]))
    assert last.get(["ada", "bob"]).to_pylist() == [1, None]


def test_slices_of_arrays_are_seen_as_slices(last: BatchValueState) -> None:
    last.put(pa.array(["x", "ada", "bob"]).slice(1), pa.array([0, 1, 2]).slice(1))
    batch = purchases(["x", "bob", "ada"], [0, 0, 0]).slice(1)
    assert last.get(batch).to_pylist() == [2, 1]
    assert last.get(["x"]).to_pylist() == [None]


def test_no_rows(last: BatchValueState) -> None:
    last.put([], [])
    assert last.get(purchases([], [])).to_pylist() == []


def test_a_batch_asked_again_after_another(last: BatchValueState) -> None:
    one, two = purchases(["ada"], [0]), purchases(["bob"], [0])
    last.put(one, 1)
    last.put(two, 2)
    assert [last.get(batch).to_pylist() for batch in (one, two, one)] == [[1], [2], [1]]


@pytest.mark.parametrize(
    ("keys", "values", "message"),
    [
        (["ada"], [1, 2], r"state 'last': 1 keys but 2 values"),
        (["ada"], ["one"], r"state 'last', values: expected int64, found 'one' \(str\) at position 0"),
        (["ada", "bob"], [1, 2.5], r"state 'last', values: expected int64, found 2.5 \(float\) at position 1"),
        (["ada"], pa.array(["1"]), r"state 'last', values: expected int64, found string"),
        (["ada"], pa.array([1.5]), r"state 'last', values: found double, which does not fit int64"),
        (["ada"], pa.array([2**63], pa.uint64()), r"which does not fit int64"),
        (["ada"], True, r"state 'last', values: expected int64, found True"),
        ([7], [1], r"key column 'user': expected string, found 7 \(int\)"),
        (pa.array([7]), [1], r"key column 'user': expected string, found int64"),
        (pa.record_batch({"name": ["ada"]}), [1], r"key column 'user' is missing.*found name"),
        (pa.array([{"name": "ada"}]), [1], r"key column 'user' is missing"),
        (pd.DataFrame({"name": ["ada"]}), [1], r"key column 'user' is missing"),
        (pd.DataFrame([["a", "b"]], columns=["user", "user"]), [1], r"key column 'user' is missing or there twice"),
        (pa.record_batch([["a"], ["b"]], ["user", "user"]), [1], r"key column 'user' is missing or there twice"),
        (
            ["ada"],
            np.array([1], np.longdouble),
            r"expected int64, found ndarray of (longdouble|float128), which is nothing",
        ),
        (["ada"], np.array([1], ">i8"), r"expected int64, found ndarray of >i8, which is nothing to Arrow"),
        (["ada"], pd.Series(pd.period_range("2020", periods=1, freq="Y")), r"expected int64, found extension"),
        (["ada"], [[1]], r"expected int64, found \[1\] \(list\) at position 0"),
        (["ada"], object(), r"expected int64, found <object"),
        ("ada", [1], r"keys: expected a record batch or an array of string, found str 'ada'"),
        ([None], [1], "user"),
    ],
)
def test_what_is_wrong_is_named(last: BatchValueState, keys: Any, values: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        last.put(keys, values)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["ada"], "the operator has the key columns user, shop: expected the record batch"),
        ([["ada"]], "expected 2 arrays for the key columns user, shop, found 1"),
        ([["ada"], [1, 2]], "arrays of different lengths: 1, 2"),
        (pa.record_batch({"user": ["ada"]}), "key column 'shop' is missing"),
        ([["ada"], [2**40]], "key column 'shop'"),
    ],
)
def test_what_is_wrong_with_several_key_columns(by_shop: BatchValueState, keys: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        by_shop.get(keys)


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (pa.string(), "ä"),
        (pa.binary(), b"\x00\xff"),
        (pa.bool_(), False),
        (pa.float64(), 1.5),
        (pa.date32(), dt.date(2026, 11, 21)),
        (pa.timestamp("us", "UTC"), dt.datetime(2026, 11, 21, tzinfo=dt.timezone.utc)),
        (pa.list_(pa.int64()), [1, None, 3]),
        (pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]), {"a": 1, "b": ["x"]}),
        (pa.map_(pa.string(), pa.int64()), [("x", 1)]),
    ],
    ids=str,
)
def test_types_both_ways(type: pa.DataType, value: Any) -> None:
    class Keeps(hf.BatchProcessor):
        state = hf.ValueState(type)

    class KeepsKeyed(hf.KeyedProcessor):
        state = hf.ValueState(type)

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
            if rows["amount"][0].as_py():
                self.state.update(value)
            assert self.state.value() == value

    store = make_store()
    processor = Keeps()
    with bind(processor, USER, store):
        processor.state.put(["ada"], [value])
        assert processor.state.get(["ada"]).to_pylist() == [value]
        assert processor.state.get(["ada"]).type == type
    keyed = KeepsKeyed()
    run(keyed, [purchases(["bob", "ada"], [1, 0])], USER, store)
    run(keyed, [purchases(["bob", "ada"], [0, 0])], USER, store)


class Seen(hf.KeyedProcessor):
    """Rows so far, by three calls of the state."""

    seen = hf.ValueState(pa.int64())

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
        before = self.seen.value()
        self.seen.update((before or 0) + len(rows))
        return {"user": key[0], "before": before, "now": self.seen.value()}


SEEN = pa.schema([("user", pa.string()), ("before", pa.int64()), ("now", pa.int64())])


def test_a_key_reads_what_it_wrote_and_what_earlier_batches_wrote() -> None:
    store = make_store()
    first = run(Seen(), [purchases(["ada", "bob", "ada"], [0, 0, 0])], SEEN, store)
    second = run(Seen(), [purchases(["eve", "ada"], [0, 0])], SEEN, store)
    assert first == [{"user": "ada", "before": None, "now": 2}, {"user": "bob", "before": None, "now": 1}]
    assert second == [{"user": "eve", "before": None, "now": 1}, {"user": "ada", "before": 2, "now": 3}]


def test_a_key_clears() -> None:
    class Clears(Seen):
        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
            self.seen.update(5)
            self.seen.clear()
            return {"user": key[0], "before": 0, "now": self.seen.value()}

    store = make_store()
    run(Seen(), [purchases(["ada"], [0])], SEEN, store)
    assert run(Clears(), [purchases(["ada"], [0])], SEEN, store) == [{"user": "ada", "before": 0, "now": None}]
    assert run(Seen(), [purchases(["ada"], [0])], SEEN, store) == [{"user": "ada", "before": None, "now": 1}]


def test_changing_what_was_read_or_written_changes_no_state() -> None:
    class Mutates(hf.KeyedProcessor):
        state = hf.ValueState(pa.list_(pa.int64()))

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
            if self.state.value() is None:
                written = [1]
                self.state.update(written)
                written.append(2)
            self.state.value().append(3)
            assert self.state.value() == [1]

    store = make_store()
    for _ in range(2):
        run(Mutates(), [purchases(["ada"], [0])], USER, store)


@pytest.mark.parametrize(
    ("type", "values"),
    [
        (pa.float32(), pa.array([1e300])),
        (pa.decimal128(5, 2), pa.array([0.129])),
        (pa.decimal128(5, 2), pa.array([100_000])),
        (pa.decimal128(10, -2), pa.array([Decimal(1)], pa.decimal128(38, 37))),  # Arrow makes 0 of it
        (pa.decimal128(38, 38), pa.array([Decimal(10) ** 21], pa.decimal128(22, 0))),  # and here another number
        (pa.timestamp("us"), pa.scalar(1, pa.timestamp("ns"))),
        (pa.timestamp("us"), pd.Timestamp(1)),
        (pa.timestamp("s"), [dt.datetime(2020, 1, 1, 0, 0, 0, 5)]),
        (pa.time64("us"), pa.scalar(1, pa.time64("ns"))),
        (pa.date32(), [dt.datetime(2020, 1, 1, 5)]),
        (pa.time64("us"), [dt.time(1, tzinfo=dt.timezone.utc)]),
        (pa.duration("us"), [pd.Timedelta(1)]),
        (pa.struct([("x", pa.int64())]), [{"x": 1, "y": 2}]),
        (pa.list_(pa.float32()), pa.array([[1e300]])),
        (pa.list_(pa.struct([("x", pa.int8())])), pa.array([[{"x": 300}]])),
        (pa.map_(pa.string(), pa.decimal128(5, 2)), pa.array([[("a", 0.129)]], pa.map_(pa.string(), pa.float64()))),
        (pa.list_(pa.field("x", pa.int64(), nullable=False)), [[None]]),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["batch", "keyed"])
def test_no_digit_is_lost_without_a_word(kind: str, type: pa.DataType, values: Any) -> None:
    class Keeps(hf.BatchProcessor):
        state = hf.ValueState(type)

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            self.state.put(batch, values)

    class KeepsKeyed(hf.KeyedProcessor):
        state = hf.ValueState(type)

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            self.state.update(values[0] if isinstance(values, (list, pa.Array)) else values)

    named = "state 'state'" if kind == "batch" else r"state 'state': expected .*; key \('ada',\)"
    with pytest.raises(InvalidRequest, match=named):
        run(Keeps() if kind == "batch" else KeepsKeyed(), [purchases(["ada"], [0])], USER)


def test_what_lies_below_a_null_is_not_read() -> None:
    type = pa.struct([("x", pa.int8())])

    class Keeps(hf.BatchProcessor):
        state = hf.ValueState(type)

    processor = Keeps()
    hidden = pa.StructArray.from_arrays([pa.array([1, 300])], ["x"], mask=pa.array([False, True]))
    with bind(processor, USER):
        processor.state.put(["ada", "bob"], hidden)
        assert processor.state.get(["ada", "bob"]).to_pylist() == [{"x": 1}, None]


def test_extension_types_are_taken_where_they_were_declared() -> None:
    class Keeps(hf.BatchProcessor):
        id = hf.ValueState(pa.uuid())
        raw = hf.ValueState(pa.binary(16))

    processor, ids = Keeps(), pa.array([b"0123456789abcdef"], pa.uuid())
    with bind(processor, USER):
        processor.id.put(["ada"], ids)
        assert processor.id.get(["ada"]).to_pylist() == [b"0123456789abcdef"]
        with pytest.raises(InvalidRequest, match="expected fixed_size_binary"):
            processor.raw.put(["ada"], ids)


def test_extension_types_are_taken_where_they_were_declared_at_any_depth() -> None:
    """A state that was declared with them refused all that had them."""
    pair = pa.struct([("id", pa.uuid()), ("n", pa.int64())])

    class Keeps(hf.BatchProcessor):
        ids = hf.ListState(pa.uuid())
        pairs = hf.ValueState(pa.list_(pair))
        entries = hf.ValueState(pa.map_(pa.uuid(), pair))
        raw = hf.ListState(pa.binary(16))

    processor, one, other = Keeps(), b"0123456789abcdef", b"fedcba9876543210"
    ids = pa.array([one, other], pa.uuid())
    lists = pa.ListArray.from_arrays([0, 0, 2], ids)
    numbered = pa.StructArray.from_arrays([pa.array([1, 2], pa.int32()), ids], ["n", "id"])  # cast, too
    with bind(processor, USER):
        processor.ids.add_all(["ada", "bob"], lists)
        processor.ids.update(["eve", "joe"], pa.chunked_array([lists.slice(1), lists.slice(0, 1)]))
        assert processor.ids.get(["ada", "bob", "eve"]).to_pylist() == [[], [one, other], [one, other]]
        found = [{"id": one, "n": 1}, {"id": other, "n": 2}]
        processor.pairs.put(["ada"], pa.ListArray.from_arrays([0, 2], numbered))
        assert processor.pairs.get(["ada"]).to_pylist() == [found]
        processor.entries.put(["ada"], pa.MapArray.from_arrays([0, 2], ids, numbered))
        assert processor.entries.get(["ada"]).to_pylist() == [[(one, found[0]), (other, found[1])]]
        plain = lists.cast(pa.list_(pa.binary(16)))
        processor.ids.add_all(["joe", "joe"], plain)
        assert processor.ids.get(["joe"]).to_pylist() == [[one, other]]
        with pytest.raises(InvalidRequest, match="expected list<.*fixed_size_binary.*>, found list<.*uuid>"):
            processor.raw.add_all(["ada", "bob"], lists)


@pytest.mark.parametrize("state", ["ids", "flags"])
def test_another_extension_type_than_the_declared_one_is_refused(state: str) -> None:
    class Keeps(hf.BatchProcessor):
        ids = hf.ListState(pa.uuid())
        flags = hf.ListState(pa.bool8())

    processor = Keeps()
    uuids = pa.array([b"0123456789abcdef"], pa.uuid())
    given = uuids if state == "flags" else pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8()))
    with bind(processor, USER), pytest.raises(InvalidRequest, match=f"state '{state}', lists: expected list<"):
        getattr(processor, state).add_all(["ada"], pa.ListArray.from_arrays([0, 1], given))


def test_a_time_that_python_has_no_value_for_is_said() -> None:
    class Writes(hf.BatchProcessor):
        at = hf.ValueState(pa.time64("ns"))

    class Reads(hf.KeyedProcessor):
        at = hf.ValueState(pa.time64("ns"))

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            self.at.value()

    store, processor = make_store(), Writes()
    with bind(processor, USER, store):
        processor.at.put(["ada"], pa.array([1], pa.time64("ns")))
    with pytest.raises(InvalidRequest, match=r"state 'at': a value of time64\[ns\] has no Python value"):
        run(Reads(), [purchases(["ada"], [0])], USER, store)


def test_a_wrong_value_is_named_with_its_state() -> None:
    class Wrong(hf.KeyedProcessor):
        state = hf.ValueState(pa.int64())

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            self.state.update("seven" if key == ("bob",) else 7)

    with pytest.raises(InvalidRequest, match=r"state 'state': expected int64, found 'seven' \(str\)"):
        run(Wrong(), [purchases(["ada", "bob"], [0, 0])], USER)
