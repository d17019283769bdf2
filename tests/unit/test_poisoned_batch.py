"""A change of a state that fails half-way: nothing of its batch can be prepared, even by a processor that catches the
error. A read that is refused has changed nothing, and its batch goes on.

Before, a sum that overflowed in row 3 of 5 left rows 1 and 2 counted, and the batch was prepared with them.
"""

from __future__ import annotations

import contextlib
import datetime
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.checkpoint_driver import FOLDED, KEY_SCHEMA, NUMBERS, VALUES, SlotDriver
from tests.unit.state_bench import bind, make_context, make_store, purchases, reopened

import holdfast as hf
from holdfast import _core
from holdfast.errors import Corrupt, Incompatible, InvalidRequest
from holdfast.state import BoundProcessor
from holdfast.state import bound as bound_module

MOST = 2**63 - 1
OUTPUT = pa.schema([("user", pa.string())])


class Catches(hf.BatchProcessor):
    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: Any) -> Iterator[pa.RecordBatch]:
        try:
            self.total.add_only(batch, batch["amount"])
        except InvalidRequest as error:
            self.caught = error
        yield batch.select(["user"])


class CatchesByKey(hf.KeyedProcessor):
    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        try:
            for amount in rows["amount"]:
                self.total.add(amount.as_py())
            self.total.get()
        except InvalidRequest:
            pass
        yield {"user": key[0]}


def run_all(bound: BoundProcessor, batch: pa.RecordBatch) -> None:
    with bound:
        for _ in bound.process(batch, make_context()):
            continue
        for _ in bound.finish(make_context()):
            continue


def test_a_batch_processor_that_catches_an_overflow_prepares_nothing() -> None:
    store = make_store()
    processor = Catches()
    users = ["a", "b", "c", "d", "e"]
    run_all(bind(processor, OUTPUT, store), purchases(["c"], [MOST]))
    store.check()
    with pytest.raises(InvalidRequest, match="row 2, key 'c': the sum does not fit"):
        run_all(bind(processor, OUTPUT, store), purchases(users, [1] * 5))
    assert "row 2, key 'c'" in str(processor.caught)
    for refused in (store.check, store.take_delta, store.commit):
        with pytest.raises(
            InvalidRequest, match="batch must be aborted: add_only.*row 2, key 'c': the sum does not fit"
        ):
            refused()


def test_a_keyed_processor_that_catches_an_overflow_prepares_nothing() -> None:
    store = make_store()
    with pytest.raises(InvalidRequest, match="nothing of this batch is kept.*found 9223372036854775808"):
        run_all(bind(CatchesByKey(), OUTPUT, store), purchases(["a", "a", "b"], [MOST, 1, 1]))


def test_a_slot_refuses_to_prepare_and_runs_the_batch_again(tmp_path: Path) -> None:
    driver = SlotDriver(tmp_path)
    process = driver.process()
    driver.play(process, {1: 1, 2: 2})
    store = process.open(driver.handle)
    folded = process.state.open(driver.handle).reducing_state(FOLDED, pa.int64(), "sum")
    process.state.begin(1)
    with pytest.raises(InvalidRequest, match="does not fit"):
        folded.add_only(pa.array([1, 2, 2, 3]), pa.array([5, MOST, MOST, 5]))
    for refused in (process.state.spill_if_needed, process.state.prepare):
        with pytest.raises(InvalidRequest, match="add_only.. of state 2 failed.*row 1, key 2: the sum does not fit"):
            refused()
    process.state.abort()
    assert not driver.stored("delta/000000000002*")
    driver.play(process, {1: 3})
    assert driver.check(process) == "equal"
    assert store is not None


def test_a_read_that_failed_for_what_is_stored_ends_the_batch_too() -> None:
    store = _core.Store(KEY_SCHEMA, max_parallelism=1, first_key_group=0, end_key_group=1)
    store.begin(1)
    store.value_state(VALUES, pa.int16()).put(pa.array([1]), pa.array([1], pa.int16()))
    delta = store.take_delta()
    other = _core.Store(KEY_SCHEMA, max_parallelism=1, first_key_group=0, end_key_group=1)
    other.apply_delta(delta, 1)
    values = other.value_state(VALUES, pa.int64())
    other.list_state(NUMBERS, pa.int64())
    other.begin(2)
    with pytest.raises(Corrupt, match="expected a stored value of 9 bytes"):
        values.get(pa.array([1]))
    with pytest.raises(Corrupt, match="get.. of state 1 failed.*expected a stored value of 9 bytes"):
        other.take_delta()


@pytest.mark.parametrize("wrong", [pa.array(["a"]), pa.array([1.5])])
def test_a_read_of_a_key_of_another_slot_ends_nothing_but_one_of_another_type_the_batch(wrong: pa.Array) -> None:
    """Which the core alone is asked for: a processor's keys are refused before."""
    store = _core.Store(KEY_SCHEMA, max_parallelism=16, first_key_group=0, end_key_group=8)
    values = store.value_state(VALUES, pa.int64())
    store.begin(1)
    with pytest.raises(InvalidRequest, match="this slot has key groups"):
        values.get(pa.array(range(100)))
    store.check()
    with pytest.raises(Incompatible, match="expected keys of .*int64"):
        values.get(wrong)
    with pytest.raises(Incompatible, match="batch must be aborted: get.. of state 1 failed.*expected keys of"):
        store.check()


class AsksWrongly(hf.BatchProcessor):
    """Every read of every state, with keys or map keys of another type, amid changes."""

    seen = hf.ValueState(pa.int64())
    total = hf.ReducingState(pa.int64(), "sum")
    count = hf.AggregatingState(pa.int64(), "count")
    amounts = hf.ListState(pa.int64())
    by_day = hf.MapState(pa.int64(), pa.int64())
    due = hf.Timers("processing")

    def process(self, batch: pa.RecordBatch, ctx: Any) -> Iterator[pa.RecordBatch]:
        self.refused = 0
        wrong, ones = pa.array([1.5] * len(batch)), pa.array([1] * len(batch))
        reads = [
            *(state.get for state in (self.seen, self.total, self.count, self.amounts)),
            self.seen.contains,
            self.due.list,
            *(getattr(self.by_day, name) for name in ("entries", "keys", "values", "count", "is_empty")),
        ]
        asked: list[tuple[Any, tuple[Any, ...]]] = [(read, (wrong,)) for read in reads]
        monday = pa.array(["monday"] * len(batch))
        asked += [(read, (batch, monday)) for read in (self.by_day.get, self.by_day.contains)]
        asked += [(self.by_day.get, (batch, pa.array([1])))]
        for read, arguments in asked:
            try:
                read(*arguments)
            except InvalidRequest:
                self.refused += 1
            self.total.add_only(batch, batch["amount"])
            self.by_day.put(batch, ones, batch["amount"])
        assert self.refused == len(asked)
        yield batch.select(["user"])

    def on_timers(self, batch: pa.RecordBatch, ctx: Any) -> None:
        raise AssertionError("none was set")


class AsksWronglyByKey(hf.KeyedProcessor):
    by_day = hf.MapState(pa.int64(), pa.int64())
    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        amount = rows["amount"][0].as_py()
        self.total.add(amount)
        self.by_day.put(1, amount)
        refused = 0
        for ask in (
            lambda: self.by_day.get("monday"),
            lambda: self.by_day.get(None),
            lambda: self.by_day.contains(1.5),
            lambda: self.by_day.get_all([1, "monday"]),
            lambda: self.by_day.get_all("monday"),
            lambda: self.by_day["monday"],
        ):
            try:
                ask()
            except InvalidRequest as error:
                assert "by_day" in str(error)
                refused += 1
        assert refused == 6
        assert self.by_day.get(1) == amount and self.total.get() == amount
        yield {"user": key[0]}


class Finds(AsksWrongly):
    def process(self, batch: pa.RecordBatch, ctx: Any) -> Any:
        self.found = self.total.get(batch).to_pylist(), [dict(row) for row in self.by_day.entries(batch).to_pylist()]


class FindsByKey(AsksWronglyByKey):
    def process(self, key: Any, rows: Any, ctx: Any) -> Any:
        totals, days = getattr(self, "found", ([], []))
        self.found = [*totals, self.total.get()], [*days, dict(self.by_day.items())]


@pytest.mark.parametrize(
    ("processor", "reader", "times"), [(AsksWrongly(), Finds(), 14), (AsksWronglyByKey(), FindsByKey(), 1)]
)
def test_a_read_that_is_refused_and_caught_leaves_the_batch_good(processor: Any, reader: Any, times: int) -> None:
    store = make_store()
    run_all(bind(processor, OUTPUT, store), purchases(["a", "b"], [3, 4]))
    store.check()
    run_all(bind(reader, OUTPUT, reopened(store)), purchases(["a", "b"], [0, 0]))
    assert reader.found == ([3 * times, 4 * times], [{1: 3}, {1: 4}])
    store.commit()


class ReadsTimesOfDay(hf.KeyedProcessor):
    """A read that fails in the middle, when the changes before it are in the core already."""

    at = hf.MapState(pa.int64(), pa.time64("ns"))

    def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        assert self.at.get(2) == NOON
        self.at.put(2, ONE)
        self.at.remove(3)
        with pytest.raises(InvalidRequest, match="at"):
            self.at.items()
        self.found = self.at.get(2), self.at.get(3), self.at.contains(2)
        yield {"user": key[0]}


NOON, ONE = datetime.time(12), datetime.time(13)


class PutsTimesOfDay(hf.BatchProcessor):
    at = hf.MapState(pa.int64(), pa.time64("ns"))

    def process(self, batch: pa.RecordBatch, ctx: Any) -> None:
        nanoseconds = [1, 12 * 3600 * 10**9, 12 * 3600 * 10**9]  # the first has no Python value
        self.at.put(batch, batch["amount"], pa.array(nanoseconds, pa.time64("ns")))


def test_a_read_that_fails_after_it_wrote_forgets_what_it_knew_before() -> None:
    store = make_store()
    run_all(bind(PutsTimesOfDay(), OUTPUT, store), purchases(["a", "a", "a"], [1, 2, 3]))
    processor = ReadsTimesOfDay()
    run_all(bind(processor, OUTPUT, store), purchases(["a"], [0]))
    assert processor.found == (ONE, None, True)
    store.check()


class AsksAgain(hf.KeyedProcessor):
    """Of a fold that the core alone computes: what was added is in the core when the result is read."""

    last = hf.ReducingState(pa.struct([("at", pa.time64("ns"))]), "last")

    def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        assert self.last.get() is None
        self.last.add({"at": NOON})
        with pytest.raises(InvalidRequest, match="last"):
            self.last.get()
        self.found = self.last.get()
        yield {"user": key[0]}


def without_python_value() -> pa.Array:
    return pa.StructArray.from_arrays([pa.array([1], pa.int64()).cast(pa.time64("ns"))], ["at"])


def too_large() -> Any:
    raise InvalidRequest("more than one array holds")


@pytest.mark.parametrize("refused", [without_python_value, too_large])
def test_a_result_that_is_not_to_be_read_after_an_addition_has_changed_nothing(refused: Any) -> None:
    """The batch was lost; or the next read gave what there was before."""
    store, processor = make_store(), AsksAgain()
    bound = bind(processor, OUTPUT, store)
    with bound:
        state: Any = processor.last
        table, reads = state._table, 0

        class SecondRefused:
            def __getattr__(self, name: str) -> Any:
                return getattr(table, name)

            def get(self, keys: Any) -> Any:
                nonlocal reads
                reads += 1
                return refused() if reads == 2 else table.get(keys)

        state._table = SecondRefused()
        for produced in (bound.process(purchases(["a"], [0]), make_context()), bound.finish(make_context())):
            list(produced)
    assert processor.found == {"at": NOON}
    store.check()


class AddsToWhatCannotBeRead(hf.KeyedProcessor):
    last = hf.ReducingState(pa.time64("ns"), lambda a, b: b)

    def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        with pytest.raises(InvalidRequest, match="has no Python value"):
            self.last.add(NOON)
        yield {"user": key[0]}


class PutsLast(hf.BatchProcessor):
    last = hf.ValueState(pa.time64("ns"))  # kept as the fold keeps what it reduces

    def process(self, batch: pa.RecordBatch, ctx: Any) -> None:
        self.last.put(batch, pa.array([1], pa.time64("ns")))


def test_a_change_that_could_not_read_what_it_adds_to_ends_the_batch() -> None:
    store = make_store()
    run_all(bind(PutsLast(), OUTPUT, store), purchases(["a"], [0]))
    with pytest.raises(InvalidRequest, match="nothing of this batch is kept"):
        run_all(bind(AddsToWhatCannotBeRead(), OUTPUT, store), purchases(["a"], [0]))


class CatchesOnItsWay(hf.KeyedProcessor):
    """What looks like a read hands the core what was changed before; it is cut off there."""

    seen = hf.MapState(pa.int64(), pa.int64())
    mean = hf.AggregatingState(pa.float64(), "avg")

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        self.seen.put(1, 1)
        self.mean.add(1.0)
        caught = 0
        states: list[Any] = [self.mean, self.seen]
        for state, read in zip(states, (self.mean.get, self.seen.items)):
            table, state._table = state._table, self
            try:
                read()
            except (Exception, KeyboardInterrupt):
                caught += 1
            state._table = table
        assert caught == 2
        yield {"user": key[0]}

    def put(self, *arguments: Any) -> None:
        raise self.error("cut off")

    add_only = put


@pytest.mark.parametrize("error", [MemoryError, pa.ArrowMemoryError, RecursionError, KeyboardInterrupt])
def test_changes_that_were_on_their_way_to_the_core_end_the_batch(error: type[BaseException]) -> None:
    """They were in no buffer and not in the core, and the batch was prepared without them."""
    told = MemoryError if issubclass(error, MemoryError) else InvalidRequest  # whom memory is refused is told of memory
    with pytest.raises(told, match=r"nothing of this batch is kept. No value was wrong.*cut off") as caught:
        run_all(bind(CatchesOnItsWay(error), OUTPUT), purchases(["a"], [1]))
    assert isinstance(caught.value.__cause__, error) or sys.version_info < (3, 11)


@pytest.mark.parametrize("version", [(3, 10), sys.version_info[:2]])
def test_refused_memory_is_told_by_its_class_also_where_errors_have_no_notes(
    version: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks is told of the limit by the class: RuntimeError says nothing."""

    class Takes(hf.BatchProcessor):
        def process(self, batch: pa.RecordBatch, ctx: Any) -> None:
            raise MemoryError("malloc failed")

    monkeypatch.setattr(bound_module, "sys", SimpleNamespace(version_info=version))
    with pytest.raises(MemoryError, match="malloc failed"):
        run_all(bind(Takes(), OUTPUT), purchases(["a"], [1]))


class CatchesAtEachDepth(hf.KeyedProcessor):
    seen = hf.MapState(pa.int64(), pa.int64())
    mean = hf.AggregatingState(pa.float64(), "avg")

    def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        self.seen.put(1, 1)
        self.mean.add(1.0)
        self.caught = 0

        def deeper() -> None:
            try:
                deeper()
            except RecursionError:
                try:
                    self.seen.items()
                    self.mean.get()
                except RecursionError:
                    self.caught += 1
                    raise

        with contextlib.suppress(RecursionError):
            deeper()
        yield {"user": key[0]}


def test_a_recursion_that_is_too_deep_for_a_read_ends_the_batch() -> None:
    processor = CatchesAtEachDepth()
    with pytest.raises(InvalidRequest, match="nothing of this batch is kept.*RecursionError"):
        run_all(bind(processor, OUTPUT), purchases(["a"], [1]))
    assert processor.caught
