"""What happens off a batch's path: folds, snapshots, retention.
Runs in the background thread, or in a batch past the hard limit.

One process at a time for each slot (the lock of the slot's folder). It may be killed at any instant:
what it was making is a work folder or stray files, and the next process starts over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from holdfast.checkpoint.back_off import BackOff
from holdfast.checkpoint.base_folder import LocalBase, SnapshotMarker
from holdfast.checkpoint.base_maker import BaseMaker
from holdfast.checkpoint.claim_end import end_claim, is_claim_due
from holdfast.checkpoint.delta_reader import DeltaReader
from holdfast.checkpoint.handle import DeltaRef, Handle, SnapshotRef
from holdfast.checkpoint.lineage import is_young, may_name
from holdfast.checkpoint.local_bases import LocalBases
from holdfast.checkpoint.retention import Retention
from holdfast.checkpoint.settings import HARD_LIMIT_FACTOR, CheckpointSettings
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.checkpoint.snapshot import Snapshots
from holdfast.checkpoint.timeline import Timeline
from holdfast.checkpoint.unused_folders import clear_unused
from holdfast.errors import Corrupt, HoldfastError
from holdfast.fault_points import reach
from holdfast.units import format_duration

# A snapshot that is due this many times over is made in the batch: the background does not get to it, as where each
# batch has a process of its own.
_LATE_FACTOR = 2
# An entry of the overlay takes a bit more than twice the bytes that are counted for it.
_PENDING_PART = 4
_RETRY_MS_MAX = 300_000
_GRACE_SETTING = "spark.holdfast.stray.grace"


@dataclass(frozen=True)
class Task:
    """What a batch left to do.

    ``retention``: a snapshot was newly named, so files may have become useless. ``pending_bytes``: what the overlay
    must keep until there is a newer base.
    """

    handle: Handle
    parent: Handle | None
    opened_ms: int
    retention: bool
    pending_bytes: int = 0


def is_fold_due(refs: tuple[DeltaRef, ...], settings: CheckpointSettings, factor: int = 1) -> bool:
    """Whether the deltas since a base are due for the next base. With ``factor``: for the hard limit."""
    size_bytes = sum(ref.size_bytes for ref in refs)
    return bool(refs) and (
        len(refs) >= factor * settings.fold_deltas_max or size_bytes >= factor * settings.fold_bytes_max
    )


def is_snapshot_due(handle: Handle, settings: CheckpointSettings, factor: int = 1) -> bool:
    """Whether the deltas since the newest named snapshot are due for the next. With ``factor``: whether it is late."""
    newest = handle.snapshots[0] if handle.snapshots else None
    refs = handle.deltas_after(newest.sequence if newest else 0)
    part = math.ceil(settings.snapshot_state_fraction * newest.state_bytes) if newest else 0
    size_bytes = sum(ref.size_bytes for ref in refs)
    return bool(refs) and (
        len(refs) >= factor * settings.snapshot_deltas_max
        or size_bytes >= factor * max(part, settings.snapshot_bytes_min, 1)
    )


class Maintenance:
    """Of one slot. Called from the slot's thread (`wanted`, `ready_snapshot`, `catch_up_now`)
    and from the background (`run`).
    """

    def __init__(
        self,
        context: SlotContext,
        bases: LocalBases,
        deltas: DeltaReader,
        snapshots: Snapshots,
        maker: BaseMaker,
        timeline: Timeline | None,
    ) -> None:
        self._context = context
        self._bases = bases
        self._deltas = deltas
        self._snapshots = snapshots
        self._maker = maker
        self._timeline = timeline
        self._retention = Retention(context, snapshots, timeline)
        self._is_retention_due = False
        self._has_retained = False
        self._has_looked = False  # for snapshots that a process before this one left in storage
        self._passed_over: str | None = None  # the snapshot of a mark that is old, for which there is no (further) look
        self._back_off = BackOff(_RETRY_MS_MAX)
        self._is_damaged = False  # what failed last met damage; to meet it again may take a download
        self._uploaded_ms = float("-inf")  # as ``elapsed_ms`` counts
        self._began_ms: dict[str, float] = {}  # when uploads of this process began, by manifest; as it counts too
        self._has_warned = False  # that an upload took too long

    def wanted(self, task: Task, base: LocalBase | None) -> bool:
        """Whether there is anything to do, as far as can be told without looking at the disk."""
        settings = self._context.settings
        pending = task.handle.deltas_after(base.sequence if base else 0)
        self._is_retention_due |= task.retention  # stays until it is done: this task may give way to a later one
        due = (
            self._is_retention_due
            or self._is_memory_short(task)
            or is_fold_due(pending, settings)
            or self._needs_snapshot(task.handle)
        )
        return (due and self._may_try) or is_claim_due(self._context, task.parent)

    def ready_snapshot(self, handle: Handle) -> SnapshotRef | None:
        """A snapshot that the handle after ``handle`` may name: uploaded from this machine, or found in storage.

        There it is looked for where one is due: by the first batch of a process, and where another mark here is old
        than the first that was. Once may be chance; then batches are so far apart that none is named in time. And after
        an upload of this process that took so long that its mark is old as it is made.
        """
        markers = self._markers(handle)
        young = self._young(markers)
        if young is not None:
            return young
        if not is_snapshot_due(handle, self._context.settings):
            return None
        old = markers[0].ref.name if markers else None
        is_late_again = old is not None and self._passed_over not in (None, old)
        found = self._find_unnamed(handle) if is_late_again or not self._has_looked else None
        self._has_looked = True
        if found is None and old is not None:
            self._passed_over = old  # else each batch would list the folder until the next is uploaded
        return found  # for this batch only: to the retention of any later attempt it may be a stray

    def catch_up_now(self, task: Task) -> None:
        """Does in the caller's thread what the background did not get to: a fold past the hard limit, a snapshot that
        is late; and the first retention of a process, which may be gone before the background gets to it, as the
        processes before it may have been. What fails is tried again at a later batch: a fold past the hard limit at the
        next, but where something was damaged it waits as the others do.
        """
        handle, settings = task.handle, self._context.settings
        try:
            is_past_limit = is_fold_due(self._pending(handle), settings, HARD_LIMIT_FACTOR)
            if is_past_limit and (self._may_try or not self._is_damaged):
                # Held or not: whoever holds it may be uploading for long,
                # and a fold is right without it, if perhaps done twice.
                with self._context.folder.maintenance_lock():
                    self._fold(handle)
            if not self._may_try:
                return
            if self._needs_snapshot(handle, _LATE_FACTOR):
                self._is_retention_due |= task.retention
                self._run_if_free(task)
            elif task.retention and not self._has_retained:
                # In storage only, where no lock is asked for: a background that meets a held one gives way.
                self._check_alone(handle)
                self._retain(task)
        except HoldfastError as error:
            self._failed(handle, error)

    def run(self, task: Task) -> None:
        """Does what is due; what fails is logged and tried again after a later batch. Never raises."""
        if self._may_try:
            self._maintain(task)
        # Last, and by itself: what is wrong with a savepoint's folder concerns nothing of this slot.
        if is_claim_due(self._context, task.parent):
            end_claim(self._context)

    def _maintain(self, task: Task) -> None:
        handle = task.handle
        try:
            self._run_if_free(task)
            self._back_off.succeeded()
            context = self._context
            now_ms, unused_ms = context.clock.now_ms(), context.settings.local_unused_ms
            clear_unused(context.folder.local_dir, now_ms, unused_ms, context.ids)
        except HoldfastError as error:
            self._failed(handle, error)
        except Exception:
            self._back_off.failed(self._context.clock.elapsed_ms())
            self._context.logger.exception("maintenance of %s failed and will be tried again", handle.where)

    def _run_if_free(self, task: Task) -> None:
        with self._context.folder.maintenance_lock() as is_mine:
            if is_mine:
                self._run_locked(task)

    def _run_locked(self, task: Task) -> None:
        context, handle = self._context, task.handle
        self._check_alone(handle)
        context.folder.clear_abandoned()
        needs_snapshot = self._needs_snapshot(handle) and self._young(self._markers(handle)) is None
        pending = self._pending(handle)
        if pending and (needs_snapshot or self._is_memory_short(task) or is_fold_due(pending, context.settings)):
            self._fold(handle)
        if needs_snapshot:
            self._upload(handle)
        if self._is_retention_due:
            self._retain(task)
        # The newest delta stays, even where a base has it: the next process asks it which were before it.
        self._deltas.drop_copies(min(self._bases.discard_old(handle), handle.sequence - 1))

    def _upload(self, handle: Handle) -> None:
        clock = self._context.clock
        began_ms = clock.elapsed_ms()
        ref = self._snapshots.upload(self._bases.of(handle)[0], handle.snapshots[0] if handle.snapshots else None)
        self._uploaded_ms = clock.elapsed_ms()
        kept = {marker.ref.name for marker in self._markers(handle)}
        self._began_ms = {name: ms for name, ms in self._began_ms.items() if name in kept} | {ref.name: began_ms}
        took_ms, grace_ms = self._uploaded_ms - began_ms, self._context.settings.stray_grace_ms
        is_late = took_ms > grace_ms // 2
        # From here on, what is unnamed is its own. What is late by now storage is asked for: else each would be.
        self._has_looked = not is_late
        if is_late and not self._has_warned:
            self._has_warned = True
            self._context.logger.warning(
                "%s: the upload of its snapshot took %.0f s, more than half of %s (%s): another host may take its "
                "files for strays and delete them. It is named if they are all there; if not, it is uploaded again. "
                "Set %s to more than twice as long as an upload takes",
                handle.where,
                took_ms / 1000,
                _GRACE_SETTING,
                format_duration(grace_ms),
                _GRACE_SETTING,
            )

    def _check_alone(self, handle: Handle) -> None:
        if self._timeline is not None:
            self._timeline.check_alone(handle)

    def _retain(self, task: Task) -> None:
        self._retention.run(task.handle, task.parent, task.opened_ms)
        self._is_retention_due, self._has_retained = False, True

    def _markers(self, handle: Handle) -> list[SnapshotMarker]:
        """Of the bases here, newest first: those of snapshots that the handle after ``handle`` may name."""
        markers = filter(None, (base.marker() for base in self._bases.of(handle)))
        return [marker for marker in markers if may_name(handle, marker.ref, marker.diff_parent)]

    def _young(self, markers: list[SnapshotMarker]) -> SnapshotRef | None:
        """What is young by the clock of its mark, and of this process's own also by the one that never goes back."""
        clock, grace_ms = self._context.clock, self._context.settings.stray_grace_ms
        now_ms, oldest_ms = clock.now_ms(), clock.elapsed_ms() - grace_ms // 2
        for marker in markers:
            is_own_old = self._began_ms.get(marker.ref.name, oldest_ms) < oldest_ms
            if is_young(marker.created_ms, now_ms, grace_ms) and not is_own_old:
                return marker.ref
        return None

    def _find_unnamed(self, handle: Handle) -> SnapshotRef | None:
        try:
            found = self._snapshots.find_unnamed(handle)
        except HoldfastError as error:
            self._context.logger.warning("snapshots in storage were not looked for: %s", error)
            return None
        return found[0] if found is not None and may_name(handle, *found) else None

    @property
    def _may_try(self) -> bool:
        return self._back_off.is_over(self._context.clock.elapsed_ms())

    def _needs_snapshot(self, handle: Handle, factor: int = 1) -> bool:
        """Whether a snapshot is due, and the pause after the last one is over: of this process, or that a base here is
        marked with.
        """
        settings = self._context.settings
        if settings.snapshot_pause_min_ms and self._is_pausing(handle, settings.snapshot_pause_min_ms):
            return False
        return is_snapshot_due(handle, settings, factor)

    def _is_pausing(self, handle: Handle, pause_ms: int) -> bool:
        """Looks for marks in each batch: two folds later the marked base is gone.

        By the clock that never goes back; a mark has the other one, and the time when its upload began: what it says
        counts where it can be.
        """
        clock = self._context.clock
        elapsed_ms, now_ms = clock.elapsed_ms(), clock.now_ms()
        for marker in filter(None, (base.marker() for base in self._bases.of(handle))):
            age_ms = now_ms - marker.created_ms
            if 0 <= age_ms < pause_ms:
                self._uploaded_ms = max(self._uploaded_ms, elapsed_ms - age_ms)
        return elapsed_ms < self._uploaded_ms + pause_ms

    def _is_memory_short(self, task: Task) -> bool:
        """Whether what awaits the next base takes too much of the memory that may be kept between batches."""
        settings = self._context.settings
        return not settings.complete and task.pending_bytes > settings.cache_memory_max_bytes // _PENDING_PART

    def _pending(self, handle: Handle) -> tuple[DeltaRef, ...]:
        base = next(iter(self._bases.of(handle)), None)
        return handle.deltas_after(base.sequence if base else 0)

    def _fold(self, handle: Handle) -> None:
        context = self._context
        started_ms = context.clock.elapsed_ms()
        parent = next(iter(self._bases.of(handle)), None)
        if parent is None and handle.start > 0:
            # Nothing here and the deltas do not go back to the beginning: as in a restore.
            parent = self._snapshots.restore_newest(handle)
        base = self._maker.fold(parent, handle)
        reach("after_fold")
        ms = context.clock.elapsed_ms() - started_ms
        context.background_work.folded(ms)
        context.logger.info(
            "%s: folded %d deltas into a base of %d bytes in %.0f ms",
            handle.where,
            handle.sequence - (parent.sequence if parent else 0),
            sum(file.size_bytes for file in base.record.files),
            ms,
        )

    def _failed(self, handle: Handle, error: HoldfastError) -> None:
        self._back_off.failed(self._context.clock.elapsed_ms())
        self._context.logger.warning("maintenance of %s failed and will be tried again: %s", handle.where, error)
        self._is_damaged = isinstance(error, Corrupt)
        if self._is_damaged:
            try:
                self._bases.discard_damaged(str(error))
            except HoldfastError as failure:  # of the local disk
                self._context.logger.warning("local bases could not be read through: %s", failure)
