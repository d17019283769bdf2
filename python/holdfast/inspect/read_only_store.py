"""A store that can only be read: whatever goes wrong in a reader, the checkpoint stays as it is."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from holdfast.errors import InternalError
from holdfast.storage import FileStore
from holdfast.storage.file_store import Data, Listing, Names


class ReadOnlyStore:
    """A :class:`~holdfast.storage.FileStore` whose changes are refused. Safe for several threads."""

    def __init__(self, store: FileStore) -> None:
        self._store = store
        self.uri = store.uri

    def get(self, name: str) -> bytes | None:
        return self._store.get(name)

    def fetch(self, name: str, path: str) -> bool:
        """Tables are never changed, by nobody, so where a hard link can be had no byte is copied."""
        stored = self._store.local_path(name)
        if stored is not None and name.endswith(".sst") and os.path.isfile(stored) and not os.path.islink(stored):
            try:
                os.link(stored, path)
                return True
            except OSError as error:
                if error.errno == errno.EEXIST:
                    raise
        return self._store.fetch(name, path)

    def list(self, prefix: str) -> Listing:
        return self._store.list(prefix)

    def names(self, folder: str, after: str = "", before: str = "") -> Names:
        return self._store.names(folder, after, before)

    def local_path(self, name: str) -> str | None:
        return self._store.local_path(name)

    def put(self, name: str, data: Data) -> None:
        raise self._refusal(name)

    def put_file(self, name: str, path: str) -> None:
        raise self._refusal(name)

    def create_if_absent(self, name: str, data: Data) -> bool:
        raise self._refusal(name)

    def copy_if_absent(self, name: str, target: str, source: FileStore | None = None) -> bool | None:
        raise self._refusal(target)

    def delete(self, names: Sequence[str]) -> None:
        raise self._refusal(", ".join(names))

    def sweep(self, prefix: str, before_ms: int) -> int:
        raise self._refusal(prefix)

    def _refusal(self, name: str) -> InternalError:
        return InternalError(f"a reader of {self.uri} was about to change {name}; nothing was changed: report this")
