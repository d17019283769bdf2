"""What a test writes down for schemas and rows, as the Arrow that a processor gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from holdfast.errors import InvalidRequest
from holdfast.spark import schemas
from holdfast.spark.ddl import parse_ddl
from holdfast.state.arrays import to_array
from holdfast.state.casts import storage_type
from holdfast.state.python_values import from_python

# A list of dicts, a record batch, a table or a pandas frame.
Rows = Any


def schema_of(given: Any, what: str) -> pa.Schema:
    """The Arrow schema of a pyarrow.Schema, a StructType, or text as Spark reads it, but without Spark.

    Raises
    ------
    InvalidRequest
        None of these, or a type that Spark's rows do not have.
    """
    if isinstance(given, pa.Schema):
        return given
    if isinstance(given, str):
        given = parse_ddl(given, what)
    return schemas.arrow_schema(schemas.parse_schema(given, what), what)


def input_batches(rows: Sequence[Rows], schema: pa.Schema) -> tuple[pa.RecordBatch, ...]:
    """Record batches of the schema, one or several for each argument.

    Raises
    ------
    InvalidRequest
        Rows that are none, with other columns, or with a value that does not fit its column.
    """
    found: list[pa.RecordBatch] = []
    for part in rows:
        if isinstance(part, pa.RecordBatch):
            found.append(schemas.conform(part, schema, "rows"))
        elif isinstance(part, pa.Table):
            alike = [schemas.conform(batch, schema, "rows") for batch in part.to_batches()]
            found += pa.Table.from_batches(alike, schema).combine_chunks().to_batches()
        elif hasattr(part, "to_dict") and hasattr(part, "columns"):
            found.append(_batch_of_frame(part, schema))
        elif isinstance(part, (list, tuple)) and all(isinstance(row, Mapping) for row in part):
            found.append(_batch_of(part, schema))
        else:
            raise InvalidRequest(f"rows: expected a list of dicts, a record batch, a table or a frame, found {part!r}")
    return tuple(found)


def _batch_of_frame(frame: Any, schema: pa.Schema) -> pa.RecordBatch:
    """In which NaN is null, as it is to a query that is given the frame."""
    names = list(frame.columns)
    if sorted(map(str, names)) != sorted(schema.names):
        raise InvalidRequest(
            f"rows: expected the columns {', '.join(schema.names)}, found {', '.join(map(str, names)) or 'none'}"
        )
    columns = [to_array(frame[field.name], storage_type(field.type), f"column {field.name!r}") for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _batch_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    for row in rows:
        if set(row) != set(schema.names):
            raise InvalidRequest(f"rows: expected the columns {', '.join(schema.names)}, found {', '.join(row)}")
    columns = [from_python([row[field.name] for row in rows], field.type, f"column {field.name!r}") for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
