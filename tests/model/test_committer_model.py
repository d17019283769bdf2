"""Each row is visible exactly once, and is the one that the state says, whatever strikes at whichever step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.commit_world import ACTIONS, ENDS, WITNESSED, World, drive, drive_to_the_end
from tests.example_count import examples

from holdfast.errors import Fenced, Incompatible

#: Steps of a run without faults, by its number of sinks.
CLEAN = {1: 90, 2: 117}
#: With what its recovery takes.
STEPS = 150


@pytest.mark.parametrize("sinks", CLEAN)
def test_without_faults(sinks: int) -> None:
    world = World(sinks=sinks)
    assert drive_to_the_end(world) == [None]
    world.check()
    assert world.steps == CLEAN[sinks] < STEPS and not world.struck and not world.lost


def strike_everywhere(action: str, sinks: int, witnessed: bool) -> None:
    """Once in each run. It ends a driver in all ways that it may, and somewhere in none."""
    ways = set()
    for step in range(1, CLEAN[sinks] + 1):
        world = World(sinks=sinks, plan={step: action}, witnessed=witnessed)
        ends = drive_to_the_end(world)
        assert world.struck == [action] or action in ("refuse", "forget"), step
        world.check()
        ways |= {type(end) for end in ends}
    assert ways == {*ENDS[action], type(None)}


@pytest.mark.parametrize("sinks", [1, 2])
@pytest.mark.parametrize("action", WITNESSED)
def test_one_fault_at_every_step(action: str, sinks: int) -> None:
    strike_everywhere(action, sinks, witnessed=True)


@pytest.mark.parametrize("action", ACTIONS)
def test_one_fault_at_every_step_without_witnesses(action: str) -> None:
    strike_everywhere(action, 1, witnessed=False)


def test_names_without_the_epoch_write_twice() -> None:
    """Why names have it where there are no witnesses: a late task of an overtaken driver makes what its successor
    committed look lost.
    """

    def writes_twice(overtaken: int, crashed: int) -> bool:
        plan = {overtaken: "overtake", crashed: "crash"}
        world = World(partitions=3, plan=plan, epoch_in_names=False, witnessed=False)
        drive_to_the_end(world)
        return any(len(rows) > world.batches * world.partitions for rows in world.visible.values())

    assert any(writes_twice(overtaken, crashed) for overtaken in range(60, 110) for crashed in range(85, STEPS))


def writes_twice(plan: dict[int, str], **given: Any) -> bool:
    world = World(plan=plan, seed=min(plan), **given)
    drive_to_the_end(world)
    return any(len(rows) > world.batches * world.partitions for rows in world.visible.values())


def late_and_one_crash() -> list[dict[int, str]]:
    return [{late: "late task", late + more: "crash"} for late in range(30, STEPS) for more in (1, 2, 4, 8)]


def late_and_two_crashes() -> list[dict[int, str]]:
    return [
        {late: "late task", late + 1: "crash", crashed: "crash"}
        for late in range(30, STEPS, 3)
        for crashed in range(late + 2, late + 40, 3)
    ]


@pytest.mark.parametrize("late", ["opens", "writes"])
@pytest.mark.parametrize("witnessed", [True, False])
def test_a_late_task_and_crashes_write_nothing_twice(witnessed: bool, late: str) -> None:
    """Without witnesses one crash was enough: a sweep fenced the name of what was visible, which then looked lost."""
    plans = [*late_and_one_crash(), *late_and_two_crashes()]
    assert not [plan for plan in plans if writes_twice(plan, witnessed=witnessed, late=late)]


@pytest.mark.parametrize(
    "given",
    [{"late": "opens", "spares_names": False}, {"late": "writes", "spares_names": False}, {"late": "gives up"}],
    ids=str,
)
def test_what_a_late_task_took_is_written_twice_where_it_is_fenced_or_aborts_itself(given: dict[str, Any]) -> None:
    """Why, without witnesses, nobody but the late task moves the epoch of a name until Spark has the batch."""
    assert any(writes_twice(plan, witnessed=False, **given) for plan in late_and_one_crash())


def test_two_late_tasks_of_one_name_write_twice_without_witnesses() -> None:
    """RFC 4's last limit. Witnesses close it."""
    plans = [{late: "late task", late + 1: "late task", late + 2: "crash"} for late in range(30, STEPS)]
    assert any(writes_twice(plan, witnessed=False) for plan in plans)
    assert not any(writes_twice(plan, witnessed=True) for plan in plans)


@pytest.mark.parametrize("backup", range(1, CLEAN[1], 8))
def test_a_copy_of_the_checkpoint_writes_nothing_twice(backup: int) -> None:
    """One backup, and a start from it at every later step, while the original runs: of the two, one goes on."""
    for started in range(backup + 1, CLEAN[1] + 1):
        world = World(plan={backup: "back up", started: "start the copy"})
        end = drive(world, world.batches)
        copy = world.copy
        assert copy is not None, started
        if end is not None:
            end = drive(world, world.batches)
        if end is None and copy.end is None:
            assert len(copy.spark_state) == world.batches, "the original had written all before the copy came"
        elif end is None:
            assert isinstance(copy.end, (Incompatible, Fenced)), f"{copy.end!r} at {backup}, {started}"
            assert isinstance(copy.drive(world.batches), Incompatible), "nor at any later time"
        else:
            assert isinstance(end, Incompatible), f"{end!r} at {backup}, {started}"
            assert copy.drive(world.batches) is None
            world.files, world.spark_state = copy.files, copy.spark_state
        world.check()


@settings(max_examples=examples(400))
@given(
    faults=st.dictionaries(st.integers(1, 3 * STEPS), st.sampled_from(WITNESSED), max_size=12),
    sinks=st.integers(1, 2),
    partitions=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_many_faults(faults: dict[int, str], sinks: int, partitions: int, seed: int) -> None:
    world = World(sinks=sinks, partitions=partitions, plan=faults, seed=seed)
    drive_to_the_end(world)
    world.check()


@settings(max_examples=examples(200))
@given(
    faults=st.dictionaries(st.integers(1, 3 * STEPS), st.sampled_from(ACTIONS), max_size=12),
    partitions=st.integers(1, 3),
    seed=st.integers(0, 99),
    late=st.tuples(st.integers(1, 3 * STEPS), st.sampled_from(["opens", "writes"])),
)
def test_many_faults_without_witnesses(
    faults: dict[int, str], partitions: int, seed: int, late: tuple[int, str]
) -> None:
    """And one late task: of two that take one name nobody could tell."""
    step, does = late
    plan = {**faults, step: "late task"}
    world = World(partitions=partitions, plan=plan, seed=seed, witnessed=False, late=does)
    drive_to_the_end(world)
    world.check()


@pytest.mark.slow
@settings(max_examples=5_000)
@given(
    faults=st.dictionaries(st.integers(1, 4 * STEPS), st.sampled_from(WITNESSED), max_size=30),
    sinks=st.integers(1, 3),
    partitions=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_many_faults_long(faults: dict[int, str], sinks: int, partitions: int, seed: int) -> None:
    world = World(sinks=sinks, partitions=partitions, plan=faults, seed=seed)
    drive_to_the_end(world)
    world.check()
