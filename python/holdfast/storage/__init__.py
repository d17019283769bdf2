"""Where checkpoints are kept: files by name, each written once. Knows pyarrow.fs, and nothing of what the files
hold.
"""

from __future__ import annotations

from holdfast.storage.file_store import FileStore, StoredFile
from holdfast.storage.local import LocalFileStore
from holdfast.storage.transfer import run_parallel
from holdfast.storage.uri import parse_uri

__all__ = ["FileStore", "LocalFileStore", "StoredFile", "open_file_store", "run_parallel"]


def open_file_store(uri: str) -> FileStore:
    """The store that ``uri`` names: a path, ``file:///path``, or what ``pyarrow.fs.FileSystem.from_uri`` takes.

    Raises
    ------
    InvalidRequest
        Not a place that files can be kept in.
    Unavailable
        It does not answer.
    """
    parsed = parse_uri(uri)
    if parsed.path is not None:
        return LocalFileStore(parsed.path, uri=parsed.shown)
    # Only here: importing pyarrow.fs loads the clients of every object store.
    from holdfast.storage.arrow import open_arrow_store

    return open_arrow_store(parsed)
