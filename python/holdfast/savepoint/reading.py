"""Reads a savepoint: nothing of it is used before it was compared with the manifest.

A file's size and checksum are compared before Parquet sees a byte, then its columns and its number of rows, then the
key groups of the rows. No name is taken from the savepoint: they follow from operator, state and slot.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pyarrow.types as is_type

from holdfast._core import xxh64_file
from holdfast.arrow.types import children, has_floats, nested, with_children
from holdfast.errors import Corrupt, InvalidRequest, Unavailable
from holdfast.savepoint.columns import StateColumns, as_type, check_filter
from holdfast.savepoint.manifest import (
    CLAIMED,
    DISPOSED,
    MANIFEST,
    Manifest,
    SavedOperator,
    SavedState,
    TableFile,
    table_name,
)
from holdfast.sealed import CHECKSUM_DIGITS, checksum_of
from holdfast.storage import FileStore, local_file

_BATCH_ROWS = 8192  # what is made of them stays in the processor's cache, and in memory that is used again


def read_manifest(store: FileStore) -> Manifest:
    """The manifest of the canonical savepoint in a folder.

    Raises
    ------
    InvalidRequest
        There is none: the folder is no savepoint, or one that was not finished.
    Corrupt
        It is damaged, contradicts itself, or is a symbolic link.
    Incompatible
        A newer Holdfast wrote it; or the savepoint is a native one.
    """
    data = manifest_bytes(store)
    return replace(Manifest.from_text(data, f"{MANIFEST} in {store.uri}"), checksum=checksum_of(data))


def manifest_bytes(store: FileStore) -> bytes:
    """The file whose existence is that of the savepoint, of whichever format.

    Raises
    ------
    InvalidRequest
        There is none.
    Corrupt
        It is a symbolic link.
    """
    refuse_links(store, MANIFEST)
    data = store.get(MANIFEST)
    if data is None:
        if store.get(DISPOSED) is not None:
            raise InvalidRequest(
                f"{store.uri} holds a savepoint that was being disposed of; end it: holdfast savepoint dispose, --yes"
            )
        if store.get(CLAIMED) is not None:
            raise InvalidRequest(
                f"{store.uri} held a savepoint which a query has claimed, taken over and deleted. A program of that "
                "query starts again with the same hf.Restore(…, claim=True), or without restore="
            )
        raise InvalidRequest(
            f"{store.uri} holds no savepoint: expected the file {MANIFEST}, which is written last. What a killed "
            "attempt left has none: delete the folder and make the savepoint again"
        )
    return data


def holds_none(store: FileStore) -> bool:
    """Whether nothing in a folder says that it is, or was, a savepoint."""
    return all(store.get(name) is None for name in (MANIFEST, DISPOSED, CLAIMED))


@contextmanager
def local_table(store: FileStore, operator: str, state: str, slot: int, folder: str) -> Iterator[str]:
    """The path of the table of a state in one slot on this machine: its own; or that of a copy in ``folder`` which is
    made now, since the file may have changed since the last one, and lasts as long as the context.

    Raises
    ------
    Corrupt
        It is missing, or a symbolic link.
    """
    name = table_name(operator, state, slot)
    refuse_links(store, name)
    with local_file(store, name, folder) as path:
        if not os.path.isfile(path):
            raise missing(name, store)
        yield path


def check_files(store: FileStore, operators: Iterable[SavedOperator]) -> None:
    """Whether all tables are there, as large as they were written; by listing, so that none is brought here.

    Raises
    ------
    Corrupt
        One is missing, of another size, or a symbolic link.
    """
    sizes = {file.name: file.size_bytes for file in store.list("operators/")}
    for operator in operators:
        for state in operator.states:
            for file in state.files:
                name = table_name(operator.name, state.name, file.slot)
                refuse_links(store, name)
                if name not in sizes:
                    raise missing(name, store)
                if sizes[name] != file.size_bytes:
                    raise wrong_size(name, store, file.size_bytes, sizes[name])


def verify_file(path: str, file: TableFile, where: str) -> None:
    """Compares size and checksum; Corrupt where they are not the manifest's."""
    try:
        checksum, size_bytes = xxh64_file(path)
    except OSError as error:
        raise Unavailable(f"reading {where} failed: {error.strerror or error}") from error
    found = f"{checksum:0{CHECKSUM_DIGITS}x}"
    if (size_bytes, found) != (file.size_bytes, file.checksum):
        raise Corrupt(
            f"{where} is damaged: expected {file.size_bytes} bytes with checksum {file.checksum}, found {size_bytes} "
            f"with {found}; restore it from a copy"
        )


def read_state(
    store: FileStore,
    operator: SavedOperator,
    state: SavedState,
    folder: str,
    *,
    key_groups: tuple[int, int] | None = None,
    slots: Collection[int] | None = None,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a state, slot after slot, batch by batch, in the order of docs/formats/savepoint.md.

    Parameters
    ----------
    folder
        Of this machine, for files of a store that is elsewhere.
    key_groups
        From the first up to, but not including, the second: only rows of these. Files that have none are not read.
    slots
        Only rows of these; by default of all.
    columns
        Of these names, in this order; by default all.
    filter
        Only rows for which it is true; row groups that cannot have any are not read, where Parquet can tell.

    Raises
    ------
    Corrupt
        A file that is read is missing, damaged, or not what the manifest says.
    """
    names = state.columns.schema.names
    unknown = [name for name in columns or () if name not in names]
    if unknown:
        raise InvalidRequest(f"state {state.name!r} has no column {unknown[0]!r}; it has {', '.join(names)}")
    check_filter(state.columns.schema, filter)
    pushed, later = (filter, None) if _may_be_pushed(state.columns) else (None, filter)
    for file in state.files:
        if slots is not None and file.slot not in slots:
            continue
        wanted = pushed
        if key_groups is not None and file.end_key_group > file.first_key_group:
            if file.end_key_group <= key_groups[0] or key_groups[1] <= file.first_key_group:
                continue
            if file.first_key_group < key_groups[0] or key_groups[1] < file.end_key_group:  # else all rows are wanted
                group = pc.field(state.columns.names["key_group"])
                within = (group >= key_groups[0]) & (group < key_groups[1])
                wanted = within if pushed is None else within & pushed
        if later is None:
            yield from _read_file(store, operator, state, file, folder, columns, wanted)
            continue
        for batch in _read_file(store, operator, state, file, folder, None, wanted):
            rows = pa.Table.from_batches([batch]).filter(later)
            yield from (rows if columns is None else rows.select(list(columns))).to_batches()


def _may_be_pushed(columns: StateColumns) -> bool:
    """Whether Parquet finds for each condition on the columns all rows for which it is true. Of other types than they
    have in memory it does not know what a condition means. And row groups are left out by their least and largest
    values, which say nothing of NaN: one with it would be left out by ``value != 1`` where all else is 1.
    """
    kinds = columns.schema.types
    return kinds == columns.parquet_schema.types and not any(map(has_floats, kinds))


def _read_file(
    store: FileStore,
    operator: SavedOperator,
    state: SavedState,
    file: TableFile,
    folder: str,
    columns: Sequence[str] | None,
    filter: pc.Expression | None,
) -> Iterator[pa.RecordBatch]:
    where = f"{table_name(operator.name, state.name, file.slot)} of the savepoint {store.uri}"
    with local_table(store, operator.name, state.name, file.slot, folder) as path:
        yield from _read_table(path, state, file, columns, filter, where)


def _read_table(
    path: str,
    state: SavedState,
    file: TableFile,
    columns: Sequence[str] | None,
    filter: pc.Expression | None,
    where: str,
) -> Iterator[pa.RecordBatch]:
    verify_file(path, file, where)
    expected = state.columns.parquet_schema
    try:
        with pq.ParquetFile(path) as parquet:
            found, rows = parquet.schema_arrow, parquet.metadata.num_rows
        known = (expected, pa.schema([field.with_type(_as_older_arrow_reads(field.type)) for field in expected]))
        if not any(found.equals(one, check_metadata=False) for one in known) or rows != file.rows:
            raise Corrupt(
                f"{where} is not what the manifest says: expected {file.rows} rows of ({_text(expected)}), found "
                f"{rows} of ({_text(found)})"
            )
        scanner = ds.dataset(path, schema=found.remove_metadata(), format="parquet").scanner(
            columns=list(columns) if columns is not None else None,
            filter=filter,
            batch_size=_BATCH_ROWS,
            batch_readahead=2,
            fragment_readahead=1,
        )
        group_name = state.columns.names.get("key_group")
        for batch in scanner.to_batches():
            if batch.num_rows:
                _check_groups(batch, group_name, file, where)
                yield _as_in_memory(batch, state)
    except (pa.ArrowException, OSError) as error:
        raise Corrupt(f"{where} cannot be read: {error}") from error


def _as_older_arrow_reads(kind: pa.DataType, in_map: bool = False) -> pa.DataType:
    """Parquet has durations as integers, and pyarrow before 21 does not know them again within maps."""
    if in_map and is_type.is_duration(kind):
        return pa.int64()
    within = in_map or is_type.is_map(kind)
    parts = [field.with_type(_as_older_arrow_reads(field.type, within)) for field in children(kind)]
    return with_children(kind, parts) if nested(kind) else kind


def _check_groups(batch: pa.RecordBatch, name: str | None, file: TableFile, where: str) -> None:
    if name is None or name not in batch.schema.names:
        return
    least, most = pc.min_max(batch.column(name)).as_py().values()
    if least < file.first_key_group or most >= file.end_key_group:
        raise Corrupt(
            f"{where} has rows of key groups {least} to {most}; expected {file.first_key_group} to "
            f"{file.end_key_group - 1}"
        )


def _as_in_memory(batch: pa.RecordBatch, state: SavedState) -> pa.RecordBatch:
    fields = [state.columns.schema.field(name) for name in batch.schema.names]
    arrays = [as_type(column, field.type) for column, field in zip(batch.columns, fields)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def refuse_links(store: FileStore, name: str) -> None:
    """Files and folders below the savepoint's own are what they are, not ways to others."""
    path = store.local_path(name)
    if path is None:
        return
    root = path[: -len(name)]
    parts = name.split("/")
    for count in range(1, len(parts) + 1):
        inner = root + "/".join(parts[:count])
        if os.path.islink(inner):
            raise Corrupt(f"{inner} is a symbolic link; a savepoint has none: restore the folder, all of it")


def wrong_size(name: str, store: FileStore, expected: int, found: int) -> Corrupt:
    """What is said of a file that is not as large as the manifest says."""
    return Corrupt(
        f"{name} of the savepoint {store.uri} is damaged: expected {expected} bytes, found {found}; restore it from a "
        "copy"
    )


def missing(name: str, store: FileStore) -> Corrupt:
    """What is said of a file that is not there."""
    return Corrupt(f"{name} is missing in the savepoint {store.uri}; restore it from a copy")


def _text(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
