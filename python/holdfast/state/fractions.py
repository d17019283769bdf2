"""Fractions where whole numbers belong: Arrow cuts them off and does not tell, so Python values are looked through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as is_type

Finder = Callable[[Any], bool]
_FRACTIONAL = (float, np.floating, Decimal)
_HARMLESS = {int, type(None), bool}


def position_of_fraction(values: Sequence[Any], type: pa.DataType) -> int | None:
    """Position of the first value that has a fraction which ``type`` has no place for."""
    finder = _finder(type)
    if finder is None or _kinds(values) <= _HARMLESS:
        return None
    return next((position for position, value in enumerate(values) if finder(value)), None)


def _kinds(values: Sequence[Any]) -> set[type]:
    return set(map(type, values))


@cache
def _finder(type: pa.DataType) -> Finder | None:
    """What tells a value that loses a fraction; None where no value of the type can."""
    if is_type.is_struct(type):
        return _in_struct(
            {field.name: finder for field in type if (finder := _finder(field.type)) is not None}, type.names
        )
    if is_type.is_map(type):
        return _in_map(_finder(type.key_type), _finder(type.item_type))
    if is_type.is_nested(type):
        finder = _finder(type.value_type)
        return None if finder is None else lambda value: value is not None and any(map(finder, value))
    return _is_fraction if is_type.is_integer(type) or is_type.is_temporal(type) else None


def _is_fraction(value: Any) -> bool:
    return isinstance(value, _FRACTIONAL) and bool(value == value and value % 1)


def _in_struct(finders: dict[str, Finder], names: list[str]) -> Finder | None:
    if not finders:
        return None

    def find(value: Any) -> bool:
        if isinstance(value, tuple):
            value = dict(zip(names, value))
        return isinstance(value, dict) and any(finder(value.get(name)) for name, finder in finders.items())

    return find


def _in_map(of_key: Finder | None, of_item: Finder | None) -> Finder | None:
    if of_key is None and of_item is None:
        return None

    def find(value: Any) -> bool:
        pairs = value.items() if isinstance(value, dict) else value or ()
        return any((of_key is not None and of_key(k)) or (of_item is not None and of_item(v)) for k, v in pairs)

    return find
