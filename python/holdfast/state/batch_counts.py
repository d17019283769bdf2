"""What a processor at work counts by itself in one slot and batch, whatever it is asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class BatchCounts:
    """Counts of one slot and batch.

    Attributes
    ----------
    late_rows_kept, late_rows_dropped, late_rows_aside
        Rows that were behind the watermark, by what became of them.
    timers_registered, timers_deleted
        Timers that were asked to be set and removed, also where they were set already, or were not there.
    timers_fired
        Timers that the processor was called with.
    """

    late_rows_kept: int = 0
    late_rows_dropped: int = 0
    late_rows_aside: int = 0
    timers_registered: int = 0
    timers_deleted: int = 0
    timers_fired: int = 0
