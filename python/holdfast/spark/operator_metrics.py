"""What an operator did in one batch: its slots' figures, added up. Knows no Spark.

Each figure is explained in docs/guide/metrics.md too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.spark.slot_metrics import SlotMetrics

#: Ways to open a slot by which its state came from the checkpoint's storage.
_RESTORES = ("restore", "fallback")
_ADDED = (
    "late_rows_kept", "late_rows_dropped", "late_rows_aside", "timers_registered", "timers_deleted", "timers_fired",
    "lookups", "base_reads", "entries_written", "entries_removed", "entries_expired", "delta_bytes", "spills",
    "restored_bytes", "folds", "fold_ms", "fold_expired_entries", "snapshots", "snapshot_bytes", "memory_entries",
    "memory_bytes", "disk_bytes", "counters_left_out",
)  # fmt: skip


@dataclass(frozen=True)
class OperatorMetrics:
    """What one operator did in one batch, added up over the slots that the batch called.

    Counts are of the batch alone; a batch that runs again is counted as it ran last. Milliseconds are wall-clock time,
    bytes are as stored.

    Attributes
    ----------
    operator, batch_id
        The operator's name, and the number of the micro-batch.
    slots
        Slots that the batch called: those with rows, and those with a timer that is due.
    slots_taken_over
        Of them, those that computed nothing, since their output was visible already: their rows are not counted.
    rows_in, rows_out
        Rows by input ("input" where there is one only) and by output ("main", and side outputs by name). Rows of a
        broadcast input count in each slot.
    late_rows_kept, late_rows_dropped, late_rows_aside
        Rows behind the watermark that the processor got all the same, that were dropped, and that went to a side
        output. All of them are in ``rows_in``.
    timers_registered, timers_deleted, timers_fired
        Timers that the processor set and removed (a timer that is set already counts too), and those that called it.
    lookups
        Keys that states were asked for or changed at: rows of all their operations.
    base_reads
        Keys of these that were looked for on disk.
    entries_written, entries_removed
        Values, list elements, map entries and timers that the batch changed or made, and removed.
    entries_expired
        Entries that the batch met after their time to live.
    delta_bytes
        What was written to the checkpoint for the batch.
    spills
        Times that a slot outgrew ``memory.batch.max``.
    opened
        Slots by how their state came to hand: "new", "equal" (the worker had it),
        "catch_up" (it was some batches behind), "local_base" (from this machine's disk),
        "restore" (from the checkpoint), "fallback" (a restore past something damaged).
    restored_bytes
        Read of the checkpoint for that.
    folds, fold_ms, fold_expired_entries
        Folds that ended in the background since the worker last told, how long they took, and the entries that left
        the disk with them because their time to live was over.
    snapshots, snapshot_bytes
        Snapshots that were uploaded in the background, and the bytes of their new files.
    memory_entries, memory_bytes, disk_bytes
        What the slots that were called keep in their workers' memory, and their newest bases on local disks.
    open_ms_max, prepare_ms_max, slot_ms_max
        Of the slowest slot: to have the state at hand, to make the new version durable, and all in all, with the time
        that Spark took to bring rows and to take them.
    slot_ms_sum
        Of all slots.
    counters
        What the processor counted in ``ctx.counters``.
    counters_left_out
        Calls of ``ctx.counters.add`` for names beyond the 64 of a slot.
    """

    operator: str
    batch_id: int
    slots: int
    slots_taken_over: int
    rows_in: dict[str, int]
    rows_out: dict[str, int]
    late_rows_kept: int
    late_rows_dropped: int
    late_rows_aside: int
    timers_registered: int
    timers_deleted: int
    timers_fired: int
    lookups: int
    base_reads: int
    entries_written: int
    entries_removed: int
    entries_expired: int
    delta_bytes: int
    spills: int
    opened: dict[str, int]
    restored_bytes: int
    folds: int
    fold_ms: float
    fold_expired_entries: int
    snapshots: int
    snapshot_bytes: int
    memory_entries: int
    memory_bytes: int
    disk_bytes: int
    open_ms_max: float
    prepare_ms_max: float
    slot_ms_max: float
    slot_ms_sum: float
    counters: dict[str, int]
    counters_left_out: int

    @classmethod
    def of(cls, operator: str, batch_id: int, told: Iterable[SlotMetrics]) -> OperatorMetrics:
        """Adds up what slots told. One that told several times, as its task ran again, counts once: as it ran last."""
        by_slot: dict[int, SlotMetrics] = {}
        for one in sorted(told, key=lambda one: one.task):
            by_slot[one.slot] = one
        slots = list(by_slot.values())
        return cls(
            operator=operator,
            batch_id=batch_id,
            slots=len(slots),
            slots_taken_over=sum(one.taken_over for one in slots),
            rows_in=_by_name(one.rows_in for one in slots),
            rows_out=_by_name(one.rows_out for one in slots),
            opened=_by_name({one.opened: 1} for one in slots if one.opened),
            open_ms_max=max((one.open_ms for one in slots), default=0.0),
            prepare_ms_max=max((one.prepare_ms for one in slots), default=0.0),
            slot_ms_max=max((one.slot_ms for one in slots), default=0.0),
            slot_ms_sum=sum(one.slot_ms for one in slots),
            counters=_by_name(one.counters for one in slots),
            **{name: sum(getattr(one, name) for one in slots) for name in _ADDED},
        )

    @property
    def restores(self) -> int:
        """Slots whose state came from the checkpoint's storage."""
        return sum(self.opened.get(way, 0) for way in _RESTORES)

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {**asdict(self), "restores": self.restores}


def _by_name(counted: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counted:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return dict(sorted(total.items()))
