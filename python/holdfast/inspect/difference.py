"""Two versions of a state, row against row: added, changed, removed. Pure functions over tables.

A row is the same row if what names it is: key, and position, map key, time and namespace, or slot. Compared are
encoded bytes, so that NaN is NaN, and null null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from holdfast import _core
from holdfast.savepoint import StateColumns

CHANGE = "change"
_NAMING = ("slot", "time", "namespace", "position", "map_key", "key_group")


def difference_schema(columns: StateColumns) -> pa.Schema:
    """Of what :func:`difference_of` gives."""
    own = columns.schema
    compared = [own.field(name) for name in _compared(columns)]
    taken = {name.casefold() for name in own.names}
    change = CHANGE if CHANGE not in taken else f"{CHANGE}_"
    return pa.schema(
        [pa.field(change, pa.string(), False)]
        + [field.with_nullable(True) for field in own]
        + [field.with_name(f"old_{field.name}").with_nullable(True) for field in compared]
    )


def difference_of(old: pa.Table, new: pa.Table, columns: StateColumns) -> Iterator[pa.RecordBatch]:
    """The rows that differ; both tables have the columns of ``columns.schema``."""
    before, after = _rows_by_name(old, columns), _rows_by_name(new, columns)
    contents = [encoded_rows(table, _compared(columns)) for table in (old, new)]
    added = [row for name, row in after.items() if name not in before]
    removed = [row for name, row in before.items() if name not in after]
    changed = [
        (before[name], row)
        for name, row in after.items()
        if name in before and contents[0][before[name]] != contents[1][row]
    ]
    schema = difference_schema(columns)
    compared = _compared(columns)
    for change, old_rows, new_rows in (
        ("added", [None] * len(added), added),
        ("changed", [row for row, _ in changed], [row for _, row in changed]),
        ("removed", removed, None),
    ):
        shown = (
            old.take(pa.array(old_rows, pa.int64())) if new_rows is None else new.take(pa.array(new_rows, pa.int64()))
        )
        if not shown.num_rows:
            continue
        told = [pa.repeat(change, shown.num_rows), *(column.combine_chunks() for column in shown.columns)]
        olds = old.select(compared).take(pa.array(old_rows, pa.int64()))
        told += [column.combine_chunks() for column in olds.columns]
        yield pa.RecordBatch.from_arrays([_one(column) for column in told], schema=schema)


def _rows_by_name(table: pa.Table, columns: StateColumns) -> dict[bytes, int]:
    naming = [name for name in table.schema.names if name not in _compared(columns)]
    return {name: row for row, name in enumerate(encoded_rows(table, naming))}


def _compared(columns: StateColumns) -> list[str]:
    own = [columns.names[role] for role in columns.fields if role not in _NAMING]
    return own


def encoded_rows(table: pa.Table, names: Sequence[str]) -> list[bytes]:
    """One byte string a row, equal where rows are; NaN is NaN, and null null."""
    if not names or not table.num_rows:
        return [b""] * table.num_rows
    selected = table.select(list(names)).combine_chunks().to_batches()[0]
    codec = _core.RowCodec(pa.struct([field.with_nullable(True) for field in selected.schema]))
    found: list[bytes] = pa.array(codec.encode(selected)).to_pylist()
    return found


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
