"""savepoint.json of a native savepoint: records, handles, and every file with its checksum. Format:
docs/formats/savepoint.md.

Written last and created only if it is absent, as that of a canonical one. Nothing in it is trusted: names of files are
of a few forms within the folders of slots, each file that a handle names is there with the handle's own checksum.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from holdfast.checkpoint.handle import StoredHandle
from holdfast.checkpoint.names import operator_prefix, slot_prefix
from holdfast.checkpoint.operator_record import OperatorRecord
from holdfast.checkpoint.origin import VersionsOrigin
from holdfast.checkpoint.saved_operator import saved_operator
from holdfast.checkpoint.version_files import VersionFile, named_by
from holdfast.savepoint import MANIFEST, Manifest
from holdfast.savepoint.manifest import (
    CHECKSUM,
    CLAIMED,
    FORMAT,
    GROUPS_MAX,
    NATIVE_VERSION,
    SLOTS_MAX,
    ascending,
    contradictions,
    count,
)
from holdfast.savepoint.reading import manifest_bytes, refuse_links
from holdfast.sealed import checksum_of, seal, unseal
from holdfast.storage import FileStore
from holdfast.storage.file_store import check_name

LAYOUT = "native"
_FILE = re.compile(r"(delta|snapshot|sst)/[0-9A-Za-z][0-9A-Za-z._-]{0,200}")


@dataclass(frozen=True)
class NativeOperator:
    """An operator: what was recorded of it, the version of each slot (None: it was empty), and their files by slot."""

    record: OperatorRecord
    handles: tuple[StoredHandle | None, ...]
    files: Mapping[int, tuple[VersionFile, ...]]

    @property
    def versions(self) -> dict[int, StoredHandle]:
        """By slot, of those that have one."""
        return {handle.slot: handle for handle in self.handles if handle is not None}

    def to_fields(self) -> dict[str, Any]:
        return {
            "record": self.record.to_json(),
            "handles": [handle.to_text() if handle else None for handle in self.handles],
            "files": [
                [slot, file.name, file.size_bytes, file.checksum]
                for slot in sorted(self.files)
                for file in self.files[slot]
            ],
        }


@dataclass(frozen=True)
class NativeManifest:
    """A whole native savepoint.

    Attributes
    ----------
    about
        What it is of, as of a canonical one: the operators described, without tables.
    folder
        As which query its files lie in it: the query's id; or, where there was none, a name of the savepoint's own.
    operators
        By name, ascending.
    """

    about: Manifest
    folder: str
    operators: tuple[NativeOperator, ...]

    @classmethod
    def of(cls, about: Manifest, folder: str, operators: Iterable[NativeOperator]) -> NativeManifest:
        """Describes the operators."""
        kept = tuple(operators)
        described = tuple(saved_operator(one.record, list(one.versions.values()), {}) for one in kept)
        return cls(replace(about, operators=described), folder, kept)

    def operator(self, name: str) -> NativeOperator:
        """InvalidRequest where there is no such operator."""
        self.about.operator(name)
        return next(one for one in self.operators if one.record.name == name)

    def origin(self, name: str, store: str) -> VersionsOrigin:
        """An operator as the origin of a generation. ``store``: URI of the savepoint's folder. A manifest that was read
        says which savepoint it is.
        """
        batch_id = -1 if self.about.batch_id is None else self.about.batch_id
        names = tuple(one.record.name for one in self.operators)
        handles, savepoint = self.operator(name).handles, self.about.checksum or None
        return VersionsOrigin(store, self.folder, name, batch_id, handles, names, savepoint=savepoint)

    def files(self, operators: Iterable[NativeOperator] | None = None) -> dict[str, VersionFile]:
        """By name in the savepoint; of these operators, by default of all."""
        return {
            f"{slot_prefix(operator_prefix(self.folder, one.record.name), slot)}/{file.name}": file
            for one in (self.operators if operators is None else operators)
            for slot, files in one.files.items()
            for file in files
        }

    def to_text(self) -> str:
        fields = {
            **self.about.about_fields(),
            "layout": LAYOUT,
            "folder": self.folder,
            "operators": [operator.to_fields() for operator in self.operators],
        }
        return seal(FORMAT, NATIVE_VERSION, fields)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> NativeManifest:
        """Reads a manifest back; ValueError and the like, or Corrupt, where it is none."""
        if fields["layout"] != LAYOUT:
            raise ValueError(f"the layout is {fields['layout']!r}; expected {LAYOUT!r}")
        about = Manifest.about(fields)
        operators = tuple(_operator(operator) for operator in fields["operators"])
        ascending([operator.record.name for operator in operators], "operators")
        folder = fields["folder"]
        if not isinstance(folder, str) or about.query_id not in (None, folder):
            raise ValueError(f"the folder is {folder!r}, and the query {about.query_id!r}")
        manifest = cls.of(about, folder, operators)
        for name in manifest.files():
            check_name(name)
        for operator in operators:
            broken = manifest.origin(operator.record.name, "").broken_rule()
            if broken:
                raise ValueError(broken)
        return manifest


def opened_manifest(store: FileStore) -> Manifest | NativeManifest:
    """The manifest of the savepoint in a folder, of whichever format.

    Raises
    ------
    InvalidRequest
        There is none.
    Corrupt
        It is damaged, contradicts itself, or is a symbolic link.
    Incompatible
        A newer Holdfast wrote it.
    """
    return manifest_of(manifest_bytes(store), f"{MANIFEST} in {store.uri}")


def claimed_manifest(store: FileStore) -> Manifest | NativeManifest | None:
    """What is left of a savepoint that a query has claimed and taken over; None where there is none. Raises as
    :func:`opened_manifest`.
    """
    refuse_links(store, CLAIMED)
    data = store.get(CLAIMED)
    return None if data is None else manifest_of(data, f"{CLAIMED} in {store.uri}")


def manifest_of(data: bytes, where: str) -> Manifest | NativeManifest:
    """The bytes of a manifest, read; raises as :func:`opened_manifest`."""
    fields = unseal(data, FORMAT, NATIVE_VERSION, where)
    if "layout" not in fields:
        return replace(Manifest.from_text(data, where), checksum=checksum_of(data))
    with contradictions(where):
        manifest = NativeManifest.from_fields(fields)
    return replace(manifest, about=replace(manifest.about, checksum=checksum_of(data)))


def _operator(fields: Mapping[str, Any]) -> NativeOperator:
    record = OperatorRecord.from_json(fields["record"], "the record of an operator")
    count(record.max_parallelism, 1, GROUPS_MAX)
    count(record.slots, 1, min(SLOTS_MAX, record.max_parallelism))
    handles = tuple(None if text is None else StoredHandle.from_text(text) for text in fields["handles"])
    if len(handles) != record.slots or record.origin is not None:
        raise ValueError(f"operator {record.name!r} has {record.slots} slots, and {len(handles)} handles")
    operator = NativeOperator(record, handles, _files(fields["files"]))
    for slot, files in operator.files.items():
        handle = operator.versions.get(slot)
        if handle is None:
            raise ValueError(f"slot {slot} of operator {record.name!r} has files and no version")
        ascending([file.name for file in files], "files")
    for slot, handle in operator.versions.items():
        there = set(operator.files.get(slot, ()))
        for file in named_by(handle):
            if file not in there:
                raise ValueError(f"{handle.where} names {file}, which is not among its files")
    return operator


def _files(rows: Iterable[Any]) -> dict[int, tuple[VersionFile, ...]]:
    found: dict[int, list[VersionFile]] = {}
    for slot, name, size_bytes, checksum in rows:
        if not _FILE.fullmatch(name) or not CHECKSUM.fullmatch(checksum):
            raise ValueError(f"{name!r}, with the checksum {checksum!r}, is no file of a version")
        found.setdefault(count(slot), []).append(VersionFile(name, count(size_bytes), checksum))
    return {slot: tuple(files) for slot, files in found.items()}
