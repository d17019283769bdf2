"""How far the entries of each state have expired at a version of a slot, and how that goes on in a batch.

The cutoff of a state only grows from a version to those that follow: an entry whose stamp is not above it is gone for
all of them. So a fold may leave out what is expired at its version, whatever becomes of clock and declaration.
See docs/rfcs/0009; as rows in handles and deltas: docs/formats/handle.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast._core import Store
from holdfast.checkpoint.state_record import TTL_TIMES
from holdfast.errors import Incompatible

# All tables of a base are merged this many times in a lifetime, so that what expired leaves the disk.
_MERGES = 4
_DAY_MS = 86_400_000
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_FIELDS_WITHOUT_FLOOR = 6
#: Below all cutoffs.
NOTHING_EXPIRED = _INT64_MIN + 1
#: As a time from which something counts: in event time there was no watermark yet since.
NOT_BEGUN = _INT64_MAX


@dataclass(frozen=True)
class Lifetime:
    """A declared TTL. The cutoff moves when the time passes a multiple of ``step_ms``.

    As a row it has what a reader goes by: in logs of TTLs and in origins, docs/formats/operator.md.
    """

    state_id: int
    time: str
    ttl_ms: int
    step_ms: int
    refreshes_on_read: bool = False

    def cutoff_ms(self, now_ms: int) -> int:
        return max(now_ms // self.step_ms * self.step_ms - self.ttl_ms, NOTHING_EXPIRED)

    def to_row(self) -> list[Any]:
        return [self.state_id, self.time, self.ttl_ms, self.step_ms]

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Lifetime:
        """ValueError, or TypeError, for what is no such row."""
        state_id, time, ttl_ms, step_ms = row
        numbers = (state_id, ttl_ms, step_ms)
        if (
            time not in TTL_TIMES
            or not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
            or not 0 <= state_id <= 0xFFFF
            or not 0 < step_ms <= ttl_ms <= _INT64_MAX
        ):
            raise ValueError(f"{row!r} does not say how long a state lives")
        return cls(state_id, time, ttl_ms, step_ms)


@dataclass(frozen=True)
class BatchTime:
    """A batch's timestamp, and the watermark as it begins; None, or not above 0: there is none yet."""

    timestamp_ms: int
    watermark_ms: int | None = None

    def now_ms(self, time: str) -> int | None:
        if time == "processing":
            return self.timestamp_ms
        return self.watermark_ms if self.watermark_ms is not None and self.watermark_ms > 0 else None


NO_TIME = BatchTime(0)


@dataclass(frozen=True)
class StateExpiry:
    """Of one state at one version.

    ``ttl_ms`` None: the state has a TTL no longer; what had expired stays gone. ``since_ms``: the stamp of entries
    that have none, which are older than the TTL. ``latest_ms``: the latest time so far, of a batch or, in event time,
    of a row. ``floor_ms``: only where the TTL was away and came back, the least stamp that counts: what is alive then
    lives on as if it was written then. It is there until the cutoff has come to it.
    """

    state_id: int
    time: str
    ttl_ms: int | None
    since_ms: int
    cutoff_ms: int
    latest_ms: int
    floor_ms: int | None = None

    @property
    def counts(self) -> bool:
        """Whether its time has begun. In event time it has not as long as there were rows and no watermark."""
        return self.since_ms < NOT_BEGUN

    def to_row(self) -> list[Any]:
        row = [self.state_id, self.time, self.ttl_ms, self.since_ms, self.cutoff_ms, self.latest_ms]
        return row if self.floor_ms is None else [*row, self.floor_ms]

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> StateExpiry:
        """ValueError, or TypeError, for what is no such row."""
        made = cls(*row)
        ttl_ms = () if made.ttl_ms is None else (made.ttl_ms,)
        times = (made.since_ms, made.cutoff_ms, made.latest_ms, *ttl_ms, *row[_FIELDS_WITHOUT_FLOOR:])
        numbers = [made.state_id, *times]
        if (
            made.time not in TTL_TIMES
            or not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
            or not 0 <= made.state_id <= 0xFFFF
            or not all(_INT64_MIN < time <= _INT64_MAX for time in times)
            or not made.cutoff_ms < made.latest_ms
            or (made.floor_ms is not None and (made.ttl_ms is None or made.floor_ms <= made.cutoff_ms))
        ):
            raise ValueError(f"{row!r} does not say how far a state has expired")
        return made


def to_writer(
    expiry: Iterable[StateExpiry], state_ids: Iterable[int], dropped: Sequence[int] = ()
) -> list[tuple[int, int, int, int]]:
    """As `BaseWriter` takes it, for a base of these states, without those that were dropped.

    All tables are merged together, so the state that lives longest says how often, or a small state of a short TTL
    would have a large one written again and again. One that lives for ever says it once a day. What was dropped has
    them merged once, when a base is first made without it.
    """
    known = {state.state_id: state for state in expiry if state.counts and state.state_id not in dropped}
    ttls = [state.ttl_ms for state in known.values() if state.ttl_ms is not None]
    step_ms = max(1, max(ttls, default=0) // _MERGES)
    if len(ttls) < len({*known, *state_ids}):
        step_ms = max(step_ms, _DAY_MS)
    rows = [(state.state_id, state.cutoff_ms, state.since_ms, step_ms) for state in known.values()]
    return [*rows, *((state_id, _INT64_MAX, _INT64_MIN, 1) for state_id in dropped)]


def next_expiry(
    parent: tuple[StateExpiry, ...],
    lifetimes: Iterable[Lifetime],
    time: BatchTime,
    where: str,
    dropped: Collection[int] = (),
) -> tuple[StateExpiry, ...]:
    """The states' expiry in a batch. That of the version which it leads to also knows its rows: `BatchStamps.expiry`.

    Parameters
    ----------
    dropped
        Ids of states that the operator has no more.

    Raises
    ------
    Incompatible
        A state counted by the other time so far.
    """
    earlier = {state.state_id: state for state in parent}
    declared = {lifetime.state_id: lifetime for lifetime in lifetimes}
    event_ms = seen_event_ms(parent, declared, dropped)
    found = []
    for state_id in sorted({*earlier, *declared}):
        old, lifetime = earlier.get(state_id), declared.get(state_id)
        if old is not None and lifetime is not None and old.time != lifetime.time:
            raise Incompatible(
                f"{where}: state {state_id} counts its time to live in {old.time} time, and is declared with "
                f"{lifetime.time} time now; the times of its entries cannot be compared with it. Go back to "
                f'time="{old.time}", or give the state a new name'
            )
        if old is None and lifetime is not None:
            old = _begun(lifetime, time, event_ms)
        if old is not None:
            found.append(gone_on(old, lifetime, time, event_ms))
    return tuple(found)


def seen_event_ms(expiry: Iterable[StateExpiry], declared: Collection[int], dropped: Collection[int]) -> int | None:
    """The latest event time that a slot has seen by a version: it is the same for all states, also for those that get
    their TTL later. None: no state had such a TTL yet.

    Parameters
    ----------
    declared
        Ids of the states that have a TTL in the batch at hand.
    dropped
        Ids of states that the operator has no more. As of an earlier batch it had those that are declared.
    """
    there = (state for state in expiry if state.state_id in declared or state.state_id not in dropped)
    return max((state.latest_ms for state in there if state.time == "event"), default=None)


def _begun(lifetime: Lifetime, time: BatchTime, event_ms: int | None) -> StateExpiry | None:
    """Of a state in its first batch with a TTL; None: its time has not begun, and the slot has seen none."""
    now_ms = time.now_ms(lifetime.time)
    if now_ms is not None:
        cutoff_ms = lifetime.cutoff_ms(now_ms)
        return StateExpiry(lifetime.state_id, lifetime.time, lifetime.ttl_ms, now_ms, cutoff_ms, now_ms)
    return None if event_ms is None else _waiting(lifetime, event_ms)


def _waiting(lifetime: Lifetime, event_ms: int) -> StateExpiry:
    """Of a state in event time while there is no watermark yet: rows up to this time came."""
    latest_ms = max(event_ms, NOTHING_EXPIRED + 1)
    return StateExpiry(lifetime.state_id, "event", lifetime.ttl_ms, NOT_BEGUN, NOTHING_EXPIRED, latest_ms)


def gone_on(old: StateExpiry, lifetime: Lifetime | None, time: BatchTime, event_ms: int | None) -> StateExpiry:
    """How far a state has expired in a batch of this time; ``lifetime`` None: it is declared without a TTL.
    ``event_ms``: what :func:`seen_event_ms` says of the slot.

    Where the TTL comes back, the floor is what the batch stamps its writes with. As long as all that is alive counts
    from there, the cutoff stays: it would take what was written while there was no TTL.
    """
    now_ms = time.now_ms(old.time)
    if lifetime is not None and old.time == "event" and event_ms is not None:
        old = replace(old, latest_ms=max(old.latest_ms, event_ms))
    if now_ms is not None:
        since_ms = old.since_ms if old.counts or lifetime is None else now_ms
        old = replace(old, since_ms=since_ms, latest_ms=max(old.latest_ms, now_ms))
    if lifetime is None:
        return replace(old, ttl_ms=None, floor_ms=None)
    floor_ms = NOT_BEGUN if old.ttl_ms is None else old.floor_ms
    if now_ms is None:
        return replace(old, ttl_ms=lifetime.ttl_ms, floor_ms=floor_ms)
    if floor_ms == NOT_BEGUN:
        floor_ms = old.latest_ms
    cutoff_ms = lifetime.cutoff_ms(now_ms)
    if floor_ms is not None and cutoff_ms < floor_ms:
        cutoff_ms = old.cutoff_ms
    else:
        floor_ms = None
    return replace(old, ttl_ms=lifetime.ttl_ms, cutoff_ms=max(old.cutoff_ms, cutoff_ms), floor_ms=floor_ms)


def has_floor(expiry: Iterable[StateExpiry]) -> bool:
    """Whether a version needs the formats that have floors."""
    return any(state.floor_ms is not None for state in expiry)


def show(store: Store, expiry: Iterable[StateExpiry]) -> None:
    """Has a store that stands at a version give out what is alive in it. What a batch sees, `BatchStamps` says."""
    for state in (one for one in expiry if one.counts):
        store.set_expiry(state.state_id, cutoff_ms=state.cutoff_ms, since_ms=state.since_ms, stamp_ms=None)


class BatchStamps:
    """What a batch stamps the entries with that it writes: its time, or that of an earlier batch if that was later, so
    that nothing lives for less than its TTL wherever the clock went. In event time it goes on with the rows, of this
    batch and those before it: rows come in any order, and older ones must not make an entry older.
    """

    def __init__(
        self, store: Store, expiry: tuple[StateExpiry, ...], lifetimes: Iterable[Lifetime], time: BatchTime
    ) -> None:
        self._store = store
        self._expiry = {state.state_id: state for state in expiry}
        self._lifetimes = {lifetime.state_id: lifetime for lifetime in lifetimes}
        self._time = time
        self._event_ms: int | None = None
        for state_id in sorted({*self._expiry, *self._lifetimes}):
            self._set(state_id)

    @property
    def follows_events(self) -> bool:
        """Whether the rows' event times matter."""
        return any(lifetime.time == "event" for lifetime in self._lifetimes.values())

    def advance(self, event_ms: int) -> None:
        """The slot is about to process rows of event times up to this."""
        if self._event_ms is not None and event_ms <= self._event_ms:
            return
        self._event_ms = event_ms
        for state_id, lifetime in self._lifetimes.items():
            if lifetime.time == "event":
                self._set(state_id)

    @property
    def expiry(self) -> tuple[StateExpiry, ...]:
        """Of the version that the batch leads to, if no rows come any more."""
        found = dict(self._expiry)
        event_ms = self._event_ms
        for state_id, lifetime in self._lifetimes.items():
            if lifetime.time != "event" or event_ms is None:
                continue
            old = found.get(state_id)
            if old is None:
                found[state_id] = _waiting(lifetime, event_ms)
            else:
                found[state_id] = replace(old, latest_ms=max(old.latest_ms, event_ms))
        return tuple(found[state_id] for state_id in sorted(found))

    def _set(self, state_id: int) -> None:
        state, lifetime = self._expiry.get(state_id), self._lifetimes.get(state_id)
        time = lifetime.time if lifetime is not None else self._expiry[state_id].time
        seen = [self._time.now_ms(time), self._event_ms if time == "event" else None]
        if state is not None:
            seen.append(state.latest_ms)
        known = [moment for moment in seen if moment is not None]
        self._store.set_expiry(
            state_id,
            cutoff_ms=state.cutoff_ms if state and state.counts else None,
            since_ms=state.since_ms if state and state.counts else None,
            stamp_ms=max(known) if known else None,
            refresh_on_read=lifetime is not None and lifetime.refreshes_on_read,
        )
