"""Checkpoints that earlier releases wrote under real Spark, killed at each step, are read: by what their sinks show.

Spark's own files in them are compressed, and its rows laid out, by Spark.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.by_key import by_key
from tests.older_archives import OLDER, name_of, unpack

import holdfast as hf
from holdfast.errors import Corrupt


def _shown(folder: Path, batch_id: int) -> dict[str, dict[str, int]]:
    """The last row of each user that the file sink shows up to a batch: number, total and rows so far."""
    files = [path for path in (folder / "out").glob("*.parquet") if int(path.name[:12]) <= batch_id]
    rows = [row for path in files for row in pq.read_table(path).to_pylist()]
    return {row["user"]: row for row in sorted(rows, key=lambda row: int(row["seq"]))}


@pytest.mark.parametrize("archive", OLDER, ids=name_of)
def test_every_committed_batch_is_what_its_sink_shows(tmp_path: Path, archive: Path) -> None:
    unpack(archive, tmp_path)
    with hf.Checkpoint(tmp_path / "checkpoint") as checkpoint:
        assert checkpoint.verify().whole
        versions = checkpoint.versions()
        assert len(versions) > 3
        for version in versions:
            shown = _shown(tmp_path, version.batch_id)
            for state, column in (("last", "number"), ("total", "total"), ("rows", "rows")):
                found = checkpoint.read("draws", state, batch_id=version.batch_id).read_all()
                values = by_key(found)
                assert values == {user: row[column] for user, row in shown.items()}


@pytest.mark.long
@pytest.mark.parametrize("archive", ["999c060-idle", "999c060-mid_commit"])
def test_a_copy_that_was_cut_off_is_never_whole_with_less(tmp_path: Path, archive: str) -> None:
    """After each file of Spark's, in the order in which rsync copies: files of a folder before the folders in it."""
    unpack(next(path for path in OLDER if name_of(path) == archive), tmp_path)

    def rows() -> dict[str, int]:
        with hf.Checkpoint(tmp_path / "checkpoint", state=tmp_path / "state") as checkpoint:
            found = checkpoint.read("draws", "total").read_all()
            return by_key(found)

    def is_whole() -> bool:
        with hf.Checkpoint(tmp_path / "checkpoint", state=tmp_path / "state") as checkpoint:
            whole = checkpoint.verify().whole
            assert whole or any(version.problem for version in checkpoint.versions())
            return whole

    # What was never committed is no reason: an operator that was renamed before its first batch was done.
    (query,) = (tmp_path / "state").iterdir()
    stray = query / "renamed" / "slot-00000" / "delta" / f"{1:012d}-{7:032x}.arrow"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"")
    newest = max(int(path.name) for path in (tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    whole, refused = rows(), 0
    assert len(whole) > 5
    copied = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    for last in sorted(copied, key=_in_order_of_rsync, reverse=True):
        if "metadata" in last.name and last.parent == tmp_path / "checkpoint":
            break  # before it there is no checkpoint
        last.unlink()
        try:
            assert rows() == whole
        except Corrupt:
            refused += 1
            assert not is_whole()
            with pytest.raises(Corrupt):
                hf.Savepoint.create(
                    checkpoint=tmp_path / "checkpoint", state=tmp_path / "state", batch_id=newest, to=tmp_path / "to"
                )
        if not any((tmp_path / "checkpoint" / "state").rglob("*.*")):
            with pytest.raises(Corrupt, match="a copy that was cut off"):
                rows()
    assert refused > 10
    with pytest.raises(Corrupt, match="lacks commits/: .*'draws'.*a copy that was cut off"):
        rows()


def _in_order_of_rsync(path: Path) -> list[tuple[bool, bytes]]:
    """By the names of folders, but files come before the folders beside them."""
    return [*((True, part.encode()) for part in path.parts[:-1]), (False, path.name.encode())]
