"""A base on the local disk: ``files/`` is RocksDB's, BASE.json says which version it holds. Format:
docs/formats/snapshot.md.

Once its folder is published nothing in ``files/`` changes. SNAPSHOT.json is added when the base has been uploaded.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast._core import Base, BaseOptions, xxh64_file
from holdfast.checkpoint.handle import SnapshotRef
from holdfast.checkpoint.host import local_errors
from holdfast.checkpoint.names import TABLES
from holdfast.errors import Corrupt, Unavailable
from holdfast.savepoint.manifest import CHECKSUM, count
from holdfast.sealed import CHECKSUM_DIGITS, seal, unseal

FORMAT = "holdfast.base"
MARKER_FORMAT = "holdfast.base.snapshot"
VERSION = 1
_RECORD = "BASE.json"
_MARKER = "SNAPSHOT.json"
_FILES = "files"


@dataclass(frozen=True)
class BaseFile:
    """A file of a base. ``stored_as``: its name in storage, if some snapshot uploaded it."""

    name: str
    size_bytes: int
    checksum: str
    stored_as: str | None

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> BaseFile:
        """ValueError, or TypeError, for what names no file of a base."""
        name, size_bytes, checksum, stored_as = row
        if not _is_plain(name) or not isinstance(checksum, str) or not CHECKSUM.fullmatch(checksum):
            raise ValueError(f"no base has a file {name!r} with checksum {checksum!r}")
        if stored_as is not None and not (stored_as.startswith(TABLES) and _is_plain(stored_as[len(TABLES) :])):
            raise ValueError(f"{stored_as!r} is no file of a snapshot")
        return cls(name, count(size_bytes), checksum, stored_as)


@dataclass(frozen=True)
class BaseRecord:
    """BASE.json: whose base it is and at which version."""

    operator: str
    slot: int
    sequence: int
    version_id: str
    boot_id: str
    files: tuple[BaseFile, ...]

    def to_text(self) -> str:
        fields = {name: getattr(self, name) for name in ("operator", "slot", "sequence", "version_id", "boot_id")}
        rows = [[f.name, f.size_bytes, f.checksum, f.stored_as] for f in self.files]
        return seal(FORMAT, VERSION, {**fields, "files": rows})

    @classmethod
    def from_text(cls, text: str | bytes, where: str) -> BaseRecord:
        fields = unseal(text, FORMAT, VERSION, where)
        try:
            return cls(**{**fields, "files": tuple(map(BaseFile.from_row, fields["files"]))})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Corrupt(f"{where} is not the record of a base: {error!r}") from error


@dataclass(frozen=True)
class LocalBase:
    """A published base: its folder and its record."""

    path: str
    record: BaseRecord

    @property
    def sequence(self) -> int:
        return self.record.sequence

    @property
    def files_path(self) -> str:
        return files_of(self.path)

    def open(self, options: BaseOptions) -> Base:
        """Opens it read-only; Corrupt when it is not whole. Tables are checked block by block as they are read."""
        for file in self.record.files:
            path = os.path.join(self.files_path, file.name)
            found = stored_file(path) if not is_table(file.name) else None
            size = found.size_bytes if found else _size(path)
            if size != file.size_bytes or (found is not None and found.checksum != file.checksum):
                raise Corrupt(
                    f"{path}, of the local base of operator {self.record.operator!r}, slot {self.record.slot}, version "
                    f"{self.record.sequence} ({self.record.version_id}), is damaged: expected {file.size_bytes} bytes "
                    f"with checksum {file.checksum}, found {size if size >= 0 else 'no file'}"
                )
        return Base(self.files_path, options)

    def marker(self) -> SnapshotMarker | None:
        """What SNAPSHOT.json says; None when the base has not been uploaded."""
        try:
            with open(os.path.join(self.path, _MARKER), "rb") as file:
                return SnapshotMarker.from_text(file.read(), file.name)
        except (FileNotFoundError, Corrupt):
            return None


@dataclass(frozen=True)
class SnapshotMarker:
    """SNAPSHOT.json: the snapshot that was made of a base, for the next handle to name.

    ``created_ms``: when its upload began, before its first file was stored.
    """

    ref: SnapshotRef
    diff_parent: str | None
    created_ms: int
    stored: dict[str, str]  # name in storage, by file name

    def write(self, base_path: str) -> None:
        fields = {
            "ref": [*_ref_row(self.ref)],
            "diff_parent": self.diff_parent,
            "created_ms": self.created_ms,
            "stored": self.stored,
        }
        write_whole(os.path.join(base_path, _MARKER), seal(MARKER_FORMAT, VERSION, fields))

    @classmethod
    def from_text(cls, text: bytes, where: str) -> SnapshotMarker:
        fields = unseal(text, MARKER_FORMAT, VERSION, where)
        try:
            diff_parent, stored = fields["diff_parent"], dict(fields["stored"])
            if not isinstance(diff_parent, (str, type(None))) or not all(
                isinstance(text, str) for text in (*stored, *stored.values())
            ):
                raise TypeError(f"files {stored!r}, shared with {diff_parent!r}")
            ref = SnapshotRef.from_row(fields["ref"])
            return cls(ref, diff_parent, count(fields["created_ms"]), stored)
        except (KeyError, TypeError, ValueError) as error:
            raise Corrupt(f"{where} is not the mark of a snapshot: {error!r}") from error


def read_base(path: str) -> LocalBase:
    """The base in a folder; Corrupt when its record is not there or not whole."""
    try:
        with local_errors(path), open(os.path.join(path, _RECORD), "rb") as file:
            return LocalBase(path, BaseRecord.from_text(file.read(), file.name))
    except Unavailable as error:
        if isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError)):
            raise Corrupt(f"{path} holds no base: {_RECORD} is missing") from error
        raise


def record_stamp(path: str) -> tuple[int, ...]:
    """Tells the record of one folder from that of another at the same path; empty when there is none."""
    try:
        found = os.stat(os.path.join(path, _RECORD))
    except OSError:
        return ()
    return (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)


def write_record(path: str, record: BaseRecord) -> None:
    write_whole(os.path.join(path, _RECORD), record.to_text())


def write_whole(path: str, text: str) -> None:
    """Writes a small local file so that nobody sees a part of it. Not synced: a reboot drops what is local anyway."""
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w") as file:
        file.write(text)
    os.replace(temporary, path)


def files_of(path: str) -> str:
    return os.path.join(path, _FILES)


def is_table(name: str) -> bool:
    """Whether RocksDB checks this file's blocks as it reads them, and hard-links it from base to base."""
    return name.endswith(".sst")


def stored_file(path: str) -> BaseFile:
    """Size and checksum of a local file; size -1 when there is none."""
    try:
        checksum, size_bytes = xxh64_file(path)
    except Exception:
        if os.path.exists(path):
            raise
        return BaseFile(os.path.basename(path), -1, "", None)
    return BaseFile(os.path.basename(path), size_bytes, f"{checksum:0{CHECKSUM_DIGITS}x}", None)


def files_in(path: str, parent: LocalBase | None) -> tuple[BaseFile, ...]:
    """Describes the files of a new base. A table that is its parent's by hard link is not read again.

    It is so only while ``parent`` describes the folder that is there: another process may have discarded it and folded
    the same version anew, into tables of the same names and sizes, with other bytes.
    """
    inherited = {file.name: file for file in parent.record.files} if parent else {}
    marker = parent.marker() if parent else None
    stored = marker.stored if marker else {}
    linked = {
        name
        for name in os.listdir(path)
        if parent is not None
        and name in inherited
        and is_table(name)
        and _same(os.path.join(path, name), os.path.join(parent.files_path, name))
    }
    if parent is not None and not _is_there(parent):  # asked last: what was linked before is of this folder, or of none
        linked = set()
    files = []
    for name in sorted(os.listdir(path)):
        if name in linked:
            file = inherited[name]
            files.append(BaseFile(name, file.size_bytes, file.checksum, stored.get(name, file.stored_as)))
        else:
            files.append(stored_file(os.path.join(path, name)))
    return tuple(files)


def _is_there(base: LocalBase) -> bool:
    """Whether the folder still is the one that was read."""
    try:
        return read_base(base.path).record == base.record
    except (Corrupt, Unavailable):
        return False


def _is_plain(name: str) -> bool:
    """Whether it is one part of a path, and no way out of a folder."""
    return os.path.basename(name) == name and name not in ("", ".", "..") and "\0" not in name


def _same(path: str, other: str) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _ref_row(ref: SnapshotRef) -> tuple[Any, ...]:
    return (ref.sequence, ref.version_id, ref.name, ref.size_bytes, ref.checksum, ref.state_bytes)
