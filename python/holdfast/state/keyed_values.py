"""States of a KeyedProcessor that hold one thing a key: values, and what folds into a value."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import pyarrow as pa
import pyarrow.types as is_type

from holdfast import _core
from holdfast.state.batch_states import AggregatingTables, ReducingTables
from holdfast.state.casts import storage_type
from holdfast.state.folds import Fold
from holdfast.state.keyed_scope import NO_KEY, UNREAD, KeyedState, KeyScope
from holdfast.state.live_state import operation
from holdfast.state.python_values import NotKept, detached, keeper, verbatim
from holdfast.state.running_folds import RunningFold


class _Cells(KeyedState):
    """A value a key in a ValueTable, read for all keys to come and written for all keys gone."""

    def __init__(self, name: str, scope: KeyScope, table: _core.ValueTable, stored: pa.DataType) -> None:
        super().__init__(name, scope)
        self._table = table
        self._stored = storage_type(stored)
        self._values: list[Any] = []
        self._written: dict[int, Any] = {}

    def begin(self, size: int) -> None:
        self._values = [UNREAD] * size
        self._written = {}

    @operation
    def flush(self) -> None:
        written, self._written = self._written, {}
        indices, values = list(written), list(written.values())

        def put(first: int, end: int) -> None:
            some = indices[first:end]
            in_arrow = self._asked_arrow(values[first:end], self._stored, some, "")
            self._run(self._table.put, self._scope.some(some), in_arrow)

        self._in_parts(put, len(indices))

    def _fetch(self, index: int) -> Any:
        self._read_ahead(self._table.get, self._values)
        return self._values[index]


class KeyedValueState(_Cells):
    """The current key's value."""

    _elsewhere = {"get": "value()", "put": "update(value)", "contains": "value(), which is None where there is none"}

    def __init__(self, name: str, scope: KeyScope, table: _core.ValueTable, stored: pa.DataType) -> None:
        super().__init__(name, scope, table, stored)
        self._keep, self._verbatim = keeper(stored), verbatim(stored)
        self._mutable = is_type.is_nested(self._stored)

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
        try:
            index = self._scope.index
            if index < 0:
                index = self._index()
            if value.__class__ not in self._verbatim:
                try:
                    value = self._keep(value)
                except NotKept as reason:
                    raise self._refused(value, self._stored, reason) from None
            self._values[index] = self._written[index] = value
        except BaseException as error:  # an operation, without the cost of one
            self.failed(error)
            raise

    def clear(self) -> None:
        """Forgets the value."""
        self.update(None)


class KeyedReducingState(KeyedState):
    """What was added to the current key, reduced to one value."""

    _elsewhere = {"add_only": "add(value)"}

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
        nothing_added: Any = None,
        result: pa.DataType | None = None,
    ) -> None:
        super().__init__(name, scope)
        self._table = table
        self._type = storage_type(type)
        self._keep, self._verbatim = keeper(type), verbatim(type)
        self._running = running
        self._nothing_added = nothing_added
        self._result = self._type if result is None else result  # of what is given out
        self._keep_result = keeper(self._result)
        self._mutable = is_type.is_nested(self._result)
        self._results: list[Any] = []
        self._added_keys: list[int] = []
        self._added: list[Any] = []
        self._adding, self._first = NO_KEY, 0  # who added last, and where in self._added
        self._counted = 0  # how many of self._added are in self._results already

    def add(self, value: Any) -> None:
        try:
            index = self._scope.index
            if index < 0:
                index = self._index()
            if value.__class__ not in self._verbatim:
                try:
                    value = self._keep(value)
                except NotKept as reason:
                    raise self._refused(value, self._type, reason) from None
            if value is None:
                return
            if index != self._adding:
                self._adding, self._first = index, len(self._added)
            self._added_keys.append(index)
            self._added.append(value)
        except BaseException as error:  # an operation, without the cost of one
            self.failed(error)
            raise

    def get(self) -> Any:
        index = self._index()
        if self._results[index] is UNREAD:
            self._read_ahead(self._table.get, self._results)
        start = max(self._first, self._counted)
        if index == self._adding and start < len(self._added):
            self._take_in(index, start)
            if self._results[index] is UNREAD:
                # Read once: the core's own results are one for each value, each as large as the accumulator may be.
                self._results[index] = self._read(self._table.get, self._scope.current())[0]
        found = self._results[index]
        return detached(found) if self._mutable else found

    @operation
    def clear(self) -> None:
        index = self._index()
        self._drop(index)
        self._run(self._table.clear, self._scope.current())
        self._results[index] = self._nothing_added

    def begin(self, size: int) -> None:
        self._results = [UNREAD] * size
        self._forget_added()

    @operation
    def flush(self) -> None:
        keys, added = self._added_keys, self._added
        self._forget_added()

        def add(first: int, end: int) -> None:
            some = keys[first:end]
            in_arrow = self._asked_arrow(added[first:end], self._type, some, "")
            self._run(self._table.add_only, self._scope.several(some), in_arrow)

        self._in_parts(add, len(keys))

    @operation
    def _take_in(self, index: int, start: int) -> None:
        """Brings what the current key added from ``start`` on into its result, or into the core, and the result is to
        be read: a read that is refused then has changed nothing.
        """
        if self._running is not None:
            result = self._results[index]
            for value in self._added[start:]:
                result = self._running(result, value)
            self._counted = len(self._added)
            self._results[index] = self._fitting(result)
            return
        mine = self._added[self._first :]
        self._drop(index)

        def add(first: int, end: int) -> None:
            indices = [index] * (end - first)
            values = self._asked_arrow(mine[first:end], self._type, indices, "")
            self._run(self._table.add_only, self._scope.several(indices), values)

        self._in_parts(add, len(mine))
        self._results[index] = UNREAD

    def _fitting(self, result: Any) -> Any:
        """A sum or product that the type has no place for is refused here as the core refuses it."""
        if result.__class__ is not int or not is_type.is_integer(self._result):
            return result
        try:
            return self._keep_result(result)
        except NotKept as reason:
            raise self._refused(result, self._result, f"the result is too large: {reason}") from None

    def _drop(self, index: int) -> None:
        """Takes back what the current key added and the core was not given."""
        if index == self._adding:
            del self._added_keys[self._first :], self._added[self._first :]
            self._adding = NO_KEY
            self._counted = min(self._counted, len(self._added))

    def _forget_added(self) -> None:
        self._added_keys, self._added, self._counted = [], [], 0
        self._adding, self._first = NO_KEY, 0


class FoldedByPython(_Cells, KeyedAggregatingState):
    """By a Python function, over accumulators as Python values."""

    def __init__(self, name: str, scope: KeyScope, table: _core.ValueTable, fold: Fold) -> None:
        super().__init__(name, scope, table, fold.stored)
        self._fold = fold
        self._keep, self._verbatim = keeper(fold.input_type), verbatim(fold.input_type)
        self._keep_result = keeper(fold.result_type)
        self._keep_stored, self._verbatim_stored = keeper(fold.stored), verbatim(fold.stored)

    @operation
    def add(self, value: Any) -> None:
        index = self._index()
        if value.__class__ not in self._verbatim:
            try:
                value = self._keep(value)
            except NotKept as reason:
                raise self._refused(value, self._fold.input_type, reason) from None
        if value is None:
            return
        self._values[index] = self._written[index] = self._fold.add(self._accumulator(index), value)

    def get(self) -> Any:
        accumulator = self._accumulator(self._index())
        try:
            result = self._fold.result(accumulator)
        except BaseException as error:  # the function may have changed the accumulator
            self.failed(error)
            raise
        try:
            return self._keep_result(result)
        except NotKept as reason:
            raise self._refused(result, self._fold.result_type, reason, ", result") from None

    @operation
    def clear(self) -> None:
        index = self._index()
        self._values[index] = self._written[index] = None

    @operation
    def flush(self) -> None:
        """A function may have changed in `result` what it was given: what the type does not keep of that is refused."""
        for index, accumulator in self._written.items():
            if accumulator.__class__ in self._verbatim_stored:
                continue
            try:
                self._written[index] = self._keep_stored(accumulator)
            except NotKept as reason:
                self._scope.index = index
                raise self._refused(accumulator, self._stored, reason, ", accumulators") from None
        super().flush()

    def _accumulator(self, index: int) -> Any:
        found = self._values[index]
        return self._fetch(index) if found is UNREAD else found
