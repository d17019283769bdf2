"""Tables whose columns have changed their types from batch to batch, with the types that hold the values of all. Pure.

Nothing is rounded: whole numbers stay whole. Arrow's own promotion makes floating-point ones of them beside such.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as is_type

from holdfast.arrow.arrays import by_parts
from holdfast.arrow.exact_casts import exact_cast
from holdfast.arrow.types import children, is_list, nested, unencoded, widens, with_children
from holdfast.errors import Incompatible

_DIGITS_MAX = 38  # of Spark's decimals
_TEXTS = (is_type.is_string, is_type.is_large_string, is_type.is_string_view)
_BYTES = (is_type.is_binary, is_type.is_large_binary, is_type.is_binary_view)


def with_alike_types(tables: Sequence[tuple[str, pa.Table]], where: str) -> list[pa.Table]:
    """The tables, of which each is told by the name of its file; in each a column of one name has one type.

    Raises
    ------
    Incompatible
        No type holds all values of a column exactly.
    """
    if all(table.schema.equals(tables[0][1].schema) for _, table in tables):
        return [table for _, table in tables]
    found: dict[str, dict[pa.DataType, str]] = {}  # of each column its types, and the first file of each
    for file, table in tables:
        for field in table.schema:
            found.setdefault(field.name, {}).setdefault(field.type, file)
    kinds = {name: _common_of(name, types, where) for name, types in found.items()}
    return [_as(table, kinds) for _, table in tables]


def common(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type of each value of both, unchanged; None: there is none."""
    one, other = unencoded(one), unencoded(other)
    if widens(one, other) or is_type.is_null(one):
        return other
    if widens(other, one) or is_type.is_null(other):
        return one
    if is_type.is_decimal(one) and is_type.is_decimal(other):
        scale = max(one.scale, other.scale)
        digits = max(one.precision - one.scale, other.precision - other.scale) + scale
        return pa.decimal128(digits, scale) if digits <= _DIGITS_MAX else None
    if is_type.is_time64(one) and is_type.is_time64(other):
        return pa.time64("ns")  # as earlier versions wrote all times of day
    if is_type.is_timestamp(one) and is_type.is_timestamp(other) and one.tz and other.tz:
        return pa.timestamp(one.unit, "UTC") if one.unit == other.unit else None  # the same moments
    for kinds, largest in ((_TEXTS, pa.large_string()), (_BYTES, pa.large_binary())):
        if all(any(of_kind(kind) for of_kind in kinds) for kind in (one, other)):
            return largest
    return _common_nested(one, other)


def _common_nested(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    lists = is_list(one) and is_list(other)
    if not lists and not (nested(one) and one.id == other.id):
        return None
    mine, theirs = children(one), children(other)
    if is_type.is_struct(one):
        if sorted(field.name for field in mine) != sorted(field.name for field in theirs):
            return None
        by_name = {field.name: field for field in theirs}
        theirs = [by_name[field.name] for field in mine]
    fields = []
    for field, beside in zip(mine, theirs):
        kind = common(field.type, beside.type)
        if kind is None:
            return None
        fields.append(field.with_type(kind).with_nullable(field.nullable or beside.nullable))
    same_size = not is_type.is_fixed_size_list(one) or getattr(other, "list_size", -1) == one.list_size
    return with_children(one, fields) if same_size else pa.list_(fields[0])


def _common_of(column: str, types: dict[pa.DataType, str], where: str) -> pa.DataType:
    first, *others = types
    kind = first
    for other in others:
        wider = common(kind, other)
        if wider is None:
            beside = next((before for before in types if common(before, other) is None), first)
            raise Incompatible(
                f"column {column!r} in {where} has changed its type: {beside} in {types[beside]}, {other} in "
                f"{types[other]}, and no type holds the values of both as they are. Read the files that "
                "hf.FileSink.files names, and make of the column what you need"
            )
        kind = wider
    return kind


def _as(table: pa.Table, kinds: dict[str, pa.DataType]) -> pa.Table:
    schema = pa.schema([field.with_type(kinds[field.name]) for field in table.schema])
    columns = [
        pa.chunked_array([by_parts(chunk, field.type, exact_cast) for chunk in column.chunks], field.type)
        for column, field in zip(table.columns, schema)
    ]
    return pa.table(columns, schema=schema)
