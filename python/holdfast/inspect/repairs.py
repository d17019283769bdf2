"""Puts damaged files of a state right again, byte for byte: `Checkpoint.repair`.

A handle stands in Spark's checkpoint and names each file by size and checksum, so what mends a version is the very file
that was written. It is looked for where its bytes may be: in other files of the slot, among the local copies of a
machine, in a backup; a manifest is put together anew from the files that are there. Nothing takes effect that is not
what the handle says. Order, for each file: its bytes, checked, in a folder of our own; the damaged file under a second
name; the damaged file gone; the right one in its place, read back. A kill in between leaves it damaged or missing, as
it was, and the next repair goes on. What nothing has the bytes of is said, with the batches that are whole without it.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations

from holdfast._core import xxh64_file
from holdfast.checkpoint.base_folder import BaseFile
from holdfast.checkpoint.delta_file import open_delta
from holdfast.checkpoint.handle import DeltaRef, SnapshotRef, StoredHandle
from holdfast.checkpoint.host import READERS_SETTING, local_errors
from holdfast.checkpoint.names import TABLES, table_name
from holdfast.checkpoint.operator_record import OperatorRecord
from holdfast.checkpoint.snapshot import Manifest
from holdfast.checkpoint.version_files import VersionFile
from holdfast.clock import Ids
from holdfast.errors import Corrupt, HoldfastError, Incompatible, InvalidRequest, Unavailable
from holdfast.inspect.committed import Committed
from holdfast.inspect.descriptions import Repair
from holdfast.inspect.slot_versions import SlotVersions
from holdfast.sealed import CHECKSUM_DIGITS, checksum_of
from holdfast.storage import FileStore

#: Where damaged files go, in the slot's folder. Nobody deletes them but a person.
ASIDE = "damaged"
#: Files of an older snapshot that a lost manifest may have shared: all subsets are tried.
_SHARED_MAX = 12
_WRONG = (Corrupt, Incompatible, InvalidRequest)


@dataclass
class _Done:
    """What a pass has done so far. ``seen``: files that need not be looked at again; ``batch_id``: the one at hand."""

    apply: bool
    batch_id: int = -1
    seen: set[str] = field(default_factory=set)
    repairs: dict[str, Repair] = field(default_factory=dict)


@dataclass(frozen=True)
class Mender:
    """Looks through one query's state.

    Parameters
    ----------
    store
        Of the operators' state; written to by `mend` alone.
    backup
        A copy of it, of any age; None: there is none.
    local_dirs
        Folders of ``spark.holdfast.local.dir``: this machine's, or brought from another.
    work
        A folder of our own.
    deleted
        Names of files that are missing because retention has deleted them: they stay so, whoever has their bytes.
    """

    committed: Committed
    store: FileStore
    record_of: Callable[[str], OperatorRecord]
    slot_of: Callable[[OperatorRecord, int], SlotVersions]
    backup: FileStore | None
    local_dirs: Sequence[str]
    work: str
    ids: Ids
    deleted: frozenset[str]

    def run(self, apply: bool) -> list[Repair]:
        """Each damaged file: where its bytes were found, and whether it was put right."""
        done = _Done(apply)
        for batch_id in reversed(self.committed.batches()):
            done.batch_id = batch_id
            try:
                handles = self.committed.at(batch_id).handles
            except _WRONG:
                continue  # of Spark's own files; verify says so
            for operator in sorted(handles):
                for slot, handle in sorted(handles[operator].items()):
                    self._look_through(self.slot_of(self.record_of(operator), slot), handle, done)
        return [done.repairs[name] for name in sorted(done.repairs)]

    def _look_through(self, versions: SlotVersions, handle: StoredHandle, done: _Done) -> None:
        """All files that the handle leads to: manifests first, since they say which tables."""
        for ref in handle.snapshots:
            if not ref.name.startswith("snapshot/"):
                raise Corrupt(f"a handle names {ref.name!r}, which is no manifest of a snapshot; nothing is mended")
            name = versions.context.stored(ref.name)
            if name in done.seen or name in self.deleted:
                continue
            data = self._manifest(versions, ref)
            self._look_at(versions, VersionFile.of_snapshot(ref), done, data)
            for file in Manifest.from_text(data, name).files if data is not None else ():
                self._look_at(versions, VersionFile.of_table(file), done)
        for delta in self._deltas(versions, handle):
            self._look_at(versions, VersionFile.of_delta(delta), done)

    def _deltas(self, versions: SlotVersions, handle: StoredHandle) -> tuple[DeltaRef, ...]:
        """All that lead to a version, as its newest says, from wherever that is whole. Where it is not, itself alone:
        which were before it, the handles of the batches before tell, as far as they are retained.
        """
        newest = handle.newest
        if handle.is_whole or newest is None:
            return handle.whole().deltas
        wanted = VersionFile.of_delta(newest)
        name = versions.context.stored(wanted.name)
        if name in self.deleted:
            return ()
        path = self._checked(self.store, name, wanted)
        found = (path, "") if path is not None else self._found(versions, wanted)
        if found is None:
            return (newest,)
        with open(found[0], "rb") as file:
            data = file.read()
        os.unlink(found[0])
        said = open_delta(data, newest, versions.context.operator, versions.context.slot, name).lineage()
        return handle.whole(said or ()).deltas

    def _look_at(self, versions: SlotVersions, wanted: VersionFile, done: _Done, data: bytes | None = None) -> None:
        """Mends a file if it is damaged; ``data``: its bytes, where they are known."""
        name = versions.context.stored(wanted.name)
        if name in done.seen or name in self.deleted:
            return
        if not self._is_whole(self.store, name, wanted):
            if done.batch_id not in self.committed.batches():
                return  # a query that runs has deleted it with the batch
            done.repairs[name] = self._mend(versions, wanted, done.apply, data)
        done.seen.add(name)

    def _manifest(self, versions: SlotVersions, ref: SnapshotRef) -> bytes | None:
        """The manifest as it was written, from wherever it is whole."""
        wanted = VersionFile.of_snapshot(ref)
        path = self._checked(self.store, versions.context.stored(ref.name), wanted)
        found = (path, "") if path is not None else self._found(versions, wanted)
        if found is None:
            return self._composed(versions, ref)
        with open(found[0], "rb") as file:
            data = file.read()
        os.unlink(found[0])
        return data

    def _composed(self, versions: SlotVersions, ref: SnapshotRef) -> bytes | None:
        """A lost manifest, from the files that its snapshot uploaded and those of the one before that it may share."""
        context = versions.context
        snapshot_id = ref.name.removesuffix(".json").rpartition("-")[2]
        begin = context.stored(table_name(snapshot_id, ""))
        own = [described for file in self.store.list(begin) if (described := self._described(versions, file.name))]
        candidates: list[tuple[str | None, tuple[BaseFile, ...]]] = [(None, ())]
        for name in self.store.names(context.stored("snapshot/")):
            inside = name[len(context.stored("")) :]
            data = self.store.get(name) if inside < ref.name else None
            try:
                older = Manifest.from_text(data, name).files if data is not None else ()
            except _WRONG:
                continue
            taken = {file.name for file in own}
            candidates.append((inside, tuple(file for file in older if file.name not in taken)))
        for parent, shared in reversed(candidates):
            for count in range(len(shared), -1, -1) if len(shared) <= _SHARED_MAX else (len(shared), 0):
                for kept in combinations(shared, count):
                    files = tuple(sorted((*own, *kept), key=lambda file: file.name))
                    if sum(file.size_bytes for file in files) != ref.state_bytes:
                        continue
                    diff_parent = parent if kept else None
                    identity = (context.operator, context.slot, ref.sequence, ref.version_id)
                    text = Manifest(*identity, diff_parent, files).to_text().encode()
                    if (len(text), checksum_of(text)) == (ref.size_bytes, ref.checksum):
                        return text
        return None

    def _described(self, versions: SlotVersions, name: str) -> BaseFile | None:
        path = self._copy(self.store, name)
        if path is None:
            return None
        checksum, size_bytes = xxh64_file(path)
        os.unlink(path)
        stored_as = name[len(versions.context.stored("")) :]
        return BaseFile(stored_as.partition("-")[2], size_bytes, f"{checksum:0{CHECKSUM_DIGITS}x}", stored_as)

    def _mend(self, versions: SlotVersions, wanted: VersionFile, apply: bool, data: bytes | None = None) -> Repair:
        name = versions.context.stored(wanted.name)
        there = bool(self.store.list(name))
        problem = f"{name} is {'damaged' if there else 'missing'}"
        found = self._found(versions, wanted) if data is None else self._written(data)
        if found is None:
            return Repair(name, problem, None)
        path, source = found
        try:
            if not apply:
                return Repair(name, problem, source)
            aside = None
            if there:
                aside = versions.context.stored(f"{ASIDE}/{os.path.basename(wanted.name)}-{self.ids()}")
                if self.store.copy_if_absent(name, aside) is False:
                    raise Unavailable(f"{aside} exists already in {self.store.uri}; nothing was changed: try again")
                self.store.delete([name])
            self.store.put_file(name, path)
        finally:
            os.unlink(path)
        if not self._is_whole(self.store, name, wanted):
            raise Unavailable(f"{name} in {self.store.uri} was written and cannot be read back as it was; try again")
        return Repair(name, problem, source, mended=True, aside=aside)

    def _found(self, versions: SlotVersions, wanted: VersionFile) -> tuple[str, str] | None:
        """A copy that is what was written, and where it is from."""
        name = versions.context.stored(wanted.name)
        if self.backup is not None:
            path = self._checked(self.backup, name, wanted)
            if path is not None:
                return path, f"{name} in {self.backup.uri}"
        for candidate in self._local(versions, wanted):
            path = self._new()
            try:
                shutil.copyfile(candidate, path)
            except OSError:
                continue  # a query that runs there has folded further
            if _is(path, wanted):
                return path, candidate
            os.unlink(path)
        if wanted.name.startswith(TABLES):
            for file in self.store.list(versions.context.stored(TABLES)):
                if file.size_bytes == wanted.size_bytes and file.name != name:
                    path = self._checked(self.store, file.name, wanted)
                    if path is not None:
                        return path, f"{file.name} in {self.store.uri}"
        return None

    def _local(self, versions: SlotVersions, wanted: VersionFile) -> Iterator[str]:
        """Files of bases, and copies of deltas, that may be it."""
        slot = os.path.relpath(versions.context.folder.path, versions.context.folder.local_dir).partition(os.sep)[2]
        inside = "bases/*/files/*" if wanted.name.startswith(TABLES) else f"deltas/{os.path.basename(wanted.name)}"
        for local_dir in self.local_dirs:
            for path in sorted(glob.glob(os.path.join(glob.escape(local_dir), "*", glob.escape(slot), inside))):
                with suppress(OSError):
                    if not os.path.islink(path) and os.stat(path).st_size == wanted.size_bytes:
                        yield path

    def _written(self, data: bytes) -> tuple[str, str]:
        path = self._new()
        with local_errors(path, READERS_SETTING), open(path, "xb") as file:
            file.write(data)
        return path, "put together from the snapshots that are there"

    def _is_whole(self, store: FileStore, name: str, wanted: VersionFile) -> bool:
        path = self._checked(store, name, wanted)
        if path is not None:
            os.unlink(path)
        return path is not None

    def _checked(self, store: FileStore, name: str, wanted: VersionFile) -> str | None:
        path = self._copy(store, name)
        if path is None or _is(path, wanted):
            return path
        os.unlink(path)
        return None

    def _copy(self, store: FileStore, name: str) -> str | None:
        path = self._new()
        with local_errors(path, READERS_SETTING):
            return path if store.fetch(name, path) else None

    def _new(self) -> str:
        return os.path.join(self.work, self.ids())


def _is(path: str, wanted: VersionFile) -> bool:
    try:
        checksum, size_bytes = xxh64_file(path)
    except HoldfastError:
        return False
    return (size_bytes, f"{checksum:0{CHECKSUM_DIGITS}x}") == (wanted.size_bytes, wanted.checksum)
