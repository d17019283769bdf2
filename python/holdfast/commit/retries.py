"""Trying again what did not answer, with growing pauses, within a limit that is a setting. For a query that was stopped
nothing is tried again: Spark waits for its thread, and the next start finishes what was begun.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from holdfast.clock import Clock, SystemClock
from holdfast.errors import Unavailable

T = TypeVar("T")
_BACKOFF_MS_MAX = 10_000
#: How long it may go unnoticed that the query was stopped.
_LOOK_EVERY_MS = 500
_LOGGER = logging.getLogger("holdfast.commit")


@dataclass(frozen=True)
class Retries:
    """How long, and by which clock. ``sleep`` takes seconds. ``is_running``: whether the query still runs."""

    max_ms: int
    backoff_ms: int
    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], None] = time.sleep
    is_running: Callable[[], bool] = lambda: True

    def call(self, doing: str, action: Callable[[], T]) -> T:
        """What ``action`` gives, once it does not raise Unavailable.

        Raises
        ------
        Unavailable
            Still, after ``max_ms``, or once the query was stopped. The message says what was tried, for how long, and
            how it ended.
        """
        started_ms = self.clock.elapsed_ms()
        pause_ms = max(1, self.backoff_ms)
        attempts = 0
        while True:
            attempts += 1
            try:
                return action()
            except Unavailable as error:
                spent_ms = self.clock.elapsed_ms() - started_ms
                if spent_ms + pause_ms > self.max_ms:
                    raise Unavailable(
                        f"{doing} failed {attempts} times in {spent_ms / 1000:.1f} s; the limit is "
                        f"{self.max_ms / 1000:g} s (spark.holdfast.commit.retry.max). Last: {error}"
                    ) from error
                _LOGGER.warning("%s failed and is tried again in %d ms: %s", doing, pause_ms, error)
                if not self._pause(pause_ms):
                    raise Unavailable(
                        f"{doing} failed and is not tried again: the query was stopped. Last: {error}"
                    ) from error
            pause_ms = min(2 * pause_ms, _BACKOFF_MS_MAX)

    def _pause(self, pause_ms: int) -> bool:
        """False, at once, when the query was stopped."""
        while self.is_running():
            if pause_ms <= 0:
                return True
            look_ms = min(pause_ms, _LOOK_EVERY_MS)
            self.sleep(look_ms / 1000)
            pause_ms -= look_ms
        return False
