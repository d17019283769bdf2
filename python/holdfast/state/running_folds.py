"""Functions of the core that Python computes exactly alike, for the current key's running result.

The core stays the one that folds what is stored; these spare a call of it for each ``get`` that follows an ``add``.
Only types whose Python values add and compare as the core's do: whole numbers (an overflow is the core's to report
when the chunk ends), doubles, text, bytes and booleans.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as is_type


@dataclass(frozen=True)
class RunningFold:
    """``fold(result or None, value)``, for values of exactly these Python types."""

    accepts: frozenset[type]
    fold: Callable[[Any, Any], Any]


def running_fold(function: str, type: pa.DataType) -> RunningFold | None:
    """The function's Python counterpart, where there is an exact one."""
    if function == "count":
        return RunningFold(_accepted(type), lambda result, value: (result or 0) + 1) if _accepted(type) else None
    pair = _FUNCTIONS.get(function)
    accepts = _accepted(type)
    if pair is None or not accepts:
        return None
    if is_type.is_floating(type):
        return RunningFold(
            accepts, lambda result, value: float(value) if result is None else pair(result, float(value))
        )
    return RunningFold(accepts, lambda result, value: value if result is None else pair(result, value))


def _accepted(type: pa.DataType) -> frozenset[type]:
    for family, accepts in _ACCEPTED:
        if family(type):
            return accepts
    return frozenset()


def _less(a: Any, b: Any) -> bool:
    """NaN is larger than anything, and no NaN is larger than another."""
    return bool(a == a and (b != b or a < b))


_ACCEPTED: tuple[tuple[Callable[[pa.DataType], bool], frozenset[type]], ...] = (
    (is_type.is_integer, frozenset({int})),
    (is_type.is_float64, frozenset({int, float})),
    (is_type.is_string, frozenset({str})),
    (is_type.is_binary, frozenset({bytes})),
    (is_type.is_boolean, frozenset({bool})),
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
