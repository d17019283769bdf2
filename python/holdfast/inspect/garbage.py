"""What no batch that Spark retains needs any more, and its deletion: `Checkpoint.gc`.

By the rule by which a running query tidies up (`checkpoint/retention.py`), from the newest committed version of each
slot. Beyond that rule nothing goes that any retained handle names, or a commit record, that a query which begins with
this state has yet to copy within the same folder, that the next version may name, that a manifest of a later version
names, or that is young by the store's clock. So it may run beside the query: what the query writes meanwhile is above
the versions that this looks at, or young. And nothing goes where the newest version is not whole: the folder is a copy
of another day then, or waits for a repair, for which every file may count. A kill leaves files that the next one
deletes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from holdfast.checkpoint.handle import Handle, NamedVersion, StoredHandle
from holdfast.checkpoint.names import (
    FIRST_VERSION,
    maker_of,
    operator_prefix,
    parse_version,
    query_folder,
    slot_prefix,
)
from holdfast.checkpoint.operator_record import OperatorRecord, recorded_operator
from holdfast.checkpoint.origin import VersionsOrigin
from holdfast.checkpoint.retention import reason_to_delete, tables_by_manifest, view_of
from holdfast.checkpoint.runs import Runs
from holdfast.checkpoint.timeline import Timeline
from holdfast.checkpoint.version_files import VersionFile, named_by, needed
from holdfast.clock import Ids
from holdfast.errors import Corrupt, InvalidRequest, Unavailable
from holdfast.inspect.committed import Committed, CommittedState
from holdfast.inspect.descriptions import Garbage, Unneeded
from holdfast.inspect.slot_versions import SlotVersions
from holdfast.storage import FileStore, StoredFile

#: Younger files may belong to somebody who is at work; no caller may choose less.
AGE_MS_MIN = 3_600_000
_DELETE_AT_ONCE = 500
#: In a query's folder, of files that tell the time by the store's clock and go at once.
_TIME = "gc-time-"


@dataclass(frozen=True)
class Collector:
    """Looks through one query's state.

    Parameters
    ----------
    store
        Of the operators' state.
    now_ms, age_ms
        Files that are younger than ``age_ms`` stay. The time is no later than the store's: :func:`store_time_ms`.
    abandoned
        Runs, by id, that were given up for good: as ``spark.holdfast.abandonedRuns``.
    """

    committed: Committed
    store: FileStore
    record_of: Callable[[str], OperatorRecord]
    slot_of: Callable[[OperatorRecord, int], SlotVersions]
    now_ms: int
    age_ms: int
    abandoned: tuple[str, ...]

    def find(self) -> Garbage:
        """What may go, and of which slots nothing may, and why. Changes nothing."""
        states = self._retained()
        claimed = self._claimed()
        # Which of both a slot goes on from depends on how long it is quiet, and records are kept (docs/rfcs/0020).
        in_either = self.committed.recorded().every() | _passed_over(states)
        files: list[Unneeded] = []
        kept: dict[str, str] = {}
        for operator, newest in sorted(states[-1].handles.items()):
            record = self.record_of(operator)
            runs = self._runs(operator, newest)
            for slot in sorted(newest):
                if slot >= record.slots:
                    raise Corrupt(f"operator {operator!r} has {record.slots} slots, and a handle of slot {slot}")
                named = [state.handles.get(operator, {}).get(slot) for state in states]
                handles = [handle for handle in named if handle is not None]
                folder = slot_prefix(operator_prefix(self.committed.query_id, operator), slot)
                try:
                    found = [
                        file
                        for file in self._of_slot(
                            self.slot_of(record, slot), runs, handles, claimed.get((operator, slot), [])
                        )
                        if not _is_of(file.name, in_either)
                    ]
                except _Kept as reason:
                    kept[folder] = str(reason)
                else:
                    files += found
        return Garbage(tuple(files), kept)

    def _of_slot(
        self, slot: SlotVersions, runs: Runs, handles: Sequence[StoredHandle], claimed: Sequence[StoredHandle]
    ) -> list[Unneeded]:
        folder = slot.context.stored("")
        _refuse_links(self.store, folder)
        own = [
            StoredFile(file.name[len(folder) :], file.size_bytes, file.modified_ms) for file in self.store.list(folder)
        ]
        newest = _whole(slot, handles[-1], own)
        settings = replace(slot.context.settings, abandoned_runs=(*self.abandoned, maker_of(newest.version_id)))
        others = Timeline(replace(slot.context, settings=settings), runs).others(newest, own)
        if others:
            raise _Kept(
                f"run{'s' if len(others) > 1 else ''} {', '.join(others)} may need files here: of a copy of the "
                "checkpoint, or of a run that has committed nothing yet. Let the query commit a batch; or name runs "
                f"that were given up for good: --abandoned {','.join(others)}"
            )
        _refuse_what_is_not_whole(slot, newest, own)
        unnamed = _still_to_be_named(newest, own)
        retained = [newest, *_others(slot, newest, [*handles[:-1], *claimed], {file.name for file in own})]
        tables = _tables(slot, newest, retained, {file.name for file in own}, unnamed)
        # What Spark's state has in retained batches it says itself.
        view = view_of(newest, newest, self.now_ms, self.age_ms, tables, in_force_from=newest.sequence + 1)
        stays = {file.name for handle in retained for file in named_by(handle)} | set(unnamed)
        return [
            Unneeded(folder + file.name, file.size_bytes, reason)
            for file in own
            if (reason := reason_to_delete(file, view)) is not None
            and file.name not in stays
            and file.modified_ms < view.strays_before_ms
        ]

    def delete(self, garbage: Garbage) -> int:
        """Deletes what was found, manifests before the tables that they name; how many half-written files went too."""
        names = [file.name for file in garbage.files]
        for first in range(0, len(names), _DELETE_AT_ONCE):
            self.store.delete(names[first : first + _DELETE_AT_ONCE])
        return self.store.sweep(f"{query_folder(self.committed.query_id)}/", self.now_ms - self.age_ms)

    def _retained(self) -> list[CommittedState]:
        """Of each batch that is retained, all handles. Where one cannot be read, what it needs is not known."""
        found = []
        self.committed.check_logs()
        for batch_id in self.committed.batches():
            try:
                found.append(self.committed.at(batch_id))
            except (Corrupt, InvalidRequest) as error:
                if batch_id not in self.committed.batches():
                    continue  # a query that runs retains it no longer
                raise Corrupt(
                    f"what batch {batch_id} needs cannot be known, so nothing is deleted: {error}. A batch is retained "
                    "for as long as Spark's logs have it (spark.sql.streaming.minBatchesToRetain)"
                ) from error
        if not found:
            raise InvalidRequest(f"{self.committed.store.uri} has no committed batch yet; nothing is deleted")
        return found

    def _runs(self, operator: str, newest: dict[int, StoredHandle]) -> Runs:
        """As the run sees them that made the operator's newest version."""
        maker = maker_of(max(newest.values(), key=lambda handle: (handle.batch_id, handle.sequence)).version_id)
        return Runs.seen_from(self.store, operator_prefix(self.committed.query_id, operator), operator, maker)

    def _claimed(self) -> dict[tuple[str, int], list[StoredHandle]]:
        """Handles of this query that slots of later generations in the same store have yet to copy."""
        claimed: dict[tuple[str, int], list[StoredHandle]] = {}
        own = query_folder(self.committed.query_id) + "/"
        names = {file.name for file in self.store.list("")}
        for name in sorted(names):
            prefix, _, file = name.rpartition("/")
            if file != "operator.json" or prefix.count("/") != 1 or name.startswith(own):
                continue
            record = recorded_operator(self.store, prefix)
            origin = record.origin if record is not None else None
            if record is None or not isinstance(origin, VersionsOrigin) or origin.query_id != self.committed.query_id:
                continue
            if all(f"{slot_prefix(prefix, slot)}/{FIRST_VERSION}" in names for slot in range(record.slots)):
                continue
            for handle in origin.handles:
                if handle is not None:
                    claimed.setdefault((handle.operator, handle.slot), []).append(handle)
        return claimed


def _is_of(name: str, version_ids: frozenset[str]) -> bool:
    version = parse_version(name)
    return version is not None and version[1] in version_ids


def _passed_over(states: Iterable[CommittedState]) -> frozenset[str]:
    """Versions that Spark has in place of those that count."""
    operators = (slots for state in states for slots in state.passed_over.values())
    return frozenset(handle.version_id for slots in operators for handle in slots.values())


class _Kept(Exception):
    """Why nothing of a slot is deleted."""


def store_time_ms(store: FileStore, query_id: str, ids: Ids) -> int:
    """The time by the clock of those who date the store's files: a file is made, looked at and deleted."""
    begin = f"{query_folder(query_id)}/{_TIME}"
    name = begin + ids()
    store.create_if_absent(name, b"")
    found = {file.name: file.modified_ms for file in store.list(begin)}
    now_ms = found.get(name)
    # Those of others who were killed here go too.
    store.delete([name, *(other for other, made_ms in found.items() if now_ms and made_ms < now_ms - AGE_MS_MIN)])
    if now_ms is None:
        raise Unavailable(f"{name} in {store.uri} was written and is not listed; nothing was deleted: try again")
    return now_ms


def _whole(slot: SlotVersions, newest: StoredHandle, own: Iterable[StoredFile]) -> Handle:
    """The newest version with all its deltas: without knowing them, nothing may be deleted."""
    problem = _first_wrong(named_by(newest), {file.name: file.size_bytes for file in own})
    if problem is None:
        try:
            return slot.whole(newest)
        except Corrupt as error:
            problem = str(error)
    raise _not_whole(newest, problem)


def _others(
    slot: SlotVersions, newest: Handle, stored: Sequence[StoredHandle], there: set[str]
) -> Iterator[Handle | StoredHandle]:
    """Versions beside the newest, with all deltas that only they name.

    Of an ancestor that starts no lower than the newest's floor there are none: what is above the newest's start, the
    newest names too, and what is between stays by the rule. So no delta is read for most of them.
    """
    for one in stored:
        is_ancestor = one.sequence <= newest.start or newest.names(one.sequence, one.version_id)
        is_gone = one.newest is not None and VersionFile.of_delta(one.newest).name not in there
        if (is_ancestor and one.start >= newest.floor) or (is_gone and one.sequence <= newest.floor):
            yield one  # the second: retention has deleted it, and begins with the oldest
            continue
        try:
            yield slot.whole(one)
        except Corrupt as error:
            raise _Kept(
                f"what version {one.sequence}, of batch {one.batch_id}, needs cannot be known: {error}. Mend it first: "
                "holdfast checkpoints repair. Where a query has gone on meanwhile, try again"
            ) from error


def _refuse_what_is_not_whole(slot: SlotVersions, newest: Handle, own: Iterable[StoredFile]) -> None:
    """All that the newest version needs must be there, as large as it was written."""
    sizes = {file.name: file.size_bytes for file in own}
    problem = _first_wrong(named_by(newest), sizes)
    if problem is None:
        try:
            problem = _first_wrong(needed(newest, slot.snapshots), sizes)
        except Corrupt as error:
            problem = str(error)
    if problem is not None:
        raise _not_whole(newest, problem)


def _not_whole(newest: NamedVersion, problem: str) -> _Kept:
    return _Kept(
        f"of version {newest.sequence}, the newest that is committed, {problem}. Is this the state folder of this "
        "checkpoint, and not a copy of another day? Otherwise mend it first: holdfast checkpoints repair. Where a "
        "query has gone on meanwhile, try again"
    )


def _first_wrong(files: Iterable[VersionFile], sizes: Mapping[str, int]) -> str | None:
    wrong = [file for file in files if sizes.get(file.name) != file.size_bytes]
    if not wrong:
        return None
    first = min(wrong, key=lambda file: file.name)
    found = f"{sizes[first.name]}" if first.name in sizes else "no such file"
    return f"{first.name} is damaged: expected {first.size_bytes} bytes, found {found}"


def _still_to_be_named(newest: Handle, own: Iterable[StoredFile]) -> list[str]:
    """Manifests of snapshots that a version to come may name, of whatever age: of this lineage; and all of later
    versions, for this may be an older copy of a checkpoint that the query took on, in the same run.
    """
    since = newest.snapshots[0].sequence if newest.snapshots else 0
    return [
        file.name
        for file in own
        if file.name.startswith("snapshot/")
        and (version := parse_version(file.name)) is not None
        and (version[0] > newest.sequence or (version[0] > since and newest.names(*version)))
    ]


def _tables(
    slot: SlotVersions, newest: Handle, retained: Sequence[NamedVersion], there: set[str], unnamed: Sequence[str]
) -> frozenset[str] | None:
    """Files of all snapshots that are named, or may be; None where a manifest that tells them is damaged."""
    refs = {ref.name: ref for handle in retained for ref in handle.snapshots}
    # Of older batches: below what the newest needs, the query itself may have deleted it already.
    refs = {name: ref for name, ref in refs.items() if name in there or ref.sequence >= newest.floor}
    superseded = [old.name for old in newest.superseded if old.name is not None]
    try:
        tables = tables_by_manifest(slot.snapshots, refs.values(), [*superseded, *unnamed])
        return frozenset(chain.from_iterable(tables.values()))
    except Corrupt as error:
        slot.context.logger.warning("no file of a snapshot is deleted while one is damaged: %s", error)
        return None


def _refuse_links(store: FileStore, folder: str) -> None:
    """A folder that is a link leads elsewhere: to what another checkpoint has, perhaps."""
    path = store.local_path(folder + "x")
    if path is None:
        return
    steps = os.path.dirname(path)
    for _ in range(len(folder.rstrip("/").split("/"))):
        if os.path.islink(steps):
            raise _Kept(f"{steps} is a symbolic link, and what it leads to may be another's: nothing is deleted there")
        steps = os.path.dirname(steps)
