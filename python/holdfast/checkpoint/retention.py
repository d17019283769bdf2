"""Which stored files of a slot may go: a pure rule, and the pass that applies it.

A slot deletes only its own files and only those that no retained handle can name.
The rule holds whoever applies it: the attempt that Spark will commit, one that it will not,
or a zombie that wakes up hours later on a lineage that was rolled back.
tests/unit/test_retention.py plays such histories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from holdfast.checkpoint.delta_file import identity_of
from holdfast.checkpoint.handle import Handle, SnapshotRef
from holdfast.checkpoint.lineage import is_expired
from holdfast.checkpoint.names import delta_name, parse_version, slot_prefix
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.checkpoint.snapshot import Snapshots
from holdfast.checkpoint.timeline import Timeline
from holdfast.errors import Corrupt
from holdfast.fault_points import reach
from holdfast.storage import StoredFile

_DELETE_AT_ONCE = 500
#: Why a file may go.
NOT_RETAINED = "of versions that no retained batch needs"
NOT_COMMITTED = "of an attempt or a run that was never committed"
NOT_NAMED = "a snapshot that no version names"
OF_NO_SNAPSHOT = "of no snapshot that a version names"


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
        When the attempt was opened, less the grace time, in the store's time. What is younger may belong to somebody
        who is still at work, or to a successor of whom this attempt knows nothing.
    manifests, tables
        Names that retained handles' snapshots have; ``tables`` is None when a manifest could not be read.
    in_force_from
        From this sequence on, a delta that is not of the lineage may be what Spark's state has in a retained batch, as
        the attempt that did not count was the last to leave it (docs/rfcs/0020). None: the committed one, no lower.
    """

    floor: int
    listed_from: int
    listed: dict[int, str]
    committed_sequence: int
    strays_before_ms: int
    manifests: frozenset[str]
    tables: frozenset[str] | None
    in_force_from: int | None = None


def view_of(
    handle: Handle,
    parent: Handle | None,
    opened_ms: int,
    grace_ms: int,
    tables: frozenset[str] | None,
    in_force_from: int | None = None,
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
        in_force_from=in_force_from,
    )


def reason_to_delete(file: StoredFile, view: RetentionView) -> str | None:
    """Why ``file``, named relative to the slot's folder, may go; None: it stays. Files of unknown kinds stay."""
    kind, inside, _ = file.name.partition("/")
    if not inside:
        return None
    version = parse_version(file.name)
    is_old = file.modified_ms < view.strays_before_ms
    if kind == "sst":
        return OF_NO_SNAPSHOT if is_old and view.tables is not None and file.name not in view.tables else None
    if version is None:
        return None
    sequence, version_id = version
    settled = is_old and sequence <= view.committed_sequence
    if kind == "delta":
        is_stray = sequence > view.listed_from and view.listed.get(sequence) != version_id
        if sequence <= view.floor:
            return NOT_RETAINED
        in_force_from = view.committed_sequence if view.in_force_from is None else view.in_force_from
        return NOT_COMMITTED if settled and is_stray and sequence < in_force_from else None
    if kind == "snapshot" and file.name not in view.manifests:
        if sequence < view.floor:
            return NOT_RETAINED
        return NOT_NAMED if settled else None
    return None


def with_what_is_in_force(
    view: RetentionView,
    files: Iterable[StoredFile],
    handle: Handle,
    retained_batches: int,
    batch_of: Callable[[int], int | None],
) -> RetentionView:
    """``view`` of the attempt that prepared ``handle``, with what batches that can be rolled back to may still name.

    Parameters
    ----------
    batch_of
        The batch in which the lineage came to a sequence; None: that is not known now. Asked of as few as there are
        sequences with strays that may go, and one more.
    """
    strays = (file for file in files if reason_to_delete(file, view) == NOT_COMMITTED)
    for sequence in sorted({version[0] for file in strays if (version := parse_version(file.name)) is not None}):
        replaced_in = batch_of(sequence + 1)
        if replaced_in is None or not is_expired(replaced_in, handle.batch_id, retained_batches):
            return replace(view, in_force_from=sequence)
    return view


def tables_by_manifest(
    snapshots: Snapshots,
    refs: Iterable[SnapshotRef],
    manifests: Iterable[str],
    known: Mapping[str, tuple[str, ...]] | None = None,
) -> dict[str, tuple[str, ...]]:
    """Names of the files that snapshots have, by what handles name and by names of manifests. Corrupt where that cannot
    be said.

    Parameters
    ----------
    known
        What this gave before: manifests never change, and those of it are not read again by name.
    """
    known = known or {}
    # Most files are of many snapshots: each name is held once, and no longer than a manifest has it.
    same = {table: table for tables in known.values() for table in tables}

    def held(tables: Iterable[str]) -> tuple[str, ...]:
        return tuple(same.setdefault(table, table) for table in tables)

    found = {ref.name: held(snapshots.read_manifest(ref).stored().values()) for ref in refs}
    for name in manifests:
        if name not in found:
            found[name] = known[name] if name in known else held(snapshots.files_named_by(name))
    return found


class Retention:
    """Deletes what may go. Run after a handle has named a new snapshot; what a crash leaves goes the next time.

    While another timeline may need a file (timeline.py) nothing is deleted at all.
    """

    def __init__(self, context: SlotContext, snapshots: Snapshots, timeline: Timeline | None = None) -> None:
        self._context = context
        self._snapshots = snapshots
        self._timeline = timeline
        # A slot that is due a snapshot each batch has one superseded for each retained batch. Never changed in place,
        # as the slot's thread and the background may both be at it (`Maintenance.catch_up_now`).
        self._known: Mapping[str, tuple[str, ...]] = {}

    def run(self, handle: Handle, parent: Handle | None, opened_ms: int) -> int:
        """How many files were deleted."""
        context = self._context
        folder = slot_prefix(context.prefix, context.slot) + "/"
        tables = self._tables(handle)
        listed = context.file_store.list(folder)
        own = [StoredFile(file.name[len(folder) :], file.size_bytes, file.modified_ms) for file in listed]
        # Files have the store's time: by a clock that is ahead of it, what was just stored would be old.
        newest = delta_name(handle.sequence, handle.version_id)
        opened_ms = min([opened_ms, *(file.modified_ms for file in own if file.name == newest)])
        view = view_of(handle, parent, opened_ms, context.settings.stray_grace_ms, tables)
        if self._timeline is not None:
            self._timeline.check_listed(handle, own)
        view = with_what_is_in_force(view, own, handle, context.settings.retained_batches, self._batch_of(handle))
        names = [folder + file.name for file in own if reason_to_delete(file, view)]
        for first in range(0, len(names), _DELETE_AT_ONCE):
            context.file_store.delete(names[first : first + _DELETE_AT_ONCE])
            reach("during_retention")
        context.file_store.sweep(folder, view.strays_before_ms)
        context.logger.debug("retention of %s: %d files deleted", handle.where, len(names))
        return len(names)

    def _batch_of(self, handle: Handle) -> Callable[[int], int | None]:
        context = self._context

        def batch_of(sequence: int) -> int | None:
            name = context.stored(delta_name(sequence, handle.versions[sequence]))
            data = context.file_store.get(name)
            try:
                return None if data is None else identity_of(data, name).batch_id
            except Corrupt:
                return None

        return batch_of

    def _tables(self, handle: Handle) -> frozenset[str] | None:
        superseded = [old.name for old in handle.superseded if old.name is not None]
        try:
            known = tables_by_manifest(self._snapshots, handle.snapshots, superseded, self._known)
        except Corrupt as error:
            self._context.logger.warning("no file of a snapshot is deleted while one is damaged: %s", error)
            return None
        self._known = known
        return frozenset(chain.from_iterable(known.values()))
