"""Spark snapshots its state in the background, also that of a batch which is never committed. The batch runs again, and
leaves other versions; but Spark reads a snapshot before the deltas, for as long as there is no newer one.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.spark_sessions import run_module

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("provider", ["default", "RocksDB"])
def test_a_snapshot_of_a_batch_that_was_not_committed_is_not_gone_on_from(tmp_path: Path, provider: str) -> None:
    """The program checks that each row was made from the one before it."""
    done = run_module("tests.integration.stale_snapshot_query", str(tmp_path), provider, timeout_s=500)
    told = json.loads(done.stdout.splitlines()[-1])
    assert "it is there" in told["failed"], "Spark has snapshotted what the batch that failed left"
    assert (told["again"], told["in all"]) == (2000, 3000)
