"""Which columns of a row make up its Kafka record, and the records themselves. Knows neither Kafka nor Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InvalidRequest
from holdfast.sink.kafka.json_text import check_type, check_utf8, json_objects, json_texts

VALUE_FORMATS = ("json", "bytes", "string")
#: Header of a record in the mode at-least-once, the same in a replay:
#: ``<query id>:<sink>:<batch>:<partition>:<index>``. The sink's own name: a row brings none of it.
DEDUP_HEADER = "holdfast-dedup"
_NO_HEADER = {"key": None, "value": None}
_PARTITION_MAX = 2**31 - 1
ROWS_AT_ONCE = 10_000  # become Python objects at once: more would take memory and save no time


@dataclass(frozen=True)
class Columns:
    """The columns that a sink was told to take. None: not given."""

    key: str | None
    value: str | tuple[str, ...]
    headers: str | None
    topic: str | None
    partition: str | None


@dataclass(frozen=True)
class Records:
    """A run of records, column by column, as Python objects; ``None`` where all are alike or there are none."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    headers: Sequence[list[tuple[str, bytes | None]] | None] | None
    topics: Sequence[str] | None
    partitions: Sequence[int] | None
    size_bytes: int

    def __len__(self) -> int:
        return len(self.values)


class Layout:
    """How rows of one schema become records.

    Parameters
    ----------
    columns
        Which columns to take.
    value_format
        ``json``, ``bytes``, ``string``, or None: as the value's type says.

    Raises
    ------
    InvalidRequest
        A column is missing or has a type that does not fit.
    """

    def __init__(self, columns: Columns, value_format: str | None, schema: pa.Schema) -> None:
        self._columns = columns
        self._schema = schema
        self._value_names = self._resolve_value()
        self._format = value_format or self._natural_format()
        self._check()

    def records(self, batch: pa.RecordBatch) -> Iterator[Records]:
        """The records of a batch, in its order, some thousand at a time."""
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            yield self._records(batch.slice(start, ROWS_AT_ONCE))

    def _records(self, batch: pa.RecordBatch) -> Records:
        columns = self._columns
        values = self._values(batch)
        keys = _key_bytes(batch.column(columns.key), columns.key) if columns.key is not None else None
        size_bytes = sum(pc.sum(pc.binary_length(part)).as_py() or 0 for part in (values, keys) if part is not None)
        return Records(
            values=_objects(values),
            keys=_objects(keys) if keys is not None else None,
            headers=_headers(batch.column(columns.headers), columns.headers) if columns.headers is not None else None,
            topics=self._topics(batch),
            partitions=self._partitions(batch),
            size_bytes=size_bytes,
        )

    def _values(self, batch: pa.RecordBatch) -> pa.Array:
        columns = [batch.column(name) for name in self._value_names]
        if self._format != "json":
            return columns[0].cast(pa.large_binary())
        if isinstance(self._columns.value, str) and self._columns.value != "*":
            # A null row of the one column is a record without a value (a tombstone), not the text "null".
            column = columns[0]
            text = json_texts(column, self._value_names[0])
            if column.null_count:
                text = pc.if_else(column.is_valid(), text, pa.scalar(None, text.type))
        else:
            text = json_objects(list(self._value_names), columns)
        return text.cast(pa.large_binary())

    def _topics(self, batch: pa.RecordBatch) -> Sequence[str] | None:
        if self._columns.topic is None:
            return None
        column = batch.column(self._columns.topic)
        if column.null_count or pc.any(pc.equal(column, ""), min_count=0).as_py():
            raise InvalidRequest(
                f"Column {self._columns.topic!r} names the topic of each record, and it is null or empty in some row."
                " Fill it, or filter such rows"
            )
        check_utf8(column, self._columns.topic)
        return list(column.to_pylist())

    def _partitions(self, batch: pa.RecordBatch) -> Sequence[int] | None:
        if self._columns.partition is None:
            return None
        column = batch.column(self._columns.partition)
        found = pc.min_max(column).as_py()
        least, most = found["min"] or 0, found["max"] or 0  # None: all are null
        if least < 0 or most > _PARTITION_MAX:
            what = "negative" if least < 0 else f"{most}, more than Kafka's {_PARTITION_MAX},"
            raise InvalidRequest(
                f"Column {self._columns.partition!r} names the partition of each record, and it is {what} in some"
                " row. Null leaves the choice to the partitioner"
            )
        return list(pc.fill_null(column.cast(pa.int32()), -1).to_pylist())

    def _resolve_value(self) -> tuple[str, ...]:
        columns = self._columns
        if columns.value != "*":
            return (columns.value,) if isinstance(columns.value, str) else columns.value
        taken = {columns.key, columns.headers, columns.topic, columns.partition}
        names = tuple(name for name in self._schema.names if name not in taken)
        if not names:
            raise InvalidRequest("value='*' takes all columns that are nothing else, and there are none")
        return names

    def _natural_format(self) -> str:
        if self._columns.value == "*" or not isinstance(self._columns.value, str):
            return "json"
        kind = self._kind(self._value_names[0], "value")
        return "bytes" if _is_bytes(kind) else "string" if _is_text(kind) else "json"

    def _check(self) -> None:
        columns = self._columns
        if self._format == "json":
            for name in self._value_names:
                check_type(self._kind(name, "value"), name)
        elif len(self._value_names) != 1:
            raise InvalidRequest(f"value_format={self._format!r} takes one column, found {list(self._value_names)}")
        else:
            self._expect(self._value_names[0], "value", _is_text if self._format == "string" else _is_bytes)
        if columns.key is not None:
            check_type(self._kind(columns.key, "key"), columns.key)
        if columns.topic is not None:
            self._expect(columns.topic, "topic_column", _is_text)
        if columns.partition is not None:
            self._expect(columns.partition, "partition_column", pa.types.is_integer)
        if columns.headers is not None:
            self._expect(columns.headers, "headers", _is_headers)

    def _expect(self, name: str, what: str, fits: Any) -> None:
        kind = self._kind(name, what)
        if not fits(kind):
            raise InvalidRequest(f"{what}={name!r}: expected {_EXPECTED[fits]}, found {kind}")

    def _kind(self, name: str, what: str) -> pa.DataType:
        found = self._schema.get_all_field_indices(name)
        if len(found) != 1:
            hint = " Pass key=None for records without keys." if what == "key" and not found else ""
            raise InvalidRequest(
                f"KafkaSink({what}={name!r}): expected one column of this name, found {len(found)}."
                f" There are {', '.join(self._schema.names)}.{hint}"
            )
        return self._schema.field(found[0]).type


def _objects(column: pa.Array) -> Sequence[Any]:
    return list(column.to_numpy(zero_copy_only=False).tolist())


def _key_bytes(column: pa.Array, name: str) -> pa.Array:
    """Binary and text as they are; anything else as JSON. Null stays null: no key."""
    if _is_bytes(column.type) or _is_text(column.type):
        return column.cast(pa.large_binary())
    text = json_texts(column, name)
    if column.null_count:
        text = pc.if_else(column.is_valid(), text, pa.scalar(None, text.type))
    return text.cast(pa.large_binary())


def _headers(column: pa.Array, name: str) -> list[list[tuple[str, bytes | None]] | None]:
    """A row's headers in their order; they are few, so they go through Python.

    What another sink told its repeats by, and came with the input, is left out: of two marks a reader may go by the
    other sink's, and of that alone in any mode, and drops rows that were never shown.
    """

    def pair(header: Any) -> tuple[str, bytes | None]:
        key, value = header if isinstance(header, tuple) else tuple((header or _NO_HEADER).values())
        if key is None:  # which the client would write as a header of the name "None"
            raise InvalidRequest(
                f"Column {name!r} has headers, and one of them is null, or has no name, in some row. Leave it out of"
                " the array, or filter such rows"
            )
        return key, value.encode() if isinstance(value, str) else value

    check_utf8(column, name)
    rows = ([pair(header) for header in row or ()] for row in column.to_pylist())
    return [[header for header in row if header[0] != DEDUP_HEADER] or None for row in rows]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _is_headers(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _is_text(kind.key_type) and (_is_bytes(kind.item_type) or _is_text(kind.item_type))
    if not (pa.types.is_list(kind) and pa.types.is_struct(kind.value_type) and kind.value_type.num_fields == 2):
        return False
    first, second = kind.value_type.field(0), kind.value_type.field(1)
    if (first.name, second.name) == ("value", "key"):
        return False  # they are taken by their places
    return _is_text(first.type) and (_is_bytes(second.type) or _is_text(second.type))


_EXPECTED = {
    _is_text: "string",
    _is_bytes: "binary",
    _is_headers: "array<struct<key string, value binary>> or map<string, binary>",
    pa.types.is_integer: "a whole number",
}
