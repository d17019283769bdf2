"""Keyed processors at work: grouping, order, chunks, memory limits, and the states of the current key only."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal
from operator import methodcaller
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_count import examples
from tests.unit.state_bench import USER, USER_SHOP, bind, make_context, make_store, purchases, run, users_error

import holdfast as hf
from holdfast.errors import InvalidRequest
from holdfast.state import keyed_driver

OUT = pa.schema([("user", pa.string()), ("amounts", pa.list_(pa.int64()))])


class Rows(hf.KeyedProcessor):
    """What each call was called with."""

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
        assert isinstance(rows, pa.Table)
        assert set(rows["user"].to_pylist()) == {key[0]}
        return {"user": key[0], "amounts": rows["amount"].to_pylist()}


def calls(batches: list[pa.RecordBatch], **limits: Any) -> list[tuple[str, list[int]]]:
    return [(row["user"], row["amounts"]) for row in run(Rows(), batches, OUT, **limits)]


def test_once_a_key_with_all_its_rows_in_order() -> None:
    batches = [
        purchases(["bob", "ada", "bob"], [1, 2, 3]),
        purchases([], []),
        purchases(["ada", "eve", "bob"], [4, 5, 6]),
    ]
    assert calls(batches) == [("bob", [1, 3, 6]), ("ada", [2, 4]), ("eve", [5])]


def test_rows_that_are_grouped_already() -> None:
    assert calls([purchases(["a", "a", "b", "c"], [1, 2, 3, 4])]) == [("a", [1, 2]), ("b", [3]), ("c", [4])]


def test_no_rows_no_calls() -> None:
    assert calls([]) == calls([purchases([], [])]) == []


def test_past_the_limit_keys_are_called_with_what_is_there() -> None:
    batches = [purchases(["ada", "bob"], [1, 2]), purchases(["ada"], [3]), purchases(["ada"], [4])]
    limit = batches[0].nbytes + batches[1].nbytes
    assert calls(batches, rows_bytes_max=limit) == [("ada", [1, 3]), ("bob", [2]), ("ada", [4])]


def test_several_key_columns_as_a_tuple() -> None:
    seen = []

    class Notes(hf.KeyedProcessor):
        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            seen.append((key, rows["amount"].to_pylist()))

    rows = pa.record_batch({"amount": [1, 2, 3], "shop": pa.array([7, 8, 7], pa.int32()), "user": ["ada"] * 3})
    run(Notes(), [rows], USER, keys=USER_SHOP)
    assert seen == [(("ada", 7), [1, 3]), (("ada", 8), [2])]


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=20), max_size=4))
def test_any_rows_are_grouped_as_a_dict_would(batches: list[list[str]]) -> None:
    expected: dict[str, list[int]] = defaultdict(list)
    made, number = [], 0
    for users in batches:
        made.append(purchases(users, list(range(number, number + len(users)))))
        for user in users:
            expected[user].append(number)
            number += 1
    assert calls(made) == list(expected.items())


class FrameRows(hf.KeyedProcessor):
    rows = "pandas"
    total = hf.ValueState(pa.int64())

    def process(self, key: tuple[Any, ...], rows: pd.DataFrame, ctx: hf.Context) -> pd.DataFrame:
        assert list(rows.index) == list(range(len(rows)))
        total = (self.total.value() or 0) + int(rows["amount"].sum())
        self.total.update(total)
        rows["total"] = total  # a frame is the processor's own
        return rows


def test_rows_as_frames() -> None:
    output = pa.schema([("user", pa.string()), ("amount", pa.int64()), ("total", pa.int64())])
    found = run(FrameRows(), [purchases(["bob", "ada", "bob"], [1, 2, 3])], output)
    assert [tuple(row.values()) for row in found] == [("bob", 1, 4), ("bob", 3, 4), ("ada", 2, 2)]


def test_a_null_of_one_key_changes_no_integer_of_another_in_frames() -> None:
    """pandas makes doubles of integers where one is missing: 2**53 + 1 lost its last digit, below structs too."""

    class Frames(hf.KeyedProcessor):
        rows = "pandas"
        largest = hf.ReducingState(pa.int64(), "max")

        def process(self, key: tuple[Any, ...], rows: pd.DataFrame, ctx: hf.Context) -> Iterator[Any]:
            for amount in rows["amount"]:
                self.largest.add(amount)
            yield {**rows.iloc[0], "amount": self.largest.get()}

    large = 2**53 + 1
    nested = pa.struct([("n", pa.int64()), ("list", pa.list_(pa.int64())), ("map", pa.map_(pa.string(), pa.int64()))])
    schema = pa.schema([("user", pa.string()), ("amount", pa.int64()), ("nested", nested)])
    given = [
        {"user": "ada", "amount": large, "nested": {"n": large, "list": [large, None], "map": [("a", large)]}},
        {"user": "bob", "amount": None, "nested": {"n": None, "list": [], "map": [("b", None)]}},
    ]
    assert run(Frames(), [pa.RecordBatch.from_pylist(given, schema)], schema) == given


def test_a_null_of_one_key_changes_no_dtype_of_another_in_frames() -> None:
    """Columns were objects for all keys of a chunk: ~True is -2, and a sum of numbers left them out."""
    found: dict[str, Any] = {}

    class Frames(hf.KeyedProcessor):
        rows = "pandas"

        def process(self, key: tuple[Any, ...], rows: pd.DataFrame, ctx: hf.Context) -> None:
            sums = rows.sum(numeric_only=True).to_dict()
            found[key[0]] = (rows.dtypes.map(str).to_dict(), rows["ok"].tolist(), rows["n"].tolist(), sums)
            if key[0] != "bob":
                assert (~rows["ok"]).sum() == 1
            rows.loc[0, "n"] = 99  # a frame is the processor's own

    schema = pa.schema([("user", pa.string()), ("n", pa.int32()), ("ok", pa.bool_()), ("x", pa.float64())])
    users = ["ada", "bob", "ada", "bob", "eve", "eve"]
    columns = [users, [1, None, 2, 3, 4, 5], [True, None, False, True, False, True], [0.5, 1.0, None, 1.0, 1.0, 1.0]]
    rows = pa.record_batch([pa.array(column, field.type) for column, field in zip(columns, schema)], schema=schema)
    run(Frames(), [rows], schema)
    plain = {"user": "object", "n": "int32", "ok": "bool", "x": "float64"}
    assert found == {
        "ada": (plain, [True, False], [1, 2], {"n": 3, "ok": 1, "x": 0.5}),
        "bob": ({**plain, "n": "object", "ok": "object"}, [None, True], [None, 3], {"x": 2.0}),
        "eve": (plain, [False, True], [4, 5], {"n": 9, "ok": 1, "x": 2.0}),
    }


class AllStates(hf.KeyedProcessor):
    """Every kind of state at once, checked against Python's own."""

    value = hf.ValueState(pa.int64())
    items = hf.ListState(pa.int64())
    entries = hf.MapState(pa.int64(), pa.int64())
    largest = hf.ReducingState(pa.int64(), "max")
    mean = hf.AggregatingState(pa.int64(), "avg")
    joined = hf.ReducingState(pa.string(), lambda a, b: a + b)

    def __init__(self, model: dict[str, list[int]]) -> None:
        self.model = model

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[dict[str, Any]]:
        mine = self.model[key[0]]
        self.check(mine)
        for amount in rows["amount"].to_pylist():
            mine.append(amount)
            self.value.update((self.value.value() or 0) + amount)
            self.items.add(amount)
            self.entries.put(amount % 5, (self.entries.get(amount % 5) or 0) + 1)
            self.largest.add(amount)
            self.mean.add(amount)
            self.joined.add(str(amount))
            if amount % 3 == 0:
                self.check(mine)
            yield {"user": key[0]}

    def check(self, mine: list[int]) -> None:
        counts: dict[int, int] = {}
        for amount in mine:
            counts[amount % 5] = counts.get(amount % 5, 0) + 1
        assert self.value.value() == (sum(mine) if mine else None)
        assert self.items.get() == mine
        assert self.entries.items() == sorted(counts.items())
        assert self.largest.get() == max(mine, default=None)
        assert self.mean.get() == (pytest.approx(np.mean(mine)) if mine else None)
        assert self.joined.get() == ("".join(map(str, mine)) if mine else None)


@pytest.mark.parametrize("chunk_keys", [1, 2, 64])
def test_all_states_over_chunks_and_batches(chunk_keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_driver, "CHUNK_KEYS_MIN", chunk_keys)
    monkeypatch.setattr(keyed_driver, "CHUNK_KEYS_MAX", chunk_keys)
    draw = np.random.default_rng(7)
    store, model = make_store(), defaultdict[str, list[int]](list)
    for _ in range(4):
        users = [f"u{i}" for i in draw.integers(0, 30, 100)]
        batch = purchases(users, draw.integers(0, 100, 100).tolist())
        assert len(run(AllStates(model), [batch.slice(0, 40), batch.slice(40)], USER, store)) == 100


def test_large_values_make_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the states of a chunk move stays near the limit: chunks follow the size of what was there before."""
    sizes: list[int] = []

    class Blobs(hf.KeyedProcessor):
        blob = hf.ValueState(pa.binary())

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            self.blob.update(b"x" * 50_000)

    begin = hf.state.keyed_scope.KeyScope.begin

    def noting(scope: Any, keys: Any, tuples: Any) -> None:
        sizes.append(len(keys))
        begin(scope, keys, tuples)

    monkeypatch.setattr(hf.state.keyed_scope.KeyScope, "begin", noting)
    run(Blobs(), [purchases([f"u{i}" for i in range(600)], [0] * 600)], USER)
    assert sizes[0] == keyed_driver.CHUNK_KEYS_MIN
    assert max(sizes) <= keyed_driver.CHUNK_BYTES // 50_000
    sizes.clear()
    run(Rows(), [purchases([f"u{i}" for i in range(6000)], [0] * 6000)], OUT)
    assert sizes[:4] == [64, 256, 1024, 4096]


def test_between_chunks_everything_is_in_the_store() -> None:
    """Then the store may spill: nothing is held back that would be lost or read stale."""
    store = make_store()
    deltas: list[int] = []

    class Counts(hf.KeyedProcessor):
        seen = hf.ValueState(pa.int64())

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            self.seen.update(len(rows))

    bound = bind(Counts(), USER, store, between_chunks=lambda: deltas.append(len(store.take_delta())))
    with bound:
        list(bound.process(purchases([f"u{i}" for i in range(1000)], [0] * 1000), make_context()))
        list(bound.finish(make_context()))
    assert deltas == [64, 256, 680]


def test_no_state_while_no_key_is_current() -> None:
    class Early(hf.KeyedProcessor):
        value = hf.ValueState(pa.int64())
        items = hf.ListState(pa.int64())
        entries = hf.MapState(pa.int64(), pa.int64())
        total = hf.ReducingState(pa.int64(), "sum")
        mean = hf.AggregatingState(pa.int64(), "avg")
        joined = hf.ReducingState(pa.int64(), max)

        def open(self, ctx: hf.Context) -> None:
            uses = [
                *(self.value.value, lambda: self.value.update(1), self.value.clear),
                *(self.items.get, lambda: self.items.add(1), self.items.clear),
                *(lambda: self.entries.get(1), lambda: self.entries.put(1, 1), self.entries.items),
                *(self.total.get, lambda: self.total.add(1), self.mean.clear),
                *(lambda: self.joined.add(1), self.joined.get),
            ]
            for use in uses:
                with pytest.raises(InvalidRequest, match="used while no key is current"):
                    use()

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            raise AssertionError

    bound = bind(Early(), USER)
    assert list(bound.process(purchases([], []), make_context())) == []
    bound.close()


def test_an_exception_names_the_key() -> None:
    class Fails(hf.KeyedProcessor):
        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            if key == ("bob",):
                raise RuntimeError("mine")

    with pytest.raises(RuntimeError) as caught:
        run(Fails(), [purchases(["ada", "bob"], [0, 0])], USER)
    error, note = users_error(caught.value)
    assert str(error) == "mine"
    assert note == "while Fails ran operator 'totals', slot 0 of 4, batch 1, key ('bob',)"


def test_what_a_state_of_one_key_says_reaches_no_other() -> None:
    class Flags(hf.KeyedProcessor):
        flag = hf.ValueState(pa.bool_())

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
            before = self.flag.value()
            if key[0] == "ada":
                self.flag.update(True)
            return {"user": f"{key[0]} {before}"}

    store = make_store()
    for expected in (["ada None", "bob None"], ["ada True", "bob None"]):
        assert [row["user"] for row in run(Flags(), [purchases(["ada", "bob"], [0, 0])], USER, store)] == expected


def test_outputs_of_all_forms() -> None:
    class Forms(hf.KeyedProcessor):
        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
            forms = {
                "dict": {"user": "dict"},
                "tuple": ("tuple",),
                "list": [{"user": "list"}, ("list",)],
                "table": pa.table({"user": ["table"]}),
                "frame": pd.DataFrame({"user": ["frame"]}),
                "none": None,
            }
            return forms[key[0]]

    kinds = ["dict", "tuple", "none", "list", "table", "frame", "dict"]
    found = run(Forms(), [purchases(kinds, [0] * 7)], USER)
    assert [row["user"] for row in found] == ["dict", "tuple", "list", "list", "table", "frame"]


LOST = "an operation failed, and the processor went on; nothing of this batch is kept"


class Careless(hf.KeyedProcessor):
    """Catches what its states raise, and goes on."""

    small = hf.ValueState(pa.int8())
    price = hf.ReducingState(pa.decimal128(5, 2), "sum")
    mine = hf.ReducingState(pa.list_(pa.int64()), lambda a, b: a.append(1) or 1 // 0)

    def __init__(self, use: str) -> None:
        self.use = use

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
        try:
            if self.use == "small":
                self.small.update("seven")
            elif self.use == "price":
                self.price.add(Decimal("999.99"))
                self.price.add(Decimal("0.01"))
                self.price.get()
            else:
                self.mine.add([1])
                self.mine.add([2])
        except (InvalidRequest, ZeroDivisionError):
            return {"user": key[0]}


@pytest.mark.parametrize(
    ("use", "says"),
    [("small", "expected int8, found 'seven'"), ("price", "the sum does not fit"), ("mine", "ZeroDivisionError")],
)
def test_an_error_that_a_processor_catches_loses_the_batch(use: str, says: str) -> None:
    """A sum that overflowed in get() read as None afterwards, while the core kept what was added before."""
    with pytest.raises(InvalidRequest, match=f"state '{use}': {LOST}.*{says}"):
        run(Careless(use), [purchases(["ada", "bob"], [0, 0])], USER)


def test_a_vectorised_error_that_a_processor_catches_loses_the_batch() -> None:
    class Catches(hf.BatchProcessor):
        total = hf.ReducingState(pa.int64(), "sum")

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            with pytest.raises(InvalidRequest, match="does not fit"):
                self.total.add(batch, [2**63 - 1, 1])

    with pytest.raises(InvalidRequest, match=f"state 'total': {LOST}"):
        run(Catches(), [purchases(["ada", "ada"], [0, 0])], USER)


def keyed(declaration: Any, use: Callable[[Any], Any], calls: int = 1) -> None:
    """Runs ``use(state)`` for a key, in so many batches."""

    class Uses(hf.KeyedProcessor):
        state = declaration

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            use(self.state)

    store = make_store()
    for _ in range(calls):
        run(Uses(), [purchases(["ada"], [0])], USER, store)


def test_items_between_two_gets_hides_nothing() -> None:
    def use(state: Any) -> None:
        if state.is_empty():
            state.put_all({"a": 1, "b": 2})
        else:
            assert (state.get("a"), state.items(), state.get("b")) == (1, [("a", 1), ("b", 2)], 2)

    keyed(hf.MapState(pa.string(), pa.int64()), use, calls=2)


NEW_YORK = ZoneInfo("America/New_York")


@pytest.mark.parametrize(
    ("type", "one", "other", "same"),
    [
        (pa.float32(), 0.1, float(np.float32(0.1)), True),
        (pa.float64(), -0.0, 0.0, True),
        (pa.struct([("x", pa.float64())]), {"x": float("nan")}, {"x": float("nan")}, True),
        (pa.int64(), 1, 1.0, True),
        (pa.timestamp("us"), dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc), True),
        (
            pa.timestamp("us", "America/New_York"),
            dt.datetime(2020, 11, 1, 1, 30, tzinfo=NEW_YORK),
            dt.datetime(2020, 11, 1, 1, 30, tzinfo=NEW_YORK, fold=1),
            False,
        ),
        (pa.timestamp("ns"), pd.Timestamp(1), pd.Timestamp(2), False),
    ],
    ids=str,
)
def test_map_keys_are_one_where_the_declared_type_says_so(type: pa.DataType, one: Any, other: Any, same: bool) -> None:
    def use(state: Any) -> None:
        state.clear()
        state.put(one, 1)
        assert state.get(other) == (1 if same else None)
        state.put(other, 2)
        assert len(state.keys()) == (1 if same else 2)
        assert state.get(one) == (2 if same else 1)
        state.remove(one)
        assert state.get(other) == (None if same else 2)

    keyed(hf.MapState(type, pa.int64()), use, calls=2)


def test_what_is_read_can_be_changed_and_no_state_notices() -> None:
    def reduced(state: Any) -> None:
        state.add([1])
        state.get().append(9)
        assert state.get() == [1]

    def structs(state: Any) -> None:
        state.put({"x": 1}, 1)
        state.keys()[0]["x"] = 2
        assert (state.keys(), state.get({"x": 1})) == ([{"x": 1}], 1)

    keyed(hf.ReducingState(pa.list_(pa.int64()), "last"), reduced, calls=2)
    keyed(hf.MapState(pa.struct([("x", pa.int64())]), pa.int64()), structs, calls=2)


def test_a_count_of_nothing_is_zero_before_and_after_clearing() -> None:
    def use(state: Any) -> None:
        assert state.get() == 0
        state.add("x")
        assert state.get() == 1
        state.clear()
        assert state.get() == 0

    keyed(hf.AggregatingState(pa.string(), "count"), use, calls=2)


@pytest.mark.parametrize("type", [pa.int8(), pa.uint8()])
def test_a_count_goes_past_what_the_counted_type_holds(type: pa.DataType) -> None:
    def use(state: Any) -> None:
        counted = state.get()
        for _ in range(200):
            state.add(1)
        assert state.get() == counted + 200

    keyed(hf.AggregatingState(type, "count"), use, calls=2)


@pytest.mark.parametrize(
    ("call", "argument", "says"),
    [
        ("put_all", [("a", 1, 2)], r"state 'state', entries: expected map<string, int64>, found \('a', 1, 2\)"),
        ("put_all", 7, "state 'state', entries: expected several in a list, found 7"),
        ("get_all", "abc", "state 'state', map keys: expected several in a list, found 'abc'"),
        ("get", ["a"], r"state 'state', map keys: expected string, found \['a'\] \(list\)"),
        ("get", {"a": [1]}, "state 'state', map keys: expected string, found {'a'"),
    ],
)
def test_what_is_no_entry_is_said_in_words(call: str, argument: Any, says: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"{says}.*; key \('ada',\)"):
        keyed(hf.MapState(pa.string(), pa.int64()), lambda state: getattr(state, call)(argument))


def test_one_text_is_not_several_elements() -> None:
    """Python would take it for its characters."""
    for call in ("add_all", "update"):
        with pytest.raises(InvalidRequest, match="state 'state', elements: expected several in a list, found 'page'"):
            keyed(hf.ListState(pa.string()), methodcaller(call, "page"))


def test_an_integer_that_is_too_large_is_named_with_its_key() -> None:
    """At the call: when the chunk ends, what was cleared or replaced since would not be refused any more."""
    with pytest.raises(InvalidRequest, match=r"state 'state': expected int8, found 300 \(int\).*key \('ada',\)"):
        keyed(hf.ValueState(pa.int8()), lambda state: (state.update(300), state.clear()))
    with pytest.raises(InvalidRequest, match=r"state 'state': expected int8, found 300 \(int\).*key \('ada',\)"):
        keyed(hf.ReducingState(pa.int8(), "sum"), lambda state: (state.add(300), state.clear()))


@pytest.mark.parametrize("form", ["rows", "tables", "frames"])
@pytest.mark.parametrize("method", ["process", "on_timer"])
def test_a_keys_output_leaves_while_it_is_made(form: str, method: str) -> None:
    """All rows of one key waited in memory, as Python values."""
    made: list[int] = []

    class Much(hf.KeyedProcessor):
        due = hf.Timers("processing")

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
            self.due.register(ctx.timestamp)
            return self.output(key[0]) if method == "process" else None

        def on_timer(self, key: tuple[Any, ...], time: dt.datetime, namespace: str, ctx: hf.Context) -> Any:
            return self.output(key[0]) if method == "on_timer" else None

        def output(self, user: str) -> Iterator[Any]:
            rows = 1 if form == "rows" else 100
            table = pa.table({"user": [user] * rows})
            one = {"rows": {"user": user}, "tables": table, "frames": table.to_pandas()}[form]
            for _ in range(30_000 // rows):
                made.append(rows)
                yield one

    ctx = make_context()
    found: list[str] = []
    with bind(Much(), USER) as bound:
        assert not list(bound.process(purchases(["ada", "bob"], [1, 2]), ctx))
        for _, rows in bound.finish(ctx):
            assert sum(made) - len(found) <= 10_000
            found += rows["user"].to_pylist()
    assert found == ["ada"] * 30_000 + ["bob"] * 30_000


def test_many_rows_aside_wait_in_arrow() -> None:
    """One call of ctx.output takes all there is: as Python values that is ten times as much."""
    waiting: list[int] = []

    class Aside(hf.KeyedProcessor):
        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            ctx.output(hf.SideOutput("side"), self.rows_of(key[0]))

        def rows_of(self, user: str) -> Iterator[dict[str, Any]]:
            before = pa.total_allocated_bytes()
            for _ in range(50_000):
                yield {"user": user * 100}
            waiting.append(pa.total_allocated_bytes() - before)

    found = 0
    ctx = make_context()
    with bind(Aside(), USER, side_outputs={"side": USER}) as bound:
        for _, rows in [*bound.process(purchases(["ada"], [1]), ctx), *bound.finish(ctx)]:
            found += rows.num_rows
    assert found == 50_000
    assert waiting[0] > 30_000 * 300


def test_a_state_that_fails_after_output_left_loses_the_batch() -> None:
    class Catches(hf.KeyedProcessor):
        total = hf.ReducingState(pa.int64(), "sum")

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[Any]:
            for number in range(25_000):
                if number == 24_000:
                    with pytest.raises(InvalidRequest):
                        self.total.add("much")
                yield {"user": f"{key[0]} {number}"}

    ctx, left = make_context(), 0
    with bind(Catches(), USER) as bound, pytest.raises(InvalidRequest, match="expected int64, found 'much'"):
        list(bound.process(purchases(["ada"], [1]), ctx))
        for _, rows in bound.finish(ctx):
            left += rows.num_rows
    assert left == 20_000


def test_a_value_that_is_refused_with_many_others_is_put_down_to_no_other_key() -> None:
    class Wrong(hf.KeyedProcessor):
        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
            return [{"user": 7}] if key[0] == "ada" else ({"user": key[0]} for _ in range(30_000))

    with pytest.raises(InvalidRequest, match="output column 'user': expected string, found 7") as caught:
        run(Wrong(), [purchases(["ada", "bob"], [1, 2])], USER)
    assert "key" not in users_error(caught.value)[1]
