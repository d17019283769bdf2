"""Spark types as the Arrow types in which their values travel and are stored.

Timestamps are always microseconds in UTC here, whatever the session's time zone: the zone is how Spark prints an
instant, not what it is, and a recorded key type must not change with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

from holdfast.arrow.arrays import by_parts
from holdfast.arrow.types import nullable_schema
from holdfast.errors import InvalidRequest

_Times = Callable[[spark.DataType], pa.DataType]
#: Where Spark notes a column's watermark, in the column's metadata.
WATERMARK_DELAY = "spark.watermarkDelayMs"

_SIMPLE: dict[str, pa.DataType] = {
    "void": pa.null(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def parse_schema(schema: str | spark.StructType, what: str) -> spark.StructType:
    """A struct type from itself or from DDL text (which needs a Spark session). Without a watermark that is noted in
    it, as in the schema of a DataFrame that has one: it is that of a stream, not of the rows that an operator gives.

    Raises
    ------
    InvalidRequest
        Not DDL, or a column name that stands twice.
    """
    if isinstance(schema, str):
        try:
            parsed = spark.StructType.fromDDL(schema)
        except Exception as error:
            raise InvalidRequest(
                f"{what}: {schema!r} is not a schema such as 'user string, total long': {error}"
            ) from error
    else:
        parsed = schema
    if not isinstance(parsed, spark.StructType) or not parsed.fields:
        raise InvalidRequest(
            f"{what}: expected columns, as 'user string, total long' or a StructType; found {schema!r}"
        )
    _refuse_twins(parsed.names, what)
    return without_watermarks(parsed)


def without_watermarks(schema: spark.StructType) -> spark.StructType:
    """The same columns, of which none, at any depth, says that it has a watermark."""
    return spark.StructType(
        [
            spark.StructField(f.name, _without_watermarks(f.dataType), f.nullable, _not_of_watermarks(f.metadata))
            for f in schema.fields
        ]
    )


def _without_watermarks(kind: spark.DataType) -> spark.DataType:
    if isinstance(kind, spark.StructType):
        return without_watermarks(kind)
    if isinstance(kind, spark.ArrayType):
        return spark.ArrayType(_without_watermarks(kind.elementType), kind.containsNull)
    if isinstance(kind, spark.MapType):
        inner = (_without_watermarks(kind.keyType), _without_watermarks(kind.valueType))
        return spark.MapType(*inner, kind.valueContainsNull)
    return kind


def _not_of_watermarks(metadata: dict[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (metadata or {}).items() if name != WATERMARK_DELAY}


def arrow_schema(schema: spark.StructType, what: str) -> pa.Schema:
    """The Arrow schema of a Spark schema.

    Raises
    ------
    InvalidRequest
        A type that has no place in Arrow batches or in state (variant, calendar interval, user-defined),
        with its column.
    """
    return _schema_of(schema, what, _spark_time)


def sink_schema(schema: spark.StructType, what: str) -> pa.Schema:
    """The same, as sinks get it: times of day are in microseconds, but for those that Spark keeps more exactly (7 to 9
    digits, since 4.3). Parquet files with times in nanoseconds are none to Spark 4.1 and 4.2, nor is their folder.

    Raises
    ------
    InvalidRequest
        As `arrow_schema`.
    """
    return _schema_of(schema, what, _file_time)


def conform(batch: pa.RecordBatch, schema: pa.Schema, what: str) -> pa.RecordBatch:
    """A batch as Spark hands it to Python, in the planned schema: Spark's differs in the time zone's name, in the unit
    of times of day, or in large types where a setting asks for them.

    Raises
    ------
    InvalidRequest
        Other columns than planned.
    """
    if batch.schema.equals(schema):
        return batch
    if batch.schema.names != schema.names:
        raise InvalidRequest(f"{what}: the columns are {batch.schema.names}, planned were {schema.names}")
    arrays = [
        column if column.type == field.type else by_parts(column, field.type, _cast)
        for column, field in zip(batch.columns, schema)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def key_columns(key: str | Sequence[str], schema: pa.Schema, operator: str) -> tuple[str, ...]:
    """The key columns, checked against the input.

    Raises
    ------
    InvalidRequest
        No key, one named twice, not a column of the input, or of a type that has no order-preserving encoding.
    """
    names = (key,) if isinstance(key, str) else tuple(key)
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidRequest(f"operator {operator!r}: key must be a column name or a list of them; found {key!r}")
    _refuse_twins(names, f"operator {operator!r}, key")
    for name in names:
        if name not in schema.names:
            raise InvalidRequest(
                f"operator {operator!r}: key column {name!r} is not in the input, which has {', '.join(schema.names)}"
            )
        refused = _not_a_key(schema.field(name).type)
        if refused is not None:
            raise InvalidRequest(
                f"operator {operator!r}: key column {name!r} has or holds type {refused}, which cannot be a key; "
                "integers, float, double, boolean, string, binary, date, timestamp, decimal and structs of these can"
            )
    return names


def refuse_collations(keys: Sequence[str], schema: spark.StructType, operator: str) -> None:
    """Keys are compared by their bytes.

    Raises
    ------
    InvalidRequest
        A key column has or holds text of another collation than Spark's UTF8_BINARY.
    """
    for name in keys:
        collated = _collated(schema[name].dataType)
        if collated is not None:
            raise InvalidRequest(
                f"operator {operator!r}: key column {name!r} has or holds type {collated}, by which texts of other "
                "bytes are the same key to Spark; here a key is its bytes: make a column of one text for each key, as "
                "by lower(), and cast it to string"
            )


def key_schema(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """The key columns as they are recorded. Whether Spark knows that a column, or a field in it, has no nulls depends
    on the rest of the plan, so the record does not."""
    return nullable_schema(pa.schema([schema.field(name) for name in columns]))


def _schema_of(schema: spark.StructType, what: str, times: _Times) -> pa.Schema:
    _refuse_twins(schema.names, what)
    return pa.schema(
        [
            pa.field(f.name, _arrow_type(f.dataType, f"{what}, column {f.name!r}", times), f.nullable)
            for f in schema.fields
        ]
    )


def _spark_time(_: spark.DataType) -> pa.DataType:
    """How Spark sends a time of day, whatever the precision."""
    return pa.time64("ns")


def _file_time(kind: Any) -> pa.DataType:
    return pa.time64("us" if kind.precision <= 6 else "ns")


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    # A processor may have given a time of day in more digits than the column has: they are cut, as Spark cuts them.
    return array.cast(kind, safe=not pa.types.is_time(kind))


def _arrow_type(kind: spark.DataType, where: str, times: _Times) -> pa.DataType:
    name = kind.simpleString()
    if name in _SIMPLE:
        return _SIMPLE[name]
    if isinstance(kind, spark.StringType):  # before Spark 4.0 varchar and char; since then also collations
        return pa.string()
    if isinstance(kind, getattr(spark, "TimeType", ())):  # since Spark 4.1
        return times(kind)
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark.DayTimeIntervalType):
        return pa.duration("us")
    if isinstance(kind, spark.ArrayType):
        return pa.list_(pa.field("element", _arrow_type(kind.elementType, where, times), kind.containsNull))
    if isinstance(kind, spark.MapType):
        return pa.map_(
            pa.field("key", _arrow_type(kind.keyType, where, times), False),
            pa.field("value", _arrow_type(kind.valueType, where, times), kind.valueContainsNull),
        )
    if isinstance(kind, spark.StructType) and not isinstance(kind, spark.UserDefinedType):
        _refuse_twins(kind.names, where)
        return pa.struct(
            [pa.field(f.name, _arrow_type(f.dataType, f"{where}.{f.name}", times), f.nullable) for f in kind.fields]
        )
    raise InvalidRequest(f"{where}: type {name} is not supported; cast it to another before hf.keyed")


def _not_a_key(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_struct(kind):
        return next(
            (found for f in kind for found in [_not_a_key(f.type)] if found is not None),
            None if kind.num_fields else kind,
        )
    allowed = (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal(kind)
    )
    return None if allowed else kind


def _collated(kind: spark.DataType) -> str | None:
    if isinstance(kind, spark.StructType):
        return next((found for f in kind for found in [_collated(f.dataType)] if found is not None), None)
    name = kind.simpleString()  # before Spark 4.0 there are none; "string" alone is of the collation UTF8_BINARY
    return name if isinstance(kind, spark.StringType) and " collate " in name else None


def _refuse_twins(names: Sequence[str], what: str) -> None:
    twins = sorted({name for name in names if list(names).count(name) > 1})
    if twins:
        raise InvalidRequest(f"{what}: {', '.join(map(repr, twins))} stands more than once; rename one")
