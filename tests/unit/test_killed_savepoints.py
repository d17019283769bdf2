"""A process that makes a savepoint is killed: what it leaves in the folder, and who removes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.processors import TOTALS, RunningTotal
from tests.spark_files import SparkFiles

import holdfast as hf
from holdfast._core import xxh64_file
from holdfast.cli import main
from holdfast.clock import new_id
from holdfast.errors import InvalidRequest
from holdfast.savepoint import writing
from holdfast.savepoint.manifest import CLAIMED, DISPOSED
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


def made_checkpoint(folder: Path) -> Path:
    spark = SparkFiles(folder / "checkpoint", QUERY_ID)
    with Harness(RunningTotal(), "user", "user string, amount long", TOTALS, name="totals", folder=folder) as harness:
        harness.process([{"user": "ada", "amount": 1}])
        handle = harness.snapshot().handle
        assert handle is not None
        spark.commit(0, [handle.to_text()])
    return folder / "checkpoint"


def old(path: Path) -> Path:
    """A file that was last written some hours ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    written = time.time() - 2 * 3600
    os.utime(path, (written, written))
    return path


@pytest.mark.long
def test_a_killed_attempt_leaves_nothing_for_ever(tmp_path: Path) -> None:
    """What it was writing had names that nobody lists: the next savepoint in the folder kept it, its disposal too."""
    checkpoint = made_checkpoint(tmp_path)
    place = tmp_path / "saved"
    command = [sys.executable, "-c", _KILLED, str(checkpoint), str(place)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    drafts = list(place.glob(".tmp-*"))
    assert drafts
    for draft in drafts:
        old(draft)
    saved = hf.Savepoint.create(checkpoint=checkpoint, to=place)
    assert not list(place.rglob(".tmp-*")) and saved.verify() == ()
    old(drafts[0])  # of a version that left them
    (table,) = place.rglob("*.parquet")
    old(table.with_name(drafts[0].name))
    hf.Savepoint.dispose(place)
    assert drafts[0].exists()
    hf.Savepoint.dispose(place, apply=True)
    assert not place.exists()


def test_what_another_attempt_is_writing_stays_and_the_later_one_is_told_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, place = made_checkpoint(tmp_path), tmp_path / "saved"

    def another_ends(path: str) -> Any:
        monkeypatch.setattr(writing, "xxh64_file", xxh64_file)
        hf.Savepoint.create(checkpoint=checkpoint, to=place)
        return xxh64_file(path)

    monkeypatch.setattr(writing, "xxh64_file", another_ends)
    with pytest.raises(InvalidRequest, match="another attempt at a savepoint writes into"):
        hf.Savepoint.create(checkpoint=checkpoint, to=place)
    assert hf.Savepoint(place).verify() == () and not list(place.rglob(".tmp-*"))


def test_a_disposal_leaves_what_is_being_written_below_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint, place = made_checkpoint(tmp_path), tmp_path / "saved"
    hf.Savepoint.create(checkpoint=checkpoint, to=place)

    def meanwhile(path: str) -> Any:
        old(Path(path))  # by a clock that is wrong
        hf.Savepoint.dispose(place, apply=True)
        return xxh64_file(path)

    monkeypatch.setattr(writing, "xxh64_file", meanwhile)
    assert hf.Savepoint.create(checkpoint=checkpoint, to=place / "monday").verify() == ()
    assert not (place / "savepoint.json").exists()


def test_files_of_others_and_young_ones_stay(tmp_path: Path) -> None:
    checkpoint, place = made_checkpoint(tmp_path), tmp_path / "saved"
    draft = f".tmp-{new_id()}"
    place.mkdir()
    (place / draft).touch()
    stay = [place / draft, *(old(place / name) for name in (".tmp-notes.txt", f"mine/{draft}", f"{draft}.txt"))]
    linked = place / f".tmp-{new_id()}"
    linked.symlink_to(old(tmp_path / "elsewhere"))
    os.utime(linked, (0, 0), follow_symlinks=False)
    (place / f".tmp-{new_id()}").mkdir()
    before = sorted(place.rglob(".tmp-*"))
    hf.Savepoint.create(checkpoint=checkpoint, to=place)
    assert sorted(place.rglob(".tmp-*")) == before
    hf.Savepoint.dispose(place, apply=True)
    assert sorted(place.rglob(".tmp-*")) == before and all(path.exists() for path in stay)


def test_nobody_is_told_to_delete_what_no_killed_attempt_left(tmp_path: Path) -> None:
    """Of the state of a query that ran it was said that it may be deleted."""
    checkpoint, place = made_checkpoint(tmp_path), tmp_path / "saved"

    def refused(to: Path) -> str:
        arguments = ["--checkpoint", str(checkpoint), "--state", str(tmp_path / "state"), "--to", str(to)]
        told = CliRunner().invoke(main, ["savepoint", "create", *arguments])
        assert told.exit_code == 1
        return told.output

    for to in (tmp_path / "state", checkpoint, tmp_path):
        assert "files already" in refused(to) and "Choose another folder" in refused(to)
        assert "deleted" not in refused(to)
    hf.Savepoint.create(checkpoint=checkpoint, to=place)
    for name in (CLAIMED, DISPOSED):
        next(place.glob("*.json")).rename(place / name)
        assert "holds a savepoint already" in refused(place) and "deleted" not in refused(place)
    (place / DISPOSED).unlink()
    assert "may be deleted" in refused(place)
    (place / "operators" / "notes.txt").write_text("mine")
    assert "deleted" not in refused(place)
