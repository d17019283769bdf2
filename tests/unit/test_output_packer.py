"""A slot's output on its way through Spark: all of it arrives, in order, and no array outgrows its offsets."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from tests.unit.test_pack import batches, plan, slot_rows

from holdfast.errors import InvalidRequest
from holdfast.spark import blobs
from holdfast.spark.output import OutputPacker, Unpacking, unpack_function
from holdfast.spark.pack import Pack

ROWS = pa.schema([("number", pa.int64()), ("text", pa.string())])


def output(first: int, rows: int, text_bytes: int = 100) -> pa.RecordBatch:
    numbers = range(first, first + rows)
    return pa.record_batch([list(numbers), [f"{n:0{text_bytes}}" for n in numbers]], schema=ROWS)


@pytest.fixture
def small_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "ARRAY_BYTES_MAX", 20_000)


@pytest.mark.usefixtures("small_arrays")
def test_output_past_what_one_array_holds_comes_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.spark.output.prepare_worker_process", lambda: None)
    packer = OutputPacker(3, blob_max_bytes=4_000, arrow_rows_max=100)
    frames = [frame for batch in (output(0, 2_000), output(2_000, 5)) for frame in packer.add(batch)]
    frames += list(packer.finish())
    assert len(frames) > 10
    sizes = [sum(len(blob) for blob in frame["blob"] if blob is not None) for frame in frames]
    assert max(sizes) <= 20_000
    passed = [pa.record_batch({"blob": pa.array(frame["blob"], pa.binary())}) for frame in frames]
    found = pa.Table.from_batches(list(unpack_function(Unpacking("totals", (("main", ROWS),)))(iter(passed))))
    assert found["number"].to_pylist() == list(range(2_005))


@pytest.mark.usefixtures("small_arrays")
def test_input_past_what_one_array_holds_comes_in_several() -> None:
    packed = list(Pack(plan(blob_max_bytes=4_000), (100, 101), 0).run(batches(3_000, 3_000)))
    assert len(packed) > 3
    assert max(batch.column(2).nbytes for batch in packed) < 25_000
    found = slot_rows(packed)
    amounts = [amount for rows in found.values() for _, batch in rows for amount in batch["amount"].to_pylist()]
    assert sorted(amounts) == list(range(3_000))
    for rows in found.values():
        assert [blob.sequence for blob, _ in rows] == list(range(len(rows)))


@pytest.mark.usefixtures("small_arrays")
def test_one_row_that_no_array_holds_is_refused_before_spark_sees_it() -> None:
    packer = OutputPacker(3, blob_max_bytes=4_000, arrow_rows_max=100)
    with pytest.raises(InvalidRequest, match="output of slot 3: a row has 3.* bytes packed; at most 20000"):
        list(packer.add(output(0, 1, text_bytes=30_000)))


def in_one_buffer(rows: pa.RecordBatch) -> pa.RecordBatch:
    """As a batch comes out of a packed row: each column is a part of one buffer."""
    return pa.ipc.read_record_batch(rows.serialize(), rows.schema)


@pytest.mark.parametrize(
    "piece",
    [
        lambda: output(0, 10_000, text_bytes=1_000).slice(9_999),
        lambda: in_one_buffer(output(0, 10_000, text_bytes=1_000)).slice(9_999),
        lambda: in_one_buffer(output(0, 10, text_bytes=1_000_000)).select(["number"]),
    ],
    ids=["slice", "slice of a packed row", "column of a packed row"],
)
def test_rows_that_wait_keep_nothing_else_in_memory(piece: Callable[[], pa.RecordBatch]) -> None:
    """The last row of each key waited with the 64 MiB that it had been cut from, of each call of the processor."""
    packer = OutputPacker(3, blob_max_bytes=1 << 20, arrow_rows_max=100)
    before = pa.total_allocated_bytes()
    for _ in range(3):
        assert not list(packer.add(piece()))
    assert pa.total_allocated_bytes() - before < 100_000
    assert sum(len(frame) for frame in packer.finish())
