"""Where checkpoints are kept: files by name, each written once. Knows nothing of what the files hold."""

from __future__ import annotations

from holdfast.storage.file_store import FileStore, StoredFile
from holdfast.storage.local import LocalFileStore
from holdfast.storage.transfer import run_parallel
from holdfast.storage.uri import check_spelling, local_path

__all__ = [
    "FileStore",
    "LocalFileStore",
    "StoredFile",
    "check_spelling",
    "local_path",
    "open_file_store",
    "run_parallel",
]


def open_file_store(uri: str) -> FileStore:
    """The store that ``uri`` names: a path, or ``file:///path``.

    Raises
    ------
    InvalidRequest
        Not a place that files can be kept in.
    """
    return LocalFileStore(local_path(uri))
