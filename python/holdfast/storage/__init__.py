"""Where checkpoints are kept: files by name, each written once. Knows nothing of what the files hold."""

from __future__ import annotations

from functools import lru_cache

from holdfast.errors import InvalidRequest
from holdfast.storage.file_store import FileStore, StoredFile
from holdfast.storage.local import LocalFileStore
from holdfast.storage.options import StorageOptions
from holdfast.storage.places import CHECKPOINT, FILES, HARNESS, SAVEPOINT, STATE, Place
from holdfast.storage.transfer import local_file, run_parallel
from holdfast.storage.trial import try_out
from holdfast.storage.uri import (
    Bucket,
    HdfsFolder,
    bucket_of,
    check_checkpoint_name,
    check_spelling,
    hdfs_of,
    local_path,
    shown,
    store_uri,
)

__all__ = [
    "CHECKPOINT",
    "FILES",
    "HARNESS",
    "SAVEPOINT",
    "FileStore",
    "LocalFileStore",
    "StorageOptions",
    "StoredFile",
    "check_checkpoint_name",
    "check_spelling",
    "copy_bytes_max",
    "local_file",
    "local_path",
    "open_checkpoint",
    "open_file_store",
    "run_parallel",
    "shown",
    "store_uri",
    "try_out",
]

#: S3 copies no more by one request, and a copy that replaces nothing is one.
S3_COPY_BYTES_MAX = 5 << 30


def open_file_store(uri: str, options: StorageOptions | None = None, place: Place = STATE) -> FileStore:
    """The store that ``uri`` names: a path, ``file:///path``, a folder of HDFS, or a prefix in a bucket.
    Nothing is asked of it yet. ``place``: what the errors of a folder call it.

    Raises
    ------
    InvalidRequest
        Not a place that files can be kept in; or an object store or HDFS, whose extra, ``cloud`` or ``hdfs``, is not
        installed.
    """
    options = options or StorageOptions()
    bucket = bucket_of(uri)
    if bucket is not None:
        return _object_store(bucket, options)
    folder = hdfs_of(uri)
    return LocalFileStore(local_path(uri), place=place) if folder is None else _hdfs(folder, options)


def open_checkpoint(uri: str, options: StorageOptions | None = None) -> FileStore:
    """The store of a checkpoint that Spark keeps, under the name by which Spark knows it.

    Raises
    ------
    InvalidRequest
        As :func:`open_file_store`; or Spark makes another folder of the name.
    """
    check_checkpoint_name(uri)
    return open_file_store(uri, options, CHECKPOINT)


def copy_bytes_max(store: FileStore) -> int | None:
    """The size of the largest file of a store that its server copies; None: of any size."""
    bucket = bucket_of(store.uri)
    return S3_COPY_BYTES_MAX if bucket is not None and bucket.kind == "s3" else None


@lru_cache(maxsize=64)  # a client holds connections
def _object_store(bucket: Bucket, options: StorageOptions) -> FileStore:
    try:
        from holdfast.storage.object_store import ObjectFileStore
    except ImportError as error:
        raise InvalidRequest(
            f"{bucket.uri} is an object store, and the package obstore is not installed ({error}): pip install "
            f"'holdfast-spark[cloud]', on the driver and on all executors"
        ) from None
    return ObjectFileStore(bucket, options)


@lru_cache(maxsize=64)
def _hdfs(folder: HdfsFolder, options: StorageOptions) -> FileStore:
    try:
        from holdfast.storage.webhdfs_store import WebHdfsFileStore
    except ImportError as error:
        raise InvalidRequest(
            f"{folder.uri} is in HDFS, and the package requests is not installed ({error}): pip install "
            f"'holdfast-spark[hdfs]', on the driver and on all executors"
        ) from None
    return WebHdfsFileStore(folder, options)
