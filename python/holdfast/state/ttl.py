"""Time to live: how long what a state holds stays after it was last written, or read. See docs/rfcs/0009."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from holdfast.errors import InvalidRequest
from holdfast.units import format_duration, parse_duration

_CHOICES = {
    "refresh": ("write", "read_and_write"),
    "visibility": ("never_expired", "until_cleaned"),
    "time": ("processing", "event"),
}
# Added to any time of a batch it is a time still: 146 million years.
_DURATION_MAX_MS = 1 << 62
# Under "until_cleaned" expired entries go this many times in a lifetime.
_CLEANINGS = 8


@dataclass(frozen=True)
class TTL:
    """How long a value, a list element or a map entry lives, each by itself.

    Time is the batch's, so that a replayed batch sees what it saw before: its timestamp, or the watermark as it begins.

    Parameters
    ----------
    duration
        ``"7 d"``, ``"1 h 30 min"``, a ``timedelta``, or an int of milliseconds; more than zero, at most 2^62 ms.
    refresh
        What starts it anew: ``"write"``, or ``"read_and_write"``, under which a read is a write too, and the delta of
        a batch holds what the batch read.
    visibility
        ``"never_expired"``: what has expired is gone for the next batch. ``"until_cleaned"``: it is still given out, up
        to an eighth of ``duration`` longer, until a batch passes the next point of time at which the state is cleaned.
    time
        ``"processing"``, or ``"event"``: the query's watermark, which the query must have. Then an entry lives for
        ``duration`` after the latest event time that its slot had seen when it was written.

    Raises
    ------
    InvalidRequest
        No duration, one that is too long to be added to a time, or another word than these.
    """

    duration: str | int | timedelta
    refresh: Literal["write", "read_and_write"] = "write"
    visibility: Literal["never_expired", "until_cleaned"] = "never_expired"
    time: Literal["processing", "event"] = "processing"

    def __post_init__(self) -> None:
        if self.duration_ms <= 0:
            raise InvalidRequest(f"TTL: duration is {self.duration!r}; expected more than zero")
        if self.duration_ms > _DURATION_MAX_MS:
            raise InvalidRequest(
                f"TTL: duration is {self.duration!r}; expected at most {_DURATION_MAX_MS} ms, which can be added to a "
                "time. What shall never expire needs no ttl=; a state that had one keeps what it holds without it"
            )
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise InvalidRequest(
                    f"TTL: {name} is {getattr(self, name)!r}; expected {' or '.join(map(repr, known))}"
                )

    @classmethod
    def of(cls, given: Any) -> TTL | None:
        """A declaration's ``ttl=``: a TTL, a duration for one that is otherwise as by default, or None."""
        if given is None or isinstance(given, TTL):
            return given
        return cls(given)

    @property
    def duration_ms(self) -> int:
        """The duration in milliseconds."""
        return parse_duration(self.duration)

    @property
    def refreshes_on_read(self) -> bool:
        """Whether a read starts the duration anew."""
        return self.refresh == "read_and_write"

    @property
    def step_ms(self) -> int:
        """The cutoff moves whenever the time passes a multiple of this; 1: with each millisecond."""
        return 1 if self.visibility == "never_expired" else max(1, self.duration_ms // _CLEANINGS)

    def __str__(self) -> str:
        return f"{format_duration(self.duration_ms)} of {self.time} time"
