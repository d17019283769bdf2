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
from holdfast.arrow.types import nested

#: Rows that lie below a null.
Absent = npt.NDArray[np.bool_]


def without_nulls_below_nulls(array: pa.Array) -> pa.Array:
    """The same values and type, without a null in a field that is never null where all that is around it is null.

    A null of its own, whose struct, list or map is there, stays; it is for whoever reads the array to refuse it. So do
    nulls in dictionaries, extensions and lists of a fixed size, none of which Spark makes.
    """
    return _settled(array, np.zeros(len(array), np.bool_))


def _settled(array: pa.Array, absent: Absent) -> pa.Array:
    if not _is_broken(array):
        return array
    kind = array.type
    gone = absent | _nulls(array)
    if is_type.is_struct(kind):
        fields = [_field(array.field(number), field, gone) for number, field in enumerate(kind)]
        mask = pa.array(_nulls(array)) if array.null_count else None
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=mask)
    rows, offsets = elements(array.offsets.to_numpy(), ~gone)
    there = np.zeros(len(rows), np.bool_)
    starts = pa.array(offsets, array.offsets.type, mask=np.append(gone, False))
    if is_type.is_map(kind):
        keys, items = _settled(array.keys.take(rows), there), _field(array.items.take(rows), kind.item_field, there)
        return pa.MapArray.from_arrays(starts, keys, items, kind)
    return type(array).from_arrays(starts, _field(array.values.take(rows), kind.value_field, there), type=kind)


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
