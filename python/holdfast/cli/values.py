"""Python's values of Arrow's, for rows on a terminal: as `to_pylist` gives them, but for times that Python has none
for: of years before 1 and after 9999, or with nanoseconds. States may hold them: milliseconds that were taken for
seconds are of the year 55840.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.types as is_type

from holdfast.arrow.types import children, is_list, unwrapped

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_S = 86_400
# The calendar begins anew after so many years, or days.
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class IsoTime:
    """A day, a time of day, or both, by ISO 8601: in UTC where it is an instant. Years of more than four digits, and
    those before year 0, have their sign.
    """

    day: str
    clock: str = ""

    def isoformat(self, sep: str = "T") -> str:
        return sep.join(filter(None, (self.day, self.clock)))


def python_values(column: pa.Array) -> list[Any]:
    """The values of a column."""
    if not _has_times(column.type):
        return list(column.to_pylist())
    return [_value(scalar) for scalar in column]


def _has_times(kind: pa.DataType) -> bool:
    kind = unwrapped(kind)
    return is_type.is_temporal(kind) or any(_has_times(field.type) for field in children(kind))


def _value(scalar: pa.Scalar) -> Any:
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if isinstance(scalar, (pa.ExtensionScalar, pa.DictionaryScalar)):
        return _value(scalar.value)
    if is_type.is_struct(kind):
        return {name: _value(inner) for name, inner in scalar.items()}
    if is_type.is_map(kind):
        entries = scalar.values
        return [(_value(key), _value(value)) for key, value in zip(entries.field(0), entries.field(1))]
    if is_list(kind):
        return [_value(inner) for inner in scalar.values]
    return _time(scalar) if is_type.is_temporal(kind) else scalar.as_py()


def _time(scalar: pa.Scalar) -> Any:
    kind = scalar.type
    if is_type.is_duration(kind):
        return scalar.value / _PER_SECOND[kind.unit]
    if is_type.is_time(kind) and kind.unit == "ns":
        return IsoTime("", _clock(scalar.value, "ns"))
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):  # no year of Python's
        pass
    if is_type.is_timestamp(kind):
        days, of_day = divmod(scalar.value, _DAY_S * _PER_SECOND[kind.unit])
        return IsoTime(_day(days), _clock(of_day, kind.unit) + ("+00:00" if kind.tz else ""))
    return IsoTime(_day(scalar.value if is_type.is_date32(kind) else scalar.value // (_DAY_S * 1000)))


def _day(days: int) -> str:
    """Of days since 1970."""
    cycles, days = divmod(days, _CYCLE_DAYS)
    found = _EPOCH + timedelta(days)
    year = found.year + cycles * _CYCLE_YEARS
    return f"{year:04d}{found:-%m-%d}" if 0 <= year <= 9999 else f"{year:+05d}{found:-%m-%d}"


def _clock(of_day: int, unit: str) -> str:
    """A time of day, with as many digits of the second as Python and pandas give: none, six, or nine."""
    seconds, fraction = divmod(of_day, _PER_SECOND[unit])
    nanos = fraction * (10**9 // _PER_SECOND[unit])
    digits = f".{nanos:09d}" if nanos % 1000 else f".{nanos // 1000:06d}" if nanos else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{digits}"
