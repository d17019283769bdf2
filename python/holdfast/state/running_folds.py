"""Functions of the core that Python computes exactly alike, for the current key's running result.

The core stays the one that folds what is stored; these spare a call of it for each ``get`` that follows an ``add``.
Only types whose Python values add and compare as the core's do: whole numbers (a result that is too large is refused
like any value), doubles, text, bytes and booleans. Values come as the type keeps them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.types as is_type

# The result so far, None where there is none, with one more value.
RunningFold = Callable[[Any, Any], Any]


def running_fold(function: str, type: pa.DataType) -> RunningFold | None:
    """The function's Python counterpart, where there is an exact one."""
    if function == "count":
        return lambda result, value: result + 1
    pair = _FUNCTIONS.get(function)
    if pair is None or not any(family(type) for family in _EXACT):
        return None
    return lambda result, value: value if result is None else pair(result, value)


def nothing_added(function: str) -> Any:
    """The core's result where nothing was added."""
    return 0 if function == "count" else None


def _less(a: Any, b: Any) -> bool:
    """NaN is larger than anything, and no NaN is larger than another."""
    return bool(a == a and (b != b or a < b))


_EXACT = (
    is_type.is_integer,
    is_type.is_float64,
    is_type.is_string,
    is_type.is_binary,
    is_type.is_boolean,
)

_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b,
    "product": lambda a, b: a * b,
    "min": lambda a, b: b if _less(b, a) else a,
    "max": lambda a, b: b if _less(a, b) else a,
    "first": lambda a, b: a,
    "last": lambda a, b: b,
    "bool_and": lambda a, b: a and b,
    "bool_or": lambda a, b: a or b,
}
