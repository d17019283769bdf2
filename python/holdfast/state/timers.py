"""Timers as a user declares them, beside the states, and what a processor must have to be called by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pyarrow as pa

from holdfast import _core
from holdfast.errors import InvalidRequest
from holdfast.state.columns import KeyColumns
from holdfast.state.context import Context
from holdfast.state.declarations import StateDeclaration
from holdfast.state.keyed_scope import KeyScope
from holdfast.state.live_timers import DOMAINS, NAMESPACE, BatchTimers, KeyedTimers, due_until
from holdfast.state.processor import BatchProcessor, KeyedProcessor, Processor, declared_states


class Timers(StateDeclaration[BatchTimers, KeyedTimers]):
    """Timers of each key, which call ``on_timer`` of a KeyedProcessor or ``on_timers`` of a BatchProcessor.

    Parameters
    ----------
    domain
        "event": a timer fires once the watermark has reached its time. "processing": once the timestamp of a batch has.
        Either way after the batch's rows, and also where a key has none.
    """

    kind = "timers"

    def __init__(self, domain: Literal["event", "processing"]) -> None:
        super().__init__()
        if domain not in DOMAINS:
            raise InvalidRequest(f"Timers: domain is {domain!r}; expected one of {', '.join(map(repr, DOMAINS))}")
        self.domain = domain

    @property
    def types(self) -> dict[str, pa.DataType]:
        return {"namespace": NAMESPACE}

    @property
    def function_name(self) -> str:
        return self.domain

    def bind_batch(self, store: _core.Store, state_id: int, keys: KeyColumns) -> BatchTimers:
        return BatchTimers(self.name, self.domain, keys, store.timers(state_id))

    def bind_keyed(self, store: _core.Store, state_id: int, scope: KeyScope) -> KeyedTimers:
        return KeyedTimers(self.name, self.domain, scope, store.timers(state_id))


def declared_timers(processor: Processor) -> tuple[Timers, ...]:
    """A processor's timers in order of declaration.

    Raises
    ------
    InvalidRequest
        It has timers and nothing that they call, or the other way round.
    """
    timers = tuple(declared for _, declared in declared_states(processor) if isinstance(declared, Timers))
    called, form = _called(processor)
    if timers and not called:
        raise InvalidRequest(
            f"{type(processor).__name__} declares the timers {', '.join(repr(found.name) for found in timers)} and no "
            f"method for them to call; define {form}"
        )
    if called and not timers:
        raise InvalidRequest(
            f"{type(processor).__name__} defines {form} and declares no timers that would call it; declare some: "
            'name = hf.Timers("event"), or hf.Timers("processing")'
        )
    return timers


def any_due(store: _core.Store, timers: Sequence[tuple[int, str]], ctx: Context) -> bool:
    """Whether any of the timers (state id, domain) fires in the batch, before anything of the batch was done."""
    for state_id, domain in timers:
        until = due_until(domain, ctx)
        if until is None:
            continue
        earliest = store.timers(state_id).next_due()  # in a worker that is new to the slot a seek for each key group
        if earliest is not None and earliest <= until:
            return True
    return False


def _called(processor: Processor) -> tuple[bool, str]:
    if isinstance(processor, KeyedProcessor):
        return type(processor).on_timer is not KeyedProcessor.on_timer, "on_timer(self, key, time, namespace, ctx)"
    if isinstance(processor, BatchProcessor):
        return type(processor).on_timers is not BatchProcessor.on_timers, "on_timers(self, batch, ctx)"
    return False, "on_timer or on_timers"
