"""Which keys a filter on rows can be true for: what lets a reader look keys up instead of reading a whole state.

The filter is applied all the same, so what is found here may be too much, never too little. What is not recognised is
None: every key. Pure functions.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_is = pa.types
#: Of a type of a key column, the class of Python's that a literal of it is, and no other that would compare equal.
_CLASSES = (
    (_is.is_integer, int),
    (_is.is_string, str),
    (_is.is_large_string, str),
    (_is.is_binary, bytes),
    (_is.is_large_binary, bytes),
    (_is.is_fixed_size_binary, bytes),
    (_is.is_boolean, bool),
    (_is.is_date32, date),
    (_is.is_decimal128, Decimal),
    (_is.is_timestamp, datetime),
)
#: What the parts of an expression are called in Arrow's bytes of it, of those that are understood here.
_PLAIN = frozenset({b"call", b"field_ref", b"literal", b"options", b"end"})


def keys_of(wanted: pc.Expression | None, schema: pa.Schema) -> pa.StructArray | None:
    """The keys, at most, of rows for which a filter is true; None: it may be any.

    Found are filters that say of each key column what it equals, alone or together with others by ``&``, and an
    ``isin`` of the only key column.

    Parameters
    ----------
    schema
        The key columns.
    """
    if wanted is None or not len(schema):
        return None
    parts = _parts(wanted)
    if parts is None:
        return None
    columns = _one_of(wanted, parts, schema[0]) if len(schema) == 1 else None
    if columns is None:
        columns = _equal(wanted, schema)
    if columns is None:
        return None
    return pa.StructArray.from_arrays(columns, fields=list(schema))


def _parts(wanted: pc.Expression) -> pa.RecordBatch | None:
    """What an expression consists of, as Arrow writes it; None where it has other parts than calls, literals and plain
    names of columns: of a field within a column, or of a column by its place, Arrow's search for what must be equal
    ends the process.
    """
    try:
        parts = pa.ipc.open_file(wanted.__reduce__()[1][0]).get_batch(0)
    except (pa.ArrowException, AttributeError, IndexError, TypeError, ValueError):
        return None
    kinds = parts.schema.metadata
    return parts if kinds and _PLAIN.issuperset(kinds) else None


def _equal(wanted: pc.Expression, schema: pa.Schema) -> list[pa.Array] | None:
    """A single key, by what every row for which the filter is true must have in the key columns."""
    from pyarrow.dataset import get_partition_keys  # loads much, and only who filters needs it

    try:
        found: dict[str, Any] = get_partition_keys(wanted)
    except Exception:  # of literals that Python has no value for: years after 9999, time zones that it does not know
        return None
    columns = []
    for field in schema:
        expected = next((kind for is_it, kind in _CLASSES if is_it(field.type)), None)
        if type(found.get(field.name)) is not expected or expected is None:
            return None
        column = _cast([found[field.name]], field.type)
        if column is None:
            return None
        columns.append(column)
    return columns


def _one_of(wanted: pc.Expression, parts: pa.RecordBatch, field: pa.Field) -> list[pa.Array] | None:
    """The values of ``isin``. Arrow tells an expression's parts by its bytes alone, so what they seem to say is said
    anew, and compared: an Arrow that writes them otherwise costs a lookup its speed, no row.
    """
    if _is.is_floating(field.type):  # -0.0 is equal to 0.0, and another key
        return None
    try:
        values = parts.column(0).field("value_set").flatten()
    except (pa.ArrowException, AttributeError, IndexError, KeyError, TypeError):
        return None
    same = wanted.equals(pc.field(field.name).isin(values))
    alike = values.type == field.type or (_is.is_integer(values.type) and _is.is_integer(field.type))
    found = _cast(values.drop_null(), field.type) if same and alike else None
    return None if found is None or values.null_count else [found.unique()]


def _cast(values: Any, kind: pa.DataType) -> pa.Array | None:
    try:
        return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)
    except (pa.ArrowException, ValueError, OverflowError):
        return None
