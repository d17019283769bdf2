"""What states keep of what a user hands over, type by type, as the guide says it: the oracle of the states' models.

Each value is offered in a form that a user may have at hand, together with what must be read back. Nothing here is
computed by the code under test: pairs are made, not derived.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import strategies as st

UTC = dt.timezone.utc
NEW_YORK = ZoneInfo("America/New_York")
Offers = st.SearchStrategy[tuple[Callable[[], Any], Any]]  # makes what is offered, anew each time; what is kept


@dataclass(frozen=True)
class Kind:
    """A declared type, what it keeps, and what it must refuse."""

    type: pa.DataType
    offers: Offers
    refused: tuple[Any, ...]
    can_be_key: bool = True


def offer(*pairs: tuple[Any, Any]) -> Offers:
    return st.sampled_from([((lambda offered=offered: offered), kept) for offered, kept in pairs])


def float32(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])


def at(*parts: int, zone: dt.tzinfo | None = None, fold: int = 0) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=zone, fold=fold)  # type: ignore[misc,arg-type]


def plain(values: st.SearchStrategy[Any]) -> Offers:
    return values.map(lambda value: ((lambda: value), value))


def cents(most: int) -> st.SearchStrategy[Decimal]:
    return st.integers(-most, most).map(lambda number: Decimal(number).scaleb(-2))


NAN = float("nan")
INT64 = Kind(
    pa.int64(),
    plain(st.integers(-3, 3))
    | offer((2**63 - 1, 2**63 - 1), (2.0, 2), (-0.0, 0), (np.int8(1), 1), (np.float32(3), 3), (Decimal("2.00"), 2))
    | offer((pa.scalar(1, pa.uint8()), 1), (np.array(2), 2))
    | offer((2.0**53 - 1, 2**53 - 1), (np.float32(1 - 2**24), 1 - 2**24), (Decimal(2**53 + 1), 2**53 + 1)),
    (2.5, True, "1", 2**63, Decimal("1.5"), NAN, b"1", dt.date(2020, 1, 1), [1], {"a": 1}, np.longdouble(1), 1j)
    + (float(2**53 + 1), -(2.0**53), 1e18, np.float32(2**24)),
)
INT8 = Kind(pa.int8(), plain(st.integers(-128, 127)), (128, -129, 1e3, False))
UINT64 = Kind(pa.uint64(), plain(st.sampled_from([0, 2**63, 2**64 - 1])), (-1, 2**64, -0.5))
FLOAT64 = Kind(
    pa.float64(),
    plain(st.sampled_from([0.0, -0.0, 0.1, NAN, math.inf, -math.inf, 5e-324]))
    | offer((1, 1.0), (np.float32(0.1), float32(0.1)), (Decimal("0.1"), 0.1), (2**53, 2.0**53))
    | offer((10**18, 1e18), (-(2**63), -(2.0**63)), (np.int64(2**60), 2.0**60), (10**22, 1e22), (2**70, 2.0**70))
    | offer((Decimal(2**53 + 1), 2.0**53), (Decimal(10**23), 1e23))
    | cents(10**15).map(lambda money: ((lambda: money), float(money))),
    (2**53 + 1, True, "0.1", 10**400, dt.timedelta(1), 2**63 - 1, np.uint64(2**64 - 1), 10**23),
)
FLOAT32 = Kind(
    pa.float32(),
    st.sampled_from([0.0, -0.0, 0.1, 1 / 3, NAN, math.inf]).map(lambda f: ((lambda: f), float32(f)))
    | offer((float32(0.1), float32(0.1)), (np.float64(0.1), float32(0.1)), (1, 1.0))
    | offer((20_000_000, 2e7), (2**70, 2.0**70))
    | cents(10**7).map(lambda money: ((lambda: money), float32(float(money)))),
    (1e300, -3.5e38, 2**24 + 1, True, np.int64(2**40 + 1), 10**40, 10**400),
)
BOOL = Kind(pa.bool_(), plain(st.booleans()) | offer((np.bool_(True), True)), (1, 0, "true", 1.0))
TEXTS = plain(st.sampled_from(["", "a", "b\0", "ä", "a long text that fits no view"])) | offer((np.str_("a"), "a"))
STRINGS = [
    Kind(type, TEXTS, (b"a", 1, "\ud800", ["a"]))
    for type in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))
]
BYTES = plain(st.sampled_from([b"", b"a", b"\0\xff", b"some longer bytes"])) | st.just((lambda: bytearray(b"b"), b"b"))
BINARIES = [Kind(type, BYTES, ("a", 1, [97])) for type in (pa.binary(), pa.large_binary(), pa.binary_view())]
FIXED = Kind(pa.binary(3), plain(st.sampled_from([b"abc", b"\0\0\0"])), (b"ab", b"abcd", "abc"))
DATE = Kind(
    pa.date32(),
    plain(st.dates(dt.date(2020, 1, 1), dt.date(2020, 1, 3)))
    | offer((np.datetime64("2020-01-02"), dt.date(2020, 1, 2))),
    (at(2020, 1, 1), at(2020, 1, 1, 5), 1, "2020-01-01"),
)
DATE64 = Kind(pa.date64(), DATE.offers, (at(2020, 1, 1, 5), 1))
SECONDS = Kind(
    pa.timestamp("s"),
    plain(st.sampled_from([at(2020, 1, 1), at(1960, 1, 1, 0, 0, 7)]))
    | offer(
        (dt.date(2020, 1, 1), at(2020, 1, 1)),
        (at(2020, 1, 1, zone=NEW_YORK), at(2020, 1, 1, 5)),
        (pd.Timestamp(2020, 1, 1), at(2020, 1, 1)),
    ),
    (at(2020, 1, 1, 0, 0, 0, 5), pd.Timestamp(1), 1, "2020-01-01", dt.time(1)),
)
MICROS_UTC = Kind(
    pa.timestamp("us", "UTC"),
    offer(
        (at(2020, 1, 1), at(2020, 1, 1, zone=UTC)),
        (at(2020, 1, 1, zone=UTC), at(2020, 1, 1, zone=UTC)),
        (at(2019, 12, 31, 19, zone=NEW_YORK), at(2020, 1, 1, zone=UTC)),
        (at(2020, 1, 1, 0, 0, 0, 1), at(2020, 1, 1, 0, 0, 0, 1, zone=UTC)),
        (pa.scalar(1_000, pa.timestamp("ns", "UTC")), at(1970, 1, 1, 0, 0, 0, 1, zone=UTC)),
    ),
    (pd.Timestamp(1), pa.scalar(1, pa.timestamp("ns")), np.datetime64(1, "ns"), 1),
)
# One local time, two instants: 1:30 in the morning of the day on which summer time ends.
MICROS_NEW_YORK = Kind(
    pa.timestamp("us", "America/New_York"),
    offer(
        (at(2020, 11, 1, 5, 30, zone=UTC), at(2020, 11, 1, 5, 30, zone=UTC)),
        (at(2020, 11, 1, 6, 30, zone=UTC), at(2020, 11, 1, 6, 30, zone=UTC)),
        (at(2020, 11, 1, 1, 30, zone=NEW_YORK), at(2020, 11, 1, 5, 30, zone=UTC)),
        (at(2020, 11, 1, 1, 30, zone=NEW_YORK, fold=1), at(2020, 11, 1, 6, 30, zone=UTC)),
        (at(2020, 11, 1, 5, 30), at(2020, 11, 1, 5, 30, zone=UTC)),
    ),
    ("2020", 5),
)
NANOS = Kind(
    pa.timestamp("ns"),
    offer(
        (pd.Timestamp(1), pd.Timestamp(1)),
        (pd.Timestamp(1_001), pd.Timestamp(1_001)),
        (at(1970, 1, 1, 0, 0, 0, 1), pd.Timestamp(1_000)),
        (np.datetime64(2, "ns"), pd.Timestamp(2)),
        (pa.scalar(3, pa.timestamp("ns")), pd.Timestamp(3)),
    ),
    (at(1500, 1, 1), 1),
)
TIME_S = Kind(
    pa.time32("s"), plain(st.sampled_from([dt.time(1), dt.time(1, 2, 3)])), (dt.time(1, 2, 3, 4), at(2020, 1, 1))
)
TIME_US = Kind(
    pa.time64("us"),
    plain(st.sampled_from([dt.time(1), dt.time(1, 2, 3, 4)])),
    (dt.time(1, tzinfo=UTC), pa.scalar(1, pa.time64("ns")), 5),
)
TIME_NS = Kind(
    pa.time64("ns"),
    plain(st.sampled_from([dt.time(1), dt.time(1, 2, 3, 4)]))
    | offer((pa.scalar(2_000, pa.time64("ns")), dt.time(0, 0, 0, 2))),
    (pa.scalar(1, pa.time64("ns")),),
)
DURATION = Kind(
    pa.duration("us"),
    plain(st.sampled_from([dt.timedelta(1), dt.timedelta(microseconds=-1)]))
    | offer((pd.Timedelta(1_000), dt.timedelta(microseconds=1))),
    (pd.Timedelta(1), dt.timedelta.max, 1, np.timedelta64(1, "ns")),
)
DURATION_NS = Kind(
    pa.duration("ns"), offer((pd.Timedelta(1), pd.Timedelta(1)), (dt.timedelta(1), pd.Timedelta(days=1))), (1,)
)
DECIMAL = Kind(
    pa.decimal128(5, 2),
    offer(
        (Decimal("1"), Decimal("1.00")),
        (Decimal("1.00"), Decimal("1.00")),
        (1, Decimal("1.00")),
        (Decimal("-0.00"), Decimal("0.00")),
        (Decimal("1E+2"), Decimal("100.00")),
        (0.13, Decimal("0.13")),
        (np.float64(0.5), Decimal("0.50")),
    )
    | cents(99_999).map(lambda money: ((lambda: float(money)), Decimal(repr(float(money))).quantize(Decimal("0.01"))))
    | cents(99_999).map(lambda money: ((lambda: np.float32(money)), money)),
    (Decimal("0.129"), 0.129, Decimal("1000"), Decimal("NaN"), Decimal("Infinity"), "1.5", 100_000, True),
)
HUNDREDS = Kind(
    pa.decimal128(10, -2),
    plain(st.sampled_from([Decimal("0E+2"), Decimal("3E+2"), Decimal("-9999999999E+2")]))
    | offer((700, Decimal("7E+2"))),
    (Decimal("50"), 150, 10**12),
)
LEAVES = [
    *(INT64, INT8, UINT64, FLOAT64, FLOAT32, BOOL, *STRINGS, *BINARIES, FIXED, DATE, DATE64, SECONDS, MICROS_UTC),
    *(MICROS_NEW_YORK, NANOS, TIME_S, TIME_US, TIME_NS, DURATION, DURATION_NS, DECIMAL, HUNDREDS),
]


def pair(of: Kind) -> Offers:
    return of.offers | st.just((lambda: None, None))


FORMS: list[Callable[[list[Any]], Any]] = [list, tuple]


def lists_of(of: Kind, type: pa.DataType) -> Kind:
    made = st.tuples(st.lists(pair(of), max_size=3), st.sampled_from(FORMS)).map(
        lambda drawn: ((lambda: drawn[1]([make() for make, _ in drawn[0]])), [kept for _, kept in drawn[0]])
    )
    return Kind(type, made, (1, "ab", {"a": 1}, [of.refused[0]]), can_be_key=False)


def structs_of(first: Kind, second: Kind) -> Kind:
    type = pa.struct([pa.field("a", first.type), pa.field("b", second.type)])

    def forms(drawn: tuple[Any, Any, str]) -> tuple[Callable[[], Any], Any]:
        (a, kept_a), (b, kept_b), form = drawn
        makes: dict[str, Callable[[], Any]] = {
            "dict": lambda: {"a": a(), "b": b()},
            "other order": lambda: {"b": b(), "a": a()},
            "tuple": lambda: (a(), b()),
        }
        return makes[form], {"a": kept_a, "b": kept_b}

    both = first.can_be_key and second.can_be_key
    of = (first.offers, second.offers) if both else (pair(first), pair(second))
    made = st.tuples(*of, st.sampled_from(["dict", "other order", "tuple"])).map(forms)
    refused = ({"a": None, "c": 1}, (None,), 1, {"a": first.refused[0], "b": None}, [("a", None)])
    return Kind(type, made, refused, can_be_key=both)


def maps_of(key: Kind, value: Kind) -> Kind:
    entries = st.lists(st.tuples(key.offers, pair(value)), max_size=3)
    made = entries.map(
        lambda drawn: (
            (lambda: [(k(), v()) for (k, _), (v, _) in drawn]),
            [(kept_k, kept_v) for (_, kept_k), (_, kept_v) in drawn],
        )
    )
    return Kind(
        pa.map_(key.type, value.type), made, (1, [1], [(None, None)], [(key.refused[0], None)]), can_be_key=False
    )


NESTED = [
    lists_of(FLOAT32, pa.list_(pa.float32())),
    lists_of(STRINGS[2], pa.large_list(pa.string_view())),
    lists_of(NANOS, pa.list_view(pa.timestamp("ns"))),
    structs_of(FLOAT32, STRINGS[0]),
    structs_of(FLOAT64, MICROS_NEW_YORK),
    structs_of(DECIMAL, lists_of(INT8, pa.list_(pa.int8()))),
    maps_of(STRINGS[0], DECIMAL),
    maps_of(HUNDREDS, lists_of(HUNDREDS, pa.list_(HUNDREDS.type))),
    lists_of(
        structs_of(INT64, lists_of(BOOL, pa.list_(pa.bool_()))),
        pa.list_(structs_of(INT64, lists_of(BOOL, pa.list_(pa.bool_()))).type),
    ),
]
KINDS = [*LEAVES, *NESTED]
KEY_KINDS = [kind for kind in KINDS if kind.can_be_key]


def token(value: Any) -> Any:
    """What is equal to what, as the guide says it: by the declared type, never by Python's ``==``."""
    if isinstance(value, dict):
        return tuple((name, token(item)) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(map(token, value))
    if isinstance(value, float):
        return "NaN" if value != value else ("-" if math.copysign(1, value) < 0 else "", value)
    if isinstance(value, (pd.Timestamp, pd.Timedelta)):
        return ("ns", value.value)
    if isinstance(value, dt.datetime):
        return ("instant", value if value.tzinfo is None else value.astimezone(UTC))
    return (type(value).__name__, value)


def order(value: Any) -> Any:
    """What sorts values of one type as the guide says it: NaN last, structs field by field, text by its bytes."""
    if isinstance(value, dict):
        return [order(item) for item in value.values()]
    if isinstance(value, float):
        return (value != value, 0.0 if value != value else value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value


def as_map_key(kept: Any) -> Any:
    """Keys know one zero."""
    if isinstance(kept, dict):
        return {name: as_map_key(item) for name, item in kept.items()}
    return 0.0 if isinstance(kept, float) and kept == 0 else kept


def spoil(value: Any) -> None:
    """Changes all that can be changed of what was read or written: no state may notice."""
    if isinstance(value, dict):
        for item in value.values():
            spoil(item)
        value["spoilt"] = 1
    elif isinstance(value, (list, tuple)):
        for item in value:
            spoil(item)
        if isinstance(value, list):
            value.append("spoilt")
    elif isinstance(value, bytearray):
        value += b"spoilt"
