"""Handle: the small text that names one version of one slot. Format: docs/formats/handle.md.

Immutable. Spark commits it with the batch; what no committed handle names never happened.
It names at most two snapshots and every delta after the older of them,
so that a damaged newest snapshot falls back to the one before.
Its text names the newest delta alone, whose file says which come before it (delta_lineage.py): a `StoredHandle` is what
the text says, a `Handle` is whole (whole_handles.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from operator import index
from typing import Any, NamedTuple

from holdfast.checkpoint.expiry import StateExpiry, has_floor
from holdfast.checkpoint.names import manifest_name
from holdfast.errors import Corrupt, InternalError
from holdfast.sealed import CHECKSUM_DIGITS, seal, unseal

FORMAT = "holdfast.handle"
VERSION = 5
# Without the floor of a state whose TTL came back: of most handles.
_VERSION_WITHOUT_FLOOR = 4
# Of handles that list all deltas: those of earlier versions of Holdfast, and their like.
_VERSION_WITH_LIST = 3
_VERSION_WITHOUT_ORIGIN = 2
_VERSION_WITHOUT_EXPIRY = 1
_SNAPSHOTS_MAX = 2
_CHECKSUM = re.compile(f"[0-9a-f]{{{CHECKSUM_DIGITS}}}")
_ID = re.compile("[0-9a-f]{32}")
_MANIFEST = re.compile(r"snapshot/\d{12,}-([0-9a-f]{32})-([0-9a-f]{32})\.json")


class DeltaRef(NamedTuple):
    """The delta file that leads to version (sequence, version_id). ``checksum``: XXH64 of the whole file."""

    sequence: int
    version_id: str
    size_bytes: int
    checksum: str


@dataclass(frozen=True)
class SnapshotRef:
    """The manifest of a snapshot.
    Size and checksum are the manifest's, ``state_bytes`` the sum of the snapshot's files.
    """

    sequence: int
    version_id: str
    name: str
    size_bytes: int
    checksum: str
    state_bytes: int

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> SnapshotRef:
        """ValueError, or TypeError, for what is none."""
        sequence, version_id, name, size_bytes, checksum, state_bytes = row
        match = _MANIFEST.fullmatch(name)
        if match is None or manifest_name(_count(sequence), version_id, match.group(2)) != name:
            raise ValueError(f"{name!r} is no manifest of a snapshot of version {sequence} ({version_id})")
        return cls(sequence, version_id, name, _count(size_bytes), _matched(_CHECKSUM, checksum), _count(state_bytes))


@dataclass(frozen=True)
class Superseded:
    """A starting point of recovery that handles before batch ``batch_id`` may still need, and no later one does.

    ``name``: the snapshot's manifest; None with sequence 0 for the empty state at the beginning.
    """

    sequence: int
    batch_id: int
    name: str | None


@dataclass(frozen=True)
class NamedVersion:
    """Version ``sequence`` of a slot, and where it can be restored from, but for the deltas.
    ``snapshots``: newest first. ``superseded``: oldest first.
    ``expiry``: by state id, of states that have or had a TTL. ``origin``: sequence of the first version, a snapshot, of
    a generation that has an origin; 0: the line begins with the empty state.
    """

    operator: str
    slot: int
    version_id: str
    parent_id: str | None
    sequence: int
    batch_id: int
    snapshots: tuple[SnapshotRef, ...] = ()
    superseded: tuple[Superseded, ...] = ()
    expiry: tuple[StateExpiry, ...] = ()
    origin: int = 0

    @property
    def start(self) -> int:
        """Sequence of the oldest version that this handle can be restored from; 0 is the empty state."""
        return self.snapshots[-1].sequence if len(self.snapshots) == _SNAPSHOTS_MAX else self.origin

    @property
    def floor(self) -> int:
        """Deltas up to this sequence are needed by no retained handle."""
        return self.superseded[0].sequence if self.superseded else self.start

    @property
    def where(self) -> str:
        """For messages."""
        return f"operator {self.operator!r}, slot {self.slot}, version {self.sequence} ({self.version_id})"


@dataclass(frozen=True)
class Handle(NamedVersion):
    """A version with every delta that leads to it. ``deltas``: oldest first, after ``start``.
    ``lists_deltas``: its text names them all, since the newest delta's file does not say what was before it: an earlier
    Holdfast wrote it.
    """

    deltas: tuple[DeltaRef, ...] = ()
    lists_deltas: bool = False

    @cached_property
    def versions(self) -> dict[int, str]:
        """The ancestors that deltas lead on from, and this version itself: version id by sequence."""
        known = {snapshot.sequence: snapshot.version_id for snapshot in self.snapshots}
        known.update((delta.sequence, delta.version_id) for delta in self.deltas)
        return known

    def names(self, sequence: int, version_id: str) -> bool:
        """Whether (sequence, version_id) is this version or an ancestor from which the deltas lead here."""
        return self.versions.get(sequence) == version_id

    def deltas_after(self, sequence: int) -> tuple[DeltaRef, ...]:
        return tuple(delta for delta in self.deltas if delta.sequence > sequence)

    def stored(self) -> StoredHandle:
        """What its text says."""
        return StoredHandle(
            **_of_version(self),
            newest=self.deltas[-1] if self.deltas else None,
            delta_bytes=_bytes_since_snapshot(self, self.deltas),
            listed=self.deltas if self.lists_deltas else None,
        )

    def to_text(self) -> str:
        return self.stored().to_text()


@dataclass(frozen=True)
class StoredHandle(NamedVersion):
    """What the text of a handle says.

    newest
        The delta that leads to the version; None: it is a snapshot, the first version of its generation.
    delta_bytes
        Of all deltas after the newest snapshot.
    listed
        All deltas, of a text of versions 1 to 3; None: the file of the newest says which were before it.
    """

    newest: DeltaRef | None = None
    delta_bytes: int = 0
    listed: tuple[DeltaRef, ...] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the text says all that there is to say: no delta came before the newest, or all are listed."""
        return self.listed is not None or self.newest is None or self.sequence == self.start + 1

    def whole(self, earlier: Sequence[DeltaRef] = ()) -> Handle:
        """With the deltas before the newest, as its file says them: from ``start`` or from further back.

        Raises
        ------
        Corrupt
            Those are not what led to this version.
        """
        deltas = self.listed
        if deltas is None:
            before = () if self.is_whole else tuple(earlier)
            if before and before[-1].version_id != self.parent_id:
                raise Corrupt(
                    f"the newest delta of {self.where} follows version {before[-1].version_id}, its handle says "
                    f"{self.parent_id}"
                )
            newest = () if self.newest is None else (self.newest,)
            deltas = (*(delta for delta in before if delta.sequence > self.start), *newest)
        handle = Handle(**_of_version(self), deltas=deltas, lists_deltas=self.listed is not None)
        broken = broken_rule(handle)
        if broken is None and _bytes_since_snapshot(self, deltas) != self.delta_bytes:
            broken = f"deltas since the newest snapshot have {self.delta_bytes} bytes"
        if broken:
            against = "itself" if self.is_whole else "its newest delta"
            raise Corrupt(f"the handle of {self.where} contradicts {against}: {broken}")
        return handle

    def to_text(self) -> str:
        with_floor = has_floor(self.expiry)
        if self.listed is None:
            return seal(FORMAT, VERSION if with_floor else _VERSION_WITHOUT_FLOOR, _fields(self))
        # As the version wrote it that wrote the first of these: a copy is the same text.
        without_origin = _VERSION_WITHOUT_ORIGIN if self.expiry else _VERSION_WITHOUT_EXPIRY
        version = _VERSION_WITH_LIST if self.origin else without_origin
        return seal(FORMAT, VERSION if with_floor else version, _fields_with_list(self, self.listed))

    @classmethod
    def from_text(cls, text: str) -> StoredHandle:
        """Reads a handle back.

        Raises
        ------
        Corrupt
            Torn, changed, or not a handle.
        Incompatible
            Written by a newer Holdfast.
        """
        document = unseal(text, FORMAT, VERSION, "a handle")
        try:
            if "delta" in document and "deltas" in document:
                raise ValueError("it names its newest delta and lists all")
            handle = _from_fields(document) if "delta" in document else _from_fields_with_list(document)
            if handle.is_whole:
                handle.whole()
            broken = _broken_by_text(handle)
        except (KeyError, TypeError, ValueError) as error:
            raise Corrupt(f"a handle lacks what a handle has: {error!r} in {document!r}") from error
        if broken:
            raise Corrupt(f"the handle of {handle.where} contradicts itself: {broken}")
        return handle


def broken_rule(handle: Handle) -> str | None:
    """The first rule of docs/formats/handle.md that ``handle`` breaks, or None. Checked on writing and on reading."""
    broken = _broken_by_version(handle)
    if broken:
        return broken
    deltas = [delta.sequence for delta in handle.deltas]
    is_as_long = len(deltas) == max(handle.sequence - handle.start, 0)  # before room is made for what a text may say
    if not is_as_long or deltas != list(range(handle.start + 1, handle.sequence + 1)):
        return f"deltas lead from {handle.start} to {handle.sequence} without a gap, found sequences {deltas}"
    if handle.versions.get(handle.sequence) != handle.version_id:
        return "the last delta or snapshot leads to the handle's own version"
    by_sequence = {delta.sequence: delta.version_id for delta in handle.deltas}
    for snapshot in handle.snapshots:
        if by_sequence.get(snapshot.sequence, snapshot.version_id) != snapshot.version_id:
            return f"snapshot {snapshot.name} is of this lineage"
    return None


def _broken_by_version(version: NamedVersion) -> str | None:
    """As :func:`broken_rule`, of the rules that do not speak of deltas."""
    snapshots = [snapshot.sequence for snapshot in version.snapshots]
    superseded = [old.sequence for old in version.superseded]
    if len(snapshots) > _SNAPSHOTS_MAX or snapshots != sorted(set(snapshots), reverse=True):
        return f"snapshots are at most {_SNAPSHOTS_MAX}, newest first, found sequences {snapshots}"
    if version.origin < 0 or (version.origin and len(snapshots) < _SNAPSHOTS_MAX and snapshots != [version.origin]):
        return (
            f"a line that begins at version {version.origin} names its snapshot until there are two, found {snapshots}"
        )
    if superseded != sorted(set(superseded)) or (superseded and superseded[-1] >= version.start):
        return f"what is superseded is older than sequence {version.start}, found sequences {superseded}"
    state_ids = [state.state_id for state in version.expiry]
    if state_ids != sorted(set(state_ids)):
        return f"each state's expiry stands there once, in order, found states {state_ids}"
    return None


def _broken_by_text(handle: StoredHandle) -> str | None:
    """As :func:`broken_rule`, as far as a text alone tells."""
    if handle.newest is not None and handle.sequence <= handle.start:
        return f"the newest delta leads on from {handle.start}, not to {handle.sequence}"
    for snapshot in handle.snapshots:
        if snapshot.sequence == handle.sequence and snapshot.version_id != handle.version_id:
            return f"snapshot {snapshot.name} is of this lineage"
    return _broken_by_version(handle)


def _bytes_since_snapshot(version: NamedVersion, deltas: Sequence[DeltaRef]) -> int:
    since = version.snapshots[0].sequence if version.snapshots else 0
    return sum(delta.size_bytes for delta in deltas if delta.sequence > since)


def _of_version(version: NamedVersion) -> dict[str, Any]:
    return {field.name: getattr(version, field.name) for field in fields(NamedVersion)}


def _fields(handle: StoredHandle) -> dict[str, Any]:
    """Of version 4. Names of manifests are cut: of a snapshot to its id, of one that is superseded to both ids."""
    newest = handle.newest
    return {
        **_identity(handle),
        "snapshots": [
            [s.sequence, s.version_id, _ids_of(s.sequence, s.name)[1], s.size_bytes, s.checksum, s.state_bytes]
            for s in handle.snapshots
        ],
        "delta": None if newest is None else [newest.size_bytes, newest.checksum, handle.delta_bytes],
        "superseded": [
            [s.sequence, s.batch_id, None if s.name is None else "-".join(_ids_of(s.sequence, s.name))]
            for s in handle.superseded
        ],
    }


def _fields_with_list(handle: StoredHandle, deltas: Sequence[DeltaRef]) -> dict[str, Any]:
    return {
        **_identity(handle),
        "snapshots": [
            [s.sequence, s.version_id, s.name, s.size_bytes, s.checksum, s.state_bytes] for s in handle.snapshots
        ],
        "deltas": [[d.sequence, d.version_id, d.size_bytes, d.checksum] for d in deltas],
        "superseded": [[s.sequence, s.batch_id, s.name] for s in handle.superseded],
    }


def _identity(handle: StoredHandle) -> dict[str, Any]:
    expiry = {"expiry": [state.to_row() for state in handle.expiry]} if handle.expiry else {}
    origin = {"origin": handle.origin} if handle.origin else {}
    return {
        **expiry,
        **origin,
        "operator": handle.operator,
        "slot": handle.slot,
        "version_id": handle.version_id,
        "parent_id": handle.parent_id,
        "sequence": handle.sequence,
        "batch_id": handle.batch_id,
    }


def _ids_of(sequence: int, name: str) -> tuple[str, str]:
    """Version id and snapshot id in the name of a manifest."""
    match = _MANIFEST.fullmatch(name)
    if match is None or manifest_name(sequence, *match.groups()) != name:
        raise InternalError(f"a handle names {name!r}, which is no manifest of a snapshot of version {sequence}")
    return match.group(1), match.group(2)


def _from_fields(document: dict[str, Any]) -> StoredHandle:
    delta, version_id, sequence = document["delta"], document["version_id"], document["sequence"]
    newest = None
    if delta is not None:
        size_bytes, checksum, delta_bytes = delta
        newest = DeltaRef(sequence, _matched(_ID, version_id), _count(size_bytes), _matched(_CHECKSUM, checksum))
    return StoredHandle(
        **_identity_from(document),
        snapshots=tuple(_snapshot(*row) for row in document["snapshots"]),
        superseded=tuple(_superseded(*row) for row in document["superseded"]),
        newest=newest,
        delta_bytes=0 if delta is None else _count(delta_bytes),
    )


def _from_fields_with_list(document: dict[str, Any]) -> StoredHandle:
    version, deltas = _identity_from(document), tuple(DeltaRef(*row) for row in document["deltas"])
    snapshots = tuple(map(SnapshotRef.from_row, document["snapshots"]))
    return StoredHandle(
        **version,
        snapshots=snapshots,
        superseded=tuple(Superseded(*row) for row in document["superseded"]),
        newest=deltas[-1] if deltas else None,
        delta_bytes=_bytes_since_snapshot(NamedVersion(**version, snapshots=snapshots), deltas),
        listed=deltas,
    )


def _identity_from(document: dict[str, Any]) -> dict[str, Any]:
    names = ("operator", "slot", "version_id", "parent_id", "sequence", "batch_id")
    return {
        **{name: document[name] for name in names},
        "expiry": tuple(StateExpiry.from_row(row) for row in document.get("expiry", ())),
        "origin": index(document.get("origin", 0)),
    }


def _snapshot(
    sequence: int, version_id: str, snapshot_id: str, size_bytes: int, checksum: str, state_bytes: int
) -> SnapshotRef:
    name = manifest_name(_count(sequence), _matched(_ID, version_id), _matched(_ID, snapshot_id))
    sizes = _count(size_bytes), _matched(_CHECKSUM, checksum), _count(state_bytes)
    return SnapshotRef(sequence, version_id, name, *sizes)


def _superseded(sequence: int, batch_id: int, ids: str | None) -> Superseded:
    name = None
    if ids is not None:
        version_id, snapshot_id = ids.split("-")
        name = manifest_name(_count(sequence), _matched(_ID, version_id), _matched(_ID, snapshot_id))
    return Superseded(_count(sequence), index(batch_id), name)


def _matched(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError(f"{text!r} is not {pattern.pattern}")
    return text


def _count(number: int) -> int:
    if index(number) < 0:
        raise ValueError(f"{number} is below zero")
    return number
