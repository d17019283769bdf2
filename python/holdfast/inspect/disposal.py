"""Disposes of a savepoint: deletes what its manifest names, and nothing else.

First the manifest gets another name, so that from one instant on there is no savepoint any more; that name goes last.
A kill at any step leaves the savepoint, or what the next attempt goes on with. Owner: one thread.
"""

from __future__ import annotations

import os
from contextlib import suppress

from holdfast.errors import Corrupt
from holdfast.inspect.descriptions import Disposal, Unneeded
from holdfast.inspect.native_manifest import NativeManifest, manifest_of
from holdfast.inspect.saved_tables import SavedTables
from holdfast.savepoint.manifest import DISPOSED, MANIFEST
from holdfast.savepoint.reading import manifest_bytes, refuse_links
from holdfast.storage import FileStore

_DELETE_AT_ONCE = 500


def dispose(store: FileStore, apply: bool) -> Disposal:
    """What is deleted of the savepoint in a store, and what stays; as :meth:`holdfast.Savepoint.dispose`.

    Raises
    ------
    InvalidRequest
        No savepoint is there.
    Corrupt
        Its manifest is damaged, or a file of it is a symbolic link.
    """
    named = _named(store)
    for name in named:
        refuse_links(store, name)
    there = {file.name: file.size_bytes for file in store.list("")}
    files = tuple(Unneeded(name, there[name], "the savepoint's") for name in named if name in there)
    if apply:
        _delete(store, named, [file.name for file in files])
    return Disposal(files, tuple(sorted(set(there) - set(named))), apply)


def _delete(store: FileStore, named: list[str], there: list[str]) -> None:
    if store.copy_if_absent(MANIFEST, DISPOSED) is not None:
        store.delete([MANIFEST])
    names = [name for name in there if name not in (MANIFEST, DISPOSED)]
    for first in range(0, len(names), _DELETE_AT_ONCE):
        store.delete(names[first : first + _DELETE_AT_ONCE])
    store.delete([DISPOSED])
    _remove_empty_folders(store, named)


def _named(store: FileStore) -> list[str]:
    """The manifest, and all that it names."""
    refuse_links(store, DISPOSED)
    data = store.get(DISPOSED)  # of an attempt that was killed
    where = f"{DISPOSED if data is not None else MANIFEST} in {store.uri}"
    if data is None:
        data = manifest_bytes(store)
    elif store.get(MANIFEST) not in (None, data):
        raise Corrupt(f"{where} and {MANIFEST} are of two savepoints: delete the one that you do not mean by hand")
    manifest = manifest_of(data, where)
    if isinstance(manifest, NativeManifest):
        return [*manifest.files(), MANIFEST, DISPOSED]
    return [*SavedTables(store, manifest, "").sizes(), MANIFEST, DISPOSED]


def _remove_empty_folders(store: FileStore, names: list[str]) -> None:
    """Folders of its files, and its own, where nothing is left in them. A bucket has none."""
    folders = {""}
    for name in names:
        parts = name.split("/")[:-1]
        folders.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    for folder in sorted(folders, key=len, reverse=True):
        path = store.local_path(f"{folder}/x" if folder else "x")
        if path is not None:
            with suppress(OSError):
                os.rmdir(os.path.dirname(path))
