"""Spark's file has the version of an attempt that did not count: its task was the last to commit Spark's store. The
slot goes on from the attempt whose output is visible, in the run, after a restart, and however long it was quiet.

The committer, the slots and their storage are the real ones; Spark is the text of a handle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.checkpoint_driver import SMALL, Process, SlotDriver
from tests.commit_world import Run, World, drive
from tests.unit.test_adoption import attempt

from holdfast.checkpoint import Handle
from holdfast.commit.batch import Doubted, Replay, TaskResult
from holdfast.commit.committer import CommitOptions, Committer
from holdfast.commit.epochs import Driver
from holdfast.commit.record_log import record_name
from holdfast.commit.retries import Retries
from holdfast.errors import Corrupt, Incompatible, Undecided
from holdfast.settings import Settings
from holdfast.spark import slots, worker
from holdfast.spark.recorded import recorded, recorded_property
from holdfast.spark.replay import SlotReplay
from holdfast.storage import LocalFileStore, StorageOptions

RUN_A, RUN_B, RUN_C = (f"0f0f0f0f-0000-4000-8000-00000000000{end}" for end in "abc")


@dataclass
class SparkState:
    """What Spark's file has of a slot, as one task is given it."""

    handle: Handle
    updates: list[str] = field(default_factory=list)
    exists: bool = True

    @property
    def get(self) -> tuple[str]:
        return (self.updates[-1] if self.updates else self.handle.to_text(),)

    def update(self, value: tuple[str]) -> None:
        self.updates.append(value[0])


class Query:
    """A query of one operator with one slot, whose runs come one after the other. Executors have local folders of their
    own; Spark may have copies of tasks.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, partitions: int = 1) -> None:
        self.checkpoint = LocalFileStore(str(folder / "checkpoint"))
        self.slot = SlotDriver(folder)
        self.partitions = partitions
        self._folders = 0
        self._at_work = self.executor()
        monkeypatch.setattr(worker, "slot_state", lambda plan, live, slot: self._at_work.state)

    def executor(self) -> Process:
        self._folders += 1
        return self.slot.process(local=f"executor-{self._folders}")

    def run(self, run_id: str, speculation: bool = True) -> Committer:
        options = CommitOptions(Retries(1000, 10), speculation=speculation)
        return Committer(self.checkpoint, "query", Driver(run_id, "host", 1, 0), [], options)

    def batch(self, run: Committer, batch_id: int, job: Callable[[Replay | None], int]) -> None:
        """``job`` gives the task attempt at partition 0 that succeeded; others have other tasks."""

        def results(replay: Replay | None) -> Sequence[TaskResult]:
            first = job(replay)
            others = range(1, self.partitions)
            return [TaskResult(0, 0, first, 1), *(TaskResult(p, 0, 10_000 + p, 1) for p in others)]

        self.checkpoint.create_if_absent(f"offsets/{batch_id}", b"offsets of %d" % batch_id)
        run.run_batch(batch_id, results)

    def commit(self, batch_id: int) -> None:
        """As Spark does, once the batch's function is done."""
        self.checkpoint.put(f"commits/{batch_id}", b"v1")

    def identity(
        self, run: Committer, batch_id: int, replay: Replay | None, partition: int = 0
    ) -> worker.BatchIdentity:
        told = None if replay is None else SlotReplay.of(replay)
        known = recorded(recorded_property(run.told))
        return worker.BatchIdentity("query", run._run_id, batch_id, 0, 0, 99, told, known)

    def parent(self, process: Process, identity: worker.BatchIdentity, state: SparkState) -> Handle:
        self._at_work = process
        live: Any = SimpleNamespace(opening=SimpleNamespace(note_handle=lambda batch_id: None))
        plan: Any = SimpleNamespace(settings=Settings())
        parent = slots._parent(plan, live, identity, 0, state)  # type: ignore[arg-type]
        assert parent is not None
        return parent

    def taken_over(self, process: Process, identity: worker.BatchIdentity, state: SparkState) -> Handle | None:
        parent = self.parent(process, identity, state)
        return slots._take_over(None, None, identity, 0, parent)  # type: ignore[arg-type]


@pytest.fixture
def query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Query:
    return Query(tmp_path, monkeypatch)


def two_attempts(query: Query, run: Committer) -> tuple[Handle, Handle]:
    """Batches 0 and 1. In the second two attempts end: the one that counts, and one that draws another number."""
    first, second = query.executor(), query.executor()
    begun = attempt(first, None, 0, {1: 1}, 1, RUN_A)
    query.batch(run, 0, lambda _: 1)
    query.commit(0)
    counts = attempt(first, begun, 1, {1: 10}, 10, RUN_A)
    other = attempt(second, begun, 1, {1: 99}, 11, RUN_A)
    query.batch(run, 1, lambda _: 10)
    query.commit(1)
    return counts, other


def next_batch(query: Query, run: Committer, batch_id: int, state: SparkState) -> Handle:
    """A batch with rows of the slot, which is killed once its record is there."""
    made: list[Handle] = []

    def job(replay: Replay | None) -> int:
        process = query.executor()
        parent = query.parent(process, query.identity(run, batch_id, replay), state)
        made.append(attempt(process, parent, batch_id, {1: 100}, 20 + batch_id, RUN_A))
        return 20 + batch_id

    query.batch(run, batch_id, job)
    return made[0]


@pytest.mark.parametrize("quiet", [0, 3])
def test_a_replay_goes_on_from_what_the_recorded_attempt_was_made_on(query: Query, quiet: int) -> None:
    """Each start ended with Incompatible, for ever: only of the newest record's batch a start was told what counts."""
    run = query.run(RUN_A)
    counts, other = two_attempts(query, run)
    for batch_id in range(2, 2 + quiet):
        query.batch(run, batch_id, lambda _: 2)
        query.commit(batch_id)
    newest = 2 + quiet
    recorded = next_batch(query, run, newest, SparkState(other))
    assert recorded.parent_id == counts.version_id
    for again in (RUN_B, RUN_C):
        found, sums = replayed(query, query.run(again), newest, SparkState(other))
        assert found.version_id == recorded.version_id
        assert sums == {1: 111}


def replayed(query: Query, run: Committer, batch_id: int, state: SparkState) -> tuple[Handle, dict[int, int]]:
    """What the slot takes over as the batch runs again, and the sum of key 1 in it."""
    process, found = query.executor(), []

    def job(replay: Replay | None) -> int:
        found.append(query.taken_over(process, query.identity(run, batch_id, replay), state))
        return 30

    query.batch(run, batch_id, job)
    assert found[0] is not None
    return found[0], process.sums(found[0], [1])


@pytest.mark.parametrize("quiet", [0, 1, 5])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_slot_goes_on_from_what_counts_however_long_it_was_quiet(query: Query, quiet: int, restarts: bool) -> None:
    """With 200 partitions and speculation two batches were told, and of an earlier run one, if it had speculation."""
    query.partitions = 200
    run = query.run(RUN_A)
    counts, other = two_attempts(query, run)
    for batch_id in range(2, 2 + quiet):
        query.batch(run, batch_id, lambda _: 2)
        query.commit(batch_id)
    if restarts:
        run = query.run(RUN_B, speculation=False)
        run.start()
    process, state = query.executor(), SparkState(other)
    parent = query.parent(process, query.identity(run, 2 + quiet, None), state)
    assert parent.version_id == counts.version_id
    assert process.sums(parent, [1]) == {1: 11}


def test_a_slot_that_was_quiet_since_before_a_restart_and_after_it(query: Query) -> None:
    run = query.run(RUN_A)
    counts, other = two_attempts(query, run)
    run = query.run(RUN_B, speculation=False)
    for batch_id in range(2, 5):
        query.batch(run, batch_id, lambda _: 2)
        query.commit(batch_id)
        assert len(str(recorded_property(run.told))) < 300, "what the start told is told once"
    parent = query.parent(query.executor(), query.identity(run, 5, None), SparkState(other))
    assert parent.version_id == counts.version_id


def test_a_record_that_is_damaged_is_told_and_not_passed_over(query: Query) -> None:
    run = query.run(RUN_A)
    _, other = two_attempts(query, run)
    query.batch(run, 2, lambda _: 2)
    query.commit(2)
    run = query.run(RUN_B)
    run.start()
    name = record_name("query", 1, 0)
    text = query.checkpoint.get(name)
    assert text is not None
    query.checkpoint.delete([name])
    query.checkpoint.put(name, text[:-30])
    with pytest.raises(Corrupt, match=r"commit record .*000000000001-0000\.json"):
        query.parent(query.executor(), query.identity(run, 3, None), SparkState(other))


def test_a_batch_whose_record_is_kept_no_longer_is_not_asked_for(query: Query) -> None:
    """Nor is anything of a run that has no records yet."""
    run = query.run(RUN_A)
    assert recorded_property(run.told) is None
    two_attempts(query, run)
    for batch_id in range(2, 6):
        query.batch(run, batch_id, lambda _: 2)
        query.commit(batch_id)
    run = query.run(RUN_B)
    run.start()
    run._log.trim(2)
    known = recorded(recorded_property(run.told))
    assert (known.first, known.before) == (4, 6)
    assert known.version(1, 0, RUN_B, StorageOptions) is None


def replay_of_run(run_id: str, lost: dict[int, str] | None = None) -> SlotReplay:
    return SlotReplay(run_id, done={}, lost=lost or {})


def identity_of(batch_id: int, replay: SlotReplay | None) -> worker.BatchIdentity:
    return worker.BatchIdentity("query", RUN_B, batch_id, 0, 0, 99, replay)


def test_what_was_lost_is_computed_again_from_what_its_attempt_was_made_on(query: Query) -> None:
    counts, other = two_attempts(query, query.run(RUN_A))
    lost = attempt(query.executor(), counts, 2, {1: 100}, 22, RUN_A)
    identity = identity_of(2, replay_of_run(RUN_A, {0: lost.version_id}))
    process, state = query.executor(), SparkState(other)
    parent = query.parent(process, identity, state)
    assert parent.version_id == counts.version_id
    assert process.sums(parent, [1]) == {1: 11}
    assert state.get == (parent.to_text(),), "Spark has it too, where the batch leads to no version"


def test_an_operator_before_a_shuffle_goes_on_from_what_its_run_did(query: Query) -> None:
    counts, other = two_attempts(query, query.run(RUN_A))
    made = attempt(query.executor(), counts, 2, {1: 100}, 22, RUN_A)
    process = query.executor()
    parent = query.parent(process, identity_of(2, replay_of_run(RUN_A)), SparkState(other))
    assert parent.version_id == counts.version_id
    adopted = process.state.adopt_of_run(parent, 2, RUN_A)
    assert adopted is not None and adopted.version_id == made.version_id
    assert process.sums(adopted, [1]) == {1: 111}


def test_attempts_on_versions_that_differ_are_not_guessed_at(query: Query) -> None:
    counts, other = two_attempts(query, query.run(RUN_A))
    for task, parent in ((22, counts), (23, other)):
        attempt(query.executor(), parent, 2, {1: 100}, task, RUN_A)
    for given in (counts, other):
        with pytest.raises(Undecided, match="2 attempts of run .* prepared different versions"):
            query.parent(query.executor(), identity_of(2, replay_of_run(RUN_A)), SparkState(given))
    whole = query.executor()
    with pytest.raises(Undecided):
        whole.state.adopt_of_run(whole.whole(other), 2, RUN_A)


def test_attempts_on_versions_that_hold_the_same_are_one(query: Query) -> None:
    begun = attempt(query.executor(), None, 0, {1: 1}, 1, RUN_A)
    first, second = (attempt(query.executor(), begun, 1, {1: 10}, task, RUN_A) for task in (10, 11))
    for task, parent in ((22, first), (23, second)):
        attempt(query.executor(), parent, 2, {1: 100}, task, RUN_A)
    for given, made in ((first, 22), (second, 23)):
        process = query.executor()
        parent = query.parent(process, identity_of(2, replay_of_run(RUN_A)), SparkState(given))
        assert parent.version_id == given.version_id
        adopted = process.state.adopt_of_run(parent, 2, RUN_A)
        assert adopted is not None and int(adopted.version_id[16:], 16) == made


def test_a_version_on_another_line_is_refused_all_the_same(query: Query) -> None:
    """Of another batch before, on another version before that: no attempt in place of Spark's."""
    counts, other = two_attempts(query, query.run(RUN_A))
    elsewhere = attempt(query.executor(), None, 0, {5: 5}, 50, RUN_A)
    beside = attempt(query.executor(), elsewhere, 1, {1: 10}, 51, RUN_A)
    attempt(query.executor(), beside, 2, {1: 100}, 52, RUN_B)
    with pytest.raises(Incompatible, match="restore both from one backup"):
        query.parent(query.executor(), identity_of(2, replay_of_run(RUN_B)), SparkState(other))
    assert counts.parent_id != elsewhere.version_id


def test_what_spark_has_is_not_deleted_before_spark_has_another(tmp_path: Path) -> None:
    """A slot was quiet for longer than the grace time, and its next batch tidied up: it deleted the version that Spark
    names. Where that batch then died, each start was Corrupt, and so was one from a batch that is retained.
    """
    settings = replace(SMALL, snapshot_deltas_max=2, fold_deltas_max=2, stray_grace_ms=1_800_000, retained_batches=10)
    slot = SlotDriver(tmp_path, settings=settings)
    first, second = slot.process(local="executor-1"), slot.process(local="executor-2")
    handle = None
    for batch_id in range(5):
        handle = attempt(first, handle, batch_id, {1: 1}, batch_id, RUN_A)
        first.rest()
    counts = attempt(first, handle, 5, {1: 10}, 10, RUN_A)
    other = attempt(second, handle, 5, {1: 99}, 11, RUN_A)
    for process in (first, second):
        process.rest()
    slot.pass_time(settings.stray_grace_ms + 60_000)
    handle = counts
    for batch_id in range(40, 60):
        handle = attempt(first, handle, batch_id, {2: 1}, 10 + batch_id, RUN_A)
        first.rest()
        if batch_id <= 50:  # batch 39, where Spark names it still, can be rolled back to
            elsewhere = slot.process(local=f"at-{batch_id}")
            assert elsewhere.sums(other, [1]) == {1: 104}, batch_id
    assert not slot.stored(f"delta/*{other.version_id}*"), "it does not stay for ever"


def test_a_start_tells_the_newest_batch_once_whatever_became_of_its_tasks() -> None:
    """Which stages ran anew, and where there were copies, only the driver before knew."""
    world = World(batches=6)
    drive(world, 3)
    run = Run(world)
    run.committer.start()
    newest = run.committer._log.newest(2)
    assert newest is not None
    assert run.committer.told == Doubted({2: newest.tasks}, "world", "query", 0, 3)
    run.play(3)
    assert run.committer.told == Doubted({}, "world", "query", 1, 3)
