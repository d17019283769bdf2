"""Writes one partition of one batch: a local file first, then, whole and durable, a staged one that nobody lists.

The local file has no name (unlinked as soon as it is open), so that a task that is killed leaves nothing on the disk.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast._core import xxh64_file
from holdfast.arrow.nullability import without_nulls_below_nulls
from holdfast.commit.sink import Committable, SinkTask
from holdfast.errors import Fenced, InvalidRequest, Unavailable
from holdfast.sealed import CHECKSUM_DIGITS
from holdfast.sink.files.fences import NONE, Fence, newest_fence
from holdfast.sink.files.layout import README, Layout
from holdfast.storage import FileStore, copy_bytes_max


class FileWriter:
    """A `holdfast.commit.sink.SinkWriter`."""

    def __init__(self, store: FileStore, layout: Layout, task: SinkTask, compression: str, row_group_rows: int) -> None:
        self._store = store
        self._layout = layout
        self._task = task
        self._compression = compression
        self._row_group_rows = row_group_rows
        self._fence = self._newest_fence()
        self._refuse(self._fence[0] > task.scope.epoch)
        self._file: IO[bytes] | None = None
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        with self._plain_errors():
            if self._writer is None:
                self._file = tempfile.TemporaryFile(prefix="holdfast-files-")  # noqa: SIM115 (see _clear)
                self._writer = pq.ParquetWriter(_path_of(self._file), batch.schema, compression=self._compression)
            self._writer.write_batch(_storable(batch), row_group_size=self._row_group_rows)
        self._rows += batch.num_rows

    def prepare(self) -> Committable | None:
        if self._writer is None or self._file is None:
            return None
        path = _path_of(self._file)
        with self._plain_errors():  # most of it is written here
            self._writer.close()
            checksum, size_bytes = xxh64_file(path)
        self._check_size(size_bytes)
        self._refuse(self._newest_fence() != self._fence)
        staged = self._layout.staged(self._task)
        self._store.put_file(staged, path)  # of any size: it never is in memory as a whole
        self._clear()
        body = {
            "batch_id": self._task.batch_id,
            "folder": self._store.uri,
            "staged": staged,
            "published": self._layout.published(self._task.batch_id, self._task.partition),
            "checksum": f"{checksum:0{CHECKSUM_DIGITS}x}",
        }
        return Committable(self._task.partition, self._task.attempt, self._rows, size_bytes, body)

    def abort(self) -> None:
        if self._writer is not None:
            with suppress(Exception):
                self._writer.close()
        self._clear()

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Unavailable(
                f"{self._who()}: a local file cannot be written: {error}; make room in {tempfile.gettempdir()}, or set "
                f"TMPDIR on the executors"
            ) from error
        except pa.ArrowException as error:
            raise InvalidRequest(f"{self._who()}: rows cannot be written as Parquet: {error}") from error

    def _clear(self) -> None:
        self._writer = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _newest_fence(self) -> Fence:
        """The driver left one of its epoch before the first task began. Of a folder that is mounted a list may be late;
        a look at a name that this machine has not asked for is not.

        Raises
        ------
        InvalidRequest
            There is none: what this task writes the driver would never find.
        """
        found, epoch = newest_fence(self._store, self._layout), self._task.scope.epoch
        if found[0] >= epoch:
            return found
        if self._store.get(self._layout.fence(epoch, 1)) is not None:
            return (epoch, 1)
        if found == NONE and self._store.get(README) is not None:
            return found  # a copy of the query had taken the folder over, and was refused: it left no fence at all
        raise InvalidRequest(
            f"{self._who()}: {self._store.uri} on host {socket.gethostname()} is not the folder that the driver has "
            f"under this name: what the driver left there is not here. Give FileSink a folder that the driver and all "
            f"executors have mounted under one path (NFS or the like), or a prefix in a bucket. If what was in it was "
            f"deleted, start the query again"
        )

    def _refuse(self, is_fenced: bool) -> None:
        if is_fenced:
            raise Fenced(
                f"{self._who()}: a recovery of this query swept away what was open, "
                "so this task is not the one whose output counts"
            )

    def _check_size(self, size_bytes: int) -> None:
        """Once it stands in a record, a file that cannot be published would hold the query up for ever."""
        most = copy_bytes_max(self._store)
        if most is not None and size_bytes > most:
            raise InvalidRequest(
                f"{self._who()}: the file has {size_bytes:,} bytes, and {self._store.uri} copies none of more than "
                f"{most:,} to the name under which it is committed. Use more partitions, or smaller batches"
            )

    def _who(self) -> str:
        task = self._task
        return (
            f"sink {task.scope.sink!r}, batch {task.batch_id}, partition {task.partition}, attempt {task.attempt}, "
            f"epoch {task.scope.epoch}"
        )


def _storable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, as Parquet's writer takes them."""
    columns = [without_nulls_below_nulls(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _path_of(file: IO[bytes]) -> str:
    """By which this process opens a file that has no name."""
    return f"/proc/self/fd/{file.fileno()}"
