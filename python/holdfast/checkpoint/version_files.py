"""Which files lead to a version of a slot, as its handle and the manifests of its snapshots name them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.checkpoint.base_folder import BaseFile
from holdfast.checkpoint.handle import DeltaRef, Handle, SnapshotRef, StoredHandle
from holdfast.checkpoint.names import delta_name
from holdfast.checkpoint.snapshot import Snapshots


@dataclass(frozen=True)
class VersionFile:
    """A file of a slot. ``name``: in the slot's folder."""

    name: str
    size_bytes: int
    checksum: str

    def __str__(self) -> str:
        return f"{self.name} ({self.size_bytes} bytes, checksum {self.checksum})"

    @classmethod
    def of_snapshot(cls, ref: SnapshotRef) -> VersionFile:
        """The manifest of a snapshot."""
        return cls(ref.name, ref.size_bytes, ref.checksum)

    @classmethod
    def of_table(cls, file: BaseFile) -> VersionFile:
        """A file that the manifest of a snapshot names."""
        return cls(str(file.stored_as), file.size_bytes, file.checksum)

    @classmethod
    def of_delta(cls, ref: DeltaRef) -> VersionFile:
        return cls(delta_name(ref.sequence, ref.version_id), ref.size_bytes, ref.checksum)


def named_by(handle: Handle | StoredHandle) -> list[VersionFile]:
    """The files that a handle names itself: manifests of snapshots, and deltas; of a text alone, those that it says."""
    deltas = said_by(handle) if isinstance(handle, StoredHandle) else handle.deltas
    return [*map(VersionFile.of_snapshot, handle.snapshots), *map(VersionFile.of_delta, deltas)]


def said_by(stored: StoredHandle) -> tuple[DeltaRef, ...]:
    """The deltas that a text names: the newest, or all."""
    if stored.listed is not None:
        return stored.listed
    return () if stored.newest is None else (stored.newest,)


def needed(handle: Handle, snapshots: Snapshots) -> Iterator[VersionFile]:
    """Each file that leads to the version; Corrupt where a manifest is missing or damaged."""
    yield from named_by(handle)
    for ref in handle.snapshots:
        yield from map(VersionFile.of_table, snapshots.read_manifest(ref).files)
