"""The table of a transaction's fates: each row, and what must hold of all of them."""

from __future__ import annotations

import pytest

from holdfast.kafka.fates import Fate, State, fate
from holdfast.kafka.transactions import Prepared, Transaction, fate_of

EMPTY, ONGOING, COMMIT, ABORT = State.EMPTY, State.ONGOING, State.COMPLETE_COMMIT, State.COMPLETE_ABORT


@pytest.mark.parametrize(
    ("state", "fates"),
    [
        (EMPTY, [Fate.FORGOTTEN, Fate.ENDED, Fate.ABORTED, Fate.ABORTED]),
        (ONGOING, [Fate.OPEN, Fate.CONTESTED, Fate.SUPERSEDED, Fate.SUPERSEDED]),
        (COMMIT, [Fate.COMMITTED, Fate.ENDED, Fate.FORGOTTEN, Fate.FORGOTTEN]),
        (ABORT, [Fate.ABORTED, Fate.ABORTED, Fate.FORGOTTEN, Fate.FORGOTTEN]),
        (State.PREPARE_COMMIT, [Fate.UNDER_WAY] * 4),
        (State.PREPARE_ABORT, [Fate.UNDER_WAY] * 4),
        (State.PREPARE_EPOCH_FENCE, [Fate.UNDER_WAY] * 4),
        (State.DEAD, [Fate.FORGOTTEN] * 4),
    ],
)
def test_each_row(state: State, fates: list[Fate]) -> None:
    assert [fate(state.value, moved) for moved in range(4)] == fates


def test_the_table_is_whole() -> None:
    for state in State:
        for moved in range(4):
            assert isinstance(fate(state.value, moved), Fate)


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"])
def test_nothing_is_over_while_its_coordinator_has_something_to_do(state: str) -> None:
    assert not any(fate(state, moved).is_over for moved in range(-1, 40))


def test_nothing_is_concluded_from_an_epoch_that_went_back_or_from_a_state_that_nobody_knows() -> None:
    assert {fate(state.value, -1) for state in State} == {Fate.UNDER_WAY}
    assert {fate("SomethingNew", moved) for moved in range(-1, 4)} == {Fate.UNDER_WAY}


def test_another_producer_of_the_same_name_tells_nothing() -> None:
    known = Transaction("a", "CompleteCommit", 8, 5, 1000, -1, 1, ())
    assert fate_of(known, Prepared("a", 7, 5)) is Fate.FORGOTTEN
    assert fate_of(None, Prepared("a", 7, 5)) is Fate.FORGOTTEN
    assert fate_of(known, Prepared("a", 8, 5)) is Fate.COMMITTED
