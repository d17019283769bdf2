"""Writes the tables of a savepoint: operator by operator, slot by slot, all states of a slot in one pass over its base.

Memory is bounded by a row group for each state. Owner: one thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import pyarrow as pa

from holdfast.checkpoint.as_of import AsOf
from holdfast.checkpoint.handle import StoredHandle
from holdfast.checkpoint.operator_record import OperatorRecord
from holdfast.checkpoint.saved_operator import columns_of, saved_operator, saved_ttls
from holdfast.checkpoint.state_record import StateRecord
from holdfast.checkpoint.stored_entries import NO_KEY_GROUP, of_key_groups, of_state
from holdfast.inspect.difference import encoded_rows
from holdfast.inspect.own_folder import OwnFolder
from holdfast.inspect.state_rows import StateRows
from holdfast.inspect.versions import OF_NO_KEY, Versions, key_groups, not_the_same
from holdfast.savepoint import SavedOperator, StateTtl, TableFile, TableWriter
from holdfast.savepoint.writing import draft_path
from holdfast.storage import FileStore

#: Rows so far; of a native savepoint, files.
Progress = Callable[[int], None]


class SavepointMaker:
    """Writes the tables of operators into a folder.

    Parameters
    ----------
    versions
        Reads the versions of their slots.
    """

    def __init__(self, versions: Versions, target: FileStore, progress: Progress | None) -> None:
        self._versions = versions
        self._target = target
        self._progress = progress
        self._rows = 0
        self._broadcast: dict[int, tuple[int, list[bytes]]] = {}  # by state: the first slot, and its rows

    def operator(
        self, record: OperatorRecord, handles: Mapping[int, StoredHandle], as_of: AsOf | None
    ) -> SavedOperator:
        """Writes the tables of one operator at these versions of its slots, as of the end of a batch (None: as
        they say themselves); what the manifest has to say of it.

        Raises as :meth:`holdfast.Savepoint.create`.
        """
        ordered = [handles[slot] for slot in sorted(handles)]
        states = sorted(record.states, key=lambda state: state.name)
        ttls = saved_ttls(record, ordered, as_of)
        files: dict[int, list[TableFile]] = {state.id: [] for state in states}
        self._broadcast.clear()
        for handle in ordered:
            for state, file in self._slot(record, states, handle, ttls, as_of):
                files[state.id].append(file)
            self._versions.forget(record, handle.slot)  # the next one needs the room
        return saved_operator(record, ordered, files, as_of)

    def _slot(
        self,
        record: OperatorRecord,
        states: Sequence[StateRecord],
        handle: StoredHandle,
        ttls: dict[int, StateTtl | None],
        as_of: AsOf | None,
    ) -> list[tuple[StateRecord, TableFile]]:
        groups = key_groups(record, handle.slot)
        keyed = [state for state in states if state.kind not in OF_NO_KEY]
        found = []
        for state in states:
            if state.kind == "broadcast" and not self._is_first(record, state, handle):
                continue
            if state.kind in OF_NO_KEY:
                slot = 0 if state.kind == "broadcast" else handle.slot
                files = self._pass(record, [state], handle, ttls, of_state(NO_KEY_GROUP, state.id), as_of)
                found += [(state, writer.finish(self._target, slot, (0, 0))) for state, writer in files]
        for state, writer in self._pass(record, keyed, handle, ttls, of_key_groups(*groups), as_of):
            found.append((state, writer.finish(self._target, handle.slot, groups)))
        return [(state, file) for state, file in found if file is not None]

    def _is_first(self, record: OperatorRecord, state: StateRecord, handle: StoredHandle) -> bool:
        """Whether this is the slot of which a broadcast state is taken; Corrupt where another slot has another."""
        columns = columns_of(record, state)
        table = pa.Table.from_batches(self._versions.rows(record, state, handle, None), columns.schema)
        rows = encoded_rows(table, columns.schema.names)
        slot, first = self._broadcast.setdefault(state.id, (handle.slot, rows))
        if rows != first:
            raise not_the_same(record, state, [handle.slot], slot)
        return slot == handle.slot

    def _pass(
        self,
        record: OperatorRecord,
        states: Sequence[StateRecord],
        handle: StoredHandle,
        ttls: dict[int, StateTtl | None],
        limits: tuple[bytes, bytes],
        as_of: AsOf | None,
    ) -> Iterator[tuple[StateRecord, TableWriter]]:
        """The tables of these states, written to local files that are not finished."""
        if not states:
            return
        with OwnFolder() as own_folder, ExitStack() as opened:
            folder = own_folder.path
            tables = []
            for state in states:
                ttl = ttls[state.id]
                rows = StateRows(record, state, handle, ttl.ttl_ms if ttl else None, as_of)
                path = draft_path(self._target) or os.path.join(folder, f"{state.id}.parquet")
                tables.append(
                    (state, rows, opened.enter_context(TableWriter(path, record.name, state.name, rows.columns)))
                )
            for entries in self._versions.slot(record, handle.slot).entries(handle, [limits]):
                for _, rows, writer in tables:
                    batch = rows.rows(entries)
                    writer.write(batch)
                    self._rows += batch.num_rows
                if self._progress is not None:
                    self._progress(self._rows)
            yield from ((state, writer) for state, _, writer in tables)
