"""Side outputs on the driver: the schema of a DataFrame that has several outputs side by side, and `hf.select_output`,
which takes one of them out of it.

Each output is a struct column that is named after it; of a row's columns one is not null. They are marked, so that what
is asked of a DataFrame that has none of it is refused, and so is a sink that was meant for one output.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql import types as spark

from holdfast.arrow.types import nullable_schema
from holdfast.errors import InvalidRequest
from holdfast.spark import schemas
from holdfast.spark.inputs import InputFrame
from holdfast.state import MAIN, SideOutput

#: In the metadata of a column that holds an output: its name, and those of all that stood beside it.
_MARK = "holdfast.output"
_ALL = "holdfast.outputs"


def select_output(df: DataFrame, output: SideOutput | None = None) -> DataFrame:
    """The rows of one output of an operator with side outputs, as a DataFrame of that output's columns.

    For the batch that `foreachBatch` is given, and for what comes behind an operator; it works on a streaming DataFrame
    as well. A query that writes several outputs with one operator is `hf.write_exactly_once` with a sink for each,
    or one `foreachBatch` that persists its batch: a query for each would run the operator once for each,
    with a state of its own.

    Parameters
    ----------
    df
        What ``hf.keyed(…, side_outputs=…)`` or ``hf.connect(…, side_outputs=…)`` gave.
    output
        A side output, or None: the main output.

    Raises
    ------
    InvalidRequest
        The DataFrame has no such output.
    """
    if output is not None and not isinstance(output, SideOutput):
        raise InvalidRequest(f"select_output: expected an hf.SideOutput or None, found {output!r}")
    name = MAIN if output is None else output.name
    outputs = output_columns(df.schema)
    if name not in outputs:
        has = f"has the outputs {', '.join(outputs)}" if outputs else "has no outputs side by side, only its columns"
        raise InvalidRequest(f"select_output: the DataFrame {has}; {name!r} is not one of them")
    return df.where(sql.col(name).isNotNull()).select(f"{name}.*")


def output_columns(schema: spark.StructType) -> list[str]:
    """Columns that hold an output each."""
    return [field.name for field in schema.fields if (field.metadata or {}).get(_MARK) == field.name]


def has_all_outputs(schema: spark.StructType) -> bool:
    """Whether these are the columns that an operator gave, all of them and no other: rows of an output whose column was
    dropped would be lost, and nobody would say so."""
    names = output_columns(schema)
    return bool(names) and all((field.metadata or {}).get(_ALL) == names == schema.names for field in schema.fields)


def side_schemas(
    tags: Sequence[SideOutput], inputs: Sequence[InputFrame], operator: str
) -> dict[str, spark.StructType]:
    """The schema of each side output, those for late rows among them.

    Raises
    ------
    InvalidRequest
        A tag without a schema where there are several inputs, or one for late rows whose schema is another than theirs.
    """
    found: dict[str, spark.StructType] = {}
    for tag in tags:
        where = f"operator {operator!r}, side output {tag.name!r}"
        takes = [one for one in inputs if one.late == tag]
        if tag.schema is not None:
            found[tag.name] = schemas.parse_schema(tag.schema, where)
        elif takes or len(inputs) == 1:
            found[tag.name] = _columns_of((takes or inputs)[0].frame)
        else:
            raise InvalidRequest(f"{where}: it takes the late rows of no input, so it needs a schema")
        for one in takes:
            late, own = (schemas.arrow_schema(s, where) for s in (_columns_of(one.frame), found[tag.name]))
            # What holds the rows may say less of nulls within a column than Spark knows from the plan, but not more.
            if own.types not in (late.types, nullable_schema(late).types) or own.names != late.names:
                raise InvalidRequest(
                    f"{where}: its columns are {_text(own)}; late rows{f' of input {one.name!r}' if one.name else ''} "
                    f"have {_text(late)}. Leave out its schema, or give each input a side output of its own"
                )
    return found


def side_by_side(main: spark.StructType, sides: dict[str, spark.StructType]) -> spark.StructType:
    """The schema of all outputs of an operator: its own where there is one."""
    if not sides:
        return main
    outputs = {MAIN: main, **sides}
    return spark.StructType(
        [spark.StructField(name, kind, True, {_MARK: name, _ALL: list(outputs)}) for name, kind in outputs.items()]
    )


def _columns_of(frame: DataFrame) -> spark.StructType:
    """Without what Spark notes of them: a watermark is that of a stream, not of rows that went aside. Whether a column
    may be null depends on the rest of the plan."""
    columns = schemas.without_watermarks(frame.schema).fields
    return spark.StructType([spark.StructField(column.name, column.dataType) for column in columns])


def _text(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
