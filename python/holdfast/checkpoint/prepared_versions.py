"""Versions that attempts prepared and no handle names yet, found by who made them.

When a batch runs again whose output is visible, its slots take over what the attempts prepared whose output that is, so
that state and output come from the same run, whatever the processor did. See docs/rfcs/0004.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.checkpoint.delta_file import DeltaIdentity, decode_delta, identity_of
from holdfast.checkpoint.delta_reader import DeltaReader
from holdfast.checkpoint.handle import DeltaRef, Handle, StoredHandle
from holdfast.checkpoint.names import delta_name, parse_version, run_delta_prefix
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.errors import Incompatible, Undecided
from holdfast.sealed import checksum_of


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

        No handle has its checksum, so what it says of itself is compared with what is expected.
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
        stored = self._stored(handle.sequence, version_id)
        if stored is None:
            return None
        data, where, ref, found = stored
        if (found.parent_id, found.batch_id) != (handle.parent_id or "", handle.batch_id):
            raise Incompatible(
                f"{handle.where}: Spark's state has this version of batch {handle.batch_id}, and the output that is "
                f"visible was made with {where}, on version {found.parent_id or 'none'}. The state in Spark's "
                "checkpoint is not the one that the output was made from: restore both from one backup"
            )
        self._deltas.keep_copy(ref, data)
        before = handle.newest.size_bytes if handle.newest is not None else 0
        return replace(
            handle,
            version_id=version_id,
            newest=ref,
            delta_bytes=handle.delta_bytes - before + ref.size_bytes,
            listed=None if handle.listed is None else (*handle.listed[:-1], ref),
            expiry=found.expiry,
        )

    def of_run(self, parent: Handle | None, batch_id: int, run_id: str) -> str | None:
        """The version that tasks of a run prepared; None when there is none.

        Of several attempts at one task Spark committed one. Which, the record does not say where the operator's tasks
        are not the sink's; where all changed the same, it does not matter.
        """
        context = self._context
        prefix = context.stored(run_delta_prefix(_sequence(parent), run_id))
        versions = [version for file in context.file_store.list(prefix) if (version := parse_version(file.name))]
        contents = [self._contents(parent, batch_id, version_id) for _, version_id in versions]
        if any(other != contents[0] for other in contents[1:]):
            raise Undecided(
                f"operator {context.operator!r}, slot {context.slot}, batch {batch_id}: {len(versions)} attempts of "
                f"run {run_id}, whose output is visible, prepared different versions of the state, and which of them "
                f"the output was made from is not recorded: {', '.join(version_id for _, version_id in versions)} in "
                f"{prefix}*. Keep one of these files, move the others away, and start the query again"
            )
        return versions[0][1] if versions else None

    def _contents(self, parent: Handle | None, batch_id: int, version_id: str) -> dict[tuple[int, bytes], object]:
        """Last value of each key that a delta changes."""
        prepared = self.find(parent, batch_id, version_id)
        found: dict[tuple[int, bytes], object] = {}
        for batch in self._deltas.read(prepared[0]) if prepared else ():
            for row in zip(*(column.to_pylist() for column in batch.columns)):
                _, state, key, value = row
                found[state, key] = value
        return found

    def _stored(self, sequence: int, version_id: str) -> tuple[bytes, str, DeltaRef, DeltaIdentity] | None:
        """A delta that is stored under a version's name, where it is, and what it says of itself; None: nothing is."""
        context = self._context
        name = context.stored(delta_name(sequence, version_id))
        data = context.file_store.get(name)
        if data is None:
            return None
        where = f"delta {name} in {context.file_store.uri}"
        ref = DeltaRef(sequence, version_id, len(data), checksum_of(data))
        decode_delta(data, ref, context.operator, context.slot, where)
        return data, where, ref, identity_of(data, where)

    def _name(self, parent: Handle | None, version_id: str) -> str:
        return self._context.stored(delta_name(_sequence(parent), version_id))


def _sequence(parent: Handle | None) -> int:
    return (parent.sequence if parent else 0) + 1
