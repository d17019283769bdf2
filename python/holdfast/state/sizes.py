"""About how large rows in any form, and values in them, will be in Arrow. Python's own sizes say nothing of what a
value holds, nor of what it shows of the memory of others.
"""

from __future__ import annotations

import sys
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.arrow.arrays import decoded_bytes
from holdfast.state.arrays import is_frame
from holdfast.state.python_values import LISTS

#: Where, of 0 to 1, the rows of a frame lie that are looked at for all of it: by the golden ratio, which is in step
#: with no pattern in the rows.
_GOLDEN = 0.6180339887498949
_LOOKED_AT = 16
_PLAIN = frozenset({str, bytes, bytearray, int, float, bool, type(None)})
#: As deep as Arrow sends columns within columns. What is deeper, or within itself, no column keeps.
_DEPTH_MAX = 64


def rows_bytes(piece: Any) -> int:
    """Of a frame, a batch, a table, or a row by position."""
    if is_frame(piece):
        return sum(_series_bytes(column) for _, column in piece.items())
    if isinstance(piece, (pa.RecordBatch, pa.Table)):
        return sum(map(value_bytes, piece.columns))
    return sum(map(value_bytes, piece))


def row_bytes(piece: Any, turn: int = 0) -> float:
    """Of a row of a frame, a batch or a table, on average; where values are objects of Python, of a few of them.
    ``turn``: counts the frames that are alike, of which the next ones are looked at in other places.
    """
    rows = len(piece)
    if not is_frame(piece) or rows <= _LOOKED_AT:
        return rows_bytes(piece) / rows
    first = turn * _LOOKED_AT + 1
    some = (np.arange(first, first + _LOOKED_AT) * _GOLDEN % 1 * rows).astype(np.int64)
    return sum(_series_bytes(column, some) for _, column in piece.items()) / rows


def value_bytes(value: Any, around: tuple[Any, ...] = ()) -> int:
    """Of a value, or of a column of them. ``around``: what it is in, from the outermost.

    Looks into what columns keep the values of, and nothing else: a flag of an enum iterates to itself.
    """
    if value.__class__ in _PLAIN:
        return sys.getsizeof(value)
    is_array = isinstance(value, np.ndarray)
    if isinstance(value, memoryview) or (is_array and value.dtype != object):
        return int(value.nbytes)
    if isinstance(value, pa.Array):
        return decoded_bytes(value)
    if isinstance(value, pa.ChunkedArray):
        return sum(map(decoded_bytes, value.chunks))
    if isinstance(value, pa.Scalar):
        return _scalar_bytes(value)
    if isinstance(value, range):
        return 8 * len(value)
    is_dict = isinstance(value, dict)
    if not is_dict and not isinstance(value, LISTS):
        return sys.getsizeof(value)
    if len(around) >= _DEPTH_MAX or any(value is one for one in around):
        return sys.getsizeof(value)
    parts = chain(value, value.values()) if is_dict else value.flat if is_array else value
    return sum(map(value_bytes, parts, repeat((*around, value))))


def _series_bytes(column: Any, some: npt.NDArray[np.int64] | None = None) -> int:
    """A column of pandas: by its values where they are Python's, each as often as it is there; or by those at some rows
    of a Series.
    """
    dtype = column.dtype
    if hasattr(dtype, "pyarrow_dtype") or getattr(dtype, "storage", None) == "pyarrow":
        return value_bytes(pa.array(column))
    if not hasattr(dtype, "categories") and dtype.kind != "O":
        return int(column.nbytes)
    looked_at = column
    if some is not None:
        looked_at = (column.to_numpy() if isinstance(dtype, np.dtype) else column.array)[some]
    if hasattr(dtype, "categories"):
        found, counts = np.unique(np.asarray(getattr(looked_at, "cat", looked_at).codes), return_counts=True)
        sizes = [value_bytes(dtype.categories[code]) if code >= 0 else 0 for code in found.tolist()]
        size = int(np.dot(sizes, counts)) if sizes else 0
    else:
        size = sum(map(value_bytes, looked_at))
    return size if some is None else size * len(column) // len(some)


def _scalar_bytes(value: pa.Scalar) -> int:
    try:
        return decoded_bytes(pa.repeat(value, 1))
    except pa.ArrowException:  # some have no array of their own: whoever converts it tells
        return sys.getsizeof(value)
