"""A FileStore over any pyarrow filesystem: S3, Google Cloud Storage, Azure, HDFS.

An object store shows an object only when its upload is complete, so a put is atomic there. Names are unique to their
attempt and checksums are kept elsewhere, so a put that is cut short is never taken for a whole file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.fs as pafs

from holdfast.errors import HoldfastError, InternalError, InvalidRequest, Unavailable
from holdfast.storage.file_store import Data, Listing, StoredFile, check_name
from holdfast.storage.uri import StoreUri

_COPY_BYTES = 4 << 20
_MISSING = (FileNotFoundError, NotADirectoryError)


class ArrowFileStore:
    """Files under ``root`` in ``filesystem``."""

    def __init__(self, filesystem: pafs.FileSystem, root: str, uri: StoreUri) -> None:
        self.uri = uri.shown
        self._redact = uri.redact
        self._filesystem = filesystem
        self._root = root.rstrip("/")

    def put(self, name: str, data: Data) -> None:
        with self._errors("writing", name):
            self._refuse_existing(name)
            with self._filesystem.open_output_stream(self._new_path(name)) as stream:
                stream.write(data)

    def put_file(self, name: str, path: str) -> None:
        with self._errors("writing", name):
            self._refuse_existing(name)
            with pa.OSFile(path, "rb") as source, self._filesystem.open_output_stream(self._new_path(name)) as target:
                while block := source.read(_COPY_BYTES):
                    target.write(block)

    def create_if_absent(self, name: str, data: Data) -> bool:
        raise self._unconditional(name)

    def copy_if_absent(self, name: str, target: str) -> bool | None:
        raise self._unconditional(target)

    def get(self, name: str) -> bytes | None:
        with self._errors("reading", name):
            try:
                with self._filesystem.open_input_stream(self._path(name)) as stream:
                    return bytes(stream.read())
            except _MISSING:
                return None

    def fetch(self, name: str, path: str) -> bool:
        with self._errors("reading", name):
            try:
                source = self._filesystem.open_input_stream(self._path(name))
            except _MISSING:
                return False
            with source, open(path, "xb") as target:
                while block := source.read(_COPY_BYTES):
                    target.write(block)
            return True

    def list(self, prefix: str) -> Listing:
        folder = "/".join(part for part in (self._root, prefix.rpartition("/")[0]) if part)
        with self._errors("listing", prefix):
            infos = self._filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True, recursive=True))
        start = len(self._root) + 1 if self._root else 0
        found = [
            StoredFile(info.path[start:], info.size, (info.mtime_ns or 0) // 1_000_000)
            for info in infos
            if info.type == pafs.FileType.File and info.path[start:].startswith(prefix)
        ]
        return sorted(found, key=lambda file: file.name)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            with self._errors("deleting", name):
                try:
                    self._filesystem.delete_file(self._path(name))
                except _MISSING:
                    continue

    def sweep(self, prefix: str, before_ms: int) -> int:
        return 0  # an upload that is cut short shows no object; the store's own life cycle rules clear its parts

    def local_path(self, name: str) -> str | None:
        return None

    def _path(self, name: str) -> str:
        return f"{self._root}/{check_name(name)}" if self._root else check_name(name)

    def _new_path(self, name: str) -> str:
        path = self._path(name)
        if self._filesystem.type_name not in ("s3", "gcs", "abfs"):  # these have no folders to make
            self._filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        return path

    def _refuse_existing(self, name: str) -> None:
        if self._filesystem.get_file_info(self._path(name)).type != pafs.FileType.NotFound:
            raise InternalError(f"{name} exists already in {self.uri}: names of stored files are written once")

    def _unconditional(self, name: str) -> InvalidRequest:
        return InvalidRequest(
            f"{self.uri} cannot create {name!r} only if it is absent: pyarrow has no conditional put for a "
            f"{self._filesystem.type_name} filesystem. Use a folder on a file system that all executors mount"
        )

    @contextmanager
    def _errors(self, doing: str, name: str) -> Iterator[None]:
        try:
            yield
        except HoldfastError:
            raise
        except (OSError, pa.ArrowException) as error:
            # `from None`: the original's text may carry the credentials.
            raise Unavailable(f"{doing} {name!r} in {self.uri} failed: {self._redact(str(error))}") from None


def open_arrow_store(uri: StoreUri) -> ArrowFileStore:
    """The store of a URI that pyarrow knows; InvalidRequest when it does not."""
    try:
        filesystem, root = pafs.FileSystem.from_uri(uri.text)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise InvalidRequest(
            f"{uri.shown!r} is not a place that this pyarrow ({pa.__version__}) can keep files in: "
            f"{uri.redact(str(error))}"
        ) from None
    except OSError as error:
        raise Unavailable(f"{uri.shown} does not answer: {uri.redact(str(error))}") from None
    return ArrowFileStore(filesystem, root, uri)
