"""FileStore: the one interface to where checkpoints are kept.

Made for object stores: a file is written once, whole, under a name that is new; there is no rename and no append.
A name is relative, its parts separated by ``/``. tests/contract/test_file_store.py says what every implementation owes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

from holdfast.errors import InternalError, InvalidRequest, Unavailable

#: Parts of names that begin with this belong to the store itself: files that are being written.
TEMPORARY_PREFIX = ".tmp-"

Data: TypeAlias = "bytes | bytearray | memoryview | pa.Buffer"


@dataclass(frozen=True)
class StoredFile:
    """A file in a store. ``modified_ms``: when it was written, milliseconds since 1970, by the store's own clock."""

    name: str
    size_bytes: int
    modified_ms: int


#: Files in order of names. (In a class that has a method `list`, such types need names of their own.)
Listing = list[StoredFile]
Names = list[str]


class FileStore(Protocol):
    """Files by name. All methods may be called from any thread.
    What does not answer raises Unavailable, with ``uri``.
    """

    uri: str  # without credentials: fit for logs

    def put(self, name: str, data: Data) -> None:
        """Writes a file. When this returns, the file is durable; until then, nobody sees any of it.

        Raises
        ------
        InternalError
            The name exists: names are unique to the attempt that writes them.
        """

    def put_file(self, name: str, path: str) -> None:
        """Uploads the local file ``path``; otherwise as :meth:`put`.

        One that was written below where :meth:`local_path` leads, and whose name begins with :data:`TEMPORARY_PREFIX`,
        is not copied: it is taken, and gone afterwards, also where the name exists.
        """

    def create_if_absent(self, name: str, data: Data) -> bool:
        """Writes a file unless the name exists. False: somebody was first, and their file is unchanged."""

    def copy_if_absent(self, name: str, target: str, source: FileStore | None = None) -> bool | None:
        """Gives the file ``name``, of this store or of ``source``, a second name here, durably, unless ``target``
        exists (False). None: there is no ``name``, and no ``target`` either. Within one file system or one bucket no
        byte passes through this machine. Neither file is touched by what becomes of the other.
        """

    def get(self, name: str) -> bytes | None:
        """The bytes of a file; None when there is none."""

    def fetch(self, name: str, path: str) -> bool:
        """Downloads to the local file ``path``, which must not exist. False: no such file, and ``path`` is not made."""

    def list(self, prefix: str) -> Listing:
        """Files whose name begins with ``prefix``, in order of names.
        Files that are still being written are not among them.
        """

    def names(self, folder: str, after: str = "", before: str = "") -> Names:
        """Names of the files in ``folder`` itself, which is empty or ends in ``/``, but not of those in folders below:
        as :meth:`list`, in less time, where no more than the names is asked. ``after`` and ``before`` are whole names:
        what comes at or before the one, or at or after the other, is left out, and a bucket is not asked for it.
        """

    def delete(self, names: Sequence[str]) -> None:
        """Deletes files. A name that does not exist is no error."""

    def sweep(self, prefix: str, before_ms: int) -> int:
        """Removes what writers that were killed before ``before_ms`` left half-written under ``prefix``; how many."""

    def local_path(self, name: str) -> str | None:
        """Where the file is, or would be, on this machine; None when the store is elsewhere."""


def between(names: Iterable[str], after: str, before: str) -> Names:
    """Those that :meth:`FileStore.names` gives, in order."""
    return sorted(name for name in names if name > after and (not before or name < before))


def is_temporary(name: str) -> bool:
    """Whether a file is one that is being written, or was when its writer was killed."""
    return name.rpartition("/")[2].startswith(TEMPORARY_PREFIX)


def exists_already(name: str, uri: str) -> InternalError:
    """What is said of a name that was to be written and is there."""
    return InternalError(f"{name} exists already in {uri}: names of stored files are written once")


def unreadable(path: str, name: str, error: OSError) -> Unavailable:
    """What is said of a local file that was to be stored as ``name``."""
    return Unavailable(f"the local file {path} cannot be read, to be stored as {name!r}: {error}")


def check_name(name: str) -> str:
    """``name``, if it is one that a store takes; InvalidRequest otherwise."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or part.startswith(TEMPORARY_PREFIX) or "\0" in part for part in parts):
        raise InvalidRequest(
            f"{name!r} is not a name of a stored file: expected parts separated by single '/', none of them '.', '..' "
            f"or beginning with {TEMPORARY_PREFIX!r}"
        )
    return name


def check_folder(folder: str) -> str:
    """``folder``, if it is one whose names a store tells; InvalidRequest otherwise."""
    if folder and not folder.endswith("/"):
        raise InvalidRequest(f"{folder!r} is not a folder of a store: expected the empty text, or one that ends in '/'")
    if folder:
        check_name(folder[:-1])
    return folder
