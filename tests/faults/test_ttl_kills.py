"""kill -9 while folds clean up what has expired: nothing that lives is lost, nothing that expired comes back."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.checkpoint_driver import SlotDriver
from tests.faults.program import FaultFile
from tests.ttl_crash_worker import LIFETIMES, START_MS, TTL_MS, committed, compare, time_of

from holdfast.checkpoint import BatchTime, Host

OTHER_HOST = Host("host-b", "machine-b", "boot-b")
BATCHES = 60
KILLS = int(os.environ.get("HOLDFAST_KILLS", "1"))  # at each step
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))


def work(folder: str, point: tuple[str, int] | None = None) -> subprocess.CompletedProcess[str]:
    fault = FaultFile(Path(folder, "fault"))
    if point:
        fault.arm(*point)
    command = [sys.executable, "-m", "tests.ttl_crash_worker", folder, os.path.join(folder, "local-a"), str(BATCHES)]
    environment = {**os.environ, **fault.environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.timeout(36_000)
@pytest.mark.parametrize(
    ("point", "times"), [("during_fold", 9), ("after_fold", 9), ("after_delta", 50), ("before_manifest", 3)]
)
def test_a_kill_while_a_fold_cleans_up_brings_nothing_back(tmp_path: Path, point: str, times: int) -> None:
    """``times``: so often a run comes there at least."""
    draw = random.Random(f"{SEED} {point}")
    for number in range(KILLS):
        folder = str(tmp_path / str(number))
        os.mkdir(folder)
        count = draw.randint(1, times)
        told = f"seed {SEED}, kill {number}, the {count}th time"
        killed = work(folder, point=(point, count))
        assert killed.returncode == -9, (told, killed.returncode, killed.stderr[-2000:])
        finished = work(folder)
        assert finished.returncode == 0, told + finished.stderr[-2000:]
        check(folder)


def check(folder: str) -> None:
    """The newest base of the machine that it ran on, and a restore elsewhere."""
    handle = committed(folder)
    assert handle is not None
    driver = SlotDriver(folder)
    for host, local in ((None, "local-a"), (OTHER_HOST, "local-z")):
        process = driver.process(host, local) if host else driver.process(local=local)
        store = process.state.open(process.state.whole(handle))
        process.state.begin(BATCHES, None, LIFETIMES, BatchTime(time_of(BATCHES)))
        compare(store, BATCHES)
        process.state.abort()


def test_a_version_that_is_taken_over_has_the_cutoff_that_its_output_was_made_with(tmp_path: Path) -> None:
    """Its declaration may have changed since: what the visible output knows as expired must not come back."""
    driver = SlotDriver(tmp_path)
    process = driver.process()
    store = process.state.open(None)
    process.state.begin(0, "0" * 32, LIFETIMES, BatchTime(START_MS))
    first = process.state.prepare()
    process.state.open(first)
    process.state.begin(1, "1" * 32, LIFETIMES, BatchTime(START_MS + 5 * TTL_MS))
    prepared = process.state.prepare()
    assert prepared.expiry[0].cutoff_ms == START_MS + 4 * TTL_MS
    other = driver.process(OTHER_HOST, "local-z")
    adopted = other.state.adopt(first, 1, "1" * 32)
    assert adopted is not None
    assert adopted.expiry == prepared.expiry
    del store
