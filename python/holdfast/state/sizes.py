"""About how large rows in any form, and values in them, will be in Arrow. Python's own sizes say nothing of what a
value holds, nor of what it shows of the memory of others.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.arrow.arrays import decoded_bytes
from holdfast.state.arrays import is_frame, is_series

_PLAIN = frozenset({str, bytes, bytearray, int, float, bool, type(None)})


def rows_bytes(piece: Any) -> int:
    """Of a frame, a batch, a table, or a row by position."""
    if is_frame(piece):
        return sum(_series_bytes(column) for _, column in piece.items())
    if isinstance(piece, (pa.RecordBatch, pa.Table)):
        return sum(map(value_bytes, piece.columns))
    return sum(map(value_bytes, piece))


def value_bytes(value: Any) -> int:
    """Of a value, or of a column of them."""
    if value.__class__ in _PLAIN:
        return sys.getsizeof(value)
    if isinstance(value, np.ndarray):
        return sum(map(value_bytes, value.flat)) if value.dtype == object else value.nbytes
    if isinstance(value, Mapping):
        return sum(map(value_bytes, value)) + sum(map(value_bytes, value.values()))
    if isinstance(value, memoryview):
        return value.nbytes
    if isinstance(value, pa.Array):
        return decoded_bytes(value)
    if isinstance(value, pa.ChunkedArray):
        return sum(map(decoded_bytes, value.chunks))
    if isinstance(value, pa.Scalar):
        return _scalar_bytes(value)
    if is_series(value):
        return _series_bytes(value)
    if isinstance(value, range):
        return 8 * len(value)
    if isinstance(value, Collection) and not isinstance(value, (str, bytes, bytearray)):
        return sum(map(value_bytes, value))
    return sys.getsizeof(value)


def _series_bytes(column: Any) -> int:
    """A column of pandas: by its values where they are Python's, each as often as it is there."""
    dtype = column.dtype
    if hasattr(dtype, "pyarrow_dtype") or getattr(dtype, "storage", None) == "pyarrow":
        return value_bytes(pa.array(column))
    if hasattr(dtype, "categories"):
        found, counts = np.unique(np.asarray(getattr(column, "cat", column).codes), return_counts=True)
        sizes = [value_bytes(dtype.categories[code]) if code >= 0 else 0 for code in found.tolist()]
        return int(np.dot(sizes, counts)) if sizes else 0
    return sum(map(value_bytes, column)) if dtype.kind == "O" else int(column.nbytes)


def _scalar_bytes(value: pa.Scalar) -> int:
    try:
        return decoded_bytes(pa.repeat(value, 1))
    except pa.ArrowException:  # some have no array of their own: whoever converts it tells
        return sys.getsizeof(value)
