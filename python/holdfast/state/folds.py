"""Reducing and aggregating by Python functions, over a ValueTable of accumulators.

Keys are factorised first: one lookup, one load and one dump a distinct key and batch, one call of the function a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

from holdfast import _core
from holdfast.errors import InvalidRequest
from holdfast.state.aggregate_function import AggregateFunction
from holdfast.state.casts import storage_type
from holdfast.state.columns import CoreKeys
from holdfast.state.python_values import NotKept, from_python, keeper, python_of, refusal, verbatim


class Fold(Protocol):
    """How rows are folded into what is stored. An accumulator of None means that there is none yet."""

    input_type: pa.DataType
    stored: pa.DataType
    result_type: pa.DataType

    def inputs(self, values: pa.Array) -> list[Any]: ...  # None: a row that changes nothing
    def load(self, stored: Any) -> Any: ...
    def dump(self, accumulator: Any) -> Any: ...
    def add(self, accumulator: Any, value: Any) -> Any: ...
    def result(self, accumulator: Any) -> Any: ...


class ReducingFold:
    """``function(a, b)`` over values that are stored as they are."""

    def __init__(self, name: str, type: pa.DataType, function: Callable[[Any, Any], Any]) -> None:
        self.input_type = self.stored = self.result_type = storage_type(type)
        self._name = name
        self._function = function
        self._keep, self._verbatim = keeper(type), verbatim(type)

    def inputs(self, values: pa.Array) -> list[Any]:
        return python_of(values, f"state {self._name!r}, values")

    def load(self, stored: Any) -> Any:
        return stored

    def dump(self, accumulator: Any) -> Any:
        return accumulator

    def add(self, accumulator: Any, value: Any) -> Any:
        if accumulator is None:
            return value
        reduced = kept = self._function(accumulator, value)
        if reduced.__class__ not in self._verbatim:
            try:
                kept = self._keep(reduced)  # as it would be read in the next batch
            except NotKept as reason:
                what = f"state {self._name!r}, the function's result for {accumulator!r} and {value!r}"
                raise refusal(what, self.stored, reduced, reason) from None
        if kept is None:  # of which there are several words, and the key would be forgotten
            raise InvalidRequest(
                f"state {self._name!r}: its function returned {reduced!r} for {accumulator!r} and {value!r}; "
                f"expected a {self.stored}"
            )
        return kept

    def result(self, accumulator: Any) -> Any:
        return accumulator


class AggregatingFold:
    """A user's :class:`AggregateFunction`."""

    def __init__(
        self, name: str, type: pa.DataType, function: AggregateFunction[Any], stored: pa.DataType, result: pa.DataType
    ) -> None:
        self.input_type = storage_type(type)
        self.stored = storage_type(stored)
        self.result_type = storage_type(result)
        self._name = name
        self._function = function
        self._keep, self._verbatim = keeper(stored), verbatim(stored)

    def inputs(self, values: pa.Array) -> list[Any]:
        return python_of(values, f"state {self._name!r}, values")

    def load(self, stored: Any) -> Any:
        return stored

    def dump(self, accumulator: Any) -> Any:
        return accumulator

    def add(self, accumulator: Any, value: Any) -> Any:
        if accumulator is None:
            accumulator = self._kept(self._function.create())
        added = self._kept(self._function.add(accumulator, value))
        if added is None:
            raise InvalidRequest(
                f"state {self._name!r}: {type(self._function).__name__}.add returned None; it must return the "
                f"accumulator, a {self.stored}"
            )
        return added

    def result(self, accumulator: Any) -> Any:
        return None if accumulator is None else self._function.result(accumulator)

    def _kept(self, accumulator: Any) -> Any:
        """As it would be read in the next batch: the function's own could be of another class, or more exact."""
        if accumulator.__class__ in self._verbatim:
            return accumulator
        try:
            return self._keep(accumulator)
        except NotKept as reason:
            raise refusal(f"state {self._name!r}, accumulators", self.stored, accumulator, reason) from None


class FoldTable:
    """The calls of the core's ReducingTable and AggregatingTable, by a :class:`Fold`."""

    def __init__(self, name: str, store: _core.Store, table: _core.ValueTable, fold: Fold) -> None:
        self._name = name
        self._store = store
        self._table = table
        self._fold = fold
        self._keep_result = keeper(fold.result_type)

    def add(self, keys: CoreKeys, values: pa.Array) -> pa.Array:
        """Folds each row, in order; the result after each."""
        running: list[Any] = []
        self._add(keys, values, running)
        return from_python(running, self._fold.result_type, f"state {self._name!r}, results")

    def add_only(self, keys: CoreKeys, values: pa.Array) -> None:
        """Folds each row, in order, and asks for no result."""
        self._add(keys, values, None)

    def get(self, keys: CoreKeys) -> pa.Array:
        """The result for each row's key, null where there is none."""
        codes, first_rows = self._store.distinct(keys)
        fold = self._fold
        stored = self._stored(keys.take(pa.array(first_rows)))
        results = [None if value is None else fold.result(fold.load(value)) for value in stored]
        return from_python(results, fold.result_type, f"state {self._name!r}, results").take(pa.array(codes))

    def clear(self, keys: CoreKeys) -> None:
        """Forgets each row's key."""
        self._table.clear(keys)

    def _stored(self, keys: CoreKeys) -> list[Any]:
        return python_of(pa.array(self._table.get(keys)), f"state {self._name!r}, accumulators")

    def _result(self, accumulator: Any, row: int) -> Any:
        """As it is now: later rows may change the accumulator, and what it gave away with it."""
        result = self._fold.result(accumulator)
        try:
            return self._keep_result(result)
        except NotKept as reason:
            what = f"state {self._name!r}, results"
            raise refusal(what, self._fold.result_type, result, reason, f" at position {row}") from None

    def _add(self, keys: CoreKeys, values: pa.Array, running: list[Any] | None) -> None:
        fold = self._fold
        core_codes, core_first_rows = self._store.distinct(keys)
        distinct = keys.take(pa.array(core_first_rows))
        accumulators = [None if value is None else fold.load(value) for value in self._stored(distinct)]
        changed: dict[int, None] = {}
        for code, value in zip(pa.array(core_codes).to_pylist(), fold.inputs(values)):
            if value is not None:
                accumulators[code] = fold.add(accumulators[code], value)
                changed[code] = None
            if running is not None:
                running.append(self._result(accumulators[code], len(running)))
        if changed:
            dumped = from_python(
                [fold.dump(accumulators[code]) for code in changed], fold.stored, f"state {self._name!r}, accumulators"
            )
            self._table.put(distinct.take(pa.array(list(changed), pa.int32())), dumped)
