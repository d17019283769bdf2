"""AsOf: the end of a batch as which versions are read. Pure.

A slot that gets no rows has no version of a later batch, so its cutoffs stand where its last batch left them, though
time went on: who reads it as of a later batch goes by that batch's time. See docs/rfcs/0009.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.checkpoint.expiry import BatchTime, StateExpiry
from holdfast.checkpoint.handle import NamedVersion


@dataclass(frozen=True)
class AsOf:
    """The batch, and its time."""

    batch_id: int
    time: BatchTime

    def expiry(self, version: NamedVersion) -> tuple[StateExpiry, ...]:
        """How far the states of the newest version of a slot have expired then. Of the batch's own versions that is
        what they say themselves.
        """
        if version.batch_id >= self.batch_id:
            return version.expiry
        return tuple(self._gone_on(state) for state in version.expiry)

    def _gone_on(self, state: StateExpiry) -> StateExpiry:
        now_ms = self.time.now_ms(state.time)
        if now_ms is None or state.ttl_ms is None:
            return state
        return replace(
            state,
            since_ms=state.since_ms if state.counts else now_ms,
            cutoff_ms=max(state.cutoff_ms, now_ms - state.ttl_ms),
            latest_ms=max(state.latest_ms, now_ms),
        )


def expiry_of(version: NamedVersion, as_of: AsOf | None) -> tuple[StateExpiry, ...]:
    """How far the states of a version have expired; without ``as_of`` what it says itself."""
    return version.expiry if as_of is None else as_of.expiry(version)
