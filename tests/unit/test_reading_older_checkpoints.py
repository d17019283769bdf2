"""Checkpoints that earlier releases wrote under real Spark, killed at each step, are read: by what their sinks show.

Spark's own files in them are compressed, and its rows laid out, by Spark.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import holdfast as hf

OLDER = Path(__file__).resolve().parents[1] / "golden" / "older"


def _shown(folder: Path, batch_id: int) -> dict[str, dict[str, int]]:
    """The last row of each user that the file sink shows up to a batch: number, total and rows so far."""
    files = [path for path in (folder / "out").glob("*.parquet") if int(path.name[:12]) <= batch_id]
    rows = [row for path in files for row in pq.read_table(path).to_pylist()]
    return {row["user"]: row for row in sorted(rows, key=lambda row: int(row["seq"]))}


@pytest.mark.parametrize("archive", sorted(OLDER.glob("*.tar.gz")), ids=lambda path: path.name.partition(".")[0])
def test_every_committed_batch_is_what_its_sink_shows(tmp_path: Path, archive: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    with hf.Checkpoint(tmp_path / "checkpoint") as checkpoint:
        assert checkpoint.verify().whole
        versions = checkpoint.versions()
        assert len(versions) > 3
        for version in versions:
            shown = _shown(tmp_path, version.batch_id)
            for state, column in (("last", "number"), ("total", "total"), ("rows", "rows")):
                found = checkpoint.read("draws", state, batch_id=version.batch_id).read_all()
                values = dict(zip(found["user"].to_pylist(), found["value"].to_pylist()))
                assert values == {user: row[column] for user, row in shown.items()}
