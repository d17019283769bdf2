"""From what a user hands over to Arrow arrays of the declared type, without guessing.

Casts stay within a family (numbers, text, bytes, times, nested alike): text is never parsed into numbers, and what does
not fit is never cut; Python's own times alone are brought to the declared unit. What cannot be cast raises
InvalidRequest that names what was expected and what was found.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as is_type

from holdfast.errors import InvalidRequest
from holdfast.state.fractions import position_of_fraction

_ARROW_ERRORS = (pa.ArrowException, OverflowError, TypeError, ValueError)


def castable(found: pa.DataType, expected: pa.DataType) -> bool:
    """Whether a value of ``found`` means the same as ``expected``; single values may still not fit."""
    if found.equals(expected) or is_type.is_null(found):
        return True
    if is_type.is_dictionary(found):
        return castable(found.value_type, expected)
    if is_type.is_struct(found) and is_type.is_struct(expected):
        names = [field.name for field in found]
        return sorted(names) == sorted(field.name for field in expected) and all(
            castable(found.field(field.name).type, field.type) for field in expected
        )
    if _is_list(found) and _is_list(expected):
        return castable(found.value_type, expected.value_type)
    if is_type.is_map(found) and is_type.is_map(expected):
        return castable(found.key_type, expected.key_type) and castable(found.item_type, expected.item_type)
    if is_type.is_date(found) and is_type.is_timestamp(expected):
        return True
    return any(family(found) and family(expected) for family in _FAMILIES)


def cast(array: pa.Array, expected: pa.DataType, what: str) -> pa.Array:
    """``array`` as ``expected``.

    Raises
    ------
    InvalidRequest
        Another family of types, or a value that does not fit. ``what`` begins the message.
    """
    if array.type.equals(expected):
        return array
    if not castable(array.type, expected):
        raise InvalidRequest(f"{what}: expected {expected}, found {array.type}; cast it where it is made")
    try:
        if is_type.is_struct(array.type):
            return _cast_struct(array, expected, what)
        return array.cast(expected)
    except _ARROW_ERRORS as error:
        raise InvalidRequest(f"{what}: found {array.type}, which does not fit {expected}: {error}") from None


def to_array(values: Any, expected: pa.DataType, what: str) -> pa.Array:
    """An array of ``expected`` from an Arrow array, a numpy array, a pandas Series or a sequence of Python values."""
    if isinstance(values, pa.Array):
        return cast(values, expected, what)
    if isinstance(values, pa.ChunkedArray):
        return cast(combined(values), expected, what)
    if is_series(values):
        if values.dtype != object:
            return cast(combined(pa.array(values)), expected, what)
        return from_python(values.tolist(), expected, what, from_pandas=True)
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise InvalidRequest(f"{what}: expected a numpy array of one dimension, found {values.ndim}")
        return (
            cast(pa.array(values), expected, what)
            if values.dtype != object
            else from_python(values.tolist(), expected, what)
        )
    if hasattr(values, "__arrow_c_array__"):
        return cast(pa.array(values), expected, what)
    return from_python(values, expected, what)


def from_python(values: Sequence[Any], expected: pa.DataType, what: str, from_pandas: bool = False) -> pa.Array:
    """An array of ``expected`` from Python values; the error names the first value that is none.

    ``from_pandas``: NaN and NaT among objects mean null, as everywhere in pandas.
    """
    try:
        array = pa.array(values, expected, from_pandas=from_pandas)
    except _ARROW_ERRORS as error:
        for row, value in enumerate(values):
            try:
                pa.array([value], expected, from_pandas=from_pandas)
            except _ARROW_ERRORS:
                raise InvalidRequest(
                    f"{what}: expected {expected}, found {value!r} ({type(value).__name__}) at position {row}: {error}"
                ) from None
        raise InvalidRequest(f"{what}: expected values of {expected}: {error}") from None
    position = position_of_fraction(values, expected)
    if position is not None:
        found = values[position]
        raise InvalidRequest(
            f"{what}: expected {expected}, found {found!r} ({type(found).__name__}) at position {position}, "
            "which has a fraction"
        )
    return array


def is_column(values: Any) -> bool:
    """Whether this is an array or a sequence of values rather than one value."""
    if isinstance(values, np.ndarray):
        return values.ndim > 0
    return (
        isinstance(values, (pa.Array, pa.ChunkedArray, list, tuple, range))
        or is_series(values)
        or hasattr(values, "__arrow_c_array__")
    )


def is_series(values: Any) -> bool:
    pandas = sys.modules.get("pandas")  # nobody has a Series who has not imported it
    return pandas is not None and isinstance(values, pandas.Series)


def is_frame(values: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(values, pandas.DataFrame)


def one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of one schema, at least one, as one: ``pyarrow.concat_batches``, which pyarrow 18 does not have.

    Raises
    ------
    pyarrow.ArrowInvalid
        A column would be longer than its offsets can say.
    """
    if len(batches) == 1:
        return batches[0]
    schema: pa.Schema = batches[0].schema
    columns = [pa.concat_arrays([batch.column(number) for batch in batches]) for number in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def combined(values: Any) -> pa.Array:
    """One array of a chunked one."""
    if not isinstance(values, pa.ChunkedArray):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)


def detached(value: Any) -> Any:
    """A copy of a nested value, so that later changes by the user do not reach the state."""
    if isinstance(value, dict):
        return {name: detached(item) for name, item in value.items()}
    if isinstance(value, list):
        return [detached(item) for item in value]
    if isinstance(value, tuple):
        return tuple(detached(item) for item in value)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (set, np.ndarray)):
        return value.copy()
    return value


def is_mutable(type: pa.DataType) -> bool:
    """Whether Python values of this type can be changed in place."""
    return bool(is_type.is_nested(type) or _is_bytes(type))


def _cast_struct(array: pa.StructArray, expected: pa.DataType, what: str) -> pa.StructArray:
    """Field by field and by name: Arrow's own cast would fill a missing field with nulls."""
    children = [cast(array.field(field.name), field.type, f"{what}.{field.name}") for field in expected]
    return pa.StructArray.from_arrays(
        children, fields=list(expected), mask=array.is_null() if array.null_count else None
    )


def _is_list(type: pa.DataType) -> bool:
    return bool(is_type.is_list(type) or is_type.is_large_list(type) or is_type.is_fixed_size_list(type))


def _is_number(type: pa.DataType) -> bool:
    return bool(is_type.is_integer(type) or is_type.is_floating(type) or is_type.is_decimal(type))


def _is_text(type: pa.DataType) -> bool:
    return bool(is_type.is_string(type) or is_type.is_large_string(type) or is_type.is_string_view(type))


def _is_bytes(type: pa.DataType) -> bool:
    return bool(
        is_type.is_binary(type)
        or is_type.is_large_binary(type)
        or is_type.is_fixed_size_binary(type)
        or is_type.is_binary_view(type)
    )


_FAMILIES = (
    _is_number,
    _is_text,
    _is_bytes,
    is_type.is_timestamp,
    is_type.is_date,
    is_type.is_time,
    is_type.is_duration,
)
