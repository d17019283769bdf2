"""Tables that somebody gives as those of a state: made to have the columns of a savepoint, or refused.

Nothing is guessed. A column that is not known is refused, since it may be one that was misspelled; a type may be
another spelling of the one that is expected, and values must fit, since a text that looks like a number is none.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakSet

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.types as is_type

from holdfast.arrow.arrays import by_parts, size_bytes
from holdfast.arrow.exact_casts import exact_cast
from holdfast.arrow.types import is_list
from holdfast.errors import InvalidRequest
from holdfast.savepoint.columns import SKETCH, StateColumns, table_type
from holdfast.savepoint.pandas_rows import of_pandas
from holdfast.savepoint.results import result_of
from holdfast.savepoint.spark_rows import of_spark

_BATCH_ROWS, _BATCH_BYTES = 65536, 16 << 20
#: They can be read once: what comes again is at its end, or wherever a write that failed had come.
_given_before: WeakSet[pa.RecordBatchReader] = WeakSet()
_Test = Callable[[pa.DataType], bool]
_INTEGERS: tuple[_Test, ...] = (is_type.is_integer,)
#: Types that hold the same: what is found, and what it may be made. Values that do not fit are refused one by one.
_SPELLINGS: tuple[tuple[tuple[_Test, ...], tuple[_Test, ...]], ...] = (
    (_INTEGERS, (is_type.is_integer, is_type.is_floating, is_type.is_decimal)),
    ((is_type.is_floating,), (is_type.is_floating, is_type.is_integer)),  # pandas has integers with nulls as floats
    ((is_type.is_decimal,), (is_type.is_decimal,)),
    ((is_type.is_binary, is_type.is_fixed_size_binary), (is_type.is_binary, is_type.is_fixed_size_binary)),
    ((is_type.is_date,), (is_type.is_date,)),
    ((is_type.is_time,), (is_type.is_time,)),
    ((is_type.is_duration,), (is_type.is_duration,)),
)


def reader_of(given: Any, schema: pa.Schema, where: str) -> pa.RecordBatchReader:
    """A table in whatever library's hands as Arrow batches, of which columns of this schema are used; InvalidRequest
    for what is none.
    """
    if isinstance(given, ds.Dataset):
        return given.scanner(batch_size=_BATCH_ROWS).to_reader()
    if type(given).__module__.partition(".")[0] == "pandas":
        return of_pandas(given, schema, where).to_reader()
    if isinstance(given, pa.RecordBatchReader):
        if given in _given_before:
            raise InvalidRequest(
                f"{where}: expected a table that was not read, found a RecordBatchReader that was given before: rows "
                "would be lost. Give a new one, or a table of it: reader.read_all()"
            )
        _given_before.add(given)
    if type(given).__module__.startswith("pyspark.pandas."):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that an index is no column, as of pandas
            given = given.to_spark()
    if hasattr(given, "toArrow") and hasattr(given, "mapInArrow"):
        return of_spark(given)
    if hasattr(given, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(given)
    raise InvalidRequest(
        f"{where}: expected a table of Arrow, pandas, Polars, DuckDB or Spark, or a pyarrow.dataset of files, found "
        f"{given!r}"
    )


class GivenRows:
    """The rows of one table, piece by piece, in the columns of its state.

    Parameters
    ----------
    where
        The state, for messages.
    """

    def __init__(self, given: Any, columns: StateColumns, function: str | None, where: str) -> None:
        self._columns = columns
        self._function = function
        self._where = where
        remade = [columns.names["value"]] if "accumulator" in columns.names and "value" in columns.names else []
        used = pa.schema([field for field in columns.schema if field.name not in remade])
        self._reader = reader_of(given, used, where)
        self._is_read_once = isinstance(given, pa.RecordBatchReader)
        self._count = 0
        self._check_names()

    @property
    def says_positions(self) -> bool:
        """Whether the places in lists are given; otherwise elements come in the order of the rows."""
        return self._has("position")

    @property
    def says_groups(self) -> bool:
        """Whether the key groups are given, to be compared."""
        return self._has("key_group")

    def pieces(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The number of a piece's first row, and its rows with the columns of the state.

        Raises
        ------
        InvalidRequest
            A column, or a value, that is of another type; or a reader that has no rows, as one that was read before.
        """
        for batch in self._reader:
            size = max(1, min(_BATCH_ROWS, _BATCH_BYTES * batch.num_rows // max(1, size_bytes(batch))))
            for at in range(0, batch.num_rows, size):
                piece = batch.slice(at, size)
                yield self._count, self._row_piece(piece)
                self._count += piece.num_rows
        if self._is_read_once and not self._count:
            raise InvalidRequest(
                f"{self._where}: the RecordBatchReader has no rows, as one has that was read before. If the state "
                "shall be empty, give an empty table: reader.schema.empty_table()"
            )

    def _has(self, role: str) -> bool:
        return self._columns.names.get(role) in self._reader.schema.names

    def _check_names(self) -> None:
        schema, found = self._columns.schema, self._reader.schema.names
        names = self._columns.names
        optional = {"expiry", "key_group", "namespace", "position", "slot"}
        if "accumulator" in names:
            optional.add("value")  # is made anew of the accumulator
        needed = [*self._columns.key.names, *(name for role, name in names.items() if role not in optional)]
        expected = f"expected {', '.join(needed)}"
        allowed = [name for role, name in names.items() if role in optional]
        expected += f", and perhaps {', '.join(allowed)}" if allowed else ""
        missing = [name for name in needed if name not in found]
        unknown = [name for name in found if name not in schema.names]
        twice = [name for name in found if found.count(name) > 1]
        for problem, columns in (("lacks", missing), ("does not know", unknown), ("has more than once", twice)):
            if columns:
                raise InvalidRequest(f"{self._where} {problem} the column {columns[0]!r}: {expected}")

    def _row_piece(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        arrays: list[pa.Array] = []
        roles = {name: role for role, name in self._columns.names.items()}
        for field in self._columns.schema:
            role = "key" if field.name in self._columns.key.names else roles[field.name]
            if role == "value" and "accumulator" in self._columns.names:
                arrays.append(self._results(arrays[-1], field.type))
            elif field.name in piece.schema.names:
                arrays.append(self._column(piece.column(field.name), field))
            else:
                arrays.append(self._default(role, len(piece), field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._columns.schema)

    def _default(self, role: str, rows: int, type: pa.DataType) -> pa.Array:
        """Of a column that is not given. Positions: the order of the rows, of which the places in each list follow."""
        if role == "position":
            return pa.array(range(self._count, self._count + rows), type)
        if role == "namespace":
            return pa.repeat(pa.scalar("", type), rows)
        return pa.repeat(pa.scalar(0, type), rows) if role in ("slot", "key_group") else pa.nulls(rows, type)

    def _column(self, column: pa.Array, field: pa.Field) -> pa.Array:
        if not may_be(table_type(column.type), field.type):
            raise InvalidRequest(f"{self._where}: column {field.name!r} is {column.type}; expected {field.type}")
        try:
            return by_parts(column, field.type, _made)
        except (pa.ArrowException, _Lost) as error:
            raise InvalidRequest(
                f"{self._where}: column {field.name!r}, within rows {self._count} to {self._count + len(column) - 1}: "
                f"expected {field.type}, found {column.type}: {error}"
            ) from None

    def _results(self, accumulators: pa.Array, type: pa.DataType) -> pa.Array:
        try:
            return result_of(accumulators, self._function).cast(type)
        except (RuntimeError, ValueError, TypeError) as error:
            if self._function != SKETCH:
                raise
            raise InvalidRequest(f"{self._where}: an accumulator is no sketch: {error}") from None


def may_be(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a type is another spelling of one that is wanted; both are plain."""
    if is_type.is_null(found) or found.equals(wanted):
        return True
    if is_type.is_timestamp(found) and is_type.is_timestamp(wanted):
        return (found.tz is None) == (wanted.tz is None)  # an instant is no time on a clock in an unknown place
    if is_type.is_timestamp(found):
        return bool(is_type.is_date64(wanted) and found.tz is None)  # as Parquet holds it
    if is_type.is_struct(found) and is_type.is_struct(wanted):
        names = sorted(field.name for field in found)  # pandas and Spark's users have them in an order of their own
        same = names == sorted(field.name for field in wanted)
        return same and all(may_be(found.field(field.name).type, field.type) for field in wanted)
    if is_type.is_map(found) and is_type.is_map(wanted):
        return may_be(found.key_type, wanted.key_type) and may_be(found.item_type, wanted.item_type)
    if is_list(found) and is_list(wanted):
        return may_be(found.value_type, wanted.value_type)
    return any(
        any(test(found) for test in mine) and any(test(wanted) for test in others) for mine, others in _SPELLINGS
    )


class _Lost(Exception):
    """A float that another type does not hold as it is."""


def _check_floats(column: pa.Array, type: pa.DataType) -> None:
    """Floats that become infinite."""
    if is_type.is_floating(column.type) and is_type.is_floating(type) and type.bit_width < column.type.bit_width:
        row = pc.index(pc.and_(pc.is_finite(column), pc.is_inf(column.cast(type))), True).as_py()
        if row >= 0:
            raise _Lost(f"a number is too large for {type}: {column[row]}")


def _made(column: pa.Array, type: pa.DataType) -> pa.Array:
    _check_floats(column, type)
    if is_type.is_date64(type) and is_type.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms")).view(type)
    return exact_cast(column, type)
