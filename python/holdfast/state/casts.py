"""From the arrays that a user hands over to Arrow arrays of the declared type: exactly, or not at all.

Casts stay within a family (numbers, text, bytes, times, nested alike): text is never parsed into numbers, and what does
not fit is never cut. Floats and decimals alone are rounded, where they become floats, to the nearest of their width, as
the type means it; a decimal of a float is what its shortest text says.
What cannot be cast raises InvalidRequest that names what was expected and what was found.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as is_type

from holdfast.arrow.arrays import by_parts
from holdfast.arrow.exact_casts import exact_cast
from holdfast.arrow.types import is_list
from holdfast.errors import InvalidRequest

# What Arrow, numpy and Python raise for a value that is none of the type that was asked for. Not all of Arrow's errors:
# memory that is refused is no value's fault. The others of Arrow are also of Python's classes here.
CONVERSION_ERRORS = (
    pa.ArrowNotImplementedError,
    pa.ArrowCapacityError,
    ArithmeticError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
)


def storage_type(type: pa.DataType) -> pa.DataType:
    """The type as the core gives it back: of dictionaries their values, of views the plain form, of extensions what
    they are stored as.
    """
    if isinstance(type, pa.BaseExtensionType):
        return storage_type(type.storage_type)
    if is_type.is_dictionary(type):
        return storage_type(type.value_type)
    if is_type.is_string_view(type):
        return pa.string()
    if is_type.is_binary_view(type):
        return pa.binary()
    if is_type.is_struct(type):
        return pa.struct([field.with_type(storage_type(field.type)) for field in type])
    if is_type.is_map(type):
        item = type.item_field
        return pa.map_(storage_type(type.key_type), item.with_type(storage_type(item.type)))
    if is_type.is_fixed_size_list(type):
        return pa.list_(_plain_field(type.value_field), type.list_size)
    if is_type.is_large_list(type) or is_type.is_large_list_view(type):
        return pa.large_list(_plain_field(type.value_field))
    return pa.list_(_plain_field(type.value_field)) if is_list(type) else type


def castable(found: pa.DataType, expected: pa.DataType) -> bool:
    """Whether a value of ``found`` means the same as ``expected``; single values may still not fit. An extension type
    is found where it is expected only; what it is stored as means the same.
    """
    if found.equals(expected) or is_type.is_null(found):
        return True
    if isinstance(expected, pa.BaseExtensionType):
        return castable(found, expected.storage_type)
    if is_type.is_dictionary(expected):
        return castable(found, expected.value_type)
    if is_type.is_dictionary(found) or is_type.is_run_end_encoded(found):
        return castable(found.value_type, expected)
    if is_type.is_struct(found) and is_type.is_struct(expected):
        names = [field.name for field in found]
        return sorted(names) == sorted(field.name for field in expected) and all(
            castable(found.field(field.name).type, field.type) for field in expected
        )
    if is_list(found) and is_list(expected):
        return castable(found.value_type, expected.value_type)
    if is_type.is_map(found) and is_type.is_map(expected):
        return castable(found.key_type, expected.key_type) and castable(found.item_type, expected.item_type)
    if is_type.is_date(found) and is_type.is_timestamp(expected):
        return True
    return any(family(found) and family(expected) for family in _FAMILIES)


def cast(array: pa.Array, expected: pa.DataType, what: str, declared: pa.DataType | None = None) -> pa.Array:
    """``array`` as ``expected``, which is its own :func:`storage_type`, and that of what was ``declared``.

    Raises
    ------
    InvalidRequest
        Another family of types, or a value that does not fit. ``what`` begins the message.
    """
    if array.type.equals(expected):
        return array
    if not castable(array.type, expected if declared is None else declared):
        raise InvalidRequest(f"{what}: expected {expected}, found {array.type}; cast it where it is made")
    try:
        return by_parts(array, expected, exact_cast)
    except CONVERSION_ERRORS as error:
        raise InvalidRequest(f"{what}: found {array.type}, which does not fit {expected}: {error}") from None


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(storage_type(field.type))


def _is_number(type: pa.DataType) -> bool:
    return bool(is_type.is_integer(type) or is_type.is_floating(type) or is_type.is_decimal(type))


def _is_text(type: pa.DataType) -> bool:
    return bool(is_type.is_string(type) or is_type.is_large_string(type) or is_type.is_string_view(type))


def _is_bytes(type: pa.DataType) -> bool:
    return bool(
        is_type.is_binary(type)
        or is_type.is_large_binary(type)
        or is_type.is_fixed_size_binary(type)
        or is_type.is_binary_view(type)
    )


_FAMILIES = (
    _is_number,
    _is_text,
    _is_bytes,
    is_type.is_timestamp,
    is_type.is_date,
    is_type.is_time,
    is_type.is_duration,
)
