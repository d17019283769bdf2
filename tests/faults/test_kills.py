"""kill -9 at every step of a batch, of a fold, of a snapshot, of tidying up: nothing lost, nothing twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.checkpoint_crash_worker import load
from tests.faults.program import FaultFile
from tests.slot_checkpoint import age

from holdfast.checkpoint import Host
from holdfast.fault_points import POINTS

OTHER_HOST = Host("host-b", "machine-b", "boot-b")
BATCHES = 60


def work(folder, *, local="local-a", batches=BATCHES, spills=False, point=None):
    fault = FaultFile(Path(folder, "fault"))
    if point:
        fault.arm(*point)
    environment = {**os.environ, **fault.environment}
    command = [sys.executable, "-m", "tests.checkpoint_crash_worker", folder, local, str(batches)]
    return subprocess.run(
        [*command, "spills" if spills else ""], env=environment, capture_output=True, text=True, timeout=300
    )


def check(folder, *, spills=False, local="local-a", way="local_base"):
    driver = load(folder, spills)
    assert driver.next_batch == BATCHES
    assert driver.check(driver.process(local=local)) == way
    assert driver.local("work-*") == []
    assert driver.check(driver.process(OTHER_HOST, "local-z")) == "restore"


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("point", [point for point in POINTS if point not in ("during_restore", "during_spill")])
def test_a_kill_at_any_step_loses_nothing_and_repeats_nothing(tmp_path, point, count):
    folder = str(tmp_path)
    killed = work(folder, point=(point, count))
    assert killed.returncode == -9, (killed.returncode, killed.stderr[-2000:])
    finished = work(folder)
    assert finished.returncode == 0, finished.stderr[-2000:]
    check(folder)


def test_a_kill_in_a_restore_leaves_a_restore(tmp_path):
    folder = str(tmp_path)
    assert work(folder, batches=30).returncode == 0
    assert work(folder, local="local-b", point=("during_restore", 1)).returncode == -9
    finished = work(folder, local="local-b")
    assert finished.returncode == 0, finished.stderr[-2000:]
    check(folder, local="local-b")


def test_a_kill_in_a_spill_leaves_nothing_of_it(tmp_path):
    folder = str(tmp_path)
    assert work(folder, spills=True, point=("during_spill", 3)).returncode == -9
    finished = work(folder, spills=True)
    assert finished.returncode == 0, finished.stderr[-2000:]
    check(folder, spills=True)


def test_what_killed_uploads_left_is_removed_after_the_grace_time(tmp_path):
    folder = str(tmp_path)
    assert work(folder, point=("before_manifest", 2)).returncode == -9
    assert work(folder).returncode == 0
    driver = load(folder, False)
    strays = set(driver.stored("sst/*")) - files_named(driver)
    assert strays
    day_ms = 86_400_000

    class Tomorrow:
        def now_ms(self):
            return driver_clock.now_ms() + day_ms

        def elapsed_ms(self):
            return driver_clock.elapsed_ms()

    driver_clock, driver.clock = driver.clock, Tomorrow()
    age(tmp_path, days=1)  # storage has a clock of its own
    driver.play_some(driver.process(), 20)
    assert not strays & set(driver.stored("sst/*"))
    assert files_named(driver) <= set(driver.stored("sst/*"))
    assert driver.check(driver.process(OTHER_HOST, "local-z")) == "restore"


def files_named(driver):
    """The paths of the files that a snapshot of the driver's handle names."""
    snapshots = driver.process().state._maintenance._snapshots
    names = set().union(*(snapshots.files_named_by(snapshot.name) for snapshot in driver.handle.snapshots))
    (folder,) = {path.rpartition("/sst/")[0] for path in driver.stored("sst/*")}
    return {f"{folder}/{name}" for name in names}
