"""Values of many keys that together are more than one array holds, 2 GiB: a chunk of keys is read and written in parts,
and its output comes in parts.

The limit is lowered to 1,500 bytes: of what is read by tables that refuse more, as the core's do past 2 GiB.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.unit.state_bench import USER, bind, make_context, make_store, purchases

import holdfast as hf
from holdfast.errors import InvalidRequest
from holdfast.state import keyed_scope, outputs
from holdfast.state.keyed_values import FoldedByCore
from holdfast.state.sizes import row_bytes, rows_bytes

LIMIT = 1500
USERS = [f"user-{number:02}" for number in range(23)]
OUT = pa.schema([("user", pa.string()), ("found", pa.string())])


class Keeps(hf.KeyedProcessor):
    """Ninety bytes a key and row in a state of each kind; gives what there was before and what there is."""

    value = hf.ValueState(pa.binary())
    elements = hf.ListState(pa.binary())
    entries = hf.MapState(pa.binary(), pa.binary())
    longest = hf.ReducingState(pa.binary(), "max")
    last = hf.ReducingState(pa.binary(), lambda a, b: b)

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
        before = self.found()
        for amount in rows["amount"].to_pylist():
            large = f"{key[0]} {amount}".encode().ljust(90, b".")
            self.value.update(large)
            self.elements.add(large)
            self.entries.put(large, large)
            self.longest.add(large)
            self.last.add(large)
        return key[0], f"{before} {self.found()}"

    def found(self) -> list[Any]:
        return [self.value.value(), self.elements.get(), self.entries.items(), self.longest.get(), self.last.get()]


class Limited:
    """A table of the core whose arrays hold so many bytes."""

    def __init__(self, table: Any, asked: list[int]) -> None:
        self._table, self._asked = table, asked

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._table, name)
        return self._read(method) if name in ("get", "entries") else method

    def _read(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def read(keys: Any, *arguments: Any) -> Any:
            found = pa.array(method(keys, *arguments))
            self._asked.append(len(found))
            if found.nbytes > LIMIT:
                raise InvalidRequest(f"one array holds at most {LIMIT} bytes; ask for fewer rows at a time")
            return found

        return read


def run_batch(store: Any, rows: pa.RecordBatch, limited: list[int] | None) -> list[Any]:
    context, given = make_context(), []
    with bind(Keeps(), OUT, store) as bound:
        if limited is not None:
            states: list[Any] = list(bound._states)
            for state in states:
                state._table = Limited(state._table, limited)
        for produced in (bound.process(rows, context), bound.finish(context)):
            given += [row for _, out in produced for row in out.to_pylist()]
    return given


def test_a_chunk_whose_values_no_one_array_holds_is_read_and_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The query failed at the first key of the chunk, and failed again whenever it was started."""
    plain, small = make_store(), make_store()
    asked: list[int] = []
    for batch in range(3):
        rows = purchases(USERS * 2, [batch * 100 + number for number in range(len(USERS) * 2)])
        monkeypatch.setattr(keyed_scope, "ARRAY_BYTES_MAX", (1 << 31) - 1)
        expected = run_batch(plain, rows, None)
        monkeypatch.setattr(keyed_scope, "ARRAY_BYTES_MAX", LIMIT)
        assert run_batch(small, rows, asked) == expected
    assert pa.record_batch(small.take_delta()).num_rows == pa.record_batch(plain.take_delta()).num_rows
    assert 1 in asked and max(asked) == len(USERS)


def test_one_keys_value_that_no_array_holds_is_refused_with_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    class Grows(hf.KeyedProcessor):
        elements = hf.ListState(pa.binary())

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
            self.elements.add(b"." * 90)
            return key[0], str(len(self.elements.get()))

    store, context = make_store(), make_context()
    with bind(Grows(), OUT, store) as bound, pytest.raises(InvalidRequest, match="state 'elements': one array holds"):
        elements: Any = bound._states[0]
        elements._table = Limited(elements._table, [])
        for _ in range(20):
            list(bound.process(purchases(["ada"], [1]), context))
            list(bound._driver.run(context))  # type: ignore[union-attr]


@pytest.mark.parametrize(("askers", "asked"), [(range(400, 401), [64]), (range(1400), [64, 64, 192, 256, 768, 56])])
def test_the_more_keys_ask_the_more_is_read_for_those_to_come(
    askers: range, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One key of a chunk that asked had the lists of up to 4,095 others read, which never did."""

    class Asks(hf.KeyedProcessor):
        elements = hf.ListState(pa.int64())

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            if int(key[0]) in askers:
                assert self.elements.get() == []

    monkeypatch.setattr(sys.modules[__name__], "LIMIT", 1 << 20)
    found: list[int] = []
    with bind(Asks(), OUT) as bound:
        elements: Any = bound._states[0]
        elements._table = Limited(elements._table, found)
        context, rows = make_context(), purchases([f"{number:04}" for number in range(1400)], [1] * 1400)
        assert not [*bound.process(rows, context), *bound.finish(context)]
    assert found == asked


def test_no_more_is_read_for_keys_to_come_than_a_chunk_is_meant_to_move(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asks(hf.KeyedProcessor):
        elements = hf.ListState(pa.binary())

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            assert len(self.elements.get()) == ctx.batch_id - 1
            self.elements.add(b"." * 250)

    monkeypatch.setattr(keyed_scope, "AHEAD_BYTES", 1200)
    monkeypatch.setattr(keyed_scope, "AHEAD_KEYS_MIN", 1)
    store, asked = make_store(), list[int]()
    for batch in (1, 2):
        asked.clear()
        with bind(Asks(), OUT, store) as bound:
            elements: Any = bound._states[0]
            elements._table = Limited(elements._table, asked)
            context = make_context(batch)
            assert not [*bound.process(purchases(USERS, [1] * len(USERS)), context), *bound.finish(context)]
    assert asked == [1, 4, 4, 4, 4, 4, 2]


class LimitedKeys:
    """A chunk's keys, which so many times are refused as Arrow refuses them."""

    def __init__(self, keys: pa.Array, asked: list[int]) -> None:
        self._keys, self._asked = keys, asked

    def __len__(self) -> int:
        return len(self._keys)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._keys, name)

    def take(self, rows: pa.Array) -> pa.Array:
        self._asked.append(len(rows))
        if len(rows) > 4:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return self._keys.take(rows)


class Many(hf.KeyedProcessor):
    """Many changes a key, each of which goes to the core with the key."""

    elements = hf.ListState(pa.int64())
    entries = hf.MapState(pa.int64(), pa.int64())
    total = hf.ReducingState(pa.float64(), "sum")
    spread = hf.AggregatingState(pa.float64(), "variance")
    timers = hf.Timers("event")

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
        before = [self.entries.get_all(range(30)), self.total.get(), self.elements.get()]
        for number in range(23):
            self.elements.add(number)
            self.entries.put(number + ctx.batch_id, number)
            self.total.add(number)
            self.spread.add(number)
            self.timers.register(ctx.timestamp, str(number + ctx.batch_id))
        for number in range(9):
            self.entries.remove(number)
            self.timers.delete(ctx.timestamp, str(number))
        return key[0], str([before, self.spread.get(), self.total.get(), self.entries.items(), self.timers.list()])

    def on_timer(self, key: tuple[Any, ...], time: Any, namespace: str, ctx: hf.Context) -> None: ...


def test_a_key_that_no_array_holds_as_often_as_it_has_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's own error came through: a key of a megabyte with 2,048 elements that were added in one batch."""
    asked: list[int] = []
    begin = keyed_scope.KeyScope.begin

    def begin_limited(scope: Any, keys: Any, tuples: Any) -> None:
        begin(scope, keys, tuples)
        scope.keys = LimitedKeys(scope.keys, asked)

    def ran(store: Any) -> list[Any]:
        given = []
        for batch in (1, 2):
            context = make_context(batch)
            with bind(Many(), OUT, store) as bound:
                for produced in (bound.process(purchases(["ada", "bob"], [1, 2]), context), bound.finish(context)):
                    given += [row for _, out in produced for row in out.to_pylist()]
        return given

    plain, small = make_store(), make_store()
    expected = ran(plain)
    monkeypatch.setattr(keyed_scope.KeyScope, "begin", begin_limited)
    assert ran(small) == expected
    assert pa.record_batch(small.take_delta()).equals(pa.record_batch(plain.take_delta()))
    assert max(asked) > 40


class Firsts(hf.KeyedProcessor):
    first = hf.ReducingState(pa.struct([("a", pa.binary())]), "first")

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
        self.first.add({"a": b"." * 90})
        for _ in range(40):
            self.first.add({"a": b"x"})
        found = self.first.get()
        assert found is not None
        yield {"user": key[0], "found": str(len(found["a"]))}


def test_a_result_is_read_once_however_many_values_were_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as there were values: of a large first one and ten thousand small ones no array held so many."""
    sizes: list[int] = []

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            given = method(*arguments)
            if given is None:
                return None
            array = pa.array(given)
            sizes.append(array.nbytes)
            return array

        return call

    for name in ("_run", "_ask"):
        monkeypatch.setattr(FoldedByCore, name, counted(getattr(FoldedByCore, name)))
    out = pa.schema([("user", pa.string()), ("found", pa.string())])
    context = make_context(1)
    with bind(Firsts(), out, make_store()) as bound:
        produced = [*bound.process(purchases(["ada"], [1]), context), *bound.finish(context)]
    assert [row for _, rows in produced for row in rows.to_pylist()] == [{"user": "ada", "found": "90"}]
    assert sizes and max(sizes) < 300


def test_one_change_that_no_array_holds_is_refused_and_not_divided_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = keyed_scope.KeyScope.begin

    class NoKeys:
        def __init__(self, keys: Any) -> None:
            self._keys = keys

        def take(self, indices: Any) -> Any:
            raise pa.ArrowInvalid("offset overflow")

        def __len__(self) -> int:
            return len(self._keys)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._keys, name)

    def begin_limited(scope: Any, keys: Any, tuples: Any) -> None:
        begin(scope, keys, tuples)
        scope.keys = NoKeys(scope.keys)

    monkeypatch.setattr(keyed_scope.KeyScope, "begin", begin_limited)
    context = make_context(1)
    with pytest.raises(InvalidRequest, match="offset overflow"):
        with bind(Many(), OUT, make_store()) as bound:
            for produced in (bound.process(purchases(["ada", "bob"], [1, 2]), context), bound.finish(context)):
                list(produced)


def limited(name: str) -> Callable[..., Any]:
    """A function of ``outputs`` that makes an array, or a batch, and refuses a large one as Arrow does."""
    method = getattr(outputs, name)

    def make(*arguments: Any, **named: Any) -> Any:
        made = method(*arguments, **named)
        if made.nbytes > LIMIT:
            raise pa.ArrowInvalid("offset overflow") if name == "one_batch" else InvalidRequest("overflow")
        return made

    return make


WIDE = pa.schema([("number", pa.int64()), ("bytes", pa.binary()), ("texts", pa.list_(pa.string()))])


def table_of(rows: list[Any], names: tuple[str, ...] = tuple(WIDE.names)) -> pa.Table:
    """In one chunk."""
    columns = dict(zip(WIDE.names, zip(*rows)))
    return pa.table([pa.array(columns[name], WIDE.field(name).type) for name in names], names=names)


GIVEN: dict[str, Callable[[list[Any]], Any]] = {
    "tuples": lambda rows: rows,
    "dicts": lambda rows: [dict(zip(WIDE.names, row)) for row in rows],
    "batches": lambda rows: [table_of([row]).to_batches()[0] for row in rows],
    "tables": lambda rows: [table_of([row], ("bytes", "texts", "number")) for row in rows],
    "one batch": lambda rows: table_of(rows, ("bytes", "texts", "number")).to_batches()[0],
    "one frame": lambda rows: pd.DataFrame(rows, columns=WIDE.names),
}


@pytest.mark.parametrize("form", GIVEN)
def test_output_that_no_one_array_holds_comes_in_parts(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chunk's conversion failed, and failed again whenever the query was started."""
    for name in ("from_python", "arrow_of", "to_array", "one_batch"):
        monkeypatch.setattr(outputs, name, limited(name))
    monkeypatch.setattr(outputs, "UNDIVIDED_BYTES", 500)
    rows = [(number, f"{number}".encode().ljust(90), [f"{number}".ljust(90)]) for number in range(53)]
    given = outputs.OutputRows(WIDE)
    given.add(GIVEN[form](rows))
    found = given.drain()
    assert len(found) > 1
    assert [tuple(row.values()) for batch in found for row in batch.to_pylist()] == rows


def test_what_does_not_fit_in_any_part_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "to_array", limited("to_array"))
    monkeypatch.setattr(outputs, "UNDIVIDED_BYTES", 500)
    given = outputs.OutputRows(WIDE)
    with pytest.raises(InvalidRequest, match="overflow"):
        given.add(pd.DataFrame([(1, b"." * (LIMIT + 1), None)] * 3, columns=WIDE.names))
    with pytest.raises(InvalidRequest, match=r"column 'number': expected int64, found 'one' \(str\)"):
        given.add(pd.DataFrame([(1, b"." * 100, None)] * 30 + [("one", b"", None)] * 3, columns=WIDE.names))


@pytest.mark.long
@pytest.mark.parametrize("form", ["dicts", "batches", "frames", "few among small ones"])
def test_rows_that_are_large_do_not_wait_for_thousands_of_others(form: str) -> None:
    """Ten thousand rows of 1 MB waited together, where one worker may have a gigabyte."""
    large, rows, ahead = "x" * (1 << 20), 400, []
    ctx, given, left = make_context(), 0, 0

    class Large(hf.KeyedProcessor):
        def process(self, key: tuple[Any, ...], table: pa.Table, ctx: hf.Context) -> Iterator[Any]:
            nonlocal given
            for _ in range(rows):
                if form == "few among small ones":
                    yield from ({"user": "small"} for _ in range(20))
                row = {"user": f"{large}{given}"}
                if form == "batches":
                    yield pa.RecordBatch.from_pylist([row], USER)
                else:
                    yield pd.DataFrame([row]) if form == "frames" else row
                given += 1
                ahead.append(given - left)

    with bind(Large(), USER) as bound:
        for _, batch in chain(bound.process(purchases(["ada"], [1]), ctx), bound.finish(ctx)):
            left += len([value for value in batch["user"].to_pylist() if value != "small"])
    assert left == rows
    assert max(ahead) <= 200


NUMBERS = np.zeros((1, 1 << 11))  # 16 KiB
TEXT = "x" * (1 << 14)


def cell(*values: Any) -> Any:
    made = np.empty(len(values), object)
    made[:] = values
    return made


#: Columns of one row of 16 KiB, of which getsizeof says little.
SMALL_TO_PYTHON: dict[str, tuple[pa.DataType, Callable[[], Any]]] = {
    "views of numpy": (pa.list_(pa.float64()), lambda: list(NUMBERS)),
    "arrays in arrays": (
        pa.list_(pa.list_(pa.float64())),
        lambda: [cell(NUMBERS[0][: 1 << 10], NUMBERS[0][1 << 10 :])],
    ),
    "objects in arrays": (pa.list_(pa.string()), lambda: [cell(TEXT)]),
    "sets": (pa.list_(pa.string()), lambda: [{TEXT}]),
    "deques": (pa.list_(pa.string()), lambda: [deque([TEXT])]),
    "map keys": (pa.map_(pa.string(), pa.string()), lambda: [{TEXT: ""}]),
    "ranges": (pa.list_(pa.int64()), lambda: [range(1 << 11)]),
    "memoryviews": (pa.binary(), lambda: [memoryview(NUMBERS[0]).cast("B")]),
    "scalars of Arrow": (pa.string(), lambda: [pa.scalar(TEXT)]),
    "words of Arrow": (pa.string(), lambda: [pa.array([TEXT]).dictionary_encode()[0]]),
    "arrays of Arrow": (pa.list_(pa.string()), lambda: [pa.array([TEXT])]),
    "categories": (pa.string(), lambda: pd.Series([TEXT]).astype("category")),
    "texts of pandas": (pa.string(), lambda: pd.Series([TEXT], dtype="string[python]")),
    "texts of Arrow": (pa.string(), lambda: pd.Series([TEXT], dtype="string[pyarrow]")),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", SMALL_TO_PYTHON)
def test_rows_are_as_large_as_what_is_made_of_them(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view of 160 kB is 112 bytes to getsizeof: of frames of such, ten thousand rows waited together."""
    monkeypatch.setattr(outputs, "BYTES_WAITING_MAX", 1 << 20)
    monkeypatch.setattr(outputs, "_BYTES_UNSEEN_MAX", 1 << 14)
    type, column = SMALL_TO_PYTHON[kind]
    given, rows = outputs.OutputRows(pa.schema([("number", pa.int64()), ("large", type)])), 0
    while not given.is_full and rows < 200:
        rows += 1
        given.add(pd.DataFrame({"number": [rows], "large": column()}))
    assert 40 <= rows <= 70
    assert sum(batch.nbytes for batch in given.drain()) >= rows << 14


@pytest.mark.parametrize("encode", [pa.Array.dictionary_encode, pc.run_end_encode])
@pytest.mark.parametrize("wrap", [None, "list", "struct", "map"])
def test_words_are_as_large_as_often_as_they_are_there(encode: Any, wrap: str | None) -> None:
    column: Any = encode(pa.array(["small", *["x" * (1 << 16)] * 32, "small"]))[1:33]
    words = ends = pa.array(range(33), pa.int32())
    if wrap == "list":
        column = pa.ListArray.from_arrays(ends, column)
    elif wrap == "struct":
        column = pa.StructArray.from_arrays([column], ["word"])
    elif wrap == "map":
        column = pa.MapArray.from_arrays(ends, words[:32], column)
    found = rows_bytes(pa.table({"words": column}))
    assert 32 << 16 <= found <= 33 << 16
    assert 16 << 16 <= rows_bytes(pa.table({"words": column[:16]})) <= 17 << 16


@pytest.mark.parametrize("encode", [pa.Array.dictionary_encode, pc.run_end_encode])
@pytest.mark.parametrize("type", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_a_slice_is_as_large_as_its_own_words(encode: Any, type: pa.DataType) -> None:
    words = pa.array([f"{number}" * number if number % 7 else None for number in range(200)], type)
    for rows in (slice(0, 200), slice(50, 101), slice(199, 200), slice(60, 60)):
        found = rows_bytes(pa.table({"words": encode(words)[rows]}))
        assert found == pc.sum(pc.binary_length(words[rows]), min_count=0).as_py()


def test_words_are_found_whatever_their_codes_and_wherever_the_dictionary_begins() -> None:
    words = pa.array([None, *("x" * number for number in range(129))])[2:]  # of 1 to 128
    for index in (pa.int8(), pa.uint8(), pa.int64()):
        codes = pa.array([127, None, 0, 127], index)
        assert rows_bytes(pa.table({"words": pa.DictionaryArray.from_arrays(codes, words)})) == 128 + 1 + 128


@pytest.mark.parametrize("encode", [pa.Array.dictionary_encode, pc.run_end_encode])
def test_a_slice_is_measured_without_the_rest_of_what_it_was_cut_from(encode: Any) -> None:
    """Sixty-four rows with a dictionary of 200,000 words, or of as many runs, took as long as all of them."""
    some = pa.table({"words": encode(pa.array([f"user-{number:06}" for number in range(200_000)]))[700:764]})
    tracemalloc.start()
    try:
        assert rows_bytes(some) == 64 * len("user-000700")
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


class Measured(str):
    times = 0

    def __sizeof__(self) -> int:
        Measured.times += 1
        return super().__sizeof__()


@pytest.mark.parametrize("categories", [False, True])
def test_of_a_frame_a_few_rows_are_looked_at(categories: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value of it was: frames took up to twice as long."""
    monkeypatch.setattr(Measured, "times", 0)
    words = pd.Series([Measured(number) for number in range(1000)], dtype=object)
    given = outputs.OutputRows(USER)
    given.add(pd.DataFrame({"user": words.astype("category") if categories else words}))
    assert 0 < Measured.times <= 16


@pytest.mark.parametrize("every", [2, 3, 4, 5, 8, 10])
@pytest.mark.parametrize("rows", [64, 100, 1000])
def test_a_pattern_in_a_frames_rows_does_not_hide_the_large_ones(every: int, rows: int) -> None:
    frame = pd.DataFrame({"user": [f"{number}".ljust(1 if number % every else 10_000) for number in range(rows)]})
    assert 10_000 / every / 3 < row_bytes(frame) < 10_000 / every * 3


def test_words_that_no_one_array_holds_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a word that is there many times, only the one was counted: too little to try less of them."""
    monkeypatch.setattr(outputs, "to_array", limited("to_array"))
    monkeypatch.setattr(outputs, "UNDIVIDED_BYTES", 500)
    words = pa.array(["x" * 90] * 53).dictionary_encode()
    for given in (pa.table({"user": words}).to_batches()[0], pd.DataFrame({"user": words.to_pandas()})):
        rows = outputs.OutputRows(USER)
        rows.add(given)
        found = rows.drain()
        assert len(found) > 1
        assert [word for batch in found for word in batch["user"].to_pylist()] == ["x" * 90] * 53


@pytest.mark.parametrize("place", [0, 1, 50, -2, -1])
def test_one_large_row_in_each_frame_is_seen_wherever_it_is(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head of a key's rows, or what is rolled up at their end."""
    monkeypatch.setattr(outputs, "BYTES_WAITING_MAX", 1 << 20)
    given, frames = outputs.OutputRows(USER), 0
    values = ["small"] * 100
    values[place] = "x" * 100_000
    while not given.is_full:
        given.add(pd.DataFrame({"user": values}))
        frames += 1
    assert frames <= 40
