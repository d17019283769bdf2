"""`hf.Checkpoint`: a query's checkpoint as a person looks at it, without the query and without Spark."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.checkpoint.handle import Handle
from holdfast.checkpoint.names import operator_prefix
from holdfast.checkpoint.operator_record import OperatorRecord, recorded_operator
from holdfast.checkpoint.origin import key_groups_of
from holdfast.checkpoint.state_record import StateRecord
from holdfast.checkpoint.stored_entries import NO_KEY_GROUP, of_key_groups, of_state
from holdfast.clock import SystemClock, new_id
from holdfast.errors import Corrupt, HoldfastError, InvalidRequest, Unavailable
from holdfast.inspect.committed import Committed, CommittedState
from holdfast.inspect.descriptions import Garbage, OperatorDescription, Repairs, StateDescription, Verification, Version
from holdfast.inspect.difference import difference_of, difference_schema, encoded_rows
from holdfast.inspect.garbage import AGE_MS_MIN, Collector, store_time_ms
from holdfast.inspect.read_only_store import ReadOnlyStore
from holdfast.inspect.repairs import Mender
from holdfast.inspect.slot_versions import SlotVersions
from holdfast.inspect.spark_itself import SparkItself
from holdfast.inspect.state_folder import find_state_folder
from holdfast.inspect.state_rows import StateRows, columns_of, state_rows
from holdfast.inspect.verification import verify_versions
from holdfast.savepoint.columns import check_filter
from holdfast.storage import FileStore, StorageOptions, open_file_store
from holdfast.units import parse_duration

#: Kinds of states that belong to no key.
OF_NO_KEY = ("broadcast", "operator")
#: Files so far, bytes so far.
Progress = Callable[[int, int], None]
_BATCH_ROWS, _BATCH_BYTES = 65536, 64 << 20
# From this size of a slot on, seeking to a state in each key group costs less than reading past other states.
_SEEK_BYTES_MIN = 64 << 20
# A slot is compared in pieces of about this size: each is held as a whole.
_PIECE_BYTES = 16 << 20


class Checkpoint:
    """A query's checkpoint, to be read: of a query that runs, or that does not.

    ``hf.Checkpoint("/data/checkpoint", state="/data/state").read("totals", "total").read_all()``

    Nothing is claimed, cleared or written in it, but where ``apply`` says so. What is brought to this machine lies in a
    temporary folder until :meth:`close`. A version is named by the batch whose end it is; by default it is the newest
    that Spark has committed. Owner: one thread.

    Parameters
    ----------
    checkpoint
        The query's checkpoint folder, as given to ``hf.start`` or ``hf.write_exactly_once``.
    state
        The folder of ``spark.holdfast.checkpoint.dir``. By default it is looked for in the checkpoint folder and
        beside it.
    spark
        A SparkSession, which reads Spark's own state where that is not kept by Spark's default provider. By default a
        local one is started if it is needed.
    temporary
        Where the temporary folder is made; on the file system of ``state``, tables need not be copied.
    storage
        Endpoint, region and retries of buckets, for ``checkpoint`` and ``state``.

    Raises
    ------
    InvalidRequest
        No checkpoint of a query, or no state of it, or several.
    """

    def __init__(
        self,
        checkpoint: str | os.PathLike[str],
        *,
        state: str | os.PathLike[str] | None = None,
        spark: Any = None,
        temporary: str | os.PathLike[str] | None = None,
        storage: StorageOptions | None = None,
    ) -> None:
        store = ReadOnlyStore(open_file_store(os.fspath(checkpoint), storage))
        self._spark_reader = SparkItself(os.fspath(checkpoint), spark)
        self._committed = Committed(store, self._spark_reader.texts)
        self._found_state = find_state_folder(store, self.query_id, state, storage)  # changed by gc and repair alone
        self._state = ReadOnlyStore(self._found_state)
        self._local_dir = tempfile.mkdtemp(prefix="holdfast-inspect-", dir=temporary)
        self._remove = weakref.finalize(self, shutil.rmtree, self._local_dir, ignore_errors=True)
        self._slots: dict[tuple[str, int], SlotVersions] = {}

    # --- what there is
    @property
    def query_id(self) -> str:
        """Spark's id of the query."""
        return self._committed.query_id

    @property
    def state_uri(self) -> str:
        """The folder of the operators' state."""
        return self._state.uri

    def operators(self) -> tuple[OperatorDescription, ...]:
        """The operators that have run on the checkpoint, by name.

        Raises
        ------
        Corrupt
            What an operator recorded of itself is damaged.
        """
        records = (self.record(name) for name in self._operator_names())
        return tuple(
            OperatorDescription(
                name=record.name,
                slots=record.slots,
                max_parallelism=record.max_parallelism,
                key_columns={field.name: str(field.type) for field in record.key_schema},
                null_keys=record.null_keys,
                states=tuple(_described(record, state) for state in sorted(record.states, key=lambda one: one.name)),
            )
            for record in records
        )

    def versions(self) -> tuple[Version, ...]:
        """The batches that are committed and retained, the oldest first."""
        return tuple(self._version(batch_id) for batch_id in self._committed.batches())

    def at(self, batch_id: int | None = None) -> CommittedState:
        """What Spark has committed as the state after a batch. Raises as :meth:`read`."""
        return self._committed.at(batch_id)

    def record(self, operator: str) -> OperatorRecord:
        """What an operator recorded; InvalidRequest where there is none of that name."""
        record = recorded_operator(self._state, operator_prefix(self.query_id, operator))
        if record is None:
            known = ", ".join(repr(name) for name in self._operator_names()) or "none"
            raise InvalidRequest(f"{self._state.uri} has no operator {operator!r} of this query; it has {known}")
        if record.name != operator:
            raise Corrupt(f"the record of operator {operator!r} in {self._state.uri} is that of {record.name!r}")
        return record

    # --- what it holds
    def read(
        self,
        operator: str,
        state: str,
        *,
        batch_id: int | None = None,
        slots: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
    ) -> pa.RecordBatchReader:
        """A state as it was after a batch, as a table: what had expired by then is not in it.

        Columns are those of docs/formats/savepoint.md: the key columns, then ``position``, ``map_key``, ``time``,
        ``namespace`` or ``slot``, ``accumulator``, ``value``, ``expiry``, ``key_group``, as the kind of state has them.
        Rows come slot by slot, of one key together. Memory is bounded by some batches.

        Parameters
        ----------
        operator, state
            Their names.
        batch_id
            The batch whose end it is; by default the newest.
        slots
            Only these. Of a broadcast state that of the first; without ``slots``, all are compared.
        columns
            Of these names, in this order; by default all.
        filter
            Only rows for which it is true: ``pyarrow.compute.field("user") == "ada"``.

        Returns
        -------
        pa.RecordBatchReader
            Reads as it goes; ``.read_all()`` gives a table.

        Raises
        ------
        InvalidRequest
            No such operator, state, column, slot, or committed batch; or a filter that is none.
        Corrupt
            No way leads to the version: names each file that stands in the way. Also while the reader is read.
        Unavailable
            Storage does not answer, or a query that runs on the checkpoint has cleaned the version away meanwhile.
        """
        record = self.record(operator)
        declared = state_of(record, state)
        schema = columns_of(record, declared).schema
        unknown = [name for name in columns or () if name not in schema.names]
        if unknown:
            raise InvalidRequest(f"state {state!r} has no column {unknown[0]!r}; it has {', '.join(schema.names)}")
        check_filter(schema, filter)
        found = self.at(batch_id)
        handles = found.handles.get(operator, {})
        wanted = [handles[slot] for slot in sorted(handles) if slots is None or slot in slots]
        _check_slots(slots, record)
        if declared.kind == "broadcast":
            if slots is None:
                self.check_same(record, declared, wanted)
            wanted = wanted[:1]

        def batches() -> Iterator[pa.RecordBatch]:
            with self.retained(found.batch.batch_id):
                yield from self._filtered(record, declared, wanted, columns, filter)

        given = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        return pa.RecordBatchReader.from_batches(given, batches())

    def diff(self, operator: str, state: str, old: int, new: int | None = None) -> pa.RecordBatchReader:
        """What became of a state's rows from one batch to another.

        Parameters
        ----------
        old, new
            Batches; ``new`` by default the newest.

        Returns
        -------
        pa.RecordBatchReader
            ``change`` ("added", "changed" or "removed"), then the state's columns as :meth:`read` gives them, as they
            are after ``new`` (of rows that were removed, after ``old``), and of each column that is not part of what
            names the row, ``old_`` and its name. What expired is removed. Rows that are the same are left out.

        Raises
        ------
        InvalidRequest, Corrupt, Unavailable
            As :meth:`read`.
        """
        record = self.record(operator)
        declared = state_of(record, state)
        before, after = (self.at(batch_id).handles.get(operator, {}) for batch_id in (old, new))
        slots = sorted({*before, *after})
        if declared.kind == "broadcast":
            for handles in (before, after):
                self.check_same(record, declared, [handles[slot] for slot in sorted(handles)])
            slots = slots[:1]

        def pieces() -> Iterator[pa.RecordBatch]:
            for slot in slots:
                sides = [_Side(self, record, declared, handles.get(slot)) for handles in (before, after)]
                there = [handle for handle in (before.get(slot), after.get(slot)) if handle]
                with closing(sides[0]), closing(sides[1]):
                    for limits in _pieces(record, declared, there):
                        yield from difference_of(sides[0].rows(limits), sides[1].rows(limits), sides[0].columns)

        return pa.RecordBatchReader.from_batches(difference_schema(columns_of(record, declared)), pieces())

    def verify(self, *, progress: Progress | None = None) -> Verification:
        """Reads every byte that a retained batch needs, compares every checksum, and says what is damaged, and whether
        a way to each batch remains.

        Parameters
        ----------
        progress
            Called with files and bytes so far.

        Raises
        ------
        Unavailable
            Storage does not answer.
        """
        return verify_versions(self._committed, self._state, self.record, self.slot, progress)

    def gc(
        self, *, apply: bool = False, older_than: str | int | timedelta = "1 d", abandoned_runs: Sequence[str] = ()
    ) -> Garbage:
        """What no batch that Spark retains needs any more: files that killed attempts and given-up runs left, and what
        a query that was stopped did not come to delete. May run beside the query.

        What any retained batch names stays, what a query that begins with this state has yet to copy, and what is
        young. Where a copy of the checkpoint may be alive, or the newest version is not whole, nothing of the slot
        goes.

        Parameters
        ----------
        apply
            Delete it. By default nothing is changed.
        older_than
            Files that are younger stay: one hour at least, and longer than any task of the query and any upload of a
            snapshot takes.
        abandoned_runs
            Runs that were given up for good, as in ``spark.holdfast.abandonedRuns``.

        Raises
        ------
        InvalidRequest
            No batch is committed; or ``older_than`` is less than an hour.
        Corrupt
            What a retained batch needs cannot be known. Nothing was deleted.
        Unavailable
            Storage does not answer. Some of it may be deleted.
        """
        age_ms = parse_duration(older_than)
        if age_ms < AGE_MS_MIN:
            raise InvalidRequest(
                f"older_than={older_than!r}: expected an hour or more, since younger files may be in use"
            )
        now_ms = SystemClock().now_ms()
        store: FileStore = self._found_state if apply else self._state
        if apply:
            now_ms = min(now_ms, store_time_ms(store, self.query_id, new_id))
        collector = Collector(self._committed, store, self.record, self.slot, now_ms, age_ms, tuple(abandoned_runs))
        found = collector.find()
        return replace(found, deleted=True, half_written=collector.delete(found)) if apply else found

    def repair(
        self,
        *,
        apply: bool = False,
        backup: str | os.PathLike[str] | None = None,
        local_dirs: Sequence[str | os.PathLike[str]] = (),
        storage: StorageOptions | None = None,
    ) -> Repairs:
        """Finds the bytes of damaged and missing files and puts them back, each exactly as a handle says that it was
        written: from a backup, from local folders, from other files of the slot; a manifest is composed anew.

        Damaged files are kept, in ``damaged/`` in the slot's folder. May run beside the query.

        Parameters
        ----------
        apply
            Put them right. By default nothing is changed.
        backup
            A copy of the state folder, of any age.
        local_dirs
            Folders of ``spark.holdfast.local.dir``.
        storage
            Endpoint, region and retries of the backup's bucket.

        Returns
        -------
        Repairs
            Each damaged file, and what :meth:`verify` says then.

        Raises
        ------
        InvalidRequest
            The backup has no state of this query, or a local folder is none. Nothing was changed.
        Corrupt
            A handle or a manifest names what no version has. Nothing more was changed.
        Unavailable
            Storage or the local disk does not answer. What was mended until then stays so.
        """
        work = tempfile.mkdtemp(dir=self._local_dir)
        mender = Mender(
            committed=self._committed,
            store=self._found_state if apply else self._state,
            record_of=self.record,
            slot_of=self.slot,
            backup=None if backup is None else ReadOnlyStore(self._backup(backup, storage)),
            local_dirs=tuple(map(_local_dir, local_dirs)),
            work=work,
            ids=new_id,
        )
        return Repairs(tuple(mender.run(apply)), self.verify())

    def _backup(self, given: str | os.PathLike[str], storage: StorageOptions | None) -> FileStore:
        return find_state_folder(self._committed.store, self.query_id, given, storage, "backup")

    def rows(
        self, record: OperatorRecord, state: StateRecord, handle: Handle, ttl_ms: int | None
    ) -> Iterator[pa.RecordBatch]:
        """All rows of a state at one version of a slot. ``ttl_ms``: what expiry is told by."""
        rows = StateRows(record, state, handle, ttl_ms)
        versions = self.slot(record, handle.slot)
        return state_rows(rows, _together(versions.entries(handle, self._ranges(record, state, handle))))

    def slot(self, record: OperatorRecord, slot: int) -> SlotVersions:
        """The versions of a slot, on this machine once they are read."""
        versions = self._slots.get((record.name, slot))
        if versions is None:
            prefix = operator_prefix(self.query_id, record.name)
            versions = SlotVersions(record, slot, self._state, prefix, self._local_dir)
            self._slots[record.name, slot] = versions
        return versions

    def forget(self, record: OperatorRecord, slot: int) -> None:
        """Removes what was brought to this machine of a slot."""
        versions = self._slots.pop((record.name, slot), None)
        if versions is not None:
            versions.remove()

    def check_same(self, record: OperatorRecord, state: StateRecord, handles: Sequence[Handle]) -> None:
        """Whether all slots have the same broadcast state; Corrupt otherwise."""
        schema = columns_of(record, state).schema
        tables = (pa.Table.from_batches(self.rows(record, state, handle, None), schema) for handle in handles)
        rows = [encoded_rows(table, schema.names) for table in tables]
        others = [handle.slot for handle, found in zip(handles, rows) if found != rows[0]]
        if others:
            raise not_the_same(record, state, others, handles[0].slot)

    @contextmanager
    def retained(self, batch_id: int) -> Iterator[None]:
        """While a version is read: what is missing of a batch that is retained no longer is not damaged."""
        try:
            yield
        except Corrupt as error:
            if batch_id in self._committed.batches():
                raise
            raise Unavailable(
                f"batch {batch_id} was cleaned away while it was read: a query runs on {self._committed.store.uri} and "
                f"retains its newest batches only. Read it again, of a newer batch, or set "
                f"spark.sql.streaming.minBatchesToRetain higher ({error})"
            ) from error

    # --- its end
    def close(self) -> None:
        """Removes the temporary folder. Readers that are not at their end fail from then on."""
        self._slots.clear()
        self._remove()
        self._spark_reader.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Checkpoint({self._committed.store.uri!r}, state={self._state.uri!r})"

    def _operator_names(self) -> list[str]:
        folder = operator_prefix(self.query_id, "x").rpartition("/")[0] + "/"
        records = (
            file.name[len(folder) :] for file in self._state.list(folder) if file.name.endswith("/operator.json")
        )
        return sorted(unquote(name.partition("/")[0]) for name in records if name.count("/") == 1)

    def _version(self, batch_id: int) -> Version:
        try:
            found = self.at(batch_id)
        except HoldfastError as error:
            return Version(batch_id, None, None, {}, str(error))
        batch = found.batch
        operators = {name: _figures(handles) for name, handles in sorted(found.handles.items())}
        return Version(batch_id, batch.timestamp_ms, batch.watermark_ms, operators)

    def _filtered(
        self,
        record: OperatorRecord,
        state: StateRecord,
        handles: Sequence[Handle],
        columns: Sequence[str] | None,
        filter: pc.Expression | None,
    ) -> Iterator[pa.RecordBatch]:
        for handle in handles:
            with closing(self.rows(record, state, handle, ttl_of(handle, state))) as found:  # type: ignore[type-var]
                for batch in found:
                    rows = pa.Table.from_batches([batch])
                    rows = rows if filter is None else rows.filter(filter)
                    yield from (rows if columns is None else rows.select(list(columns))).to_batches()

    def _ranges(self, record: OperatorRecord, state: StateRecord, handle: Handle) -> list[tuple[bytes, bytes]]:
        """Where a state's entries are in a slot. Those of all states of keys lie together in each key group."""
        if state.kind in OF_NO_KEY:
            return [of_state(NO_KEY_GROUP, state.id)]
        first, end = key_groups(record, handle.slot)
        alone = sum(one.kind not in OF_NO_KEY for one in record.states) == 1
        if alone or _figures({handle.slot: handle})["bytes"] < _SEEK_BYTES_MIN:
            return [of_key_groups(first, end)]
        return [of_state(group, state.id) for group in range(first, end)]


class _Side:
    """A state in one slot at one version, open to be compared piece by piece. Without a handle it has nothing."""

    def __init__(
        self, checkpoint: Checkpoint, record: OperatorRecord, state: StateRecord, handle: Handle | None
    ) -> None:
        self.columns = columns_of(record, state)
        self._rows = StateRows(record, state, handle, ttl_of(handle, state)) if handle is not None else None
        self._opened = ExitStack()
        self._base = None
        if handle is not None:
            self._base = self._opened.enter_context(checkpoint.slot(record, handle.slot).opened(handle))

    def rows(self, limits: tuple[bytes, bytes]) -> pa.Table:
        if self._base is None or self._rows is None:
            return self.columns.schema.empty_table()
        entries = (pa.record_batch(batch) for batch in self._base.scan(*limits))
        return pa.Table.from_batches(state_rows(self._rows, entries), self.columns.schema)

    def close(self) -> None:
        self._opened.close()


def _pieces(record: OperatorRecord, state: StateRecord, handles: Sequence[Handle]) -> list[tuple[bytes, bytes]]:
    """A slot in parts, none of which divides a key, by its size at these versions."""
    if state.kind in OF_NO_KEY:
        return [of_state(NO_KEY_GROUP, state.id)]
    first, end = key_groups(record, handles[0].slot)
    size_bytes = max(_figures({handle.slot: handle})["bytes"] for handle in handles)
    step = max(1, (end - first) // (1 + size_bytes // _PIECE_BYTES))
    return [of_key_groups(at, min(at + step, end)) for at in range(first, end, step)]


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


def ttl_of(handle: Handle, state: StateRecord) -> int | None:
    """The TTL of a state at a version, in milliseconds."""
    return next((one.ttl_ms for one in handle.expiry if one.state_id == state.id), None)


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


def _local_dir(given: str | os.PathLike[str]) -> str:
    path = os.fspath(given)
    if not os.path.isdir(path):
        raise InvalidRequest(f"{path} is no folder; expected one of spark.holdfast.local.dir")
    return path


def _check_slots(slots: Sequence[int] | None, record: OperatorRecord) -> None:
    wrong = [slot for slot in slots or () if not 0 <= slot < record.slots]
    if wrong:
        raise InvalidRequest(f"operator {record.name!r} has slots 0 to {record.slots - 1}, no slot {wrong[0]}")


def _described(record: OperatorRecord, state: StateRecord) -> StateDescription:
    columns = {field.name: str(field.type) for field in columns_of(record, state).schema}
    return StateDescription(state.name, state.kind, state.types, state.function, columns)


def _figures(handles: dict[int, Handle]) -> dict[str, int]:
    """How many slots have a version, and the bytes of the newest snapshot of each and of the deltas since."""
    total = 0
    for handle in handles.values():
        newest = handle.snapshots[0] if handle.snapshots else None
        total += newest.state_bytes if newest else 0
        total += sum(delta.size_bytes for delta in handle.deltas_after(newest.sequence if newest else 0))
    return {"slots": len(handles), "bytes": total}
