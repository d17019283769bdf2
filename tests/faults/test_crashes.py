"""Nothing lost, nothing twice, after kill -9: at some steps here, at all of them by `make faults KILLS=20`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.faults.crash_harness import SHORT, STEPS, impossible, run
from tests.faults.kill_plan import WHO, Coverage

KILLS = int(os.environ.get("HOLDFAST_KILLS", "0"))  # of each pair


@pytest.mark.spark
@pytest.mark.timeout(36_000)
def test_kills_leave_no_difference(tmp_path: Path) -> None:
    coverage = Coverage(STEPS, WHO, impossible, KILLS) if KILLS else Coverage.of(SHORT)
    differences = run(tmp_path / "stream", coverage, seed=KILLS)
    print(coverage.table())
    assert not differences, "\n".join(differences[:20])
    assert not coverage.missing, coverage.table()
