"""Versions of an operator's slots as tables, from a store that is only read: of a checkpoint, or of a native savepoint.

What is brought to this machine lies in a folder of the caller's until :meth:`Versions.forget`. Owner: one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from holdfast import _core
from holdfast.checkpoint.as_of import AsOf, expiry_of
from holdfast.checkpoint.handle import StoredHandle
from holdfast.checkpoint.names import encode_operator
from holdfast.checkpoint.operator_record import OperatorRecord
from holdfast.checkpoint.origin import key_groups_of
from holdfast.checkpoint.saved_operator import columns_of
from holdfast.checkpoint.state_record import StateRecord
from holdfast.checkpoint.stored_entries import NO_KEY_GROUP, Bounds, of_key, of_key_groups, of_state
from holdfast.errors import Corrupt, InvalidRequest
from holdfast.inspect.difference import encoded_rows
from holdfast.inspect.key_filter import keys_of
from holdfast.inspect.slot_versions import SlotVersions
from holdfast.inspect.state_rows import StateRows, state_rows
from holdfast.savepoint.columns import check_filter
from holdfast.storage import FileStore

#: Kinds of states that belong to no key.
OF_NO_KEY = ("broadcast", "operator")
_BATCH_ROWS, _BATCH_BYTES = 65536, 64 << 20
# From this size of a slot on, seeking to a state in each key group costs less than reading past other states.
_SEEK_BYTES_MIN = 64 << 20
# Of more keys than these their key groups are read: to seek to each costs as much as reading past hundreds of rows.
_SEEK_KEYS_MAX = 1024


@dataclass(frozen=True)
class Wanted:
    """What of a state is read: only these slots, columns in this order, rows for which the filter is true."""

    slots: Sequence[int] | None = None
    columns: Sequence[str] | None = None
    filter: pc.Expression | None = None

    def schema(self, state: str, whole: pa.Schema) -> pa.Schema:
        """What is given of a state's columns; InvalidRequest where it lacks one."""
        names = whole.names if self.columns is None else self.columns
        unknown = [name for name in names if name not in whole.names]
        if unknown:
            raise InvalidRequest(f"state {state!r} has no column {unknown[0]!r}; it has {', '.join(whole.names)}")
        return pa.schema([whole.field(name) for name in names])


class Versions:
    """The versions of the slots of a query's operators.

    Parameters
    ----------
    folder
        The query's, in the store.
    local_dir
        The caller's own temporary folder.
    """

    def __init__(self, store: FileStore, folder: str, local_dir: str) -> None:
        self._store = store
        self._folder = folder
        self._local_dir = local_dir
        self._slots: dict[tuple[str, int], SlotVersions] = {}

    def slot(self, record: OperatorRecord, slot: int) -> SlotVersions:
        """The versions of a slot, on this machine once they are read."""
        versions = self._slots.get((record.name, slot))
        if versions is None:
            prefix = f"{self._folder}/{encode_operator(record.name)}"
            versions = SlotVersions(record, slot, self._store, prefix, self._local_dir)
            self._slots[record.name, slot] = versions
        return versions

    def forget(self, record: OperatorRecord, slot: int) -> None:
        """Removes what was brought to this machine of a slot."""
        versions = self._slots.pop((record.name, slot), None)
        if versions is not None:
            versions.remove()

    def close(self) -> None:
        """Forgets what there is, and leaves it to the caller to remove the folder."""
        self._slots.clear()

    def read(
        self,
        record: OperatorRecord,
        state: str,
        handles: Mapping[int, StoredHandle],
        wanted: Wanted,
        reading: Callable[[], AbstractContextManager[None]],
        as_of: AsOf | None = None,
    ) -> pa.RecordBatchReader:
        """A state in these versions of slots, as :meth:`holdfast.Checkpoint.read`.

        Parameters
        ----------
        reading
            Within it they are read: what it makes of an error is what the caller is told.
        as_of
            As of the end of which batch; None: each version as of its own.

        Raises
        ------
        InvalidRequest
            No such state, column or slot; or a filter that is none.
        Corrupt
            As :meth:`SlotVersions.entries`; or slots have not the same broadcast state.
        """
        declared = state_of(record, state)
        schema = columns_of(record, declared).schema
        given = wanted.schema(state, schema)
        check_filter(schema, wanted.filter)
        _check_slots(wanted.slots, record)
        chosen = [handles[slot] for slot in sorted(handles) if wanted.slots is None or slot in wanted.slots]
        ranges = _ranges_of_keys(record, declared, wanted.filter)
        if ranges is not None:
            chosen = [handle for handle in chosen if handle.slot in ranges]
        if declared.kind == "broadcast":
            if wanted.slots is None:
                with reading():
                    self.check_same(record, declared, chosen)
            chosen = chosen[:1]

        def batches() -> Iterator[pa.RecordBatch]:
            with reading():
                yield from self._filtered(record, declared, chosen, wanted, ranges or {}, as_of)

        return pa.RecordBatchReader.from_batches(given, batches())

    def rows(
        self,
        record: OperatorRecord,
        state: StateRecord,
        handle: StoredHandle,
        ttl_ms: int | None,
        ranges: Sequence[Bounds] | None = None,
        as_of: AsOf | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """All rows of a state at one version of a slot. ``ttl_ms``: what expiry is told by. ``ranges``: those of
        entries in these, which divide no key. ``as_of``: as for :meth:`read`.
        """
        rows = StateRows(record, state, handle, ttl_ms, as_of)
        versions = self.slot(record, handle.slot)
        return state_rows(rows, _together(versions.entries(handle, ranges or _ranges(record, state, handle))))

    def check_same(self, record: OperatorRecord, state: StateRecord, handles: Sequence[StoredHandle]) -> None:
        """Whether all slots have the same broadcast state; Corrupt otherwise."""
        schema = columns_of(record, state).schema
        tables = (pa.Table.from_batches(self.rows(record, state, handle, None), schema) for handle in handles)
        rows = [encoded_rows(table, schema.names) for table in tables]
        others = [handle.slot for handle, found in zip(handles, rows) if found != rows[0]]
        if others:
            raise not_the_same(record, state, others, handles[0].slot)

    def _filtered(
        self,
        record: OperatorRecord,
        state: StateRecord,
        handles: Sequence[StoredHandle],
        wanted: Wanted,
        ranges: Mapping[int, Sequence[Bounds]],
        as_of: AsOf | None,
    ) -> Iterator[pa.RecordBatch]:
        for handle in handles:
            of_slot = ranges.get(handle.slot)
            rows_of_slot = self.rows(record, state, handle, ttl_of(handle, state, as_of), of_slot, as_of)
            with closing(rows_of_slot) as found:  # type: ignore[type-var]
                for batch in found:
                    rows = pa.Table.from_batches([batch])
                    rows = rows if wanted.filter is None else rows.filter(wanted.filter)
                    yield from (rows if wanted.columns is None else rows.select(list(wanted.columns))).to_batches()


def key_groups(record: OperatorRecord, slot: int) -> tuple[int, int]:
    """The key groups of a slot: the first, and one past the last."""
    return key_groups_of(slot, record.slots, record.max_parallelism)


def state_of(record: OperatorRecord, name: str) -> StateRecord:
    """The state of that name; InvalidRequest where there is none."""
    found = next((state for state in record.states if state.name == name), None)
    if found is None:
        known = ", ".join(sorted(state.name for state in record.states)) or "none"
        raise InvalidRequest(f"operator {record.name!r} has no state {name!r}; it has {known}")
    return found


def not_the_same(record: OperatorRecord, state: StateRecord, others: list[int], slot: int) -> Corrupt:
    """What is said of a broadcast state that slots have not alike."""
    return Corrupt(
        f"broadcast state {state.name!r} of operator {record.name!r} is not the same in all slots: slots {others} have "
        f"another than slot {slot}. Its processor does not do the same in all slots; read each by itself with slots=[…]"
    )


def ttl_of(handle: StoredHandle, state: StateRecord, as_of: AsOf | None) -> int | None:
    """The TTL of a state at a version, as of the end of a batch, in milliseconds."""
    return next((one.ttl_ms for one in expiry_of(handle, as_of) if one.state_id == state.id), None)


def figures(handles: Mapping[int, StoredHandle]) -> dict[str, int]:
    """How many slots have a version, and the bytes of the newest snapshot of each and of the deltas since."""
    total = 0
    for handle in handles.values():
        newest = handle.snapshots[0] if handle.snapshots else None
        total += (newest.state_bytes if newest else 0) + handle.delta_bytes
    return {"slots": len(handles), "bytes": total}


def _ranges(record: OperatorRecord, state: StateRecord, handle: StoredHandle) -> list[tuple[bytes, bytes]]:
    """Where a state's entries are in a slot. Those of all states of keys lie together in each key group."""
    if state.kind in OF_NO_KEY:
        return [of_state(NO_KEY_GROUP, state.id)]
    first, end = key_groups(record, handle.slot)
    alone = sum(one.kind not in OF_NO_KEY for one in record.states) == 1
    if alone or figures({handle.slot: handle})["bytes"] < _SEEK_BYTES_MIN:
        return [of_key_groups(first, end)]
    return [of_state(group, state.id) for group in range(first, end)]


def _ranges_of_keys(
    record: OperatorRecord, state: StateRecord, wanted: pc.Expression | None
) -> dict[int, list[Bounds]] | None:
    """Where the entries are that a filter asks for by their whole keys, by slot; None: it does not. Other slots have
    none of them, and are not brought to this machine.
    """
    keys = None if state.kind in OF_NO_KEY else keys_of(wanted, record.key_schema)
    if keys is None:
        return None
    codec = _core.KeyCodec(record.key_schema, null_keys=record.null_keys)
    given = pa.RecordBatch.from_struct_array(keys)
    groups = pa.array(codec.key_groups(given, record.max_parallelism)).to_pylist()
    whole_groups = state.kind == "timers" or len(groups) > _SEEK_KEYS_MAX
    encoded = pa.array(codec.encode(given)).to_pylist()
    ranges: dict[int, set[Bounds]] = {}
    for group, key in zip(groups, encoded):
        slot = _core.slot_of(group, record.max_parallelism, record.slots)
        bounds = of_state(group, state.id) if whole_groups else of_key(group, state.id, key)
        ranges.setdefault(slot, set()).add(bounds)
    return {slot: sorted(found) for slot, found in ranges.items()}


def _together(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Small batches put together: what decodes them costs by the batch too."""
    gathered: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        gathered.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= _BATCH_ROWS or size_bytes >= _BATCH_BYTES:
            yield from pa.Table.from_batches(gathered).combine_chunks().to_batches()
            gathered, rows, size_bytes = [], 0, 0
    if gathered:
        yield from pa.Table.from_batches(gathered).combine_chunks().to_batches()


def _check_slots(slots: Sequence[int] | None, record: OperatorRecord) -> None:
    wrong = [slot for slot in slots or () if not 0 <= slot < record.slots]
    if wrong:
        raise InvalidRequest(f"operator {record.name!r} has slots 0 to {record.slots - 1}, no slot {wrong[0]}")
