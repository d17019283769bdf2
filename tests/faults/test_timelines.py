"""Copies of Spark's checkpoint over one state folder: an older one is refused, of two that are at work the older run
stops, and nothing that either of them needs is deleted. What is no copy goes on.
"""

from __future__ import annotations

import itertools
import os
import random
from dataclasses import replace

import pytest
from tests.checkpoint_driver import KEY_SCHEMA, PREFIX, SMALL, SlotDriver, some_rows, through_text

from holdfast.checkpoint import Runs
from holdfast.checkpoint.names import attempt_version_id
from holdfast.clock import SystemClock
from holdfast.errors import Fenced, Incompatible
from holdfast.storage import LocalFileStore

SETTINGS = replace(SMALL, fold_deltas_max=2, snapshot_deltas_max=4, retained_batches=2, stray_grace_ms=300)


class World:
    """A state folder, and runs of queries over it. All times are those of the file system."""

    def __init__(self, folder):
        self.folder = folder
        self.store = LocalFileStore(os.path.join(folder, "store"))
        self.attempts = itertools.count()
        self.runs = itertools.count(1)


class Checkpoint:
    """A copy of Spark's checkpoint: what it has committed."""

    def __init__(self, world, driver=None):
        self.world = world
        self.driver = driver or SlotDriver(world.folder, settings=SETTINGS, store=world.store, clock=SystemClock())

    def copy(self):
        twin = SlotDriver(self.world.folder, settings=SETTINGS, store=self.world.store, clock=SystemClock())
        twin.handle, twin.next_batch = self.driver.handle, self.driver.next_batch
        twin.history, twin.universe = list(self.driver.history), self.driver.universe
        return Checkpoint(self.world, twin)

    def start(self, *, tells_batch=True, **settings):
        return Run(self, replace(SETTINGS, **settings), tells_batch)


class Run:
    """One run of a query over one checkpoint, with one process."""

    def __init__(self, checkpoint, settings, tells_batch=True):
        world = checkpoint.world
        self.driver = checkpoint.driver
        self.world = world
        self.run_id = f"00000000-0000-4000-8000-{next(world.runs):012d}"
        self.runs = Runs(world.store, PREFIX, "sums", self.run_id, f"of {self.run_id}")
        self.runs.register(checkpoint.driver.next_batch if tells_batch else None)
        self.process = self.driver.process(local=f"local-{self.run_id}", runs=self.runs, settings=settings)
        self.generator = random.Random(self.run_id)

    def process_of_the_same_run(self):
        runs = Runs(self.world.store, PREFIX, "sums", self.run_id, f"of {self.run_id}")
        runs.register()
        return self.driver.process(local=f"local-{self.run_id}", runs=runs, settings=SETTINGS)

    def prepare(self, rows=None):
        state = self.process.state
        rows = rows if rows is not None else some_rows(self.generator)
        state.admit(self.process.whole(self.driver.handle), self.driver.next_batch)
        self.process.open(self.driver.handle)
        state.begin(self.driver.next_batch, attempt_version_id(self.run_id, next(self.world.attempts)))
        self.process.table.add(rows)
        return state.prepare(), rows

    def batch(self):
        handle, rows = self.prepare()
        self.process.rest()
        self.driver.commit(handle, [rows])

    def batches(self, count):
        for _ in range(count):
            self.batch()


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def make_newer(world, ms):
    """All deltas that are there, by so much."""
    for file in world.store.list(f"{PREFIX}/"):
        if "/delta/" in file.name:
            path = os.path.join(world.store.root, file.name)
            changed_ns = os.stat(path).st_mtime_ns + ms * 1_000_000
            os.utime(path, ns=(changed_ns, changed_ns))


def assert_whole(*checkpoints):
    """Each finds all that its handle names in storage alone, and in it the right state."""
    for number, checkpoint in enumerate(checkpoints):
        assert (
            checkpoint.driver.check(checkpoint.driver.process(local=f"whole-{number}-{random.random()}")) == "restore"
        )


def test_a_copy_that_is_older_than_the_state_is_refused_and_told_which_run_went_on(world):
    original = Checkpoint(world)
    first = original.start()
    first.batches(20)
    copy = original.copy()
    first.batches(2)
    files = original.driver.stored("*/*")
    refused = copy.start()
    with pytest.raises(Incompatible) as caught:
        refused.batches(1)
    said = str(caught.value)
    assert "batch 19 (version 20)" in said and "batch 21, version 22" in said and first.run_id in said
    assert f"spark.holdfast.abandonedRuns={first.run_id}" in said
    assert original.driver.stored("*/*") == files
    # The original goes on when it is started again.
    original.start().batches(30)
    assert_whole(original)


def test_a_copy_whose_newest_delta_is_deleted_already_is_told_why(world):
    original = Checkpoint(world)
    first = original.start()
    first.batches(20)
    copy = original.copy()
    first.batches(30)
    handle = copy.driver.handle
    assert not original.driver.stored(f"delta/*{handle.version_id}*")
    files = original.driver.stored("*/*")
    with pytest.raises(Incompatible, match="an older copy") as caught:
        copy.start().batches(1)
    assert "batch 19 (version 20)" in str(caught.value) and first.run_id in str(caught.value)
    assert original.driver.stored("*/*") == files
    assert_whole(original)


def test_of_two_copies_that_are_at_work_the_older_run_stops_and_neither_loses_a_file(world):
    original = Checkpoint(world)
    original.start().batches(20)
    copy = original.copy()
    older, newer = original.start(), copy.start()
    ended = {}
    for _ in range(40):
        for name, run in (("older", older), ("newer", newer)):
            if name not in ended:
                try:
                    run.batch()
                except (Fenced, Incompatible) as error:
                    ended[name] = error
    assert isinstance(ended["older"], Fenced) and newer.run_id in str(ended["older"])
    assert isinstance(ended["newer"], Fenced) and older.run_id in str(ended["newer"])
    assert_whole(original, copy)
    # Whichever is meant goes on, once the other is given up; and the other is refused then.
    copy.start(abandoned_runs=(older.run_id,)).batches(30)
    copy.start().batches(10)
    assert_whole(copy)
    with pytest.raises(Incompatible, match="taken on"):
        original.start().batches(1)


@pytest.mark.parametrize("pause", [3, 15])
def test_a_slow_original_beside_a_fast_copy_loses_no_file(world, pause):
    original = Checkpoint(world)
    original.start().batches(20)
    copy = original.copy()
    older, newer = original.start(), copy.start()
    ended = set()
    for i in range(3 * pause):
        for name, run in (("newer", newer), *((("older", older),) if i % pause < 2 else ())):
            if name not in ended:
                try:
                    run.batch()
                except (Fenced, Incompatible):
                    ended.add(name)
    assert ended == {"older", "newer"}
    assert_whole(original, copy)


def test_a_task_that_is_tried_again_in_a_process_that_does_not_know_yet_is_refused_too(world):
    original = Checkpoint(world)
    original.start().batches(10)
    copy = original.copy()
    older = original.start()
    second = older.process_of_the_same_run()
    older.batches(1)
    newer = copy.start()
    newer.batches(1)
    older.batches(1)  # its background finds the newer run
    with pytest.raises(Fenced):
        older.prepare()
    second.state.admit(original.driver.handle, original.driver.next_batch)  # knows nothing
    with pytest.raises(Fenced):
        second.state.admit(original.driver.handle, original.driver.next_batch, look_again=True)


def test_copies_that_take_turns_one_batch_a_run_are_found_out(world):
    original = Checkpoint(world)
    original.start().batches(10)
    copy = original.copy()
    turns = 0
    with pytest.raises((Fenced, Incompatible), match="abandonedRuns"):
        for turns in range(40):
            (original, copy)[turns % 2].start().batches(1)
    assert turns < 6
    assert_whole(original, copy)


def test_an_operator_that_stands_twice_in_a_query_stops_and_loses_no_file(world):
    """As in totals.union(totals): one run, and of a slot two states in Spark's checkpoint, each with its versions."""
    first = Checkpoint(world)
    second = first.copy()
    world.runs = itertools.repeat(1)
    ended = {}
    runs = {"first": first.start(), "second": second.start()}
    elsewhere = runs["second"]  # its tasks are on another machine
    elsewhere.process = second.driver.process(local="local-b", runs=elsewhere.runs, settings=SETTINGS)
    for _ in range(40):
        for name, run in runs.items():
            if name not in ended:
                try:
                    run.batch()
                except Fenced as error:
                    ended[name] = str(error)
    assert len(ended) == 2 and all("stands twice in the query" in said for said in ended.values())
    assert_whole(first, second)


@pytest.mark.parametrize("batches", [1, 3])
def test_a_slot_of_which_spark_has_no_handle_any_more_does_not_begin_with_nothing(world, batches):
    """Operators that changed places in the query: each is given what Spark has of the other."""
    checkpoint = Checkpoint(world)
    first = checkpoint.start()
    first.batches(batches)
    files = checkpoint.driver.stored("*/*")
    checkpoint.driver.handle = None
    with pytest.raises(Incompatible, match=f"abandonedRuns={first.run_id}"):
        checkpoint.start().batches(1)
    assert checkpoint.driver.stored("*/*") == files
    checkpoint.driver.history[-1] = (None, {})
    checkpoint.start(abandoned_runs=(first.run_id,)).batches(1)


@pytest.mark.parametrize("seen_by", ["its note", "its note alone", "its deltas"])
@pytest.mark.parametrize("ahead_ms", [0, 86_400_000])
def test_an_original_that_lags_behind_the_batch_at_which_its_copy_began_again_is_seen(world, seen_by, ahead_ms):
    """All that it makes is of batches before the copy's run. What was there before may seem to be of the future."""
    limits = {"retained_batches": 100, "stray_grace_ms": 3_600_000}
    original = Checkpoint(world)
    original.start().batches(20)
    copy = original.copy()
    older = original.start(**limits, fold_deltas_max=50, snapshot_deltas_max=50)
    older.batch()
    copy.start(**limits).batches(4)
    make_newer(world, ahead_ms)
    newer = copy.start(**limits)
    newer.batches(12)
    if seen_by == "its deltas":
        older.batches(2)
    else:
        with pytest.raises(Fenced, match=newer.run_id):
            older.process.state.admit(original.driver.handle, original.driver.next_batch, look_again=True)
    if seen_by == "its note alone":  # its version is gone, and known to be none of the copy's
        [stored] = original.driver.stored(f"delta/*{original.driver.committed.version_id}*")
        os.remove(stored)
        newer = copy.start(**{**limits, "retained_batches": 2})  # needs nothing so far back
    assert copy.driver.committed.start > original.driver.committed.sequence
    with pytest.raises(Fenced, match=older.run_id):
        newer.batches(12)
    assert_whole(copy, *([original] if seen_by != "its note alone" else []))


def test_a_batch_that_a_run_without_a_number_of_it_ran_again_may_be_committed(world):
    """An earlier Holdfast registered the run after it: told is what may have been, and what helps."""
    checkpoint = Checkpoint(world)
    checkpoint.driver.next_batch = 5
    first = checkpoint.start()
    first.prepare()
    checkpoint.start(tells_batch=False)
    checkpoint.driver.next_batch = 6
    with pytest.raises(Incompatible, match=f"(?s)batch 5 failed in that run.*abandonedRuns={first.run_id}"):
        checkpoint.start().batch()
    checkpoint.start(abandoned_runs=(first.run_id,)).batches(20)
    assert_whole(checkpoint)


@pytest.mark.parametrize("begun", [(6, 5), (4,)])
def test_a_slots_first_version_of_a_batch_that_may_be_committed_is_not_passed_over(world, begun):
    """A run began after that batch, and one of a copy that lags at it; or of one that lags behind it."""
    checkpoint = Checkpoint(world)
    checkpoint.driver.next_batch = 5
    first = checkpoint.start()
    first.prepare()
    for batch_id in begun:
        checkpoint.driver.next_batch = batch_id
        again = checkpoint.start()
    checkpoint.driver.next_batch = 6
    with pytest.raises(Incompatible, match=f"abandonedRuns={first.run_id}"):
        again.batch()


# --- what is no copy goes on ------------------------------------------------------------------------------------------


def test_attempts_that_crash_and_their_successors_go_on(world):
    checkpoint = Checkpoint(world)
    for _ in range(15):
        run = checkpoint.start()
        for _ in range(2):
            run.prepare()  # an attempt that fails, and a copy under speculation
            run.batch()
        run.prepare()  # and is killed
        run.process.rest()
    assert_whole(checkpoint)
    assert len(checkpoint.driver.stored("delta/*")) < 60


def test_a_process_that_outlives_its_query_deletes_nothing_and_disturbs_nobody(world):
    checkpoint = Checkpoint(world)
    outlived = checkpoint.start()
    outlived.batches(11)
    successor = checkpoint.start()
    outlived.prepare()
    outlived.process.rest()
    assert outlived.runs.fenced is not None
    successor.batches(40)
    assert_whole(checkpoint)


def test_tasks_that_outlive_their_driver_and_begin_after_the_next_one_disturb_nobody(world):
    """The JVM lives on without its Python driver: slots of the batch at hand begin when the next run is at work."""
    checkpoint = Checkpoint(world)
    outlived = checkpoint.start()
    outlived.batches(11)
    at_hand = checkpoint.driver.handle
    successor = checkpoint.start()
    with pytest.raises(Fenced):
        outlived.process_of_the_same_run()
    with pytest.raises(Fenced):
        outlived.process.state.admit(at_hand, checkpoint.driver.next_batch, look_again=True)
    assert world.store.list(f"{PREFIX}/runs/{outlived.run_id}."), "its query may live"
    successor.batches(40)
    assert not world.store.list(f"{PREFIX}/runs/{outlived.run_id}."), "it was on the way that the successor went"
    checkpoint.start().batches(10)
    assert_whole(checkpoint)


@pytest.mark.parametrize("retained", [2, 100])
@pytest.mark.parametrize("batches", [13, 40])
def test_a_process_that_outlives_its_query_by_long_disturbs_nobody(world, retained, batches):
    """It was fenced on a version that the successor's handle lists no longer, and its note stopped each start."""
    checkpoint = Checkpoint(world)
    outlived = checkpoint.start(retained_batches=retained)
    outlived.batches(11)
    at_hand, batch_id = checkpoint.driver.handle, checkpoint.driver.next_batch
    successor = checkpoint.start(retained_batches=retained)
    successor.batches(batches)
    assert at_hand is not None and at_hand.sequence < checkpoint.driver.committed.start
    with pytest.raises(Fenced):
        outlived.process.state.admit(at_hand, batch_id, look_again=True)
    assert world.store.list(f"{PREFIX}/runs/{outlived.run_id}."), "its query may live"
    successor.batches(20)
    assert not world.store.list(f"{PREFIX}/runs/{outlived.run_id}.")
    checkpoint.start().batches(10)
    assert_whole(checkpoint)


def test_a_slot_whose_first_batch_was_killed_goes_on(world):
    """Its version is of the batch that runs again; of a copy that was not committed, in the run that goes on."""
    checkpoint = Checkpoint(world)
    checkpoint.driver.next_batch = 7
    checkpoint.start().prepare()
    run = checkpoint.start()
    run.prepare()
    run.batches(30)
    assert_whole(checkpoint)


def test_a_slot_that_has_no_rows_when_its_first_batch_runs_again_begins_later(world):
    """What made the batch fail was taken out of the input, and all rows of the slot with it. Its next rows were
    refused, as if that version had been committed.
    """
    checkpoint = Checkpoint(world)
    checkpoint.driver.next_batch = 5
    checkpoint.start().prepare()
    checkpoint.start().prepare()  # tried again, and failed again
    again = checkpoint.start()
    checkpoint.driver.next_batch = 9
    again.batches(10)
    checkpoint.start().batches(20)
    assert_whole(checkpoint)


def test_one_batch_back_is_a_crash_to_the_state(world):
    checkpoint = Checkpoint(world)
    checkpoint.start().batches(12)
    checkpoint.driver.roll_back(1)
    checkpoint.start().batches(12)
    assert_whole(checkpoint)


def test_a_rollback_goes_on_once_it_says_what_is_given_up(world):
    checkpoint = Checkpoint(world)
    first = checkpoint.start()
    first.batches(12)
    checkpoint.driver.roll_back(2)
    with pytest.raises(Incompatible, match=f"abandonedRuns={first.run_id}"):
        checkpoint.start().batches(1)
    checkpoint.start(abandoned_runs=(first.run_id,)).batches(1)
    # From here on the state is the new run's: nothing needs to be said any more.
    checkpoint.start().batches(30)
    assert_whole(checkpoint)
    assert len(checkpoint.driver.stored("delta/*")) < 40, "what was given up is deleted in time"


def test_a_slot_that_had_no_state_yet_may_not_take_another_copys(world):
    empty = Checkpoint(world)
    full = empty.copy()
    full.start().batches(3)
    with pytest.raises(Incompatible, match="the empty state"):
        empty.start().batches(1)


def test_a_copy_of_both_folders_is_a_fork(world, tmp_path):
    import shutil

    original = Checkpoint(world)
    original.start().batches(20)
    shutil.copytree(tmp_path / "store", tmp_path / "copied" / "store")
    elsewhere = World(tmp_path / "copied")
    elsewhere.runs = world.runs
    fork = SlotDriver(elsewhere.folder, settings=SETTINGS, store=elsewhere.store, clock=SystemClock())
    fork.handle, fork.next_batch = through_text(original.driver.committed), original.driver.next_batch
    fork.history, fork.universe = list(original.driver.history), original.driver.universe
    forked = Checkpoint(elsewhere, fork)
    a, b = original.start(), forked.start()
    for _ in range(40):
        a.batch()
        b.batch()
    assert_whole(original, forked)


def test_a_state_of_an_earlier_version_goes_on(world):
    """Its runs have no numbers, and its files are no older than they seem."""
    checkpoint = Checkpoint(world)
    checkpoint.start().batches(12)
    for file in world.store.list(f"{PREFIX}/runs/"):
        os.rename(
            os.path.join(world.store.root, file.name), os.path.join(world.store.root, file.name[:-54] + file.name[-41:])
        )
    assert all(len(os.path.basename(f.name)) == 41 for f in world.store.list(f"{PREFIX}/runs/")), KEY_SCHEMA
    checkpoint.start().batches(20)
    assert_whole(checkpoint)


def test_a_predecessor_whose_files_are_of_the_future_is_no_other_timeline(world):
    """The storage's clock was ahead, and was set right: each start was Fenced until it had passed those times."""
    checkpoint = Checkpoint(world)
    first = checkpoint.start()
    for _ in range(6):
        first.batches(3)
        first.prepare()  # an attempt that fails
    make_newer(world, 86_400_000)
    for _ in range(3):
        checkpoint.start().batches(25)
    assert_whole(checkpoint)


def test_deltas_that_are_mended_beside_the_query_are_no_other_timelines(world):
    """They have new times, and the query was Fenced for its own predecessor's files."""
    checkpoint = Checkpoint(world)
    checkpoint.start(retained_batches=40).batches(30)
    successor = checkpoint.start(retained_batches=40)
    make_newer(world, 1000)
    successor.batches(50)
    assert_whole(checkpoint)


class OneInstant(LocalFileStore):
    """Tells one time of all files: as an object store, which tells whole seconds, of what was made within one."""

    instant_ms: int

    def list(self, prefix):
        return [replace(file, modified_ms=self.instant_ms) for file in super().list(prefix)]


def test_a_query_that_is_stopped_and_started_within_one_second_goes_on(world):
    """Of its predecessor's files of that second none was made after it began: they were taken for another timeline's,
    and the query was Fenced as soon as they were no longer in the handle.
    """
    world.store = OneInstant(world.store.root)
    world.store.instant_ms = SystemClock().now_ms()
    original = Checkpoint(world)
    original.start().batches(5)
    original.start().batches(20)
    original.start().batches(20)
    assert_whole(original)
