"""Nulls in fields that have none by their type: what lies below a null is nothing, and who writes Parquet wants to see
no null there.

Spark gives a struct that is null nulls for its fields, whether or not a field may be null; so does Arrow's own flatten.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as is_type

from holdfast.arrow.arrays import elements
from holdfast.arrow.types import children, nested

#: Rows that lie below a null.
Absent = npt.NDArray[np.bool_]


def without_nulls_below_nulls(array: pa.Array) -> pa.Array:
    """The same values and type, without a null in a field that is never null where all that is around it is null.

    A null of its own, whose struct, list or map is there, stays; it is for whoever reads the array to refuse it. So do
    nulls in dictionaries, extensions and lists of a fixed size, none of which Spark makes.
    """
    return _settled(array, np.zeros(len(array), np.bool_))


def has_required_fields(kind: pa.DataType) -> bool:
    """Whether a field within the type, at any depth, is never null."""
    return any(not field.nullable or has_required_fields(field.type) for field in children(kind))


def misplaced_null(array: pa.Array) -> str | None:
    """Where a null stands that is no value of its field, though all that is around it is there: the field's path, names
    with dots between them; None where there is no such null.
    """
    return _misplaced(array, np.zeros(len(array), np.bool_))


def _misplaced(array: pa.Array, absent: Absent) -> str | None:
    if not _is_broken(array):
        return None
    for field, values, below in _there(array, absent | _nulls(array))[0]:
        if not field.nullable and values.null_count and (_nulls(values) & ~below).any():
            return str(field.name)
        deeper = _misplaced(values, below)
        if deeper is not None:
            return f"{field.name}.{deeper}"
    return None


def _settled(array: pa.Array, absent: Absent) -> pa.Array:
    if not _is_broken(array):
        return array
    kind = array.type
    gone = absent | _nulls(array)
    found, offsets = _there(array, gone)
    parts = [_field(values, field, below) for field, values, below in found]
    if is_type.is_struct(kind):
        mask = pa.array(_nulls(array)) if array.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    starts = pa.array(offsets, array.offsets.type, mask=np.append(gone, False))
    if is_type.is_map(kind):
        return pa.MapArray.from_arrays(starts, *parts, kind)
    return type(array).from_arrays(starts, *parts, type=kind)


def _there(
    array: pa.Array, gone: Absent
) -> tuple[list[tuple[pa.Field, pa.Array, Absent]], npt.NDArray[np.int64] | None]:
    """What is in an array that is broken, each with the rows of it that lie below a null: the fields of structs; the
    elements of lists and maps that are there, end to end, and where each begins.
    """
    if is_type.is_struct(array.type):
        return [(field, values, gone) for field, values in _below(array)], None
    rows, offsets = elements(array.offsets.to_numpy(), ~gone)
    none = np.zeros(len(rows), np.bool_)
    return [(field, values.take(rows), none) for field, values in _below(array)], offsets


def _field(array: pa.Array, field: pa.Field, absent: Absent) -> pa.Array:
    if field.nullable:
        return _settled(array, absent)
    if array.null_count and (_nulls(array) & ~absent).any():
        return array
    array = _settled(array, absent)
    return _all_valid(array) if array.null_count else array


def _is_broken(array: pa.Array) -> bool:
    """Whether a field that is never null, at any depth, has nulls. Most arrays have none, and are let alone."""
    return any((not field.nullable and values.null_count > 0) or _is_broken(values) for field, values in _below(array))


def _below(array: pa.Array) -> list[tuple[pa.Field, pa.Array]]:
    """The fields of structs; the elements of lists and maps, of which a slice has some."""
    kind = array.type
    if is_type.is_struct(kind):
        return [(field, array.field(number)) for number, field in enumerate(kind)]
    if is_type.is_map(kind):
        return [(kind.key_field, array.keys), (kind.item_field, array.items)]
    if is_type.is_list(kind) or is_type.is_large_list(kind):
        return [(kind.value_field, array.values)]
    return []


def _all_valid(array: pa.Array) -> pa.Array:
    """The same without its own nulls: something stands in their place, which nobody sees."""
    kind = array.type
    if is_type.is_struct(kind):
        return pa.StructArray.from_arrays([array.field(number) for number in range(kind.num_fields)], fields=list(kind))
    if is_type.is_map(kind):
        return pa.MapArray.from_arrays(array.offsets, array.keys, array.items, kind)
    if is_type.is_list(kind) or is_type.is_large_list(kind):
        return type(array).from_arrays(array.offsets, array.values, type=kind)
    if is_type.is_null(kind) or is_type.is_dictionary(kind) or nested(kind) or isinstance(kind, pa.BaseExtensionType):
        return array
    return pa.Array.from_buffers(kind, len(array), [None, *array.buffers()[1:]], 0, array.offset)


def _nulls(array: pa.Array) -> Absent:
    found: Absent = array.is_null().to_numpy(zero_copy_only=False)
    return found
