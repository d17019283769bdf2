"""AsOf: the end of a batch as which versions are read. Pure.

A slot that gets no rows has no version of a later batch, so its cutoffs stand where its last batch left them, though
time went on: who reads it as of a later batch goes by what a batch on the slot would have gone by then. That is the
batch's time, and the TTLs that the program declared in it, which need not be those of the slot's own last batch. See
docs/rfcs/0009.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.checkpoint.expiry import BatchTime, Lifetime, StateExpiry, gone_on, seen_event_ms
from holdfast.checkpoint.handle import NamedVersion
from holdfast.checkpoint.ttl_log import DeclaredTtls


@dataclass(frozen=True)
class AsOf:
    """The batch, its time, and the TTLs of one operator in it; a state that is not among them had none. ``dropped``:
    ids of states that the operator has no more, be it since a later batch.
    """

    batch_id: int
    time: BatchTime
    lifetimes: tuple[Lifetime, ...]
    dropped: frozenset[int]

    def expiry(self, version: NamedVersion) -> tuple[StateExpiry, ...]:
        """How far the states of the newest version of a slot have expired then. Of the batch's own versions that is
        what they say themselves.
        """
        if version.batch_id >= self.batch_id:
            return version.expiry
        known = {lifetime.state_id: lifetime for lifetime in self.lifetimes}
        event_ms = seen_event_ms(version.expiry, known, self.dropped)
        return tuple(self._gone_on(state, known.get(state.state_id), event_ms) for state in version.expiry)

    def _gone_on(self, state: StateExpiry, lifetime: Lifetime | None, event_ms: int | None) -> StateExpiry:
        if lifetime is not None and lifetime.time != state.time:  # the slot's next batch will refuse it
            return state
        return gone_on(state, lifetime, self.time, event_ms)


def in_force(versions: Iterable[NamedVersion], said: DeclaredTtls | None) -> tuple[Lifetime, ...]:
    """The TTLs of an operator in a batch.

    Whichever is newer tells: the newest of its slots' versions, or what the operator noted as a program began that
    declares others. Without a note (an earlier Holdfast wrote none, nor does the driver where it does not know what it
    starts) it is the versions, and of a TTL with ``until_cleaned`` its step is not known: then time counts exactly.

    Parameters
    ----------
    versions
        Of all slots that have one, as of the end of the batch.
    said
        The newest note of that batch or an earlier one.
    """
    known = list(versions)
    newest = max((version.batch_id for version in known), default=-1)
    if said is not None and said.batch_id >= newest:  # a batch that ran again may have kept versions as they were
        return said.lifetimes
    found: dict[int, list[StateExpiry]] = {}
    for version in known:
        for state in version.expiry if version.batch_id == newest else ():
            found.setdefault(state.state_id, []).append(state)
    longest = (_longest(states, said.lifetimes if said is not None else ()) for states in found.values())
    return tuple(lifetime for lifetime in longest if lifetime is not None)


def _longest(states: list[StateExpiry], said: Iterable[Lifetime]) -> Lifetime | None:
    """Of one state in versions of one batch: when a program that declares another TTL runs a batch again, some of its
    versions may be of the program before.
    """
    state = max(states, key=lambda one: one.ttl_ms or 0)
    if state.ttl_ms is None or any(one.ttl_ms is None for one in states):
        return None
    told = (state.state_id, state.time, state.ttl_ms)
    steps = [one.step_ms for one in said if (one.state_id, one.time, one.ttl_ms) == told]
    return Lifetime(*told, step_ms=steps[0] if steps else 1)


def expiry_of(version: NamedVersion, as_of: AsOf | None) -> tuple[StateExpiry, ...]:
    """How far the states of a version have expired; without ``as_of`` what it says itself."""
    return version.expiry if as_of is None else as_of.expiry(version)
