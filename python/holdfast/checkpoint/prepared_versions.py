"""Versions that attempts prepared and no handle names yet, found by who made them.

When a batch runs again whose output is visible, its slots take over what the attempts prepared whose output that is, so
that state and output come from the same run, whatever the processor did. See docs/rfcs/0004.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.checkpoint.delta_file import DeltaIdentity, checked_identity_of, decode_delta
from holdfast.checkpoint.delta_reader import DeltaReader
from holdfast.checkpoint.handle import DeltaRef, Handle, StoredHandle
from holdfast.checkpoint.names import delta_name, parse_version, run_delta_prefix, slot_prefix
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.errors import Incompatible, Undecided
from holdfast.sealed import checksum_of
from holdfast.storage import FileStore


class PreparedVersions:
    """Of one slot. ``parent`` is always the version that the batch runs on; None is the empty state."""

    def __init__(self, context: SlotContext, deltas: DeltaReader) -> None:
        self._context = context
        self._deltas = deltas

    def exists(self, parent: Handle | None, version_id: str) -> bool:
        name = self._name(parent, version_id)
        return any(file.name == name for file in self._context.file_store.list(name))

    def find(self, parent: Handle | None, batch_id: int, version_id: str) -> tuple[DeltaRef, DeltaIdentity] | None:
        """The delta that leads to a version, and what it says of itself; None when nobody prepared it.

        No handle has its checksum: the file has one of its own, and what it says of itself is compared with what is
        expected.
        """
        stored = self._stored(_sequence(parent), version_id)
        if stored is None:
            return None
        data, where, ref, found = stored
        expected = (parent.version_id if parent else "", batch_id)
        if (found.parent_id, found.batch_id) != expected:
            raise Incompatible(
                f"{where} was prepared by the run whose output is visible, but for batch {found.batch_id} and on "
                f"version {found.parent_id or 'none'}; expected batch {batch_id} on version {expected[0] or 'none'}. "
                "The state in Spark's checkpoint is not the one that the output was made from: "
                "restore both from one backup"
            )
        self._deltas.keep_copy(ref, data)
        return ref, found

    def beside(self, handle: StoredHandle, version_id: str) -> StoredHandle | None:
        """``handle`` with the version that another attempt at its batch prepared in place of its own; None: that
        attempt prepared none of this slot.

        Raises
        ------
        Corrupt
            What is stored under its name is damaged.
        Incompatible
            It was prepared on another version than ``handle``'s.
        """
        found = version_beside(self._context.file_store, self._context.prefix, handle, version_id)
        if found is None:
            return None
        version, ref, data = found
        self._deltas.keep_copy(ref, data)
        return version

    def made_on(self, handle: StoredHandle, batch_id: int, version_id: str | None, run_id: str) -> str | None:
        """The version that the attempts at a batch went on from whose output is visible: ``handle``'s, or one that
        another attempt prepared in its place. None: they prepared none of this slot.

        Parameters
        ----------
        version_id
            What the recorded attempt at this task prepared, if the task is the sink's.
        run_id
            The run whose versions count where it is not.

        Raises
        ------
        Corrupt
            What is stored under such a name is damaged.
        Undecided
            Attempts of the run went on from versions that differ.
        """
        sequence = handle.sequence + 1
        recorded = self._stored(sequence, version_id) if version_id else None
        if recorded is not None:
            return recorded[3].parent_id if recorded[3].batch_id == batch_id else None
        made = self._of_run(sequence, run_id)
        parents = sorted({found.parent_id for _, found in made if found.batch_id == batch_id})
        if not self._are_alike(handle, parents):
            raise self._undecided(batch_id, run_id, made)
        return handle.version_id if handle.version_id in parents else parents[0] if parents else None

    def of_run(self, parent: Handle | None, batch_id: int, run_id: str) -> str | None:
        """The version that tasks of a run prepared for the batch; None when there is none: a later batch of the run, to
        which the query was rolled back too, may have made the slot's next version.

        Of several attempts at one task Spark committed one. Which, the record does not say where the operator's tasks
        are not the sink's; where all changed the same, it does not matter.
        """
        made = [one for one in self._of_run(_sequence(parent), run_id) if one[1].batch_id == batch_id]
        parent_id = parent.version_id if parent else ""
        chosen = [ref for ref, found in made if found.parent_id == parent_id] or [ref for ref, _ in made]
        contents = [self._contents(parent, batch_id, ref.version_id) for ref in chosen]
        others = {ref: found.parent_id for ref, found in made if ref not in chosen}
        contents += [self._read(ref) for ref in others]
        is_alike = not others or (
            parent is not None and self._are_alike(parent.stored(), [parent_id, *others.values()])
        )
        if not is_alike or any(other != contents[0] for other in contents[1:]):
            raise self._undecided(batch_id, run_id, made)
        return chosen[0].version_id if chosen else None

    def _of_run(self, sequence: int, run_id: str) -> list[tuple[DeltaRef, DeltaIdentity]]:
        """All that attempts of a run prepared there."""
        files = self._context.file_store.list(self._context.stored(run_delta_prefix(sequence, run_id)))
        ids = [version[1] for file in files if (version := parse_version(file.name))]
        return [stored[2:] for version_id in ids if (stored := self._stored(sequence, version_id)) is not None]

    def _are_alike(self, handle: StoredHandle, version_ids: Sequence[str]) -> bool:
        """Whether versions in ``handle``'s place, each of another attempt at its batch, hold the same."""
        if len(set(version_ids)) < 2:
            return True
        beside = [self.beside(handle, version_id) for version_id in version_ids]
        if any(one is None or one.newest is None for one in beside):
            return False
        found = [self._read(one.newest) for one in beside if one is not None and one.newest is not None]
        return all(other == found[0] for other in found[1:])

    def _undecided(self, batch_id: int, run_id: str, made: Sequence[tuple[DeltaRef, DeltaIdentity]]) -> Undecided:
        context, sequence = self._context, made[0][0].sequence
        return Undecided(
            f"operator {context.operator!r}, slot {context.slot}, batch {batch_id}: {len(made)} attempts of run "
            f"{run_id}, whose output is visible, prepared different versions of the state, and which of them the "
            f"output was made from is not recorded: {', '.join(ref.version_id for ref, _ in made)} in "
            f"{context.stored(run_delta_prefix(sequence, run_id))}*. Keep one of these files, move the others away, "
            "and start the query again"
        )

    def _contents(self, parent: Handle | None, batch_id: int, version_id: str) -> dict[tuple[int, bytes], object]:
        """Last value of each key that a delta after ``parent`` changes."""
        prepared = self.find(parent, batch_id, version_id)
        return self._read(prepared[0]) if prepared else {}

    def _read(self, ref: DeltaRef) -> dict[tuple[int, bytes], object]:
        found: dict[tuple[int, bytes], object] = {}
        for batch in self._deltas.read(ref):
            for row in zip(*(column.to_pylist() for column in batch.columns)):
                _, state, key, value = row
                found[state, key] = value
        return found

    def _stored(self, sequence: int, version_id: str) -> tuple[bytes, str, DeltaRef, DeltaIdentity] | None:
        """A delta that is stored under a version's name, where it is, and what it says of itself; None: nothing is."""
        context = self._context
        return _stored(context.file_store, context.prefix, (context.operator, context.slot), sequence, version_id)

    def _name(self, parent: Handle | None, version_id: str) -> str:
        return self._context.stored(delta_name(_sequence(parent), version_id))


def _sequence(parent: Handle | None) -> int:
    return (parent.sequence if parent else 0) + 1


def version_beside(
    store: FileStore, prefix: str, handle: StoredHandle, version_id: str
) -> tuple[StoredHandle, DeltaRef, bytes] | None:
    """As :meth:`PreparedVersions.beside`, for who has no slot; with its newest delta. ``prefix``: the operator's."""
    stored = _stored(store, prefix, (handle.operator, handle.slot), handle.sequence, version_id)
    if stored is None:
        return None
    data, where, ref, found = stored
    if (found.parent_id, found.batch_id) != (handle.parent_id or "", handle.batch_id):
        raise Incompatible(
            f"{handle.where}: Spark's state has this version of batch {handle.batch_id}, and the output that is "
            f"visible was made with {where}, on version {found.parent_id or 'none'}. The state in Spark's "
            "checkpoint is not the one that the output was made from: restore both from one backup"
        )
    before = handle.newest.size_bytes if handle.newest is not None else 0
    version = replace(
        handle,
        version_id=version_id,
        newest=ref,
        delta_bytes=handle.delta_bytes - before + ref.size_bytes,
        listed=None if handle.listed is None else (*handle.listed[:-1], ref),
        expiry=found.expiry,
    )
    return version, ref, data


def _stored(
    store: FileStore, prefix: str, slot: tuple[str, int], sequence: int, version_id: str
) -> tuple[bytes, str, DeltaRef, DeltaIdentity] | None:
    name = f"{slot_prefix(prefix, slot[1])}/{delta_name(sequence, version_id)}"
    data = store.get(name)
    if data is None:
        return None
    where = f"delta {name} in {store.uri}"
    found = checked_identity_of(data, where)
    ref = DeltaRef(sequence, version_id, len(data), checksum_of(data))
    decode_delta(data, ref, *slot, where)
    return data, where, ref, found
