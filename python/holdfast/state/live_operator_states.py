"""States that belong to no key while their processor runs, in both forms.

To the core each is a map or a list of a key without bytes, so that the Python forms of maps and lists serve here too,
with that as the current key for the whole batch. What was read of a broadcast state stays at hand until it changes: a
slot may ask for the same rule for each of its keys. Changes are held back until `write`. Owner: the one thread that
runs the processor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from holdfast import _core
from holdfast.errors import InvalidRequest
from holdfast.state.arrays import is_column
from holdfast.state.columns import ValueColumns, Values, arrow_column, map_key_column
from holdfast.state.keyed_collections import KeyedListState, KeyedMapState
from holdfast.state.keyed_scope import UNREAD, KeyScope
from holdfast.state.live_state import LiveState, operation
from holdfast.state.python_values import is_null

_NO_KEY = pa.nulls(1)
#: What looking an entry up costs, in entries of a whole map that is read at once.
_ENTRIES_A_LOOKUP = 16


def _one_scope() -> KeyScope:
    """Of a state that has one key, which has always begun."""
    scope = KeyScope()
    scope.keys, scope.tuples, scope.index = _NO_KEY, [()], 0
    return scope


class KeyedBroadcastState(KeyedMapState):
    """The slot's map, in Python values. Where more is asked for one by one than reading all would cost, all is read."""

    def __init__(self, name: str, table: _core.MapTable, key: pa.DataType, value: pa.DataType) -> None:
        super().__init__(name, _one_scope(), table, key, value)
        self.writable = False
        self._looked_up = 0
        self._size: int | None = None
        self.begin(1)

    def put(self, map_key: Any, map_value: Any) -> None:
        """Sets an entry."""
        self.check_writable()
        super().put(map_key, map_value)

    def put_all(self, entries: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        """Sets entries, from a dict or from pairs."""
        self.check_writable()
        super().put_all(entries)

    def remove(self, map_key: Any) -> None:
        """Removes an entry; one that is not there is no error."""
        self.check_writable()
        super().remove(map_key)

    def clear(self) -> None:
        """Forgets all entries."""
        self.check_writable()
        super().clear()

    def begin(self, size: int) -> None:
        super().begin(size)
        self._looked_up, self._size = 0, None

    @operation
    def write(self) -> None:
        """Has the core make the changes that were held back."""
        if self._changes or self._cleared:
            self.flush()
            self.begin(1)

    def count(self) -> int:
        """How many entries there are."""
        self.write()
        if self._size is None:
            [self._size] = self._read(self._table.count, _NO_KEY)
        assert self._size is not None
        return self._size

    def check_writable(self) -> None:
        """Raises InvalidRequest, and loses the batch, where nothing may be changed."""
        if not self.writable:
            raise self.failed(
                InvalidRequest(
                    f"state {self.name!r}: a broadcast state is changed in the method of a broadcast input only, which "
                    "every slot calls with the same rows: changed elsewhere, slots would differ. Keep what belongs to "
                    "a key in a state of keys, and what belongs to a slot in an OperatorState"
                )
            )

    def _write(self, cleared: list[int], changes: dict[int, dict[Any, tuple[Any, Any]]]) -> None:
        self._size = None
        super()._write(cleared, changes)

    def _unchanged(self, index: int, wanted: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
        if wanted and self._entries[index] is UNREAD and not self._changes and not self._cleared:
            self._looked_up += sum(same not in self._known for same, _ in wanted)
            if self._looked_up * _ENTRIES_A_LOOKUP >= self.count():
                self._all(index)
        return super()._unchanged(index, wanted)


class BatchBroadcastState(LiveState):
    """The slot's map: arrays in, arrays out; one Python value in, one out."""

    _elsewhere = {"get_all": "get(map_keys)", "put_all": "put(map_keys, map_values)"}
    _of = ("BatchProcessor", "KeyedProcessor")

    def __init__(self, name: str, table: _core.MapTable, key: pa.DataType, value: pa.DataType) -> None:
        super().__init__(name)
        self._table = table
        self._one = KeyedBroadcastState(name, table, key, value)
        self._key = key
        self._map_values = ValueColumns(value, f"state {name!r}", "map values")

    def get(self, map_keys: Values) -> Any:
        """The value of each map key (array), null where there is none; of one map key, its value or None."""
        if not is_column(map_keys, self._key):
            return self._one.get(map_keys)
        return self._array(self._table.get, self._column(map_keys))

    def contains(self, map_keys: Values) -> Any:
        """Whether there is an entry of each map key (bool array); of one map key, a bool."""
        if not is_column(map_keys, self._key):
            return self._one.contains(map_keys)
        return self._array(self._table.contains, self._column(map_keys))

    @operation
    def put(self, map_keys: Values, map_values: Values) -> None:
        """Sets an entry for each map key, with one value each or one for all; or one entry. Where a map key is there
        twice, its last one wins.
        """
        if not is_column(map_keys, self._key):
            self._one.put(map_keys, map_values)
            return
        self._one.check_writable()
        keys = self._column(map_keys)
        self._change(self._table.put, keys, self._map_values.of(map_values, len(keys)))

    @operation
    def remove(self, map_keys: Values) -> None:
        """Removes the entry of each map key, or of one; one that is not there is no error."""
        if not is_column(map_keys, self._key):
            self._one.remove(map_keys)
            return
        self._one.check_writable()
        self._change(self._table.remove, self._column(map_keys))

    @operation
    def clear(self) -> None:
        """Forgets all entries."""
        self._one.clear()

    def entries(self) -> pa.StructArray:
        """All entries as struct<key, value>, in the order of the map keys."""
        keys, values = self._parts()
        fields = [pa.field("key", keys.type, False), pa.field("value", values.type)]
        return pa.StructArray.from_arrays([keys, values], fields=fields)

    def keys(self) -> pa.Array:
        """All map keys, in order."""
        return self._parts()[0]

    def values(self) -> pa.Array:
        """All map values, in the order of the map keys."""
        return self._parts()[1]

    def items(self) -> list[tuple[Any, Any]]:
        """All entries as pairs of Python values, in the order of the map keys."""
        return self._one.items()

    def count(self) -> int:
        """How many entries there are."""
        return self._one.count()

    def is_empty(self) -> bool:
        """Whether there are no entries."""
        return self._one.count() == 0

    @property
    def writable(self) -> bool:
        """Whether a broadcast input's rows are at work."""
        return self._one.writable

    @writable.setter
    def writable(self, value: bool) -> None:
        self._one.writable = value

    def write(self) -> None:
        """Has the core make the changes that were held back."""
        self._one.write()

    def check(self) -> None:
        super().check()
        self._one.check()

    def _column(self, map_keys: Values) -> pa.Array:
        return map_key_column(map_keys, self._key, f"state {self.name!r}")

    def _array(self, read: Any, map_keys: pa.Array) -> pa.Array:
        self.write()
        return pa.array(self._ask(read, pa.nulls(len(map_keys)), map_keys))

    def _change(self, change: Any, map_keys: pa.Array, *map_values: pa.Array) -> None:
        self.write()
        self._run(change, pa.nulls(len(map_keys)), map_keys, *map_values)
        self._one.begin(1)

    def _parts(self) -> tuple[pa.Array, pa.Array]:
        self.write()
        found = pa.array(self._ask(self._table.entries, _NO_KEY))
        return found.keys, found.items


class KeyedOperatorState(KeyedListState):
    """The slot's list, in Python values."""

    def __init__(self, name: str, table: _core.ListTable, element: pa.DataType) -> None:
        super().__init__(name, _one_scope(), table, element)
        self.begin(1)

    @operation
    def write(self) -> None:
        """Has the core make the changes that were held back."""
        if self._added_keys or self._cleared:
            self.flush()
            self.begin(1)  # a list that grows through a batch need not be here too


class BatchOperatorState(LiveState):
    """The slot's list: an array, or elements one by one."""

    _of = ("BatchProcessor", "KeyedProcessor")

    def __init__(self, name: str, table: _core.ListTable, element: pa.DataType) -> None:
        super().__init__(name)
        self._table = table
        self._one = KeyedOperatorState(name, table, element)
        self._element = element

    def get(self) -> pa.Array:
        """The elements in the order in which they were added."""
        self.write()
        return pa.array(self._ask(self._table.get, _NO_KEY)).flatten()

    @operation
    def add(self, value: Any) -> None:
        """Appends one element, a Python value."""
        self._one.add(value)

    @operation
    def add_all(self, values: Values) -> None:
        """Appends elements: an Arrow, numpy or pandas array, or a list."""
        self._append(self._elements(values))

    @operation
    def update(self, values: Values | None) -> None:
        """Replaces the list; None clears."""
        elements = self._elements([] if is_null(values) else values)  # before the list goes
        self._one.clear()
        self._append(elements)

    @operation
    def clear(self) -> None:
        """Forgets the list."""
        self._one.clear()

    def write(self) -> None:
        """Has the core make the changes that were held back."""
        self._one.write()

    def check(self) -> None:
        super().check()
        self._one.check()

    def _elements(self, values: Values) -> pa.Array:
        if not is_column(values):
            raise InvalidRequest(f"state {self.name!r}, elements: expected a column of several, found {values!r}")
        return arrow_column(values, self._element, f"state {self.name!r}, elements")

    def _append(self, elements: pa.Array) -> None:
        self.write()
        self._run(self._table.append, pa.nulls(len(elements)), elements)
        self._one.begin(1)


LiveBroadcastState: TypeAlias = "KeyedBroadcastState | BatchBroadcastState"
LiveOperatorState: TypeAlias = "LiveBroadcastState | KeyedOperatorState | BatchOperatorState"
