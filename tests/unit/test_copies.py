"""Copies of processors, one for each slot and batch: whole, of their own, and as the one that they are copies of."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

import holdfast as hf
from holdfast.errors import InvalidRequest
from holdfast.state import fresh_copy
from holdfast.testing import Harness


@dataclasses.dataclass(slots=True)
class Rule:
    name: str = "one"
    seen: list[int] = dataclasses.field(default_factory=lambda: [1])


class Plain:
    def __init__(self) -> None:
        self.seen = [1]

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)


class Made(Plain):
    """Whose state is a dict that nobody else has."""

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))


class Copied:
    """Fails to be copied, and not because it cannot be."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise KeyError("seen")


class Unpicklable:
    def __reduce__(self) -> Any:
        raise pickle.PicklingError("of this process")


class Holds(hf.BatchProcessor):
    pass


class Slots(Holds):
    __slots__ = ("__hidden", "limit", "unset")

    def __init__(self) -> None:
        self.limit, self.__hidden, self.plain = [3], [4], [5]

    def found(self) -> list[Any]:
        return [self.limit, self.__hidden, self.plain]


KINDS: dict[str, Callable[[], Any]] = {
    "list": lambda: [1],
    "dict": lambda: {"a": [1]},
    "counter": lambda: collections.Counter("abca"),
    "rule": Rule,
    "plain": Plain,
    "made": Made,
    "lock": threading.Lock,
}


@given(st.lists(st.sampled_from(sorted(KINDS)), min_size=2, max_size=6), st.booleans())
def test_no_attribute_of_a_copy_is_another_s(kinds: list[str], pickled: bool) -> None:
    """What an attribute was copied from had been freed, and one that got its address was taken for copied already:
    it was shared between slots, with what each of them left in it.
    """
    before: Any = Holds()
    for at, kind in enumerate(kinds):
        if kind != "lock" or not pickled:
            setattr(before, f"a{at}", KINDS[kind]())
    if pickled:
        before = pickle.loads(pickle.dumps(before))
    after = fresh_copy(before)
    for name, one in vars(before).items():
        other = getattr(after, name)
        if isinstance(one, type(threading.Lock())):
            assert other is one
        else:
            assert other == one and other is not one, (name, kinds)
            assert not hasattr(one, "seen") or other.seen is not one.seen


def test_slots_are_copied() -> None:
    before = Slots()
    after = fresh_copy(before)
    assert after.found() == before.found() == [[3], [4], [5]]
    assert not any(one is other for one, other in zip(after.found(), before.found()))
    assert not hasattr(after, "unset")


def test_what_cannot_be_copied_is_shared_and_leaves_no_halves() -> None:
    before: Any = Holds()
    before.broken = {"inner": (inner := [1]), "lock": threading.Lock()}
    before.of_this_process = [Unpicklable()]
    before.inner = inner
    before.pair = [inner, before]
    after = fresh_copy(before)
    assert after.broken is before.broken and after.of_this_process is before.of_this_process
    assert after.inner == [1] and after.inner is not inner
    assert after.pair[0] is after.inner and after.pair[1] is after


class Refuses:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise self.error


def test_who_says_that_it_cannot_be_copied_is_shared_and_no_memory_is_no_memory() -> None:
    before: Any = Holds()
    before.held = Refuses(copy.Error("no"))
    assert fresh_copy(before).held is before.held
    before.held = Refuses(MemoryError())
    with pytest.raises(MemoryError):
        fresh_copy(before)


def test_no_table_that_a_function_closes_over_is_gone_through() -> None:
    """For each slot and batch, to see whether the processor is in it."""

    class Table(list[Any]):
        looked = 0

        def __iter__(self) -> Any:
            Table.looked += 1
            return super().__iter__()

    table, before = Table(range(100_000)), Holds()
    before.look = lambda at: table[at]  # type: ignore[attr-defined]
    before.mine = lambda at: (before, table[at])  # type: ignore[attr-defined]
    after: Any = fresh_copy(before)
    assert (after.look(7), after.mine(8)) == (7, (after, 8))
    assert Table.looked == 0


def test_what_fails_to_be_copied_is_said() -> None:
    """It was shared, and every error with it."""
    before: Any = Holds()
    before.first = [1]
    before.copied = Copied()
    with pytest.raises(InvalidRequest, match=r"Holds.copied: .* a copy of this Copied fails \(KeyError: 'seen'\)"):
        fresh_copy(before)
    before.copied = []
    for _ in range(100_000):
        before.copied = [before.copied]
    with pytest.raises(InvalidRequest, match=r"Holds.copied: .* a copy of this list fails \(RecursionError"):
        fresh_copy(before)


class Router:
    def __init__(self, **routes: Any) -> None:
        self.routes = routes


class Dispatch(hf.KeyedProcessor):
    """Adds by functions that were made with it, in all places that may hold one, and counts its calls."""

    total = hf.ReducingState(pa.int64(), "sum")

    def __init__(self, lock: Callable[[], Any] = threading.Lock) -> None:
        self.calls = 0
        self.table = [1000]
        table, names = self.table, {"lock": lock()}

        def add(value: int, *, to: Any = self) -> None:
            to.calls += 1
            to.total.add(value)

        def again(value: int, times: int = 1) -> None:
            if times:
                again(value, times - 1)
            else:
                self.add(value + 0 * len(names))

        def logged(function: Callable[[int], None]) -> Callable[[int], None]:
            return functools.wraps(function)(lambda value: function(value))

        self.rules: dict[str, Any] = {
            "add": lambda value: self.add(value),
            "tens": (lambda value: self.add(10 * value),),
        }
        self.several: list[Any] = [self.add, add, again, functools.partial(lambda one, value: self.add(one * value), 1)]
        self.router = Router(default=lambda value, to=self: to.add(value), logged=logged(again))
        self.apart = len
        self.shared = lambda value: table[0] + value

    def add(self, value: int) -> None:
        self.calls += 1
        self.total.add(value)

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[Any]:
        functions = [*self.several, *self.router.routes.values(), self.rules["add"], *self.rules["tens"]]
        for function in functions:
            function(1)
        yield key[0], self.total.get(), self.calls


OUT = "user string, total bigint, calls bigint"


@pytest.mark.parametrize("pickled", [False, True])
def test_functions_made_with_a_processor_are_at_work_on_its_copy(pickled: bool) -> None:
    """They used the processor that was copied: its states were said to be used outside of process, and what they set in
    it was there in the next batch.
    """
    before = cloudpickle.loads(cloudpickle.dumps(Dispatch(lock=int))) if pickled else Dispatch()
    with Harness(before, "user", "user string", OUT) as harness:
        assert harness.process([{"user": "ada"}]).to_pylist() == [{"user": "ada", "total": 17, "calls": 8}]
        assert harness.process([{"user": "ada"}]).to_pylist() == [{"user": "ada", "total": 34, "calls": 8}]
    assert before.calls == 0


def test_a_copied_function_is_as_the_one_it_is_of() -> None:
    before = Dispatch()
    after = fresh_copy(before)
    add, again, wrapped = before.several[1], before.several[2], before.router.routes["logged"]
    assert after.several[1].__name__ == "add" and after.several[1].__qualname__ == add.__qualname__
    assert after.several[2].__defaults__ == again.__defaults__ == (1,)
    assert after.several[1].__kwdefaults__ == {"to": after} and add.__kwdefaults__ == {"to": before}
    assert after.router.routes["logged"].__wrapped__ is after.several[2] is not wrapped.__wrapped__
    assert after.shared is before.shared and after.apart is len
    assert after.table is not before.table
