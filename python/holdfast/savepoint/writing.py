"""Writes a savepoint: one Parquet file for each state and slot, as it comes, and the manifest at the end.

Memory is bounded by one row group. A crash leaves a folder without a manifest, which is no savepoint.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast._core import xxh64_file
from holdfast.clock import SystemClock, new_id
from holdfast.errors import Incompatible, InternalError, InvalidRequest, Unavailable
from holdfast.savepoint.columns import StateColumns, as_type
from holdfast.savepoint.compression import ZSTD_LEVEL, codecs
from holdfast.savepoint.manifest import MANIFEST, TableFile, table_name
from holdfast.sealed import CHECKSUM_DIGITS
from holdfast.storage import FileStore
from holdfast.storage.file_store import TEMPORARY_PREFIX

FORMAT, VERSION = "savepoint", 1
#: Rows, and bytes as they are in memory, that a row group has at most.
_GROUP_ROWS, _GROUP_BYTES = 1 << 20, 64 << 20
#: Of names that are being written, all that this package makes, and no name that a person gives.
_DRAFT = re.compile(re.escape(TEMPORARY_PREFIX) + "[0-9a-f]{32}")
#: Younger ones may belong to somebody who is at work.
_DRAFT_AGE_MS = 3_600_000


def draft_path(store: FileStore) -> str | None:
    """A path for a new local file that :meth:`FileStore.put_file` takes without copying it; None: the store is
    elsewhere.
    """
    manifest = store.local_path(MANIFEST)
    if manifest is None:
        return None
    folder = os.path.dirname(manifest)
    with suppress(OSError):  # what is wrong there the store says, of a file that is elsewhere
        os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, f"{TEMPORARY_PREFIX}{new_id()}") if os.access(folder, os.W_OK | os.X_OK) else None


class TableWriter:
    """The table of one state in one slot, written to a local file first. Owner: one thread.

    Parameters
    ----------
    path
        The local file, which must not exist, and does not when the writer is left.
    """

    def __init__(self, path: str, operator: str, state: str, columns: StateColumns) -> None:
        self._path = path
        self._names = (operator, state)
        texts = {"format": FORMAT, "version": str(VERSION), "operator": operator, "state": state}
        metadata = {f"holdfast.{name}": text for name, text in texts.items()}
        self._schema = columns.parquet_schema.with_metadata(metadata)
        self._writer: pq.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Adds rows, which have the columns of ``columns.schema`` in the table's order."""
        if not batch.num_rows:
            return
        self._held.append(batch)
        self.rows += batch.num_rows
        held_rows = sum(held.num_rows for held in self._held)
        if held_rows >= _GROUP_ROWS or sum(held.nbytes for held in self._held) >= _GROUP_BYTES:
            self._flush()

    def finish(self, store: FileStore, slot: int, key_groups: tuple[int, int]) -> TableFile | None:
        """Ends the file and uploads it, durably; None, and nothing is stored, where there were no rows."""
        self.end()
        if not self.rows:
            return None
        checksum, size_bytes = xxh64_file(self._path)
        try:
            store.put_file(table_name(*self._names, slot), self._path)
        except InternalError as error:  # the name exists, and the folder was empty when this attempt began
            raise InvalidRequest(
                f"another attempt at a savepoint writes into {store.uri}; let it end, or give another folder"
            ) from error
        self._remove()
        return TableFile(slot, *key_groups, self.rows, size_bytes, f"{checksum:0{CHECKSUM_DIGITS}x}")

    def end(self) -> None:
        """Ends the local file, with all its rows. May be called again."""
        self._flush()
        self.close()

    def close(self) -> None:
        """Ends the local file, whether whole or not. May be called again."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with self._plain_errors():  # its footer is written here
                writer.close()

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.close()
            elif self._writer is not None:
                with suppress(Exception):  # what went wrong before is what is told
                    self._writer.close()
        finally:
            self._remove()

    def _remove(self) -> None:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self._path)

    def _flush(self) -> None:
        if not self._held:
            return
        rows = pa.Table.from_batches(self._held)
        self._held = []
        with self._plain_errors():
            stored = pa.Table.from_arrays(
                [_stored(rows.column(f.name), f.type) for f in self._schema], schema=self._schema
            )
            if self._writer is None:
                compression = codecs(stored)
                # Dictionaries help few columns of a state and cost all of them: keys are nearly all distinct.
                self._writer = pq.ParquetWriter(
                    self._path,
                    self._schema,
                    version="2.6",
                    compression=compression,
                    compression_level={path: ZSTD_LEVEL for path, codec in compression.items() if codec == "zstd"},
                    use_dictionary=False,
                )
            self._writer.write_table(stored)

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            yield
        except pa.ArrowInvalid as error:
            raise Incompatible(
                f"state {self._names[1]!r} of operator {self._names[0]!r} has a value that Parquet does not hold: "
                f"{error}"
            ) from error
        except OSError as error:
            raise Unavailable(f"writing {self._path} failed: {error.strerror or error}; free space there") from error


def sweep_drafts(store: FileStore, names: Iterable[str] = ()) -> None:
    """Removes what attempts that were killed an hour ago or earlier were writing on this machine: in the savepoint's
    own folder and in those that files of these names are in, but in none below, which may be another savepoint's.
    One that cannot be removed stays, and harms nobody.
    """
    root = os.path.dirname(store.local_path(MANIFEST) or "")
    if not root:
        return
    folders = {root, *(os.path.join(root, os.path.dirname(name)) for name in names)}
    drafts = [draft for folder in sorted(folders) for draft in _drafts_in(folder)]
    if not drafts:
        return
    with suppress(OSError):
        before_ms = min(SystemClock().now_ms(), _time_ms(root)) - _DRAFT_AGE_MS
        for path, modified_ms in drafts:
            if modified_ms < before_ms:
                with suppress(OSError):
                    os.unlink(path)


def _drafts_in(folder: str) -> list[tuple[str, int]]:
    """Files of a folder that are being written, or were; and when they last were, in milliseconds since 1970."""
    with suppress(OSError), os.scandir(folder) as entries:
        return [
            (entry.path, entry.stat(follow_symlinks=False).st_mtime_ns // 1_000_000)
            for entry in entries
            if _DRAFT.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
        ]
    return []


def _time_ms(folder: str) -> int:
    """The time by the clock of those who date the folder's files: a file is made, looked at and deleted."""
    path = os.path.join(folder, f"{TEMPORARY_PREFIX}{new_id()}")
    try:
        with open(path, "xb") as file:
            return os.fstat(file.fileno()).st_mtime_ns // 1_000_000
    finally:
        with suppress(FileNotFoundError):
            os.unlink(path)


def write_manifest(store: FileStore, text: str) -> None:
    """Makes the savepoint exist whose manifest this is, if none exists there. Old drafts of killed attempts go before.

    Raises
    ------
    InvalidRequest
        There is one already.
    """
    sweep_drafts(store)
    if not store.create_if_absent(MANIFEST, text.encode()):
        raise InvalidRequest(f"{store.uri} holds a savepoint already, which stays as it is; give another folder")


def _stored(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    """A column in the type that Parquet has for it."""
    return pa.chunked_array([as_type(chunk, type) for chunk in column.chunks], type)
