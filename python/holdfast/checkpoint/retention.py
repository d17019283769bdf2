"""Which stored files of a slot may go: a pure rule, and the pass that applies it.

A slot deletes only its own files and only those that no retained handle can name.
The rule holds whoever applies it: the attempt that Spark will commit, one that it will not,
or a zombie that wakes up hours later on a lineage that was rolled back.
tests/unit/test_retention.py plays such histories.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.checkpoint.handle import Handle
from holdfast.checkpoint.names import parse_version, slot_prefix
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.checkpoint.snapshot import Snapshots
from holdfast.checkpoint.timeline import Timeline
from holdfast.errors import Corrupt
from holdfast.fault_points import reach
from holdfast.storage import StoredFile

_DELETE_AT_ONCE = 500


@dataclass(frozen=True)
class RetentionView:
    """What an attempt knows when it tidies up.

    floor
        No retained handle needs a delta up to this sequence, or a snapshot below it.
    listed_from, listed
        Above sequence ``listed_from`` the attempt's handle lists every delta of its lineage:
        ``listed``, version id by sequence.
    committed_sequence
        Of the handle that the attempt was opened at, which is committed: its lineage is the truth up to there.
    strays_before_ms
        When the attempt was opened, less the grace time. What is younger may belong to somebody
        who is still at work, or to a successor of whom this attempt knows nothing.
    manifests, tables
        Names that retained handles' snapshots have; ``tables`` is None when a manifest could not be read.
    """

    floor: int
    listed_from: int
    listed: dict[int, str]
    committed_sequence: int
    strays_before_ms: int
    manifests: frozenset[str]
    tables: frozenset[str] | None


def view_of(
    handle: Handle, parent: Handle | None, opened_ms: int, grace_ms: int, tables: frozenset[str] | None
) -> RetentionView:
    """The view of the attempt that was opened at ``parent`` at time ``opened_ms`` and prepared ``handle``."""
    named = [snapshot.name for snapshot in handle.snapshots] + [old.name for old in handle.superseded if old.name]
    return RetentionView(
        floor=handle.floor,
        listed_from=handle.start,
        listed={delta.sequence: delta.version_id for delta in handle.deltas},
        committed_sequence=parent.sequence if parent else 0,
        strays_before_ms=opened_ms - grace_ms,
        manifests=frozenset(named),
        tables=tables,
    )


def may_delete(file: StoredFile, view: RetentionView) -> bool:
    """Whether ``file``, named relative to the slot's folder, may go. Files of unknown kinds stay."""
    kind, inside, _ = file.name.partition("/")
    if not inside:
        return False
    version = parse_version(file.name)
    is_old = file.modified_ms < view.strays_before_ms
    if kind == "sst":
        return is_old and view.tables is not None and file.name not in view.tables
    if version is None:
        return False
    sequence, version_id = version
    settled = is_old and sequence <= view.committed_sequence
    if kind == "delta":
        is_stray = sequence > view.listed_from and view.listed.get(sequence) != version_id
        return sequence <= view.floor or (settled and is_stray)
    if kind == "snapshot":
        return file.name not in view.manifests and (sequence < view.floor or settled)
    return False


class Retention:
    """Deletes what may go. Run after a handle has named a new snapshot; what a crash leaves goes the next time.

    While another timeline may need a file (timeline.py) nothing is deleted at all.
    """

    def __init__(self, context: SlotContext, snapshots: Snapshots, timeline: Timeline | None = None) -> None:
        self._context = context
        self._snapshots = snapshots
        self._timeline = timeline

    def run(self, handle: Handle, parent: Handle | None, opened_ms: int) -> int:
        """How many files were deleted."""
        context = self._context
        view = view_of(handle, parent, opened_ms, context.settings.stray_grace_ms, self._tables(handle))
        folder = slot_prefix(context.prefix, context.slot) + "/"
        listed = context.file_store.list(folder)
        own = [StoredFile(file.name[len(folder) :], file.size_bytes, file.modified_ms) for file in listed]
        if self._timeline is not None:
            self._timeline.check_listed(handle, own)
        names = [folder + file.name for file in own if may_delete(file, view)]
        for first in range(0, len(names), _DELETE_AT_ONCE):
            context.file_store.delete(names[first : first + _DELETE_AT_ONCE])
            reach("during_retention")
        context.file_store.sweep(folder, view.strays_before_ms)
        context.logger.debug("retention of %s: %d files deleted", handle.where, len(names))
        return len(names)

    def _tables(self, handle: Handle) -> frozenset[str] | None:
        tables: set[str] = set()
        try:
            for snapshot in handle.snapshots:
                tables |= set(self._snapshots.read_manifest(snapshot).stored().values())
            for old in handle.superseded:
                if old.name is not None:
                    tables |= self._snapshots.files_named_by(old.name)
        except Corrupt as error:
            self._context.logger.warning("no file of a snapshot is deleted while one is damaged: %s", error)
            return None
        return frozenset(tables)
