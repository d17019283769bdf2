"""When to look again for what tasks of dead drivers open late.

A task outlives its driver where it waits in user code: it opens its transaction after its successor has swept, and an
open transaction stalls every reader of its partitions until the broker's time limit. How long such a task lives nobody
can know, so the successor goes on looking, for some minutes after its start and after the last one it found. What
earlier drivers open is looked for in a thread, since a query may be idle; what failed attempts of this driver open, by
the driver's own thread between two batches, when nothing of its own is open. A crash here leaves nothing behind.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol, runtime_checkable

from holdfast.clock import Clock
from holdfast.commit.sink import Committable, Scope
from holdfast.errors import HoldfastError

FIRST_PAUSE_MS = 500.0
#: The longest that a stray may stall readers before it is found; a look takes some milliseconds.
PAUSE_MAX_MS = 5_000.0
#: Looks that take long become rare: they take the brokers' time, too.
_PAUSE_OF_LOOK = 20.0

_AGAIN = "what late tasks may have opened is looked for again later: %s"
_LOGGER = logging.getLogger("holdfast.commit")


@runtime_checkable
class LateStrays(Protocol):
    """A sink whose strays are in somebody's way for as long as they are open."""

    def abort_late(self, scope: Scope, keep: Sequence[Committable], *, own: bool) -> int:
        """Abort what earlier drivers' tasks have opened since `Sink.recover`; cheap where there is nothing.

        Parameters
        ----------
        keep
            As for `Sink.recover`: what the next start would ask for.
        own
            This driver's, too: it is between two batches, so all that is open is a stray.

        Raises
        ------
        Unavailable
            To be called again later.
        """


@runtime_checkable
class SweepsBetween(Protocol):
    """A sink that need not look after all that drivers before this one began, each time that an attempt has failed."""

    def recover_between(self, scope: Scope, keep: Sequence[Committable], recorded: Collection[tuple[int, int]]) -> int:
        """As `Sink.recover`, after a batch of a run that goes on. All that is open is aborted; of what tasks may open
        yet only this driver's is fenced: a start has fenced that of others, and `LateSweeps` looks for it.

        Parameters
        ----------
        recorded
            Partition and attempt of the batch's tasks that count: they have come to their end, whether they had
            anything to write or not.

        Raises
        ------
        Unavailable
            To be called again.
        """


class Schedule:
    """Looks in growing pauses, for as long after the last sign as something may still come. Used by one thread.

    Parameters
    ----------
    watch_ms
        How long that is.
    """

    def __init__(self, watch_ms: float) -> None:
        self._watch_ms = watch_ms
        self._until_ms = -1.0
        self._due_ms = 0.0
        self._pause_ms = FIRST_PAUSE_MS

    def sign(self, now_ms: float) -> None:
        """Something may come from now on."""
        self._until_ms = now_ms + self._watch_ms
        self._pause_ms = FIRST_PAUSE_MS
        self._due_ms = now_ms + self._pause_ms

    def looked(self, now_ms: float, took_ms: float, found: int) -> None:
        """A look is over."""
        if found:
            self.sign(now_ms)
            return
        self._pause_ms = min(2 * self._pause_ms, PAUSE_MAX_MS)
        self._due_ms = now_ms + max(self._pause_ms, _PAUSE_OF_LOOK * took_ms)

    def is_due(self, now_ms: float) -> bool:
        """Whether to look now."""
        return self._due_ms <= now_ms <= self._until_ms

    def pause_ms(self, now_ms: float) -> float | None:
        """How long until the next look; None: nothing comes any more."""
        return max(0.0, self._due_ms - now_ms) if now_ms <= self._until_ms else None


class LateSweeps:
    """The looks of one run.

    Parameters
    ----------
    watch_ms
        How long after a start, or the last sign, something may come.
    sweep
        ``sweep(own)`` aborts, and gives the number of strays.
    is_running
        Whether the query still runs, however it ended; asked before each look.
    """

    def __init__(
        self, watch_ms: float, clock: Clock, sweep: Callable[[bool], int], is_running: Callable[[], bool]
    ) -> None:
        self._watch_ms = watch_ms
        self._clock = clock
        self._sweep = sweep
        self._is_running = is_running
        self._own = Schedule(watch_ms)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """After the first sweep of a run."""
        self._thread = threading.Thread(target=self._watch, name="holdfast-late-sweeps", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Without waiting for a look that is under way. Harmless when repeated."""
        self._ended.set()

    def attempts_failed(self) -> None:
        """Tasks of this run have failed or were given up: they may open something yet."""
        self._own.sign(self._clock.elapsed_ms())

    def between_batches(self) -> None:
        """The driver's thread has committed a batch and has nothing open."""
        if self._own.is_due(self._clock.elapsed_ms()):
            self._look(self._own, own=True)

    def _watch(self) -> None:
        for pause_ms in self.pauses():
            if self._ended.wait(pause_ms / 1000) or not self._is_running():
                return

    def pauses(self) -> Iterator[float]:
        """The thread's life: a pause, a look, and so on."""
        schedule = Schedule(self._watch_ms)
        schedule.sign(self._clock.elapsed_ms())
        while (pause_ms := schedule.pause_ms(self._clock.elapsed_ms())) is not None:
            yield pause_ms
            self._look(schedule, own=False)

    def _look(self, schedule: Schedule, *, own: bool) -> None:
        started_ms, found = self._clock.elapsed_ms(), 0
        try:
            found = self._sweep(own)
        except HoldfastError as error:
            _LOGGER.info(_AGAIN, error)
        except Exception as error:  # a mistake of ours or of a library's: that look must not be the last one either
            _LOGGER.warning(_AGAIN, error, exc_info=True)
        now_ms = self._clock.elapsed_ms()
        schedule.looked(now_ms, now_ms - started_ms, found)
