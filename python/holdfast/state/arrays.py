"""Arrow arrays of the declared type from the forms in which users have columns: Arrow, numpy, pandas, lists."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as is_type

from holdfast.arrow.arrays import combined
from holdfast.errors import InvalidRequest
from holdfast.state.casts import CONVERSION_ERRORS, cast, storage_type
from holdfast.state.python_values import from_python

#: What a struct may be in a column of Python's.
_STRUCTS = (dict, tuple, pa.StructScalar)


def to_array(values: Any, expected: pa.DataType, what: str) -> pa.Array:
    """An array of ``expected``, a storage type, from a column in any form.

    Raises
    ------
    InvalidRequest
        Another family of types, a value that does not fit, or no column at all. ``what`` begins the message.
    """
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return cast(one_array(values, what), expected, what)
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise InvalidRequest(f"{what}: expected a numpy array of one dimension, found {values.ndim}")
    in_pandas = is_series(values)
    if in_pandas or isinstance(values, np.ndarray):
        if not len(values):  # numpy and pandas make doubles of no values, whatever they would have been
            return pa.array([], expected)
        if values.dtype == object:
            return from_python(values.tolist(), expected, what, from_pandas=in_pandas)
        return cast(_in_arrow(values, expected, what), expected, what)
    if hasattr(values, "__arrow_c_array__"):
        return cast(_in_arrow(values, expected, what), expected, what)
    return from_python(values, expected, what)


def one_array(column: Any, what: str) -> pa.Array:
    """A chunked array as one; all else as it is.

    Raises
    ------
    InvalidRequest
        More than one array holds. ``what`` begins the message.
    """
    try:
        return combined(column)
    except pa.ArrowMemoryError:
        raise
    except pa.ArrowException as error:
        raise InvalidRequest(f"{what}: expected values that one array holds: {error}") from None


def is_column(values: Any, of: pa.DataType | None = None) -> bool:
    """Whether this is an array or a sequence of values rather than one value, ``of`` being their type: a tuple may be a
    struct by position.
    """
    if isinstance(values, np.ndarray):
        return values.ndim > 0
    if isinstance(values, tuple) and of is not None and is_type.is_struct(storage_type(of)):
        named = hasattr(values, "_fields") or hasattr(values, "__fields__")
        return not named and all(value is None or isinstance(value, _STRUCTS) for value in values)
    return (
        isinstance(values, (pa.Array, pa.ChunkedArray, list, tuple, range))
        or is_series(values)
        or hasattr(values, "__arrow_c_array__")
    )


def is_series(values: Any) -> bool:
    """Whether this is a column of pandas: a Series, an Index, or the array in them."""
    pandas = sys.modules.get("pandas")  # nobody has a Series who has not imported it
    return pandas is not None and isinstance(
        values, (pandas.Series, pandas.Index, pandas.api.extensions.ExtensionArray)
    )


def has_unclear_nan(values: Any) -> bool:
    """Whether a column of pandas has NaN in a type that has no other null: nobody knows which of the two was meant.
    Among objects there is None besides, and yet pandas takes NaN for null.
    """
    pandas = sys.modules["pandas"]
    if values.dtype == object:
        return any(isinstance(value, float) and value != value for value in values)
    return getattr(values.dtype, "na_value", None) is not pandas.NA and bool(pandas.isna(values).any())


def is_frame(values: Any) -> bool:
    """Whether this is a DataFrame of pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(values, pandas.DataFrame)


def _in_arrow(values: Any, expected: pa.DataType, what: str) -> pa.Array:
    """The column as Arrow has it, of whatever type that is."""
    try:
        return combined(_whole(values))
    except CONVERSION_ERRORS as error:
        found = f"{type(values).__name__} of {getattr(values, 'dtype', 'unknown type')}"
        raise InvalidRequest(
            f"{what}: expected {expected}, found {found}, which is nothing to Arrow: {error}"
        ) from None


def _whole(values: Any) -> pa.Array:
    """Text and bytes of numpy one by one: of its arrays Arrow takes each value up to the first NUL, and does not tell.
    pandas keeps such arrays of bytes in its columns.
    """
    dtype = getattr(values, "dtype", None)
    if hasattr(dtype, "pyarrow_dtype"):  # whose kind is text too, but Arrow's
        return pa.array(values)
    if getattr(dtype, "kind", None) == "S":
        return pa.array(values.tolist(), pa.binary())
    return pa.array(values.tolist(), pa.string()) if getattr(dtype, "kind", None) == "U" else pa.array(values)
