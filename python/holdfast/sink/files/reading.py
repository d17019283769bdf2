"""What a FileSink has committed, by its manifests. Format: docs/formats/file_output.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import Corrupt
from holdfast.sealed import checksum_of, seal, unseal
from holdfast.sink.files.alike import with_alike_types
from holdfast.sink.files.layout import LOG, is_manifest
from holdfast.storage import FileStore
from holdfast.storage.transfer import run_parallel

FORMAT = "holdfast.files"
VERSION = 1
_READ_THREADS = 16


@dataclass(frozen=True)
class CommittedFile:
    """One file: ``name`` is relative to the sink's folder, ``checksum`` is XXH64 of its bytes."""

    partition: int
    name: str
    rows: int
    size_bytes: int
    checksum: str


@dataclass(frozen=True)
class Manifest:
    """The files of one batch: all of them, where it stands as the batch's manifest."""

    query_id: str
    sink: str
    batch_id: int
    files: tuple[CommittedFile, ...]

    def to_text(self) -> str:
        rows = [list(asdict(file).values()) for file in self.files]
        fields = {"query_id": self.query_id, "sink": self.sink, "batch_id": self.batch_id, "files": rows}
        return seal(FORMAT, VERSION, fields)

    @classmethod
    def from_text(cls, text: bytes, where: str) -> Manifest:
        fields = unseal(text, FORMAT, VERSION, where)
        try:
            return cls(**{**fields, "files": tuple(CommittedFile(*row) for row in fields["files"])})
        except (KeyError, TypeError) as error:
            raise Corrupt(f"{where} is not a manifest of committed files: {error!r}") from error


def read_manifests(store: FileStore) -> list[Manifest]:
    """Every batch that is whole, of all queries and sinks that wrote here, in order of query, sink and batch."""
    names = [file.name for file in store.list(f"{LOG}/") if is_manifest(file.name)]

    def read(name: str) -> Manifest | None:
        data = store.get(name)
        return None if data is None else Manifest.from_text(data, f"{name} in {store.uri}")

    threads = 1 if store.local_path(LOG) else _READ_THREADS  # one a batch: a bucket takes some 30 ms for each
    return [found for found in run_parallel([partial(read, name) for name in names], threads) if found is not None]


def read_files(store: FileStore, files: Iterable[CommittedFile]) -> pa.Table | None:
    """The rows of committed files, in their order; None when there are none. Each file is checked as a whole.

    A column that files lack is null in their rows; of one whose type has changed `alike` says what becomes.
    """
    tables: list[tuple[str, pa.Table]] = []
    for file in files:
        data = store.get(file.name)
        found = None if data is None else checksum_of(data)
        if data is None or found != file.checksum:
            raise Corrupt(
                f"{file.name} in {store.uri} is not what was committed: expected {file.size_bytes} bytes with checksum "
                f"{file.checksum}, found {'no file' if data is None else f'{len(data)} bytes with {found}'}"
            )
        tables.append((file.name, pq.read_table(pa.BufferReader(data), use_threads=False)))
    return pa.concat_tables(with_alike_types(tables, store.uri), promote_options="default") if tables else None
