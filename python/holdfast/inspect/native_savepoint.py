"""The content of a native savepoint: versions of slots, read as those of a checkpoint. Format:
docs/formats/savepoint.md. Owner: one thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext

import pyarrow as pa

from holdfast.checkpoint.names import query_folder
from holdfast.checkpoint.native_manifest import NativeManifest, NativeOperator
from holdfast.checkpoint.version_files import VersionFile, named_by
from holdfast.errors import Corrupt, InvalidRequest
from holdfast.inspect.read_only_store import ReadOnlyStore
from holdfast.inspect.verification import compare_stored
from holdfast.inspect.versions import Versions, Wanted
from holdfast.savepoint.reading import missing, refuse_links, wrong_size
from holdfast.storage import FileStore


class NativeSavepoint:
    """An opened one.

    Parameters
    ----------
    local_dir
        The caller's own temporary folder.
    """

    def __init__(self, store: FileStore, manifest: NativeManifest, local_dir: str) -> None:
        self._store = store
        self._local_dir = local_dir
        self.manifest = manifest
        self.versions = Versions(ReadOnlyStore(store), query_folder(manifest.folder), local_dir)

    def read(self, operator: str, state: str, wanted: Wanted) -> pa.RecordBatchReader:
        """As :meth:`holdfast.Savepoint.read`."""
        saved = self.manifest.operator(operator)
        return self.versions.read(saved.record, state, saved.versions, wanted, nullcontext)

    def path(self, operator: str, state: str) -> str:
        """InvalidRequest, always: there are no tables."""
        self.manifest.about.operator(operator).state(state)
        raise InvalidRequest(
            f"{self._store.uri} is a native savepoint, which has no tables for other programs: read it with "
            "Savepoint.read, or make a canonical one of it: Savepoint.convert"
        )

    def check_files(self) -> None:
        """Raises as :func:`check_files`."""
        check_files(self._store, self.manifest, None)

    def damages(self) -> Iterator[str]:
        """Reads every byte; what is damaged, in words."""
        for name, file in self.manifest.files().items():
            try:
                refuse_links(self._store, name)
                compare_stored(self._store, name, (file.size_bytes, file.checksum), self._local_dir)
            except Corrupt as error:
                yield f"{error} (of the savepoint {self._store.uri})"
        yield from self._unnamed()

    def sizes(self) -> dict[str, int]:
        """Bytes by name, of all files but the manifest."""
        return {name: file.size_bytes for name, file in self.manifest.files().items()}

    def _unnamed(self) -> Iterator[str]:
        """Files that lead to a version, and the savepoint has not, or with other bytes."""
        for operator in self.manifest.operators:
            for slot, handle in operator.versions.items():
                versions, there = self.versions.slot(operator.record, slot), set(operator.files.get(slot, ()))
                needed: list[VersionFile] = []
                try:
                    needed += named_by(versions.whole(handle))
                except Corrupt as error:
                    yield f"{error} (of the savepoint {self._store.uri})"
                for ref in handle.snapshots:
                    try:
                        needed += map(VersionFile.of_table, versions.snapshots.read_manifest(ref).files)
                    except Corrupt:
                        continue  # said already, of the file
                yield from (f"{handle.where} needs {file}, which is not there" for file in needed if file not in there)


def check_files(store: FileStore, manifest: NativeManifest, operators: Iterable[NativeOperator] | None) -> None:
    """Whether all files are there, as large as they were written; by listing, so that none is brought here.

    Raises
    ------
    Corrupt
        One is missing, of another size, or a symbolic link.
    """
    sizes = {file.name: file.size_bytes for file in store.list(f"{query_folder(manifest.folder)}/")}
    for name, file in manifest.files(operators).items():
        refuse_links(store, name)
        if name not in sizes:
            raise missing(name, store)
        if sizes[name] != file.size_bytes:
            raise wrong_size(name, store, file.size_bytes, sizes[name])
