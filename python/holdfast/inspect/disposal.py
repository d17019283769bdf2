"""Disposes of a savepoint: deletes what its manifest names, and nothing else. Owner: one thread."""

from __future__ import annotations

from holdfast.checkpoint.claim import CLAIMS, Claims
from holdfast.checkpoint.native_manifest import manifest_of
from holdfast.checkpoint.savepoint_files import delete_files, hide_manifest, named_by, remove_empty_folders
from holdfast.errors import Corrupt, InvalidRequest
from holdfast.inspect.descriptions import Disposal, Unneeded
from holdfast.savepoint.manifest import CLAIMED, DISPOSED, MANIFEST
from holdfast.savepoint.reading import manifest_bytes, refuse_links
from holdfast.savepoint.writing import sweep_drafts
from holdfast.storage import FileStore

#: The manifest under all of its names.
MANIFESTS = [MANIFEST, CLAIMED, DISPOSED]


def dispose(store: FileStore, apply: bool) -> Disposal:
    """What is deleted of the savepoint in a store, and what stays; as :meth:`holdfast.Savepoint.dispose`.

    Raises
    ------
    InvalidRequest
        No savepoint is there, or a query has claimed it and may need it.
    Corrupt
        Its manifest is damaged, or a file of it is a symbolic link.
    """
    named = _named(store)
    waiting = Claims(store).waiting()
    if waiting:
        raise InvalidRequest(
            f"{store.uri} is claimed by {waiting[0].who}, which has not taken it over yet, and deletes it then. "
            f"Nothing was deleted. If that query will never run again, delete the folder {CLAIMS} in it, then do this "
            "again"
        )
    for name in named:
        refuse_links(store, name)
    there = {file.name: file.size_bytes for file in store.list("")}
    files = tuple(Unneeded(name, there[name], "the savepoint's") for name in named if name in there)
    if apply:
        hide_manifest(store, DISPOSED)
        delete_files(store, [file.name for file in files if file.name not in MANIFESTS])
        # Last: a kill before leaves what the next attempt goes on with.
        delete_files(store, [name for name in (CLAIMED, DISPOSED) if name == DISPOSED or name in there])
        sweep_drafts(store, named)
        remove_empty_folders(store, named)
    return Disposal(files, tuple(sorted(set(there) - set(named))), apply)


def _named(store: FileStore) -> list[str]:
    """The manifest, whatever its name is by now, all that it names, and the notes of those who claimed it."""
    notes = store.names(CLAIMS)
    name, data = MANIFEST, None
    for hidden in (DISPOSED, CLAIMED):  # of an attempt that was killed; of one that is taken over
        refuse_links(store, hidden)
        if data is None:
            name, data = hidden, store.get(hidden)
    where = f"{name if data is not None else MANIFEST} in {store.uri}"
    if data is None:
        data = manifest_bytes(store)
    elif store.get(MANIFEST) not in (None, data):
        raise Corrupt(f"{where} and {MANIFEST} are of two savepoints: delete the one that you do not mean by hand")
    return [*named_by(manifest_of(data, where)), *notes, *MANIFESTS]
