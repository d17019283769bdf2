"""Spark snapshots its state in the background, also what an attempt at a batch left that does not count in the end. The
next one leaves other versions; but Spark reads a snapshot before the deltas, for as long as there is no newer one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.spark_sessions import run_module

pytestmark = pytest.mark.spark
PROVIDERS = pytest.mark.parametrize("provider", ["default", pytest.param("RocksDB", marks=pytest.mark.slow)])


def told(folder: Path, provider: str, fails: str) -> dict[str, Any]:
    """The program checks that each row was made from the one before it."""
    done = run_module("tests.integration.stale_snapshot_query", str(folder), provider, fails, timeout_s=500)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert (found["again"], found["in all"]) == (2000, 3000)
    return found


@PROVIDERS
def test_a_snapshot_of_a_batch_that_was_not_committed_is_not_gone_on_from(tmp_path: Path, provider: str) -> None:
    found = told(tmp_path, provider, "batch")
    assert "it is there" in found["failed"], "Spark has snapshotted what the batch that failed left"


@PROVIDERS
def test_a_snapshot_of_a_task_that_was_tried_again_is_not_gone_on_from(tmp_path: Path, provider: str) -> None:
    """The batch is committed, and so is the version whose snapshot is of the attempt before."""
    assert told(tmp_path, provider, "task")["failed"] == ""
    snapshots = {path.name.partition(".")[0] for path in (tmp_path / "checkpoint").rglob("state/0/1/*.[sz][ni]*")}
    assert "4" not in snapshots, "it was there, or the task would not have failed, and is gone"


@PROVIDERS
def test_a_query_by_start_goes_on_from_no_snapshot_of_a_batch_that_was_not_committed(
    tmp_path: Path, provider: str
) -> None:
    assert "it is there" in told(tmp_path, provider, "started")["failed"]
