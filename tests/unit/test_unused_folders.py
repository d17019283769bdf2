"""Local folders of dead queries and moved slots are removed, and those that are in use are not."""

from __future__ import annotations

import fcntl
import os
from dataclasses import replace

import pytest
from tests.checkpoint_driver import SMALL, SlotDriver

from holdfast.checkpoint.slot_folder import SlotFolder
from holdfast.checkpoint.unused_folders import clear_unused
from holdfast.clock import new_id

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000


@pytest.fixture
def folders(tmp_path):
    """Two slots of a dead query, one of a living one, and what others keep there."""
    made = [
        SlotFolder(str(tmp_path), "store", prefix, slot, new_id)
        for prefix, slot in (("a/x", 0), ("a/x", 1), ("b/x", 0))
    ]
    for folder, age in zip(made, (8, 9, 6)):
        open(os.path.join(folder.bases, "file"), "w").close()
        folder.touch(NOW_MS - age * DAY_MS)
    os.makedirs(tmp_path / "rocksdb" / "slot-00001" / "a" / "slot-00001")
    (tmp_path / "HOST").write_text("")
    return made


def clear(tmp_path, now_ms=NOW_MS):
    return clear_unused(str(tmp_path), now_ms, 7 * DAY_MS, new_id)


def test_what_was_not_used_for_long_goes_and_the_rest_stays(tmp_path, folders):
    assert clear(tmp_path) == 2
    assert [os.path.isdir(folder.path) for folder in folders] == [False, False, True]
    assert os.path.isdir(tmp_path / "rocksdb" / "slot-00001" / "a" / "slot-00001")
    assert sorted(name for name in os.listdir(tmp_path) if len(name) != 16) == ["CLEARED", "HOST", "rocksdb"]
    (store,) = [name for name in os.listdir(tmp_path) if len(name) == 16]
    assert os.listdir(tmp_path / store) == ["b"], "empty folders above go too"


def test_one_process_looks_once_an_hour(tmp_path, folders):
    assert clear(tmp_path) == 2
    folders[2].touch(NOW_MS - 30 * DAY_MS)
    assert clear(tmp_path, NOW_MS + 3_000_000) == 0
    assert clear(tmp_path, NOW_MS + 3_700_000) == 1


def test_what_somebody_folds_in_stays(tmp_path, folders):
    with folders[0].maintenance_lock() as is_mine:
        assert is_mine
        folders[0].touch(NOW_MS - 8 * DAY_MS)
        assert clear(tmp_path) == 1
    assert os.path.isdir(folders[0].path)


def test_another_that_looks_is_not_disturbed(tmp_path, folders):
    with open(tmp_path / "CLEARED", "w") as claim:
        fcntl.flock(claim, fcntl.LOCK_EX)
        assert clear(tmp_path) == 0


def test_what_a_killed_process_had_put_out_of_sight_goes(tmp_path):
    os.makedirs(tmp_path / ("cleared-" + "0" * 32) / "bases")
    clear(tmp_path)
    assert os.listdir(tmp_path) == ["CLEARED"]


def test_a_pass_is_bounded(tmp_path):
    for slot in range(70):
        SlotFolder(str(tmp_path), "store", "a/x", slot, new_id).touch(NOW_MS - 8 * DAY_MS)
    assert clear(tmp_path) == 64
    assert clear(tmp_path, NOW_MS + 2 * 3_600_000) == 6


def test_a_pass_that_left_some_is_followed_by_the_next_without_an_hour_between(tmp_path):
    """64 slots an hour were removed at most, and a query may have had thousands on a machine."""
    for slot in range(200):
        SlotFolder(str(tmp_path), "store", "a/x", slot, new_id).touch(NOW_MS - 8 * DAY_MS)
    assert [clear(tmp_path, NOW_MS + second * 1000) for second in range(5)] == [64, 64, 64, 8, 0]
    assert os.listdir(tmp_path) == ["CLEARED"]
    SlotFolder(str(tmp_path), "store", "a/x", 0, new_id).touch(NOW_MS - 8 * DAY_MS)
    assert clear(tmp_path, NOW_MS + 10_000) == 0, "the last pass was whole"


def test_a_query_at_work_clears_what_a_dead_one_left(tmp_path):
    dead = SlotFolder(str(tmp_path / "local-a"), "elsewhere", "dead/x", 0, new_id)
    driver = SlotDriver(tmp_path, settings=replace(SMALL, local_unused_ms=60_000))
    dead.touch(driver.clock.now_ms() - 120_000)
    process = driver.process()
    driver.play_some(process, 8)
    assert not os.path.exists(dead.path)
    assert driver.check(driver.process()) == "local_base"
