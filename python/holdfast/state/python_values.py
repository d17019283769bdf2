"""What a declared type keeps of Python values: exactly those values, as they will be read back, or an InvalidRequest.

States hold what these functions give, never what they were handed: so what is read before a commit is what is read
after it, nothing that a user changes later reaches a state, and Python's ``==`` (of True and 1, of two instants with
one local time) decides nothing.
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable, Iterable, KeysView, Sequence, Set, ValuesView
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as is_type

from holdfast.arrow.arrays import combined
from holdfast.arrow.types import is_list
from holdfast.errors import InvalidRequest
from holdfast.state.casts import CONVERSION_ERRORS, storage_type
from holdfast.state.python_leaves import Keep, NotKept, by_arrow, is_missing, is_null, leaf_keeper, python_of, shown

__all__ = [
    "LISTS",
    "Keep",
    "NotKept",
    "arrow_of",
    "detached",
    "from_python",
    "identity",
    "is_null",
    "keeper",
    "python_of",
    "refusal",
    "shown",
    "verbatim",
]

Identity = Callable[[Any], Any]

#: What a list may be in Python.
LISTS = (list, tuple, range, deque, Set, KeysView, ValuesView, np.ndarray, pa.Array, pa.ChunkedArray)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_NAN = object()
_VERBATIM: tuple[tuple[Callable[[pa.DataType], bool], frozenset[type]], ...] = (
    (is_type.is_integer, frozenset({type(None)})),
    (is_type.is_float64, frozenset({float, type(None)})),
    (is_type.is_string, frozenset({type(None)})),
    (is_type.is_binary, frozenset({bytes, type(None)})),
    (is_type.is_boolean, frozenset({bool, type(None)})),
)


@cache
def keeper(type: pa.DataType, *, whole: bool = False) -> Keep:
    """The function that gives what ``type`` keeps of a value, and raises NotKept where that is not the value.

    ``whole``: no field of a struct may be null, as in keys.
    """
    type = storage_type(type)
    if is_type.is_struct(type):
        return _struct(type, whole)
    if is_type.is_map(type):
        return _map(type)
    if is_list(type):
        return _list(type)
    return leaf_keeper(type)


def from_python(values: Sequence[Any], expected: pa.DataType, what: str, *, from_pandas: bool = False) -> pa.Array:
    """An array of ``expected`` from Python values; the error names the first value that is none.

    ``from_pandas``: NaN and NaT among objects mean null, as everywhere in pandas.
    """
    expected = storage_type(expected)
    kept: Sequence[Any] = values
    if from_pandas:
        kept = [None if is_missing(value) or (isinstance(value, float) and value != value) else value for value in kept]
    if not verbatim(expected).issuperset(map(type, kept)):
        keep = keeper(expected)
        try:
            kept = [keep(value) for value in kept]
        except NotKept as error:
            raise _first_refusal(kept, expected, what, error) from None
    return arrow_of(kept, expected, what)


def arrow_of(kept: Sequence[Any], type: pa.DataType, what: str) -> pa.Array:
    """An array of values that the type keeps, or that are :func:`verbatim` to it."""
    try:
        return combined(pa.array(kept, type))
    except CONVERSION_ERRORS as error:
        raise _first_refusal(kept, type, what, error) from None


def refusal(what: str, expected: pa.DataType, value: Any, reason: object, where: str = "") -> InvalidRequest:
    """The error for a value that is not kept."""
    return InvalidRequest(f"{what}: expected {expected}, found {shown(value)}{where}: {reason}")


def identity(type: pa.DataType) -> Identity | None:
    """What is equal for two kept values where the core takes them for one key; None: the values themselves."""
    type = storage_type(type)
    if is_type.is_floating(type):
        return lambda value: _NAN if value != value else value
    if is_type.is_timestamp(type) and type.tz is not None:
        # Python compares the local times of one zone, of which there may be two instants.
        return (lambda value: value.value) if type.unit == "ns" else (lambda value: value - _EPOCH)
    if is_type.is_struct(type):
        parts = [(field.name, identity(field.type)) for field in type]
        return lambda value: tuple(value[name] if of is None else of(value[name]) for name, of in parts)
    return None


def detached(value: Any) -> Any:
    """A copy of a kept nested value, so that later changes by the user do not reach the state."""
    if isinstance(value, dict):
        return {name: detached(item) for name, item in value.items()}
    if isinstance(value, list):
        return [detached(item) for item in value]
    if isinstance(value, tuple):
        return tuple(detached(item) for item in value)
    return value


@cache
def verbatim(type: pa.DataType) -> frozenset[type]:
    """Classes of which the type keeps every value as it is: the fast way. Not of integers, which may be out of range,
    nor of text, which may be none: a value that is refused must be refused at the call, whatever is done after it.
    """
    type = storage_type(type)
    return next((classes for family, classes in _VERBATIM if family(type)), frozenset())


def _first_refusal(values: Iterable[Any], expected: pa.DataType, what: str, error: Exception) -> InvalidRequest:
    keep = keeper(expected)
    for position, value in enumerate(values):
        try:
            keep(value)
        except NotKept as reason:
            return refusal(what, expected, value, reason, f" at position {position}")
    return InvalidRequest(f"{what}: expected values of {expected}: {error}")


def _present(keep: Keep, field: pa.Field) -> Keep:
    def keep_present(value: Any) -> Any:
        kept = keep(value)
        if kept is None:
            raise NotKept(f"{field.name!r} is null where a value must be")
        return kept

    return keep_present


def _part(field: pa.Field, whole: bool = False) -> Keep:
    keep = keeper(field.type, whole=whole)
    return keep if field.nullable and not whole else _present(keep, field)


def _list(type: pa.DataType) -> Keep:
    item = _part(type.value_field)
    size = type.list_size if is_type.is_fixed_size_list(type) else None
    of_scalar = by_arrow(type)

    def keep(value: Any) -> Any:
        if value.__class__ is not list:
            if value is None or isinstance(value, pa.Scalar) or is_missing(value):
                return of_scalar(value)
            if not isinstance(value, LISTS) or (isinstance(value, np.ndarray) and value.ndim != 1):
                raise NotKept(f"{shown(value)} is no list")
        kept = [item(element) for element in value]
        if size is not None and len(kept) != size:
            raise NotKept(f"it has {len(kept)} elements")
        return kept

    return keep


def _struct(type: pa.DataType, whole: bool) -> Keep:
    parts = [(field.name, _part(field, whole)) for field in type]
    names = [name for name, _ in parts]
    known = frozenset(names)
    of_scalar = by_arrow(type)

    def keep(value: Any) -> Any:
        if isinstance(value, tuple):
            value = _named(value, names)
        elif not isinstance(value, dict):
            if value is None or isinstance(value, pa.Scalar) or is_missing(value):
                return of_scalar(value)
            raise NotKept(f"{shown(value)} is no dict of {', '.join(names)}")
        if not known.issuperset(value):
            unknown = next(name for name in value if name not in known)
            raise NotKept(f"there is no field {unknown!r}; expected {', '.join(names)}")
        return {name: part(value.get(name)) for name, part in parts}

    return keep


def _named(row: tuple[Any, ...], names: list[str]) -> dict[str, Any]:
    """A tuple's values by field: by position, or, of a namedtuple and pyspark's Row, by their own names."""
    own = getattr(row, "_fields", None) or getattr(row, "__fields__", None) or names
    if len(row) != len(names) or len(own) != len(names):
        raise NotKept(f"it has {len(row)} values; expected {', '.join(names)}")
    return dict(zip(own, row))


def _map(type: pa.DataType) -> Keep:
    keep_key, keep_item = _present(keeper(type.key_type), type.key_field), _part(type.item_field)
    of_scalar = by_arrow(type)

    def keep(value: Any) -> Any:
        if value is None or isinstance(value, pa.Scalar) or is_missing(value):
            return of_scalar(value)
        if not isinstance(value, (dict, *LISTS)):
            raise NotKept(f"{shown(value)} is no dict, and no list of pairs")
        pairs = list(value.items() if isinstance(value, dict) else value)
        for pair in pairs:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise NotKept(f"{shown(pair)} is no pair")
        return [(keep_key(key), keep_item(item)) for key, item in pairs]

    return keep
