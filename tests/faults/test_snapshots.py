"""Snapshots and folds: when they are due, what they upload, and what becomes of those that fail."""

from __future__ import annotations

import glob
import logging
import os
import shutil
from dataclasses import replace

import pytest
from tests.checkpoint_driver import SMALL, SlotDriver, flip
from tests.faulty_file_store import FaultyFileStore

from holdfast.checkpoint import Host
from holdfast.checkpoint.handle import DeltaRef, Handle
from holdfast.checkpoint.maintenance import is_fold_due, is_snapshot_due
from holdfast.checkpoint.retention import Retention
from holdfast.checkpoint.snapshot import Snapshots
from holdfast.errors import Unavailable
from holdfast.storage import LocalFileStore

OTHER_HOST = Host("host-b", "machine-b", "boot-b")
BIG = dict.fromkeys(range(20_000), 7)


@pytest.fixture
def faults(tmp_path):
    return FaultyFileStore(LocalFileStore(str(tmp_path / "store")))


@pytest.fixture
def driver(tmp_path, faults):
    return SlotDriver(tmp_path, store=faults)


def uploaded(faults):
    """Bytes that went up as files of snapshots since the last time."""
    names = [name for operation, name in faults.operations if operation == "put_file"]
    faults.operations.clear()
    paths = [faults.local_path(name) for name in names]
    return sum(os.path.getsize(path) for path in paths if os.path.exists(path))


def test_a_snapshot_uploads_only_what_the_last_one_does_not_have(driver, faults):
    process = driver.process()
    driver.play(process, BIG)
    first = 0
    while len(driver.handle.snapshots) < 1:
        driver.play_some(process, 1)
    first = uploaded(faults)
    newest = driver.handle.snapshots[0]
    while driver.handle.snapshots[0] == newest:
        driver.play_some(process, 1)
    second = uploaded(faults)
    assert driver.handle.snapshots[0].state_bytes > 0.9 * newest.state_bytes
    assert second < first / 10, (first, second)
    assert driver.check(driver.process(OTHER_HOST, "local-b")) == "restore"


def test_a_machine_that_restored_a_snapshot_shares_its_files(driver, faults):
    process = driver.process()
    driver.play(process, BIG)
    while len(driver.handle.snapshots) < 1:
        driver.play_some(process, 1)
    newest = driver.handle.snapshots[0]
    uploaded(faults)
    moved = driver.process(OTHER_HOST, "local-b")
    while driver.handle.snapshots[0] == newest:
        driver.play_some(moved, 1)
    assert uploaded(faults) < newest.state_bytes / 10
    assert driver.check(driver.process(OTHER_HOST, "local-c")) == "restore"


def test_files_of_siblings_with_the_same_name_are_not_taken_for_each_other(driver, faults):
    """Two machines fold on from one snapshot: both have a table of the same name, with other content."""
    a = driver.process()
    driver.play(a, BIG)
    while len(driver.handle.snapshots) < 1:
        driver.play_some(a, 1)
    b = driver.process(OTHER_HOST, "local-b")
    for i in range(40):
        driver.play_some((a, b)[i % 2], 1, seed=i)
        assert driver.check(driver.process(Host("c", "c", "c"), f"local-c{i}")) == "restore"
        shutil.rmtree(os.path.join(driver.folder, f"local-c{i}"))


@pytest.mark.parametrize("operation", ["put_file", "put", "get", "list", "delete"])
def test_a_store_that_fails_in_the_background_costs_no_batch(tmp_path, operation, caplog):
    faults = FaultyFileStore(LocalFileStore(str(tmp_path / "store")), only=[operation])
    driver = SlotDriver(tmp_path, store=faults)
    process = driver.process()
    with caplog.at_level(logging.WARNING):
        for i in range(60):
            # A delta is the first put of a batch, and must not fail here.
            faults.count, faults.fail_at = 0, (range(2, 100) if operation == "put" else range(1, 100)) if i % 3 else ()
            driver.play_some(process, 1, seed=i)
            driver.clock.ms += 400_000
    faults.fail_at = ()
    assert "will be tried again" in caplog.text
    assert len(driver.committed.snapshots) == 2
    assert driver.check(driver.process()) == "local_base"
    assert driver.check(driver.process(OTHER_HOST, "local-b")) == "restore"


def test_after_a_failure_the_next_try_waits(driver, faults):
    process = driver.process()
    faults.only, faults.fail_at = ("put_file",), (lambda _: True)
    driver.play_some(process, 30)
    tries = faults.count
    files = len(glob.glob(driver.local("bases/*")[-1] + "/files/*"))
    assert 1 <= tries <= files, "one snapshot was tried, not one a batch: the clock stands still"
    driver.clock.ms += 1_000
    driver.play_some(process, 3)
    assert tries < faults.count


@pytest.mark.parametrize("is_new_process", [False, True])
def test_snapshots_keep_the_pause_that_they_are_told(tmp_path, is_new_process):
    faults = FaultyFileStore(LocalFileStore(str(tmp_path / "store")))
    driver = SlotDriver(tmp_path, store=faults, settings=replace(SMALL, snapshot_pause_min_ms=60_000))
    process = driver.process()
    while not driver.stored("snapshot/*"):
        driver.play_some(process, 1)
    if is_new_process:
        process = driver.process()
    for _ in range(3):
        made = driver.stored("snapshot/*")
        driver.play_some(process, 3 * driver.settings.snapshot_deltas_max)  # late, too
        assert driver.stored("snapshot/*") == made and driver.committed.snapshots
        driver.clock.ms += 60_000
        driver.play_some(process, 1)
        assert len(driver.stored("snapshot/*")) > len(made) or driver.stored("snapshot/*") != made
    assert driver.check(driver.process(OTHER_HOST, "local-b")) == "restore"


@pytest.mark.parametrize(("pause_ms", "shift_ms"), [(0, -3_600_000), (1000, -3_600_000), (1000, 31_536_000_000)])
@pytest.mark.parametrize("is_new_process", [False, True])
def test_a_clock_that_is_set_right_keeps_no_snapshot_from_being_made(tmp_path, pause_ms, shift_ms, is_new_process):
    """They had stopped until the wall clock came past the last one, and what a version needs grew all the time."""
    driver = SlotDriver(tmp_path, settings=replace(SMALL, snapshot_pause_min_ms=pause_ms))
    process = driver.process()
    driver.clock.shift_ms = max(0, shift_ms)
    driver.play_some(process, 3 * driver.settings.snapshot_deltas_max)
    made = driver.committed.snapshots
    driver.clock.shift_ms = min(0, shift_ms)
    if is_new_process:
        process = driver.process()
    driver.clock.ms += pause_ms
    driver.play_some(process, 3 * driver.settings.snapshot_deltas_max)
    assert made and driver.committed.snapshots[0] not in made


@pytest.mark.parametrize("ahead_ms", [7_200_000, 86_400_000])
def test_a_machine_whose_clock_is_ahead_of_the_stores_keeps_its_snapshots(tmp_path, ahead_ms):
    """A snapshot that is not named yet would be old by such a clock, and its tables went as it was uploaded."""
    driver = SlotDriver(tmp_path, settings=replace(SMALL, fold_deltas_max=1, snapshot_deltas_max=1))
    driver.clock.shift_ms = ahead_ms
    process = driver.process()
    for _ in range(4):
        driver.play_some(process, 3)
        assert driver.check(driver.process(OTHER_HOST, f"local-{driver.next_batch}")) == "restore"
    assert driver.committed.snapshots


def test_a_delta_that_storage_refuses_fails_the_batch_and_the_next_attempt_goes_on(driver, faults):
    """What is not in storage is not committed: of deltas no failure is tolerated, unlike of snapshots."""
    process = driver.process()
    driver.play_some(process, 3)
    before, faults.only = driver.handle, ("put",)
    faults.count, faults.fail_at = 0, (1,)
    with pytest.raises(Unavailable):
        driver.play_some(process, 1)
    faults.fail_at = ()
    assert driver.handle == before
    process = driver.process()
    driver.play_some(process, 1)
    assert driver.handle.sequence == before.sequence + 1
    assert driver.check(driver.process(OTHER_HOST, "local-b")) in ("restore", "catch_up")


def test_a_base_that_decayed_does_not_become_a_snapshot(driver, caplog):
    process = driver.process()
    driver.play(process, BIG)
    driver.play_some(process, 4)
    tables = {os.stat(path).st_ino: path for path in driver.local("bases/*/files/*.sst")}
    for table in tables.values():
        flip(table)
    with caplog.at_level(logging.WARNING):
        driver.play_some(process, 12)
    assert "damaged" in caplog.text
    assert driver.check(driver.process(OTHER_HOST, "local-b")) == "restore"


def test_past_the_hard_limit_a_batch_folds_itself(tmp_path):
    driver = SlotDriver(tmp_path)
    process = driver.process(background=NoBackground())
    for i in range(60):
        driver.play(process, {i: i}, rest=False)
        bases = driver.local("bases/*")
        newest = int(os.path.basename(bases[-1]).split("-")[0]) if bases else 0
        assert driver.committed.sequence - newest < 4 * driver.settings.fold_deltas_max
    assert driver.check(driver.process()) == "local_base"


class NoBackground:
    """A background thread that never gets to anything."""

    def submit(self, key, job):
        pass

    def drain(self, timeout_s=None):
        return True


def test_what_another_process_folded_is_taken_over(driver):
    a, b = driver.process(), driver.process()
    b.open(None)
    driver.play_some(a, 4)
    assert driver.check(b)
    driver.play_some(a, 6)
    assert driver.check(b) == "catch_up"
    newest = driver.local("bases/*")[-1]
    assert b.state._live.base.path == newest


def test_a_snapshot_that_nobody_named_in_time_is_made_again(driver):
    process = driver.process()
    while not glob.glob(os.path.join(driver.folder, "local-a", "*", "*", "*", "*", "bases", "*", "SNAPSHOT.json")):
        driver.play_some(process, 1)
    assert driver.handle.snapshots == ()
    lost = driver.stored("snapshot/*")
    driver.clock.ms += driver.settings.stray_grace_ms
    driver.play_some(process, 1)
    assert driver.handle.snapshots == (), "too late: another machine's retention may take its files for strays"
    driver.play_some(process, 20)
    assert driver.handle.snapshots
    assert driver.handle.snapshots[0].name not in [name[-len(driver.handle.snapshots[0].name) :] for name in lost]
    assert driver.check(driver.process(OTHER_HOST, "local-b")) == "restore"


@pytest.mark.parametrize("pause_ms", [31 * 60_000, 2 * 3_600_000])
def test_batches_that_are_far_apart_have_their_snapshots_named(driver, pause_ms):
    """In a worker that lives on each batch uploaded another one, too old for the next batch to name, and nothing was
    ever deleted.
    """
    process = driver.process()
    for _ in range(60):
        driver.play_some(process, 1)
        driver.pass_time(pause_ms)
    assert len(driver.committed.snapshots) == 2
    assert len(driver.committed.deltas) <= 3 * driver.settings.snapshot_deltas_max
    assert len(driver.stored("snapshot/*")) <= 4
    assert driver.check(driver.process(OTHER_HOST, "local-b")) == "restore"


def test_an_old_snapshot_that_is_gone_is_looked_for_once(driver, faults):
    process = driver.process()
    while not driver.stored("snapshot/*"):
        driver.play_some(process, 1)
    os.unlink(driver.stored("sst/*")[0])
    driver.pass_time(driver.settings.stray_grace_ms)
    process = driver.process(background=NoBackground())
    faults.operations.clear()
    driver.play_some(process, 5)
    assert [operation for operation, _ in faults.operations].count("list") == 1
    assert driver.committed.snapshots == ()


@pytest.mark.parametrize(("operation", "fail_after"), [("put_file", False), ("put_file", True), ("put", False)])
def test_a_snapshot_that_cannot_be_uploaded_leaves_nothing(driver, faults, operation, fail_after):
    """Each try left what it had uploaded, under names of its own: what was left of a quota went with them."""
    process = driver.process()
    driver.play(process, BIG)
    while not driver.committed.snapshots:
        driver.play_some(process, 1)
    named, tries = driver.committed.snapshots, 0
    stored = driver.stored("sst/*") + driver.stored("snapshot/*")
    faults.only, faults.fail_after, faults.fail_at = (operation,), fail_after, (2,)
    for _ in range(24):
        faults.count = 0  # the second table; the manifest, which comes after the batch's delta
        driver.play_some(process, 1)
        tries += faults.count > 1
        driver.clock.ms += 400_000
    assert tries > 10 and driver.committed.snapshots == named
    assert driver.stored("sst/*") + driver.stored("snapshot/*") == stored
    faults.fail_at = ()
    driver.play_some(process, 2)
    assert driver.committed.snapshots[1:] == named
    assert driver.check(driver.process(OTHER_HOST, "local-b")) == "restore"


def test_a_snapshot_whose_manifest_came_through_stays_though_its_answer_was_lost(driver, faults):
    """Another process may have found it by then, and named it."""
    process = driver.process()
    driver.play(process, BIG)
    faults.only, faults.fail_after, faults.fail_at = ("put",), True, (2,)
    while not driver.committed.snapshots:
        faults.count = 0
        driver.play_some(process, 1)
        assert driver.next_batch < 20
    assert driver.check(driver.process(OTHER_HOST, "local-b")) == "restore"


def test_what_a_failed_upload_left_and_cannot_be_deleted_is_told(driver, faults, caplog):
    process = driver.process()
    faults.only, faults.fail_at = ("put_file", "delete"), (lambda _: True)
    with caplog.at_level(logging.WARNING):
        driver.play_some(process, driver.settings.snapshot_deltas_max)
    assert "left to retention: delete" in caplog.text
    assert "will be tried again: put_file" in caplog.text


def test_when_a_fold_and_a_snapshot_are_due():
    refs = tuple(DeltaRef(n, f"{n:032x}", 100, "0" * 16) for n in range(1, 5))
    handle = Handle("op", 0, refs[-1].version_id, None, 4, 3, deltas=refs)
    few = replace(SMALL, fold_deltas_max=5, fold_bytes_max=401)
    assert not is_fold_due(refs, few) and not is_fold_due((), replace(few, fold_bytes_max=0))
    assert is_fold_due(refs, replace(few, fold_deltas_max=4)) and is_fold_due(refs, replace(few, fold_bytes_max=400))
    assert not is_fold_due(refs, replace(few, fold_deltas_max=2), factor=4)
    rare = replace(SMALL, snapshot_deltas_max=5, snapshot_bytes_min=401)
    assert not is_snapshot_due(handle, rare)
    assert is_snapshot_due(handle, replace(rare, snapshot_deltas_max=4))
    assert is_snapshot_due(handle, replace(rare, snapshot_bytes_min=400))


def test_retention_reads_no_manifest_of_what_is_superseded_twice(driver, faults):
    """A slot that is due a snapshot each batch has one superseded for each retained batch: retention read them all, one
    after the other, each time.
    """
    driver.settings = replace(SMALL, fold_deltas_max=1, snapshot_deltas_max=1, retained_batches=30)
    process, sizes, reads = driver.process(), [], []
    for _ in range(40):
        faults.operations.clear()
        driver.play_some(process, 1)
        names = [name for operation, name in faults.operations if operation == "get" and "/snapshot/" in name]
        reads.append(len(names))
        sizes.append(len(driver.handle.to_text()))
    assert len(driver.handle.superseded) > 25
    assert max(reads[20:]) == max(reads[4:12]) < 8
    assert sizes[-1] < 1024 + 90 * len(driver.handle.superseded), "as docs/guide/recovery.md says"
    assert driver.check(driver.process(OTHER_HOST, "local-b")) == "restore"


def test_two_retentions_of_a_slot_side_by_side_delete_nothing_that_the_newer_handle_names(driver):
    """The slot's thread does the first one of a process itself, and the background may still be at an older batch's:
    what it knew of the newest snapshot was taken from it.
    """
    driver.settings = replace(SMALL, fold_deltas_max=1, snapshot_deltas_max=1, retained_batches=30)
    process = driver.process()
    driver.play_some(process, 12)
    opened_ms = driver.clock.now_ms()
    driver.pass_time(2 * driver.settings.stray_grace_ms)
    driver.play_some(process, 1)
    (older, _), (parent, _), (newest, _) = driver.history[-6], driver.history[-2], driver.history[-1]

    class Interrupted(Snapshots):
        """The older batch's retention runs from its beginning to its end while the newer's reads."""

        is_first = True

        def files_named_by(self, name):
            if self.is_first:
                self.is_first = False
                retention.run(older, None, opened_ms)
            return super().files_named_by(name)

    context = process.state._context
    retention = Retention(context, Interrupted(context))
    retention.run(newest, parent, driver.clock.now_ms())
    assert driver.check(driver.process(OTHER_HOST, "local-b")) == "restore"
