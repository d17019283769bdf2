"""Casts of what is not nested: numbers, decimals above all, exactly or not at all, where Arrow's own are off or wrap.

A float that is so large that floats lack integers beside it becomes no integer: it may be one that was rounded, as
pandas makes doubles of integers where one is missing.

Arrow makes doubles of decimals, and decimals of doubles, by multiplications that each round: 4.81 becomes
4.8100000000000005, and back again it is another number. Of more digits than it has room for it looks at what is left of
a product that wrapped around. Its texts are right, so they are the way where numbers alone are not enough.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_type

#: By the bits of a float, from where on it has not each integer.
_INTEGERS_UNTIL = {16: 1 << 11, 32: 1 << 24, 64: 1 << 53}
#: Up to which power of ten a float has each, so that one division of two exact numbers gives the nearest.
_EXACT_POWERS = {32: 10, 64: 22}
#: Numbers with fewer digits are doubles of their own, each another one.
_DISTINCT = 1e15
#: Behind the point, where a type has room for more.
_USUAL_PLACES = 6
#: Rows that tell whether a column is worth trying.
_TRIED = 64
#: Digits that Arrow's widest decimals have.
_DIGITS_MAX = 76
#: Which has each integer of 64 bits.
_OF_INTEGERS = pa.decimal128(20, 0)


def exact_cast(array: pa.Array, expected: pa.DataType) -> pa.Array:
    """An array that is not nested, as another type. Of what becomes a float only floats and decimals are rounded, once,
    to the nearest; a float that becomes a decimal is what its shortest text says, as in Python: 4.02 is
    ``Decimal("4.02")``.

    Raises
    ------
    pyarrow.ArrowInvalid
        A value that the type has no place for. Others of Arrow's errors, and ValueError: there is no such cast.
    """
    found = array.type
    if is_type.is_decimal(expected):
        if is_type.is_integer(found):
            # Arrow asks for room for the largest integer of the type, even where all values are small.
            return _rescaled(array.cast(_OF_INTEGERS), expected)
        if is_type.is_floating(found):
            return _decimals_of_floats(array, expected)
        return _rescaled(array, expected) if is_type.is_decimal(found) else array.cast(expected)
    if is_type.is_decimal(found) and is_type.is_integer(expected):
        return _rescaled(array, _OF_INTEGERS).cast(expected)
    if is_type.is_floating(found) and is_type.is_integer(expected):
        return _integers_of_floats(array, expected)
    if is_type.is_integer(found) and is_type.is_floating(expected):
        return _floats_of_integers(array, expected)
    if not is_type.is_floating(expected) or not (is_type.is_floating(found) or is_type.is_decimal(found)):
        return array.cast(expected)
    result = _nearest_floats(array, expected) if is_type.is_decimal(found) else array.cast(expected)
    finite = pc.is_finite(array) if is_type.is_floating(found) else array.is_valid()
    _refuse(pc.and_(finite, pc.is_inf(result)), array, "is larger than its largest number")
    return result


def _rescaled(array: pa.Array, expected: pa.DataType) -> pa.Array:
    """Decimals as others. Past the digits of the wider type Arrow has no power of ten, and takes what lies there; where
    a product wraps around it looks at what is left. So digits are counted before they become more.
    """
    scale = array.type.scale
    added = expected.scale - scale
    if abs(added) > _DIGITS_MAX:
        raise pa.ArrowInvalid(f"its scale {scale} is more than {_DIGITS_MAX} digits from {expected.scale}")
    if abs(added) > 38:
        array = array.cast(pa.decimal256(_DIGITS_MAX, scale))
    if added > 0:
        array = array.cast(pa.decimal256(max(expected.precision - added, 1), scale))
        array = array.cast(pa.decimal256(_DIGITS_MAX, expected.scale))
    return array.cast(expected)


def _integers_of_floats(array: pa.Array, expected: pa.DataType) -> pa.Array:
    integers = array.cast(expected)
    limit = _INTEGERS_UNTIL[array.type.bit_width]
    if expected.bit_width >= limit.bit_length():  # others have none that is so large
        found = pc.min_max(integers)
        for number in (found["min"].as_py(), found["max"].as_py()):
            if number is not None and abs(number) >= limit:
                raise pa.ArrowInvalid(
                    f"a float from {limit} on may not be the integer that it was: give integers: {number}"
                )
    return integers


def _floats_of_integers(array: pa.Array, expected: pa.DataType) -> pa.Array:
    """Integers as the floats that they are. Arrow's own cast takes the range in which a float has each; larger ones are
    floats too that have few enough digits in binary, without the zeros behind them.
    """
    with suppress(pa.ArrowInvalid):
        return array.cast(expected)
    numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
    lowest = (numbers & np.negative(numbers)) | (numbers == 0)  # the last digit that is 1
    lost = np.abs(numbers // lowest) > _INTEGERS_UNTIL[expected.bit_width]
    _refuse(pa.array(lost), array, f"is no {expected}: it would be rounded")
    return array.cast(expected, safe=False)


def _nearest_floats(array: pa.Array, expected: pa.DataType) -> pa.Array:
    """Decimals as the nearest floats: where few digits allow it by one division, otherwise by their texts."""
    scale = array.type.scale
    for places in dict.fromkeys((min(scale, _USUAL_PLACES), scale)):
        if 0 <= places <= _EXACT_POWERS[expected.bit_width]:
            with suppress(pa.ArrowInvalid):  # digits would go, or an integer is too long to be exact
                _divided(array[:_TRIED], places, expected)  # since each row that fails costs a text
                return _divided(array, places, expected)
    if abs(scale) > 38:  # which Arrow has a text for in its widest decimals only
        array = array.cast(pa.decimal256(_DIGITS_MAX, scale))
    return array.cast(pa.string()).cast(expected)


def _divided(array: pa.Array, places: int, expected: pa.DataType) -> pa.Array:
    units = _rescaled(array, pa.decimal128(38, places)).view(pa.decimal128(38, 0))
    return pc.divide(units.cast(pa.int64()).cast(expected), pa.scalar(10.0**places, expected))


def _decimals_of_floats(array: pa.Array, expected: pa.DataType) -> pa.Array:
    """Floats as the decimals that their shortest texts are; of few digits these are found by numbers alone."""
    units = _units_of_doubles(array, expected.scale) if is_type.is_float64(array.type) else None
    if units is not None:
        return _rescaled(units, expected)
    # What is larger, or has digits further behind, Arrow would rescale past its powers of ten.
    scale, size = expected.scale, pc.abs(array)
    if abs(scale) > _DIGITS_MAX:
        raise pa.ArrowInvalid(f"its scale is more than {_DIGITS_MAX}")
    zero = pc.equal(size, pa.scalar(0.0, array.type))
    fits = pc.or_(zero, pc.less(size, _power_of_ten(expected.precision - scale, array.type)))
    _refuse(pc.invert(fits), array, f"has no place in {expected.precision} digits")
    lost = pc.and_not(pc.less(size, _power_of_ten(-scale, array.type)), zero)
    _refuse(lost, array, "has digits that it has no place for")
    middle = pa.decimal256(_DIGITS_MAX, max(scale, 0))
    direct = is_type.is_decimal128(expected) and 0 <= scale <= 38
    texts = array.cast(pa.string())
    return texts.cast(expected) if direct else _rescaled(texts.cast(middle), expected)


def _units_of_doubles(array: pa.Array, scale: int) -> pa.Array | None:
    """Doubles as decimals with as many digits behind the point as all may have, up to ``scale``; None where one has
    more digits than can be told apart. Of fewer there is one decimal at most whose nearest double a number is, and that
    is its shortest text.
    """
    numbers = array.to_numpy(zero_copy_only=False)
    present = array.is_valid().to_numpy(zero_copy_only=False)
    with np.errstate(all="ignore"):
        largest = np.abs(numbers).max(initial=1.0, where=present)
        if scale < 0 or not largest < _DISTINCT:
            return None
        places = min(scale, _EXACT_POWERS[64], 15 - len(str(int(largest))))
        units = np.rint(numbers * 10.0**places)
        exact = (np.abs(units) < _DISTINCT) & (units / 10.0**places == numbers)
    if not exact[present].all():
        return None
    integers = pa.array(np.where(present, units, 0).astype(np.int64), mask=~present)
    return integers.cast(pa.decimal128(38, 0)).view(pa.decimal128(38, places))


def _power_of_ten(exponent: int, type: pa.DataType) -> pa.Scalar:
    """The nearest float, whose shortest text it is; so what is less has a text that is less."""
    return pa.array([f"1e{exponent}"]).cast(type)[0]


def _refuse(wrong: pa.Array, array: pa.Array, reason: str) -> None:
    row = pc.index(wrong, True).as_py()
    if row >= 0:
        raise pa.ArrowInvalid(f"{array[row].as_py()!r} at position {row} {reason}")
