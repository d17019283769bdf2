"""States as a user declares them: class attributes of a processor that read like a dataclass.

A declaration is a descriptor. Read from an instance while Holdfast runs it, it gives the live state: a vectorised one
(arrays of keys) in a BatchProcessor, the current key's in a KeyedProcessor. At any other time it raises
InvalidRequest. Declarations hold no live state, so processors can be pickled to executors.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias, TypeVar, get_args, overload

import pyarrow as pa
import pyarrow.types as is_type

from holdfast import _core
from holdfast.errors import HoldfastError, InvalidRequest
from holdfast.state.aggregate_function import AGGREGATE_METHODS, AggregateFunction
from holdfast.state.batch_states import (
    BatchAggregatingState,
    BatchListState,
    BatchMapState,
    BatchReducingState,
    BatchValueState,
)
from holdfast.state.casts import storage_type
from holdfast.state.columns import KeyColumns
from holdfast.state.fields import FieldMark, without_marks
from holdfast.state.folds import AggregatingFold, FoldTable, ReducingFold
from holdfast.state.keyed_collections import KeyedListState, KeyedMapState
from holdfast.state.keyed_scope import KeyedState, KeyScope
from holdfast.state.keyed_values import (
    FoldedByCore,
    FoldedByPython,
    KeyedAggregatingState,
    KeyedReducingState,
    KeyedValueState,
)
from holdfast.state.live_state import LiveState
from holdfast.state.running_folds import nothing_added, running_fold
from holdfast.state.sketch import SketchFold, counting_codec, load_library
from holdfast.state.ttl import TTL

if TYPE_CHECKING:
    from holdfast.state.processor import BatchProcessor, KeyedProcessor, Processor

ReducingFunction: TypeAlias = Literal["sum", "min", "max", "product", "first", "last", "bool_and", "bool_or"]
AggregatingFunction: TypeAlias = Literal["count", "avg", "variance", "stddev", "approx_count_distinct"]
REDUCING_FUNCTIONS: tuple[str, ...] = get_args(ReducingFunction)
SKETCH_FUNCTION = "approx_count_distinct"
AGGREGATING_FUNCTIONS = tuple(name for name in get_args(AggregatingFunction) if name != SKETCH_FUNCTION)  # by the core
PYTHON_FUNCTION = "python"  # what is recorded for a function of the user's own: its code is not

BOUND_STATES = "_holdfast_states"  # in the __dict__ of a processor while it runs

Vectorised = TypeVar("Vectorised", bound=LiveState)
PerKey = TypeVar("PerKey", bound=KeyedState)
Self = TypeVar("Self")

GivenTTL: TypeAlias = "TTL | str | int | timedelta | None"

_CLASS = type  # parameters called type hide it
_declared = itertools.count()


class StateDeclaration(ABC, Generic[Vectorised, PerKey]):
    """A state's name, kind and types.

    Attributes
    ----------
    kind
        "value", "list", "map", "reducing", "aggregating"; "timers"; "broadcast", "operator".
    name
        Name of the class attribute; it identifies the state for as long as the operator lives, or is renamed.
    earlier_name
        The name that it had before: :func:`renamed_from`.
    ttl
        How long what it holds lives (:class:`TTL`); None: until it is cleared. It may be added, changed and taken away
        at any restart.
    """

    kind: ClassVar[str]

    def __init__(self, ttl: GivenTTL = None) -> None:
        self.name = ""
        self.earlier_name: str | None = None
        self.ttl = TTL.of(ttl)
        #: What is said of fields of its values: (path from a role of `types` on, what, earlier name, row of a default).
        self.field_marks: list[FieldMark] = []
        self._owner = ""
        self.order = next(_declared)  # a pickled class does not keep the order of its attributes

    def _kept(self, kind: Any, role: str, where: str) -> pa.DataType:
        """The type of a role, if the core keeps it, as values have it; what it says of fields is noted."""
        plain, marks = without_marks(kind, where)
        self.field_marks += [((role, *path), what, name, row) for path, what, name, row in marks]
        return kept_type(plain, where)

    @property
    @abstractmethod
    def types(self) -> dict[str, pa.DataType]:
        """The Arrow types by role, as recorded with the operator."""

    @property
    def function_name(self) -> str | None:
        """The function as recorded with the operator, for states that have one."""
        return None

    @abstractmethod
    def bind_batch(self, store: _core.Store, state_id: int, keys: KeyColumns) -> Vectorised:
        """The live state for vectorised use."""

    @abstractmethod
    def bind_keyed(self, store: _core.Store, state_id: int, scope: KeyScope) -> PerKey:
        """The live state of the current key."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self._owner = name, owner.__qualname__

    @overload
    def __get__(self: Self, processor: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, processor: BatchProcessor, owner: type | None = None) -> Vectorised: ...
    @overload
    def __get__(self, processor: KeyedProcessor, owner: type | None = None) -> PerKey: ...
    def __get__(self, processor: Processor | None, owner: type | None = None) -> Any:
        if processor is None:
            return self
        states = processor.__dict__.get(BOUND_STATES)
        if states is None:
            raise InvalidRequest(
                f"state {self.name!r} of {type(processor).__name__} used outside a call of process: "
                "states live only while Holdfast runs the processor on a slot of a batch; "
                "use them in process (or in open, for a BatchProcessor)"
            )
        return states[self.name]

    def __set__(self, processor: Any, value: Any) -> None:
        raise InvalidRequest(
            f"state {self.name!r} of {type(processor).__name__} is declared in its class and cannot be assigned; "
            "call its methods, or choose another name for the attribute"
        )

    def __repr__(self) -> str:
        types = ", ".join(f"{role}: {type}" for role, type in self.types.items())
        return f"{type(self).__name__}({self.name!r}, {types}{', ' + self.function_name if self.function_name else ''})"


class ValueState(StateDeclaration[BatchValueState, KeyedValueState]):
    """One value of ``type`` a key.

    In a BatchProcessor: ``get(keys)``, ``put(keys, values)``, ``contains(keys)``, ``clear(keys)``. In a KeyedProcessor:
    ``value()``, ``update(value)``, ``clear()``.
    """

    kind = "value"

    def __init__(self, type: pa.DataType, *, ttl: GivenTTL = None) -> None:
        super().__init__(ttl)
        self.type = self._kept(type, "value", "ValueState(type)")

    @property
    def types(self) -> dict[str, pa.DataType]:
        return {"value": self.type}

    def bind_batch(self, store: _core.Store, state_id: int, keys: KeyColumns) -> BatchValueState:
        return BatchValueState(self.name, keys, store.value_state(state_id, self.type), self.type)

    def bind_keyed(self, store: _core.Store, state_id: int, scope: KeyScope) -> KeyedValueState:
        return KeyedValueState(self.name, scope, store.value_state(state_id, self.type), self.type)


class ListState(StateDeclaration[BatchListState, KeyedListState]):
    """A list of ``element`` a key.

    Each element is stored by itself: appending to a long list costs no more than to a short one.

    In a BatchProcessor: ``get(keys)``, ``add(keys, values)``, ``add_all(keys, lists)``, ``update(keys, lists)``,
    ``clear(keys)``.
    In a KeyedProcessor: ``get()``, ``add(value)``, ``add_all(values)``, ``update(values)``, ``clear()``.
    """

    kind = "list"

    def __init__(self, element: pa.DataType, *, ttl: GivenTTL = None) -> None:
        super().__init__(ttl)
        self.element = self._kept(element, "element", "ListState(element)")

    @property
    def types(self) -> dict[str, pa.DataType]:
        return {"element": self.element}

    def bind_batch(self, store: _core.Store, state_id: int, keys: KeyColumns) -> BatchListState:
        return BatchListState(self.name, keys, store, store.list_state(state_id, self.element), self.element)

    def bind_keyed(self, store: _core.Store, state_id: int, scope: KeyScope) -> KeyedListState:
        return KeyedListState(self.name, scope, store.list_state(state_id, self.element), self.element)


class MapState(StateDeclaration[BatchMapState, KeyedMapState]):
    """A map from ``key`` to ``value`` a key. Each entry is stored by itself.

    In a BatchProcessor: ``get(keys, map_keys)``, ``put(keys, map_keys, map_values)``, ``contains(keys, map_keys)``,
    ``remove(keys, map_keys)``, ``entries(keys)``, ``keys(keys)``, ``values(keys)``, ``count(keys)``,
    ``is_empty(keys)``, ``clear(keys)``. In a KeyedProcessor: ``get(k)``, ``get_all(ks)``, ``put(k, v)``,
    ``put_all(entries)``, ``contains(k)``, ``remove(k)``, ``items()``, ``entries()``, ``keys()``, ``values()``,
    ``is_empty()``, ``clear()``, and ``state[k]``, ``k in state``.
    """

    kind = "map"

    def __init__(self, key: pa.DataType, value: pa.DataType, *, ttl: GivenTTL = None) -> None:
        super().__init__(ttl)
        self.key = kept_type(key, "MapState(key)", _core.KeyCodec)
        self.value = self._kept(value, "value", "MapState(value)")

    @property
    def types(self) -> dict[str, pa.DataType]:
        return {"key": self.key, "value": self.value}

    def bind_batch(self, store: _core.Store, state_id: int, keys: KeyColumns) -> BatchMapState:
        return BatchMapState(self.name, keys, store.map_state(state_id, self.key, self.value), self.key, self.value)

    def bind_keyed(self, store: _core.Store, state_id: int, scope: KeyScope) -> KeyedMapState:
        return KeyedMapState(self.name, scope, store.map_state(state_id, self.key, self.value), self.key, self.value)


class ReducingState(StateDeclaration[BatchReducingState, KeyedReducingState]):
    """One value of ``type`` a key, to which values of the same type are added.

    In a BatchProcessor: ``add(keys, values)`` gives the result after each row, ``add_only(keys, values)``,
    ``get(keys)``, ``clear(keys)``. In a KeyedProcessor: ``add(value)``, ``get()``, ``clear()``.

    Parameters
    ----------
    type
        Of the values and of the result.
    function
        "sum", "min", "max", "product", "first", "last", "bool_and" or "bool_or", which run in the core; or a Python
        function of two values, which runs once a row. It must be associative and, as any code of a processor, give the
        same for the same.
    """

    kind = "reducing"

    def __init__(
        self, type: pa.DataType, function: ReducingFunction | Callable[[Any, Any], Any], *, ttl: GivenTTL = None
    ) -> None:
        super().__init__(ttl)
        self.type = self._kept(type, "value", "ReducingState(type)")
        self.function = function
        if isinstance(function, str):
            _check_name(function, REDUCING_FUNCTIONS, "ReducingState", "a Python function of two values")
            _check_function("ReducingState", _probe().reducing_state, self.type, function)
        elif not callable(function) or isinstance(function, _CLASS):
            raise InvalidRequest(
                f"ReducingState: function is {function!r}; "
                f"expected a name ({', '.join(REDUCING_FUNCTIONS)}) or a function (a, b)"
            )

    @property
    def types(self) -> dict[str, pa.DataType]:
        return {"value": self.type}

    @property
    def function_name(self) -> str | None:
        return self.function if isinstance(self.function, str) else PYTHON_FUNCTION

    def bind_batch(self, store: _core.Store, state_id: int, keys: KeyColumns) -> BatchReducingState:
        if isinstance(self.function, str):
            return BatchReducingState(
                self.name, keys, store.reducing_state(state_id, self.type, self.function), self.type
            )
        fold = ReducingFold(self.name, self.type, self.function)
        return BatchReducingState(
            self.name, keys, FoldTable(self.name, store, store.value_state(state_id, fold.stored), fold), self.type
        )

    def bind_keyed(self, store: _core.Store, state_id: int, scope: KeyScope) -> KeyedReducingState:
        if isinstance(self.function, str):
            table = store.reducing_state(state_id, self.type, self.function)
            running = running_fold(self.function, storage_type(self.type))
            return FoldedByCore(self.name, scope, table, self.type, running)
        fold = ReducingFold(self.name, self.type, self.function)
        return FoldedByPython(self.name, scope, store.value_state(state_id, fold.stored), fold)


class AggregatingState(StateDeclaration[BatchAggregatingState, KeyedAggregatingState]):
    """An aggregate of values of ``type`` a key.

    In a BatchProcessor: ``add(keys, values)`` gives the result after each row, ``add_only(keys, values)``,
    ``get(keys)``, ``clear(keys)``. In a KeyedProcessor: ``add(value)``, ``get()``, ``clear()``.

    Parameters
    ----------
    type
        Of the values that are added.
    function
        "count" (result int64), "avg", "variance", "stddev" (double; of a sample), which run in the core;
        "approx_count_distinct" (int64), which needs the extra ``holdfast-spark[sketch]``; or a class with the methods
        of :class:`AggregateFunction`.
    accumulator, result
        For a class: the Arrow types of what is stored and of what ``result`` returns.
    """

    kind = "aggregating"

    def __init__(
        self,
        type: pa.DataType,
        function: AggregatingFunction | type[Any],
        accumulator: pa.DataType | None = None,
        result: pa.DataType | None = None,
        *,
        ttl: GivenTTL = None,
    ) -> None:
        super().__init__(ttl)
        self.type = kept_type(type, "AggregatingState(type)")
        self.function = function
        self.accumulator = accumulator
        self.result = result
        if isinstance(function, str):
            _check_name(
                function,
                (*AGGREGATING_FUNCTIONS, SKETCH_FUNCTION),
                "AggregatingState",
                "a class with create, add and result",
            )
            if accumulator is not None or result is not None:
                raise InvalidRequest(
                    f"AggregatingState: {function!r} knows its accumulator and result; leave both arguments out"
                )
            if function == SKETCH_FUNCTION:
                load_library()
                counting_codec(type)
            else:
                _check_function("AggregatingState", _probe().aggregating_state, type, function)
            return
        missing = [method for method in AGGREGATE_METHODS if not callable(getattr(function, method, None))]
        if missing:
            raise InvalidRequest(
                f"AggregatingState: {function!r} has no {' and no '.join(missing)}; "
                f"expected a name ({', '.join((*AGGREGATING_FUNCTIONS, SKETCH_FUNCTION))}) "
                "or a class with create, add and result"
            )
        if accumulator is None or result is None:
            raise InvalidRequest(
                "AggregatingState: a class needs accumulator= and result=, "
                "the Arrow types of what is stored and of the result"
            )
        self.accumulator = self._kept(accumulator, "accumulator", "AggregatingState(accumulator)")
        kept_type(result, "AggregatingState(result)")

    @property
    def types(self) -> dict[str, pa.DataType]:
        types = {"value": self.type}
        if self.accumulator is not None and self.result is not None:
            types.update(accumulator=self.accumulator, result=self.result)
        return types

    @property
    def function_name(self) -> str | None:
        return self.function if isinstance(self.function, str) else PYTHON_FUNCTION

    def bind_batch(self, store: _core.Store, state_id: int, keys: KeyColumns) -> BatchAggregatingState:
        if self.function == SKETCH_FUNCTION:
            return BatchAggregatingState(self.name, keys, self._sketches(store, state_id), self.type)
        if isinstance(self.function, str):
            return BatchAggregatingState(
                self.name, keys, store.aggregating_state(state_id, self.type, self.function), self.type
            )
        fold = self._fold()
        return BatchAggregatingState(
            self.name, keys, FoldTable(self.name, store, store.value_state(state_id, fold.stored), fold), self.type
        )

    def bind_keyed(self, store: _core.Store, state_id: int, scope: KeyScope) -> KeyedAggregatingState:
        if self.function == SKETCH_FUNCTION:
            return FoldedByCore(self.name, scope, self._sketches(store, state_id), self.type, result=pa.int64())
        if isinstance(self.function, str):
            table = store.aggregating_state(state_id, self.type, self.function)
            running = running_fold(self.function, storage_type(self.type))
            result = pa.int64() if self.function == "count" else pa.float64()
            return FoldedByCore(self.name, scope, table, self.type, running, nothing_added(self.function), result)
        fold = self._fold()
        return FoldedByPython(self.name, scope, store.value_state(state_id, fold.stored), fold)

    def _sketches(self, store: _core.Store, state_id: int) -> FoldTable:
        fold = SketchFold(self.type)
        return FoldTable(self.name, store, store.value_state(state_id, fold.stored), fold)

    def _fold(self) -> AggregatingFold:
        assert not isinstance(self.function, str)  # the callers chose
        function: AggregateFunction[Any] = self.function() if isinstance(self.function, type) else self.function
        return AggregatingFold(self.name, self.type, function, self.accumulator, self.result)


def declared_in(processor_class: type) -> tuple[tuple[str, StateDeclaration[Any, Any]], ...]:
    """Names and declarations of a class: base classes first, then in order of declaration.

    A subclass may declare a name anew, or undo it with None.
    """
    found: dict[str, StateDeclaration[Any, Any]] = {}
    for cls in reversed(processor_class.__mro__):
        for name, value in vars(cls).items():
            if name in found and not isinstance(value, StateDeclaration):
                del found[name]
        own = [(name, value) for name, value in vars(cls).items() if isinstance(value, StateDeclaration)]
        for name, value in sorted(own, key=lambda item: item[1].order):
            if value.name != name:
                raise InvalidRequest(
                    f"{processor_class.__name__}: {name!r} and {value.name!r} are the same declaration; "
                    "make one for each state"
                )
            found[name] = value
    return tuple(found.items())


def kept_type(type: Any, where: str, codec: Callable[[pa.DataType], Any] = _core.RowCodec) -> pa.DataType:
    """The type, if the core keeps it."""
    if not isinstance(type, pa.DataType):
        raise InvalidRequest(f"{where}: expected an Arrow type such as pyarrow.int64(), found {type!r}")
    if without_marks(type, where)[1]:
        raise InvalidRequest(
            f"{where}: hf.renamed_from, hf.dropped_field and hf.with_default are for fields of stored values; keys and "
            "map keys stay as they are, and what an aggregating state takes and gives may change without them"
        )
    try:
        codec(type)
    except HoldfastError as error:
        raise InvalidRequest(f"{where}: {type} cannot be kept: {error}") from None
    twice = _field_that_is_there_twice(type)
    if twice is not None:
        raise InvalidRequest(f"{where}: {type} has two fields {twice!r}; values are told apart by name: rename one")
    return type


def _field_that_is_there_twice(type: pa.DataType) -> str | None:
    fields = [type.field(number) for number in range(type.num_fields)]
    names = [field.name for field in fields] if is_type.is_struct(type) else []
    own = [name for name in names if names.count(name) > 1]
    below = (_field_that_is_there_twice(field.type) for field in fields)
    return next((name for name in [*own, *below] if name is not None), None)


def _check_name(function: str, known: tuple[str, ...], where: str, otherwise: str) -> None:
    if function not in known:
        raise InvalidRequest(
            f"{where}: there is no function {function!r}; expected one of {', '.join(known)}, or {otherwise}"
        )


def _check_function(where: str, declare: Callable[[int, Any, str], Any], type: pa.DataType, function: str) -> None:
    """Asks the core itself whether it has the function for the type."""
    try:
        declare(0, type, function)
    except HoldfastError as error:
        raise InvalidRequest(f"{where}: no {function!r} of {type}: {error}") from None


def _probe() -> _core.Store:
    """A store that is never written, to declare a state in and be told what is wrong with it."""
    return _core.Store(pa.schema([pa.field("key", pa.int64())]), max_parallelism=1, first_key_group=0, end_key_group=1)
