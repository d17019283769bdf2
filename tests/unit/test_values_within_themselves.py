"""Python values that hold themselves, or that iterate to themselves, in output and in states."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.unit.state_bench import USER, bind, make_context, purchases

import holdfast as hf
from holdfast.errors import InvalidRequest
from holdfast.state import outputs
from holdfast.state.outputs import OutputRows

FLAGS = pa.schema([("user", pa.string()), ("flags", pa.int64())])


class Permission(enum.IntFlag):
    READ = 1
    WRITE = 2


class Itself:
    def __iter__(self) -> Iterator[Any]:
        return iter([self])

    def __len__(self) -> int:
        return 1

    def __contains__(self, value: object) -> bool:
        return value is self


def objects(*values: Any) -> Any:
    made = np.empty(len(values), object)
    made[:] = values
    return made


def within_itself(kind: type[list[Any]] | type[deque[Any]]) -> Any:
    value = kind()
    value.append(value)
    return value


def dict_within_itself() -> Any:
    value: dict[str, Any] = {}
    value["value"] = value
    return value


def array_within_itself() -> Any:
    value = objects(None)
    value[0] = value
    return value


def very_deep() -> Any:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


FORMS: dict[str, Callable[[Any], Any]] = {
    "tuples": lambda value: ("ada", value),
    "dicts": lambda value: {"user": "ada", "flags": value},
    "frames": lambda value: pd.DataFrame({"user": ["ada"], "flags": pd.Series(objects(value))}),
}
ENDLESS: dict[str, Callable[[], Any]] = {
    "an object": Itself,
    "a list": lambda: within_itself(list),
    "a deque": lambda: within_itself(deque),
    "a dict": dict_within_itself,
    "an array": array_within_itself,
    "a very deep list": very_deep,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("flags", [Permission.READ, Permission.READ | Permission.WRITE], ids=str)
def test_flags_are_rows_values(form: str, flags: Permission) -> None:
    """Each batch failed, with a RecursionError: a flag iterates to itself."""
    given = OutputRows(FLAGS)
    given.add(FORMS[form](flags))
    assert [batch.to_pylist() for batch in given.drain()] == [[{"user": "ada", "flags": int(flags)}]]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ENDLESS)
def test_a_value_without_an_end_is_refused_as_any_other(form: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "UNDIVIDED_BYTES", 0)  # what is refused is measured again
    given = OutputRows(FLAGS)
    with pytest.raises(InvalidRequest, match="column 'flags': expected int64, found"):
        given.add(FORMS[form](ENDLESS[kind]()))
        given.drain()


@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.parametrize("type", [pa.int64(), pa.list_(pa.int64())], ids=str)
def test_a_state_refuses_a_value_without_an_end(kind: str, type: pa.DataType) -> None:
    """The process of the worker died of a list that is in itself."""

    class Sets(hf.KeyedProcessor):
        kept = hf.ValueState(type)

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            self.kept.update(ENDLESS[kind]())

    with bind(Sets(), USER) as bound, pytest.raises(InvalidRequest, match="state 'kept'.*: expected .*, found"):
        ctx = make_context()
        list(chain(bound.process(purchases(["ada"], [1]), ctx), bound.finish(ctx)))


def test_an_interval_is_a_value_though_it_is_a_tuple() -> None:
    span, schema = pa.MonthDayNano([1, 2, 3]), pa.schema([("span", pa.month_day_nano_interval())])
    given = OutputRows(schema)
    given.add((span,))
    assert [batch.to_pylist() for batch in given.drain()] == [[{"span": span}]]
