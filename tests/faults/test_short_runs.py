"""A query that starts anew for each batch, in a fresh container or on one machine, as a scheduler does: nothing grows
for ever.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.checkpoint_driver import SMALL, SlotDriver

from holdfast.checkpoint import Background, StoredHandle


class NeverRuns(Background):
    """The background of a process that leaves at once."""

    def submit(self, key, job):
        pass


class EndsEach(Background):
    """The background of a process that stays until all is done, and then is gone with its disk."""


@pytest.mark.parametrize("background", [NeverRuns, EndsEach])
@pytest.mark.parametrize("pause_ms", [60_000, 86_400_000])
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("is_same_machine", [False, True])
def test_sixty_runs_of_a_batch_or_two_each(tmp_path, background, pause_ms, batches, is_same_machine):
    driver = SlotDriver(tmp_path)
    files, deltas = [], []
    for i in range(60):
        if i % batches == 0:
            process = driver.process(local="local" if is_same_machine else f"local-{i}", background=background())
        driver.play(process, {i % 7: i, 100 + i: 1}, rest=False)
        assert process.state._background.drain(240)
        if (i + 1) % batches == 0:
            process.state._background.stop()
        driver.pass_time(pause_ms)
        files.append(len(driver.stored("*/*")))
        deltas.append(len(driver.committed.deltas))
    most = 4 * SMALL.snapshot_deltas_max
    assert max(deltas) <= most, deltas
    assert len(driver.committed.snapshots) == 2
    # Those of the handle, and of what the last named snapshot superseded, which may be rolled back to.
    assert len(driver.stored("delta/*")) <= most + 2 * SMALL.snapshot_deltas_max + SMALL.retained_batches
    assert max(files) <= 90, files  # 60 deltas and 57 snapshots of five files each, when none was ever named
    # And what is named can be restored, from the newest and from the one before.
    assert driver.check(driver.process(local="local-last")) == "restore"
    os.unlink(driver.stored(driver.committed.snapshots[0].name)[0])
    assert driver.check(driver.process(local="local-fallback")) == "fallback"


def test_runs_of_processes_that_end_without_a_word(tmp_path):
    """The same with processes that are left by os._exit right after their batch, as Spark's idle workers are."""
    text = ""
    for i in range(16):
        done = subprocess.run(
            [sys.executable, "-c", _ONE_BATCH, str(tmp_path), str(i), text],
            capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=300,
        )  # fmt: skip
        assert done.returncode == 7, done.stderr
        text = done.stdout
    handle = SlotDriver(tmp_path).process().state.whole(StoredHandle.from_text(text))
    assert len(handle.snapshots) == 2
    assert len(handle.deltas) <= 4 * 3


_ONE_BATCH = """
import os, sys
from dataclasses import replace
from tests.checkpoint_driver import SMALL, SlotDriver
from holdfast.checkpoint import StoredHandle

folder, number, text = sys.argv[1], int(sys.argv[2]), sys.argv[3]
driver = SlotDriver(folder, settings=replace(SMALL, snapshot_deltas_max=3, fold_deltas_max=3))
driver.next_batch = number
process = driver.process(local=f"local-{number}")
driver.handle = process.state.whole(StoredHandle.from_text(text)) if text else None
print(process.run(driver.handle, number, [{number: 1, 5: 2}]).to_text(), end="", flush=True)
os._exit(7)
"""
