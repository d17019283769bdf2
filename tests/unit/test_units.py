"""Durations and sizes: what reads as what, and what is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidRequest
from holdfast.units import format_duration, format_size, parse_duration, parse_size

INT64_MAX = (1 << 63) - 1


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("10 min", 600_000),
        ("10min", 600_000),
        (" 500 ms ", 500),
        ("1 h 30 min", 5_400_000),
        ("1h30min", 5_400_000),
        ("7 d", 604_800_000),
        ("1 week", 604_800_000),
        ("2 weeks", 1_209_600_000),
        ("0.5 s", 500),
        ("1 Hour", 3_600_000),
        ("10 minutes", 600_000),
        ("0", 0),
        (250, 250),
        (timedelta(minutes=1, milliseconds=5), 60_005),
    ],
)
def test_durations(text: str | int | timedelta, duration_ms: int) -> None:
    assert parse_duration(text) == duration_ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "10",
        "min",
        "-1 s",
        "10 fortnights",
        "1 s x",
        "0.0001 ms",
        "1e3 s",
        "10 min,",
        "99999999999999 d",
        -1,
        True,
        timedelta(microseconds=1),
        timedelta(seconds=-1),
    ],
)
def test_nonsense_is_no_duration(text: str | int | timedelta) -> None:
    with pytest.raises(InvalidRequest, match="is not a duration: expected"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("64 MiB", 64 << 20),
        ("64MiB", 64 << 20),
        ("64m", 64 << 20),
        ("64 MB", 64 << 20),
        ("512 kib", 512 << 10),
        ("1.5 GiB", 3 << 29),
        ("2 TiB", 2 << 40),
        ("100", 100),
        ("7 B", 7),
        ("7 bytes", 7),
        (4096, 4096),
    ],
)
def test_sizes(text: str | int, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "MiB", "-1 MiB", "1 MiB 2 KiB", "1 XiB", "0.3 B", "ten", -5, True, str(1 << 64)])
def test_nonsense_is_no_size(text: str | int) -> None:
    with pytest.raises(InvalidRequest, match="is not a size: expected"):
        parse_size(text)


@given(st.integers(0, INT64_MAX))
def test_what_is_shown_reads_back(value: int) -> None:
    assert parse_size(format_size(value)) == value
    assert parse_duration(format_duration(value)) == value


def test_the_largest_whole_unit_is_shown() -> None:
    assert format_size(64 << 20) == "64 MiB"
    assert format_size((1 << 20) + 1) == "1048577 B"
    assert format_duration(5_400_000) == "90 min"
    assert format_duration(604_800_000) == "1 week"
    assert format_size(0) == "0 B"
