"""States of a KeyedProcessor that hold one thing a key: values, and what folds into a value."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import pyarrow as pa

from holdfast import _core
from holdfast.state.batch_states import AggregatingTables, ReducingTables
from holdfast.state.casts import detached, from_python, is_mutable
from holdfast.state.folds import Fold
from holdfast.state.keyed_scope import UNREAD, KeyedState, KeyScope
from holdfast.state.running_folds import RunningFold


class _Cells(KeyedState):
    """A value a key in a ValueTable, read for all keys to come and written for all keys gone."""

    def __init__(self, name: str, scope: KeyScope, table: _core.ValueTable, stored: pa.DataType) -> None:
        super().__init__(name, scope)
        self._table = table
        self._stored = stored
        self._values: list[Any] = []
        self._written: dict[int, Any] = {}

    def begin(self, size: int) -> None:
        self._values = [UNREAD] * size
        self._written = {}

    def flush(self) -> None:
        written, self._written = self._written, {}
        if not written:
            return
        values = from_python(list(written.values()), self._stored, f"state {self.name!r}")
        self._scope.moved_bytes += values.nbytes
        self._run(self._table.put, self._scope.some(list(written)), values)

    def _fetch(self, index: int) -> Any:
        self._values[index:] = self._read(self._table.get, self._scope.from_current())
        return self._values[index]


class KeyedValueState(_Cells):
    """The current key's value."""

    def __init__(self, name: str, scope: KeyScope, table: _core.ValueTable, stored: pa.DataType) -> None:
        super().__init__(name, scope, table, stored)
        self._mutable = is_mutable(stored)

    def value(self) -> Any:
        """The value, or None."""
        index = self._scope.index
        if index < 0:
            index = self._index()
        found = self._values[index]
        if found is UNREAD:
            found = self._fetch(index)
        return detached(found) if self._mutable else found

    def update(self, value: Any) -> None:
        """Sets the value; None clears."""
        index = self._scope.index
        if index < 0:
            index = self._index()
        if self._mutable:
            value = detached(value)
        self._values[index] = self._written[index] = value

    def clear(self) -> None:
        """Forgets the value."""
        self.update(None)


class KeyedReducingState(KeyedState):
    """What was added to the current key, reduced to one value."""

    @abstractmethod
    def add(self, value: Any) -> None:
        """Adds a value; None adds nothing."""

    @abstractmethod
    def get(self) -> Any:
        """The result, or None where nothing was added."""

    @abstractmethod
    def clear(self) -> None:
        """Forgets what was added."""


class KeyedAggregatingState(KeyedReducingState):
    """What was added to the current key, aggregated; the result may be of another type."""


class FoldedByCore(KeyedAggregatingState):
    """By a function of the core, or by sketches: added values are gathered, and folded there when the chunk ends.

    A result that is asked for in between is computed here where Python computes exactly alike, else by the core.
    """

    def __init__(
        self,
        name: str,
        scope: KeyScope,
        table: ReducingTables | AggregatingTables,
        type: pa.DataType,
        running: RunningFold | None = None,
    ) -> None:
        super().__init__(name, scope)
        self._table = table
        self._type = type
        self._running = running
        self._mutable = is_mutable(type)
        self._results: list[Any] = []
        self._added_keys: list[int] = []
        self._added: list[Any] = []
        self._counted = 0  # how many of self._added are in self._results already

    def add(self, value: Any) -> None:
        index = self._scope.index
        if index < 0:
            index = self._index()
        if value is not None:
            self._added_keys.append(index)
            self._added.append(detached(value) if self._mutable else value)

    def get(self) -> Any:
        index = self._index()
        if self._results[index] is UNREAD:
            self._results[index:] = self._read(self._table.get, self._scope.from_current())
        start = max(self._first_of(index), self._counted)
        if start < len(self._added):
            self._results[index] = self._result_after(self._results[index], index, start)
        return self._results[index]

    def clear(self) -> None:
        index = self._index()
        self._drop(index)
        self._run(self._table.clear, self._scope.current())
        self._results[index] = None

    def begin(self, size: int) -> None:
        self._results = [UNREAD] * size
        self._added_keys, self._added, self._counted = [], [], 0

    def flush(self) -> None:
        keys, added = self._added_keys, self._added
        self._added_keys, self._added, self._counted = [], [], 0
        if keys:
            values = from_python(added, self._type, f"state {self.name!r}")
            self._scope.moved_bytes += values.nbytes
            self._run(self._table.add_only, self._scope.several(keys), values)

    def _result_after(self, result: Any, index: int, start: int) -> Any:
        """The result with what the current key added from ``start`` on."""
        mine = self._added[start:]
        if self._running is not None and self._running.accepts.issuperset(map(type, mine)):
            for value in mine:
                result = self._running.fold(result, value)
            self._counted = len(self._added)
            return result
        mine = self._added[self._first_of(index) :]
        self._drop(index)
        values = from_python(mine, self._type, f"state {self.name!r}")
        results = self._run(self._table.add, self._scope.several([index] * len(mine)), values)
        return pa.array(results)[-1].as_py()

    def _first_of(self, index: int) -> int:
        """Where the current key's values begin: they are the last."""
        start = len(self._added_keys)
        while start and self._added_keys[start - 1] == index:
            start -= 1
        return start

    def _drop(self, index: int) -> None:
        start = self._first_of(index)
        del self._added_keys[start:], self._added[start:]
        self._counted = min(self._counted, start)


class FoldedByPython(_Cells, KeyedAggregatingState):
    """By a Python function, over accumulators as Python values."""

    def __init__(self, name: str, scope: KeyScope, table: _core.ValueTable, fold: Fold) -> None:
        super().__init__(name, scope, table, fold.stored)
        self._fold = fold
        self._mutable = is_mutable(fold.result_type)
        self._keeps_values = is_mutable(fold.stored)

    def add(self, value: Any) -> None:
        index = self._index()
        if value is not None:
            accumulator = self._fold.add(self._accumulator(index), detached(value) if self._keeps_values else value)
            self._values[index] = self._written[index] = accumulator

    def get(self) -> Any:
        result = self._fold.result(self._accumulator(self._index()))
        return detached(result) if self._mutable else result

    def clear(self) -> None:
        index = self._index()
        self._values[index] = self._written[index] = None

    def _accumulator(self, index: int) -> Any:
        found = self._values[index]
        return self._fetch(index) if found is UNREAD else found
