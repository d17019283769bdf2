"""Files that commands write at a user's word: whole, or not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.cli.checkpoints import give
from holdfast.errors import Corrupt, Unavailable


@pytest.mark.parametrize("error", [Corrupt("a table is damaged"), KeyboardInterrupt()])
def test_a_command_that_fails_leaves_no_file_that_looks_whole(tmp_path: Path, error: BaseException) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [1]})
        raise error

    reader = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), rows())
    with pytest.raises(type(error)):
        give(reader, 10, str(tmp_path / "n.parquet"), False)
    assert not list(tmp_path.iterdir())
    whole = pa.RecordBatchReader.from_batches(reader.schema, [pa.record_batch({"n": [1, 2]})])
    give(whole, 10, str(tmp_path / "n.parquet"), True)
    assert [path.name for path in tmp_path.iterdir()] == ["n.parquet"]
    assert pq.read_table(tmp_path / "n.parquet")["n"].to_pylist() == [1, 2]
    (tmp_path / "taken").write_text("mine")

    def slow() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [1]})
        (tmp_path / "later").write_text("mine")

    for name in ("taken", "later"):
        with pytest.raises(Unavailable, match="File exists"):
            give(pa.RecordBatchReader.from_batches(reader.schema, slow()), 10, str(tmp_path / name), False)
        assert (tmp_path / name).read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 3
