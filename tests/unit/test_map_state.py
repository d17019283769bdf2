"""Map states, vectorised and per key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from tests.example_count import examples
from tests.unit.state_bench import USER, bind, make_context, make_store, purchases, run

import holdfast as hf
from holdfast.errors import InvalidRequest
from holdfast.state import BatchMapState, Input


class Carts(hf.BatchProcessor):
    cart = hf.MapState(pa.string(), pa.int64())


@pytest.fixture
def cart() -> Iterator[BatchMapState]:
    processor = Carts()
    with bind(processor, USER):
        yield processor.cart


def test_put_then_get(cart: BatchMapState) -> None:
    cart.put(["ada", "ada", "bob"], ["tea", "cup", "tea"], [1, 2, 3])
    assert cart.get(["bob", "ada", "ada", "eve"], ["tea", "cup", "pot", "tea"]).to_pylist() == [3, 2, None, None]
    assert cart.contains(["bob", "ada", "eve"], ["tea", "pot", "tea"]).to_pylist() == [True, False, False]


def test_the_last_row_of_an_entry_wins(cart: BatchMapState) -> None:
    cart.put(["ada", "ada"], "tea", [1, 2])
    assert cart.get(["ada"], "tea").to_pylist() == [2]


def test_a_null_value_is_an_entry(cart: BatchMapState) -> None:
    cart.put(["ada"], "tea", None)
    assert cart.contains(["ada"], "tea").to_pylist() == [True]
    assert cart.get(["ada"], "tea").to_pylist() == [None]
    assert cart.count(["ada"]).to_pylist() == [1]


def test_entries_in_the_order_of_map_keys(cart: BatchMapState) -> None:
    cart.put(["ada", "ada", "bob"], ["tea", "cup", "pot"], [1, 2, 3])
    found = cart.entries(["ada", "eve", "bob", "ada"])
    assert found.to_pylist() == [[("cup", 2), ("tea", 1)], [], [("pot", 3)], [("cup", 2), ("tea", 1)]]
    assert pa.types.is_map(found.type)
    assert cart.keys(["ada", "eve"]).to_pylist() == [["cup", "tea"], []]
    assert cart.values(["ada", "eve"]).to_pylist() == [[2, 1], []]
    assert cart.count(["ada", "eve"]).to_pylist() == [2, 0]
    assert cart.is_empty(["ada", "eve"]).to_pylist() == [False, True]


def test_remove_and_clear(cart: BatchMapState) -> None:
    cart.put(["ada", "ada", "bob"], ["tea", "cup", "pot"], [1, 2, 3])
    cart.remove(["ada", "eve"], ["tea", "tea"])
    cart.clear(["bob"])
    assert cart.entries(["ada", "bob"]).to_pylist() == [[("cup", 2)], []]


def test_wrong_map_keys_and_values_are_named(cart: BatchMapState) -> None:
    with pytest.raises(InvalidRequest, match=r"state 'cart', map keys: expected string, found 7"):
        cart.get(["ada"], [7])
    with pytest.raises(InvalidRequest, match=r"state 'cart', map values: expected int64, found 'x'"):
        cart.put(["ada"], ["tea"], "x")
    with pytest.raises(InvalidRequest, match="2 keys but 1 map keys"):
        cart.contains(["ada", "bob"], ["tea"])
    with pytest.raises(InvalidRequest, match="state 'cart'"):
        cart.put(["ada"], [None], [1])


PAIR = pa.struct([("a", pa.int64()), ("b", pa.string())])
_NULL_MAP_KEYS = [
    (pa.string(), [None, "tea"], "map key is null at row 0"),
    (pa.string(), None, "map key is null at row 0"),
    (pa.string(), pa.array(["tea", None]), "map key is null at row 1"),
    (pa.string(), pa.array([None, "tea"], pa.large_string()), "map key is null at row 0"),
    (pa.string(), pa.array(["tea", None]).dictionary_encode(), "map key is null at row 1"),
    (pa.string(), pa.DictionaryArray.from_arrays([1, 0], pa.array([None, "tea"])), "map key is null at row 1"),
    (pa.int64(), pd.Series([1, None]), "map key is null at row 1"),
    (PAIR, pa.array([{"a": 1, "b": "x"}, None], PAIR), "map key is null at row 1"),
    (PAIR, pa.array([{"a": 1, "b": "x"}, {"a": 1, "b": None}], PAIR), "map key.b is null at row 1"),
]


@pytest.mark.parametrize(("type", "map_keys", "told"), _NULL_MAP_KEYS)
def test_a_map_key_that_is_null_is_told_to_be_none(type: pa.DataType, map_keys: Any, told: str) -> None:
    """The error told its reader to set null_keys=True, which is of the operator's keys."""
    message = f"state 'm': {told}; a map key is never null: filter such rows out"
    calls: list[tuple[str, tuple[Any, ...]]] = [("get", ()), ("contains", ()), ("remove", ()), ("put", (1,))]
    for call, values in calls:
        processor = maps_of(hf.MapState(type, pa.int64()))
        with suppress(InvalidRequest), bind(processor, USER):  # one that changes loses the batch
            with pytest.raises(InvalidRequest) as caught:
                getattr(processor.m, call)(["ada", "bob"], map_keys, *values)
            assert str(caught.value) == message


def maps_of(state: hf.MapState) -> Any:
    return type("Maps", (hf.BatchProcessor,), {"m": state})()


def test_the_calls_of_pyflink() -> None:
    class Calls(hf.KeyedProcessor):
        cart = hf.MapState(pa.string(), pa.int64())

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            assert self.cart.is_empty()
            self.cart.put_all({"tea": 1, "cup": 2})
            self.cart.put_all([("pot", 3)])
            self.cart["jug"] = 4
            del self.cart["tea"]
            assert (self.cart["cup"], self.cart.get("tea"), "pot" in self.cart) == (2, None, True)
            assert list(self.cart) == self.cart.keys() == ["cup", "jug", "pot"]
            assert self.cart.values() == [2, 4, 3]
            assert self.cart.items() == self.cart.entries() == [("cup", 2), ("jug", 4), ("pot", 3)]
            assert self.cart.get_all(["pot", "tea", "cup", "pot"]) == [3, None, 2, 3]
            assert not self.cart.is_empty()
            self.cart.remove("nothing")
            self.cart.put("nil", None)
            assert self.cart.contains("nil")
            assert self.cart.get("nil") is None
            self.cart.clear()
            assert self.cart.is_empty()

    run(Calls(), [purchases(["ada", "bob"], [0, 0])], USER)


class Unread:
    """A table of the core that gives no map as a whole."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __getattr__(self, name: str) -> Any:
        assert name != "entries", "a whole map was read"
        return getattr(self._table, name)


def test_whether_a_map_is_empty_is_known_without_its_entries() -> None:
    """All maps of a chunk were read, however large, to know whether one has entries."""
    found = []

    class Asks(hf.KeyedProcessor):
        cart = hf.MapState(pa.string(), pa.int64())
        seen = hf.MapState(pa.string(), pa.int64(), ttl=hf.TTL("1 day", refresh="read_and_write"))

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            for state in (self.cart, self.seen):
                found.append([key[0], state.is_empty()])
                state.remove("tea")
                found[-1].append(state.is_empty())
                state.put("cup", 2)
                found[-1].append(state.is_empty())
                state.remove("cup")
                found[-1].append(state.is_empty())
                state.put("pot", 3)
                state.clear()
                found[-1].append(state.is_empty())
                state.put_all({"tea": 1, "pot": None} if key == ("ada",) else {"tea": 1})
                found[-1].append(state.is_empty())

    store = make_store()
    for batch in (1, 2):
        with bind(Asks(), USER, store) as bound:
            states: Any = bound._states
            for state in states:
                state._table = Unread(state._table)
            context = make_context(batch)
            assert not [*bound.process(purchases(["ada", "bob"], [0, 0]), context), *bound.finish(context)]
    first = [True, True, False, True, True, False]
    ada, bob = [False, False, False, False, True, False], [False, True, False, True, True, False]
    assert found == [[user, *first] for user in ("ada", "ada", "bob", "bob")] + [
        ["ada", *ada],
        ["ada", *ada],
        ["bob", *bob],
        ["bob", *bob],
    ]


def test_no_map_key_is_none() -> None:
    class Asks(hf.KeyedProcessor):
        cart = hf.MapState(pa.string(), pa.int64())

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            self.cart.get(None)

    expected = r"state 'cart', map keys: expected string, found None .*: a map key is never null; key \('ada',\)"
    with pytest.raises(InvalidRequest, match=expected):
        run(Asks(), [purchases(["ada"], [0])], USER)


def test_a_stored_null_is_told_from_no_entry() -> None:
    class Nulls(hf.KeyedProcessor):
        state = hf.MapState(pa.int64(), pa.string())

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            if rows["amount"][0].as_py():
                self.state.put(1, None)
            else:
                assert (self.state.get(1), self.state.get(2)) == (None, None)
                assert (self.state.contains(1), self.state.contains(2)) == (True, False)
                assert self.state.items() == [(1, None)]
                assert (self.state.contains(1), self.state.contains(2)) == (True, False)

    store = make_store()
    for amount in (1, 0):
        run(Nulls(), [purchases(["ada"], [amount])], USER, store)


def test_nan_is_one_map_key() -> None:
    class Floats(hf.KeyedProcessor):
        state = hf.MapState(pa.float64(), pa.int64())

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            self.state.put(float("nan"), (self.state.get(float("nan")) or 0) + 1)
            assert self.state.get(float("nan")) == rows["amount"][0].as_py()
            assert len(self.state.items()) == 1

    store = make_store()
    for amount in (1, 2):
        run(Floats(), [purchases(["ada"], [amount])], USER, store)


def test_structs_as_map_keys() -> None:
    class Pairs(hf.KeyedProcessor):
        state = hf.MapState(pa.struct([("shop", pa.int32()), ("item", pa.string())]), pa.int64())

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            tea, cup = {"shop": 1, "item": "tea"}, {"item": "cup", "shop": 1}
            self.state.put(tea, (self.state.get(tea) or 0) + 1)
            self.state.put((1, "cup"), 5)
            assert self.state.get_all([cup, tea, (2, "tea")]) == [5, rows["amount"][0].as_py(), None]
            assert self.state.keys() == [{"shop": 1, "item": "cup"}, {"shop": 1, "item": "tea"}]
            assert cup in self.state

    store = make_store()
    for amount in (1, 2):
        run(Pairs(), [purchases(["ada"], [amount])], USER, store)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 4), st.none() | st.integers(0, 9)),
        st.tuples(st.just("remove"), st.integers(0, 4)),
        st.tuples(st.just("clear")),
        st.tuples(st.just("get"), st.integers(0, 4)),
        st.tuples(st.just("contains"), st.integers(0, 4)),
        st.tuples(st.just("items")),
    ),
    max_size=8,
)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), STEPS), min_size=1, max_size=4), min_size=1, max_size=4))
def test_any_steps_of_any_keys_are_those_of_python_dicts(batches: list[list[tuple[str, Any]]]) -> None:
    model: dict[str, dict[int, Any]] = {}

    def step(state: Any, mine: dict[int, Any], call: str, *arguments: Any) -> None:
        if call == "put":
            mine[arguments[0]] = arguments[1]
        elif call == "remove":
            mine.pop(arguments[0], None)
        elif call == "clear":
            mine.clear()
        found = getattr(state, call)(*arguments)
        if call == "get":
            assert found == mine.get(arguments[0])
        elif call == "contains":
            assert found == (arguments[0] in mine)
        elif call == "items":
            assert found == sorted(mine.items())

    class Steps(hf.KeyedProcessor):
        state = hf.MapState(pa.int64(), pa.int64())

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            for number in rows["amount"].to_pylist():
                for one in steps[number]:
                    step(self.state, model.setdefault(key[0], {}), *one)

    store = make_store()
    for batch in batches:
        steps = [step for _, step in batch]
        run(Steps(), [purchases([key for key, _ in batch], list(range(len(batch))))], USER, store)
    steps = [[("items",)]]
    run(Steps(), [purchases(list("abc"), [0, 0, 0])], USER, store)


VIEWS = [
    (pa.string_view(), pa.string(), ["a", "b" * 20, "a", "c"]),
    (pa.binary_view(), pa.binary(), [b"a", b"b" * 20, b"a", b"c"]),
]


@pytest.mark.parametrize(("view", "plain", "leaves"), VIEWS, ids=["string", "binary"])
@pytest.mark.parametrize("depth", ["keys and items", "structs", "lists"])
def test_views_in_maps_are_taken(view: pa.DataType, plain: pa.DataType, leaves: list[Any], depth: str) -> None:
    """Arrow takes no rows of them, so the map was refused."""
    views = pa.array(leaves, plain).cast(view)
    items, kept = {
        "keys and items": (views, leaves),
        "structs": (pa.StructArray.from_arrays([views], ["v"]), [{"v": leaf} for leaf in leaves]),
        "lists": (pa.ListArray.from_arrays([0, 1, 2, 3, 4], views), [[leaf] for leaf in leaves]),
    }[depth]
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2, None, 2, 3, 4], pa.int32()), views, items)
    below = pa.Array.from_buffers(  # its null has an entry all the same
        maps.type,
        4,
        [pa.py_buffer(b"\x0d"), pa.array([0, 1, 2, 3, 4], pa.int32()).buffers()[1]],
        children=[pa.StructArray.from_arrays([views, items], fields=[maps.type.key_field, maps.type.item_field])],
    )
    value = {"keys and items": plain, "structs": pa.struct([("v", plain)]), "lists": pa.list_(plain)}[depth]

    class Keeps(hf.BatchProcessor):
        state = hf.ValueState(pa.map_(plain, value))

    entries = [[pair] for pair in zip(leaves, kept)]
    for whole, expected in (
        (maps, [entries[0], entries[1], [], None, entries[2], entries[3]]),
        (below, [entries[0], None, entries[2], entries[3]]),
    ):
        for at in (0, 1):
            some, wanted = whole.slice(at), expected[at:]
            processor, users = Keeps(), [f"u{number}" for number in range(len(wanted))]
            with bind(processor, USER):
                processor.state.put(users, some)
                assert processor.state.get(users).to_pylist() == wanted


def test_a_tuple_is_one_struct_where_it_is_no_row_of_them() -> None:
    """It was taken for a column of values, of which none was a struct."""
    rule = pa.struct([("name", pa.string()), ("number", pa.int64())])

    class Named(NamedTuple):
        number: Any
        name: Any

    class Rules(hf.BatchProcessor):
        rules = hf.BroadcastState(rule, rule)
        last = hf.ValueState(rule)

        def process_rules(self, rows: pa.Table, ctx: hf.Context) -> None:
            self.rules.put(("a", 1), ("b", None))
            self.rules.put((("c", 3), {"name": "d", "number": 4}), ("e", 5))
            self.rules.put(("gone", 1), None)
            self.rules.remove(("gone", 1))

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            b, e = {"name": "b", "number": None}, {"name": "e", "number": 5}
            assert self.rules.get(("a", 1)) == self.rules.get(Named(1, "a")) == b
            assert self.rules.get({"name": "c", "number": 3}) == self.rules.get(Row(name="c", number=3)) == e
            assert self.rules.get((("a", 1), ("d", 4), ("x", 0))).to_pylist() == [b, e, None]
            assert self.rules.get([("a", 1), ("d", 4)]).to_pylist() == [b, e]
            assert (self.rules.contains(("a", 1)), self.rules.contains(("gone", 1))) == (True, False)
            self.last.put(["ada", "bob", "eve"], ("a", 1))
            self.last.put(["bob", "eve"], (None, ("c", 3)))
            found = self.last.get(["ada", "bob", "eve"]).to_pylist()
            assert found == [{"name": "a", "number": 1}, None, {"name": "c", "number": 3}]
            done.append(True)

    done: list[bool] = []
    inputs = (Input("rules", (), broadcast=True), Input())
    with bind(Rules(), USER, inputs=inputs) as bound:
        for number in (0, 1):
            assert not list(bound.process(purchases(["ada"], [1]), make_context(), number))
        assert not list(bound.finish(make_context()))
    assert done
