"""How long what failed waits until it is tried again: twice as long each time. Owner: whoever tries."""

from __future__ import annotations

import math

_FIRST_MS = 1_000


class BackOff:
    """Of one thing that is done off a batch's path. Times are a clock's `elapsed_ms`."""

    def __init__(self, longest_ms: int) -> None:
        self._longest_ms = longest_ms
        self._wait_ms = 0
        self._until_ms = -math.inf

    def is_over(self, now_ms: float) -> bool:
        """Whether it may be tried."""
        return now_ms >= self._until_ms

    def failed(self, now_ms: float) -> None:
        """It waits, and longer than the last time."""
        self._wait_ms = min(max(2 * self._wait_ms, _FIRST_MS), self._longest_ms)
        self._until_ms = now_ms + self._wait_ms

    def succeeded(self) -> None:
        """The next failure is the first again."""
        self._wait_ms = 0
