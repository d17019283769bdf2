"""Spark's processes as they come and go: workers that end after each task, executors that die, a new host each run."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from tests.faults.crash_harness import Campaign
from tests.faults.program import Program, command_of
from tests.faults.strikes import CLUSTER
from tests.spark_sessions import lose_local_folder

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_workers_that_end_after_each_task(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path / "stream", seed=11)
    campaign.write_ahead(-4)
    assert campaign.finish("--conf", "spark.python.worker.reuse=false") == []


@pytest.mark.slow
def test_a_new_host_in_each_run(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path / "stream", seed=12)
    for batch in (-5, -2):
        campaign.write_ahead(batch)
        assert campaign.finish() == []
        lose_local_folder(campaign.folder)


@pytest.mark.slow
def test_an_executor_that_dies(tmp_path: Path) -> None:
    """Its slots move to the other executor."""

    def kill_one_executor(program: Program) -> None:
        assert program.wait_for(lambda: program.batch >= 1)
        executors = [p for p in program.processes() if "CoarseGrainedExecutorBackend" in " ".join(command_of(p))]
        assert len(executors) == 2
        executors[0].kill()
        psutil.wait_procs(executors[:1], timeout=10)

    campaign = Campaign(tmp_path / "stream", seed=13)
    campaign.write_ahead(0)
    assert campaign.finish(*CLUSTER, meanwhile=kill_one_executor) == []
