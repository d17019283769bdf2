"""States of a BatchProcessor: arrays of keys in, arrays out. One lookup a distinct key and batch, in the core.

Every method takes ``keys`` as the record batch at hand (its key columns are found by name), as a struct array, as the
array of the one key column, or as a list of arrays; and values as an Arrow, numpy or pandas array, as a list, or as
one value for all rows.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast import _core
from holdfast.arrow.arrays import decoded, list_lengths
from holdfast.state.columns import KeyColumns, Keys, MapKeyColumns, ValueColumns, Values
from holdfast.state.folds import FoldTable
from holdfast.state.live_state import LiveState, operation

ReducingTables: TypeAlias = _core.ReducingTable | FoldTable
AggregatingTables: TypeAlias = _core.AggregatingTable | FoldTable


class BatchState(LiveState):
    """What all vectorised states share: where they find keys."""

    _of = ("BatchProcessor", "KeyedProcessor")

    def __init__(self, name: str, keys: KeyColumns) -> None:
        super().__init__(name)
        self._keys = keys


class BatchValueState(BatchState):
    """One value a key."""

    _elsewhere = {"value": "get(keys)", "update": "put(keys, values)"}

    def __init__(self, name: str, keys: KeyColumns, table: _core.ValueTable, type: pa.DataType) -> None:
        super().__init__(name, keys)
        self._table = table
        self._values = ValueColumns(type, f"state {name!r}")

    def get(self, keys: Keys) -> pa.Array:
        """The value of each row's key, null where there is none."""
        return pa.array(self._ask(self._table.get, self._keys.of(keys)))

    @operation
    def put(self, keys: Keys, values: Values) -> None:
        """Sets the value of each row's key. Where a key is there twice, its last row wins. A null clears."""
        rows = self._keys.of(keys)
        self._run(self._table.put, rows, self._values.of(values, len(rows)))

    def contains(self, keys: Keys) -> pa.Array:
        """Whether each row's key has a value (bool)."""
        return pa.array(self._ask(self._table.contains, self._keys.of(keys)))

    @operation
    def clear(self, keys: Keys) -> None:
        """Forgets the value of each row's key."""
        self._run(self._table.clear, self._keys.of(keys))


class BatchReducingState(BatchState):
    """One value a key, to which rows are added by a function."""

    def __init__(
        self, name: str, keys: KeyColumns, table: ReducingTables | AggregatingTables, type: pa.DataType
    ) -> None:
        super().__init__(name, keys)
        self._table = table
        self._values = ValueColumns(type, f"state {name!r}")

    @operation
    def add(self, keys: Keys, values: Values) -> pa.Array:
        """Adds each row, in order, to its key.

        Returns
        -------
        pa.Array
            What :meth:`get` would have returned after each row. A row whose value is null adds nothing.
        """
        rows = self._keys.of(keys)
        return pa.array(self._run(self._table.add, rows, self._values.of(values, len(rows))))

    @operation
    def add_only(self, keys: Keys, values: Values) -> None:
        """As :meth:`add`, for those who need no running result."""
        rows = self._keys.of(keys)
        self._run(self._table.add_only, rows, self._values.of(values, len(rows)))

    def get(self, keys: Keys) -> pa.Array:
        """The result for each row's key, null where nothing was added."""
        return pa.array(self._ask(self._table.get, self._keys.of(keys)))

    @operation
    def clear(self, keys: Keys) -> None:
        """Forgets what was added to each row's key."""
        self._run(self._table.clear, self._keys.of(keys))


class BatchAggregatingState(BatchReducingState):
    """One aggregate a key; its result may be of another type than the values."""


class BatchListState(BatchState):
    """A list of elements a key. Appending reads nothing."""

    def __init__(
        self, name: str, keys: KeyColumns, store: _core.Store, table: _core.ListTable, element: pa.DataType
    ) -> None:
        super().__init__(name, keys)
        self._store = store
        self._table = table
        self._elements = ValueColumns(element, f"state {name!r}", "elements")
        self._lists = ValueColumns(pa.list_(element), f"state {name!r}", "lists")

    @operation
    def add(self, keys: Keys, values: Values) -> None:
        """Appends one element a row."""
        rows = self._keys.of(keys)
        self._run(self._table.append, rows, self._elements.of(values, len(rows)))

    @operation
    def add_all(self, keys: Keys, lists: Values) -> None:
        """Appends a list of elements a row; a null list appends nothing."""
        rows = self._keys.of(keys)
        self._append_lists(rows, self._lists.of(lists, len(rows)))

    def get(self, keys: Keys) -> pa.Array:
        """The list of each row's key, empty where there is none."""
        return pa.array(self._ask(self._table.get, self._keys.of(keys)))

    @operation
    def update(self, keys: Keys, lists: Values) -> None:
        """Replaces the list of each row's key; a null or empty list clears.

        Where a key is there twice, its last row wins.
        """
        rows = self._keys.of(keys)
        replaced = self._lists.of(lists, len(rows))
        last = self._last_rows(rows)
        if len(last) < len(rows):
            rows, replaced = rows.take(last), replaced.take(last)
        self._run(self._table.clear, rows)
        self._append_lists(rows, replaced)

    @operation
    def clear(self, keys: Keys) -> None:
        """Forgets the list of each row's key."""
        self._run(self._table.clear, self._keys.of(keys))

    def _last_rows(self, rows: Any) -> pa.Array:
        """The last row of each distinct key."""
        from_the_end = pa.array(np.arange(len(rows) - 1, -1, -1, dtype=np.int32))
        _, first_rows = self._ask(self._store.distinct, rows.take(from_the_end))
        return from_the_end.take(pa.array(first_rows))

    def _append_lists(self, rows: Any, lists: pa.ListArray) -> None:
        lists = decoded(lists)
        elements = lists.flatten()
        if len(elements):
            parents = np.repeat(np.arange(len(lists), dtype=np.int32), list_lengths(lists))
            self._run(self._table.append, rows.take(pa.array(parents)), elements)


class BatchMapState(BatchState):
    """A map of entries a key. Setting one entry leaves the others alone."""

    _elsewhere = {
        "get_all": "get(keys, map_keys)", "put_all": "put(keys, map_keys, map_values)", "items": "entries(keys)"
    }  # fmt: skip

    def __init__(
        self, name: str, keys: KeyColumns, table: _core.MapTable, key: pa.DataType, value: pa.DataType
    ) -> None:
        super().__init__(name, keys)
        self._table = table
        self._map_keys = MapKeyColumns(key, f"state {name!r}")
        self._map_values = ValueColumns(value, f"state {name!r}", "map values")

    def get(self, keys: Keys, map_keys: Values) -> pa.Array:
        """The value of each row's entry, null where there is none."""
        rows = self._keys.of(keys)
        return pa.array(self._ask(self._table.get, rows, self._map_keys.of(map_keys, len(rows))))

    @operation
    def put(self, keys: Keys, map_keys: Values, map_values: Values) -> None:
        """Sets one entry a row. Where an entry is there twice, its last row wins."""
        rows = self._keys.of(keys)
        self._run(
            self._table.put, rows, self._map_keys.of(map_keys, len(rows)), self._map_values.of(map_values, len(rows))
        )

    def contains(self, keys: Keys, map_keys: Values) -> pa.Array:
        """Whether each row's entry is there (bool)."""
        rows = self._keys.of(keys)
        return pa.array(self._ask(self._table.contains, rows, self._map_keys.of(map_keys, len(rows))))

    @operation
    def remove(self, keys: Keys, map_keys: Values) -> None:
        """Removes one entry a row; one that is not there is no error."""
        rows = self._keys.of(keys)
        self._run(self._table.remove, rows, self._map_keys.of(map_keys, len(rows)))

    def entries(self, keys: Keys) -> pa.Array:
        """All entries of each row's key as map<key, value>, in the order of the map keys."""
        return pa.array(self._ask(self._table.entries, self._keys.of(keys)))

    def keys(self, keys: Keys) -> pa.Array:
        """The map keys of each row's key as list<key>, in order."""
        return self._part(keys, "keys")

    def values(self, keys: Keys) -> pa.Array:
        """The map values of each row's key as list<value>, in the order of the map keys."""
        return self._part(keys, "items")

    def count(self, keys: Keys) -> pa.Array:
        """How many entries each row's key has (int64)."""
        return pa.array(self._ask(self._table.count, self._keys.of(keys)))

    def is_empty(self, keys: Keys) -> pa.Array:
        """Whether each row's key has no entries (bool)."""
        return pc.equal(self.count(keys), 0)

    @operation
    def clear(self, keys: Keys) -> None:
        """Forgets all entries of each row's key."""
        self._run(self._table.clear, self._keys.of(keys))

    def _part(self, keys: Keys, part: str) -> pa.ListArray:
        entries = self.entries(keys)
        return pa.ListArray.from_arrays(entries.offsets, getattr(entries, part))
