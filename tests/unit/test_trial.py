"""A place that cannot be a folder is told on the driver, with what is there, before anything is made."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.commit.sink import CommitLimits
from holdfast.errors import InvalidRequest
from holdfast.storage import open_file_store, try_out


def test_a_folder_need_not_be_there_yet(tmp_path: Path) -> None:
    try_out(open_file_store(f"{tmp_path}"))
    try_out(open_file_store(f"{tmp_path}/a/b"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "/a/b"])
def test_a_file_where_a_folder_should_be_is_told(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        InvalidRequest, match=f"{tmp_path}/file{below}: expected a folder.* found that {tmp_path}/file is a file"
    ):
        try_out(open_file_store(f"{tmp_path}/file{below}"))


def test_a_link_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(InvalidRequest, match="link is a link that leads nowhere"):
        try_out(open_file_store(f"{tmp_path}/link/state"))


def test_a_file_sink_whose_path_is_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").touch()
    sink = hf.FileSink(f"{tmp_path}/rows.parquet")
    with pytest.raises(InvalidRequest, match="FileSink 'files': path: .*rows.parquet is a file"):
        sink.check(pa.schema([("x", pa.int64())]), CommitLimits(1_000, 1_000, 1_000))
