"""States of a KeyedProcessor that hold many things a key: lists and maps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as is_type

from holdfast import _core
from holdfast.errors import InvalidRequest
from holdfast.state.casts import storage_type
from holdfast.state.keyed_scope import NO_KEY, UNREAD, KeyedState, KeyScope, TooMuch
from holdfast.state.live_state import operation, reading
from holdfast.state.python_values import NotKept, detached, identity, is_null, keeper, verbatim

# In the place of a value: no such entry; and: none, or its value is null, which the core did not tell.
_REMOVED: Any = object()
_NULL_OR_REMOVED: Any = object()
_NO_ENTRIES: dict[Any, tuple[Any, Any]] = {}


class KeyedListState(KeyedState):
    """The current key's list. Adding reads nothing."""

    def __init__(self, name: str, scope: KeyScope, table: _core.ListTable, element: pa.DataType) -> None:
        super().__init__(name, scope)
        self._table = table
        self._element = storage_type(element)
        self._keep, self._verbatim = keeper(element), verbatim(element)
        self._mutable = is_type.is_nested(self._element)
        self._lists: list[Any] = []  # as of now, own additions included, where it was read
        self._added_keys: list[int] = []
        self._added: list[Any] = []
        self._adding, self._first = NO_KEY, 0  # who added last, and where in self._added
        self._cleared: dict[int, None] = {}

    def get(self) -> list[Any]:
        """The elements in the order in which they were added; an empty list where there are none."""
        index = self._index()
        found = self._lists[index]
        if found is UNREAD:
            found = self._fetch(index)
        copy: list[Any] = detached(found) if self._mutable else list(found)
        return copy

    def add(self, value: Any) -> None:
        """Appends one element."""
        try:
            index = self._index()
            if value.__class__ not in self._verbatim:
                value = self._kept(value)
            if index != self._adding:
                self._adding, self._first = index, len(self._added)
            self._added_keys.append(index)
            self._added.append(value)
            if self._lists[index] is not UNREAD:
                self._lists[index].append(value)
        except BaseException as error:  # an operation, without the cost of one
            self.failed(error)
            raise

    @operation
    def add_all(self, values: Iterable[Any]) -> None:
        """Appends elements."""
        self._append(self._index(), [self._kept(value) for value in self._several(values, ", elements")])

    @operation
    def update(self, values: Iterable[Any] | None) -> None:
        """Replaces the list; None clears."""
        self._index()
        several = () if is_null(values) else self._several(values, ", elements")
        elements = [self._kept(value) for value in several]  # before the list goes: they may come from it
        self.clear()
        self._append(self._index(), elements)

    @operation
    def clear(self) -> None:
        """Forgets the list."""
        index = self._index()
        if index == self._adding:
            del self._added_keys[self._first :], self._added[self._first :]
            self._adding = NO_KEY
        self._cleared[index] = None
        self._lists[index] = []

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def begin(self, size: int) -> None:
        self._lists = [UNREAD] * size
        self._forget_changes()

    @operation
    def flush(self) -> None:
        keys, added, cleared = self._added_keys, self._added, self._cleared
        self._forget_changes()
        if cleared:
            self._run(self._table.clear, self._scope.some(list(cleared)))

        def append(first: int, end: int) -> None:
            some = keys[first:end]
            elements = self._asked_arrow(added[first:end], self._element, some, ", elements")
            self._run(self._table.append, self._scope.several(some), elements)

        self._in_parts(append, len(keys))

    @reading
    def _fetch(self, index: int) -> list[Any]:
        self._read_ahead(self._table.get, self._lists)
        found: list[Any] = self._lists[index]
        if index == self._adding:
            found.extend(self._added[self._first :])
        return found

    def _kept(self, value: Any) -> Any:
        try:
            return self._keep(value)
        except NotKept as reason:
            raise self._refused(value, self._element, reason) from None

    def _append(self, index: int, elements: list[Any]) -> None:
        if index != self._adding:
            self._adding, self._first = index, len(self._added)
        self._added_keys.extend([index] * len(elements))
        self._added.extend(elements)
        if self._lists[index] is not UNREAD:
            self._lists[index].extend(elements)

    def _forget_changes(self) -> None:
        self._added_keys, self._added, self._cleared = [], [], {}
        self._adding, self._first = NO_KEY, 0


class KeyedMapState(KeyedState):
    """The current key's map. Getting or setting one entry leaves the others where they are, however many there are.

    Entries are found here by the identity of their map keys (python_values.py), which is the core's, not Python's.
    """

    _elsewhere = {"count": "len(keys())"}

    def __init__(self, name: str, scope: KeyScope, table: _core.MapTable, key: pa.DataType, value: pa.DataType) -> None:
        super().__init__(name, scope)
        self._table = table
        self._key, self._value = storage_type(key), storage_type(value)
        self._keep_key, self._keep_value = keeper(key, whole=True), keeper(value)
        self._verbatim_keys, self._verbatim_values = verbatim(key), verbatim(value)
        self._identity = identity(key)
        self._mutable = is_type.is_nested(self._key) or is_type.is_nested(self._value)
        # Each by identity, as (map key, value): all that the core has of a key, where it was read; and what changed.
        self._entries: list[Any] = []
        self._counts: list[Any] = []  # of all that the core has of a key, where only that was asked
        self._changes: dict[int, dict[Any, tuple[Any, Any]]] = {}
        self._cleared: dict[int, None] = {}
        self._known: dict[Any, Any] = {}  # values of the current key's entries that were looked up one by one
        self._known_index = NO_KEY

    def get(self, map_key: Any) -> Any:
        """The entry's value, or None."""
        index = self._index()
        entry = self._asked_key(map_key)
        changed = self._changes.get(index, _NO_ENTRIES).get(entry[0])
        value = self._unchanged(index, (entry,))[entry[0]] if changed is None else changed[1]
        if value is _REMOVED or value is _NULL_OR_REMOVED:
            return None
        return detached(value) if self._mutable else value

    def get_all(self, map_keys: Iterable[Any]) -> list[Any]:
        """The values of several entries, None where there is none. One call of the core for all of them."""
        index = self._index()
        wanted = [self._asked_key(map_key) for map_key in self._asked_several(map_keys, ", map keys")]
        found = self._look_up(index, wanted)
        values = [None if value is _REMOVED or value is _NULL_OR_REMOVED else value for value in found]
        return [detached(value) for value in values] if self._mutable else values

    def contains(self, map_key: Any) -> bool:
        """Whether there is such an entry."""
        index = self._index()
        kept = self._asked_key(map_key)
        found = self._look_up(index, [kept])[0]
        if found is _NULL_OR_REMOVED:
            map_keys = self._asked_map_keys([kept[1]], [index])
            present = self._read(self._table.contains, self._scope.current(), map_keys)[0]
            found = self._known[kept[0]] = None if present else _REMOVED
        return found is not _REMOVED

    def put(self, map_key: Any, map_value: Any) -> None:
        """Sets an entry."""
        try:
            index = self._index()
            same, kept = self._kept_key(map_key)
            self._changes.setdefault(index, {})[same] = (kept, self._kept_value(map_value))
        except BaseException as error:  # an operation, without the cost of one
            self.failed(error)
            raise

    @operation
    def put_all(self, entries: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        """Sets entries, from a dict or from pairs."""
        index = self._index()
        pairs = entries.items() if isinstance(entries, Mapping) else self._several(entries, ", entries")
        kept = []
        for pair in pairs:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise self._refused(pair, pa.map_(self._key, self._value), "it is no pair", ", entries")
            kept.append((self._kept_key(pair[0]), self._kept_value(pair[1])))
        changes = self._changes.setdefault(index, {})
        for (same, map_key), value in kept:
            changes[same] = (map_key, value)

    def remove(self, map_key: Any) -> None:
        """Removes an entry; one that is not there is no error."""
        try:
            index = self._index()
            same, kept = self._kept_key(map_key)
            self._changes.setdefault(index, {})[same] = (kept, _REMOVED)
        except BaseException as error:  # an operation, without the cost of one
            self.failed(error)
            raise

    def items(self) -> list[tuple[Any, Any]]:
        """All entries as pairs, in the order of the map keys."""
        entries = list(self._all(self._index()).values())
        return [detached(entry) for entry in entries] if self._mutable else entries

    entries = items

    def keys(self) -> list[Any]:
        """All map keys, in order."""
        return [map_key for map_key, _ in self.items()]

    def values(self) -> list[Any]:
        """All map values, in the order of the map keys."""
        return [map_value for _, map_value in self.items()]

    def is_empty(self) -> bool:
        """Whether there are no entries. They are counted in the core, and stay there."""
        index = self._index()
        changes = self._changes.get(index, _NO_ENTRIES)
        is_put = any(value is not _REMOVED for _, value in changes.values())
        if index in self._cleared or (is_put and self.reads_ahead):  # otherwise asking is what keeps entries alive
            return not is_put
        if self._entries[index] is not UNREAD:
            return not is_put and self._entries[index].keys() <= changes.keys()
        if changes:
            self._write_now(index)
        if self._counts[index] is UNREAD:
            self._read_ahead(self._table.count, self._counts)
        return not self._counts[index]

    @operation
    def clear(self) -> None:
        """Forgets all entries."""
        index = self._index()
        self._changes.pop(index, None)
        self._cleared[index] = None

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
        self._entries, self._counts = [UNREAD] * size, [UNREAD] * size
        self._cleared, self._changes = {}, {}
        self._known, self._known_index = {}, NO_KEY

    @operation
    def flush(self) -> None:
        cleared, changes = self._cleared, self._changes
        self._cleared, self._changes = {}, {}
        self._write(list(cleared), changes)

    def _all(self, index: int) -> dict[Any, tuple[Any, Any]]:
        """All entries by identity, in the order of the map keys, which is the core's to say."""
        if index in self._changes or index in self._cleared:
            self._write_now(index)
            self._entries[index] = self._by_identity(self._read(self._table.entries, self._scope.current())[0])
        elif self._entries[index] is UNREAD:
            self._read_ahead(self._table.entries, self._entries, self._by_identity)
        entries: dict[Any, tuple[Any, Any]] = self._entries[index]
        return entries

    @operation
    def _write_now(self, index: int) -> None:
        """Hands what the current key changed to the core, to be asked there."""
        cleared = [index] if index in self._cleared else []
        self._cleared.pop(index, None)
        # What was known of the key is no more, also if the read fails and the processor catches that.
        self._entries[index], self._counts[index], self._known_index = UNREAD, UNREAD, NO_KEY
        self._write(cleared, {index: self._changes.pop(index, {})})

    def _by_identity(self, entries: list[tuple[Any, Any]]) -> dict[Any, tuple[Any, Any]]:
        same = self._identity
        return {entry[0] if same is None else same(entry[0]): entry for entry in entries}

    def _look_up(self, index: int, wanted: list[tuple[Any, Any]]) -> list[Any]:
        """The values as known here, or else from the core; see the objects at the top of this file."""
        changes = self._changes.get(index, _NO_ENTRIES)
        unchanged = self._unchanged(index, [entry for entry in wanted if entry[0] not in changes])
        return [changes[same][1] if same in changes else unchanged[same] for same, _ in wanted]

    def _unchanged(self, index: int, wanted: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
        """Values of these entries without the current key's changes, by identity."""
        if index in self._cleared:
            return {same: _REMOVED for same, _ in wanted}
        entries = self._entries[index]
        if entries is not UNREAD:
            return {same: entries[same][1] if same in entries else _REMOVED for same, _ in wanted}
        if index != self._known_index:
            self._known, self._known_index = {}, index
        missing = {same: map_key for same, map_key in wanted if same not in self._known}
        if missing:
            found = self._fetched(index, list(missing.values()))
            self._known.update(zip(missing, [_NULL_OR_REMOVED if value is None else value for value in found]))
        return self._known

    @reading
    def _fetched(self, index: int, map_keys: list[Any]) -> list[Any]:
        """Values of the current key's entries from the core, by halves where its key so many times is too much."""
        indices = [index] * len(map_keys)
        try:
            keys = self._scope.several(indices) if len(map_keys) > 1 else self._scope.current()
            in_arrow = self._asked_map_keys(map_keys, indices)
        except TooMuch:
            middle = len(map_keys) // 2
            return self._fetched(index, map_keys[:middle]) + self._fetched(index, map_keys[middle:])
        return self._read(self._table.get, keys, in_arrow)

    def _write(self, cleared: list[int], changes: dict[int, dict[Any, tuple[Any, Any]]]) -> None:
        """A key's entries are all different, so their order does not matter, but clearing comes first."""
        if cleared:
            self._run(self._table.clear, self._scope.some(cleared))
        every = [(index, map_key, value) for index, of in changes.items() for map_key, value in of.values()]
        removed = [entry for entry in every if entry[2] is _REMOVED]
        written = [entry for entry in every if entry[2] is not _REMOVED]

        def remove(first: int, end: int) -> None:
            indices, map_keys, _ = map(list, zip(*removed[first:end]))
            self._run(self._table.remove, self._scope.several(indices), self._asked_map_keys(map_keys, indices))

        def put(first: int, end: int) -> None:
            indices, map_keys, map_values = map(list, zip(*written[first:end]))
            keys, in_arrow = self._scope.several(indices), self._asked_map_keys(map_keys, indices)
            values = self._asked_arrow(map_values, self._value, indices, ", map values")
            self._run(self._table.put, keys, in_arrow, values)

        self._in_parts(remove, len(removed))
        self._in_parts(put, len(written))

    def _asked_map_keys(self, map_keys: list[Any], indices: list[int]) -> pa.Array:
        return self._asked_arrow(map_keys, self._key, indices, ", map keys")

    def _kept_key(self, map_key: Any) -> tuple[Any, Any]:
        """The map key of a change."""
        try:
            return self._asked_key(map_key)
        except InvalidRequest as error:
            raise self.failed(error) from None

    def _asked_key(self, map_key: Any) -> tuple[Any, Any]:
        """A map key's identity, and what is kept of it."""
        kept = map_key
        if map_key is None or map_key.__class__ not in self._verbatim_keys:
            try:
                kept = self._keep_key(map_key)
            except NotKept as reason:
                raise self._refusal(map_key, self._key, reason, ", map keys") from None
            if kept is None:
                raise self._refusal(map_key, self._key, "a map key is never null", ", map keys")
        return (kept, kept) if self._identity is None else (self._identity(kept), kept)

    def _kept_value(self, map_value: Any) -> Any:
        if map_value.__class__ in self._verbatim_values:
            return map_value
        try:
            return self._keep_value(map_value)
        except NotKept as reason:
            raise self._refused(map_value, self._value, reason, ", map values") from None
