"""Lists of a fixed size among the values of a state: its tables have them as lists of any length.

The core encodes all lists alike, and what it reads it believes: rows of people are compared before they become entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_type

from holdfast.arrow.arrays import entry_lists, list_lengths
from holdfast.arrow.types import children, is_list, unwrapped
from holdfast.errors import InvalidRequest

_Rows = np.ndarray[Any, np.dtype[np.int64]]


def check_lengths(column: pa.Array, kept: pa.DataType, name: str) -> None:
    """Compares lists at any depth of a column with the type that the state keeps.

    Parameters
    ----------
    column
        In the type of a table (:func:`holdfast.savepoint.columns.table_type`).
    name
        Of the column, for the message.

    Raises
    ------
    InvalidRequest
        One has another length than its type; names the row.
    """
    if _has_fixed(kept):
        _check(column, kept, np.arange(len(column)), name)


def _has_fixed(kept: pa.DataType) -> bool:
    kept = unwrapped(kept)
    return bool(is_type.is_fixed_size_list(kept)) or any(_has_fixed(field.type) for field in children(kept))


def _check(column: pa.Array, kept: pa.DataType, rows: _Rows, name: str) -> None:
    """``rows``: which row of the table each value is of."""
    kept = unwrapped(kept)
    if is_type.is_struct(kept):
        for values, field in zip(column.flatten(), children(kept)):
            _check(values, field.type, rows, f"{name}.{field.name}")
    elif is_type.is_map(kept):
        entries = entry_lists(column)
        inner = np.repeat(rows, list_lengths(entries))
        for values, field in zip(entries.flatten().flatten(), children(kept)):
            _check(values, field.type, inner, f"{name}{{}}")
    elif is_list(kept):
        if is_type.is_fixed_size_list(kept):
            lengths = pc.list_value_length(column)  # null where the list is
            wrong = pc.index(pc.not_equal(lengths, kept.list_size), True).as_py()
            if wrong >= 0:
                raise InvalidRequest(
                    f"row {rows[wrong]}: expected lists of {kept.list_size} elements in column {name!r}, which the "
                    f"state keeps as {kept}, found one of {lengths[wrong]}"
                )
        _check(column.flatten(), kept.value_type, np.repeat(rows, list_lengths(column)), f"{name}[]")
