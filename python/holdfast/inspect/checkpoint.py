"""`hf.Checkpoint`: a query's checkpoint as a person looks at it, without the query and without Spark."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.checkpoint.as_of import AsOf
from holdfast.checkpoint.handle import Handle, StoredHandle
from holdfast.checkpoint.names import operator_prefix, query_folder
from holdfast.checkpoint.operator_record import OperatorRecord, recorded_operator
from holdfast.checkpoint.saved_operator import columns_of
from holdfast.checkpoint.state_record import StateRecord
from holdfast.checkpoint.stored_entries import NO_KEY_GROUP, of_key_groups, of_state
from holdfast.clock import SystemClock, new_id
from holdfast.errors import Corrupt, HoldfastError, InvalidRequest, Unavailable
from holdfast.inspect.begun import begun_operators
from holdfast.inspect.committed import Committed, CommittedState
from holdfast.inspect.descriptions import Garbage, OperatorDescription, Repairs, StateDescription, Verification, Version
from holdfast.inspect.difference import difference_of, difference_schema
from holdfast.inspect.garbage import AGE_MS_MIN, Collector, store_time_ms
from holdfast.inspect.no_longer_retained import is_unretained
from holdfast.inspect.own_folder import OwnFolder
from holdfast.inspect.read_only_store import ReadOnlyStore
from holdfast.inspect.repairs import Mender
from holdfast.inspect.settled import wait_until_settled
from holdfast.inspect.spark_itself import SparkItself
from holdfast.inspect.state_folder import find_state_folder
from holdfast.inspect.state_rows import StateRows, state_rows
from holdfast.inspect.verification import verify_versions
from holdfast.inspect.versions import OF_NO_KEY, Versions, Wanted, figures, key_groups, state_of, ttl_of
from holdfast.storage import FileStore, StorageOptions, open_checkpoint
from holdfast.units import parse_duration

#: Files so far, bytes so far.
Progress = Callable[[int, int], None]
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
        beside it, where that is a local one; of a checkpoint in a bucket or HDFS it must be given.
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
        store = ReadOnlyStore(open_checkpoint(os.fspath(checkpoint), storage))
        self._spark_reader = SparkItself(os.fspath(checkpoint), spark)
        self._committed = Committed(store, self._spark_reader.texts, self._begun, lambda: self._state)
        self._found_state = find_state_folder(store, self.query_id, state, storage)  # changed by gc and repair alone
        self._state = ReadOnlyStore(self._found_state)
        self._own = OwnFolder(temporary)
        self._versions = Versions(self._state, query_folder(self.query_id), self._own.path)

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
        """The batches that are committed and retained, the oldest first; and, with its problem, the newest that was
        committed where Spark's logs lack it.
        """
        found = [self._version(batch_id) for batch_id in self._committed.batches()]
        if lost := self._committed.lost():
            found.append(Version(lost.batch_id, None, None, {}, self._committed.problem_of(lost)))
        return tuple(found)

    def at(self, batch_id: int | None = None) -> CommittedState:
        """What is committed as the state after a batch. Raises as :meth:`read`."""
        return self._committed.at(batch_id)

    def settle(self) -> None:
        """Waits, some seconds at most, until Spark has committed each batch whose output is visible as this begins.

        Raises
        ------
        Incompatible
            It does not: what begins with the newest batch that is committed would write such output again.
        """
        wait_until_settled(self._committed, SystemClock())

    @property
    def tables(self) -> Versions:
        """What reads versions of slots as tables."""
        return self._versions

    @property
    def state_store(self) -> FileStore:
        """The store of the operators' state, which gc and repair alone change."""
        return self._found_state

    def record(self, operator: str) -> OperatorRecord:
        """What an operator recorded; InvalidRequest where there is none of that name."""
        record = recorded_operator(self._state, operator_prefix(self.query_id, operator))
        if record is None:
            names = ", ".join(repr(name) for name in self._operator_names())
            known = names or "none: expected the folder of spark.holdfast.checkpoint.dir"
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
            Only rows for which it is true: ``pyarrow.compute.field("user") == "ada"``. One that says what the key
            columns equal, or an ``isin`` of the only one, is a lookup: it opens the slots of these keys, and reads
            no others.

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
        found = self.at(batch_id)
        handles = found.handles.get(operator, {})
        wanted = Wanted(slots, columns, filter)
        reading = partial(self.retained, found.batch.batch_id)
        as_of = found.as_of(record, self._state)
        return self._versions.read(record, state, handles, wanted, reading, as_of)

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
        found = [self.at(batch_id) for batch_id in (old, new)]
        both = [
            (
                one.handles.get(operator, {}),
                partial(self.retained, one.batch.batch_id),
                one.as_of(record, self._state),
            )
            for one in found
        ]
        slots = sorted({slot for handles, _, _ in both for slot in handles})
        if declared.kind == "broadcast":
            for handles, reading, _ in both:
                with reading():
                    self._versions.check_same(record, declared, [handles[slot] for slot in sorted(handles)])
            slots = slots[:1]

        def pieces() -> Iterator[pa.RecordBatch]:
            for slot in slots:
                there = [handles[slot] for handles, _, _ in both if slot in handles]
                with ExitStack() as opened:
                    before, after = (
                        opened.enter_context(
                            closing(_Side(self._versions, record, declared, handles.get(slot), reading, as_of))
                        )
                        for handles, reading, as_of in both
                    )
                    for limits in _pieces(record, declared, there):
                        yield from difference_of(before.rows(limits), after.rows(limits), before.columns)

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
        return self._verified(progress)[0]

    def _verified(self, progress: Progress | None = None) -> tuple[Verification, frozenset[str]]:
        return verify_versions(self._committed, self._state, self.record, self._versions.slot, progress)

    def gc(
        self, *, apply: bool = False, older_than: str | int | timedelta = "1 d", abandoned_runs: Sequence[str] = ()
    ) -> Garbage:
        """What no batch that Spark retains needs any more: files that killed attempts and given-up runs left, and what
        a query that was stopped did not come to delete. May run beside the query.

        What any retained batch names stays, and what is young; and what a query that begins with this state has yet to
        copy, where its own state is in the same folder: of another folder nothing is known here. Where a copy of the
        checkpoint may be alive, or the newest version is not whole, nothing of the slot goes.

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
        collector = Collector(
            self._committed, store, self.record, self._versions.slot, now_ms, age_ms, tuple(abandoned_runs)
        )
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
        # Before all is read, which may take hours.
        copy = None if backup is None else ReadOnlyStore(self._backup(backup, storage))
        folders = tuple(map(_local_dir, local_dirs))
        verification, deleted = self._verified()
        work = tempfile.mkdtemp(dir=self._own.path)
        mender = Mender(
            committed=self._committed,
            store=self._found_state if apply else self._state,
            record_of=self.record,
            slot_of=self._versions.slot,
            backup=copy,
            local_dirs=folders,
            work=work,
            ids=new_id,
            deleted=deleted,
        )
        files = mender.run(apply)
        if any(one.mended for one in files):
            verification, deleted = self._verified()
        # A newer batch that was mended may tell what retention has deleted of those before it.
        return Repairs(tuple(one for one in files if one.mended or one.name not in deleted), verification)

    def _backup(self, given: str | os.PathLike[str], storage: StorageOptions | None) -> FileStore:
        return find_state_folder(self._committed.store, self.query_id, given, storage, "backup=")

    @contextmanager
    def retained(self, batch_id: int) -> Iterator[None]:
        """While a version is read: what is missing of a batch that is retained no longer is not damaged."""
        try:
            yield
        except Corrupt as error:
            if batch_id in self._committed.batches():
                if not is_unretained(self._committed, batch_id, self._state, self._whole):
                    raise
                raise Unavailable(
                    f"batch {batch_id} of {self._committed.store.uri} is no longer retained by Holdfast, though Spark "
                    "still has it: spark.holdfast.retainedBatches is less than spark.sql.streaming.minBatchesToRetain. "
                    f"Read a newer batch, and let both be the same ({error})"
                ) from error
            raise Unavailable(
                f"batch {batch_id} was cleaned away while it was read: a query runs on {self._committed.store.uri} and "
                f"retains its newest batches only. Read it again, of a newer batch, or set "
                f"spark.sql.streaming.minBatchesToRetain higher ({error})"
            ) from error

    # --- its end
    def close(self) -> None:
        """Removes the temporary folder. Readers that are not at their end fail from then on."""
        self._versions.close()
        self._own.close()
        self._spark_reader.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Checkpoint({self._committed.store.uri!r}, state={self._state.uri!r})"

    def _whole(self, stored: StoredHandle) -> Handle:
        return self._versions.slot(self.record(stored.operator), stored.slot).whole(stored)

    def _begun(self) -> list[str]:
        return begun_operators(self._state, self.query_id)

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
        operators = {name: figures(handles) for name, handles in sorted(found.handles.items())}
        return Version(batch_id, batch.timestamp_ms, batch.watermark_ms, operators)


class _Side:
    """A state in one slot at one version, open to be compared piece by piece. Without a handle it has nothing.

    ``reading``: within it it is read. ``as_of``: the end of which batch it is.
    """

    def __init__(
        self,
        versions: Versions,
        record: OperatorRecord,
        state: StateRecord,
        handle: StoredHandle | None,
        reading: Callable[[], AbstractContextManager[None]],
        as_of: AsOf,
    ) -> None:
        self.columns = columns_of(record, state)
        self._reading = reading
        self._rows = None
        self._opened = ExitStack()
        self._base = None
        if handle is not None:
            self._rows = StateRows(record, state, handle, ttl_of(handle, state, as_of), as_of)
            with reading():
                self._base = self._opened.enter_context(versions.slot(record, handle.slot).opened(handle))

    def rows(self, limits: tuple[bytes, bytes]) -> pa.Table:
        if self._base is None or self._rows is None:
            return self.columns.schema.empty_table()
        entries = (pa.record_batch(batch) for batch in self._base.scan(*limits))
        with self._reading():
            return pa.Table.from_batches(state_rows(self._rows, entries), self.columns.schema)

    def close(self) -> None:
        self._opened.close()


def _pieces(record: OperatorRecord, state: StateRecord, handles: Sequence[StoredHandle]) -> list[tuple[bytes, bytes]]:
    """A slot in parts, none of which divides a key, by its size at these versions."""
    if state.kind in OF_NO_KEY:
        return [of_state(NO_KEY_GROUP, state.id)]
    first, end = key_groups(record, handles[0].slot)
    size_bytes = max(figures({handle.slot: handle})["bytes"] for handle in handles)
    step = max(1, (end - first) // (1 + size_bytes // _PIECE_BYTES))
    return [of_key_groups(at, min(at + step, end)) for at in range(first, end, step)]


def _local_dir(given: str | os.PathLike[str]) -> str:
    path = os.fspath(given)
    if not os.path.isdir(path):
        raise InvalidRequest(f"{path} is no folder; expected one of spark.holdfast.local.dir")
    return path


def _described(record: OperatorRecord, state: StateRecord) -> StateDescription:
    columns = {field.name: str(field.type) for field in columns_of(record, state).schema}
    return StateDescription(state.name, state.kind, state.types, state.function, columns)
