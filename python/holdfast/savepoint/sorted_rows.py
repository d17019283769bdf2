"""Rows of one state that come in any order, in that of a savepoint: runs on the local disk, merged by key groups.

Memory is bounded by a run, and by the rows of the largest key group. What must be there once is found to be there
once, and lists are found to have no gaps, since what is the same lies together then. Owner: one thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import Incompatible, InvalidRequest, Unavailable
from holdfast.savepoint.columns import StateColumns

_GROUPS_MAX = 65536
#: As they are in memory: of a run that is written, and of runs that are merged.
RUN_BYTES, _PIECE_BYTES = 64 << 20, 32 << 20
_BATCH_ROWS = 65536
_INDEX_BYTES = 8


class SortedRows:
    """Rows of one state.

    Parameters
    ----------
    folder
        Of this machine, for the runs; the caller removes it.
    says_positions
        Whether positions are given, and must have no gaps; otherwise they are counted.
    where
        The state, for messages.
    """

    def __init__(self, folder: str, columns: StateColumns, *, says_positions: bool, where: str) -> None:
        self._folder = folder
        self._columns = columns
        self._says_positions = says_positions
        self._where = where
        self._held: list[pa.RecordBatch] = []
        self._runs: list[pa.RecordBatch] = []  # each in order, on the disk
        self._files = 0
        self._bytes = np.zeros(_GROUPS_MAX)  # about, by group

    @property
    def size_bytes(self) -> int:
        """As they are in memory, about."""
        held_bytes: int = sum(held.nbytes for held in self._held)
        return held_bytes + int(self._bytes.sum())

    def add(self, rows: pa.RecordBatch, groups: pa.Array, places: pa.Array) -> None:
        """Rows, which group of keys each is of, and its place in the group: bytes in the order of a store.

        Raises
        ------
        Unavailable
            The local disk is full.
        """
        arrays = [*rows.columns, groups.cast(pa.int32()), places]
        self._held.append(pa.RecordBatch.from_arrays(arrays, names=list(map(str, range(len(arrays))))))
        if sum(held.nbytes for held in self._held) >= RUN_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what is held; raises as :meth:`add`. To be called before the rows are read."""
        if not self._held:
            return
        run = self._in_order(pa.Table.from_batches(self._held))
        self._held = []
        path = os.path.join(self._folder, f"run-{self._files}.arrow")
        self._files += 1
        try:
            with pa.ipc.new_file(path, run.schema) as file:
                file.write_table(run)
            # Mapped, not read: a run is on the disk until a piece of it is asked for.
            batches = pa.ipc.open_file(pa.memory_map(path))
            self._runs += [batches.get_batch(number) for number in range(batches.num_record_batches)]
        except OSError as error:
            raise Unavailable(f"writing {path} failed: {error.strerror or error}; free space there") from error
        rows_by_group = np.bincount(run.column(run.num_columns - 2).to_numpy(), minlength=_GROUPS_MAX)
        self._bytes += rows_by_group * (run.nbytes / len(run))

    def of_groups(self, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """Rows of the groups from ``first`` up to, but not including, ``end``, in order.

        Raises
        ------
        InvalidRequest
            Two rows of one place, or a list with a gap.
        Incompatible
            A key group is too large.
        """
        while first < end:
            stop, held = first + 1, self._bytes[first]
            while stop < end and held + self._bytes[stop] <= _PIECE_BYTES:
                held += self._bytes[stop]
                stop += 1
            if held:
                yield from self._merged(first, stop)
            first = stop

    def _merged(self, first: int, stop: int) -> Iterator[pa.RecordBatch]:
        bounds = np.array([first, stop], np.int32)
        found = []
        for run in self._runs:
            at, end = np.searchsorted(run.column(run.num_columns - 2).to_numpy(), bounds)
            if at < end:
                found.append(run.slice(at, end - at))
        if not found:
            return
        table = self._in_order(pa.Table.from_batches(found))
        rows = pa.Table.from_arrays(table.columns[:-2], schema=self._columns.schema)
        groups, places = (table.column(number).combine_chunks() for number in (-2, -1))
        self._check_once(rows, groups, places)
        if "position" in self._columns.names:
            rows = self._with_positions(rows, groups, places)
        yield from rows.to_batches(max_chunksize=_BATCH_ROWS)

    def _in_order(self, table: pa.Table) -> pa.Table:
        group, place = table.column_names[-2:]
        try:
            indices = pc.sort_indices(table, sort_keys=[(group, "ascending"), (place, "ascending")])
            return table.take(indices).combine_chunks()
        except pa.ArrowInvalid as error:
            raise Incompatible(
                f"{self._where}: the rows of one key group do not fit together into a column: {error}; give more key "
                "groups: max_parallelism="
            ) from error

    def _check_once(self, rows: pa.Table, groups: pa.Array, places: pa.Array) -> None:
        same = pc.and_(pc.equal(groups[1:], groups[:-1]), pc.equal(places[1:], places[:-1]))
        row = pc.index(same, True).as_py()
        if row >= 0:
            raise InvalidRequest(f"{self._where}: expected each entry once, found two rows of {self._named(rows, row)}")

    def _with_positions(self, rows: pa.Table, groups: pa.Array, places: pa.Array) -> pa.Table:
        lists = pc.binary_slice(places, 0, -_INDEX_BYTES)
        same = pc.and_(pc.equal(groups[1:], groups[:-1]), pc.equal(lists[1:], lists[:-1]))
        begins = np.concatenate([[True], ~same.to_numpy(zero_copy_only=False)])
        numbers: npt.NDArray[np.int64] = np.arange(len(rows))
        counted = numbers - np.maximum.accumulate(np.where(begins, numbers, 0))
        name = self._columns.names["position"]
        column = rows.schema.get_field_index(name)
        if self._says_positions:
            wrong = np.flatnonzero(rows.column(column).to_numpy() != counted)
            if len(wrong):
                row = int(wrong[0])
                raise InvalidRequest(
                    f"{self._where}: expected positions from 0 without gaps, found {self._named(rows, row)}, where "
                    f"{name} {counted[row]} was next; leave the column out, and elements come in the order of the rows"
                )
        return rows.set_column(column, rows.schema.field(column), pa.array(counted))

    def _named(self, rows: pa.Table, row: int) -> str:
        """What names a row, for a message."""
        roles = ("slot", "time", "namespace", "position", "map_key")
        names = [
            *self._columns.key.names,
            *(self._columns.names[role] for role in roles if role in self._columns.names),
        ]
        return ", ".join(f"{name} {_shown(rows[name][row])}" for name in names) or "the state"


def _shown(value: pa.Scalar) -> str:
    try:
        return repr(value.as_py())
    except ValueError:  # not all that Arrow has is something in Python
        return f"of {value.type} without a Python value"
