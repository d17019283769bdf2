"""What the background did for an operator in one process: folds and snapshots, counted as they are done, and how far it
got with the end of a claim.

Of the operator, not of a slot: Spark moves slots from worker to worker, so what was done for one is told by whichever
slot of the operator is next in this process. What a process did and never told is lost with it: figures, not state.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from holdfast.checkpoint.back_off import BackOff

_CLAIM_WAIT_MS_MAX = 3_600_000


@dataclass
class BackgroundFigures:
    """Since they were last taken.

    Attributes
    ----------
    folds, fold_ms
        Folds, and the milliseconds that they took.
    fold_expired_entries
        Entries that left the disk, their time to live being over.
    snapshots, snapshot_bytes
        Snapshots that were uploaded, and the bytes of their new files.
    """

    folds: int = 0
    fold_ms: float = 0.0
    fold_expired_entries: int = 0
    snapshots: int = 0
    snapshot_bytes: int = 0


@dataclass
class ClaimProgress:
    """Of the savepoint that the operator claimed.

    Attributes
    ----------
    is_ended
        It was looked at in this process, and the operator needs to do nothing more.
    told
        Kinds of failures that the log has.
    """

    is_ended: bool = False
    told: set[str] = field(default_factory=set)
    back_off: BackOff = field(default_factory=lambda: BackOff(_CLAIM_WAIT_MS_MAX))


class BackgroundWork:
    """Adds up what the background does. Safe for several threads. ``claim``: the background's own."""

    def __init__(self) -> None:
        self.claim = ClaimProgress()
        self._lock = threading.Lock()
        self._figures = BackgroundFigures()

    def folded(self, ms: float) -> None:
        """Deltas into a base, in so many milliseconds."""
        with self._lock:
            self._figures.folds += 1
            self._figures.fold_ms += ms

    def dropped(self, entries: int) -> None:
        """Expired entries that a new base no longer has."""
        with self._lock:
            self._figures.fold_expired_entries += entries

    def uploaded(self, size_bytes: int) -> None:
        """A snapshot, of so many bytes in new files."""
        with self._lock:
            self._figures.snapshots += 1
            self._figures.snapshot_bytes += size_bytes

    def take(self) -> BackgroundFigures:
        """What was counted since the last time."""
        with self._lock:
            found, self._figures = self._figures, BackgroundFigures()
            return found
