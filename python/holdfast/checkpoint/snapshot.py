"""Snapshots: a base's files in storage, and a manifest that names them with their checksums. Format:
docs/formats/snapshot.md.

Only files that the newest named snapshot does not have, or has lost, are uploaded. The manifest is written last:
without it the uploaded files are strays. An upload that fails deletes its own; those of one that was killed retention
removes. So it does with those of one that takes longer than the grace time, if another host names a snapshot meanwhile:
the mark of a snapshot has the time before its first file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from holdfast.checkpoint.base_folder import (
    BaseFile,
    BaseRecord,
    LocalBase,
    SnapshotMarker,
    files_of,
    read_base,
    stored_file,
    write_record,
)
from holdfast.checkpoint.handle import Handle, SnapshotRef
from holdfast.checkpoint.host import check_room
from holdfast.checkpoint.names import TABLES, manifest_name, parse_version, table_name
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.errors import Corrupt, HoldfastError
from holdfast.fault_points import reach
from holdfast.sealed import checksum_of, seal, unseal
from holdfast.storage import run_parallel

FORMAT = "holdfast.snapshot"
VERSION = 1


@dataclass(frozen=True)
class Manifest:
    """The files of a snapshot. ``diff_parent``: the manifest of the snapshot whose files it shares."""

    operator: str
    slot: int
    sequence: int
    version_id: str
    diff_parent: str | None
    files: tuple[BaseFile, ...]

    @property
    def state_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def stored(self) -> dict[str, str]:
        """Name in storage by file name."""
        return {file.name: file.stored_as for file in self.files if file.stored_as is not None}

    def to_text(self) -> str:
        fields: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("operator", "slot", "sequence", "version_id", "diff_parent", "state_bytes")
        }
        rows = [[f.name, f.size_bytes, f.checksum, f.stored_as] for f in self.files]
        return seal(FORMAT, VERSION, {**fields, "files": rows})

    @classmethod
    def from_text(cls, text: bytes, where: str) -> Manifest:
        fields = unseal(text, FORMAT, VERSION, where)
        try:
            del fields["state_bytes"]
            manifest = cls(**{**fields, "files": tuple(map(BaseFile.from_row, fields["files"]))})
            if not isinstance(manifest.diff_parent, (str, type(None))):
                raise TypeError(f"it shares files with {manifest.diff_parent!r}")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Corrupt(f"{where} is not the manifest of a snapshot: {error!r}") from error
        if len(manifest.stored()) != len(manifest.files):
            raise Corrupt(f"{where} names a file twice, or one that is not stored: {manifest.files}")
        return manifest


class Snapshots:
    """Reads and writes the snapshots of one slot. Safe for several threads."""

    def __init__(self, context: SlotContext) -> None:
        self._context = context

    def read_manifest(self, ref: SnapshotRef) -> Manifest:
        """The manifest that a handle names; Corrupt when it is missing or not what the handle says."""
        context = self._context
        name = context.stored(ref.name)
        where = self._where(name, ref)
        data = context.file_store.get(name)
        if data is None:
            raise Corrupt(f"{where} is missing{context.or_elsewhere}")
        if len(data) != ref.size_bytes or checksum_of(data) != ref.checksum:
            raise Corrupt(
                f"{where} is damaged: expected {ref.size_bytes} bytes with checksum {ref.checksum}, "
                f"found {len(data)} with {checksum_of(data)}"
            )
        manifest = Manifest.from_text(data, where)
        found = (manifest.operator, manifest.slot, manifest.sequence, manifest.version_id)
        if found != (context.operator, context.slot, ref.sequence, ref.version_id):
            raise Corrupt(f"{where} belongs elsewhere: it is of {found}")
        return manifest

    def files_named_by(self, name: str) -> set[str]:
        """Names in storage of the files of the snapshot whose manifest is ``name``.
        Corrupt when that cannot be said.
        """
        data = self._context.file_store.get(self._context.stored(name))
        if data is None:
            raise Corrupt(f"{name} is missing in {self._context.file_store.uri}")
        return set(Manifest.from_text(data, name).stored().values())

    def find_unnamed(self, handle: Handle) -> tuple[SnapshotRef, str | None] | None:
        """The newest snapshot in storage that ``handle`` descends from and does not name, and its ``diff_parent``:
        made by a process that was gone, with all that it had on its disk, before a handle could name it.
        Lists the slot's folder.
        """
        context = self._context
        folder = context.stored("")
        sizes = {file.name[len(folder) :]: file.size_bytes for file in context.file_store.list(folder)}
        newest = handle.snapshots[0].sequence if handle.snapshots else 0
        for name in sorted((name for name in sizes if name.startswith("snapshot/")), reverse=True):
            version = parse_version(name)
            if version is None or version[0] <= newest or not handle.names(*version):
                continue
            data = context.file_store.get(context.stored(name))
            if data is None:
                continue
            try:
                manifest = Manifest.from_text(data, name)
            except Corrupt as error:
                context.logger.warning("a snapshot that nobody named is not used: %s", error)
                continue
            found = (manifest.operator, manifest.slot, manifest.sequence, manifest.version_id)
            is_whole = all(sizes.get(str(file.stored_as)) == file.size_bytes for file in manifest.files)
            if is_whole and found == (context.operator, context.slot, *version):
                ref = SnapshotRef(*version, name, len(data), checksum_of(data), manifest.state_bytes)
                return ref, manifest.diff_parent
        return None

    def upload(self, base: LocalBase, newest: SnapshotRef | None) -> SnapshotRef:
        """Uploads a base and marks it; the next handle may name it.

        Parameters
        ----------
        newest
            The newest snapshot that the current handle names: files that it has, and that storage lists, are not
            uploaded again.

        Raises
        ------
        Corrupt
            A file of the local base is not what was written.
        Unavailable
            Storage or the local disk did not answer. After any error what was stored is deleted again.
        """
        context = self._context
        shared, diff_parent = self._shared(newest)
        snapshot_id = context.ids()
        kept = [file for file in base.record.files if file.stored_as in shared]
        new = [
            replace(f, stored_as=table_name(snapshot_id, f.name))
            for f in base.record.files
            if f.stored_as not in shared
        ]
        manifest = Manifest(
            operator=context.operator,
            slot=context.slot,
            sequence=base.sequence,
            version_id=base.record.version_id,
            diff_parent=diff_parent if kept else None,
            files=tuple(sorted((*kept, *new), key=lambda file: file.name)),
        )
        name = manifest_name(base.sequence, base.record.version_id, snapshot_id)
        created_ms = context.clock.now_ms()  # before the first file: from then on its age in storage counts
        try:
            ref = self._store(base, manifest, name, new, created_ms)
        except Exception:
            self._take_back(name, new)
            raise
        uploaded = sum(file.size_bytes for file in new)
        context.background_work.uploaded(uploaded)
        context.logger.info(
            "snapshot %s: %d bytes of state, %d of them uploaded in %d files",
            name,
            manifest.state_bytes,
            uploaded,
            len(new),
        )
        return ref

    def _store(
        self, base: LocalBase, manifest: Manifest, name: str, new: list[BaseFile], created_ms: int
    ) -> SnapshotRef:
        context = self._context
        run_parallel([self._upload_job(base, file) for file in new], context.settings.transfer_threads)
        reach("before_manifest")
        text = manifest.to_text().encode()
        context.file_store.put(context.stored(name), text)
        reach("after_snapshot")
        ref = SnapshotRef(
            base.sequence, base.record.version_id, name, len(text), checksum_of(text), manifest.state_bytes
        )
        with context.folder.errors(base.path):
            SnapshotMarker(ref, manifest.diff_parent, created_ms, manifest.stored()).write(base.path)
        return ref

    def _take_back(self, manifest: str, files: list[BaseFile]) -> None:
        """Deletes what an upload that failed has stored, under names of its own: the next begins anew, and where room
        is short the deltas need it. Not where the manifest is there all the same: somebody may have named it by now.
        """
        context = self._context
        try:
            if context.file_store.get(context.stored(manifest)) is None:
                context.file_store.delete([context.stored(str(file.stored_as)) for file in files])
        except HoldfastError as error:
            context.logger.warning("files of a snapshot that failed are left to retention: %s", error)

    def restore(self, ref: SnapshotRef) -> tuple[LocalBase, int]:
        """Downloads a snapshot to a local base; the base and how many bytes came.

        Every file is checked before the base is published. Corrupt names what was missing or damaged.
        """
        context = self._context
        manifest = self.read_manifest(ref)
        check_room(context.folder.path, manifest.state_bytes, context.folder.setting)
        with context.folder.new_work() as work:
            files = files_of(work.path)
            with context.folder.errors(files):
                os.mkdir(files)
            run_parallel(
                [self._fetch_job(file, files, ref) for file in manifest.files], context.settings.transfer_threads
            )
            reach("during_restore")
            with context.folder.errors(work.path):
                write_record(
                    work.path,
                    BaseRecord(
                        context.operator,
                        context.slot,
                        ref.sequence,
                        ref.version_id,
                        context.host.boot_id,
                        manifest.files,
                    ),
                )
            return read_base(context.folder.publish(work.path, ref.sequence, ref.version_id)), manifest.state_bytes

    def restore_newest(self, handle: Handle) -> LocalBase:
        """The newest snapshot that ``handle`` names and that is whole, as a local base; it names one at least.
        Corrupt names what was missing or damaged in each, where none is.
        """
        damaged: list[str] = []
        for ref in handle.snapshots:
            try:
                return self.restore(ref)[0]
            except Corrupt as error:
                self._context.logger.warning("%s: %s", handle.where, error)
                damaged.append(str(error))
        raise Corrupt(f"{handle.where}: every snapshot that it names is damaged:\n  " + "\n  ".join(damaged))

    def _shared(self, newest: SnapshotRef | None) -> tuple[set[str | None], str | None]:
        """Names of the files that need no upload, and the manifest that has them.

        Of what it has only what storage lists in its size: a file that is lost would be missing in each later snapshot.
        """
        if newest is None:
            return set(), None
        context = self._context
        try:
            files = self.read_manifest(newest).files
        except Corrupt as error:
            context.logger.warning("the next snapshot shares no files with the last, which is damaged: %s", error)
            return set(), None
        folder = context.stored("")
        listed = context.file_store.list(folder + TABLES)
        sizes = {file.name[len(folder) :]: file.size_bytes for file in listed}
        lost = [str(file.stored_as) for file in files if sizes.get(str(file.stored_as)) != file.size_bytes]
        if lost:
            context.logger.warning(
                "snapshot %s in %s is damaged, missing or of another size: %s; the next has its own in their place",
                newest.name,
                context.file_store.uri,
                ", ".join(lost),
            )
        return {file.stored_as for file in files} - set(lost), newest.name

    def _upload_job(self, base: LocalBase, file: BaseFile) -> Callable[[], None]:
        def upload() -> None:
            path = os.path.join(base.files_path, file.name)
            with self._context.folder.errors(path):
                found = stored_file(path)
            if (found.size_bytes, found.checksum) != (file.size_bytes, file.checksum):
                raise Corrupt(
                    f"{path} of a local base is damaged and was not uploaded: "
                    f"expected {file.size_bytes} bytes with checksum {file.checksum}, "
                    f"found {found.size_bytes} with {found.checksum}"
                )
            self._context.file_store.put_file(self._context.stored(str(file.stored_as)), path)
            reach("during_snapshot")

        return upload

    def _fetch_job(self, file: BaseFile, folder: str, ref: SnapshotRef) -> Callable[[], None]:
        def fetch() -> None:
            name = self._context.stored(str(file.stored_as))
            path = os.path.join(folder, file.name)
            with self._context.folder.errors(path):
                found = stored_file(path) if self._context.file_store.fetch(name, path) else None
            if found is None:
                missing = f"file {name} of {self._where(ref.name, ref)} is missing"
                raise Corrupt(missing + self._context.or_elsewhere)
            if (found.size_bytes, found.checksum) != (file.size_bytes, file.checksum):
                raise Corrupt(
                    f"file {name} of {self._where(ref.name, ref)} is damaged: "
                    f"expected {file.size_bytes} bytes with checksum {file.checksum}, "
                    f"found {found.size_bytes} with {found.checksum}"
                )

        return fetch

    def _where(self, name: str, ref: SnapshotRef) -> str:
        context = self._context
        return (
            f"snapshot {name} in {context.file_store.uri} of operator {context.operator!r}, "
            f"slot {context.slot}, version {ref.sequence} ({ref.version_id})"
        )
