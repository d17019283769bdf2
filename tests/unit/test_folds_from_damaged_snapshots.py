"""A worker whose local bases are gone folds from a snapshot. Opening took the next one where the newest is damaged; a
fold and a spill did not, and until the worker died no base and no snapshot was made.
"""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.checkpoint_driver import SMALL, Process, SlotDriver, flip
from tests.faulty_file_store import FaultyFileStore

from holdfast.checkpoint import Host
from holdfast.checkpoint.handle import SnapshotRef
from holdfast.checkpoint.snapshot import Manifest
from holdfast.storage import LocalFileStore

OTHER_HOST = Host("host-b", "machine-b", "boot-b")
BIG = dict.fromkeys(range(5_000), 7)
TIGHT = replace(SMALL, batch_memory_max_bytes=300_000)


@pytest.fixture
def faults(tmp_path: Path) -> FaultyFileStore:
    return FaultyFileStore(LocalFileStore(str(tmp_path / "store")), remote=True)


@pytest.fixture
def driver(tmp_path: Path, faults: FaultyFileStore) -> SlotDriver:
    return SlotDriver(tmp_path, store=faults)


def two_snapshots(driver: SlotDriver) -> Process:
    """A worker that is alive, with a handle that names two and has no delta that is due for a fold."""
    process = driver.process()
    driver.play(process, BIG)
    while len(driver.committed.snapshots) < 2 or driver.committed.start == 0:
        driver.play_some(process, 1)
        driver.play(process, BIG)
    return process


def own_table(driver: SlotDriver, ref: SnapshotRef) -> str:
    """The largest that no other snapshot of the handle has."""
    others = {n for other in driver.committed.snapshots if other != ref for n in stored(driver, other)}
    paths = [driver.stored(name)[0] for name in stored(driver, ref) - others]
    return max(paths, key=os.path.getsize)


def stored(driver: SlotDriver, ref: SnapshotRef) -> set[str]:
    with open(driver.stored(ref.name)[0], "rb") as file:
        return set(Manifest.from_text(file.read(), ref.name).stored().values())


def lose_bases(driver: SlotDriver) -> None:
    for path in driver.local("bases/*"):
        shutil.rmtree(path)


def test_a_fold_goes_on_from_the_next_snapshot_where_the_newest_is_damaged(driver, caplog):
    process = two_snapshots(driver)
    named = driver.committed.snapshots
    flip(own_table(driver, named[0]))
    lose_bases(driver)
    with caplog.at_level(logging.WARNING):
        driver.play_some(process, 3 * driver.settings.snapshot_deltas_max)
    assert "is damaged" in caplog.text and "will be tried again" not in caplog.text
    assert driver.committed.snapshots[0] not in named and driver.local("bases/*")
    assert driver.check(process)
    assert driver.check(driver.process(OTHER_HOST, "local-b")) == "restore"


@pytest.mark.long
def test_a_batch_that_spills_goes_on_from_the_next_snapshot_where_the_newest_is_damaged(tmp_path, faults):
    driver = SlotDriver(tmp_path, store=faults, settings=TIGHT)
    process = two_snapshots(driver)
    driver.play_some(process, 1)
    flip(own_table(driver, driver.committed.snapshots[0]))
    lose_bases(driver)
    process.state.take_work()
    driver.play(process, *(dict.fromkeys(range(seed, 20_000, 7), seed) for seed in range(7)))
    assert process.state.take_work()[0].spills
    assert driver.check(driver.process()) in ("local_base", "fallback")


def test_past_the_hard_limit_damage_is_downloaded_again_after_the_back_off(driver, faults):
    process = two_snapshots(driver)
    tables = {os.path.basename(own_table(driver, ref)) for ref in driver.committed.snapshots}
    for ref in driver.committed.snapshots:
        flip(own_table(driver, ref))
    lose_bases(driver)
    driver.play_some(process, 4 * driver.settings.fold_deltas_max)
    for _ in range(2):
        driver.clock.ms += 300_000
        faults.operations.clear()
        driver.play_some(process, 4)
        fetched = [name for operation, name in faults.operations if operation == "fetch"]
        for table in tables:
            assert sum(name.endswith(table) for name in fetched) == 1, "once in four batches: the clock stands still"
