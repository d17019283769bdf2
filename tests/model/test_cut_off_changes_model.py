"""An exception that cuts a call of a state off anywhere, and that the processor catches: refused memory, a signal, too
deep a recursion. Either the batch is lost, or every call that returned is there, and none told what is not.

The model knows of each call what it does and gives. Struck are calls of the core, before and after their work, and any
line of the states' own code. Before, a buffer was gone as soon as it was on its way to the core.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_count import examples
from tests.unit.state_bench import USER, bind, make_context, make_store, purchases

import holdfast as hf

Call = tuple[Any, ...]  # state, method, arguments
Raise = Callable[[], None]


class Signal(BaseException):
    """At a line, where any exception may come from a signal handler."""


ERRORS: list[type[BaseException]] = [MemoryError, pa.ArrowMemoryError, RecursionError, KeyboardInterrupt, TimeoutError]
CAUGHT: tuple[type[BaseException], ...] = (Signal, *ERRORS)
LOST: tuple[type[BaseException], ...] = (hf.InvalidRequest, *CAUGHT)
LINES_APART = 7
SHARED = ("log", "rules")


class Struck:
    """A table of the core; ``strike`` is asked before and after each call."""

    def __init__(self, table: Any, strike: Raise) -> None:
        self._table, self._strike = table, strike

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._table, name)

        def call(*arguments: Any) -> Any:
            self._strike()
            given = method(*arguments)
            self._strike()
            return given

        return call


class Points:
    """Counts the points where an exception may come, and raises one at ``at``."""

    def __init__(self, at: int | None = None, error: type[BaseException] = Signal) -> None:
        self.passed = 0
        self._at, self._error = at, error

    def strike(self) -> None:
        self.passed += 1
        if self.passed == self._at:
            raise self._error("struck")

    def trace(self, frame: Any, event: str, argument: Any) -> Any:
        if "/holdfast/state/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            self.strike()
        return self.trace


# --- what each call does to plain Python, and gives


def done(content: dict[str, Any], call: Call, first_time: Any) -> Any:
    """Does the call to what a key has, and to what all have."""
    name, method, *arguments = call
    of = content[name]
    if name == "value":
        if method == "update":
            content[name] = arguments[0]
            return None
        return of
    if name in ("elements", "log"):
        return _list_done(of, method, *arguments)
    if name in ("entries", "rules"):
        return _map_done(of, method, *arguments)
    if name == "timers":
        if method == "list":
            return [(time, "") for time in sorted(of)]
        (of.add if method == "register" else of.discard)(first_time + timedelta(seconds=arguments[0]))
        return None
    if method == "get":
        return {"mean": _mean, "total": lambda a: sum(a) if a else None, "last": lambda a: a[-1] if a else None}[name](
            of
        )
    return _list_done(of, method, *arguments)


def _mean(added: list[int]) -> float | None:
    return sum(added) / len(added) if added else None


def _list_done(of: list[Any], method: str, *arguments: Any) -> Any:
    if method == "get":
        return list(of)
    if method in ("clear", "update"):
        of.clear()
    if method != "clear":
        of.extend(arguments if method == "add" else arguments[0])
    return None


def _map_done(of: dict[Any, Any], method: str, *arguments: Any) -> Any:
    reads: dict[str, Callable[..., Any]] = {
        "items": lambda: sorted(of.items()),
        "keys": lambda: sorted(of),
        "is_empty": lambda: not of,
        "count": lambda: len(of),
        "contains": lambda key: key in of,
        "get": of.get,
        "get_all": lambda keys: [of.get(key) for key in keys],
    }
    if method in reads:
        return reads[method](*arguments)
    changes: dict[str, Callable[..., Any]] = {
        "put": of.__setitem__, "put_all": of.update, "remove": lambda key: of.pop(key, None), "clear": of.clear
    }  # fmt: skip
    changes[method](*arguments)
    return None


# --- the same by states


class Plays:
    """What both forms do: calls one after the other; one that raises is caught, as ``except BaseException`` has it."""

    contents: dict[str, Any]
    wrong: list[Any]
    points: Points
    by_line: bool
    script: list[Call]

    def play(self: Any, content: dict[str, Any], ctx: hf.Context) -> None:
        self.rules.writable = True
        for call in self.script:
            name, method, *arguments = call
            after = copy.deepcopy(content)
            expected = done(after, call, ctx.timestamp)
            if name == "timers" and arguments:
                arguments = [ctx.timestamp + timedelta(seconds=arguments[0])]
            before = sys.gettrace()
            sys.settrace(self.points.trace if self.by_line else before)
            try:
                found = getattr(getattr(self, name), method)(*arguments)
            except CAUGHT:
                continue
            finally:
                sys.settrace(before)
            content.update(after)
            if plain(found) != expected:
                self.wrong.append((call, found, expected))


class ByKey(Plays, hf.KeyedProcessor):
    value = hf.ValueState(pa.int64())
    elements = hf.ListState(pa.int64())
    entries = hf.MapState(pa.float64(), pa.int64())  # whose identity is not the value: NaN, and 0 of either sign
    mean = hf.AggregatingState(pa.int64(), "avg")
    total = hf.ReducingState(pa.int64(), "sum")
    last = hf.ReducingState(pa.int64(), lambda a, b: b)
    timers = hf.Timers("event")
    log = hf.OperatorState(pa.int64(), redistribution="split")
    rules = hf.BroadcastState(pa.int64(), pa.int64())

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
        content = {**self.contents[key[0]], **self.contents[""]}
        self.play(content, ctx)
        self.contents[""] = {name: content.pop(name) for name in SHARED}
        self.contents[key[0]] = content

    def on_timer(self, key: Any, time: Any, namespace: str, ctx: hf.Context) -> None: ...

    @staticmethod
    def empty() -> dict[str, Any]:
        lists: dict[str, Any] = {name: [] for name in ("elements", "mean", "total", "last")}
        own = {"value": None, "entries": {}, "timers": set(), **lists}
        return {"ada": own, "bob": copy.deepcopy(own), "": {"log": [], "rules": {}}}


class InArrays(Plays, hf.BatchProcessor):
    log = hf.OperatorState(pa.int64(), redistribution="split")
    rules = hf.BroadcastState(pa.int64(), pa.int64())

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.play(self.contents[""], ctx)

    @staticmethod
    def empty() -> dict[str, Any]:
        return {"": {"log": [], "rules": {}}}


def plain(found: Any) -> Any:
    return found.to_pylist() if isinstance(found, pa.Array) else found


def ran(form: Any, store: Any, script: list[Call], contents: Any, points: Points, by_line: bool) -> Any:
    """A batch of the script for each key; the processor, or None where the batch is lost."""
    processor, context = form(), make_context()
    processor.script, processor.points, processor.by_line = script, points, by_line
    processor.contents, processor.wrong = contents, []
    try:
        with bind(processor, USER, store) as bound:
            if not by_line:
                states: list[Any] = list(bound._states)
                for state in states:
                    for holder in (state, getattr(state, "_one", state)):
                        holder._table = Struck(holder._table, points.strike)
            rows = purchases(["ada", "bob"], [1, 1])
            for produced in (bound.process(rows, context), bound.finish(context)):
                list(produced)
    except LOST:
        return None
    return processor


def check(form: Any, before: list[Call], script: list[Call], points: Points, by_line: bool) -> None:
    store, contents = make_store(), form.empty()
    assert ran(form, store, before, contents, Points(), False) is not None
    told = copy.deepcopy(contents)
    processor = ran(form, store, script, told, points, by_line)
    if processor is None:
        return
    reads = [*READS, *BATCH_READS] if form is ByKey else BATCH_READS
    asked = ran(form, store, reads, copy.deepcopy(told), Points(), False)
    assert asked is not None
    assert not processor.wrong and not asked.wrong, (script, points.passed, processor.wrong, asked.wrong)


# --- scripts

NUMBERS = st.integers(-9, 9)
SEVERAL = st.lists(NUMBERS, max_size=3)
MAP_KEYS = st.integers(0, 4)
READS: list[Call] = [
    ("value", "value"),
    ("elements", "get"),
    ("entries", "get_all", range(5)),
    ("entries", "is_empty"),
    ("entries", "items"),
    *((name, "get") for name in ("mean", "total", "last")),
    ("timers", "list"),
]
BATCH_READS: list[Call] = [("log", "get"), ("rules", "count"), ("rules", "items")]


def _calls(*methods: tuple[Any, ...]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Any of these methods, with any of its arguments."""
    return st.one_of(*(st.tuples(st.just(method), *arguments) for method, *arguments in methods))


_LIST = _calls(("add", NUMBERS), ("add_all", SEVERAL), ("update", SEVERAL), ("clear",), ("get",))
_RULES = _calls(
    ("put", MAP_KEYS, NUMBERS),
    *((method, MAP_KEYS) for method in ("remove", "get", "contains")),
    *((method,) for method in ("clear", "items", "count")),
)
_ENTRIES = _calls(
    ("put", MAP_KEYS, NUMBERS),
    ("put_all", st.dictionaries(MAP_KEYS, NUMBERS, max_size=3)),
    *((method, MAP_KEYS) for method in ("remove", "get", "contains")),
    ("get_all", st.just(range(5))),
    *((method,) for method in ("clear", "items", "keys", "is_empty")),
)
_FOLDED = _calls(("add", NUMBERS), ("get",), ("clear",))
_IN_BOTH = {"log": _LIST, "rules": _RULES}
_BY_KEY = {
    "value": _calls(("update", NUMBERS), ("value",)),
    "elements": _LIST,
    "entries": _ENTRIES,
    "mean": _FOLDED,
    "total": _FOLDED,
    "last": _FOLDED,
    "timers": _calls(("register", MAP_KEYS), ("delete", MAP_KEYS), ("list",)),
    **_IN_BOTH,
}
FORMS: dict[str, tuple[Any, dict[str, st.SearchStrategy[Any]]]] = {
    "by key": (ByKey, _BY_KEY),
    "in arrays": (InArrays, _IN_BOTH),
}


def scripts(data: st.DataObject, calls: dict[str, st.SearchStrategy[Any]]) -> tuple[list[Call], list[Call]]:
    """What is there before, and what is struck: calls of one state or two, so that one call meets what another left."""
    names = data.draw(st.lists(st.sampled_from(sorted(calls)), min_size=1, max_size=2))
    any_call = st.one_of(*(calls[name].map(lambda call, name=name: (name, *call)) for name in names))  # type: ignore[misc]
    return data.draw(st.lists(any_call, max_size=4)), data.draw(st.lists(any_call, min_size=2, max_size=8))


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=examples(50), deadline=None)
@given(st.data())
def test_a_call_of_the_core_that_is_cut_off_loses_the_batch_or_nothing(form: str, data: st.DataObject) -> None:
    processor, calls = FORMS[form]
    before, script = scripts(data, calls)
    counted = Points()
    check(processor, before, script, counted, False)
    for at in range(1, counted.passed + 1):
        check(processor, before, script, Points(at, data.draw(st.sampled_from(ERRORS))), False)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=examples(50), deadline=None)
@given(st.data())
@pytest.mark.long
def test_a_line_at_which_a_signal_strikes_loses_the_batch_or_nothing(form: str, data: st.DataObject) -> None:
    processor, calls = FORMS[form]
    before, script = scripts(data, calls)
    counted = Points()
    check(processor, before, script, counted, True)
    for at in range(data.draw(st.integers(1, LINES_APART)), counted.passed + 1, LINES_APART):
        check(processor, before, script, Points(at), True)
