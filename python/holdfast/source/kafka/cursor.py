"""Where one consumer stands in one partition: what it has handed out, what it holds, and what is proven of the rest.

The invariants, which hold between any two calls:

- ``position`` is the first offset that was neither handed out nor proven to hold nothing visible.
- All that the client has given from ``position`` on is parked here, in order; nothing parked is before ``position``.
- Each visible record before ``_taken_to`` was handed out or is parked. Two things prove that, as librdkafka gives the
  records of a partition in order and its end-of-partition events among them: a record, for all before it and its own
  offset; the event, for all before the offset that it names. An event says nothing of what is parked, and nothing of
  what comes after it.

So a range is read to its end when no record before its end is parked *and* ``_taken_to`` has reached it. To go by the
event alone would lose the records that came with it: they are parked for the next range, and it is behind them.

Owner: the one task that has leased the consumer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import lt
from typing import Any

from holdfast.errors import Unavailable


class Cursor:
    """From ``start`` on, of which nothing is known yet."""

    def __init__(self, start: int) -> None:
        self.position = start
        self._parked: list[Any] = []
        # One past the last message that the client gave, and all that is proven; they differ where an event proved it.
        self._after_last = start
        self._taken_to = start
        self._log_ended_at = -1

    def take(self, messages: Sequence[Any]) -> None:
        """Messages that the client gave, none of them an error, at least one, in order.

        Raises
        ------
        Unavailable
            One of them lies where an event has proven that there is none: the log was replaced under the consumer.
        """
        messages = self._without_repeats(messages)
        if not messages:
            return
        first = messages[0].offset()
        if first < self._taken_to:
            raise Unavailable(
                f"Expected the next record at offset {self._taken_to} or later, since the partition had been read to"
                f" its end there, and found one at {first}: its log was truncated and written again. Read the range"
                " again, with a new consumer"
            )
        self._parked = [*self._parked, *messages] if self._parked else list(messages)
        self._after_last = self._taken_to = messages[-1].offset() + 1

    def _without_repeats(self, messages: Sequence[Any]) -> Sequence[Any]:
        """A client may give some again, as after a change of the leader: they were handed out, or are parked."""
        first, last = messages[0].offset(), messages[-1].offset()
        if first >= self._after_last and last - first == len(messages) - 1:
            return messages  # nothing is left out between them, nothing comes twice
        offsets = list(map(type(messages[0]).offset, messages))
        if first >= self._after_last and all(map(lt, offsets, offsets[1:])):
            return messages
        new, after_last = [], self._after_last
        for message, offset in zip(messages, offsets):
            if offset >= after_last:
                new.append(message)
                after_last = offset + 1
        return new

    def log_ended(self, offset: int) -> None:
        """An end-of-partition event: all before this offset was given."""
        self._log_ended_at = offset
        self._taken_to = max(self._taken_to, offset)

    def hand_out(self, end: int) -> list[Any]:
        """What is parked before ``end``, whether or not more is to come; ``position`` moves as far as is proven."""
        parked, within = self._parked, len(self._parked)
        if parked and parked[-1].offset() >= end:
            within = bisect_left(parked, end, key=_offset)
        handed_out, self._parked = parked[:within], parked[within:]
        self.position = max(self.position, min(self._taken_to, end))
        return handed_out

    def skip_to(self, offset: int) -> None:
        """The client was sent to this offset, or nobody will be: what lies between is lost, and whoever says so has
        warned of it. What is parked stays.
        """
        self._after_last = self._taken_to = offset
        self._log_ended_at = -1

    @property
    def next_offset(self) -> int:
        """The first offset of which nothing is known."""
        return self._taken_to

    @property
    def end_in_words(self) -> str:
        """For errors: where the log ended when the client last said so; empty where it did not."""
        if self._log_ended_at < 0:
            return ""
        return (
            f". What can be read of the partition ended at offset {self._log_ended_at}: either nothing was written"
            " after it, or an open transaction holds it back"
        )

    @property
    def is_at_end_of_log(self) -> bool:
        """Whether nothing is parked, and the log had nothing after ``position`` when the client last said so."""
        return not self._parked and self._log_ended_at >= self.position


def _offset(message: Any) -> int:
    offset: int = message.offset()
    return offset
