"""Every way to a version, on both backends: what is there, what is damaged, and what the slot is opened from then."""

from __future__ import annotations

import glob
import logging
import os
import shutil
from collections import Counter
from dataclasses import replace

import pytest
from tests.checkpoint_driver import HOST, SMALL, SlotDriver, flip, tear
from tests.faulty_file_store import FaultyFileStore

from holdfast.checkpoint import Handle, Host
from holdfast.errors import Corrupt, InvalidRequest, Unavailable
from holdfast.storage import LocalFileStore

OTHER_HOST = Host("host-b", "machine-b", "boot-b")


@pytest.fixture(params=["rocksdb", "hashmap"])
def settings(request):
    return replace(SMALL, backend=request.param)


@pytest.fixture
def driver(tmp_path, settings):
    return SlotDriver(tmp_path, settings=settings)


# --- what this process or this machine has ---------------------------------------------------------------------------


def test_a_slot_without_a_handle_is_new(driver):
    process = driver.process()
    assert driver.check(process) == "new"
    driver.play(process, {1: 5})
    assert driver.check(process) == "equal"


def test_without_a_handle_whatever_is_there_is_not_used(driver):
    driver.play_some(driver.process(), 10)
    assert driver.process().sums(None, driver.universe) == {}


def test_a_process_that_had_the_last_version_has_it_still(driver):
    process = driver.process()
    for i in range(30):
        driver.play(process, {i % 7: i, 100 + i: 1})
        assert driver.check(process) == "equal"


def test_processes_that_take_turns_catch_up(driver):
    processes = [driver.process() for _ in range(3)]
    ways = []
    for i in range(40):
        process = processes[i * 7 % 3]
        ways.append(driver.check(process))
        driver.play(process, {i % 7: i, 100 + i: 1})
    # Seldom, a process without a base yet, so that nothing of what it has is in the chain, starts from a base.
    assert set(ways[3:]) <= {"catch_up", "equal", "local_base"}
    assert ways.count("catch_up") > 30


def test_a_new_process_starts_from_the_base_on_this_machine(driver):
    driver.play_some(driver.process(), 20)
    process = driver.process()
    assert driver.check(process) == "local_base"
    assert process.state.recovery.deltas <= driver.settings.fold_deltas_max
    assert process.state.recovery.bytes < 40_000


def test_memory_that_was_released_comes_back(driver):
    process = driver.process()
    driver.play_some(process, 20)
    assert process.state.memory_bytes > 0
    process.state.release_memory()
    assert process.state.memory_bytes == 0
    assert driver.check(process) == "local_base"


def test_a_process_that_ran_ahead_goes_back(driver):
    process = driver.process()
    driver.play_some(process, 9)
    for _ in range(3):
        process.run(driver.handle, driver.next_batch, [{1: 1, 2: 2, 77: 3}])  # Spark never commits it
        process.rest()
        assert driver.check(process) == "local_base"
    driver.play_some(process, 9)
    assert driver.check(process) == "equal"


def test_a_batch_that_was_aborted_leaves_nothing(driver):
    process = driver.process()
    driver.play_some(process, 6)
    process.open(driver.handle)
    process.state.begin(driver.next_batch)
    driver.play_some(driver.process(), 1)
    process.state.abort()
    assert driver.check(process) == "local_base"
    process.open(driver.handle)
    process.state.begin(driver.next_batch)
    assert driver.check(process) == "local_base", "open() without a word drops the batch at hand"


def test_bases_of_versions_that_were_never_committed_are_not_used(driver):
    zombie = driver.process()
    driver.play_some(zombie, 3)
    ahead = driver.handle
    for i in range(10):  # folds bases of versions that only it knows
        ahead = zombie.run(ahead, driver.next_batch + i, [{5: 1_000_000}])
        zombie.rest()
    folded = [int(os.path.basename(path).split("-")[0]) for path in driver.local("bases/*")]
    assert folded and min(folded) > driver.handle.sequence, "only bases that nobody may use are there"
    assert driver.check(driver.process()) == "restore"
    driver.play_some(driver.process(), 12)
    assert driver.check(driver.process()) == "local_base"


def test_two_processes_that_run_the_same_batch_do_not_disturb_each_other(driver):
    a, b = driver.process(), driver.process()
    ways = []
    for i in range(25):
        rows = {i % 5: i, 50 + i: 1}
        loser = a.run(driver.handle, driver.next_batch, [rows])
        a.rest()  # or the other's background would meet the lock, and give way: how often is chance
        winner = b.run(driver.handle, driver.next_batch, [rows])
        b.rest()
        assert loser.version_id != winner.version_id
        driver.commit(winner if i % 2 else loser, [rows])
        ways.append(driver.check(a if i % 3 else b))
    # Equal where the version of the process was taken; a base of the other's line is no use until both share one.
    assert Counter(ways) == {"equal": 12, "local_base": 11, "restore": 2}
    assert driver.check(driver.process()) == "local_base"


# --- this machine's copies are damaged, of another boot, or gone
# -------------------------------------------------------


def damage_base(driver, how):
    for base in driver.local("bases/*"):
        files = sorted(glob.glob(base + "/files/*"))
        tables = [path for path in files if path.endswith(".sst")]
        if how == "record torn":
            tear(base + "/BASE.json", 50)
        elif how == "record flipped":
            flip(base + "/BASE.json")
        elif how == "record gone":
            os.unlink(base + "/BASE.json")
        elif how == "manifest torn":
            path = next(path for path in files if "MANIFEST" in path)
            tear(path, os.path.getsize(path) - 20)
        elif how == "manifest flipped":
            flip(next(path for path in files if "MANIFEST" in path))
        elif how == "current flipped":
            flip(base + "/files/CURRENT", 12)
        elif how == "table gone":
            os.unlink(tables[0])
        elif how == "table torn":
            tear(tables[0], os.path.getsize(tables[0]) // 2)
        elif how == "files gone":
            shutil.rmtree(base + "/files")


@pytest.mark.parametrize(
    "how",
    ["record torn", "record flipped", "record gone", "manifest torn", "manifest flipped", "current flipped",
     "table gone", "table torn", "files gone"],
)  # fmt: skip
def test_a_damaged_base_is_left_for_the_snapshot(driver, how):
    process = driver.process()
    driver.play_some(process, 21)
    damage_base(driver, how)
    assert driver.check(driver.process()) == "restore"
    driver.play_some(driver.process(), 10)
    assert driver.check(driver.process()) == "local_base"


def test_a_table_that_changed_under_a_base_is_found_when_it_is_read_and_restored(driver):
    driver.play_some(driver.process(), 21)
    tables = {os.stat(path).st_ino: path for path in driver.local("bases/*/files/*.sst")}  # bases share them
    for table in tables.values():
        for position in range(0, os.path.getsize(table), 64):
            flip(table, position)
    assert driver.check(driver.process()) == "restore"


def test_a_damaged_base_does_not_become_a_snapshot(driver, caplog):
    process = driver.process()
    driver.play_some(process, 5)
    tables = glob.glob(driver.local("bases/*")[-1] + "/files/*.sst")
    for table in tables:
        flip(table, 30)
    with caplog.at_level(logging.WARNING):
        driver.play_some(process, 20, seed=1)
    for base in driver.local("bases/*"):
        shutil.rmtree(base)
    assert driver.check(driver.process(local="local-b")) == "restore"


def test_local_copies_from_before_a_reboot_are_dropped(driver):
    driver.play_some(driver.process(), 21)
    rebooted = replace(HOST, boot_id="boot-after")
    assert driver.check(driver.process(rebooted)) == "restore"
    driver.play_some(driver.process(rebooted), 5)
    assert driver.check(driver.process(rebooted)) == "local_base"


def test_folders_of_unfinished_work_are_cleared_once_their_owner_is_gone(driver):
    process = driver.process()
    driver.play_some(process, 6)
    slot_folder = os.path.dirname(driver.local("bases")[0])
    os.makedirs(os.path.join(slot_folder, "work-" + "0" * 32, "files"))
    open(os.path.join(slot_folder, "work-" + "1" * 32 + ".lock"), "w").close()
    mine = process.state._context.folder.new_work()
    driver.process()
    assert sorted(os.path.basename(p) for p in driver.local("work-*")) == sorted(
        [os.path.basename(mine.path), os.path.basename(mine.path) + ".lock"]
    )
    mine.close()
    assert driver.local("work-*") == []


def test_a_local_folder_of_another_host_is_refused(driver):
    driver.play_some(driver.process(), 1)
    with pytest.raises(InvalidRequest, match=r"shared by two hosts.*'host-b'.*'host-a'.*spark\.holdfast\.local\.dir"):
        driver.process(OTHER_HOST)


def test_the_whole_local_folder_may_vanish_under_a_process(driver):
    process = driver.process()
    driver.play_some(process, 9)
    shutil.rmtree(os.path.join(driver.folder, "local-a"))
    assert driver.check(process) == "equal"
    driver.play_some(process, 9)
    shutil.rmtree(os.path.join(driver.folder, "local-a"))
    process.state.release_memory()
    assert driver.check(process) == "restore"
    with pytest.raises(InvalidRequest, match="shared by two hosts"):
        driver.process(OTHER_HOST)


def test_whole_copies_on_this_machine_outlive_what_storage_lost(driver):
    """They may be the last way to a version: Corrupt alone is no reason to throw them away."""
    process = driver.process()
    driver.play_some(process, 30)
    driver.play(process, {1: 1}, rest=False)
    last = driver.stored(f"delta/*{driver.handle.version_id}.arrow")[0]
    os.rename(last, last + ".aside")
    process = driver.process()
    for _ in range(3):
        with pytest.raises(Corrupt, match="missing") as caught:
            process.open(driver.handle)
        process.state.abort(caught.value)
    os.rename(last + ".aside", last)
    assert driver.check(process) == "local_base"


@pytest.mark.parametrize("there", ["nothing", "deltas"])
def test_a_folder_that_is_another_one_on_each_machine_is_told_as_that(driver, tmp_path, there):
    """A local path on a cluster, or a pod's emptyDir: the file named was not to be restored anywhere."""
    driver.play_some(driver.process(), 21)
    elsewhere = tmp_path / "another disk"
    if there == "deltas":
        shutil.copytree(driver.store.uri, elsewhere)
        for path in elsewhere.rglob("*"):
            if path.is_file() and path.parent.name != "delta":
                path.unlink()
    other = driver.process(OTHER_HOST, "local-b", file_store=LocalFileStore(str(elsewhere)))
    with pytest.raises(Corrupt, match="missing.*or .*another disk on host 'host-b' is not the folder that it was"):
        other.open(driver.handle)


def test_a_restore_for_which_there_is_no_room_says_so_first(driver, monkeypatch):
    driver.play_some(driver.process(), 21)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 90, 10))
    with pytest.raises(Unavailable, match=r"bytes are needed.*10 bytes are free.*spark\.holdfast\.local\.dir"):
        driver.process(OTHER_HOST, "local-b").open(driver.handle)
    assert driver.local("bases/*", "local-b") == []


# --- another machine
# ---------------------------------------------------------------------------------------------------


def test_a_new_host_restores_from_the_snapshot(driver):
    driver.play_some(driver.process(), 30)
    assert len(driver.handle.snapshots) == 2
    process = driver.process(OTHER_HOST, "local-b")
    assert driver.check(process) == "restore"
    assert process.state.recovery.deltas <= driver.settings.snapshot_deltas_max + 2
    driver.play_some(process, 30)
    assert driver.check(driver.process()) == "restore"


def test_a_new_host_restores_from_deltas_alone_when_there_is_no_snapshot_yet(driver):
    driver.play_some(driver.process(), 5)
    assert driver.handle.snapshots == ()
    assert driver.check(driver.process(OTHER_HOST, "local-b")) == "restore"


def test_a_slot_may_move_between_hosts_at_every_batch(driver):
    hosts = [driver.process(), driver.process(OTHER_HOST, "local-b")]
    for i in range(60):
        driver.play(hosts[i % 2], {i % 11: i, 200 + i: i})
    assert driver.check(hosts[0]) == "catch_up"
    assert driver.check(hosts[1]) == "equal"
    assert len(driver.handle.snapshots) == 2


def test_a_damaged_newest_snapshot_falls_back_to_the_one_before_and_says_so(driver, caplog):
    driver.play_some(driver.process(), 30)
    newest = driver.handle.snapshots[0]
    path = driver.stored(newest.name)[0]
    flip(path)
    with caplog.at_level(logging.WARNING):
        assert driver.check(driver.process(OTHER_HOST, "local-b")) == "fallback"
    assert newest.name in caplog.text and "damaged" in caplog.text
    driver.play_some(driver.process(OTHER_HOST, "local-b"), 20)
    assert driver.check(driver.process(local="local-c")) == "restore", "later snapshots are whole again"


def test_a_missing_file_of_the_newest_snapshot_falls_back(driver, caplog):
    driver.play_some(driver.process(), 30)
    newest, older = driver.handle.snapshots
    process = driver.process(local="local-b")
    snapshots = process.state._maintenance._snapshots
    only_newest = snapshots.files_named_by(newest.name) - snapshots.files_named_by(older.name)
    path = driver.stored(sorted(only_newest)[0])[0]
    os.unlink(path)
    with caplog.at_level(logging.WARNING):
        assert driver.check(process) == "fallback"
    assert os.path.basename(path) in caplog.text


def test_when_every_snapshot_is_damaged_the_error_names_them_with_slot_and_version(driver):
    driver.play_some(driver.process(), 30)
    for snapshot in driver.handle.snapshots:
        tear(driver.stored(snapshot.name)[0], 10)
    with pytest.raises(Corrupt) as caught:
        driver.process(OTHER_HOST, "local-b").open(driver.handle)
    for snapshot in driver.handle.snapshots:
        assert snapshot.name in str(caught.value)
    assert "slot 0" in str(caught.value) and driver.handle.version_id in str(caught.value)
    assert driver.check(driver.process()) == "local_base", "the copy on the first host still is one"


@pytest.mark.parametrize("how", ["flipped", "torn", "gone", "empty"])
def test_a_damaged_delta_that_is_needed_is_named_with_slot_and_version(driver, how):
    driver.play_some(driver.process(), 30)
    last = driver.handle.deltas[-1]
    path = driver.stored(f"delta/*{last.version_id}.arrow")[0]
    if how == "flipped":
        flip(path)
    elif how == "torn":
        tear(path, os.path.getsize(path) - 1)
    elif how == "empty":
        tear(path, 0)
    else:
        os.unlink(path)
    with pytest.raises(Corrupt) as caught:
        driver.process(OTHER_HOST, "local-b").open(driver.handle)
    assert os.path.basename(path) in str(caught.value)
    assert "slot 0" in str(caught.value) and last.version_id in str(caught.value)


def test_a_damaged_delta_that_a_snapshot_covers_does_no_harm(driver):
    driver.play_some(driver.process(), 30)
    covered = next(d for d in driver.handle.deltas if d.sequence <= driver.handle.snapshots[0].sequence)
    flip(driver.stored(f"delta/*{covered.version_id}.arrow")[0])
    assert driver.check(driver.process(OTHER_HOST, "local-b")) == "restore"


def test_deltas_that_are_too_long_for_memory_are_folded_on_the_way(tmp_path):
    settings = replace(SMALL, fold_bytes_max=64 << 20, fold_deltas_max=100, snapshot_deltas_max=100)
    driver = SlotDriver(tmp_path, settings=settings)
    driver.play_some(driver.process(), 10)
    driver.settings = replace(settings, fold_bytes_max=2_000)
    process = driver.process(OTHER_HOST, "local-b")
    assert driver.check(process) == "restore"
    recovery = process.state.recovery
    assert recovery is not None and recovery.deltas == 0, "all of them are in the base"
    assert driver.local("bases/*", "local-b")


# --- back in time
# ------------------------------------------------------------------------------------------------------


def test_every_retained_version_can_be_rolled_back_to(driver):
    process = driver.process()
    driver.play_some(process, 40)
    for back in range(driver.settings.retained_batches + 1):
        assert driver.check(process) == ("local_base" if back else "equal"), back
        assert driver.check(driver.process(OTHER_HOST, f"local-{back}")) == "restore"
        driver.roll_back(1)


def test_life_goes_on_after_a_roll_back(driver):
    process = driver.process()
    driver.play_some(process, 30)
    for seed in range(8):
        driver.roll_back(3)
        driver.play_some(process, 10, seed=seed)
        driver.clock.ms += 2 * 3_600_000
        assert driver.check(driver.process()) == "local_base"
        assert driver.check(driver.process(OTHER_HOST, f"local-{seed}")) == "restore"


def test_storage_does_not_grow_without_end(driver):
    process = driver.process()
    sizes = []
    for seed in range(6):
        driver.play_some(process, 25, seed=seed)
        driver.pass_time(2 * 3_600_000)
        sizes.append(len(driver.stored("*/*")))
    assert sizes[-1] <= max(sizes[:3]) + 5, sizes
    assert len(driver.local("bases/*")) <= 2
    assert driver.check(driver.process(OTHER_HOST, "local-b")) == "restore"


# --- a store that is elsewhere
# -------------------------------------------------------------------------------------------


@pytest.fixture
def remote(tmp_path, settings):
    store = FaultyFileStore(LocalFileStore(str(tmp_path / "store")), remote=True)
    return SlotDriver(tmp_path, settings=settings, store=store)


def test_deltas_of_a_remote_store_are_read_from_this_machine(remote):
    driver = remote
    driver.play_some(driver.process(), 7)
    driver.store.operations.clear()
    assert driver.check(driver.process()) == "local_base"
    assert [op for op, _ in driver.store.operations if op in ("get", "fetch")] == []
    driver.play_some(driver.process(), 40)
    assert len(driver.local("deltas/*")) <= 2 * driver.settings.fold_deltas_max


def test_damaged_local_copies_of_deltas_are_fetched_again(remote, caplog):
    driver = remote
    driver.play_some(driver.process(), 7)
    for path in driver.local("deltas/*"):
        flip(path)
    with caplog.at_level(logging.WARNING):
        assert driver.check(driver.process()) == "local_base"
    assert "a local copy is not used" in caplog.text
    driver.store.operations.clear()
    assert driver.check(driver.process()) == "local_base"
    assert [op for op, _ in driver.store.operations if op in ("get", "fetch")] == []


def test_a_store_that_does_not_answer_is_unavailable_and_harms_nothing(remote):
    driver = remote
    driver.play_some(driver.process(), 20)
    driver.store.fail_at = lambda _: True
    process = driver.process(OTHER_HOST, "local-b")
    with pytest.raises(Unavailable, match="the test wanted it to"):
        process.open(driver.handle)
    driver.store.fail_at = ()
    assert driver.check(process) == "restore"


def test_a_handle_of_another_slot_or_operator_is_refused(driver):
    driver.play_some(driver.process(), 2)
    process = driver.process()
    for change in ({"slot": 1}, {"operator": "other"}):
        with pytest.raises(InvalidRequest, match="was given to operator"):
            process.open(replace(driver.handle, **change))


def test_calls_out_of_order_say_which_is_missing(driver):
    process = driver.process()
    for act in (process.state.prepare, lambda: process.state.begin(0), process.state.spill_if_needed):
        with pytest.raises(InvalidRequest, match=r"call open|no batch"):
            act()
    process.open(None)
    with pytest.raises(InvalidRequest, match="call begin"):
        process.state.prepare()
    process.state.begin(0)
    with pytest.raises(InvalidRequest, match="batch 0 is at hand"):
        process.state.begin(1)
    with pytest.raises(InvalidRequest, match="batch 0 is at hand"):
        process.state.release_memory()
    assert isinstance(process.state.prepare(), Handle)
