"""Nothing lost, nothing twice, after kill -9: at some steps here, at all of them by `make faults KILLS=20`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.faults.crash_harness import SHORT, STEPS, run, show

KILLS = int(os.environ.get("HOLDFAST_KILLS", "0"))  # at each step


@pytest.mark.spark
@pytest.mark.timeout(36_000)
def test_kills_leave_no_difference(tmp_path: Path) -> None:
    tally = run(tmp_path / "stream", STEPS if KILLS else SHORT, KILLS or 1, seed=KILLS)
    print(show(tally))
    differences = [found for step in tally.values() for found in step.differences]
    assert not differences, "\n".join(differences[:20])
    assert not [step for step, found in tally.items() if found.missed], show(tally)
