"""States of a KeyedProcessor that hold many things a key: lists and maps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as is_type

from holdfast import _core
from holdfast.errors import InvalidRequest
from holdfast.state.casts import detached, from_python, is_mutable
from holdfast.state.keyed_scope import UNREAD, KeyedState, KeyScope

# In the place of a value: no such entry; and: none, or its value is null, which the core did not tell.
_REMOVED: Any = object()
_NULL_OR_REMOVED: Any = object()
_NO_CHANGES: dict[Any, Any] = {}
_NAN = float("nan")  # one object for all, so that a dict finds it


class KeyedListState(KeyedState):
    """The current key's list. Adding reads nothing."""

    def __init__(self, name: str, scope: KeyScope, table: _core.ListTable, element: pa.DataType) -> None:
        super().__init__(name, scope)
        self._table = table
        self._element = element
        self._mutable = is_mutable(element)
        self._lists: list[Any] = []  # as of now, own additions included, where it was read
        self._added_keys: list[int] = []
        self._added: list[Any] = []
        self._cleared: dict[int, None] = {}

    def get(self) -> list[Any]:
        """The elements in the order in which they were added; an empty list where there are none."""
        index = self._index()
        found = self._lists[index]
        if found is UNREAD:
            self._lists[index:] = self._read(self._table.get, self._scope.from_current())
            found = self._lists[index]
            found.extend(self._added[self._first_of(index) :])
        copy: list[Any] = detached(found) if self._mutable else list(found)
        return copy

    def add(self, value: Any) -> None:
        """Appends one element."""
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        """Appends elements."""
        index = self._index()
        elements = [detached(value) for value in values] if self._mutable else list(values)
        self._added_keys.extend([index] * len(elements))
        self._added.extend(elements)
        if self._lists[index] is not UNREAD:
            self._lists[index].extend(elements)

    def update(self, values: Iterable[Any]) -> None:
        """Replaces the list."""
        elements = list(values)  # before the list goes: they may come from it
        self.clear()
        self.add_all(elements)

    def clear(self) -> None:
        """Forgets the list."""
        index = self._index()
        start = self._first_of(index)
        del self._added_keys[start:], self._added[start:]
        self._cleared[index] = None
        self._lists[index] = []

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def begin(self, size: int) -> None:
        self._lists = [UNREAD] * size
        self._added_keys, self._added, self._cleared = [], [], {}

    def flush(self) -> None:
        keys, added, cleared = self._added_keys, self._added, self._cleared
        self._added_keys, self._added, self._cleared = [], [], {}
        if cleared:
            self._run(self._table.clear, self._scope.some(list(cleared)))
        if keys:
            elements = from_python(added, self._element, f"state {self.name!r}, elements")
            self._scope.moved_bytes += elements.nbytes
            self._run(self._table.append, self._scope.several(keys), elements)

    def _first_of(self, index: int) -> int:
        """Where the current key's additions begin: they are the last."""
        start = len(self._added_keys)
        while start and self._added_keys[start - 1] == index:
            start -= 1
        return start


class KeyedMapState(KeyedState):
    """The current key's map. Getting or setting one entry leaves the others where they are, however many there are."""

    def __init__(self, name: str, scope: KeyScope, table: _core.MapTable, key: pa.DataType, value: pa.DataType) -> None:
        super().__init__(name, scope)
        self._table = table
        self._key = key
        self._value = value
        self._mutable = is_mutable(value)
        self._floating = is_type.is_floating(key)
        self._struct = is_type.is_struct(key)
        self._entries: list[Any] = []  # all entries as pairs, where they were read and not changed since
        self._cleared: dict[int, None] = {}
        self._changes: dict[int, dict[Any, Any]] = {}
        self._known: dict[Any, Any] = {}  # the current key's entries that were looked up
        self._known_index = -1

    def get(self, map_key: Any) -> Any:
        """The entry's value, or None."""
        found = self._look_up(self._index(), [self._hashable(map_key)])[0]
        return None if found is _REMOVED or found is _NULL_OR_REMOVED else detached(found) if self._mutable else found

    def get_all(self, map_keys: Iterable[Any]) -> list[Any]:
        """The values of several entries, None where there is none. One call of the core for all of them."""
        found = self._look_up(self._index(), [self._hashable(map_key) for map_key in map_keys])
        values = [None if value is _REMOVED or value is _NULL_OR_REMOVED else value for value in found]
        return detached(values) if self._mutable else values

    def contains(self, map_key: Any) -> bool:
        """Whether there is such an entry."""
        index = self._index()
        map_key = self._hashable(map_key)
        found = self._look_up(index, [map_key])[0]
        if found is _NULL_OR_REMOVED:
            present = self._run(self._table.contains, self._scope.current(), self._map_keys([map_key]))
            found = self._known[map_key] = None if pa.array(present)[0].as_py() else _REMOVED
        return found is not _REMOVED

    def put(self, map_key: Any, map_value: Any) -> None:
        """Sets an entry."""
        self._change(self._hashable(map_key), detached(map_value) if self._mutable else map_value)

    def put_all(self, entries: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        """Sets entries, from a dict or from pairs."""
        for map_key, map_value in entries.items() if isinstance(entries, Mapping) else entries:
            self.put(map_key, map_value)

    def remove(self, map_key: Any) -> None:
        """Removes an entry; one that is not there is no error."""
        self._change(self._hashable(map_key), _REMOVED)

    def items(self) -> list[tuple[Any, Any]]:
        """All entries as pairs, in the order of the map keys."""
        index = self._index()
        if index in self._changes or index in self._cleared:
            self._flush_some([index])
            self._known_index = -1
            self._entries[index] = self._read(self._table.entries, self._scope.current())[0]
        elif self._entries[index] is UNREAD:
            self._entries[index:] = self._read(self._table.entries, self._scope.from_current())
        entries: list[tuple[Any, Any]] = self._entries[index]
        return detached(entries) if self._mutable else list(entries)

    entries = items

    def keys(self) -> list[Any]:
        """All map keys, in order."""
        return [map_key for map_key, _ in self.items()]

    def values(self) -> list[Any]:
        """All map values, in the order of the map keys."""
        return [map_value for _, map_value in self.items()]

    def is_empty(self) -> bool:
        """Whether there are no entries."""
        return not self.items()

    def clear(self) -> None:
        """Forgets all entries."""
        index = self._index()
        self._changes.pop(index, None)
        self._cleared[index] = None
        self._known = {}

    def __getitem__(self, map_key: Any) -> Any:
        return self.get(map_key)

    def __setitem__(self, map_key: Any, map_value: Any) -> None:
        self.put(map_key, map_value)

    def __delitem__(self, map_key: Any) -> None:
        self.remove(map_key)

    def __contains__(self, map_key: Any) -> bool:
        return self.contains(map_key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def begin(self, size: int) -> None:
        self._entries = [UNREAD] * size
        self._cleared, self._changes = {}, {}
        self._known, self._known_index = {}, -1

    def flush(self) -> None:
        self._flush_some(None)

    def _look_up(self, index: int, map_keys: list[Any]) -> list[Any]:
        """The values as known here, or else from the core; see the objects at the top of this file."""
        changes = self._changes.get(index, _NO_CHANGES)
        if index in self._cleared:
            return [changes.get(map_key, _REMOVED) for map_key in map_keys]
        if index != self._known_index:
            entries = self._entries[index]
            self._known = {} if entries is UNREAD else {self._hashable(key): value for key, value in entries}
            self._known_index = index
        known = self._known
        if self._entries[index] is not UNREAD:
            return [changes[key] if key in changes else known.get(key, _REMOVED) for key in map_keys]
        missing = [key for key in dict.fromkeys(map_keys) if key not in changes and key not in known]
        if missing:
            keys = self._scope.several([index] * len(missing)) if len(missing) > 1 else self._scope.current()
            found = self._read(self._table.get, keys, self._map_keys(missing))
            known.update(zip(missing, [_NULL_OR_REMOVED if value is None else value for value in found]))
        return [changes[key] if key in changes else known[key] for key in map_keys]

    def _map_keys(self, map_keys: list[Any]) -> pa.Array:
        return from_python(map_keys, self._key, f"state {self.name!r}, map keys")

    def _change(self, map_key: Any, value: Any) -> None:
        index = self._index()
        self._changes.setdefault(index, {})[map_key] = value

    def _flush_some(self, indices: list[int] | None) -> None:
        """Writes the changes of these keys, or of all; a key's entries are all different, so their order does not
        matter.
        """
        cleared = [i for i in self._cleared if indices is None or i in indices]
        changed = [i for i in self._changes if indices is None or i in indices]
        for i in cleared:
            del self._cleared[i]
        if cleared:
            self._run(self._table.clear, self._scope.some(cleared))
        removed: tuple[list[int], list[Any]] = ([], [])
        puts: tuple[list[int], list[Any], list[Any]] = ([], [], [])
        for i in changed:
            for map_key, value in self._changes.pop(i).items():
                if value is _REMOVED:
                    removed[0].append(i)
                    removed[1].append(map_key)
                else:
                    puts[0].append(i)
                    puts[1].append(map_key)
                    puts[2].append(value)
        if removed[0]:
            self._run(self._table.remove, self._scope.several(removed[0]), self._map_keys(removed[1]))
        if puts[0]:
            map_keys = self._map_keys(puts[1])
            values = from_python(puts[2], self._value, f"state {self.name!r}, map values")
            self._scope.moved_bytes += map_keys.nbytes + values.nbytes
            self._run(self._table.put, self._scope.several(puts[0]), map_keys, values)

    def _hashable(self, map_key: Any) -> Any:
        if map_key is None:
            raise InvalidRequest(f"state {self.name!r}: a map key is None; expected a {self._key}")
        if self._struct:
            return _as_tuple(map_key, self._key)
        if isinstance(map_key, (bytearray, memoryview)):
            return bytes(map_key)
        if self._floating and map_key != map_key:
            return _NAN
        return map_key


def _as_tuple(value: Any, type: pa.DataType) -> Any:
    """A struct's dict as a tuple, which can be the key of a dict and is a struct to Arrow all the same."""
    if is_type.is_struct(type) and isinstance(value, dict):
        return tuple(_as_tuple(value.get(field.name), field.type) for field in type)
    return value
