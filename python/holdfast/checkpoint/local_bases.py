"""The bases of a slot that are on this machine."""

from __future__ import annotations

import os

from holdfast.checkpoint.base_folder import LocalBase, read_base, record_stamp, stored_file
from holdfast.checkpoint.handle import Handle
from holdfast.checkpoint.names import parse_version
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.errors import Corrupt

_KEPT = 2


class LocalBases:
    """Looks at the disk each time, since other processes make and remove bases too. Safe for several threads."""

    def __init__(self, context: SlotContext) -> None:
        self._context = context
        # What was read, with the state of the record's file then: a folder that was discarded may be made anew.
        self._read: dict[str, tuple[tuple[int, ...], LocalBase]] = {}

    def of(self, handle: Handle) -> list[LocalBase]:
        """Bases that ``handle`` descends from, newest first.

        What is damaged, of another boot or of another operator or slot is discarded:
        a local copy can always be restored.
        """
        folder = self._context.folder
        versions = handle.versions
        found = []
        for name in reversed(folder.base_names()):
            version = parse_version(name)
            if version is None or versions.get(version[0]) != version[1]:
                continue
            try:
                found.append(self._get(name, version))
            except Corrupt as error:
                path = folder.base_path(*version)
                if not os.path.isdir(path):
                    continue  # another process has folded further and removed it
                self._context.logger.warning("a local base is not used: %s", error)
                folder.discard(path)
        return found

    def discard(self, base: LocalBase) -> None:
        self._read.clear()
        self._context.folder.discard(base.path)

    def discard_damaged(self, named_in: str) -> None:
        """Discards bases of which a file is not what was written, and those that an error's text names.

        The others stay: they may be the last way to a version of which storage has lost something.
        """
        folder = self._context.folder
        for name in folder.base_names():
            path = os.path.join(folder.bases, name)
            if path in named_in or _is_damaged(path):
                self._context.logger.warning("the local base %s is damaged and discarded", path)
                self._read.pop(name, None)
                folder.discard(path)

    def discard_old(self, handle: Handle) -> int:
        """Keeps the newest two that ``handle`` descends from, and those of versions after it.
        Gives the oldest sequence kept.
        """
        folder = self._context.folder
        kept = self.of(handle)[:_KEPT]
        names = {base.path for base in kept}
        for name in folder.base_names():
            version = parse_version(name)
            path = os.path.join(folder.bases, name)
            if path not in names and (version is None or version[0] <= handle.sequence):
                self._read.pop(name, None)
                folder.discard(path)
        return kept[-1].sequence if kept else 0

    def _get(self, name: str, version: tuple[int, str]) -> LocalBase:
        path = self._context.folder.base_path(*version)
        stamp = record_stamp(path)
        kept_stamp, base = self._read.get(name, ((), None))
        if base is None or kept_stamp != stamp:
            base = read_base(path)
            record = base.record
            found = (record.operator, record.slot, record.sequence, record.version_id)
            expected = (self._context.operator, self._context.slot, *version)
            if found != expected:
                raise Corrupt(f"{base.path} belongs elsewhere: expected {expected}, found {found}")
            if record.boot_id != self._context.host.boot_id:
                raise Corrupt(f"{base.path} was written before the last boot and was not synced to disk")
            if len(self._read) > 2 * _KEPT:
                self._read.clear()
            self._read[name] = (stamp, base)
        return base


def _is_damaged(path: str) -> bool:
    """Reads all of a base."""
    try:
        base = read_base(path)
    except Corrupt:
        return True
    found = [stored_file(os.path.join(base.files_path, file.name)) for file in base.record.files]
    return [(f.size_bytes, f.checksum) for f in found] != [(f.size_bytes, f.checksum) for f in base.record.files]
