"""`DataFrame.mapInArrow` for columns of any name. PySpark's own asks for each column by its name as an expression, in
which a dot leads into a struct and a backtick quotes: a column `a.b` it does not find. And of `id` and `ID` either may
be meant, unless spark.sql.caseSensitive is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

Batches = Iterator[pa.RecordBatch]


def map_in_arrow(df: DataFrame, function: Callable[[Batches], Batches], schema: StructType | str) -> DataFrame:
    """The function over the frame's batches, in which columns have the frame's names."""
    names = df.columns
    twins = len({name.lower() for name in names}) < len(names)
    if twins or any(mark in name for name in names for mark in ".`"):
        df = df.toDF(*(f"_{number}" for number in range(len(names))))
        function = partial(_named, function, names)
    return df.mapInArrow(function, schema)


def _named(function: Callable[[Batches], Batches], names: list[str], batches: Batches) -> Batches:
    return function(batch.rename_columns(names) for batch in batches)
