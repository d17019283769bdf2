"""The clock and the source of names: the only file that asks the real ones. Everything else is handed them, so tests
can fail them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """What time it is."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC; may jump."""

    def elapsed_ms(self) -> float:
        """Milliseconds since some start; never goes back."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def elapsed_ms(self) -> float:
        return time.perf_counter_ns() / 1e6


#: Gives a name that nobody else has: 32 hexadecimal digits.
Ids = Callable[[], str]


def new_id() -> str:
    """A random version-4 UUID, as 32 hexadecimal digits."""
    return uuid.uuid4().hex
