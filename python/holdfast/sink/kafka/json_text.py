"""Arrow columns as JSON, a column at a time.

Text of a row is joined from the texts of its columns, by Arrow's own kernels; no Python object is made for a value.

As Spark's ``to_json`` writes it, but nulls are written: integers and decimals as numbers, doubles in the fewest digits
that read back as the same, NaN and the infinities as strings, binary as base64, dates and times in ISO 8601, times
with a zone in UTC with a ``Z``, structs and maps as objects, lists as arrays. A key of a map that is no text is its
JSON in a string.
"""

from __future__ import annotations

import base64

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InvalidRequest

_TO_ESCAPE = r'["\\\x00-\x1f]'
# Arrow writes a year as 16 bits: others wrap, become words, or an error without the column. Days from 1970.
_FIRST_DAY, _LAST_DAY = -12_687_428, 11_248_737
_TICKS_A_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_ESCAPES = {
    "\\": "\\\\",
    '"': '\\"',
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\b": "\\b",
    "\f": "\\f",
}


def json_objects(names: list[str], columns: list[pa.Array]) -> pa.Array:
    """One object a row: ``{"name": value, …}``, as strings.

    Raises
    ------
    InvalidRequest
        A column has a type that JSON has no form for, text that is not UTF-8, or a time that Arrow has no text for.
    """
    parts: list[pa.Array | pa.Scalar] = []
    for number, (name, column) in enumerate(zip(names, columns)):
        lead = "{" if number == 0 else ","
        parts += [_text(lead + json_string(name) + ":"), json_texts(column, name)]
    return _joined(parts, "}") if parts else pa.nulls(0, pa.large_string())


def json_texts(column: pa.Array, name: str) -> pa.Array:
    """The JSON text of each value, ``null`` for null."""
    return pc.fill_null(_texts(column, name), _text("null"))


def json_string(text: str) -> str:
    """A JSON string of one text."""
    return '"' + "".join(_ESCAPES.get(char) or (char if char >= " " else f"\\u{ord(char):04x}") for char in text) + '"'


def check_type(kind: pa.DataType, name: str) -> None:
    """Refuses a type that has no JSON form."""
    json_texts(pa.nulls(0, kind), name)


def check_utf8(column: pa.Array, name: str) -> None:
    """Refuses a column of, or with, text that is not UTF-8: Spark's may be any bytes."""
    try:
        column.validate(full=True)
    except pa.ArrowException as error:
        raise InvalidRequest(
            f"Column {name!r} has text that is not UTF-8 ({error}), as JSON is, and names are in Kafka: cast it to"
            " binary, or keep such rows out before (is_valid_utf8, since Spark 4.0)"
        ) from None


def _texts(column: pa.Array, name: str) -> pa.Array:
    """JSON texts, null for null."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _texts(column.dictionary_decode(), name)
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.large_string())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        check_utf8(column, name)
        return _quoted(_escaped(column.cast(pa.large_string())))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.large_string())
    if pa.types.is_floating(kind):
        return _floats(column)
    if pa.types.is_time(kind):
        return _quoted(column.cast(pa.large_string()))
    if pa.types.is_date(kind):
        _check_years(column, name)
        return _quoted(column.cast(pa.large_string()))
    if pa.types.is_timestamp(kind):
        _check_years(column, name)
        return _quoted(_timestamps(column))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _quoted(_base64(column))
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        if not fields:
            return _where_valid(column, pa.array(["{}"] * len(column), pa.large_string()))
        objects = json_objects([field.name for field in fields], column.flatten())
        return _where_valid(column, objects)
    if pa.types.is_map(kind):
        return _maps(column, name)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(column, json_texts(_items(column), name), "[", "]")
    raise InvalidRequest(
        f"Column {name!r} is {kind}, which has no JSON form: cast it to a string, a number or a timestamp, or use"
        " value_format='bytes' with a column of your own making"
    )


def _escaped(text: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(text, _TO_ESCAPE), min_count=0).as_py():
        return text
    for char, escape in _ESCAPES.items():
        text = pc.replace_substring(text, char, escape)
    if pc.any(pc.match_substring_regex(text, r"[\x00-\x1f]"), min_count=0).as_py():
        for code in range(0x20):
            text = pc.replace_substring(text, chr(code), f"\\u{code:04x}")
    return text


def _floats(column: pa.Array) -> pa.Array:
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    text = column.cast(pa.large_string())
    if pc.all(pc.is_finite(column), min_count=0).as_py():
        return text
    names = {"nan": '"NaN"', "-nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}
    odd = pc.index_in(text, value_set=pa.array(list(names), pa.large_string()))
    return pc.if_else(pc.is_valid(odd), pa.array(list(names.values()), pa.large_string()).take(odd), text)


def _check_years(column: pa.Array, name: str) -> None:
    kind = column.type
    a_day = 1 if pa.types.is_date32(kind) else _TICKS_A_DAY["ms" if pa.types.is_date64(kind) else kind.unit]
    found = pc.min_max(column.view(pa.int32() if pa.types.is_date32(kind) else pa.int64())).as_py()
    for tick in (found["min"], found["max"]):
        if tick is not None and not _FIRST_DAY <= tick // a_day <= _LAST_DAY:
            raise InvalidRequest(
                f"Column {name!r} is {kind}, and {tick} since 1970 in some row: expected years from -32767 to 32767,"
                " others have no text. Filter such rows, or cast it to a number"
            )


def _timestamps(column: pa.Array) -> pa.Array:
    zone = column.type.tz
    if zone is not None and zone != "UTC":
        # Arrow keeps UTC inside whatever the zone; text in UTC needs no data base of time zones.
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    text = column.cast(pa.large_string())
    return pc.replace_substring(text, " ", "T", max_replacements=1)


def _base64(column: pa.Array) -> pa.Array:
    encoded = [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
    return pa.array(encoded, pa.large_string())


def _maps(column: pa.Array, name: str) -> pa.Array:
    items = _items(column)
    keys, values = items.field(0), items.field(1)
    is_text = pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type)
    keys = _texts(keys, name)
    if not is_text:
        keys = pc.if_else(pc.starts_with(keys, '"'), keys, _quoted(_escaped(keys)))
    return _lists(column, _joined([keys, _text(":"), json_texts(values, name)]), "{", "}")


def _items(column: pa.Array) -> pa.Array:
    """The elements of a list or map column that its rows refer to; ``flatten`` leaves those of null rows out."""
    if pa.types.is_map(column.type):
        column = column.cast(pa.list_(column.type.field(0)))
    return column.flatten()


def _lists(column: pa.Array, items: pa.Array, lead: str, end: str) -> pa.Array:
    """Texts of lists: the items' texts with commas, between ``lead`` and ``end``."""
    lengths = pc.fill_null(pc.list_value_length(_as_list(column)), 0).cast(pa.int32())
    first = pa.array([0], pa.int32())
    offsets = pa.concat_arrays([first, pc.cumulative_sum(lengths)]) if len(column) else first
    # binary_join knows lists and strings with 32-bit offsets only.
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, items.cast(pa.string())), ",")
    return _where_valid(column, _joined([_text(lead), joined.cast(pa.large_string())], end))


def _as_list(column: pa.Array) -> pa.Array:
    return column.cast(pa.list_(column.type.field(0))) if pa.types.is_map(column.type) else column


def _where_valid(column: pa.Array, text: pa.Array) -> pa.Array:
    if not column.null_count:
        return text
    return pc.if_else(column.is_valid(), text, pa.scalar(None, pa.large_string()))


def _quoted(text: pa.Array) -> pa.Array:
    return _joined([_text('"'), text.cast(pa.large_string())], '"')


def _joined(parts: list[pa.Array | pa.Scalar], end: str = "") -> pa.Array:
    tail = [_text(end)] if end else []
    return pc.binary_join_element_wise(*parts, *tail, _text(""))


def _text(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())
