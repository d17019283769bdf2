"""Packed rows: what is sealed opens, and what was torn or changed never does. The bytes: docs/formats/blob.md."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import _core
from holdfast.errors import Corrupt, Unavailable
from holdfast.spark.blobs import HEADER_BYTES, Blob, Payload, seal
from holdfast.spark.spool import BlobSpool

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64())])


def batch(start: int, rows: int) -> pa.RecordBatch:
    return pa.record_batch(
        [[f"u{i}" for i in range(start, start + rows)], list(range(start, start + rows))], schema=SCHEMA
    )


def payload(partition: int, sequence: int, rows: int = 10) -> Payload:
    return Payload(partition, sequence, rows, batch(1000 * partition + 10 * sequence, rows).serialize())


def one_blob(partition: int = 3, sequence: int = 7, rows: int = 10) -> bytes:
    return seal([payload(partition, sequence, rows)], [0])[0].as_py()


def test_a_blob_opens_as_it_was_sealed() -> None:
    blob = Blob.open(pa.py_buffer(one_blob()), "here")
    assert (blob.map_partition, blob.sequence, blob.rows) == (3, 7, 10)
    assert blob.read(SCHEMA).equals(batch(3070, 10))


def test_the_header_is_as_documented() -> None:
    data = seal([replace(payload(5, 9), channel=3)], [0])[0].as_py()
    magic, version, channel, header_bytes, partition, rows, sequence, length, checksum = struct.unpack_from(
        "<4sBBHIIQQQ", data
    )
    assert (magic, version, channel, header_bytes) == (b"HFBL", 2, 3, 40)
    assert (partition, rows, sequence, length) == (5, 10, 9, len(data) - 40)
    assert checksum == _core.xxh64(data[40:], _core.xxh64(data[:32]))


def versioned(version: int, channel: int) -> pa.Buffer:
    """A blob whose header says another version, with a right checksum."""
    data = bytearray(one_blob())
    data[4:6] = bytes([version, channel])
    data[32:40] = _core.xxh64(bytes(data[40:]), _core.xxh64(bytes(data[:32]))).to_bytes(8, "little")
    return pa.py_buffer(bytes(data))


def test_a_blob_of_version_1_is_one_of_channel_0() -> None:
    blob = Blob.open(versioned(1, 0), "here")
    assert (blob.channel, blob.map_partition, blob.sequence) == (0, 3, 7)
    assert blob.read(SCHEMA).equals(batch(3070, 10))


@pytest.mark.parametrize(("version", "flags"), [(0, 0), (1, 1), (3, 0)])
def test_a_blob_of_an_unknown_version_is_refused(version: int, flags: int) -> None:
    with pytest.raises(Corrupt, match="version 1 or 2; driver and executors must run the same release"):
        Blob.open(versioned(version, flags), "here")


def test_ballast_follows_its_blob_as_nulls() -> None:
    sealed = seal([payload(0, 0), payload(0, 1), payload(0, 2)], [2, 0, 3])
    assert [value.is_valid for value in sealed] == [True, False, False, True, True, False, False, False]
    sealed.validate(full=True)
    found = [Blob.open(value.as_buffer(), "here").sequence for value in sealed if value.is_valid]
    assert found == [0, 1, 2]


def test_a_blob_torn_at_any_length_is_found() -> None:
    data = one_blob(rows=1)
    for length in range(len(data)):
        with pytest.raises(Corrupt, match="here: a packed row|here: packed row"):
            Blob.open(pa.py_buffer(data[:length]), "here")
    with pytest.raises(Corrupt):
        Blob.open(pa.py_buffer(data + b"\0"), "here")


@given(st.data())
def test_a_flipped_bit_is_found(data: st.DataObject) -> None:
    damaged = bytearray(one_blob(rows=2))
    bit = data.draw(st.integers(0, 8 * len(damaged) - 1))
    damaged[bit // 8] ^= 1 << (bit % 8)
    with pytest.raises(Corrupt):
        Blob.open(pa.py_buffer(bytes(damaged)), "here")


def test_a_header_that_lies_about_its_rows_is_found() -> None:
    sealed = seal([Payload(0, 0, 11, batch(0, 10).serialize())], [0])
    with pytest.raises(Corrupt, match="holds 10 rows, its header says 11"):
        Blob.open(sealed[0].as_buffer(), "here").read(SCHEMA)


def test_a_payload_of_garbage_with_a_right_checksum_is_no_crash() -> None:
    for garbage in (b"", b"\xff" * 64, os.urandom(256)):
        sealed = seal([Payload(0, 0, 1, pa.py_buffer(garbage))], [0])
        with pytest.raises(Corrupt, match="does not hold what it was packed as|its header says"):
            Blob.open(sealed[0].as_buffer(), "here").read(SCHEMA)


def spooled(tmp_path: Path, memory_max_bytes: int) -> BlobSpool:
    return BlobSpool(memory_max_bytes, str(tmp_path / "local"), "slot 0")


@pytest.mark.parametrize("memory_max_bytes", [0, 2_000, 1 << 30], ids=["all spooled", "some spooled", "none spooled"])
def test_a_spool_reads_in_the_order_of_packing(tmp_path: Path, memory_max_bytes: int) -> None:
    order = [(2, 1), (0, 0), (1, 2), (2, 0), (1, 0), (0, 1), (1, 1), (2, 2)]
    with spooled(tmp_path, memory_max_bytes) as spool:
        for partition, sequence in order:
            spool.add(one_blob(partition, sequence))
        assert len(spool) == len(order)
        assert (spool.spilled_bytes > 0) == (memory_max_bytes < 1 << 30)
        read = [(blob.map_partition, blob.sequence) for blob in spool.read()]
    assert read == sorted(order)


def test_a_spool_reads_one_input_after_the_other(tmp_path: Path) -> None:
    packed = [(1, 0, 0), (0, 5, 0), (1, 0, 1), (0, 5, 1), (0, 2, 0), (1, 5, 0)]
    with spooled(tmp_path, 1_000) as spool:
        for channel, partition, sequence in packed:
            spool.add(seal([replace(payload(partition, sequence), channel=channel)], [0])[0].as_py())
        read = [(blob.channel, blob.map_partition, blob.sequence) for blob in spool.read()]
    assert read == sorted(packed)


def test_a_spool_file_has_no_name(tmp_path: Path) -> None:
    with spooled(tmp_path, 0) as spool:
        spool.add(one_blob(0, 0))
        assert spool.spilled_bytes > 0
        assert os.listdir(tmp_path / "local") == []


@pytest.mark.parametrize("order", [[0, 2], [1], [0, 0], [0, 1, 1]], ids=["gap", "no first", "twice", "last twice"])
def test_a_missing_or_repeated_blob_is_found(tmp_path: Path, order: list[int]) -> None:
    with spooled(tmp_path, 1 << 20) as spool:
        for sequence in order:
            spool.add(one_blob(4, sequence))
        with pytest.raises(Corrupt, match="slot 0: expected packed row .* of map partition 4"):
            list(spool.read())


def test_a_local_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "local").write_text("a file where the folder should be")
    with spooled(tmp_path, 0) as spool, pytest.raises(Unavailable, match=r"local.*spark\.holdfast\.local\.dir"):
        spool.add(one_blob(0, 0))


def test_the_header_keeps_the_message_aligned() -> None:
    assert HEADER_BYTES % 8 == 0


def test_text_that_is_no_utf8_passes_as_spark_gave_it() -> None:
    """One such row of a topic or a file, and the query was Corrupt for ever."""
    text = pa.StringArray.from_buffers(2, pa.py_buffer(struct.pack("<3i", 0, 2, 4)), pa.py_buffer(b"ok\xff\xfe"))
    rows = pa.RecordBatch.from_arrays([text, pa.array([1, 2])], schema=SCHEMA)
    sealed = seal([Payload(0, 0, 2, rows.serialize())], [0])
    found = Blob.open(sealed[0].as_buffer(), "here").read(SCHEMA)
    assert found.column("user").cast(pa.binary()).to_pylist() == [b"ok", b"\xff\xfe"]
