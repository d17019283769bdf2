"""A process that makes a savepoint is killed: what it leaves in the folder, and who removes it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.processors import TOTALS, RunningTotal
from tests.spark_files import SparkFiles

import holdfast as hf
from holdfast.testing.harness import QUERY_ID, Harness

# As the first table has been written, and has no name yet.
_KILLED = """
import os, signal, sys
import holdfast as hf
from holdfast.savepoint import writing
checkpoint, to = sys.argv[1:]
writing.xxh64_file = lambda path: os.kill(os.getpid(), signal.SIGKILL)
hf.Savepoint.create(checkpoint=checkpoint, to=to)
"""


def test_a_killed_attempt_leaves_nothing_for_ever(tmp_path: Path) -> None:
    """What it was writing had names that nobody lists: the next savepoint in the folder kept it, its disposal too."""
    spark = SparkFiles(tmp_path / "checkpoint", QUERY_ID)
    with Harness(RunningTotal(), "user", "user string, amount long", TOTALS, name="totals", folder=tmp_path) as harness:
        harness.process([{"user": "ada", "amount": 1}])
        handle = harness.snapshot().handle
        assert handle is not None
        spark.commit(0, [handle.to_text()])
    place = tmp_path / "saved"
    command = [sys.executable, "-c", _KILLED, str(tmp_path / "checkpoint"), str(place)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    drafts = list(place.glob(".tmp-*"))
    assert drafts
    saved = hf.Savepoint.create(checkpoint=tmp_path / "checkpoint", to=place)
    assert not list(place.rglob(".tmp-*")) and saved.verify() == ()
    drafts[0].touch()  # of a version that left them
    hf.Savepoint.dispose(place)
    assert drafts[0].exists()
    hf.Savepoint.dispose(place, apply=True)
    assert not place.exists()
