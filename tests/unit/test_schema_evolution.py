"""Programs that declare other states than the one before: what is added, dropped and renamed, and what is refused."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.ttl_slot import OPTIONS, TtlSlot

import holdfast as hf
from holdfast import _core
from holdfast.checkpoint.expiry import to_writer
from holdfast.state import declared_states
from holdfast.testing import Harness

ROWS = "user string, n long"
ADA = [{"user": "ada", "n": 2}, {"user": "ada", "n": 3}]
BACKENDS = ("rocksdb", "hashmap")


class First(hf.BatchProcessor):
    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: Any, ctx: Any) -> Any:
        for name, declared in declared_states(self):
            state = getattr(self, name)
            (state.add if isinstance(declared, hf.ListState) else state.add_only)(batch, batch["n"])


class WithMore(First):
    mean = hf.AggregatingState(pa.int64(), "avg")
    seen = hf.ListState(pa.int64())


class Renamed(WithMore):
    sum = hf.renamed_from("total", hf.ReducingState(pa.int64(), "sum"))
    total = None  # type: ignore[assignment]


class Dropped(Renamed):
    mean = hf.DroppedState()  # type: ignore[assignment]


class DroppedLongAgo(hf.BatchProcessor):
    seen = hf.ListState(pa.int64())
    sum = hf.ReducingState(pa.int64(), "sum")

    process = First.process


def harness(processor: Any, **options: Any) -> Harness:
    return Harness(processor, "user", ROWS, ROWS, settings={"fold.deltas.max": 2}, **options)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lose_local_copies", [False, True])
def test_states_are_added_renamed_and_dropped_from_program_to_program(backend: Any, lose_local_copies: bool) -> None:
    with harness(First(), backend=backend) as h:

        def goes_on(processor: Any, batches: int = 3) -> None:
            h.kill(lose_local_copies=lose_local_copies)
            h.restart(processor)
            for _ in range(batches):
                h.process(ADA)

        h.process(ADA)
        goes_on(WithMore())
        assert (h.state("total", "ada"), h.state("mean", "ada"), h.state("seen", "ada")) == (20, 2.5, [2, 3] * 3)
        goes_on(Renamed())
        assert (h.state("sum", "ada"), h.state("mean", "ada"), len(h.state("seen", "ada"))) == (35, 2.5, 12)
        goes_on(Renamed())
        goes_on(Dropped())
        goes_on(DroppedLongAgo())
        assert (h.state("sum", "ada"), len(h.state("seen", "ada"))) == (80, 30)
        for earlier in (First(), WithMore(), Renamed()):
            with pytest.raises(hf.Incompatible):
                h.restart(earlier)


def test_a_batch_runs_again_in_the_program_that_added_a_state() -> None:
    with harness(First()) as h:
        h.process(ADA)
        h.restart(WithMore())
        h.process(ADA)
        h.replay()
        assert (h.state("total", "ada"), h.state("seen", "ada")) == (10, [2, 3])


def test_a_state_that_is_added_again_after_a_drop_does_not_find_what_was_dropped() -> None:
    class Again(DroppedLongAgo):
        mean_too = hf.AggregatingState(pa.int64(), "avg")

    with harness(WithMore()) as h:
        h.process(ADA)
        h.restart(Dropped())
        h.restart(Again())
        assert h.state("mean_too", "ada") is None


def keeping(**lines: Any) -> Any:
    """Keeps the sum of n in each of its states."""
    return type("Program", (hf.BatchProcessor,), {**lines, "process": First.process})()


def total() -> Any:
    return hf.ReducingState(pa.int64(), "sum")


def test_a_program_that_never_ran_is_no_earlier_one() -> None:
    """Of three, the last says what the states were called by the one that ran."""
    with harness(keeping(first=total())) as h:
        h.process(ADA)
        with pytest.raises(hf.Incompatible, match="expected a recorded state 'second', .* found first"):
            h.restart(keeping(third=hf.renamed_from("second", total())))
        h.restart(keeping(third=hf.renamed_from("first", total())))
        assert h.state("third", "ada") == 5
        with pytest.raises(hf.Incompatible, match="expected a recorded state 'first', .* found third"):
            h.restart(keeping(second=hf.renamed_from("first", total())))


def test_states_swap_their_names_in_three_steps_and_each_keeps_what_it_held() -> None:
    with harness(keeping(a=total(), b=total())) as h:
        h.process(ADA)
        h.restart(keeping(a=total(), b=total(), c=total()))
        h.process(ADA)
        before = {name: h.state(name, "ada") for name in "abc"}
        h.restart(keeping(x=hf.renamed_from("a", total()), b=total(), c=total()))
        h.restart(keeping(x=total(), a=hf.renamed_from("c", total()), b=total()))
        h.restart(keeping(c=hf.renamed_from("x", total()), a=total(), b=total()))
        h.kill(lose_local_copies=True)
        assert {name: h.state(name, "ada") for name in "abc"} == {"a": before["c"], "b": before["b"], "c": before["a"]}
        with pytest.raises(hf.Incompatible, match="'c': is recorded, and so is 'b', from which it is renamed"):
            h.restart(keeping(c=hf.renamed_from("b", total()), a=total()))


def test_all_that_a_restart_would_lose_is_listed_with_a_way_out() -> None:
    class Neither(hf.BatchProcessor):
        totl = hf.ReducingState(pa.int64(), "sum")
        process = First.process

    with harness(WithMore()) as h:
        with pytest.raises(hf.Incompatible) as told:
            h.restart(Neither())
        lines = str(told.value).splitlines()[1:]
        assert [line.split(":")[0].strip() for line in lines] == ["state 'total'", "state 'mean'", "state 'seen'"]
        assert all("hf.renamed_from(" in line and "= hf.DroppedState()" in line for line in lines)
        h.restart(WithMore())


def test_a_dropped_state_is_not_called() -> None:
    class CallsIt(Dropped):
        def process(self, batch: Any, ctx: Any) -> Any:
            self.mean.add_only(batch, batch["n"])  # type: ignore[attr-defined]

    with (
        harness(CallsIt()) as h,
        pytest.raises(hf.InvalidRequest, match="state 'mean' of CallsIt is dropped: there is nothing to call"),
    ):
        h.process(ADA)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"b": hf.renamed_from("a", hf.ValueState(pa.int64())), "a": hf.ValueState(pa.int64())}, "which is declared"),
        ({"b": hf.renamed_from("a", hf.ValueState(pa.int64())), "a": hf.DroppedState()}, "which is dropped too"),
        ({name: hf.renamed_from("a", hf.ValueState(pa.int64())) for name in "bc"}, "'b' is renamed from 'a', and so"),
    ],
)
def test_a_program_that_contradicts_itself_is_refused(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(hf.InvalidRequest, match=message):
        harness(type("Wrong", (hf.BatchProcessor,), {**attributes, "process": First.process})())


@pytest.mark.parametrize(
    ("name", "state"), [("a b", hf.ValueState(pa.int64())), (7, hf.ValueState(pa.int64())), ("a", pa.int64())]
)
def test_what_is_renamed_is_a_state_from_a_name(name: Any, state: Any) -> None:
    with pytest.raises(hf.InvalidRequest, match="renamed_from"):
        hf.renamed_from(name, state)


def test_a_base_that_is_made_without_a_dropped_state_has_none_of_its_entries(tmp_path: Path) -> None:
    """Whatever runs they lie in, and whether they have a stamp or not; what another state has stays."""
    slot = TtlSlot(tmp_path)
    kept, dropped = (slot.store.value_state(state_id, pa.int64()) for state_id in (1, 2))
    users = pa.array([f"user-{n}" for n in range(500)])
    for number in range(4):
        slot.store.begin(number + 1)
        for state in (kept, dropped):
            state.put(pa.record_batch([users], ["user"]).to_struct_array(), pa.array([number] * 500))
        slot.deltas.append(pa.record_batch(slot.store.take_delta()))
        slot.store.commit()
        slot.fold()
    assert len(slot.stored()) == 1000
    folder = tmp_path / "without"
    writer = _core.BaseWriter(str(slot.base[1]), str(folder), OPTIONS, to_writer([], [1], [2]))
    writer.finish()
    slot.base = (4, folder)
    assert {key[2:4] for key in slot.stored()} == {b"\x00\x01"}
    assert len(slot.stored()) == 500


EVENT = hf.TTL("1 h", time="event")


class OfProcessingTime(hf.BatchProcessor):
    kept = hf.ReducingState(pa.int64(), "sum", ttl=hf.TTL("1 h"))
    gone = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: Any, ctx: Any) -> Any:
        for name, _ in declared_states(self):
            getattr(self, name).add_only(batch, batch["n"])
        yield batch


class OfEventTime(OfProcessingTime):
    kept = hf.ReducingState(pa.int64(), "sum", ttl=EVENT)
    gone = hf.DroppedState()  # type: ignore[assignment]


class WithoutTtl(OfProcessingTime):
    kept = hf.ReducingState(pa.int64(), "sum")


def test_a_program_that_is_refused_for_the_time_of_a_ttl_has_dropped_nothing() -> None:
    """The slot's first batch refused it, when what it said of its other states had been recorded for good."""
    rows = "user string, n long, at timestamp"
    event = [{"user": "ada", "n": 2, "at": datetime(2026, 1, 1, 12, tzinfo=timezone.utc)}]
    with Harness(OfProcessingTime(), "user", rows, rows, event_time="at") as h:
        h.process(event)
        for program in (WithoutTtl(), OfProcessingTime()):  # its entries keep their times meanwhile
            with pytest.raises(
                hf.Incompatible, match=r"'kept': counts its time to live in processing.*declared with event"
            ):
                h.restart(OfEventTime())
            h.restart(program)
        h.process(event)
        assert h.state("gone") == {"ada": 4}


def test_a_ttl_that_came_later_locks_no_program_out() -> None:
    """Had its time been recorded as it was declared, and not as entries have it, neither program could go on."""
    rows = "user string, n long, at timestamp"
    event = [{"user": "ada", "n": 2, "at": datetime(2026, 1, 1, 12, tzinfo=timezone.utc)}]
    with Harness(WithoutTtl(), "user", rows, rows, event_time="at") as h:
        h.process(event)
        h.restart(OfProcessingTime())
        h.process(event)
        h.restart(type("Other", (OfProcessingTime,), {"kept": hf.ReducingState(pa.int64(), "sum", ttl=EVENT)})())
        with pytest.raises(hf.Incompatible, match="counts its time to live in processing time"):
            h.process(event)
        h.restart(OfProcessingTime())
        h.process(event)
        assert h.state("kept") == {"ada": 6}
