"""Makes a savepoint of tables: all are checked, sorted and written to local files first, and uploaded then.

So what is refused leaves nothing behind. Memory is bounded by some row groups, and by the largest key group of a state.
Owner: one thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from holdfast._core import StateCodec
from holdfast.checkpoint.saved_operator import record_of
from holdfast.errors import InvalidRequest
from holdfast.inspect.operator_tables import OperatorTables
from holdfast.inspect.own_folder import OwnFolder
from holdfast.savepoint import Manifest, SavedOperator, SavedState, TableWriter, local_table, verify_file
from holdfast.savepoint.columns import KEYED_KINDS
from holdfast.savepoint.entries import encoded, state_codec
from holdfast.savepoint.given_rows import GivenRows
from holdfast.savepoint.manifest import table_name
from holdfast.savepoint.sorted_rows import SortedRows
from holdfast.storage import FileStore

#: Rows so far.
Progress = Callable[[int], None]
# So much of an operator, in memory, makes a slot: files that have some of a query's key groups are read whole.
_SLOT_BYTES, _SLOTS_MAX = 256 << 20, 256


@dataclass
class _Table:
    """A state whose rows are given: they, sorted, and their files on this machine, by slot, with its key groups."""

    state: SavedState
    number: int  # among the operator's
    rows: SortedRows
    slots: int = 1  # at least so many, since rows name them
    files: list[tuple[int, tuple[int, int], TableWriter]] = field(default_factory=list)


class SavepointWriter:
    """Writes into a folder what tables have, and what a savepoint has that is left as it is.

    Parameters
    ----------
    base
        That savepoint's folder and manifest; None: there is none.
    """

    def __init__(
        self, base: tuple[FileStore, Manifest] | None, target: FileStore, progress: Progress | None, now_ms: int
    ) -> None:
        self._base = base
        self._target = target
        self._progress = progress
        self._now_ms = now_ms
        self._rows = 0

    def write(self, given: Sequence[OperatorTables]) -> tuple[SavedOperator, ...]:
        """All operators, as the manifest has to say them. Raises as :meth:`holdfast.Savepoint.write`."""
        kept = {one.name: one for one in self._base[1].operators} if self._base is not None else {}
        if not given:
            raise InvalidRequest("expected tables of at least one operator, found none: hf.OperatorTables(…)")
        described = {one.name: one.described(kept.get(one.name), self._now_ms) for one in given}
        if len(described) < len(given):
            raise InvalidRequest(f"expected each operator once, found {', '.join(repr(one.name) for one in given)}")
        with OwnFolder() as own_folder, ExitStack() as opened:
            folder = own_folder.path
            tables: dict[str, dict[str, _Table]] = {}
            for number, one in enumerate(given):
                own = os.path.join(folder, str(number))
                os.mkdir(own)
                tables[one.name] = self._sorted(described[one.name], one, own)
                if one.name not in kept:
                    described[one.name] = replace(
                        described[one.name], slots=_slots(described[one.name], tables[one.name])
                    )
                for table in tables[one.name].values():
                    _write_files(described[one.name], table, own, opened)
            operators = {**kept, **described}
            return tuple(self._stored(operators[name], tables.get(name, {}), folder) for name in sorted(operators))

    def _sorted(self, operator: SavedOperator, given: OperatorTables, folder: str) -> dict[str, _Table]:
        """The tables of one operator, with all their rows."""
        ids = {state.name: state.id for state in record_of(operator).states}
        found = {}
        for state in operator.states:
            if state.name not in given.tables:
                continue
            runs = os.path.join(folder, f"{ids[state.name]}-runs")
            os.mkdir(runs)
            where = f"state {state.name!r} of operator {operator.name!r}"
            rows = GivenRows(given.tables[state.name], state.columns, state.function, where)
            in_order = SortedRows(runs, state.columns, says_positions=rows.says_positions, where=where)
            table = _Table(state, ids[state.name], in_order)
            groups = operator.max_parallelism
            codec = state_codec(state.columns, operator.key_schema, ids[state.name], groups, operator.null_keys)
            known = self._base is not None and operator.name in {one.name for one in self._base[1].operators}
            entries = _Entries(table, codec, where, known=known)
            for first, piece in rows.pieces():
                entries.add(first, piece, compare=rows.says_groups)
                self._rows += piece.num_rows
                if self._progress is not None:
                    self._progress(self._rows)
            table.rows.flush()
            if known and table.slots > operator.slots:
                raise InvalidRequest(f"{where}: expected slots below {operator.slots}, found slot {table.slots - 1}")
            found[state.name] = table
        return found

    def _stored(self, operator: SavedOperator, tables: dict[str, _Table], folder: str) -> SavedOperator:
        """Uploads the files of an operator, and copies those of the states that are as they were."""
        states = []
        for state in operator.states:
            table = tables.get(state.name)
            if table is None:
                self._copy(operator, state, folder)
                states.append(state)
                continue
            files = [writer.finish(self._target, slot, groups) for slot, groups, writer in table.files]
            states.append(replace(table.state, files=tuple(file for file in files if file is not None)))
        return replace(operator, states=tuple(states))

    def _copy(self, operator: SavedOperator, state: SavedState, folder: str) -> None:
        if self._base is None:
            return  # a new state without a table, which has no files
        store = self._base[0]
        for file in state.files:
            name = table_name(operator.name, state.name, file.slot)
            with local_table(store, operator.name, state.name, file.slot, folder) as path:
                verify_file(path, file, f"{name} of the savepoint {store.uri}")
                self._target.put_file(name, path)


class _Entries:
    """Finds where rows belong, by making entries of them; so what no state could keep is refused.

    ``known``: the savepoint knows what time entries go by that do not say when they expire.
    """

    def __init__(self, table: _Table, codec: StateCodec, where: str, *, known: bool) -> None:
        self._table = table
        self._codec = codec
        self._where = where
        self._known = known
        self._least_ms: int | None = None  # of an event-time TTL: the oldest row's time

    def add(self, first: int, rows: pa.RecordBatch, *, compare: bool) -> None:
        """Rows, the first of which has this number; ``compare``: their key groups are given."""
        state, columns = self._table.state, self._table.state.columns
        try:
            self._check_expiry(rows)
            entries = encoded(rows, columns, self._codec, ttl_ms=state.ttl.ttl_ms if state.ttl else None)
        except (InvalidRequest, pa.ArrowException) as error:
            raise InvalidRequest(f"{self._where}, counting from row {first}: {error}") from None
        groups = entries.column("key_group")
        if state.kind in KEYED_KINDS:
            rows = self._with_groups(first, rows, groups, compare)
        elif state.kind == "operator":
            groups = rows.column(columns.names["slot"])
            if groups.null_count:
                raise InvalidRequest(
                    f"{self._where}, counting from row {first}: expected a slot in each row, found null; leave the "
                    "column out, and all are of slot 0"
                )
            self._table.slots = max(self._table.slots, 1 + (pc.max(groups).as_py() or 0))
        else:
            groups = pa.repeat(pa.scalar(0, pa.uint16()), len(rows))
        self._table.rows.add(rows, groups, entries.column("key"))

    def _with_groups(self, first: int, rows: pa.RecordBatch, groups: pa.Array, compare: bool) -> pa.RecordBatch:
        name = self._table.state.columns.names["key_group"]
        column = rows.schema.get_field_index(name)
        if compare and not rows.column(column).equals(groups):
            same = pc.fill_null(pc.equal(rows.column(column), groups), False)
            row = pc.index(same, False).as_py()
            raise InvalidRequest(
                f"{self._where}, row {first + row}: expected {name} {groups[row]}, which is that of its key, found "
                f"{rows.column(column)[row]}; leave the column out, and it is counted"
            )
        columns = [groups if at == column else old for at, old in enumerate(rows.columns)]
        return pa.RecordBatch.from_arrays(columns, schema=rows.schema)

    def _check_expiry(self, rows: pa.RecordBatch) -> None:
        state = self._table.state
        name = state.columns.names.get("expiry")
        if name is None:
            return
        expiry = rows.column(name)
        if state.ttl is None:
            if expiry.null_count < len(expiry):
                raise InvalidRequest(
                    f"a row has {name}, and the state has no TTL; leave the column out, or declare ttl="
                )
            return
        if state.ttl.time != "event" or self._known:
            return
        if expiry.null_count:
            raise InvalidRequest(f"a row has no {name}: in event time nobody else knows how old it is")
        oldest = pc.min(expiry.cast(pa.int64())).as_py() - state.ttl.ttl_ms
        self._least_ms = oldest if self._least_ms is None else min(self._least_ms, oldest)
        self._table.state = replace(state, ttl=replace(state.ttl, latest_ms=self._least_ms))


def _slots(operator: SavedOperator, tables: dict[str, _Table]) -> int:
    wanted = -(-sum(table.rows.size_bytes for table in tables.values()) // _SLOT_BYTES)
    named = max((table.slots for table in tables.values()), default=1)
    if named > operator.max_parallelism:
        raise InvalidRequest(
            f"operator {operator.name!r}: a row is of slot {named - 1}; expected slots below max_parallelism, "
            f"{operator.max_parallelism}"
        )
    return max(1, named, min(wanted, _SLOTS_MAX, operator.max_parallelism))


def _write_files(operator: SavedOperator, table: _Table, folder: str, opened: ExitStack) -> None:
    """The files of one state, whole, on this machine."""
    state = table.state
    for slot in range(operator.slots if state.kind != "broadcast" else 1):
        keyed = state.kind in KEYED_KINDS
        groups = operator.key_groups_of(slot) if keyed else (0, 0)
        path = os.path.join(folder, f"{table.number}-{slot}.parquet")
        writer = opened.enter_context(TableWriter(path, operator.name, state.name, state.columns))
        for rows in table.rows.of_groups(*(groups if keyed else (slot, slot + 1))):
            writer.write(rows)
        writer.end()
        table.files.append((slot, groups, writer))
