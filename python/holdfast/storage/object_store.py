"""A FileStore in an object store: S3, Google Cloud Storage, Azure, or what speaks as one of them.

A file is one object, made by one request that fails where the name exists. An answer may be lost, so that the next
attempt meets its own object: each call marks what it makes with a name of its own, and whoever is refused looks whose
it is. A crash leaves nothing but parts of a large upload, which nobody lists; a rule of the bucket clears them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import S3Store

from holdfast.clock import Ids, new_id
from holdfast.storage.answers import ObjectAnswers, is_missing
from holdfast.storage.clients import client_of
from holdfast.storage.file_store import (
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
from holdfast.storage.uri import Bucket

#: Who made an object: a mark beside its bytes. Azure takes letters only.
_MARK = "holdfastattempt"
#: Beyond this an object goes in parts, and comes in parts: one request must end within its time limit.
PART_BYTES = 16 << 20
_PARTS_AT_ONCE = 4
_PARTS_MAX = 9_000
_DELETE_THREADS = 8
_LIST_CHUNK = 1_000


class ObjectFileStore:
    """Files below a prefix of a bucket.

    Parameters
    ----------
    ids, patience
        Given by tests.
    """

    def __init__(
        self, bucket: Bucket, options: StorageOptions, *, ids: Ids = new_id, patience: Patience | None = None
    ) -> None:
        self.uri = bucket.uri
        self._bucket = bucket
        self._options = options
        self._client: Any = client_of(bucket, options)
        self._ids = ids
        self._patience = patience or Patience(self.uri, options, ObjectAnswers())

    def put(self, name: str, data: Data) -> None:
        view = _bytes_of(data)
        made = self._create(name, view) if view.nbytes <= PART_BYTES else self._upload(name, view, view.nbytes)
        if not made:
            raise exists_already(name, self.uri)

    def put_file(self, name: str, path: str) -> None:
        if not self._put_file(name, path):
            raise exists_already(name, self.uri)

    def create_if_absent(self, name: str, data: Data) -> bool:
        return self._create(name, _bytes_of(data))

    def copy_if_absent(self, name: str, target: str, source: FileStore | None = None) -> bool | None:
        check_name(name), check_name(target)
        if source is not None and not self._shares_bucket(source):
            return self._copy_through_here(name, target, source)
        client, origin, made = self._client, name, target
        if isinstance(source, ObjectFileStore):
            client, origin, made = self._whole_bucket, source._key(name), self._key(target)

        def copy() -> bool | None:
            try:
                obstore.copy(client, origin, made, overwrite=False)
                return True
            except AlreadyExistsError:
                if self._maker(target) is None:
                    raise TryAgainError("a copy was refused for a name that does not exist") from None
                return False
            except FileNotFoundError as error:
                if not is_missing(error):
                    raise
                # Also of an earlier attempt whose answer was lost: the upload that it ended is not there any more.
                return None if self._maker(target) is None else False

        return self._patience.call("copying to", target, copy)

    def get(self, name: str) -> bytes | None:
        try:
            return b"".join(self._pieces(name))
        except FileNotFoundError:
            return None

    def fetch(self, name: str, path: str) -> bool:
        return fetch_pieces(self._pieces(name), path, name, self.uri, FileNotFoundError)

    def list(self, prefix: str) -> Listing:
        folder = prefix.rpartition("/")[0]  # a store lists by whole parts of names; a prefix may end within one

        def look() -> Listing:
            chunks = obstore.list(self._client, folder or None, chunk_size=_LIST_CHUNK)
            return [_stored(meta) for chunk in chunks for meta in chunk]

        found = self._patience.call("listing", prefix, look)
        return sorted(
            (file for file in found if file.name.startswith(prefix) and not is_temporary(file.name)),
            key=lambda file: file.name,
        )

    def names(self, folder: str, after: str = "", before: str = "") -> Names:
        prefix = check_folder(folder).rstrip("/") or None

        def look() -> Names:
            if (after or before) and self._lists_in_order:
                pages = obstore.list(self._client, prefix, offset=after or None, chunk_size=_LIST_CHUNK)
                return _names_until(before, pages)
            return [str(meta["path"]) for meta in obstore.list_with_delimiter(self._client, prefix)["objects"]]

        found = self._patience.call("listing", folder, look)
        here = (name for name in found if name.rpartition("/")[0] == folder[:-1] and not is_temporary(name))
        return between(here, after, before)

    def delete(self, names: Sequence[str]) -> None:
        checked = [check_name(name) for name in names]
        if isinstance(self._client, S3Store) and len(checked) > 1:
            # One request for a thousand; a name that does not exist is none of S3's concerns.
            self._patience.call("deleting", f"{checked[0]}, …", lambda: obstore.delete(self._client, checked))
        else:
            run_parallel([lambda name=name: self._delete(name) for name in checked], _DELETE_THREADS)  # type: ignore[misc]

    def sweep(self, prefix: str, before_ms: int) -> int:
        return 0  # what is being written has no name here

    def local_path(self, name: str) -> str | None:
        return None

    @property
    def _lists_in_order(self) -> bool:
        """By names, and from any name on, as all clouds do, but not S3's directory buckets (S3 Express One Zone)."""
        return not self._bucket.name.endswith("--x-s3")

    @cached_property
    def _whole_bucket(self) -> Any:
        """A client of the bucket without a prefix."""
        return client_of(replace(self._bucket, prefix=""), self._options)

    def _shares_bucket(self, other: FileStore) -> bool:
        """Whether the bucket's server can copy from the other store: the same bucket, reached in the same way."""
        if not isinstance(other, ObjectFileStore):
            return False
        ours, theirs = replace(self._bucket, prefix=""), replace(other._bucket, prefix="")
        return (ours, self._options) == (theirs, other._options)

    def _key(self, name: str) -> str:
        return f"{self._bucket.prefix}/{name}" if self._bucket.prefix else name

    def _copy_through_here(self, name: str, target: str, source: FileStore) -> bool | None:
        with local_file(source, name) as path:
            if not os.path.isfile(path):
                return self._patience.call("copying to", target, lambda: None if self._maker(target) is None else False)
            return self._put_file(target, path)

    def _delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._patience.call("deleting", name, lambda: obstore.delete(self._client, name), may_miss=True)

    def _put_file(self, name: str, path: str) -> bool:
        """False: the name exists."""
        try:
            size_bytes = os.stat(path).st_size
            data = Path(path).read_bytes() if size_bytes <= PART_BYTES else b""
        except OSError as error:
            raise unreadable(path, name, error) from error
        return self._create(name, data) if size_bytes <= PART_BYTES else self._upload(name, Path(path), size_bytes)

    def _create(self, name: str, data: memoryview | bytes) -> bool:
        """One request. False: the name exists, and not by an attempt of this call whose answer was lost."""
        check_name(name)
        mark = self._ids()

        def attempt() -> bool:
            try:
                obstore.put(self._client, name, data, mode="create", attributes={_MARK: mark}, use_multipart=False)
                return True
            except AlreadyExistsError:
                maker = self._maker(name)
                if maker is None:
                    # Two wrote at once, and the other one failed; or it was deleted since.
                    raise TryAgainError("a name that does not exist was refused as one that does") from None
                return maker == mark

        return self._patience.call("writing", name, attempt)

    def _upload(self, name: str, data: memoryview | Path, size_bytes: int) -> bool:
        """In parts, which cannot be made to fail where the name exists: so that is looked at first. Names are unique to
        the attempt that writes them; here a mistake in that is told unless two write at one instant.
        """
        check_name(name)
        mark = self._ids()
        part_bytes = max(PART_BYTES, -(-size_bytes // _PARTS_MAX))

        def attempt() -> bool:
            maker = self._maker(name)
            if maker is None:
                obstore.put(
                    self._client,
                    name,
                    data,
                    attributes={_MARK: mark},
                    use_multipart=True,
                    chunk_size=part_bytes,
                    max_concurrency=_PARTS_AT_ONCE,
                )
            return maker in (None, mark)

        return self._patience.call("writing", name, attempt)

    def _maker(self, name: str) -> str | None:
        """The mark of whoever made an object, "" where it has none; None: there is no such object."""
        try:
            found = obstore.get(self._client, name, options={"head": True})
        except FileNotFoundError as error:
            if is_missing(error):
                return None
            raise
        return str(found.attributes.get(_MARK, ""))

    def _pieces(self, name: str) -> Iterator[bytes]:
        """The bytes of an object; FileNotFoundError where there is none."""
        check_name(name)

        def first() -> tuple[int, bytes]:
            found = obstore.get(self._client, name)
            size_bytes = int(found.meta["size"])
            if size_bytes > PART_BYTES:
                return size_bytes, b""  # the answer is let go, and asked for in parts
            return size_bytes, _whole(bytes(found.bytes()), size_bytes)

        size_bytes, data = self._patience.call("reading", name, first, may_miss=True)
        yield data
        for start in range(0, size_bytes if size_bytes > PART_BYTES else 0, PART_BYTES):
            end = min(start + PART_BYTES, size_bytes)

            def part(start: int = start, end: int = end) -> bytes:
                return _whole(bytes(obstore.get_range(self._client, name, start=start, end=end)), end - start)

            yield self._patience.call("reading", name, part, may_miss=True)


def _bytes_of(data: Data) -> memoryview:
    return memoryview(data).cast("B")


def _whole(data: bytes, size_bytes: int) -> bytes:
    if len(data) != size_bytes:
        raise TryAgainError(f"the answer was cut short: {len(data)} of {size_bytes} bytes")
    return data


def _stored(meta: Any) -> StoredFile:
    return StoredFile(str(meta["path"]), int(meta["size"]), int(meta["last_modified"].timestamp() * 1000))


def _names_until(before: str, pages: Iterable[Any]) -> Names:
    """Of pages in order, which come as they are asked for; what lies in folders below is among them."""
    found: Names = []
    for page in pages:
        found += [str(meta["path"]) for meta in page]
        if before and found and found[-1] >= before:
            break
    return found
