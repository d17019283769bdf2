"""Each row is visible exactly once, and is the one that the state says, whatever strikes at whichever step."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.commit_world import ACTIONS, World, drive_to_the_end

#: Steps of a run without faults, and some that its recovery takes.
STEPS = 120


def test_without_faults() -> None:
    world = World()
    assert drive_to_the_end(world) == [None]
    world.check()
    assert world.steps < STEPS


@pytest.mark.parametrize("sinks", [1, 2])
@pytest.mark.parametrize("action", ACTIONS)
def test_one_fault_at_every_step(action: str, sinks: int) -> None:
    for step in range(1, STEPS):
        world = World(sinks=sinks, plan={step: action})
        drive_to_the_end(world)
        world.check()


def test_names_without_the_epoch_write_twice() -> None:
    """Why names have it: a late task of an overtaken driver makes what its successor committed look lost."""

    def writes_twice(overtaken: int, crashed: int) -> bool:
        plan = {overtaken: "overtake", crashed: "crash"}
        world = World(partitions=3, plan=plan, epoch_in_names=False)
        drive_to_the_end(world)
        return any(len(rows) > world.batches * world.partitions for rows in world.visible.values())

    assert any(writes_twice(overtaken, crashed) for overtaken in range(60, 75) for crashed in range(85, STEPS))


@settings(max_examples=400, deadline=None)
@given(
    faults=st.dictionaries(st.integers(1, 3 * STEPS), st.sampled_from(ACTIONS), max_size=12),
    sinks=st.integers(1, 2),
    partitions=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_many_faults(faults: dict[int, str], sinks: int, partitions: int, seed: int) -> None:
    world = World(sinks=sinks, partitions=partitions, plan=faults, seed=seed)
    drive_to_the_end(world)
    world.check()


@pytest.mark.slow
@settings(max_examples=5_000, deadline=None)
@given(
    faults=st.dictionaries(st.integers(1, 4 * STEPS), st.sampled_from(ACTIONS), max_size=30),
    sinks=st.integers(1, 3),
    partitions=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_many_faults_long(faults: dict[int, str], sinks: int, partitions: int, seed: int) -> None:
    world = World(sinks=sinks, partitions=partitions, plan=faults, seed=seed)
    drive_to_the_end(world)
    world.check()
