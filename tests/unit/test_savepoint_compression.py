"""What of a savepoint's tables is compressed, and what an attempt that failed leaves in its folder."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.full_disk import files_of_at_most

from holdfast.errors import Unavailable
from holdfast.savepoint import StateColumns, TableWriter
from holdfast.savepoint.compression import codecs
from holdfast.savepoint.writing import draft_path
from holdfast.storage import open_file_store

ROWS = 3000


def random_bytes(rows: int, size: int) -> pa.Array:
    data = np.random.default_rng(1).bytes(rows * size)
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * size)
    return pa.Array.from_buffers(pa.binary(), rows, [None, offsets, pa.py_buffer(data)])


def test_what_does_not_get_smaller_is_left_as_it_is_and_all_else_is_compressed() -> None:
    numbers = pa.array(range(ROWS))
    rows = pa.table(
        {
            "random": random_bytes(ROWS, 100),
            "text": pa.array([f"the same again, {n}" for n in range(ROWS)]),
            "few": pa.array([b"x", *[None] * (ROWS - 1)]),
            "number": numbers,
            "a.b": random_bytes(ROWS, 16),
            "nested": pa.StructArray.from_arrays([numbers, random_bytes(ROWS, 10)], ["n", "bytes"]),
        }
    )
    assert codecs(rows) == {
        "random": "none",
        "text": "zstd",
        "few": "zstd",
        "number": "zstd",
        "a.b": "none",
        "nested.n": "zstd",
        "nested.bytes": "zstd",
    }


def test_the_first_rows_do_not_decide_alone() -> None:
    random, text = random_bytes(ROWS, 100), pa.array([b"the same again" * 10] * 40 * ROWS, pa.binary())
    assert codecs(pa.table({"a": pa.chunked_array([random, text])})) == {"a": "zstd"}
    assert codecs(pa.table({"a": random.slice(17, 2000)})) == {"a": "none"}
    assert codecs(pa.table({"a": pa.array([], pa.binary())})) == {"a": "zstd"}


def columns() -> StateColumns:
    return StateColumns.of(pa.schema([("key", pa.int64())]), "value", pa.schema([("value", pa.binary())]), None)


@pytest.fixture
def batch() -> pa.RecordBatch:
    schema = columns().schema
    given = {
        "key": pa.array(range(ROWS)),
        "value": random_bytes(ROWS, 100),
        "key_group": pa.array([0] * ROWS, pa.uint16()),
    }
    return pa.RecordBatch.from_arrays([given.get(f.name, pa.nulls(ROWS, f.type)) for f in schema], schema=schema)


def test_a_table_is_written_where_the_savepoint_is_and_nothing_is_left_of_one_that_failed(
    tmp_path: Path, batch: pa.RecordBatch
) -> None:
    store = open_file_store(str(tmp_path / "saved"))
    for fails in (True, False):
        path = draft_path(store)
        assert path is not None and os.path.dirname(path) == str(tmp_path / "saved")
        try:
            with TableWriter(path, "sums", "total", columns()) as writer:
                writer.write(batch)
                if fails:
                    writer.end()
                    assert os.path.exists(path)
                    raise Unavailable("the storage of the checkpoint is gone")
                file = writer.finish(store, 3, (0, 1))
        except Unavailable:
            assert os.listdir(tmp_path / "saved") == []
    assert file is not None and file.rows == ROWS
    assert [one.name for one in store.list("")] == ["operators/sums/total/slot-00003.parquet"]
    assert os.listdir(tmp_path / "saved") == ["operators"]
    made = pq.read_table(tmp_path / "saved/operators/sums/total/slot-00003.parquet")
    assert made.column("value").combine_chunks().equals(batch.column("value"))


@pytest.mark.parametrize("size_bytes", [100, 700, 1000])  # as rows are written, and as its footer is
def test_a_disk_that_is_full_as_a_table_ends_is_told_and_leaves_nothing(
    tmp_path: Path, batch: pa.RecordBatch, size_bytes: int
) -> None:
    store = open_file_store(str(tmp_path / "saved"))
    path = draft_path(store)
    assert path is not None
    with pytest.raises(Unavailable, match="free space there"):
        with files_of_at_most(size_bytes), TableWriter(path, "sums", "total", columns()) as writer:
            writer.write(batch.slice(0, 1))
            writer.end()
    assert os.listdir(tmp_path / "saved") == []
