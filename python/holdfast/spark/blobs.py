"""Packed rows: one Arrow record batch of one slot, in one binary value. The bytes: docs/formats/blob.md.

The schema is not in the blob: both ends have it from the query. Sealing and opening are paired: what `seal` writes,
`Blob.open` checks before anything is read from it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast import _core
from holdfast.errors import Corrupt, InvalidRequest

MAGIC = b"HFBL"
VERSION = 2
#: Version 1 had a byte of flags, 0, where version 2 has the channel: so a blob of version 1 is one of channel 0.
_READ_VERSIONS = (1, VERSION)
_CHECKED = struct.Struct("<4sBBHIIQQ")  # all of the header but the checksum itself
_CHECKSUM = struct.Struct("<Q")
HEADER_BYTES = _CHECKED.size + _CHECKSUM.size
#: Of blobs in one Arrow array: offsets of 32 bits, which is also what Spark has for a value, reach 2 GiB.
ARRAY_BYTES_MAX = (1 << 31) - (1 << 20)


@dataclass(frozen=True)
class Payload:
    """A record batch as an IPC message, and where it stands in its map task's rows of this slot.

    ``channel``: the number of the operator's input that the rows come from, or of the output that they are for.
    """

    map_partition: int
    sequence: int
    rows: int
    message: pa.Buffer
    channel: int = 0


def arrays(
    payloads: Sequence[Payload], where: str, run_bytes_max: int = ARRAY_BYTES_MAX
) -> Iterator[Sequence[Payload]]:
    """Runs of payloads that can be sealed into one Arrow array each, of about so many bytes at most.

    Raises
    ------
    InvalidRequest
        A payload alone is too large: a row that was not split further.
    """
    start = size_bytes = 0
    for number, payload in enumerate(payloads):
        blob_bytes = HEADER_BYTES + payload.message.size
        if blob_bytes > ARRAY_BYTES_MAX:
            raise InvalidRequest(
                f"{where}: a row has {blob_bytes} bytes packed; at most {ARRAY_BYTES_MAX} pass through Spark as one "
                "value. Split it into several rows, or keep the data elsewhere and pass where it is"
            )
        if start < number and size_bytes + blob_bytes > min(run_bytes_max, ARRAY_BYTES_MAX):
            yield payloads[start:number]
            start, size_bytes = number, 0
        size_bytes += blob_bytes
    if start < len(payloads):
        yield payloads[start:]


def seal(payloads: Sequence[Payload], ballast: Sequence[int]) -> pa.BinaryArray:
    """One blob for each payload, followed by `ballast[i]` nulls, as one Arrow array whose bytes are copied once. The
    payloads are a run of `arrays`.
    """
    sizes = np.array([HEADER_BYTES + payload.message.size for payload in payloads], np.int64)
    ends = np.cumsum(sizes)
    values = pa.allocate_buffer(int(ends[-1]))
    target = memoryview(values).cast("B")
    for payload, start in zip(payloads, (ends - sizes).tolist()):
        message = memoryview(payload.message).cast("B")
        place = (payload.map_partition, payload.rows, payload.sequence)
        checked = _CHECKED.pack(MAGIC, VERSION, payload.channel, HEADER_BYTES, *place, len(message))
        body = start + HEADER_BYTES
        target[start : start + len(checked)] = checked
        target[body - 8 : body] = _checksum(checked, message).to_bytes(8, "little")
        target[body : body + len(message)] = message
    repeats = np.array(ballast, np.int64) + 1
    valid = np.zeros(int(repeats.sum()), bool)
    valid[np.cumsum(repeats) - repeats] = True
    offsets = np.concatenate([[0], np.repeat(ends, repeats)]).astype(np.int32)
    validity = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(pa.binary(), len(valid), [validity, pa.py_buffer(offsets), values])


@dataclass(frozen=True)
class Blob:
    """A blob whose header and checksum were found right."""

    map_partition: int
    sequence: int
    rows: int
    data: pa.Buffer
    channel: int = 0

    @classmethod
    def open(cls, data: pa.Buffer, where: str) -> Blob:
        """Checks a blob and reads its header.

        Parameters
        ----------
        data
            The whole blob.
        where
            Who asks, for the error message.

        Raises
        ------
        Corrupt
            Not a blob, torn, or changed on its way.
        """
        if data.size < HEADER_BYTES:
            raise Corrupt(f"{where}: a packed row has {data.size} bytes; its header alone needs {HEADER_BYTES}")
        view = memoryview(data).cast("B")
        magic, version, channel, header_bytes, partition, rows, sequence, length = _CHECKED.unpack_from(view)
        (checksum,) = _CHECKSUM.unpack_from(view, _CHECKED.size)
        known = version in _READ_VERSIONS and (version > 1 or channel == 0)
        if magic != MAGIC or not known or header_bytes != HEADER_BYTES:
            raise Corrupt(
                f"{where}: a packed row begins with {bytes(view[:8]).hex()}, expected {MAGIC.hex()} and version "
                f"1 or {VERSION}; driver and executors must run the same release of Holdfast"
            )
        if length != data.size - HEADER_BYTES:
            raise Corrupt(
                f"{where}: packed row {sequence} of map partition {partition} has {data.size - HEADER_BYTES} "
                f"bytes after its header, expected {length}"
            )
        if checksum != _checksum(view[: _CHECKED.size], view[HEADER_BYTES:]):
            raise Corrupt(
                f"{where}: packed row {sequence} of map partition {partition} fails its checksum; "
                "it was damaged between pack and slot (memory, shuffle file or network)"
            )
        return cls(partition, sequence, rows, data, channel)

    def read(self, schema: pa.Schema) -> pa.RecordBatch:
        """The rows, without a copy: the batch keeps the blob's bytes alive."""
        try:
            message = self.data.slice(HEADER_BYTES)
            # Whoever reads it goes where its offsets say. What text holds is not asked: Spark's is any bytes.
            as_bytes = pa.schema([field.with_type(_bytes_for_text(field.type)) for field in schema])
            pa.ipc.read_record_batch(message, as_bytes).validate(full=True)
            batch = pa.ipc.read_record_batch(message, schema)
        except (pa.ArrowException, EOFError, OSError) as error:
            raise Corrupt(
                f"packed row {self.sequence} of map partition {self.map_partition} "
                f"does not hold what it was packed as: {error}"
            ) from error
        if batch.num_rows != self.rows:
            raise Corrupt(
                f"packed row {self.sequence} of map partition {self.map_partition} holds {batch.num_rows} rows, "
                f"its header says {self.rows}"
            )
        return batch


def _checksum(header: bytes | memoryview, message: memoryview) -> int:
    return _core.xxh64(message, _core.xxh64(header))


def _bytes_for_text(kind: pa.DataType) -> pa.DataType:
    """The type with bytes in place of text, which lie in memory alike."""
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_bytes_for_text(field.type)) for field in kind])
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_bytes_for_text(key.type)), item.with_type(_bytes_for_text(item.type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_bytes_for_text(kind.value_type)))
    return kind
