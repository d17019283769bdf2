"""Nothing lost, nothing twice, after kill -9 at every step. The short form; `make faults KILLS=20` is the long one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.faults.crash_harness import STEPS, run, show

KILLS = int(os.environ.get("HOLDFAST_KILLS", "1"))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(36_000)
def test_kills_at_every_step_leave_no_difference(tmp_path: Path) -> None:
    tally = run(tmp_path / "stream", STEPS, KILLS, seed=KILLS)
    print(show(tally))
    differences = [found for step in tally.values() for found in step.differences]
    assert not differences, "\n".join(differences[:20])
    assert not [step for step, found in tally.items() if found.missed], show(tally)
