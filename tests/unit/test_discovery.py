"""What a user finds by completion, help() and a wrong guess."""

from __future__ import annotations

import datetime as dt
import pydoc
import re
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.state_bench import purchases, run

import holdfast as hf
import holdfast.testing

OUTPUT = pa.schema([("user", pa.string())])


def test_completion_shows_every_name_and_each_is_there() -> None:
    assert set(hf.__all__) <= set(dir(hf))
    assert {"keyed", "write_exactly_once", "start", "await_termination", "KafkaSink", "fork_checkpoint"} <= set(dir(hf))
    assert not [name for name in hf.__all__ if not hasattr(hf, name)]
    assert {"Harness", "Snapshot", "KafkaBroker"} <= set(dir(holdfast.testing))
    assert holdfast.testing.Harness.__name__ == "Harness"
    for module in (hf, holdfast.testing):
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            module.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("declaration", "methods"),
    [
        (hf.ValueState, ["get(keys)", "put(keys, values)", "value()", "update(value)", "clear()"]),
        (hf.ListState, ["add_all(keys, lists)", "update(keys, lists)", "add(value)", "update(values)"]),
        (hf.MapState, ["entries(keys)", "count(keys)", "get_all(ks)", "items()", "state[k]"]),
        (hf.ReducingState, ["add(keys, values)", "add_only(keys, values)", "get(keys)", "add(value)", "get()"]),
        (hf.AggregatingState, ["add(keys, values)", "add_only(keys, values)", "get(keys)", "add(value)", "get()"]),
    ],
)
def test_help_names_the_methods_of_both_kinds(declaration: type, methods: list[str]) -> None:
    shown = " ".join(pydoc.plain(pydoc.render_doc(declaration)).replace("|", " ").split())
    assert not [method for method in methods if method not in shown]


@pytest.mark.parametrize(
    ("kind", "wrong", "told"),
    [
        ("batch", "value.value", r"value is a KeyedProcessor's; a BatchProcessor calls get\(keys\)"),
        ("batch", "value.update", r"update is a KeyedProcessor's; a BatchProcessor calls put\(keys, values\)"),
        ("batch", "entries.items", r"a BatchProcessor calls entries\(keys\)"),
        ("keyed", "value.get", r"get is a BatchProcessor's; a KeyedProcessor calls value\(\)"),
        ("keyed", "value.put", r"a KeyedProcessor calls update\(value\)"),
        ("keyed", "entries.count", r"a KeyedProcessor calls len\(keys\(\)\)"),
        ("keyed", "total.add_only", r"a KeyedProcessor calls add\(value\)"),
        ("keyed", "total.nothing", "state 'total' has no 'nothing'; it has add, clear, get$"),
        ("keyed", "value.set", "state 'value' has no 'set'; it has clear, update, value$"),
        ("keyed", "alarms.set", "state 'alarms' has no 'set'; it has delete, list, register$"),
        ("batch", "value.set", "state 'value' has no 'set'; it has clear, contains, get, put$"),
        ("batch", "alarms.set", "state 'alarms' has no 'set'; it has delete, list, register$"),
    ],
)
def test_the_other_kinds_method_gets_a_hint(kind: str, wrong: str, told: str) -> None:
    state, method = wrong.split(".")

    class Batch(hf.BatchProcessor):
        value = hf.ValueState(pa.int64())
        entries = hf.MapState(pa.int64(), pa.int64())
        total = hf.ReducingState(pa.int64(), "sum")
        alarms = hf.Timers("processing")

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
            getattr(getattr(self, state), method)

        def on_timers(self, timers: pa.RecordBatch, ctx: hf.Context) -> None:
            raise NotImplementedError

    class Keyed(hf.KeyedProcessor):
        value = hf.ValueState(pa.int64())
        entries = hf.MapState(pa.int64(), pa.int64())
        total = hf.ReducingState(pa.int64(), "sum")
        alarms = hf.Timers("processing")

        def process(self, key: tuple[Any, ...], rows: Any, ctx: hf.Context) -> Any:
            getattr(getattr(self, state), method)

        def on_timer(self, key: tuple[Any, ...], time: dt.datetime, namespace: str, ctx: hf.Context) -> None:
            raise NotImplementedError

    with pytest.raises((AttributeError, RuntimeError)) as caught:
        run(Batch() if kind == "batch" else Keyed(), [purchases(["ada"], [1])], OUTPUT)
    error = caught.value if isinstance(caught.value, AttributeError) else caught.value.__cause__
    assert isinstance(error, AttributeError)
    assert re.search(told, str(error)), str(error)


@pytest.mark.parametrize(
    ("kind", "call", "told"),
    [
        ("keyed", lambda states, rows: states.total.add(rows, 1), "In a KeyedProcessor .*: add is given no keys"),
        ("keyed", lambda states, rows: states.clicks.get(rows), "In a KeyedProcessor .*: get is given no keys"),
        ("keyed", lambda states, rows: states.value.value(rows), "In a KeyedProcessor .*: value is given no keys"),
        (
            "batch",
            lambda states, rows: states.total.add(1),
            "In a BatchProcessor .*: add is given them first",
        ),
        (
            "batch",
            lambda states, rows: states.clicks.get(),
            "In a BatchProcessor .*: get is given them first",
        ),
    ],
)
def test_the_other_kinds_arguments_get_a_hint(kind: str, call: Any, told: str) -> None:
    class Batch(hf.BatchProcessor):
        value = hf.ValueState(pa.int64())
        clicks = hf.ListState(pa.int64())
        total = hf.ReducingState(pa.int64(), "sum")

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
            call(self, batch)

    class Keyed(hf.KeyedProcessor):
        value = hf.ValueState(pa.int64())
        clicks = hf.ListState(pa.int64())
        total = hf.ReducingState(pa.int64(), "sum")

        def process(self, key: tuple[Any, ...], rows: Any, ctx: hf.Context) -> Any:
            call(self, rows)

    processor = Batch() if kind == "batch" else Keyed()
    with (
        holdfast.testing.Harness(processor, "user", "user string", "user string") as harness,
        pytest.raises((TypeError, RuntimeError)) as caught,
    ):
        harness.process([{"user": "ada"}])
    assert re.search(told, "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])]))
