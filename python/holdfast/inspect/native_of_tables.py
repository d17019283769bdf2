"""Makes a native savepoint of a canonical one: each slot's version, with what that slot had.

Owner: one thread.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.checkpoint.handle import StoredHandle
from holdfast.checkpoint.names import operator_prefix
from holdfast.checkpoint.native_manifest import NativeManifest, NativeOperator
from holdfast.checkpoint.saved_operator import record_of
from holdfast.checkpoint.version_files import VersionFile, needed
from holdfast.inspect.earlier import saved_origin
from holdfast.inspect.saved_tables import SavedTables
from holdfast.inspect.savepoint_maker import Progress
from holdfast.inspect.slot_versions import SlotVersions
from holdfast.savepoint import Manifest
from holdfast.storage import FileStore


def native_of_tables(
    source: SavedTables, about: Manifest, target: FileStore, local_dir: str, progress: Progress | None
) -> NativeManifest:
    """Writes all files into ``target``; what the manifest has to say, ``about`` among it.

    Raises
    ------
    Corrupt
        A table is damaged.
    Unavailable
        Storage does not answer, or the local disk is full.
    """
    manifest = source.manifest
    folder = manifest.query_id if manifest.query_id is not None else f"savepoint-{manifest.checksum}"
    operators, done = [], 0
    for saved in manifest.operators:
        record = record_of(saved)
        origin = saved_origin(source.store.uri, manifest, record)
        record = replace(record, origin=origin)
        handles: list[StoredHandle] = []
        files: dict[int, tuple[VersionFile, ...]] = {}
        for slot in range(record.slots):
            prefix = operator_prefix(folder, saved.name)
            versions = SlotVersions(record, slot, target, prefix, local_dir, lambda _: source.store)
            handle = versions.first_version(origin)
            handles.append(handle.stored())
            files[slot] = tuple(sorted(needed(handle, versions.snapshots), key=lambda file: file.name))
            versions.remove()  # the next one needs the room
            done += len(files[slot])
            if progress is not None:
                progress(done)
        operators.append(NativeOperator(replace(record, origin=None), tuple(handles), files))
    return NativeManifest.of(about, folder, operators)
