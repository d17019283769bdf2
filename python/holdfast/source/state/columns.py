"""A state's columns as Spark has them: what Spark has no type for becomes the next wider one, or is refused by name."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from holdfast.errors import InvalidRequest

_SIMPLE: dict[pa.DataType, tuple[pa.DataType, spark.DataType]] = {
    pa.null(): (pa.null(), spark.NullType()),
    pa.bool_(): (pa.bool_(), spark.BooleanType()),
    pa.int8(): (pa.int8(), spark.ByteType()),
    pa.int16(): (pa.int16(), spark.ShortType()),
    pa.int32(): (pa.int32(), spark.IntegerType()),
    pa.int64(): (pa.int64(), spark.LongType()),
    pa.uint8(): (pa.int16(), spark.ShortType()),
    pa.uint16(): (pa.int32(), spark.IntegerType()),
    pa.uint32(): (pa.int64(), spark.LongType()),
    pa.float32(): (pa.float32(), spark.FloatType()),
    pa.float64(): (pa.float64(), spark.DoubleType()),
    pa.string(): (pa.string(), spark.StringType()),
    pa.large_string(): (pa.string(), spark.StringType()),
    pa.binary(): (pa.binary(), spark.BinaryType()),
    pa.large_binary(): (pa.binary(), spark.BinaryType()),
    pa.date32(): (pa.date32(), spark.DateType()),
}
#: Spark's times are microseconds.
_TIME_MAX_MS = ((1 << 63) - 1) // 1000


def table_schema(schema: pa.Schema) -> tuple[pa.Schema, spark.StructType]:
    """The columns in which rows go to Spark, in Arrow's words and in Spark's.

    Raises
    ------
    InvalidRequest
        A column has a type that Spark has not; names it.
    """
    both = [(field, *_types(field.type, field.name)) for field in schema]
    return (
        pa.schema([pa.field(field.name, arrow) for field, arrow, _ in both]),
        spark.StructType([spark.StructField(field.name, found) for field, _, found in both]),
    )


def as_spark_has_it(rows: pa.RecordBatch, schema: pa.Schema, expiry: str | None) -> pa.RecordBatch:
    """Rows in the columns of :func:`table_schema`.

    Parameters
    ----------
    expiry
        The column that says when a row goes: null where that is later than any time that Spark has.

    Raises
    ------
    InvalidRequest
        A column has a value that does not fit into Spark's type; names it.
    """
    columns = []
    for field, column in zip(schema, rows.columns):
        if field.name == expiry:
            in_reach = pc.less_equal(column.cast(pa.int64()), pa.scalar(_TIME_MAX_MS))
            column = pc.if_else(in_reach, column, None)
        try:
            columns.append(column.cast(field.type))
        except pa.ArrowException as error:
            raise InvalidRequest(
                f"column {field.name!r} has a value of type {column.type} that Spark has no room for ({error}): leave "
                "it out with the option columns, or read the state with hf.Checkpoint"
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _types(kind: pa.DataType, column: str) -> tuple[pa.DataType, spark.DataType]:
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        zoned = kind.tz is not None
        return pa.timestamp(
            "us", "UTC" if zoned else None
        ), spark.TimestampType() if zoned else spark.TimestampNTZType()
    if pa.types.is_decimal128(kind) and kind.scale >= 0:
        return kind, spark.DecimalType(kind.precision, kind.scale)
    if pa.types.is_struct(kind):
        parts = [(field, *_types(field.type, f"{column}.{field.name}")) for field in kind]
        fields = [spark.StructField(field.name, found) for field, _, found in parts]
        return pa.struct([pa.field(field.name, arrow) for field, arrow, _ in parts]), spark.StructType(fields)
    if pa.types.is_map(kind):
        (key, spark_key), (item, spark_item) = _types(kind.key_type, column), _types(kind.item_type, column)
        return pa.map_(key, item), spark.MapType(spark_key, spark_item)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element, found = _types(kind.value_type, column)
        return pa.list_(element), spark.ArrayType(found)
    raise InvalidRequest(
        f"column {column!r} is of type {kind}, which Spark has not: leave it out with the option columns, "
        "or read the state with hf.Checkpoint"
    )
