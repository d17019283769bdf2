"""The arguments of vectorised states: key columns and value columns, in the shapes that users have at hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_type

from holdfast.arrow.arrays import decoded
from holdfast.errors import InvalidRequest
from holdfast.state.arrays import has_unclear_nan, is_column, is_frame, is_series, one_array, to_array
from holdfast.state.casts import cast, storage_type
from holdfast.state.python_values import NotKept, from_python, keeper, python_of, refusal

# RecordBatch, Table or DataFrame that has the key columns; struct array;
# the array of the one key column; a list of arrays
Keys = Any
# Array, ChunkedArray, numpy array, Series, list; or one value for all rows
Values = Any
CoreKeys: TypeAlias = "pa.RecordBatch | pa.Array"


class KeyColumns:
    """Finds an operator's key columns in what a user calls keys.

    Remembers the last batch: its states are asked one after the other.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.names: list[str] = schema.names
        self._types: list[pa.DataType] = schema.types
        self._last: Any = None
        self._last_columns: CoreKeys = None
        self.of_no_key = False  # rows of a broadcast input are at work

    def of(self, keys: Keys) -> CoreKeys:
        """The key columns as the core takes them: an array for one key column, a record batch for several.

        Raises
        ------
        InvalidRequest
            A key column is missing or of another type; or rows of a broadcast input are at work.
        """
        if self.of_no_key:
            raise used_without_key("a state of keys")
        if keys is self._last:
            return self._last_columns
        columns = self._columns(keys)
        found = columns[0] if len(columns) == 1 else pa.RecordBatch.from_arrays(columns, names=self.schema.names)
        if isinstance(keys, (pa.RecordBatch, pa.Array)):  # immutable: the same object has the same keys
            self._last, self._last_columns = keys, found
        return found

    def look_for(self, names: Sequence[str]) -> None:
        """What the key columns are called from now on: inputs of one operator may differ in that."""
        self.names = list(names)
        self.forget()

    def forget(self) -> None:
        """Lets go of the last batch."""
        self._last = self._last_columns = None

    def tuples(self, keys: CoreKeys) -> list[tuple[Any, ...]]:
        """Keys as tuples of Python values, one a row."""
        columns = [keys] if isinstance(keys, pa.Array) else keys.columns
        named = zip(self.names, columns)
        return list(zip(*(python_of(column, f"key column {name!r}") for name, column in named)))

    def _columns(self, keys: Keys) -> list[pa.Array]:
        if isinstance(keys, (pa.RecordBatch, pa.Table)):
            return [self._of_type(i, self._named(keys, name)) for i, name in enumerate(self.names)]
        if is_frame(keys):
            found = list(keys.columns)
            for name in self.names:
                if found.count(name) != 1:
                    raise _not_one(name, ", ".join(map(str, found)))
            return [self._of_type(i, keys[name]) for i, name in enumerate(self.names)]
        if isinstance(keys, pa.ChunkedArray):
            keys = one_array(keys, "keys")
        if isinstance(keys, pa.StructArray) and not (len(self.names) == 1 and is_type.is_struct(self._types[0])):
            return [self._of_type(i, self._field(keys, name)) for i, name in enumerate(self.names)]
        if isinstance(keys, (list, tuple)) and keys and all(_is_one_column(part) for part in keys):
            return self._of_list(keys)
        if len(self.names) > 1:
            raise InvalidRequest(
                f"the operator has the key columns {', '.join(self.names)}: expected the record batch, a struct array "
                f"or {len(self.names)} arrays in a list, found {type(keys).__name__}"
            )
        if not is_column(keys):
            raise InvalidRequest(
                f"keys: expected a record batch or an array of {self._types[0]}, found {type(keys).__name__} {keys!r}"
            )
        return [self._of_type(0, keys)]

    def _of_list(self, parts: Sequence[Any]) -> list[pa.Array]:
        if len(parts) != len(self.names):
            raise InvalidRequest(
                f"keys: expected {len(self.names)} arrays for the key columns {', '.join(self.names)}, "
                f"found {len(parts)}"
            )
        columns = [self._of_type(i, part) for i, part in enumerate(parts)]
        if any(len(column) != len(columns[0]) for column in columns):
            raise InvalidRequest(
                f"keys: arrays of different lengths: {', '.join(str(len(column)) for column in columns)}"
            )
        return columns

    def _named(self, batch: Any, name: str) -> Any:
        index = batch.schema.get_field_index(name)
        if index < 0:
            raise _not_one(name, ", ".join(batch.schema.names))
        return batch.column(index)

    def _field(self, keys: pa.StructArray, name: str) -> pa.Array:
        if keys.type.get_field_index(name) < 0:
            raise _not_one(name, str(keys.type))
        return keys.flatten()[keys.type.get_field_index(name)]

    def _of_type(self, index: int, column: Any) -> pa.Array:
        return key_column(column, self._types[index], f"key column {self.names[index]!r}")


class ValueColumns:
    """Makes arrays of one declared type, of the batch's length, from what a user calls values."""

    def __init__(self, type: pa.DataType, state: str, role: str = "values") -> None:
        self._type = type
        self._stored = storage_type(type)
        self._keep = keeper(type)
        self._state = state
        self._role = role

    def of(self, values: Values, rows: int) -> pa.Array:
        """``rows`` values; one value stands for all rows.

        Raises
        ------
        InvalidRequest
            Another type, or another number of values.
        """
        if not is_column(values, self._stored):
            return pa.repeat(self._scalar(values), rows)
        array = self._column(values)
        if len(array) != rows:
            raise InvalidRequest(
                f"{self._state}: {rows} keys but {len(array)} {self._role}; expected one a row, or one value for all"
            )
        return array

    def _column(self, values: Values) -> pa.Array:
        return arrow_column(values, self._type, f"{self._state}, {self._role}")

    def _scalar(self, value: Any) -> pa.Scalar:
        what = f"{self._state}, {self._role}"
        try:
            kept = self._keep(value)
        except NotKept as reason:
            raise refusal(what, self._stored, value, reason) from None
        return from_python([kept], self._stored, what)[0]


class MapKeyColumns(ValueColumns):
    """The same of map keys: none is null."""

    def __init__(self, type: pa.DataType, state: str) -> None:
        super().__init__(type, state, "map keys")

    def of(self, values: Values, rows: int) -> pa.Array:
        return _without_nulls(super().of(values, rows), self._state)

    def _column(self, values: Values) -> pa.Array:
        return key_column(values, self._type, f"{self._state}, {self._role}")


def key_column(values: Any, expected: pa.DataType, what: str) -> pa.Array:
    """As :func:`arrow_column`, of what tells states or entries apart: NaN is one key and null another."""
    if is_type.is_floating(storage_type(expected)) and is_series(values) and has_unclear_nan(values):
        raise InvalidRequest(
            f"{what}: found NaN, which pandas has for a missing value too; expected to be told which is meant: give "
            "the batch or a column of it, or a frame made by to_pandas(types_mapper=pd.ArrowDtype)"
        )
    return arrow_column(values, expected, what)


def map_key_column(values: Any, expected: pa.DataType, state: str) -> pa.Array:
    """As :func:`key_column`, of map keys: none is null, nor a field of one."""
    return _without_nulls(key_column(values, expected, f"{state}, map keys"), state)


def _without_nulls(map_keys: pa.Array, state: str) -> pa.Array:
    null = _first_null(map_keys, "map key")
    if null is not None:
        raise InvalidRequest(f"{state}: {null}; a map key is never null: filter such rows out")
    return map_keys


def _first_null(column: pa.Array, what: str) -> str | None:
    if is_type.is_dictionary(column.type):
        column = decoded(column) if column.dictionary.null_count else column.indices
    if column.null_count:
        return f"{what} is null at row {pc.index(column.is_null(), True).as_py()}"
    if not is_type.is_struct(column.type):
        return None
    fields = zip(column.type, column.flatten())
    return next(filter(None, (_first_null(values, f"{what}.{field.name}") for field, values in fields)), None)


def arrow_column(values: Any, expected: pa.DataType, what: str) -> pa.Array:
    """Values as an array that the core takes as ``expected``: it sees through dictionaries and large offsets by itself.

    Views become plain, since Arrow takes no rows of them.
    """
    array = one_array(values, what)
    stored = storage_type(expected)
    if isinstance(array, pa.Array):
        if isinstance(array, pa.ExtensionArray) and array.type.equals(expected):
            array = array.storage
        if array.type.equals(stored) or _is_variant(array.type, stored):
            return array
        return cast(array, stored, what, expected)
    return to_array(array, stored, what)


def _is_variant(found: pa.DataType, expected: pa.DataType) -> bool:
    if is_type.is_dictionary(found):
        return bool(found.value_type.equals(expected))
    if is_type.is_string(expected):
        return bool(is_type.is_large_string(found))
    return bool(is_type.is_binary(expected) and is_type.is_large_binary(found))


def _is_one_column(part: Any) -> bool:
    if isinstance(part, np.ndarray):
        return part.ndim > 0  # without dimensions it is a value
    return isinstance(part, (pa.Array, pa.ChunkedArray, list)) or is_series(part)


def used_without_key(what: str) -> InvalidRequest:
    """The error for who asks for a key's state where rows have no key."""
    return InvalidRequest(
        f"{what} used in the method of a broadcast input, whose rows reach every slot and belong to no key: "
        "it reads and changes broadcast states and operator states only; "
        "states of keys and timers are for the methods of the other inputs"
    )


def _not_one(name: str, found: str) -> InvalidRequest:
    return InvalidRequest(f"key column {name!r} is missing or there twice: found {found}")
