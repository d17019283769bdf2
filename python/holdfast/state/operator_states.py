"""States that belong to no key, as a user declares them: broadcast states, which all slots have alike, and operator
states, of which each slot has its own. In the store they are a map and a list of a slot; docs/rfcs/0012 says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import pyarrow as pa

from holdfast import _core
from holdfast.errors import InvalidRequest
from holdfast.state.columns import KeyColumns
from holdfast.state.declarations import StateDeclaration, kept_type
from holdfast.state.inputs import Input
from holdfast.state.keyed_scope import KeyScope
from holdfast.state.live_operator_states import (
    BatchBroadcastState,
    BatchOperatorState,
    KeyedBroadcastState,
    KeyedOperatorState,
)
from holdfast.state.processor import Processor, declared_states

Redistribution = Literal["split", "union"]
REDISTRIBUTIONS: tuple[str, ...] = get_args(Redistribution)


class BroadcastState(StateDeclaration[BatchBroadcastState, KeyedBroadcastState]):
    """A map from ``key`` to ``value`` that is the same in every slot:
    filled from an input that is broadcast, read everywhere.

    It is changed in the method of a broadcast input alone: elsewhere, and in ``open``, a change is an InvalidRequest.

    In a BatchProcessor: ``get(map_keys)``, ``contains(map_keys)``, ``put(map_keys, map_values)``, ``remove(map_keys)``,
    for arrays or for one Python value; ``entries()``, ``keys()``, ``values()`` as arrays, ``items()`` as Python pairs,
    ``count()``, ``is_empty()``, ``clear()``. In a KeyedProcessor the methods of a :class:`MapState` there.

    Parameters
    ----------
    key, value
        Arrow types; those that a MapState takes.
    ttl
        There is none, as in Flink: entries would go at another time than the rows say that put them.
    """

    kind = "broadcast"

    def __init__(self, key: pa.DataType, value: pa.DataType, *, ttl: None = None) -> None:
        super().__init__()
        _refuse_ttl("BroadcastState", ttl, "remove entries in the method of the broadcast input")
        self.key = kept_type(key, "BroadcastState(key)", _core.KeyCodec)
        self.value = self._kept(value, "value", "BroadcastState(value)")

    @property
    def types(self) -> dict[str, pa.DataType]:
        return {"key": self.key, "value": self.value}

    def bind_batch(self, store: _core.Store, state_id: int, keys: KeyColumns) -> BatchBroadcastState:
        return BatchBroadcastState(self.name, store.map_state(state_id, self.key, self.value), self.key, self.value)

    def bind_keyed(self, store: _core.Store, state_id: int, scope: KeyScope) -> KeyedBroadcastState:
        return KeyedBroadcastState(self.name, store.map_state(state_id, self.key, self.value), self.key, self.value)


class OperatorState(StateDeclaration[BatchOperatorState, KeyedOperatorState]):
    """A list of ``element`` that each slot has for itself, whatever the keys of its rows: a buffer, a count.

    Usable in every method. In a BatchProcessor: ``get()`` as an array, ``add(value)``, ``add_all(values)``,
    ``update(values)``, ``clear()``. In a KeyedProcessor the same with Python values.

    Parameters
    ----------
    element
        Arrow type; one that a ListState takes.
    redistribution
        What becomes of the slots' lists when their number changes: "split": their elements are dealt out to the new
        slots; "union": each new slot gets all elements of all slots. Recorded with the operator.
    """

    kind = "operator"

    def __init__(self, element: pa.DataType, *, redistribution: Redistribution, ttl: None = None) -> None:
        super().__init__()
        _refuse_ttl("OperatorState", ttl, "replace the list by update()")
        if redistribution not in REDISTRIBUTIONS:
            raise InvalidRequest(
                f"OperatorState: redistribution is {redistribution!r}; expected one of "
                f"{', '.join(map(repr, REDISTRIBUTIONS))}"
            )
        self.element = self._kept(element, "element", "OperatorState(element)")
        self.redistribution = redistribution

    @property
    def types(self) -> dict[str, pa.DataType]:
        return {"element": self.element}

    @property
    def function_name(self) -> str:
        return self.redistribution

    def bind_batch(self, store: _core.Store, state_id: int, keys: KeyColumns) -> BatchOperatorState:
        return BatchOperatorState(self.name, store.list_state(state_id, self.element), self.element)

    def bind_keyed(self, store: _core.Store, state_id: int, scope: KeyScope) -> KeyedOperatorState:
        return KeyedOperatorState(self.name, store.list_state(state_id, self.element), self.element)


def check_broadcast(processor: Processor, inputs: Sequence[Input], where: str) -> None:
    """Whether broadcast states and broadcast inputs of an operator go together; InvalidRequest otherwise."""
    marked = [one.name or "the only one" for one in inputs if one.broadcast]
    states = [name for name, declared in declared_states(processor) if isinstance(declared, BroadcastState)]
    if marked and len(marked) == len(inputs):
        raise InvalidRequest(
            f"{where}: all inputs are broadcast ({', '.join(marked)}), and an operator keeps states by the key of an "
            'input; leave one without the mark: {"orders": orders, "rules": hf.broadcast(rules)}'
        )
    if states and not marked:
        unmarked = next((name for name in states if any(one.name == name for one in inputs)), None)
        like = unmarked or "rules"
        raise InvalidRequest(
            f"{where}: {type(processor).__name__} declares the broadcast state {states[0]!r}, which only the rows of a "
            f"broadcast input change, and there is none; mark {'the' if unmarked is None else 'this'} input in "
            f'hf.connect: {{…, "{like}": hf.broadcast({like})}}'
        )


def _refuse_ttl(kind: str, ttl: Any, instead: str) -> None:
    if ttl is not None:
        raise InvalidRequest(f"{kind}: ttl is {ttl!r}; a state that belongs to no key has no time to live: {instead}")
