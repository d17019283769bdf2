"""The blobs of one slot and batch, gathered in whatever order Spark delivers them
and read in the order in which they were packed.

Held in memory up to a limit, then in a local file that has no name (unlinked as soon as it is open), so that no crash
leaves it behind. Single-threaded.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import BinaryIO

import pyarrow as pa

from holdfast.errors import Corrupt, Unavailable
from holdfast.spark.blobs import Blob


@dataclass(frozen=True)
class _Entry:
    """A blob in memory, or where it is in the spool file."""

    channel: int
    map_partition: int
    sequence: int
    data: pa.Buffer | None
    offset: int
    size: int

    @property
    def packed_by(self) -> tuple[int, int]:
        """The map task, of which one input has several and an operator may have several inputs."""
        return self.channel, self.map_partition


class BlobSpool:
    """Blobs in; blobs out, by (input, map partition, sequence)."""

    def __init__(self, memory_max_bytes: int, directory: str, where: str) -> None:
        self._memory_max_bytes = memory_max_bytes
        self._directory = directory
        self._where = where
        self._entries: list[_Entry] = []
        self._held_from = 0  # entries from here on are in memory
        self._held_bytes = 0
        self._file: BinaryIO | None = None

    def __enter__(self) -> BlobSpool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entries = []
        if self._file is not None:
            self._file.close()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, data: bytes) -> None:
        """Checks a blob and keeps it.

        Raises
        ------
        Corrupt
            Its checksum or header is wrong.
        Unavailable
            The local folder is full or cannot be written.
        """
        blob = Blob.open(pa.py_buffer(data), self._where)
        self._entries.append(_Entry(blob.channel, blob.map_partition, blob.sequence, blob.data, 0, len(data)))
        self._held_bytes += len(data)
        if self._held_bytes > self._memory_max_bytes:
            self._spill()

    @property
    def spilled_bytes(self) -> int:
        """Bytes in the local file."""
        return 0 if self._file is None else self._file.tell()

    def read(self) -> Iterator[Blob]:
        """All blobs in the order in which they were packed; each is forgotten as it is handed out.

        Raises
        ------
        Corrupt
            A blob is missing or came twice, or the spool file is damaged.
        """
        entries = sorted(self._entries, key=lambda entry: (*entry.packed_by, entry.sequence), reverse=True)
        self._entries = []
        packed_by, expected = (-1, -1), 0
        while entries:
            entry = entries.pop()
            if entry.packed_by != packed_by:
                packed_by, expected = entry.packed_by, 0
            if entry.sequence != expected:
                raise Corrupt(
                    f"{self._where}: expected packed row {expected} of map partition {entry.map_partition}, found "
                    f"{entry.sequence}: the shuffle lost or repeated a row; run the batch again"
                )
            expected += 1
            yield Blob.open(self._fetch(entry) if entry.data is None else entry.data, self._where)

    def _spill(self) -> None:
        try:
            if self._file is None:
                os.makedirs(self._directory, mode=0o700, exist_ok=True)
                self._file = tempfile.TemporaryFile(dir=self._directory, prefix="spool-")  # noqa: SIM115 (see __exit__)
            for index in range(self._held_from, len(self._entries)):
                entry = self._entries[index]
                offset = self._file.tell()
                self._file.write(entry.data)  # type: ignore[arg-type]  # in memory: a buffer
                self._entries[index] = replace(entry, data=None, offset=offset)
            self._file.flush()
        except OSError as error:
            raise Unavailable(
                f"{self._where}: cannot spool {self._held_bytes} bytes of input to {self._directory} "
                f"({error.strerror}); make room there, set spark.holdfast.local.dir to another folder, "
                "or raise spark.holdfast.memory.spool.max"
            ) from error
        self._held_from = len(self._entries)
        self._held_bytes = 0

    def _fetch(self, entry: _Entry) -> pa.Buffer:
        assert self._file is not None
        return pa.py_buffer(os.pread(self._file.fileno(), entry.size, entry.offset))
