"""A slot takes over what an attempt prepared whose output is visible: found by the attempt's name, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.checkpoint_driver import SMALL, Process, SlotDriver

from holdfast.checkpoint import Handle
from holdfast.checkpoint.names import attempt_version_id
from holdfast.checkpoint.slot_state import SlotState
from holdfast.errors import Corrupt, Incompatible, Undecided

RUN, OTHER_RUN = "0f0f0f0f-0000-4000-8000-000000000001", "0f0f0f0f-0000-4000-8000-000000000002"


def attempt(
    process: Process, parent: Handle | None, batch: int, rows: dict[int, int], task: int, run: str = RUN
) -> Handle:
    """An attempt that prepares and is not heard of any more."""
    table = process.open(parent)
    process.state.begin(batch, attempt_version_id(run, task))
    table.add(rows)
    process.state.spill_if_needed()
    return process.state.prepare()


@pytest.fixture
def driver(tmp_path: Path) -> SlotDriver:
    made = SlotDriver(tmp_path)
    made.play_some(made.process(), 6)
    return made


def test_the_id_names_the_attempt_and_its_run() -> None:
    first = attempt_version_id(RUN, 7)
    assert len(first) == 32
    assert first[16:] == "0000000000000007"
    assert first[:16] == attempt_version_id(RUN, 8)[:16] != attempt_version_id(OTHER_RUN, 7)[:16]


@pytest.mark.parametrize("local", ["local-a", "elsewhere"])
def test_what_an_attempt_prepared_is_taken_over_as_it_is(driver: SlotDriver, local: str) -> None:
    parent, rows = driver.handle, {1: 10, 2: 20}
    prepared = attempt(driver.process(), parent, 6, rows, 41)
    process = driver.process(local=local)
    adopted = process.state.adopt(parent, 6, attempt_version_id(RUN, 41))
    assert adopted is not None
    assert (adopted.version_id, adopted.deltas[-1]) == (prepared.version_id, prepared.deltas[-1])
    driver.commit(adopted, [rows])
    assert driver.check(process)
    driver.play_some(process, 3)
    assert driver.check(driver.process(local="third"))


def test_a_slot_without_state_takes_over_its_first_version(tmp_path: Path) -> None:
    driver = SlotDriver(tmp_path)
    attempt(driver.process(), None, 0, {1: 10}, 3)
    process = driver.process(local="elsewhere")
    adopted = process.state.adopt(None, 0, attempt_version_id(RUN, 3))
    assert adopted is not None
    driver.commit(adopted, [{1: 10}])
    assert driver.check(process)


def test_a_spilled_version_is_taken_over(tmp_path: Path) -> None:
    driver = SlotDriver(tmp_path, settings=replace(SMALL, batch_memory_max_bytes=20_000))
    rows = {key: key for key in range(3_000)}
    attempt(driver.process(), None, 0, rows, 3)
    process = driver.process(local="elsewhere")
    adopted = process.state.adopt(None, 0, attempt_version_id(RUN, 3))
    assert adopted is not None
    driver.commit(adopted, [rows])
    assert driver.check(process)


def test_what_nobody_prepared_is_none(driver: SlotDriver) -> None:
    state: SlotState = driver.process().state
    assert state.adopt(driver.handle, 6, attempt_version_id(RUN, 1)) is None
    assert state.adopt_of_run(driver.handle, 6, RUN) is None
    assert not state.has_prepared(driver.handle, attempt_version_id(RUN, 1))


def test_a_version_of_another_lineage_is_refused(driver: SlotDriver) -> None:
    attempt(driver.process(), driver.handle, 6, {1: 1}, 1)
    other = attempt(driver.process(local="b"), driver.history[-2][0], 5, {1: 1}, 2, OTHER_RUN)
    state = driver.process().state
    assert state.has_prepared(driver.handle, attempt_version_id(RUN, 1))
    with pytest.raises(Incompatible, match="was prepared by the run whose output is visible, but for batch 6 and on"):
        state.adopt(other, 6, attempt_version_id(RUN, 1))
    with pytest.raises(Incompatible, match="expected batch 7"):
        state.adopt(driver.handle, 7, attempt_version_id(RUN, 1))


def test_a_damaged_version_is_told(driver: SlotDriver) -> None:
    attempt(driver.process(), driver.handle, 6, {1: 1}, 1)
    path = Path(driver.stored(f"delta/*{attempt_version_id(RUN, 1)}*")[0])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(Corrupt):
        driver.process().state.adopt(driver.handle, 6, attempt_version_id(RUN, 1))


def test_of_several_attempts_of_a_run_those_that_agree_are_one(driver: SlotDriver) -> None:
    for task in (1, 2):
        attempt(driver.process(local=f"l{task}"), driver.handle, 6, {1: 5, 2: 6}, task)
    attempt(driver.process(local="l3"), driver.handle, 6, {1: 999}, 1, OTHER_RUN)
    process = driver.process()
    adopted = process.state.adopt_of_run(driver.handle, 6, RUN)
    assert adopted is not None
    driver.commit(adopted, [{1: 5, 2: 6}])
    assert driver.check(process)


def test_what_a_run_prepared_in_a_later_batch_is_none_of_this_one(driver: SlotDriver) -> None:
    """A query that is rolled back two batches finds it, where the slot was quiet in the first of them."""
    attempt(driver.process(), driver.handle, 7, {1: 5}, 1)
    assert driver.process().state.adopt_of_run(driver.handle, 6, RUN) is None


def test_of_several_attempts_that_differ_none_is_guessed_at(driver: SlotDriver) -> None:
    for task in (1, 2):
        attempt(driver.process(local=f"l{task}"), driver.handle, 6, {1: task}, task)
    with pytest.raises(Undecided, match="2 attempts of run .* prepared different versions of the state"):
        driver.process().state.adopt_of_run(driver.handle, 6, RUN)


def test_retention_leaves_what_a_record_may_name(driver: SlotDriver) -> None:
    """However old: only a committed successor makes it a stray."""
    attempt(driver.process(local="zombie"), driver.handle, 6, {1: 1}, 1)
    driver.clock.ms += 10 * driver.settings.stray_grace_ms
    other = driver.process()
    for task in range(2, 12):  # attempts that also never commit, each with its tidying up
        attempt(other, driver.handle, 6, {2: 2}, task, OTHER_RUN)
        other.rest()
    assert other.state.has_prepared(driver.handle, attempt_version_id(RUN, 1))


@pytest.mark.parametrize("local", ["local-a", "elsewhere"])
def test_the_attempt_that_counts_takes_the_place_of_the_one_that_spark_kept(driver: SlotDriver, local: str) -> None:
    """Both were made at one batch; Spark's store in one executor kept what the other task had left there."""
    parent = driver.handle
    counts = attempt(driver.process(), parent, 6, {1: 10}, 42)
    kept = attempt(driver.process(local="b"), parent, 6, {1: 99, 7: 5}, 41)
    process = driver.process(local=local)
    found = process.state.beside(kept.stored(), counts.version_id)
    assert found == replace(counts, snapshots=found.snapshots if found else ())
    driver.commit(found, [{1: 10}])
    assert driver.check(process)
    driver.play_some(process, 20)
    assert driver.check(driver.process(local="third"))


def test_what_the_attempt_that_counts_did_not_make_of_a_slot_is_none(driver: SlotDriver) -> None:
    kept = attempt(driver.process(), driver.handle, 6, {1: 99}, 41)
    assert driver.process().state.beside(kept.stored(), attempt_version_id(RUN, 42)) is None


def test_an_attempt_that_counts_on_another_version_is_told(driver: SlotDriver) -> None:
    kept = attempt(driver.process(), driver.handle, 6, {1: 99}, 41)
    other = attempt(driver.process(local="b"), driver.handle, 6, {1: 10}, 42, OTHER_RUN)
    on_other = attempt(driver.process(local="b"), other, 7, {1: 1}, 43)
    on_kept = attempt(driver.process(), kept, 7, {1: 1}, 44)
    with pytest.raises(Incompatible, match=f"{on_other.version_id}.* on version {other.version_id}"):
        driver.process().state.beside(on_kept.stored(), on_other.version_id)
