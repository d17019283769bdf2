"""What retention has rightly deleted of a batch that Spark still has: Holdfast was told to retain fewer batches.

Told from damage by retention's own rule (`checkpoint/retention.py`), and by nothing less: the file is gone, not
changed, and a newer batch, which is committed and whole, has a floor from which on nobody needs it. Owner: one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.checkpoint.handle import DeltaRef, Handle, NamedVersion, SnapshotRef, StoredHandle
from holdfast.checkpoint.names import delta_name, operator_prefix, slot_prefix
from holdfast.checkpoint.version_files import said_by
from holdfast.errors import Corrupt
from holdfast.inspect.committed import Committed
from holdfast.storage import FileStore


def needed_above(ref: SnapshotRef) -> int:
    """The floor from which on a snapshot may go. A delta may go from its own sequence on."""
    return ref.sequence + 1


class Floors:
    """Of each slot, that of the newest versions that can be restored, as far as they are noted: the newest first."""

    def __init__(self, store: FileStore) -> None:
        self._store = store
        self._floors: dict[tuple[str, int], int] = {}
        self._gone: dict[str, bool] = {}  # by name: each batch that lacks a file asks for it again

    def note(self, handles: Iterable[NamedVersion]) -> None:
        """Versions of a committed batch that can be restored."""
        for handle in handles:
            key = handle.operator, handle.slot
            self._floors[key] = max(self._floors.get(key, 0), handle.floor)

    def deleted(self, name: str, operator: str, slot: int, floor: int) -> bool:
        """Whether a file may have gone by retention, and is gone."""
        if floor > self._floors.get((operator, slot), 0):
            return False
        if name not in self._gone:
            self._gone[name] = all(file.name != name for file in self._store.list(name))
        return self._gone[name]


def is_unretained(
    committed: Committed, batch_id: int, store: FileStore, whole: Callable[[StoredHandle], Handle]
) -> bool:
    """Whether what a batch lacks has gone by retention, as far as names of files tell; none is read but the newest
    deltas, which tell the others. False also where it lacks none. ``whole``: :meth:`SlotVersions.whole`.
    """
    newest, lacks = committed.at(None).handles, False
    for operator, slots in committed.at(batch_id).handles.items():
        for slot, handle in slots.items():
            folder = slot_prefix(operator_prefix(committed.query_id, operator), slot) + "/"
            there = {file.name[len(folder) :] for file in store.list(folder)}
            newer = newest.get(operator, {}).get(slot)
            try:
                deltas = _known_deltas(handle, there, whole)
                if _has_way(handle, deltas, there):
                    continue
                if newer is None or not _has_way(newer, _known_deltas(newer, there, whole), there):
                    return False
            except Corrupt:
                return False
            # Where the newest delta is gone, those before it are not known: they may go no later than it.
            needed = {delta_name(ref.sequence, ref.version_id): ref.sequence for ref in deltas}
            needed |= {ref.name: needed_above(ref) for ref in handle.snapshots}
            if any(floor > newer.floor for name, floor in needed.items() if name not in there):
                return False
            lacks = True
    return lacks


def _known_deltas(
    stored: StoredHandle, there: set[str], whole: Callable[[StoredHandle], Handle]
) -> tuple[DeltaRef, ...]:
    """All deltas that lead to a version; or, where the file of the newest is not there, those that its text names."""
    newest = stored.newest
    if newest is not None and delta_name(newest.sequence, newest.version_id) not in there:
        return said_by(stored)
    return whole(stored).deltas


def _has_way(handle: StoredHandle, known: Iterable[DeltaRef], there: set[str]) -> bool:
    deltas = {ref.sequence for ref in known if delta_name(ref.sequence, ref.version_id) in there}
    starts = {ref.sequence for ref in handle.snapshots if ref.name in there} | ({0} if handle.start == 0 else set())
    return any(all(at in deltas for at in range(start + 1, handle.sequence + 1)) for start in starts)
