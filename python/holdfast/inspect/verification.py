"""Reads every byte that retained batches need: each file once, then which batches have a way left.

A way to a version of a slot: a snapshot that its handle names, whole, and each delta after it; or, where the deltas go
back to the beginning, all deltas. What is not there any more because Holdfast retains fewer batches than Spark is no
damage: no_longer_retained.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import pyarrow.compute as pc

from holdfast._core import xxh64_file
from holdfast.checkpoint.handle import DeltaRef, Handle, NamedVersion, SnapshotRef, StoredHandle
from holdfast.checkpoint.names import delta_name
from holdfast.checkpoint.operator_record import OperatorRecord
from holdfast.checkpoint.snapshot import Manifest
from holdfast.errors import Corrupt, HoldfastError, Incompatible, InvalidRequest
from holdfast.inspect.committed import Committed
from holdfast.inspect.descriptions import Damage, Verification
from holdfast.inspect.no_longer_retained import Floors, needed_above
from holdfast.inspect.slot_versions import SlotVersions
from holdfast.sealed import CHECKSUM_DIGITS
from holdfast.storage import FileStore, local_file

Slots = Callable[[OperatorRecord, int], SlotVersions]
#: What may be wrong with a checkpoint; anything else is wrong with this machine or its network, and is raised.
_WRONG = (Corrupt, Incompatible, InvalidRequest)


def verify_versions(
    committed: Committed,
    store: FileStore,
    record_of: Callable[[str], OperatorRecord],
    slot_of: Slots,
    progress: Callable[[int, int], None] | None,
) -> tuple[Verification, frozenset[str]]:
    """See :meth:`holdfast.Checkpoint.verify`; and which of the files that are missing retention has deleted."""
    files = _Files(store, progress)
    readable: list[int] = []
    unretained: list[int] = []
    lost: dict[int, tuple[str, ...]] = {}
    damaged: dict[str, str] = {}
    deleted: set[str] = set()
    floors = Floors(store)
    if missing := committed.lost():
        damaged[missing.name] = committed.problem_of(missing)
        lost[missing.batch_id] = (damaged[missing.name],)
    for batch_id in reversed(committed.batches()):  # what is newer says what is needed no longer
        files.met.clear()
        whole: list[NamedVersion] = []
        blocked: dict[str, set[str]] = {}
        problems = _problems(committed, batch_id, files, record_of, slot_of, whole, blocked)
        if (problems or files.met) and batch_id not in committed.batches():
            continue  # a query that runs retains it no longer, nor what it needed
        gone = {name for name in files.met if name in files.needed and floors.deleted(name, *files.needed[name])}
        deleted |= gone
        damaged |= {name: problem for name, problem in files.met.items() if name not in gone}
        left = tuple(problem for problem in problems if not blocked.get(problem) or blocked[problem] - gone)
        if left:
            lost[batch_id] = left
        elif problems:
            unretained.append(batch_id)
        else:
            readable.append(batch_id)
        floors.note(whole)
    found = tuple(Damage(name, damaged[name]) for name in sorted(damaged))
    batches = tuple(reversed(readable)), dict(sorted(lost.items())), tuple(reversed(unretained))
    return Verification(files.count, files.bytes, found, *batches), frozenset(deleted)


def _problems(
    committed: Committed,
    batch_id: int,
    files: _Files,
    record_of: Callable[[str], OperatorRecord],
    slot_of: Slots,
    whole: list[NamedVersion],
    blocked: dict[str, set[str]],
) -> tuple[str, ...]:
    """What stands in the way of a batch. ``whole`` gets the handles that can be restored; ``blocked``, by problem, the
    files that stand in the way.
    """
    try:
        state = committed.at(batch_id)
    except _WRONG as error:
        files.met[f"batch {batch_id}"] = str(error)
        return (str(error),)
    problems: list[str] = []
    for operator, slots in sorted(state.handles.items()):
        try:
            record = record_of(operator)
            state.as_of(record, files.store)  # what a reader asks first
        except _WRONG as error:
            files.met[f"the record of operator {operator!r}"] = str(error)
            problems.append(str(error))
            continue
        known = {state.id for state in (*record.states, *record.dropped)}
        for slot in sorted(slots):
            if slot >= record.slots:
                problems.append(f"operator {operator!r} has {record.slots} slots, and a handle of slot {slot}")
            elif blocking := files.blocking(slots[slot], slot_of(record, slot)):
                problems.append(f"{slots[slot].where} cannot be restored")
                blocked[problems[-1]] = blocking
            elif unknown := sorted(files.state_ids(slots[slot], slot_of(record, slot)) - known):
                # Nothing else tells that the newest document of the log is gone: it is named by no other.
                lost = (
                    f"{slots[slot].where} has entries of states with the ids {unknown}, which neither operator.json "
                    "nor the log of states (states/) knows: its newest document is missing; restore it from a backup"
                )
                files.met[f"the log of states of operator {operator!r}"] = lost
                problems.append(lost)
            else:
                whole.append(slots[slot])
    return tuple(problems)


class _Files:
    """The files that were read so far: each is read once, whatever the number of handles that name it.

    ``met``: by name, what is wrong with those that were asked for since the caller cleared it.
    """

    def __init__(self, store: FileStore, progress: Callable[[int, int], None] | None) -> None:
        self.store = store
        self._progress = progress
        self._problems: dict[str, str | None] = {}
        self._manifests: dict[str, Manifest] = {}
        self._state_ids: dict[str, set[int]] = {}
        self._lineages: dict[str, tuple[DeltaRef, ...] | None] = {}
        self.met: dict[str, str] = {}
        #: By name: of which operator and slot it is, and the floor from which on retention may delete it.
        self.needed: dict[str, tuple[str, int, int]] = {}
        self.count = self.bytes = 0

    def blocking(self, handle: StoredHandle, slot: SlotVersions) -> set[str]:
        """Names of the files that stand in the way to the version; none, where one is whole. All ways are read, whether
        they are needed or not.
        """
        before, self.met = self.met, {}
        try:
            return set() if self._leads_to(handle, slot) else set(self.met) or {handle.where}
        finally:
            self.met = before | self.met

    def _leads_to(self, stored: StoredHandle, slot: SlotVersions) -> bool:
        starts = {ref.sequence: self._snapshot(ref, slot) for ref in stored.snapshots}
        handle = self._whole(stored, slot)
        if handle is None:
            return False
        deltas = {ref.sequence: self._delta(ref, slot) for ref in handle.deltas}
        if handle.start == 0:
            starts[0] = True
        return any(
            whole and all(deltas[at] for at in range(start + 1, handle.sequence + 1))
            for start, whole in starts.items()
            if all(at in deltas for at in range(start + 1, handle.sequence + 1))
        )

    def state_ids(self, stored: StoredHandle, slot: SlotVersions) -> set[int]:
        """Of which states there is something in the version, as far as its deltas and its times to live tell."""
        found = {expiry.state_id for expiry in stored.expiry}
        handle = self._whole(stored, slot)
        for ref in handle.deltas if handle is not None else ():
            found |= self._state_ids.get(_key_of(slot, ref), set())
        return found

    def _whole(self, stored: StoredHandle, slot: SlotVersions) -> Handle | None:
        """With all deltas; None where the newest does not tell which they are."""
        newest = stored.newest
        if stored.is_whole or newest is None:
            return stored.whole()
        if not self._delta(newest, slot):
            return None
        try:
            return stored.whole(self._lineages[_key_of(slot, newest)] or ())
        except Corrupt as error:
            self.met[slot.context.stored(delta_name(newest.sequence, newest.version_id))] = str(error)
            return None

    def _delta(self, ref: DeltaRef, slot: SlotVersions) -> bool:
        name, key = slot.context.stored(delta_name(ref.sequence, ref.version_id)), _key_of(slot, ref)

        def read() -> None:
            self._lineages[key] = slot.deltas.lineage(ref)
            self._state_ids[key] = {n for batch in slot.deltas.read(ref) for n in pc.unique(batch["state"]).to_pylist()}

        self._need(name, slot, ref.sequence)
        return self._once(key, name, ref.size_bytes, read)

    def _snapshot(self, ref: SnapshotRef, slot: SlotVersions) -> bool:
        name = slot.context.stored(ref.name)
        key = f"{name} {ref.checksum}"

        def read_manifest() -> None:  # once: a query that runs may delete it before the next handle that names it
            self._manifests[key] = slot.snapshots.read_manifest(ref)

        self._need(name, slot, needed_above(ref))
        if not self._once(key, name, ref.size_bytes, read_manifest):
            return False
        whole = True
        for file in self._manifests[key].files:
            stored = slot.context.stored(str(file.stored_as))
            folder = slot.context.folder.local_dir
            self._need(stored, slot, needed_above(ref))
            read = partial(compare_stored, self.store, stored, (file.size_bytes, file.checksum), folder)
            whole = self._once(f"{stored} {file.checksum}", stored, file.size_bytes, read) and whole
        return whole

    def _need(self, name: str, slot: SlotVersions, floor: int) -> None:
        known = self.needed.get(name, ("", 0, 0))[2]  # of a table that several snapshots have, the newest needs it
        self.needed[name] = (slot.context.operator, slot.context.slot, max(floor, known))

    def _once(self, key: str, name: str, size_bytes: int, read: Callable[[], object]) -> bool:
        if key not in self._problems:
            try:
                read()
                self._problems[key] = None
            except (Corrupt, Incompatible) as error:
                self._problems[key] = str(error)
            self.count += 1
            self.bytes += size_bytes
            if self._progress is not None:
                self._progress(self.count, self.bytes)
        problem = self._problems[key]
        if problem is not None:
            self.met[name] = problem
        return problem is None


def _key_of(slot: SlotVersions, ref: DeltaRef) -> str:
    return f"{slot.context.stored(delta_name(ref.sequence, ref.version_id))} {ref.checksum}"


def compare_stored(store: FileStore, name: str, expected: tuple[int, str], folder: str) -> None:
    """Corrupt where a stored file has not this size and checksum. ``folder``: where it is brought, if it must be."""
    with local_file(store, name, folder) as path:
        _compare(path, name, expected)


def _compare(path: str, name: str, expected: tuple[int, str]) -> None:
    if not os.path.isfile(path):
        raise Corrupt(f"{name} is missing")
    try:
        checksum, size_bytes = xxh64_file(path)
    except HoldfastError as error:
        raise Corrupt(f"{name} cannot be read: {error}") from error
    found = (size_bytes, f"{checksum:0{CHECKSUM_DIGITS}x}")
    if found != expected:
        raise Corrupt(
            f"{name} is damaged: expected {expected[0]} bytes with checksum {expected[1]}, found {found[0]} with "
            f"{found[1]}"
        )
