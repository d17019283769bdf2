"""Delta files: the keys that one batch changed in one slot, with their new values. Format: docs/formats/delta.md.

An Arrow IPC file that any Arrow reader opens.
Nothing of it is parsed before its length and checksum are those that the handle names; where no handle names it yet,
before its checksum is the one that it has of itself (delta_checksum.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from holdfast._core import xxh64_file
from holdfast.checkpoint import delta_checksum, delta_lineage
from holdfast.checkpoint.expiry import StateExpiry, has_floor
from holdfast.checkpoint.handle import DeltaRef
from holdfast.errors import Corrupt, Incompatible
from holdfast.sealed import CHECKSUM_DIGITS, checksum_of

FORMAT = "delta"
VERSION = 4
# Without the floor of a state whose TTL came back: of most deltas.
_VERSION_WITHOUT_FLOOR = 3
_VERSION_WITHOUT_LINEAGE = 2
_FIELDS = (
    pa.field("key_group", pa.uint16(), nullable=False),
    pa.field("state", pa.uint16(), nullable=False),
    pa.field("key", pa.binary(), nullable=False),
    pa.field("value", pa.binary()),
)

#: What the metadata says of each delta.
_IDENTITY = ("operator", "slot", "version_id", "parent_id", "sequence", "batch_id")
DELTA_SCHEMA = pa.schema(_FIELDS)
#: A batch of a delta that is larger is rare: it holds a large value.
LARGE_BYTES = 64 << 20
#: What a batch that changed nothing leaves.
EMPTY_DELTA = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in _FIELDS], schema=DELTA_SCHEMA)


@dataclass(frozen=True)
class DeltaIdentity:
    """Whose delta it is, and between which versions: the file's own metadata. ``parent_id`` empty: the empty state.
    ``expiry``: that of the version which the delta leads to, for who takes it over. ``lineage``: the deltas before it,
    oldest first, that the parent's handle names; None: an earlier Holdfast wrote it, and it says nothing of them.
    """

    operator: str
    slot: int
    version_id: str
    parent_id: str
    sequence: int
    batch_id: int
    expiry: tuple[StateExpiry, ...] = ()
    lineage: tuple[DeltaRef, ...] | None = ()

    def schema(self) -> pa.Schema:
        """That of a file, which is written as the newest version that has all its fields."""
        with_floor = has_floor(self.expiry)
        version = VERSION if with_floor else _VERSION_WITHOUT_FLOOR
        metadata = {"holdfast.format": FORMAT, "holdfast.version": str(version)}
        metadata.update((f"holdfast.{name}", str(getattr(self, name))) for name in _IDENTITY)
        if self.expiry:
            rows = [state.to_row() for state in self.expiry]
            metadata["holdfast.expiry"] = json.dumps(rows, separators=(",", ":"))
        metadata["holdfast.lineage"] = delta_lineage.pack(self.lineage or ())
        return pa.schema(_FIELDS, metadata=metadata)


class DeltaWriter:
    """Writes a delta, batch by batch, into ``sink``: a path, or an Arrow output stream, which is given no checksum.
    Later batches win over earlier ones.
    """

    def __init__(self, sink: str | pa.NativeFile, identity: DeltaIdentity, compression: str) -> None:
        schema = identity.schema()
        self._path = sink if isinstance(sink, str) else None
        self._schema = schema.with_metadata({**schema.metadata, **delta_checksum.TO_COME})
        # Arrow's threads compress four columns no faster than one, and cost a wait when the machine is busy.
        options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression, use_threads=False)
        self._writer = pa.ipc.new_file(sink, self._schema, options=options)

    def write(self, delta: pa.RecordBatch) -> None:
        if delta.num_rows:
            self._writer.write_batch(pa.RecordBatch.from_arrays(delta.columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()
        if self._path is not None:
            delta_checksum.put_into_file(self._path)


def encode_delta(identity: DeltaIdentity, batches: Iterable[pa.RecordBatch], compression: str) -> pa.Buffer:
    """The bytes of a delta file."""
    sink = pa.BufferOutputStream()
    writer = DeltaWriter(sink, identity, compression)
    for batch in batches:
        writer.write(batch)
    writer.close()
    data = sink.getvalue()
    delta_checksum.put_into(data)
    return data


def ref_of(identity: DeltaIdentity, data: pa.Buffer) -> DeltaRef:
    return DeltaRef(identity.sequence, identity.version_id, data.size, checksum_of(memoryview(data)))


def ref_of_file(identity: DeltaIdentity, path: str) -> DeltaRef:
    checksum, size_bytes = xxh64_file(path)
    return DeltaRef(identity.sequence, identity.version_id, size_bytes, f"{checksum:0{CHECKSUM_DIGITS}x}")


def give_back(size_bytes: int) -> None:
    """After a batch of so many bytes was read or written, and forgotten: Arrow keeps freed memory for later, and what
    it took for a value of 1 GiB would stay beside what comes next.
    """
    if size_bytes > LARGE_BYTES:
        pa.default_memory_pool().release_unused()


def identity_of(data: bytes, where: str) -> DeltaIdentity:
    """What a delta says of itself, whatever else of it is damaged; Corrupt when it is none."""
    try:
        metadata = _metadata(pa.ipc.open_file(pa.py_buffer(data)).schema)
        found = {key.removeprefix("holdfast."): value for key, value in metadata.items()}
        version = int(found["version"])
        if found["format"] != FORMAT or not 1 <= version <= VERSION:
            raise Corrupt(f"{where} is no delta that this Holdfast reads: its metadata is {metadata}")
        return DeltaIdentity(
            operator=found["operator"],
            slot=int(found["slot"]),
            version_id=found["version_id"],
            parent_id=found["parent_id"],
            sequence=int(found["sequence"]),
            batch_id=int(found["batch_id"]),
            expiry=tuple(StateExpiry.from_row(row) for row in json.loads(found.get("expiry", "[]"))),
            lineage=_lineage(metadata, where) if version > _VERSION_WITHOUT_LINEAGE else None,
        )
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise Corrupt(
            f"{where} is damaged: expected a delta, found {len(data)} bytes that are none: {error}"
        ) from error


def checked_identity_of(data: bytes, where: str) -> DeltaIdentity:
    """As :func:`identity_of`, for one that no handle names and that is used: Corrupt too when it is not what was
    written, as far as it has a checksum.
    """
    delta_checksum.check(data, where)
    return identity_of(data, where)


@dataclass(frozen=True)
class DeltaFile:
    """A delta file that is the one which a handle names. ``named``: for errors."""

    reader: pa.ipc.RecordBatchFileReader
    named: str

    def batches(self) -> list[pa.RecordBatch]:
        """All of it; Corrupt where it is not what the core may read."""
        try:
            batches = [self.reader.get_batch(i) for i in range(self.reader.num_record_batches)]
            for batch in batches:
                _check_arrays(batch, self.named)
            return batches
        except (pa.ArrowException, OSError) as error:
            raise _no_delta(self.named, error) from error

    def lineage(self) -> tuple[DeltaRef, ...] | None:
        """The deltas that it says were before it, oldest first; None: an earlier Holdfast wrote it, and it says none.
        Corrupt for what cannot have been.
        """
        metadata = _metadata(self.reader.schema)
        if int(metadata["holdfast.version"]) <= _VERSION_WITHOUT_LINEAGE:
            return None
        return _lineage(metadata, self.named)


def decode_delta(data: bytes, ref: DeltaRef, operator: str, slot: int, where: str) -> list[pa.RecordBatch]:
    """The batches of a delta file; parameters and errors as of :func:`open_delta`."""
    return open_delta(data, ref, operator, slot, where).batches()


def open_delta(data: bytes, ref: DeltaRef, operator: str, slot: int, where: str) -> DeltaFile:
    """A delta file, once it is known to be what a handle names, and says so itself.

    Parameters
    ----------
    ref
        What the handle says of the file.
    where
        The file's name and place, for errors.

    Raises
    ------
    Corrupt
        Not the file that the handle names, or not of this slot.
    Incompatible
        Written by a newer Holdfast.
    """
    named = f"delta {where} of operator {operator!r}, slot {slot}, version {ref.sequence} ({ref.version_id})"
    if len(data) != ref.size_bytes:
        raise Corrupt(f"{named} is damaged: expected {ref.size_bytes} bytes, found {len(data)}")
    checksum = checksum_of(data)
    if checksum != ref.checksum:
        raise Corrupt(f"{named} is damaged: expected checksum {ref.checksum}, found {checksum}")
    try:
        reader = pa.ipc.open_file(pa.py_buffer(data), options=pa.ipc.IpcReadOptions(use_threads=False))
        _check_identity(reader.schema, ref, operator, slot, named)
        return DeltaFile(reader, named)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _no_delta(named, error) from error


def _no_delta(named: str, error: Exception) -> Corrupt:
    return Corrupt(f"{named} has the right checksum but is no Arrow file of a delta: {error}")


def _lineage(metadata: dict[str, str], where: str) -> tuple[DeltaRef, ...]:
    """Corrupt for none, and for one that leads to another version than the file's parent."""
    if "holdfast.lineage" not in metadata:
        raise Corrupt(f"{where} does not say which deltas were before it: expected metadata holdfast.lineage")
    try:
        found = delta_lineage.unpack(metadata["holdfast.lineage"], int(metadata["holdfast.sequence"]))
        parent_id = metadata.get("holdfast.parent_id")
        if found and found[-1].version_id != parent_id:
            raise ValueError(f"they lead to version {found[-1].version_id}, not to its parent {parent_id}")
    except ValueError as error:
        raise Corrupt(f"{where} says wrongly which deltas were before it: {error}") from error
    return found


def _metadata(schema: pa.Schema) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}


def _check_arrays(batch: pa.RecordBatch, named: str) -> None:
    """The core reads where the offsets say: they must lie within their buffers before it does."""
    batch.validate(full=True)
    for field, column in zip(_FIELDS, batch.columns):
        if not field.nullable and column.null_count:
            raise Corrupt(f"{named} has {column.null_count} nulls in its column {field.name!r}, which has none")


def _check_identity(schema: pa.Schema, ref: DeltaRef, operator: str, slot: int, named: str) -> None:
    metadata = _metadata(schema)
    version = metadata.get("holdfast.version", "")
    if metadata.get("holdfast.format") != FORMAT or not version.isdigit():
        raise Corrupt(f"{named} is an Arrow file, but not a delta: its metadata is {metadata}")
    if not 1 <= int(version) <= VERSION:
        raise Incompatible(
            f"{named} has version {version}; this Holdfast reads versions 1 to {VERSION}. Upgrade Holdfast"
        )
    expected = {"operator": operator, "slot": slot, "version_id": ref.version_id, "sequence": ref.sequence}
    for name, value in expected.items():
        found = metadata.get(f"holdfast.{name}")
        if found != str(value):
            raise Corrupt(f"{named} belongs elsewhere: expected {name} {value!r}, found {found!r}")
    if schema.remove_metadata() != DELTA_SCHEMA:
        raise Corrupt(f"{named} has other columns than a delta: {schema.remove_metadata()}")
