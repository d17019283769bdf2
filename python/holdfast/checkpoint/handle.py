"""Handle: the small text that names one version of one slot. Format: docs/formats/handle.md.

Immutable. Spark commits it with the batch; what no committed handle names never happened.
It names at most two snapshots and every delta after the older of them,
so that a damaged newest snapshot falls back to the one before.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import Any

from holdfast.checkpoint.expiry import StateExpiry
from holdfast.errors import Corrupt
from holdfast.sealed import seal, unseal

FORMAT = "holdfast.handle"
VERSION = 3
_VERSION_WITHOUT_ORIGIN = 2
_VERSION_WITHOUT_EXPIRY = 1
_SNAPSHOTS_MAX = 2


@dataclass(frozen=True)
class DeltaRef:
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


@dataclass(frozen=True)
class Superseded:
    """A starting point of recovery that handles before batch ``batch_id`` may still need, and no later one does.

    ``name``: the snapshot's manifest; None with sequence 0 for the empty state at the beginning.
    """

    sequence: int
    batch_id: int
    name: str | None


@dataclass(frozen=True)
class Handle:
    """Version ``sequence`` of a slot. ``snapshots``: newest first. ``deltas`` and ``superseded``: oldest first.
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
    deltas: tuple[DeltaRef, ...] = ()
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

    def to_text(self) -> str:
        # What has neither a TTL nor an origin is what earlier versions of Holdfast read too.
        without_origin = _VERSION_WITHOUT_ORIGIN if self.expiry else _VERSION_WITHOUT_EXPIRY
        return seal(FORMAT, VERSION if self.origin else without_origin, _fields(self))

    @classmethod
    def from_text(cls, text: str) -> Handle:
        """Reads a handle back.

        Raises
        ------
        Corrupt
            Torn, changed, or not a handle.
        Incompatible
            Written by a newer Holdfast.
        """
        fields = unseal(text, FORMAT, VERSION, "a handle")
        try:
            handle = _from_fields(fields)
        except (KeyError, TypeError, ValueError) as error:
            raise Corrupt(f"a handle lacks what a handle has: {error!r} in {fields!r}") from error
        broken = broken_rule(handle)
        if broken:
            raise Corrupt(f"the handle of {handle.where} contradicts itself: {broken}")
        return handle


def broken_rule(handle: Handle) -> str | None:
    """The first rule of docs/formats/handle.md that ``handle`` breaks, or None. Checked on writing and on reading."""
    snapshots = [snapshot.sequence for snapshot in handle.snapshots]
    deltas = [delta.sequence for delta in handle.deltas]
    superseded = [old.sequence for old in handle.superseded]
    if len(snapshots) > _SNAPSHOTS_MAX or snapshots != sorted(set(snapshots), reverse=True):
        return f"snapshots are at most {_SNAPSHOTS_MAX}, newest first, found sequences {snapshots}"
    if handle.origin < 0 or (handle.origin and len(snapshots) < _SNAPSHOTS_MAX and snapshots != [handle.origin]):
        return (
            f"a line that begins at version {handle.origin} names its snapshot until there are two, found {snapshots}"
        )
    if deltas != list(range(handle.start + 1, handle.sequence + 1)):
        return f"deltas lead from {handle.start} to {handle.sequence} without a gap, found sequences {deltas}"
    if superseded != sorted(set(superseded)) or (superseded and superseded[-1] >= handle.start):
        return f"what is superseded is older than sequence {handle.start}, found sequences {superseded}"
    if handle.versions.get(handle.sequence) != handle.version_id:
        return "the last delta or snapshot leads to the handle's own version"
    state_ids = [state.state_id for state in handle.expiry]
    if state_ids != sorted(set(state_ids)):
        return f"each state's expiry stands there once, in order, found states {state_ids}"
    by_sequence = {delta.sequence: delta.version_id for delta in handle.deltas}
    for snapshot in handle.snapshots:
        if by_sequence.get(snapshot.sequence, snapshot.version_id) != snapshot.version_id:
            return f"snapshot {snapshot.name} is of this lineage"
    return None


def _fields(handle: Handle) -> dict[str, Any]:
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
        "snapshots": [
            [s.sequence, s.version_id, s.name, s.size_bytes, s.checksum, s.state_bytes] for s in handle.snapshots
        ],
        "deltas": [[d.sequence, d.version_id, d.size_bytes, d.checksum] for d in handle.deltas],
        "superseded": [[s.sequence, s.batch_id, s.name] for s in handle.superseded],
    }


def _from_fields(fields: dict[str, Any]) -> Handle:
    return Handle(
        operator=fields["operator"],
        slot=fields["slot"],
        version_id=fields["version_id"],
        parent_id=fields["parent_id"],
        sequence=fields["sequence"],
        batch_id=fields["batch_id"],
        snapshots=tuple(SnapshotRef(*row) for row in fields["snapshots"]),
        deltas=tuple(DeltaRef(*row) for row in fields["deltas"]),
        superseded=tuple(Superseded(*row) for row in fields["superseded"]),
        expiry=tuple(StateExpiry.from_row(row) for row in fields.get("expiry", ())),
        origin=index(fields.get("origin", 0)),
    )
