"""The states of a BatchProcessor against a loop over rows with plain Python objects: keys and values of every type, in
every form in which Arrow, numpy and pandas have columns, with keys that come twice, over commits, bases and reopening.
"""

from __future__ import annotations

import copy
import functools
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_count import examples
from tests.model import kept_values
from tests.model.kept_values import KEY_KINDS, KINDS, Kind, as_map_key, order, pair, token
from tests.model.slot_versions import Slot
from tests.model.test_keyed_states_model import AGGREGATING, REDUCING
from tests.unit.state_bench import USER, bind

import holdfast as hf
from holdfast import rocksdb_library

# --- forms of columns


def in_arrow(kept: list[Any], kind: Kind) -> pa.Array:
    """As a user would have it who reads Parquet."""
    type = kind.type.value_type if pa.types.is_dictionary(kind.type) else kind.type
    return pa.array(kept, type)


def sliced(array: pa.Array) -> pa.Array:
    """The same rows, with others of the same values before and after them."""
    return pa.concat_arrays([array, array, array]).slice(len(array), len(array))


def over_garbage(lists: pa.Array) -> pa.Array:
    """Null lists whose offsets span elements: Arrow allows it, and filters make it."""
    values = lists.to_pylist()  # Arrow has no kernels for lists of views
    garbage = next(value for value in reversed(values) if value is not None)
    whole = pa.array([garbage if value is None else value for value in values], lists.type)
    return pa.ListArray.from_arrays(whole.offsets, whole.values, mask=lists.is_null())


def forms_of(kept: list[Any], kind: Kind) -> dict[str, Callable[[], Any]]:
    """Ways to hand over the same column; those that there are for its type."""
    array = in_arrow(kept, kind)
    type = array.type
    forms: dict[str, Callable[[], Any]] = {
        "arrow": lambda: array,
        "slice": lambda: sliced(array),
        "chunks": lambda: pa.chunked_array([array[:1], array[1:1], array[1:]], type),
        "pandas": lambda: pd.Series(array, dtype=pd.ArrowDtype(type)),
        "index": lambda: pd.Index(array, dtype=pd.ArrowDtype(type)),
    }
    plain_string = type.equals(pa.string()) or type.equals(pa.binary())
    if not pa.types.is_nested(type) and not pa.types.is_string_view(type) and not pa.types.is_binary_view(type):
        forms["dictionary"] = array.dictionary_encode
        forms["runs"] = lambda: pc.run_end_encode(array)
        halves = [array[:2].dictionary_encode(), array[2:].dictionary_encode()]
        forms["dictionaries"] = lambda: pa.chunked_array(halves)
    if plain_string:
        text = pa.types.is_string(type)
        forms["view"] = lambda: array.cast(pa.string_view() if text else pa.binary_view())
        forms["sliced view"] = lambda: sliced(array.cast(pa.string_view() if text else pa.binary_view()))
        forms["large"] = lambda: array.cast(pa.large_string() if text else pa.large_binary())
    if type.equals(pa.float32()):
        forms["doubles"] = lambda: array.cast(pa.float64())
        forms["numpy"] = lambda: array.to_numpy(zero_copy_only=False) if not array.null_count else array
    if pa.types.is_integer(type) and not pa.types.is_uint64(type):
        forms["decimals"] = lambda: array.cast(pa.decimal128(38, 3))
    if pa.types.is_decimal(type):
        forms["finer"] = lambda: array.cast(pa.decimal128(30, 10))
    if pa.types.is_timestamp(type) and type.unit != "ns":
        forms["nanoseconds"] = lambda: array.cast(pa.timestamp("ns", "Asia/Tokyo"))
    if pa.types.is_list(type):
        forms["large lists"] = lambda: pa.array(kept, pa.large_list(type.value_type))
        forms["views of lists"] = lambda: pa.array(kept, pa.list_view(type.value_type))
        if array.null_count < len(array):
            forms["nulls over garbage"] = lambda: over_garbage(array)
    if pa.types.is_struct(type):
        forms["other order"] = lambda: pa.StructArray.from_arrays(
            [array.field(1), array.field(0)], ["b", "a"], mask=array.is_null()
        )
    return forms


@st.composite
def columns(draw: st.DrawFn, kind: Kind, rows: int, *, nullable: bool = True) -> tuple[Callable[[], Any], list[Any]]:
    """A column in some form, and what is kept of it."""
    of = pair(kind) if nullable else kind.offers
    drawn = draw(st.lists(of, min_size=rows, max_size=rows))
    kept = [kept for _, kept in drawn]
    of_numpy = ["pandas of numpy"] if nullable and pa.types.is_floating(kind.type) else []
    form = draw(st.sampled_from(["list", *of_numpy, *(forms_of(kept, kind) if rows else {})]))
    if form == "pandas of numpy":  # which has one NaN for null too
        series = pd.Series(kept, dtype=kind.type.to_pandas_dtype())
        return (lambda: series), [None if value is None or value != value else value for value in kept]
    if form == "list":
        return (lambda: [make() for make, _ in drawn]), kept
    return forms_of(kept, kind)[form], kept


# --- steps: what is called, and what a loop over the rows would do


class Model:
    """Everything that one state has, by the token of the key."""

    def __init__(self) -> None:
        self.of: dict[Any, Any] = {}


def each(keys: list[Any], *others: list[Any]) -> Any:
    return zip((token(as_map_key(key)) for key in keys), *others)


@st.composite
def value_step(draw: st.DrawFn, kind: Kind, keys: list[Any]) -> Any:
    call = draw(st.sampled_from(["get", "put", "contains", "clear"]))
    make, kept = draw(columns(kind, len(keys)))

    def expected(model: Model) -> Any:
        if call == "put":
            model.of.update(each(keys, kept))
        elif call == "clear":
            model.of.update((key, None) for (key,) in each(keys))
        elif call == "get":
            return [model.of.get(key) for (key,) in each(keys)]
        else:
            return [model.of.get(key) is not None for (key,) in each(keys)]

    return call, (make,) if call == "put" else (), expected


@st.composite
def list_step(draw: st.DrawFn, kind: Kind, keys: list[Any]) -> Any:
    call = draw(st.sampled_from(["get", "add", "add_all", "update", "clear"]))
    lists = kept_values.lists_of(kind, pa.list_(kind.type))
    make, kept = draw(columns(lists if call in ("add_all", "update") else kind, len(keys)))

    def expected(model: Model) -> Any:
        if call == "get":
            return [model.of.get(key, []) for (key,) in each(keys)]
        for key, item in each(keys, kept):
            if call == "add":
                model.of.setdefault(key, []).append(item)
            elif call == "add_all":
                model.of.setdefault(key, []).extend(item or [])
            else:
                model.of[key] = list(item or []) if call == "update" else []

    return call, (make,) if call in ("add", "add_all", "update") else (), expected


@st.composite
def map_step(draw: st.DrawFn, key_kind: Kind, kind: Kind, keys: list[Any]) -> Any:
    points = ["get", "contains", "remove", "put"]
    call = draw(st.sampled_from([*points, "put", "entries", "keys", "values", "count", "is_empty", "clear"]))
    make_key, names = draw(columns(key_kind, len(keys), nullable=False))
    make, kept = draw(columns(kind, len(keys)))
    names = [as_map_key(name) for name in names]

    def items(model: Model, key: Any) -> list[tuple[Any, Any]]:
        return sorted(model.of.get(key, {}).values(), key=lambda item: order(item[0]))

    def expected(model: Model) -> Any:
        answers: list[Any] = []
        for key, name, item in each(keys, names, kept):
            mine = model.of.setdefault(key, {})
            if call == "put":
                mine[token(name)] = (name, item)
            elif call in ("remove", "clear"):
                mine.clear() if call == "clear" else mine.pop(token(name), None)
            else:
                entries = items(model, key)
                answers.append(
                    {
                        "get": mine.get(token(name), (None, None))[1],
                        "contains": token(name) in mine,
                        "entries": entries,
                        "keys": [k for k, _ in entries],
                        "values": [v for _, v in entries],
                        "count": len(entries),
                        "is_empty": not entries,
                    }[call]
                )
        return None if call in ("put", "remove", "clear") else answers

    arguments = (make_key, make) if call == "put" else (make_key,) if call in points else ()
    return call, arguments, expected


@st.composite
def fold_step(draw: st.DrawFn, kind: Kind, result: Callable[[list[Any]], Any], keys: list[Any]) -> Any:
    call = draw(st.sampled_from(["add", "add", "add_only", "get", "clear"]))
    make, kept = draw(columns(kind, len(keys)))

    def expected(model: Model) -> Any:
        answers = []
        for key, item in each(keys, kept):
            mine = model.of.setdefault(key, [])
            if call.startswith("add") and item is not None:
                mine.append(item)
            if call == "clear":
                mine.clear()
            answers.append(copy.deepcopy(result(mine)))
        return answers if call in ("add", "get") else None

    return call, (make,) if call.startswith("add") else (), expected


def declared(state: str, data: st.DataObject) -> tuple[Any, Callable[[list[Any]], st.SearchStrategy[Any]]]:
    """A declaration of some types, and the steps that there are for it."""
    kind = data.draw(st.sampled_from(KINDS))
    if state == "value":
        return hf.ValueState(kind.type), lambda keys: value_step(kind, keys)
    if state == "list":
        return hf.ListState(kind.type), lambda keys: list_step(kind, keys)
    if state == "map":
        key = data.draw(st.sampled_from(KEY_KINDS))
        return hf.MapState(key.type, kind.type), lambda keys: map_step(key, kind, keys)
    if state == "reducing":
        kind, function, fold = data.draw(st.sampled_from(REDUCING))
        return hf.ReducingState(kind.type, function), lambda keys: fold_step(
            kind, lambda values: functools.reduce(fold, values) if values else None, keys
        )
    kind, aggregate, types, result = data.draw(st.sampled_from(AGGREGATING))
    return hf.AggregatingState(kind.type, aggregate, **types), lambda keys: fold_step(kind, result, keys)


KEYS_OF_OPERATORS = [kind for kind in KEY_KINDS if not pa.types.is_struct(kind.type)]


@pytest.mark.parametrize("state", ["value", "list", "map", "reducing", "aggregating"])
@settings(max_examples=examples(40))
@given(data=st.data())
def test_vectorised_states_do_what_a_loop_over_the_rows_would_do(state: str, data: st.DataObject) -> None:
    rocksdb_library.load()
    key_kind = data.draw(st.sampled_from(KEYS_OF_OPERATORS))
    declaration, step_of = declared(state, data)
    processor = type("Declared", (hf.BatchProcessor,), {"state": declaration})()
    slot = Slot(pa.schema([pa.field("key", in_arrow([], key_kind).type)]))
    committed = Model()
    try:
        for _ in range(data.draw(st.integers(1, 3))):
            model = copy.deepcopy(committed)
            slot.store.begin(len(slot.deltas) + 1)
            with bind(processor, USER, slot.store, slot.key_schema):
                for _ in range(data.draw(st.integers(1, 4))):
                    make_keys, keys = data.draw(columns(key_kind, data.draw(st.integers(0, 5)), nullable=False))
                    call, arguments, expected = data.draw(step_of(keys))
                    found = getattr(processor.state, call)(make_keys(), *(make() for make in arguments))
                    wanted = expected(model)
                    if found is not None:
                        assert isinstance(found, pa.Array)
                        found = found.to_pylist()
                    assert token(found) == token(wanted), (call, keys, [make() for make in arguments], found, wanted)
            keeps = data.draw(st.integers(0, 3)) > 0
            slot.end(data.draw(st.sampled_from(["stays", "deltas", "base"])), committed=keeps)
            committed = model if keeps else committed
    finally:
        shutil.rmtree(slot.folder)


def test_the_forms_are_the_same_columns() -> None:
    """The oracle's own: each form of a column has the rows that it was made of."""
    kind = kept_values.lists_of(kept_values.INT8, pa.list_(pa.int8()))
    kept = [[1, None], None, [], [2]]
    for name, make in forms_of(kept, kind).items():
        column = make()
        found = column.tolist() if isinstance(column, (pd.Series, pd.Index)) else column.to_pylist()
        assert [None if row is None or row is pd.NA else list(row) for row in found] == kept, name
    assert np.diff(over_garbage(pa.array(kept, pa.list_(pa.int8()))).offsets.to_numpy()).tolist() == [2, 1, 0, 1]
