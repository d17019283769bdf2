"""What a declared type that is not nested keeps of one Python value: the value as it will be read back, or NotKept.

A function for each type, made once: a user calls states millions of times, so values of the type's own Python class
pass by a comparison or two. All others become an Arrow array of their own type first, and are cast as any array is.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections import deque
from collections.abc import Callable
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as is_type

from holdfast.arrow.arrays import wholly_decoded
from holdfast.errors import InvalidRequest
from holdfast.state.casts import CONVERSION_ERRORS, cast, castable

# The value as it is read back, which for None is None.
Keep = Callable[[Any], Any]

_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
_FLOAT32 = struct.Struct("<f")  # which refuses what is too large; the native form does not
_TOO_LARGE = "it is larger than the largest float"
_ROUNDED = "no float is this number: it would be rounded"
_DURATION_DAYS_MAX = 106_751_990  # of microseconds in 64 bits
_SHOWN_MAX = 200
_NESTED = (dict, list, tuple, set, frozenset, deque)


class NotKept(Exception):
    """Why a value is none of its type's. Callers know the state and the key."""


def shown(value: Any) -> str:
    """A value and its class as error messages show them."""
    try:
        text = repr(value)
    except RecursionError:
        text = "…"
    return f"{text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + '…'} ({type(value).__name__})"


def leaf_keeper(type: pa.DataType) -> Keep:
    """The function for a type that is not nested."""
    for family, make in _MAKERS:
        if family(type):
            return make(type)
    return by_arrow(type)


def by_arrow(type: pa.DataType) -> Keep:
    """For values of any class: by the Arrow type that the value itself has."""

    def keep(value: Any) -> Any:
        if value is None or is_missing(value):
            return None
        is_array = isinstance(value, np.ndarray) and value.ndim > 0
        if is_array or (isinstance(value, _NESTED) and value.__class__ is not pa.MonthDayNano):
            # Arrow would follow a list that is in itself, or is very deep, until the process dies.
            raise NotKept(f"a {value.__class__.__name__} is no {type}")
        try:
            array = _alone(value)
            if not castable(array.type, type):
                raise NotKept(f"{array.type} is no {type}")
            return python_of(cast(array, type, "the value"), "the value")[0]
        except CONVERSION_ERRORS as error:
            raise NotKept(str(error)) from None

    return keep


def is_missing(value: Any) -> bool:
    """Whether this is one of pandas' or numpy's words for null; NaN is a number."""
    return type(value).__name__ in ("NaTType", "NAType") or (
        isinstance(value, (np.datetime64, np.timedelta64)) and bool(np.isnat(value))
    )


def is_null(value: Any) -> bool:
    """Whether this is null: None, a word of theirs for it, or a null of Arrow's."""
    return value is None or is_missing(value) or (isinstance(value, pa.Scalar) and not value.is_valid)


def python_of(array: pa.Array, what: str, instead: str = "use it in arrays, in a BatchProcessor") -> list[Any]:
    """An array as Python values. ``instead``: what whoever has others should do.

    Raises
    ------
    InvalidRequest
        A value that Python has no value for: a year past 9999, nanoseconds of a time of day, text that is not UTF-8.
    """
    try:
        plain = wholly_decoded(array)
        _check_times(plain)
        values: list[Any] = plain.to_pylist()
    except CONVERSION_ERRORS as error:
        raise InvalidRequest(f"{what}: a value of {array.type} has no Python value ({error}); {instead}") from None
    return values


def _check_times(array: pa.Array) -> None:
    """Arrow cuts the nanoseconds off a time of day, and does not tell."""
    if not _has_nanosecond_times(array.type):
        return
    if is_type.is_time64(array.type):
        array.cast(pa.time64("us"))
    elif is_type.is_struct(array.type):
        for column in array.flatten():
            _check_times(column)
    elif is_type.is_map(array.type):
        _check_times(array.keys)
        _check_times(array.items)
    else:
        _check_times(array.flatten())


def _has_nanosecond_times(type: pa.DataType) -> bool:
    if is_type.is_time64(type):
        return bool(type.unit == "ns")
    return any(_has_nanosecond_times(type.field(i).type) for i in range(type.num_fields))


def _alone(value: Any) -> pa.Array:
    """An array of this one value, of its own type; nothing is cut off it."""
    if isinstance(value, pa.Scalar):
        array = pa.repeat(value, 1)
        return array.storage if isinstance(array, pa.ExtensionArray) else array
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if type(value).__module__.startswith("pandas"):  # their nanoseconds are not in the class they derive from
        numpy_form = getattr(value, "to_datetime64", None) or getattr(value, "to_timedelta64", None)
        value = value if numpy_form is None else numpy_form()
    elif isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.timezone.utc)
    elif isinstance(value, dt.time) and value.tzinfo is not None:
        raise NotKept("a time of day has no zone")
    if isinstance(value, (np.bytes_, np.str_)):  # in an array of numpy's, Arrow takes them up to the first NUL
        return pa.array([value.item()])
    return pa.array(np.array([value])) if isinstance(value, np.generic) else pa.array([value])


def _integer(type: pa.DataType) -> Keep:
    signed = is_type.is_signed_integer(type)
    bits = type.bit_width
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    otherwise = by_arrow(type)

    def keep(value: Any) -> Any:
        if value.__class__ is int and least <= value <= most:
            return value
        return otherwise(value)

    return keep


def _float64(type: pa.DataType) -> Keep:
    otherwise = by_arrow(type)

    def keep(value: Any) -> Any:
        if value.__class__ is float:
            return value
        return _double_of(value) if value.__class__ is int else otherwise(value)

    return keep


def _float32(type: pa.DataType) -> Keep:
    otherwise = by_arrow(type)

    def keep(value: Any) -> Any:
        if value.__class__ is float:
            try:
                return _FLOAT32.unpack(_FLOAT32.pack(value))[0]
            except OverflowError:
                raise NotKept(_TOO_LARGE) from None
        if value.__class__ is not int:
            return otherwise(value)
        kept = keep(_double_of(value))
        if kept != value:
            raise NotKept(_ROUNDED)
        return kept

    return keep


def _double_of(number: int) -> float:
    """The double that an integer is, of whatever size; Python compares the two exactly."""
    try:
        kept = float(number)
    except OverflowError:
        raise NotKept(_TOO_LARGE) from None
    if kept != number:
        raise NotKept(_ROUNDED)
    return kept


def _text(type: pa.DataType) -> Keep:
    otherwise = by_arrow(type)

    def keep(value: Any) -> Any:
        if value.__class__ is str:
            if not value.isascii():
                try:
                    value.encode()
                except UnicodeEncodeError as error:
                    raise NotKept(str(error)) from None
            return value
        return otherwise(value)

    return keep


def _bytes(type: pa.DataType) -> Keep:
    otherwise = by_arrow(type)

    def keep(value: Any) -> Any:
        if value.__class__ is bytes:
            return value
        return bytes(value) if isinstance(value, (bytearray, memoryview)) else otherwise(value)

    return keep


def _boolean(type: pa.DataType) -> Keep:
    otherwise = by_arrow(type)

    def keep(value: Any) -> Any:
        return value if value is True or value is False else otherwise(value)

    return keep


def _date(type: pa.DataType) -> Keep:
    otherwise = by_arrow(type)

    def keep(value: Any) -> Any:
        return value if value.__class__ is dt.date else otherwise(value)

    return keep


def _time(type: pa.DataType) -> Keep:
    otherwise = by_arrow(type)
    smallest = _MICROSECONDS[type.unit]

    def keep(value: Any) -> Any:
        plain = value.__class__ is dt.time and value.tzinfo is None and not value.fold
        return value if plain and not value.microsecond % smallest else otherwise(value)

    return keep


def _timestamp(type: pa.DataType) -> Keep:
    otherwise = by_arrow(type)
    if type.unit == "ns":
        return otherwise
    smallest = _MICROSECONDS[type.unit]
    utc = dt.timezone.utc
    zone = None
    if type.tz is not None:
        try:
            zone = pa.array([0], type)[0].as_py().tzinfo
        except CONVERSION_ERRORS as error:
            raise InvalidRequest(f"{type}: expected a time zone that is known here, found {error}") from None
    zone_is_utc = type.tz == "UTC"

    def keep(value: Any) -> Any:
        if value.__class__ is not dt.datetime:
            return otherwise(value)
        if smallest > 1 and value.microsecond % smallest:
            raise NotKept(f"it has a fraction that {type} has no place for")
        try:
            if zone is None:
                if value.tzinfo is not None:
                    value = value.astimezone(utc).replace(tzinfo=None)
                return value.replace(fold=0) if value.fold else value
            if value.tzinfo is zone:
                # A local time that its zone skips becomes the one that is read back.
                return value if zone_is_utc else value.astimezone(utc).astimezone(zone)
            return (value if value.tzinfo is not None else value.replace(tzinfo=utc)).astimezone(zone)
        except OverflowError as error:
            raise NotKept(str(error)) from None

    return keep


def _duration(type: pa.DataType) -> Keep:
    otherwise = by_arrow(type)
    if type.unit == "ns":
        return otherwise
    smallest = _MICROSECONDS[type.unit]

    def keep(value: Any) -> Any:
        plain = value.__class__ is dt.timedelta and -_DURATION_DAYS_MAX < value.days < _DURATION_DAYS_MAX
        if plain and not value.microseconds % smallest:
            return value
        return otherwise(value)

    return keep


def _decimal(type: pa.DataType) -> Keep:
    otherwise = by_arrow(type)
    unit = Decimal((0, (1,), -type.scale))
    exact = Context(prec=type.precision, traps=[Inexact, InvalidOperation])

    def keep(value: Any) -> Any:
        if value.__class__ is int:
            value = Decimal(value)
        if value.__class__ is not Decimal:
            return otherwise(value)
        if not value.is_finite():
            raise NotKept("it is no number")
        try:
            kept = value.quantize(unit, context=exact)
        except Inexact:
            raise NotKept(f"it has digits that {type} has no place for") from None
        except InvalidOperation:
            raise NotKept(f"it has more digits than {type}") from None
        return kept if kept else kept.copy_abs()

    return keep


_MAKERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], Keep]], ...] = (
    (is_type.is_integer, _integer),
    (is_type.is_float64, _float64),
    (is_type.is_float32, _float32),
    (is_type.is_string, _text),
    (is_type.is_large_string, _text),
    (is_type.is_binary, _bytes),
    (is_type.is_large_binary, _bytes),
    (is_type.is_boolean, _boolean),
    (is_type.is_date, _date),
    (is_type.is_time, _time),
    (is_type.is_timestamp, _timestamp),
    (is_type.is_duration, _duration),
    (is_type.is_decimal128, _decimal),
)
