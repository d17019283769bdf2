"""What a processor may know besides its rows:
which batch, which slot, what time it is, and randomness that a replay repeats.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast import _core
from holdfast.errors import InvalidRequest

if TYPE_CHECKING:
    from holdfast.state.side_outputs import Outputs, SideOutput

#: Names of one slot and batch, and bytes of a name: each goes through Spark's progress to the driver.
COUNTERS_MAX = 64
COUNTER_NAME_BYTES_MAX = 128
# What a datetime holds: from the year 1 to the end of the year 9999.
_DATETIME_MIN_MS, _DATETIME_MAX_MS = -62_135_596_800_000, 253_402_300_799_999


class Counters:
    """Counts that a processor keeps by name; one set a slot and batch. They reach the driver with
    :func:`holdfast.metrics`.

    At most 64 names: calls for others are left out, and how many there were is told. A counter for each key is no
    counter; that is what state is for.
    """

    def __init__(self) -> None:
        self._values: dict[str, int] = {}
        self._left_out = 0

    def add(self, name: str, n: int = 1) -> None:
        """Adds ``n``, which may be negative, to the counter ``name``, which starts at 0.

        Raises
        ------
        InvalidRequest
            ``name`` is no text of up to 128 bytes, ``n`` no whole number, or the sum none of 64 bits.
        """
        try:
            total = self._values.get(name, 0) + index(n)
        except TypeError:
            raise InvalidRequest(
                f"counters.add({name!r}, {n!r}): expected a text and a whole number, found {type(name).__name__} and "
                f"{type(n).__name__}"
            ) from None
        if not -(1 << 63) <= total < 1 << 63:
            raise InvalidRequest(f"counters.add({name!r}, {n!r}): the counter would be {total}, and has 64 bits")
        if name not in self._values:
            _check_counter(name)
            if len(self._values) == COUNTERS_MAX:
                self._left_out += 1
                return
        self._values[name] = total

    if not TYPE_CHECKING:  # a checker shall find this by itself

        def __getitem__(self, name: Any) -> Any:
            """As ``collections.Counter`` is used: says what to call instead."""
            raise InvalidRequest(f"counters[{name!r}]: counters are added to only: ctx.counters.add({name!r}, n)")

        __setitem__ = __delitem__ = lambda self, name, *_: self[name]

    @property
    def left_out(self) -> int:
        """Calls for names beyond those that there may be."""
        return self._left_out

    @property
    def values(self) -> dict[str, int]:
        """A copy of all counts by name."""
        return dict(self._values)


class Context:
    """The surroundings of one call, the same whenever the batch is replayed.

    Time is the batch's own timestamp and randomness is seeded by query, operator, batch and slot, so that a replayed
    batch computes what it computed before. Use these in place of ``time.time()`` and ``random``.

    Attributes
    ----------
    query_id, operator
        Which query, and the operator's name.
    batch_id
        Number of the micro-batch.
    timestamp_ms
        The batch's own timestamp, milliseconds since 1970 (UTC).
    watermark_ms
        The event-time watermark that the batch began with, in the same unit; 0 before the first has come, None where
        the query has none.
    slot, slots
        Which slot of how many.
    timers
        In ``on_timer`` and ``on_timers``: the name of the timers that fire. None in ``process``.
    attempt
        Number of the Spark task attempt; the only attribute that a replay may change.
    logger
        Logger for the processor's own messages.
    counters
        See :class:`Counters`.
    """

    __slots__ = (
        "_outputs",
        "_random",
        "attempt",
        "batch_id",
        "counters",
        "logger",
        "operator",
        "query_id",
        "slot",
        "slots",
        "timers",
        "timestamp_ms",
        "watermark_ms",
    )  # fmt: skip

    def __init__(
        self,
        *,
        query_id: str,
        operator: str,
        batch_id: int,
        timestamp_ms: int,
        slot: int,
        slots: int,
        attempt: int = 0,
        watermark_ms: int | None = None,
        logger: logging.Logger | None = None,
        counters: Counters | None = None,
    ) -> None:
        self.query_id = query_id
        self.operator = operator
        self.batch_id = batch_id
        self.timestamp_ms = timestamp_ms
        self.watermark_ms = watermark_ms
        self.slot = slot
        self.slots = slots
        self.attempt = attempt
        self.timers: str | None = None
        self.logger = logger if logger is not None else logging.getLogger("holdfast.processor")
        self.counters = counters if counters is not None else Counters()
        self._outputs: Outputs | None = None
        self._random: np.random.Generator | None = None

    @property
    def timestamp(self) -> datetime:
        """The batch's own timestamp, in UTC. What no datetime holds is the first or the last one: year 1, year 9999."""
        return _instant(self.timestamp_ms)

    @property
    def watermark(self) -> datetime | None:
        """The event-time watermark, in UTC, or None where the query has none, or none has come yet. One past the year
        9999, where a single broken row may have moved it, is the last millisecond of that.
        """
        return _instant(self.watermark_ms) if self.watermark_ms else None

    @property
    def random(self) -> np.random.Generator:
        """A generator seeded by query, operator, batch and slot:
        each replay draws the same numbers in the same order.
        """
        if self._random is None:
            seed = _core.xxh64(json.dumps([self.query_id, self.operator, self.batch_id, self.slot]).encode())
            self._random = np.random.Generator(np.random.PCG64(seed))
        return self._random

    def output(self, tag: SideOutput, rows: Any) -> None:
        """Sends rows to a side output.

        Parameters
        ----------
        tag
            One of the operator's ``side_outputs``.
        rows
            All that ``process`` may give, in the tag's schema. Rows of one tag keep their order.

        Raises
        ------
        InvalidRequest
            The operator has no such side output, the rows do not fit its schema, or no rows are at work.
        """
        if self._outputs is None:
            raise InvalidRequest("ctx.output: expected a call while a processor is at work, found a bare context")
        self._outputs.add_to(tag, rows)

    def send_to(self, outputs: Outputs) -> None:
        """For who drives a processor: where :meth:`output` leads."""
        self._outputs = outputs

    def __repr__(self) -> str:
        where = f"slot {self.slot} of {self.slots}, batch {self.batch_id}, attempt {self.attempt}"
        return f"Context(operator {self.operator!r}, {where})"


def _check_counter(name: Any) -> None:
    if not isinstance(name, str) or not name or len(name.encode(errors="replace")) > COUNTER_NAME_BYTES_MAX:
        raise InvalidRequest(
            f"counters.add: the name is {str(name)[:200]!r}; expected a text of 1 to {COUNTER_NAME_BYTES_MAX} bytes. "
            "What differs from row to row goes into a state or an output, not into a counter's name"
        )


def _instant(ms: int) -> datetime:
    seconds, milliseconds = divmod(max(_DATETIME_MIN_MS, min(ms, _DATETIME_MAX_MS)), 1000)
    return datetime.fromtimestamp(seconds, timezone.utc).replace(microsecond=milliseconds * 1000)
