"""Durations and sizes as people write them: ``"10 min"``, ``"64 MiB"``. Milliseconds and bytes inside."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from holdfast.errors import InvalidRequest

_MS = {
    "ms": 1,
    "s": 1_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "week": 604_800_000,
}
_MS_NAMES = {
    **_MS,
    "millisecond": 1,
    "milliseconds": 1,
    "sec": 1_000,
    "second": 1_000,
    "seconds": 1_000,
    "m": 60_000,
    "minute": 60_000,
    "minutes": 60_000,
    "hour": 3_600_000,
    "hours": 3_600_000,
    "day": 86_400_000,
    "days": 86_400_000,
    "weeks": 604_800_000,
}
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_BYTES_NAMES = {
    **{name.lower(): size for name, size in _BYTES.items()},
    "": 1,
    "bytes": 1,
    # As in Spark's own settings, "64m" and "64MB" are binary; a decimal megabyte is nobody's memory limit.
    **{letter: 1 << shift for letter, shift in (("k", 10), ("m", 20), ("g", 30), ("t", 40))},
    **{f"{letter}b": 1 << shift for letter, shift in (("k", 10), ("m", 20), ("g", 30), ("t", 40))},
}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_INT64_MAX = (1 << 63) - 1


def parse_duration(text: str | int | timedelta) -> int:
    """Milliseconds of a duration.

    Parameters
    ----------
    text
        ``"10 min"``, ``"1 h 30 min"``, ``"500 ms"``, ``"7 d"``, a ``timedelta``, or an int of milliseconds.

    Raises
    ------
    InvalidRequest
        Not a duration: no unit, an unknown unit, negative, or finer than a millisecond.
    """
    if isinstance(text, timedelta):
        return _whole(
            Fraction(text // timedelta(microseconds=1), 1000), text, "duration", "a whole number of milliseconds"
        )
    if isinstance(text, int) and not isinstance(text, bool):
        return _whole(Fraction(text), text, "duration", "milliseconds, not negative")
    if isinstance(text, str) and text.strip() == "0":
        return 0
    return _parse(text, _MS_NAMES, "duration", 'a number and a unit (ms, s, min, h, d, week), such as "10 min"')


def parse_size(text: str | int) -> int:
    """Bytes of a size.

    Parameters
    ----------
    text
        ``"64 MiB"``, ``"1 GiB"``, ``"512k"`` (binary, as in Spark's settings), a plain number of bytes, or an int.

    Raises
    ------
    InvalidRequest
        Not a size: an unknown unit, negative, or not a whole number of bytes.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        return _whole(Fraction(text), text, "size", "bytes, not negative")
    return _parse(text, _BYTES_NAMES, "size", 'a number and a unit (B, KiB, MiB, GiB, TiB), such as "64 MiB"', one=True)


def format_duration(duration_ms: int) -> str:
    """The shortest text that ``parse_duration`` reads back as the same number: 600000 is ``"10 min"``."""
    return _format(duration_ms, _MS, "ms")


def format_size(size_bytes: int) -> str:
    """The shortest text that ``parse_size`` reads back as the same number: 67108864 is ``"64 MiB"``."""
    return _format(size_bytes, _BYTES, "B")


def _parse(text: object, units: dict[str, int], what: str, expected: str, one: bool = False) -> int:
    if not isinstance(text, str):
        raise InvalidRequest(f"{text!r} is not a {what}: expected {expected}")
    total = Fraction(0)
    position = 0
    parts = 0
    while position < len(text):
        match = _QUANTITY.match(text, position)
        unit = match.group(2) if match else ""
        scale = units.get(unit) or units.get(unit.lower())
        if match is None or match.end() == position or scale is None or (one and parts):
            raise InvalidRequest(f"{text!r} is not a {what}: expected {expected}")
        total += Fraction(match.group(1)) * scale
        position = match.end()
        parts += 1
    if not parts:
        raise InvalidRequest(f"{text!r} is not a {what}: expected {expected}")
    return _whole(total, text, what, expected)


def _whole(value: Fraction, given: object, what: str, expected: str) -> int:
    if value.denominator != 1 or not 0 <= value <= _INT64_MAX:
        raise InvalidRequest(f"{given!r} is not a {what}: expected {expected}")
    return int(value)


def _format(value: int, units: dict[str, int], smallest: str) -> str:
    if value == 0:
        return f"0 {smallest}"
    unit = max((name for name, scale in units.items() if value % scale == 0), key=lambda name: units[name])
    return f"{value // units[unit]} {unit}"
