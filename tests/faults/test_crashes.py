"""Nothing lost, nothing twice, after kill -9: some pairs of step and who dies here, all of them by `make nightly`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.faults.crash_harness import SHORT, STEPS, impossible, run
from tests.faults.kill_plan import WHO, Coverage

KILLS = int(os.environ.get("HOLDFAST_KILLS", "1"))  # of each pair
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))

pytestmark = pytest.mark.spark


def prove(folder: Path, coverage: Coverage) -> None:
    differences = run(folder, coverage, SEED)
    told = f"seed {SEED}\n{coverage.table()}"
    print(told)
    assert not differences, told + "\n" + "\n".join(differences[:20])
    assert not coverage.missing, told


@pytest.mark.timeout(1200)
def test_kills_leave_no_difference(tmp_path: Path) -> None:
    prove(tmp_path / "stream", Coverage.of(SHORT))


@pytest.mark.slow
@pytest.mark.timeout(36_000)
def test_kills_at_every_step_leave_no_difference(tmp_path: Path) -> None:
    prove(tmp_path / "stream", Coverage(STEPS, WHO, impossible, KILLS))
