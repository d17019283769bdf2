"""Casts of numbers to and from decimals, against Python's own: ``float(Decimal)`` and ``Decimal(repr(float))``."""

from __future__ import annotations

import itertools
import random
import struct
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from holdfast.arrow.exact_casts import exact_cast

EXACT = Context(prec=400)


def units(number: int, scale: int) -> Decimal:
    return Decimal(number).scaleb(-scale, EXACT)


def fits(value: Decimal, type: pa.DataType) -> bool:
    """Whether a decimal type has this very value."""
    whole = value.scaleb(type.scale, EXACT)
    return whole == whole.to_integral_value() and abs(whole) < 10**type.precision


def of_units(numbers: list[int | None], type: pa.DataType) -> pa.Array:
    """Decimals by what they are multiples of: Arrow makes none of Python's with more than 38 digits, be they zeros."""
    whole = [None if number is None else Decimal(number) for number in numbers]
    return pa.array(whole, pa.decimal128(type.precision, 0)).view(type)


def values_of(decimals: pa.Array) -> list[Decimal | None]:
    """Python sees scales above 38 in the widest decimals only."""
    values: list[Decimal | None] = decimals.cast(pa.decimal256(76, decimals.type.scale)).to_pylist()
    return values


def drawn_doubles(random: random.Random, count: int) -> list[float]:
    """Cents, other decimals, and whatever bits say."""
    found = [random.randrange(10**7) / 100 for _ in range(count)]
    found += [random.randrange(10 ** random.randrange(1, 18)) / 10 ** random.randrange(25) for _ in range(count)]
    found += [struct.unpack("d", random.randbytes(8))[0] for _ in range(count)]
    return [-number if random.random() < 0.3 else number for number in found]


@pytest.mark.parametrize(
    ("precision", "scale"),
    [(5, 2), (10, 2), (18, 2), (38, 18), (38, 38), (10, 4), (38, 0), (10, -2), (38, -20), (3, 5), (38, 40), (5, 76)],
)
@pytest.mark.parametrize("single", [False, True])
def test_a_float_becomes_the_decimal_that_python_writes_or_is_refused(precision: int, scale: int, single: bool) -> None:
    random_ = random.Random(f"{precision}, {scale}, {single}")
    type = pa.decimal128(precision, scale)
    numbers = [0.0, -0.0, 4.02, 0.1, 0.29, 1e22, 1e-7, 100.0, 1e15, 2.0**70, 5e-324, 1e300, 10.0 ** (precision - scale)]
    numbers += [number for number in drawn_doubles(random_, 300) if number == number]
    with np.errstate(over="ignore"):
        floats = np.array(numbers, np.float32 if single else np.float64)
    taken = []
    for number in floats[np.isfinite(floats)]:
        expected = Decimal(np.format_float_scientific(number, unique=True))
        one = pa.array([number])
        if fits(expected, type):
            taken.append((number, expected))
            assert values_of(exact_cast(one, type)) == [expected], number
        else:
            with pytest.raises(pa.ArrowInvalid):
                exact_cast(one, type)
    assert len(taken) >= 2
    column = pa.array([None, *(number for number, _ in taken), None], pa.float32() if single else pa.float64())
    found = exact_cast(column, type)
    assert found.type == type
    assert values_of(found) == [None, *(expected for _, expected in taken), None]
    assert values_of(exact_cast(column[1:-1], type)) == [expected for _, expected in taken]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("beside", [[], [1.5, None], [1.0 / 3]])
def test_what_is_no_number_is_no_decimal(number: float, beside: list[float | None]) -> None:
    for type in (pa.float32(), pa.float64()):
        with pytest.raises(pa.ArrowInvalid):
            exact_cast(pa.array([*beside, number], type), pa.decimal128(38, 17))


def test_a_column_of_nulls_and_one_without_rows_are_decimals_too() -> None:
    for values in ([], [None, None]):
        for type in (pa.float32(), pa.float64()):
            assert exact_cast(pa.array(values, type), pa.decimal128(10, 2)).to_pylist() == values
            assert exact_cast(pa.array(values, pa.decimal128(10, 2)), type).to_pylist() == values


@pytest.mark.parametrize(
    ("precision", "scale"),
    [(5, 2), (18, 2), (38, 18), (20, 6), (38, 30), (38, 38), (38, 0), (10, -2), (38, -35), (3, 5), (9, 60)],
)
def test_a_decimal_becomes_the_nearest_double(precision: int, scale: int) -> None:
    random_ = random.Random(f"{precision}, {scale}")
    numbers = [random_.randrange(10 ** random_.randrange(1, precision + 1)) for _ in range(2000)]
    numbers += [-number for number in numbers[:200]] + [0, 10**precision - 1]
    for some in (
        numbers,
        [number for number in numbers if number < 2**53],
        [number for number in numbers if number < 500],
    ):
        column = of_units([*some, None], pa.decimal128(precision, scale))
        expected = [float(units(number, scale)) for number in some] + [None]
        assert exact_cast(column, pa.float64()).to_pylist() == expected
        assert exact_cast(column[7:], pa.float64()).to_pylist() == expected[7:]


def test_a_decimal_becomes_the_nearest_float32_and_is_rounded_once() -> None:
    random_ = random.Random(4)
    # Between two floats, and a little off it: the nearest double is the middle itself, of which the even one is taken.
    middles = [1 + Fraction(2 * random_.randrange(2**22) + 1, 2**24) for _ in range(100)]
    exact = [Decimal(one.numerator) / Decimal(one.denominator) for one in middles]
    drawn = [units(random_.randrange(10 ** random_.randrange(1, 20)), 30) for _ in range(1000)]
    for values in (
        [one + sign * Decimal("1e-30") for one in exact for sign in (-1, 0, 1)],
        drawn,
        [units(number, 30) for number in range(200)],
    ):
        for value, found in zip(values, exact_cast(pa.array(values, pa.decimal128(38, 30)), pa.float32()).to_pylist()):
            below, above = (float(np.nextafter(np.float32(found), np.float32(to))) for to in ("-inf", "inf"))
            off = abs(Fraction(found) - Fraction(value))
            assert off <= abs(Fraction(below) - Fraction(value)), value
            assert off <= abs(Fraction(above) - Fraction(value)), value
    cents = [units(number, 2) for number in range(3000)]
    found = exact_cast(pa.array(cents, pa.decimal128(10, 2)), pa.float32()).to_pylist()
    assert found == [float(np.float32(float(cent))) for cent in cents]


def test_a_decimal_larger_than_the_largest_float_is_refused() -> None:
    type = pa.decimal128(5, -35)
    assert exact_cast(of_units([3000], type), pa.float32()).to_pylist() == [float(np.float32(3e38))]
    with pytest.raises(pa.ArrowInvalid, match="at position 1 is larger than its largest number"):
        exact_cast(of_units([10, 4000], type), pa.float32())


@pytest.mark.parametrize("scale", [-37, -30, -20, -5, -1, 0, 5, 30])
def test_a_decimal_becomes_an_integer_where_it_is_one(scale: int) -> None:
    random_ = random.Random(scale)
    taken = 0
    drawn = [random_.randrange(-(10 ** random_.randrange(39)), 10 ** random_.randrange(39)) for _ in range(1000)]
    for number in [0, 1, 10**30, *drawn]:
        value, array = units(number, scale), of_units([number], pa.decimal128(38, scale))
        for type, least, most in (
            (pa.int64(), -(2**63), 2**63 - 1),
            (pa.uint64(), 0, 2**64 - 1),
            (pa.int8(), -128, 127),
        ):
            if value == value.to_integral_value(context=EXACT) and least <= value <= most:
                taken += 1
                assert exact_cast(array, type).to_pylist() == [int(value)]
            else:
                with pytest.raises(pa.ArrowInvalid):
                    exact_cast(array, type)
    assert taken


@pytest.mark.parametrize(("precision", "scale"), [(38, 18), (5, 2), (3, 5), (20, 0), (10, -2), (38, 37), (9, 60)])
def test_an_integer_becomes_a_decimal_where_it_fits(precision: int, scale: int) -> None:
    type = pa.decimal128(precision, scale)
    for kind, number in itertools.product((pa.int8(), pa.int64(), pa.uint64()), (0, 7, 100, 127, 2**63 - 1, 2**64 - 1)):
        if number >= 2**kind.bit_width or (number >= 2 ** (kind.bit_width - 1) and kind != pa.uint64()):
            continue
        if fits(Decimal(number), type):
            assert values_of(exact_cast(pa.array([number, None], kind), type)) == [Decimal(number), None]
        else:
            with pytest.raises(pa.ArrowInvalid):
                exact_cast(pa.array([number, None], kind), type)


@pytest.mark.parametrize(("type", "digits"), [(pa.float64(), 53), (pa.float32(), 24), (pa.float16(), 11)])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_float_becomes_an_integer_below_where_it_lacks_some(type: pa.DataType, digits: int, sign: int) -> None:
    """One that is larger may have been another integer, which was rounded before it came here."""
    made = np.array([sign * (2**digits - 1), sign * 2**digits, sign * 3 * 2**digits], type.to_pandas_dtype())
    taken = pa.array([made[0], None, type.to_pandas_dtype()(-0.0)], type)
    assert exact_cast(taken, pa.int64()).to_pylist() == [sign * (2**digits - 1), None, 0]
    for number in made[1:]:
        with pytest.raises(pa.ArrowInvalid, match=f"a float from {2**digits} on may not be the integer that it was"):
            exact_cast(pa.array([made[0], None, number], type), pa.int64())
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint32()):
        with pytest.raises(pa.ArrowInvalid):
            exact_cast(pa.array([made[1]], type), kind)
    below_a_null = pa.array(made[1:], type, mask=np.array([True, True]))
    assert exact_cast(below_a_null, pa.int64()).to_pylist() == [None, None]


@pytest.mark.parametrize("type", [pa.float64(), pa.float32()])
@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()])
def test_an_integer_becomes_a_float_where_it_is_one(type: pa.DataType, kind: pa.DataType) -> None:
    """Arrow's own cast goes by a range: 10**18 was refused, which a double has."""
    random_ = random.Random(f"{type}, {kind}")
    info = np.iinfo(kind.to_pandas_dtype())
    numbers = [0, 1, 100, info.min, info.max, info.max - 1, info.min + 1, 10**18, 10**17 + 1, 20_000_000]
    numbers += [2**bits + off for bits in (24, 31, 32, 53, 62, 63) for off in (-1, 0, 1, 2, 3)]
    numbers += [random_.randrange(2**53) << random_.randrange(12) for _ in range(300)]
    numbers = [sign * number for number in numbers for sign in (1, -1)]
    numbers = [number for number in numbers if info.min <= number <= info.max]
    has = type.to_pandas_dtype()
    taken = [number for number in numbers if int(has(number)) == number]
    assert exact_cast(pa.array([*taken, None], kind), type).to_pylist() == [*map(float, taken), None]
    assert exact_cast(pa.array([None, *taken], kind)[3:], type).to_pylist() == [*map(float, taken[2:])]
    for number in set(numbers) - set(taken):
        with pytest.raises(pa.ArrowInvalid, match=f"{number} at position 1 is no {type}: it would be"):
            exact_cast(pa.array([0, number], kind), type)
    if taken != numbers:
        lost = next(number for number in numbers if number not in taken)
        below_a_null = pa.array(np.array([lost, 1], kind.to_pandas_dtype()), mask=np.array([True, False]))
        assert exact_cast(below_a_null, type).to_pylist() == [None, 1.0]
