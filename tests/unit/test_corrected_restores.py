"""A query that begins with the state of an earlier one is started again, before its first batch is committed, with
something else said of that beginning. What the first start recorded holds: another beginning is told.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.checkpoint_driver import operator_record
from tests.unit.test_origin import ORIGIN

from holdfast.checkpoint import OperatorRecord, QueryPhase, StateChanges, StateRecord, check_operator, register_operator
from holdfast.checkpoint.continued import NOTHING_SAID, continued
from holdfast.errors import Incompatible
from holdfast.storage import LocalFileStore

VALUES = pa.schema([("value", pa.int64())])


def total(name: str, state_id: int = 1) -> StateRecord:
    return StateRecord(state_id, name, "reducing", VALUES, "sum")


EARLIER = replace(operator_record(2), states=(total("total"), total("seen", 2)))
LEFT = StateChanges(dropped=("total",), added=("sum",))
RENAMED = StateChanges(renamed=(("sum", "total"),), added=())
ANEW = StateChanges(dropped=("seen",), added=("seen",))
SUM, SAME = (total("sum"), total("seen", 2)), (total("total"), total("seen", 2))
BEFORE = [QueryPhase.PLANNED_NOTHING, QueryPhase.COMMITTED_NOTHING]


def begun(
    states: tuple[StateRecord, ...], said: StateChanges, in_program: StateChanges | None = None
) -> OperatorRecord:
    declared = replace(operator_record(2), states=states, changes=in_program or StateChanges())
    return continued(EARLIER, declared, ORIGIN, said)


@pytest.mark.parametrize("phase", BEFORE)
@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (
            begun(SUM, LEFT),
            begun(SUM, RENAMED),
            "'total' .*: recorded as left behind, declared as going on, named 'sum'",
        ),
        (
            begun(SUM, RENAMED),
            begun(SUM, LEFT),
            "'total' .*: recorded as going on, named 'sum', declared as left behind",
        ),
        (
            begun(SAME, ANEW),
            begun(SAME, NOTHING_SAID),
            "'seen' .*: recorded as left behind, declared as going on, named",
        ),
    ],
)
def test_other_states_that_go_on_are_told_until_a_batch_is_committed(
    tmp_path: Path, first: OperatorRecord, second: OperatorRecord, told: str, phase: QueryPhase
) -> None:
    """It was ignored without a word, and the state that should go on began empty."""
    store = LocalFileStore(str(tmp_path))
    recorded = register_operator(store, first, prefix="new/sums", phase=phase)
    for compare in (
        lambda: check_operator(store, "new/sums", recorded, second, phase),
        lambda: register_operator(store, second, prefix="new/sums", phase=phase),
    ):
        with pytest.raises(Incompatible, match=told) as raised:
            compare()
        assert "start with a new Spark checkpoint" in str(raised.value)
    register_operator(store, second, prefix="new/sums", phase=QueryPhase.COMMITTED)


@pytest.mark.parametrize("phase", BEFORE)
def test_the_same_beginning_is_no_other_whatever_else_changed(tmp_path: Path, phase: QueryPhase) -> None:
    store = LocalFileStore(str(tmp_path))
    prefix = "new/sums"
    register_operator(store, begun(SUM, RENAMED), prefix=prefix, phase=phase)
    register_operator(store, begun(SUM, RENAMED), prefix=prefix, phase=phase)
    added = StateChanges(renamed=RENAMED.renamed, added=("more", "most"))
    more = begun((*SUM, total("most", 3), total("more", 4)), added)
    register_operator(store, more, prefix=prefix, phase=phase)
    other_order = begun((*SUM, total("more", 3), total("most", 4)), added)
    found = register_operator(store, other_order, prefix=prefix, phase=phase)
    assert {state.name: state.id for state in found.states}["sum"] == 1
    register_operator(store, replace(other_order, origin=None), prefix=prefix, phase=phase)


@pytest.mark.parametrize("phase", BEFORE)
def test_what_the_program_says_of_its_states_is_said_after_that(tmp_path: Path, phase: QueryPhase) -> None:
    """A line in the processor is for each start: also for that of a query that has not begun."""
    store = LocalFileStore(str(tmp_path))
    register_operator(store, begun(SAME, NOTHING_SAID), prefix="new/sums", phase=phase)
    line = StateChanges(dropped=("seen",), renamed=(("sum", "total"),))
    for _ in range(2):
        changed = begun((total("sum"),), NOTHING_SAID, in_program=line)
        found = register_operator(store, changed, prefix="new/sums", phase=phase)
    assert [(state.id, state.name) for state in found.states] == [(1, "sum")]


def test_another_batch_is_told_until_offsets_are_planned(tmp_path: Path) -> None:
    """The first offsets were planned after one batch of the earlier query, on the state after another."""
    store = LocalFileStore(str(tmp_path))
    first = begun(SAME, NOTHING_SAID)
    later = replace(first, origin=replace(ORIGIN, batch_id=8))
    recorded = register_operator(store, first, prefix="new/sums")
    check_operator(store, "new/sums", recorded, first, QueryPhase.PLANNED_NOTHING)
    check_operator(store, "new/sums", recorded, replace(first, origin=None), QueryPhase.PLANNED_NOTHING)
    with pytest.raises(
        Incompatible, match=r"recorded .* at batch 7, .* declared .* at batch 8, .*new Spark checkpoint"
    ):
        check_operator(store, "new/sums", recorded, later, QueryPhase.PLANNED_NOTHING)
    for phase in (QueryPhase.COMMITTED_NOTHING, QueryPhase.COMMITTED):
        check_operator(store, "new/sums", recorded, later, phase)
