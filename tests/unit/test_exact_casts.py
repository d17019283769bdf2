"""Casts of numbers to decimals, against Python's own ``Decimal(repr(float))``."""

from __future__ import annotations

import random
import struct
from decimal import Context, Decimal

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
