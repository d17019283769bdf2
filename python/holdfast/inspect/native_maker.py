"""Makes a native savepoint: the files that lead to one version of each slot, given names in the savepoint's folder too.

Where the file system or the bucket can, no byte is copied by this machine; they are the savepoint's own all the same:
whatever the query, its retention or gc delete afterwards, they stay. Owner: one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from holdfast.checkpoint.as_of import AsOf
from holdfast.checkpoint.handle import Handle, StoredHandle
from holdfast.checkpoint.native_manifest import NativeOperator
from holdfast.checkpoint.operator_record import OperatorRecord
from holdfast.checkpoint.version_files import VersionFile, needed
from holdfast.errors import Corrupt
from holdfast.inspect.savepoint_maker import Progress
from holdfast.inspect.slot_versions import SlotVersions
from holdfast.inspect.versions import Versions
from holdfast.storage import FileStore, run_parallel


@dataclass
class NativeMaker:
    """Gives files of a state folder second names in a savepoint's.

    Parameters
    ----------
    versions
        Knows the slots.
    source
        The store of the operators' state.
    """

    versions: Versions
    source: FileStore
    target: FileStore
    progress: Progress | None
    _files: int = 0

    def operator(self, record: OperatorRecord, handles: Mapping[int, StoredHandle], as_of: AsOf) -> NativeOperator:
        """Copies what these versions of its slots need; what the manifest has to say of it: of how far they have
        expired, what holds at the end of a batch.

        Raises
        ------
        Corrupt
            No way leads to the version of a slot: names what stands in each.
        """
        kept: dict[int, StoredHandle] = {}
        files: dict[int, tuple[VersionFile, ...]] = {}
        for slot in sorted(handles):
            versions = self.versions.slot(record, slot)
            shorter, files[slot] = self._whole(handles[slot], versions)
            kept[slot] = replace(shorter, expiry=as_of.expiry(shorter)).stored()
            self._copy(versions, files[slot])
        every = tuple(kept.get(slot) for slot in range(record.slots))
        return NativeOperator(replace(record, origin=None), every, files)

    def _whole(self, stored: StoredHandle, versions: SlotVersions) -> tuple[Handle, tuple[VersionFile, ...]]:
        """The handle with the newest start that is whole, as far as names and sizes tell, and the files from there."""
        folder = versions.context.stored("")
        sizes = {file.name[len(folder) :]: file.size_bytes for file in self.source.list(folder)}
        problems: list[str] = []
        try:
            handle = versions.whole(stored)
        except Corrupt as error:
            raise Corrupt(f"{stored.where} cannot be saved: {error}") from error
        for shorter in _starts(handle):
            try:
                files = sorted(needed(shorter, versions.snapshots), key=lambda file: file.name)
            except Corrupt as error:
                problems.append(str(error))
                continue
            wrong = [
                f"{folder}{file.name} is {'missing' if file.name not in sizes else 'damaged'}: expected "
                f"{file.size_bytes} bytes, found {sizes.get(file.name, 'no file')}"
                for file in files
                if sizes.get(file.name) != file.size_bytes
            ]
            if not wrong:
                return shorter, tuple(files)
            problems += wrong
        raise Corrupt(
            f"{handle.where} cannot be saved, every way is damaged:\n  " + "\n  ".join(dict.fromkeys(problems))
        )

    def _copy(self, versions: SlotVersions, files: tuple[VersionFile, ...]) -> None:
        def copy(name: str) -> None:
            if self.target.copy_if_absent(name, name, self.source) is None:
                raise Corrupt(f"{name} is missing in {self.source.uri}")

        jobs: list[Callable[[], None]] = [partial(copy, versions.context.stored(file.name)) for file in files]
        run_parallel(jobs, versions.context.settings.transfer_threads)
        self._files += len(files)
        if self.progress is not None:
            self.progress(self._files)


def _starts(handle: Handle) -> Iterator[Handle]:
    """The version as it is led to from each of its snapshots alone, the newest first, and from the empty state."""
    for ref in handle.snapshots:
        deltas = handle.deltas_after(ref.sequence)
        yield replace(handle, snapshots=(ref,), deltas=deltas, superseded=(), origin=ref.sequence)
    if handle.start == 0:
        yield replace(handle, snapshots=(), superseded=())
