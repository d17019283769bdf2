"""What retention has rightly deleted of a batch that Spark still has: Holdfast was told to retain fewer batches.

Told from damage by retention's own rule (`checkpoint/retention.py`), and by nothing less: the file is gone, not
changed, and a newer batch, which is committed and whole, has a floor from which on nobody needs it. Owner: one thread.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.checkpoint.handle import Handle, SnapshotRef
from holdfast.checkpoint.names import delta_name, operator_prefix, slot_prefix
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

    def note(self, handles: Iterable[Handle]) -> None:
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


def is_unretained(committed: Committed, batch_id: int, store: FileStore) -> bool:
    """Whether what a batch lacks has gone by retention, as far as names of files tell: none is read. False also where
    it lacks none.
    """
    newest, lacks = committed.at(None).handles, False
    for operator, slots in committed.at(batch_id).handles.items():
        for slot, handle in slots.items():
            folder = slot_prefix(operator_prefix(committed.query_id, operator), slot) + "/"
            there = {file.name[len(folder) :] for file in store.list(folder)}
            if _has_way(handle, there):
                continue
            newer = newest.get(operator, {}).get(slot)
            if newer is None or not _has_way(newer, there):
                return False
            needed = {delta_name(ref.sequence, ref.version_id): ref.sequence for ref in handle.deltas}
            needed |= {ref.name: needed_above(ref) for ref in handle.snapshots}
            if any(floor > newer.floor for name, floor in needed.items() if name not in there):
                return False
            lacks = True
    return lacks


def _has_way(handle: Handle, there: set[str]) -> bool:
    deltas = {ref.sequence for ref in handle.deltas if delta_name(ref.sequence, ref.version_id) in there}
    starts = {ref.sequence for ref in handle.snapshots if ref.name in there} | ({0} if handle.start == 0 else set())
    return any(deltas >= set(range(start + 1, handle.sequence + 1)) for start in starts)
