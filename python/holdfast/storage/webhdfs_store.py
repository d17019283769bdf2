"""A FileStore in HDFS, through WebHDFS: no JVM.

A file is written under a temporary name in the folder where it belongs, synced by its DataNodes, then renamed, which
the NameNode refuses where the name exists. The answer of a rename may be lost: so the id that HDFS gave the file, and
that stays through a rename, is asked for before; whoever is refused looks whose id the name has.
A crash anywhere leaves at most a temporary file, which `sweep` removes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import requests

from holdfast.clock import Ids, new_id
from holdfast.errors import InvalidRequest, Unavailable
from holdfast.storage.file_store import (
    TEMPORARY_PREFIX,
    Data,
    FileStore,
    Listing,
    Names,
    StoredFile,
    between,
    check_folder,
    check_name,
    exists_already,
    is_temporary,
    unreadable,
)
from holdfast.storage.options import StorageOptions
from holdfast.storage.patience import Patience, TryAgainError
from holdfast.storage.transfer import fetch_pieces, local_file, run_parallel
from holdfast.storage.uri import HdfsFolder
from holdfast.storage.webhdfs import FileStatus, WebHdfs, WebHdfsError
from holdfast.storage.webhdfs_answers import WebHdfsAnswers

#: The endpoint, where no setting says it: of the command line, and where the setting is a bucket's.
ENDPOINT_VARIABLE = "HOLDFAST_WEBHDFS_ENDPOINT"
#: A file comes in parts of this size: what was cut short is asked for again from there.
PART_BYTES = 16 << 20
_DELETE_THREADS = 8


class _SourceGoneError(Exception):
    """What is being copied was deleted."""


@dataclass(frozen=True)
class _Content:
    """What is to be written: ``body`` opens it anew for each attempt."""

    size_bytes: int
    body: Callable[[], Any]


@dataclass(frozen=True)
class _Pieces:
    """A body whose length is told before it goes: a DataNode shall see where it was cut short."""

    size_bytes: int
    pieces: Iterator[bytes]

    def __len__(self) -> int:
        return self.size_bytes

    def __iter__(self) -> Iterator[bytes]:
        return self.pieces


class WebHdfsFileStore:
    """Files below a folder of HDFS. Folders are made as needed.

    Parameters
    ----------
    ids, patience
        Given by tests.
    """

    def __init__(
        self, folder: HdfsFolder, options: StorageOptions, *, ids: Ids = new_id, patience: Patience | None = None
    ) -> None:
        endpoint = options.endpoint or _endpoint_of_environment()
        self.uri = folder.found_by(endpoint).uri
        self._root = f"/{folder.path}" if folder.path else ""
        self._client = WebHdfs(folder.addresses(endpoint), options)
        self._ids = ids
        self._answers = WebHdfsAnswers()
        self._patience = patience or Patience(self.uri, options, self._answers)

    def put(self, name: str, data: Data) -> None:
        self._new(name, _of_bytes(data))

    def put_file(self, name: str, path: str) -> None:
        with _of_file(path, name) as content:
            self._new(name, content)

    def create_if_absent(self, name: str, data: Data) -> bool:
        return self._publish("writing", name, _of_bytes(data))

    def copy_if_absent(self, name: str, target: str, source: FileStore | None = None) -> bool | None:
        check_name(name)
        if self._status("copying to", target) is not None:
            return False
        if source is not None:
            return self._copy_of_another(name, target, source)
        return self._copy(name, target)

    def _copy_of_another(self, name: str, target: str, source: FileStore) -> bool | None:
        with local_file(source, name) as path:
            if os.path.isfile(path):
                with _of_file(path, target) as content:
                    return self._publish("copying to", target, content)
        return None if self._status("copying to", target) is None else False

    def _copy(self, name: str, target: str) -> bool | None:
        source = self._status("reading", name)
        if source is not None:
            size_bytes = source.size_bytes
            content = _Content(size_bytes, lambda: _Pieces(size_bytes, self._pieces_again(name)))
            with suppress(_SourceGoneError):
                return self._publish("copying to", target, content, beside=name)
        return None if self._status("copying to", target) is None else False

    def get(self, name: str) -> bytes | None:
        try:
            return b"".join(self._pieces(name))
        except WebHdfsError:
            return None

    def fetch(self, name: str, path: str) -> bool:
        return fetch_pieces(self._pieces(name), path, name, self.uri, WebHdfsError)

    def list(self, prefix: str) -> Listing:
        return sorted((file for file in self._walk(prefix) if not is_temporary(file.name)), key=lambda file: file.name)

    def names(self, folder: str, after: str = "", before: str = "") -> Names:
        entries = self._entries(check_folder(folder))
        found = (folder + one.suffix for one in entries if one.is_file and not is_temporary(one.suffix))
        return between(found, after, before)

    def delete(self, names: Sequence[str]) -> None:
        checked = [check_name(name) for name in names]
        run_parallel([lambda name=name: self._delete(name) for name in checked], _DELETE_THREADS)  # type: ignore[misc]

    def sweep(self, prefix: str, before_ms: int) -> int:
        left = [file.name for file in self._walk(prefix) if is_temporary(file.name) and file.modified_ms < before_ms]
        run_parallel([lambda name=name: self._delete(name) for name in left], _DELETE_THREADS)  # type: ignore[misc]
        return len(left)

    def local_path(self, name: str) -> str | None:
        return None

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root or "/"

    def _delete(self, name: str) -> None:
        with suppress(WebHdfsError):  # what is below a file is missing, too
            self._patience.call("deleting", name, lambda: self._client.delete(self._path(name)), may_miss=True)

    def _new(self, name: str, content: _Content) -> None:
        if not self._publish("writing", name, content):
            raise exists_already(name, self.uri)

    def _publish(self, doing: str, name: str, content: _Content, beside: str | None = None) -> bool:
        """Writes and names a file; False when the name exists, and not by this call. A copy is written ``beside`` its
        source: a folder of output shall not keep what killed tasks left, and nobody sweeps there.
        """
        path = self._path(check_name(name))
        folder = self._path(beside or name).rpartition("/")[0]
        temporaries: list[str] = []
        made: FileStatus | None = None

        def attempt() -> bool:
            nonlocal made
            if made is None:
                if beside is not None:
                    self._client.make_folder(path.rpartition("/")[0] or "/")
                temporaries.append(f"{folder}/{TEMPORARY_PREFIX}{self._ids()}")
                made = self._write(temporaries[-1], content)
            try:
                self._client.rename(temporaries[-1], path)
            except WebHdfsError as error:
                found = self._found(path)
                if found is not None:
                    return found.file_id == made.file_id
                if self._answers.is_missing(error) or error.status == 200:
                    # The temporary file is not there any more: swept, or its folder was deleted. It is written again.
                    made = None
                    raise TryAgainError("what was to be renamed is not there any more") from None
                raise
            temporaries.pop()
            return True

        try:
            named = self._patience.call(doing, name, attempt)
        except _SourceGoneError:
            self._forget(temporaries)
            raise
        self._forget(temporaries)
        return named

    def _forget(self, temporaries: Sequence[str]) -> None:
        """Of attempts that failed. A rename that is still on its way shall find nothing to rename."""
        for temporary in temporaries:
            with suppress(WebHdfsError, requests.RequestException):  # `sweep` clears it
                self._client.delete(temporary)

    def _write(self, path: str, content: _Content) -> FileStatus:
        self._client.create(path, content.body() if content.size_bytes else b"")
        made = self._found(path)
        if made is None or made.size_bytes != content.size_bytes:
            raise TryAgainError(
                f"of {content.size_bytes} bytes that were written, {made.size_bytes if made else 0} are there"
            )
        return made

    def _found(self, path: str) -> FileStatus | None:
        try:
            return self._client.status(path)
        except WebHdfsError as error:
            if not self._answers.is_missing(error):
                raise
            return None

    def _status(self, doing: str, name: str) -> FileStatus | None:
        return self._patience.call(doing, name, lambda: self._found(self._path(check_name(name))))

    def _pieces(self, name: str) -> Iterator[bytes]:
        """The bytes of a file, in at least one piece; WebHdfsError where there is none."""
        path = self._path(check_name(name))

        def part(offset: int = 0) -> bytes:
            return self._patience.call(
                "reading", name, lambda: self._client.read(path, offset, PART_BYTES), may_miss=True
            )

        first = part()
        yield first
        if len(first) == PART_BYTES:  # there may be more; an offset at the end is refused
            found = self._patience.call("reading", name, lambda: self._client.status(path), may_miss=True)
            size_bytes = found.size_bytes
            for offset in range(PART_BYTES, size_bytes, PART_BYTES):
                piece = part(offset)
                if len(piece) != min(PART_BYTES, size_bytes - offset):
                    told = f"expected {size_bytes} bytes, found {offset + len(piece)}"
                    raise Unavailable(f"reading {name!r} in {self.uri} failed: {told}")
                yield piece

    def _pieces_again(self, name: str) -> Iterator[bytes]:
        """For a copy, whose own patience is around these: that its source is gone is no answer of its target. The first
        is read at once, before anything is made.
        """

        def read() -> Iterator[bytes]:
            try:
                yield from self._pieces(name)
            except WebHdfsError:
                raise _SourceGoneError from None

        pieces = read()
        return chain([next(pieces)], pieces)

    def _entries(self, folder: str) -> Iterator[FileStatus]:
        """What is in a folder, which is empty or ends in ``/``; nothing where there is none."""
        with suppress(WebHdfsError):
            path = self._path(folder.rstrip("/"))
            found = self._patience.call("listing", folder, lambda: self._client.statuses(path), may_miss=True)
            yield from (one for one in found if one.suffix)  # a file lists itself, without a name

    def _walk(self, prefix: str) -> Iterator[StoredFile]:
        # The folder that holds everything of this prefix; a prefix may end within a name.
        top = prefix.rpartition("/")[0]
        folders = [f"{top}/" if top else ""]
        while folders:
            folder = folders.pop()
            for one in self._entries(folder):
                name = folder + one.suffix
                if one.is_file and name.startswith(prefix):
                    yield StoredFile(name, one.size_bytes, one.modified_ms)
                elif not one.is_file and (f"{name}/".startswith(prefix) or prefix.startswith(f"{name}/")):
                    folders.append(f"{name}/")


def _endpoint_of_environment() -> str | None:
    try:
        return StorageOptions(endpoint=os.environ.get(ENDPOINT_VARIABLE) or None).endpoint
    except InvalidRequest as error:
        raise InvalidRequest(f"the environment's {ENDPOINT_VARIABLE} is no endpoint: {error}") from None


def _of_bytes(data: Data) -> _Content:
    content = bytes(memoryview(data))
    return _Content(len(content), lambda: content)


@contextmanager
def _of_file(path: str, name: str) -> Iterator[_Content]:
    """A local file that is to be stored as ``name``."""
    try:
        with open(path, "rb") as file:
            yield _Content(os.fstat(file.fileno()).st_size, lambda: _rewound(file))
    except OSError as error:
        raise unreadable(path, name, error) from error


def _rewound(file: Any) -> Any:
    file.seek(0)
    return file
