"""The states of a KeyedProcessor against plain Python objects: every method of every state, in any order within a
call, over several keys, calls and batches, with chunks of any size, over commits, aborts, bases and reopening.

The model knows nothing of chunks and prefetching: a key's states are a value, a list, a dict and what was added.
"""

from __future__ import annotations

import copy
import functools
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_count import examples
from tests.model import kept_values
from tests.model.kept_values import KEY_KINDS, KINDS, Kind, as_map_key, order, pair, spoil, token
from tests.model.slot_versions import Slot
from tests.unit.state_bench import USER, bind, make_context

import holdfast as hf
from holdfast import rocksdb_library
from holdfast.errors import InvalidRequest
from holdfast.state import BoundProcessor, keyed_driver
from holdfast.state.declarations import ReducingFunction

ROWS = pa.schema([("user", pa.string()), ("row", pa.int64())])


# --- what may be folded, and by what


def _less(a: Any, b: Any) -> bool:
    return bool(order(a) < order(b))


def _add_float32(a: float, b: float) -> float:
    return float(struct.unpack("f", struct.pack("f", a + b))[0])


SMALL = Kind(pa.int64(), kept_values.plain(st.integers(-9, 9)), (2.5,))
MONEY = Kind(pa.decimal128(20, 2), kept_values.DECIMAL.offers, kept_values.DECIMAL.refused[:2])
BYTE = Kind(pa.int8(), kept_values.plain(st.integers(-1, 1)), (300,))
WORDS = kept_values.lists_of(kept_values.STRINGS[0], pa.list_(pa.string()))
Folds = tuple[Kind, Any, Callable[[Any, Any], Any]]


def _any_folds(kind: Kind) -> list[Folds]:
    return [(kind, "first", lambda a, b: a), (kind, "last", lambda a, b: b), (kind, lambda a, b: b, lambda a, b: b)]


def _is_declared(kind: Kind, function: ReducingFunction) -> bool:
    try:
        hf.ReducingState(kind.type, function)
    except InvalidRequest:
        return False
    return True


REDUCING: list[Folds] = [
    *(folds for kind in KINDS for folds in _any_folds(kind)),
    *((kind, "min", lambda a, b: b if _less(b, a) else a) for kind in kept_values.LEAVES if _is_declared(kind, "min")),
    *((kind, "max", lambda a, b: b if _less(a, b) else a) for kind in kept_values.LEAVES if _is_declared(kind, "max")),
    (SMALL, "sum", lambda a, b: a + b),
    (BYTE, "sum", lambda a, b: a + b),
    (MONEY, "sum", lambda a, b: a + b),
    (kept_values.FLOAT64, "sum", lambda a, b: a + b),
    (kept_values.FLOAT32, "sum", _add_float32),
    (kept_values.FLOAT64, "product", lambda a, b: a * b),
    (kept_values.BOOL, "bool_and", lambda a, b: a and b),
    (kept_values.BOOL, "bool_or", lambda a, b: a or b),
    (WORDS, lambda a, b: a + b, lambda a, b: a + b),
    (SMALL, lambda a, b: a + b, lambda a, b: a + b),
]


class Seen(hf.AggregateFunction[list[int]]):
    """Changes its accumulator in place, and gives it away as the result."""

    def create(self) -> list[int]:
        return []

    def add(self, accumulator: list[int], value: int) -> list[int]:
        accumulator.append(value)
        return accumulator

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        return a + b

    def result(self, accumulator: list[int]) -> list[int]:
        return accumulator


def _mean(values: list[Any]) -> float | None:
    return functools.reduce(lambda a, b: a + b, map(float, values), 0.0) / len(values) if values else None


SEEN = {"accumulator": pa.list_(pa.int64()), "result": pa.list_(pa.int64())}
Aggregates = tuple[Kind, Any, dict[str, pa.DataType], Callable[[list[Any]], Any]]
AGGREGATING: list[Aggregates] = [
    *((kind, "count", {}, len) for kind in KINDS),
    (SMALL, "avg", {}, _mean),
    (kept_values.FLOAT32, "avg", {}, _mean),
    (SMALL, Seen, SEEN, lambda values: list(values) or None),
    (kept_values.STRINGS[0], "approx_count_distinct", {}, lambda values: len(set(values)) or None),
    (
        kept_values.FLOAT64,
        "approx_count_distinct",
        {},
        lambda values: len({token(as_map_key(v)) for v in values}) or None,
    ),
]


# --- the model


@dataclass
class KeyModel:
    """What one key has."""

    value: Any = None
    elements: list[Any] = field(default_factory=list)
    entries: dict[Any, tuple[Any, Any]] = field(default_factory=dict)
    reduced: list[Any] = field(default_factory=list)
    aggregated: list[Any] = field(default_factory=list)

    def items(self) -> list[tuple[Any, Any]]:
        return sorted(self.entries.values(), key=lambda entry: order(entry[0]))


@dataclass(frozen=True)
class Step:
    """One call: of which state, by what name, with what; and what it means to the model."""

    state: str
    call: str
    arguments: tuple[Callable[[], Any], ...]
    expected: Callable[[KeyModel], Any]
    refused: bool = False

    @property
    def reads(self) -> bool:
        """Of those that are refused: whether it would have changed nothing."""
        return self.call in ("get", "contains")

    def __repr__(self) -> str:
        shown = ", ".join(repr(make()) for make in self.arguments)
        return f"{self.state}.{self.call}({shown}){' refused' if self.refused else ''}"


Steps = st.SearchStrategy[Step]


def value_steps(kind: Kind) -> Steps:
    def update(drawn: Any) -> Step:
        make, kept = drawn

        def expected(model: KeyModel) -> None:
            model.value = copy.deepcopy(kept)

        return Step("value", "update", (make,), expected)

    def clear(model: KeyModel) -> None:
        model.value = None

    return st.one_of(
        pair(kind).map(update),
        st.just(Step("value", "value", (), lambda model: model.value)),
        st.just(Step("value", "clear", (), clear)),
        refusals("value", "update", kind),
    )


def list_steps(kind: Kind) -> Steps:
    def one(drawn: Any) -> Step:
        make, kept = drawn
        return Step("elements", "add", (make,), lambda model: model.elements.append(copy.deepcopy(kept)))

    def several(drawn: Any) -> Step:
        pairs, call, form = drawn

        def expected(model: KeyModel) -> None:
            if call == "update":
                model.elements.clear()
            model.elements.extend(copy.deepcopy(kept) for _, kept in pairs)

        return Step("elements", call, (lambda: form([make() for make, _ in pairs]),), expected)

    forms = st.sampled_from([list, tuple, iter])
    return st.one_of(
        pair(kind).map(one),
        st.tuples(st.lists(pair(kind), max_size=3), st.sampled_from(["add_all", "update"]), forms).map(several),
        st.sampled_from(
            [Step("elements", call, (), lambda model: list(model.elements)) for call in ("get", "__iter__")]
        ),
        st.just(Step("elements", "clear", (), lambda model: model.elements.clear())),
        refusals("elements", "add", kind),
    )


def map_steps(key: Kind, value: Kind) -> Steps:
    keys = key.offers.map(lambda drawn: (drawn[0], as_map_key(drawn[1])))

    def entry(model: KeyModel, kept: Any) -> Any:
        return model.entries.get(token(kept), (None, None))[1]

    def point(drawn: Any) -> Step:
        (make, kept), call = drawn
        answers: dict[str, Callable[[KeyModel], Any]] = {
            "get": lambda model: entry(model, kept),
            "__getitem__": lambda model: entry(model, kept),
            "contains": lambda model: token(kept) in model.entries,
            "__contains__": lambda model: token(kept) in model.entries,
            "remove": lambda model: model.entries.pop(token(kept), None) and None,
            "__delitem__": lambda model: model.entries.pop(token(kept), None) and None,
        }
        return Step("entries", call, (make,), answers[call])

    def put_into(model: KeyModel, kept: Any, item: Any) -> None:
        model.entries[token(kept)] = (copy.deepcopy(kept), copy.deepcopy(item))

    def put(drawn: Any) -> Step:
        (make, kept), (make_value, item), call = drawn
        return Step("entries", call, (make, make_value), lambda model: put_into(model, kept, item))

    def put_all(drawn: list[Any]) -> Step:
        def expected(model: KeyModel) -> None:
            for (_, kept), (_, item) in drawn:
                put_into(model, kept, item)

        return Step("entries", "put_all", (lambda: [(k(), v()) for (k, _), (v, _) in drawn],), expected)

    def get_all(drawn: list[Any]) -> Step:
        wanted = (lambda: [make() for make, _ in drawn],)
        return Step("entries", "get_all", wanted, lambda model: [entry(model, kept) for _, kept in drawn])

    whole = [
        Step("entries", "items", (), KeyModel.items),
        Step("entries", "entries", (), KeyModel.items),
        Step("entries", "keys", (), lambda model: [k for k, _ in model.items()]),
        Step("entries", "__iter__", (), lambda model: [k for k, _ in model.items()]),
        Step("entries", "values", (), lambda model: [v for _, v in model.items()]),
        Step("entries", "is_empty", (), lambda model: not model.entries),
        Step("entries", "clear", (), lambda model: model.entries.clear()),
    ]
    calls = st.sampled_from(["get", "__getitem__", "contains", "__contains__", "remove", "__delitem__"])
    return st.one_of(
        st.tuples(keys, calls).map(point),
        st.tuples(keys, pair(value), st.sampled_from(["put", "__setitem__"])).map(put),
        st.lists(st.tuples(keys, pair(value)), max_size=3).map(put_all),
        st.lists(keys, max_size=3).map(get_all),
        st.sampled_from(whole),
        refusals("entries", "get", key),
        refusals("entries", "contains", key),
        refusals("entries", "put", key, lambda: None),
        st.just(Step("entries", "get", (lambda: None,), lambda model: None, refused=True)),
    )


def fold_steps(state: str, kind: Kind, result: Callable[[list[Any]], Any]) -> Steps:
    def add(drawn: Any) -> Step:
        make, kept = drawn

        def expected(model: KeyModel) -> None:
            if kept is not None:
                getattr(model, state).append(copy.deepcopy(kept))

        return Step(state, "add", (make,), expected)

    return st.one_of(
        pair(kind).map(add),
        st.just(Step(state, "get", (), lambda model: result(getattr(model, state)))),
        st.just(Step(state, "clear", (), lambda model: getattr(model, state).clear())),
        refusals(state, "add", kind),
    )


def refusals(state: str, call: str, kind: Kind, *others: Callable[[], Any]) -> Steps:
    """Rare: the batch that has one is lost, unless it only reads."""
    made = st.sampled_from(kind.refused).map(
        lambda value: Step(state, call, (lambda: value, *others), lambda model: None, refused=True)
    )
    return st.integers(0, 19).flatmap(
        lambda chance: made if chance == 19 else st.just(Step("value", "value", (), lambda model: model.value))
    )


# --- programs


@dataclass(frozen=True)
class Batch:
    calls: list[tuple[str, list[Step]]]  # a row each: key, and what is done with its states
    chunk_keys: int
    split: bool  # every row comes by itself, so that keys are called several times
    ends: str
    reopens: str


def batches(steps: Steps) -> st.SearchStrategy[list[Batch]]:
    call = st.tuples(st.sampled_from("abc"), st.lists(steps, max_size=8))
    batch = st.builds(
        Batch,
        st.lists(call, min_size=1, max_size=5),
        st.sampled_from([1, 2, 64]),
        st.booleans(),
        st.sampled_from(["commit", "commit", "commit", "abort"]),
        st.sampled_from(["stays", "stays", "deltas", "base"]),
    )
    return st.lists(batch, min_size=1, max_size=4)


@contextmanager
def chunks_of(keys: int) -> Iterator[None]:
    driver: Any = keyed_driver
    before = driver.CHUNK_KEYS_MIN, driver.CHUNK_KEYS_MAX
    driver.CHUNK_KEYS_MIN = driver.CHUNK_KEYS_MAX = keys
    try:
        yield
    finally:
        driver.CHUNK_KEYS_MIN, driver.CHUNK_KEYS_MAX = before


def same(found: Any, expected: Any) -> bool:
    return bool(token(found) == token(expected))


def run_call(processor: Any, key: str, steps: list[Step], model: KeyModel, refused: list[tuple[Step, str]]) -> None:
    """What one call of process does. Once a change was refused the batch is lost, and the processor goes on."""
    for step in steps:
        state = getattr(processor, step.state)
        arguments = [make() for make in step.arguments]
        try:
            found = getattr(state, step.call)(*arguments)
        except InvalidRequest as error:
            assert step.refused or refused, (step, error)
            assert f"state {step.state!r}" in str(error), (step, error)
            assert f"key {(key,)!r}" in str(error) or refused, (step, error)
            if not step.reads:
                refused.append((step, key))
            continue
        if step.refused and step.reads:
            continue  # nothing was stored that had to be asked for
        if step.refused:
            # Arrow alone can tell, when the chunk ends.
            assert type(arguments[0]) in (int, str), (step, found)
            refused.append((step, key))
        if refused:
            continue
        if step.call == "__iter__":
            found = list(found)
        expected = step.expected(model)
        assert same(found, expected), (step, found, expected)
        for argument in arguments:
            spoil(argument)
        spoil(found)


def run_batch(processor: Any, slot: Slot, batch: Batch, number: int, models: dict[str, KeyModel]) -> None:
    """One batch of the slot; models are those of the version that it ends with."""
    slot.store.begin(len(slot.deltas) + 1)
    after = copy.deepcopy(models)
    refused: list[tuple[Step, str]] = []

    def call(key: str, rows: list[int]) -> None:
        for row in rows:
            run_call(processor, key, batch.calls[row][1], after.setdefault(key, KeyModel()), refused)

    processor.call = call
    rows = pa.record_batch([[key for key, _ in batch.calls], list(range(len(batch.calls)))], schema=ROWS)
    pieces = [rows.slice(i, 1) for i in range(len(rows))] if batch.split else [rows]
    with chunks_of(batch.chunk_keys), bind(processor, USER, slot.store, rows_bytes_max=1) as bound:
        if any(step.refused and not step.reads for _, steps in batch.calls for step in steps):
            with pytest.raises(InvalidRequest) as lost:
                drive(bound, pieces, number)
            assert any(
                f"state {step.state!r}" in str(lost.value) and repr((key,)) in str(lost.value) for step, key in refused
            )
        else:
            drive(bound, pieces, number)
    committed = batch.ends == "commit" and not refused
    slot.end(batch.reopens, committed=committed)
    if committed:
        models.clear()
        models.update(after)


def drive(bound: BoundProcessor, pieces: list[pa.RecordBatch], number: int) -> None:
    ctx = make_context(number)
    for piece in pieces:
        list(bound.process(piece, ctx))
    list(bound.finish(ctx))


STATES = ["value", "elements", "entries", "reduced", "aggregated"]


@pytest.mark.parametrize("used", [*([state] for state in STATES), STATES], ids=[*STATES, "all"])
@settings(max_examples=examples(40))
@given(data=st.data())
def test_states_of_a_key_are_plain_python_objects(used: list[str], data: st.DataObject) -> None:
    rocksdb_library.load()
    value, element, map_value = (data.draw(st.sampled_from(KINDS)) for _ in range(3))
    map_key = data.draw(st.sampled_from(KEY_KINDS))
    reduced, function, fold = data.draw(st.sampled_from(REDUCING))
    aggregated, aggregate, types, result = data.draw(st.sampled_from(AGGREGATING))

    class Everything(hf.KeyedProcessor):
        call: Callable[[str, list[int]], None]

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            self.call(key[0], rows["row"].to_pylist())

    declared = {
        "value": hf.ValueState(value.type),
        "elements": hf.ListState(element.type),
        "entries": hf.MapState(map_key.type, map_value.type),
        "reduced": hf.ReducingState(reduced.type, function),
        "aggregated": hf.AggregatingState(aggregated.type, aggregate, **types),
    }
    processor = type("Declared", (Everything,), declared)()

    def reduce(values: list[Any]) -> Any:
        return functools.reduce(fold, values) if values else None

    steps = {
        "value": value_steps(value),
        "elements": list_steps(element),
        "entries": map_steps(map_key, map_value),
        "reduced": fold_steps("reduced", reduced, reduce),
        "aggregated": fold_steps("aggregated", aggregated, result),
    }
    program = data.draw(batches(st.one_of(*(steps[state] for state in used))))
    everything = [
        Step("value", "value", (), lambda model: model.value),
        Step("elements", "get", (), lambda model: list(model.elements)),
        Step("entries", "items", (), KeyModel.items),
        Step("reduced", "get", (), lambda model: reduce(model.reduced)),
        Step("aggregated", "get", (), lambda model: result(model.aggregated)),
    ]
    models: dict[str, KeyModel] = {}
    slot = Slot(USER)
    try:
        for number, batch in enumerate(program):
            run_batch(processor, slot, batch, number, models)
        for over in ("base", "stays"):
            last = Batch([(key, everything) for key in "abc"], 2, False, "abort", over)
            run_batch(processor, slot, last, len(program), models)
    finally:
        shutil.rmtree(slot.folder)
