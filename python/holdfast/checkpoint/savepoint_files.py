"""The files of a savepoint, of either format, as its manifest names them; and their deletion. docs/formats/savepoint.md

First the manifest gets another name, so that from one instant on there is no savepoint any more. A kill at any step
leaves the savepoint, or what the next attempt goes on with. Owner: one thread, and any number of processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

from holdfast.checkpoint.claim import CLAIMS
from holdfast.checkpoint.native_manifest import NativeManifest, manifest_of
from holdfast.savepoint.manifest import CLAIMED, MANIFEST, Manifest, table_name
from holdfast.savepoint.reading import refuse_links
from holdfast.sealed import checksum_of
from holdfast.storage import FileStore

_DELETE_AT_ONCE = 500


def named_by(manifest: Manifest | NativeManifest) -> list[str]:
    """All files that a savepoint consists of, but its manifest."""
    if isinstance(manifest, NativeManifest):
        return list(manifest.files())
    return [
        table_name(operator.name, state.name, file.slot)
        for operator in manifest.operators
        for state in operator.states
        for file in state.files
    ]


def hide_manifest(store: FileStore, name: str) -> None:
    """Gives the manifest another name. From its deletion on there is no savepoint."""
    if store.copy_if_absent(MANIFEST, name) is not None:
        store.delete([MANIFEST])


def delete_files(store: FileStore, names: Sequence[str]) -> None:
    """All of these."""
    for first in range(0, len(names), _DELETE_AT_ONCE):
        store.delete(list(names[first : first + _DELETE_AT_ONCE]))


def remove_empty_folders(store: FileStore, names: Iterable[str]) -> None:
    """Those that files of these names were in, and the savepoint's own, where nothing is left. A bucket has none."""
    folders = {""}
    for name in names:
        parts = name.split("/")[:-1]
        folders.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    for folder in sorted(folders, key=len, reverse=True):
        path = store.local_path(f"{folder}/x" if folder else "x")
        if path is not None:
            with suppress(OSError):
                os.rmdir(os.path.dirname(path))


def delete_claimed(store: FileStore, savepoint: str) -> int | None:
    """Of a savepoint that is taken over: its manifest stays, under another name, for programs that start again, and so
    do the notes of those who claimed it. How many files were deleted; None: nothing, for another savepoint is there.

    Parameters
    ----------
    savepoint
        Checksum of its manifest. Files of the same names are another's where the manifest there is another's.
    """
    there_now, hidden = store.get(MANIFEST), store.get(CLAIMED)
    if any(data is not None and checksum_of(data) != savepoint for data in (there_now, hidden)):
        return None
    data = hidden if hidden is not None else there_now
    if data is None:
        return 0
    hide_manifest(store, CLAIMED)
    named = named_by(manifest_of(data, f"{CLAIMED} in {store.uri}"))
    there = {file.name for file in store.list("") if not file.name.startswith(CLAIMS)}
    left = [name for name in named if name in there]
    for name in left:
        refuse_links(store, name)
    delete_files(store, left)
    remove_empty_folders(store, named)
    return len(left)
