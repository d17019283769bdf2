"""A DataFrame of pandas as a table of Arrow, where both say the same; otherwise it is refused.

pandas has one NaN for a number that is none and for a value that is missing. What a state holds must not depend on a
guess which of them was meant.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_type

from holdfast.arrow.types import has_floats, is_list
from holdfast.errors import InvalidRequest

_WRONG = (pa.ArrowException, ValueError, TypeError, AttributeError, OverflowError)


def of_pandas(frame: Any, schema: pa.Schema, where: str) -> pa.Table:
    """The columns of a frame; its index is left out.

    Parameters
    ----------
    schema
        The columns that are used.

    Raises
    ------
    InvalidRequest
        A column that is no column of Arrow; or has NaN, where numbers are wanted, in a type that has no other null.
    """
    try:
        # Bytes that a column has as numpy's, Arrow takes up to the first NUL, and does not tell.
        in_numpy = [name for name, dtype in frame.dtypes.items() if isinstance(dtype, np.dtype) and dtype.kind in "SU"]
        whole = frame.astype(dict.fromkeys(in_numpy, object)) if in_numpy else frame
        table = pa.Table.from_pandas(whole, preserve_index=False)
        wanted = [name for name in table.schema.names if name in schema.names and has_floats(schema.field(name).type)]
        # Types of pandas' own have nulls of their own, and a NaN of theirs stays one.
        doubtful = [name for name in wanted if isinstance(frame[name].dtype, np.dtype)]
        unclear = [name for name in doubtful if _has_nan(pa.array(frame[name], from_pandas=False))]
    except _WRONG as error:
        raise InvalidRequest(f"{where}: expected a DataFrame of plain columns: {error}") from None
    if unclear:
        raise InvalidRequest(
            f"{where}: column {unclear[0]!r} has NaN, which pandas has for a missing value too; expected to be told "
            "which is meant: give the table as Arrow, or the column as pd.ArrowDtype(…)"
        )
    return table


def _has_nan(column: pa.Array | pa.ChunkedArray) -> bool:
    if isinstance(column, pa.ChunkedArray):
        return any(_has_nan(chunk) for chunk in column.chunks)
    if is_type.is_struct(column.type):
        return any(_has_nan(child) for child in column.flatten())
    if is_type.is_map(column.type):
        return _has_nan(column.keys) or _has_nan(column.items)
    if is_list(column.type):
        return _has_nan(column.flatten())
    return bool(is_type.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py())
