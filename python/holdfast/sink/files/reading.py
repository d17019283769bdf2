"""What a FileSink has committed, by its manifests. Format: docs/formats/file_output.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.arrow.arrays import by_parts
from holdfast.arrow.types import children, nested, with_children
from holdfast.errors import Corrupt
from holdfast.sealed import checksum_of, seal, unseal
from holdfast.sink.files.layout import LOG, is_manifest
from holdfast.storage import FileStore
from holdfast.storage.transfer import run_parallel

FORMAT = "holdfast.files"
VERSION = 1
_READ_THREADS = 16
_MICROSECONDS, _NANOSECONDS = pa.time64("us"), pa.time64("ns")


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
    """The rows of committed files, in their order; None when there are none. Each file is checked as a whole."""
    tables = []
    for file in files:
        data = store.get(file.name)
        found = None if data is None else checksum_of(data)
        if data is None or found != file.checksum:
            raise Corrupt(
                f"{file.name} in {store.uri} is not what was committed: expected {file.size_bytes} bytes with checksum "
                f"{file.checksum}, found {'no file' if data is None else f'{len(data)} bytes with {found}'}"
            )
        tables.append(pq.read_table(pa.BufferReader(data), use_threads=False))
    return pa.concat_tables(_with_alike_times(tables), promote_options="default") if tables else None


def _with_alike_times(tables: list[pa.Table]) -> list[pa.Table]:
    """Earlier versions wrote all times of day in nanoseconds: beside such files, others are read so too."""
    kinds = [field.type for table in tables for field in table.schema]
    if not all(any(_holds(kind, time) for kind in kinds) for time in (_MICROSECONDS, _NANOSECONDS)):
        return tables
    return [_in_nanoseconds(table) for table in tables]


def _holds(kind: pa.DataType, time: pa.DataType) -> bool:
    return bool(kind == time) or any(_holds(field.type, time) for field in children(kind))


def _in_nanoseconds(table: pa.Table) -> pa.Table:
    schema = pa.schema([field.with_type(_with_nanoseconds(field.type)) for field in table.schema])
    columns = [_cast(column, field.type) for column, field in zip(table.columns, schema)]
    return pa.table(columns, schema=schema)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([by_parts(chunk, kind, lambda leaf, to: leaf.cast(to)) for chunk in column.chunks], kind)


def _with_nanoseconds(kind: pa.DataType) -> pa.DataType:
    if kind == _MICROSECONDS:
        return _NANOSECONDS
    fields = [field.with_type(_with_nanoseconds(field.type)) for field in children(kind)]
    return with_children(kind, fields) if nested(kind) else kind
