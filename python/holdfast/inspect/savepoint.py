"""`hf.Savepoint`: the state of a query at one batch as tables that a user owns. Format: docs/formats/savepoint.md."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast import savepoint
from holdfast.clock import SystemClock
from holdfast.errors import Corrupt, InvalidRequest
from holdfast.inspect.checkpoint import Checkpoint
from holdfast.inspect.operator_tables import OperatorTables
from holdfast.inspect.savepoint_maker import Progress, SavepointMaker
from holdfast.inspect.savepoint_writer import SavepointWriter
from holdfast.savepoint import Manifest, SavedOperator, SavedState, TableFile
from holdfast.savepoint.manifest import table_folder
from holdfast.storage import FileStore, StorageOptions, open_file_store


class Savepoint:
    """A savepoint: the whole state of a query after one batch, in Parquet.

    ``hf.Savepoint("/backup/monday").read("totals", "total").read_all()``

    Parameters
    ----------
    path
        Its folder, which may be in a bucket.
    storage
        Endpoint, region and retries of a bucket.

    Raises
    ------
    InvalidRequest
        No savepoint is there.
    Corrupt
        Its manifest is damaged, or a file is missing or of another size. What is in the files is compared when they
        are read, or by :meth:`verify`.
    Incompatible
        A newer Holdfast made it.
    """

    def __init__(self, path: str | os.PathLike[str], *, storage: StorageOptions | None = None) -> None:
        self._store = open_file_store(os.fspath(path), storage)
        self.manifest: Manifest = savepoint.read_manifest(self._store)  #: what it says of itself
        self._folder = tempfile.mkdtemp(prefix="holdfast-savepoint-")
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        savepoint.check_files(self._store, self.manifest.operators)

    @classmethod
    def create(
        cls,
        *,
        checkpoint: str | os.PathLike[str] | Checkpoint,
        to: str | os.PathLike[str],
        batch_id: int | None = None,
        state: str | os.PathLike[str] | None = None,
        spark: Any = None,
        progress: Progress | None = None,
        storage: StorageOptions | None = None,
    ) -> Savepoint:
        """Makes a savepoint of a query's last committed batch, whether it runs or not: consistent over all operators
        and slots, since it is what Spark has committed together.

        Memory is bounded by some row groups. A crash leaves a folder without ``savepoint.json``, which is none.

        Parameters
        ----------
        checkpoint, state, spark
            As for :class:`Checkpoint`; or an open one.
        to
            A folder that does not exist, or is empty.
        batch_id
            An earlier batch that the checkpoint retains.
        progress
            Called with the number of rows so far.
        storage
            Endpoint, region and retries of buckets.

        Raises
        ------
        InvalidRequest
            There is something in ``to``; or the checkpoint, or the batch, is none.
        Corrupt
            No way leads to the version of a slot; or a broadcast state is not the same in all slots.
        Incompatible
            Parquet cannot hold a type, or a value.
        Unavailable
            Storage does not answer; or a query that runs has cleaned the version away meanwhile: do it again.
        """
        target = _empty_folder(to, storage)
        with ExitStack() as opened:
            if isinstance(checkpoint, Checkpoint):
                source = checkpoint
            else:
                source = opened.enter_context(Checkpoint(checkpoint, state=state, spark=spark, storage=storage))
            manifest = SavepointMaker(source, target, progress).make(batch_id)
        savepoint.write_manifest(target, manifest)
        return cls(to, storage=storage)

    @classmethod
    def write(
        cls,
        to: str | os.PathLike[str],
        *operators: OperatorTables,
        base: str | os.PathLike[str] | Savepoint | None = None,
        progress: Progress | None = None,
        storage: StorageOptions | None = None,
    ) -> Savepoint:
        """Makes a savepoint of tables: to begin with what another system has, or to edit a savepoint.

        ``hf.Savepoint.write("/backup/first", hf.OperatorTables("totals", {"total": df}, processor=Totals(), key=…))``

        All rows are checked before anything is written: columns, types, nulls, that nothing is there twice, that lists
        have no gaps, that key groups are those of the keys. They may come in any order. Memory is bounded by some row
        groups and the largest key group of a state; the temporary folder (``TMPDIR``) has the rows twice meanwhile.

        Parameters
        ----------
        to
            A folder that does not exist, or is empty.
        operators
            Those that have tables.
        base
            A savepoint: operators, and states, for which no table is given are as in it, and the new one is of the same
            query and batch, with the same offsets of sources. By default there is nothing else, and no query.
        progress
            Called with the number of rows so far.
        storage
            Endpoint, region and retries of buckets.

        Raises
        ------
        InvalidRequest
            There is something in ``to``; a row is refused, with its number or its key; an operator or a state is not
            known, or not described.
        Corrupt
            A file of ``base`` is damaged.
        Incompatible
            Parquet cannot hold a type, or a value; or a key group is larger than a column can be.
        Unavailable
            Storage does not answer, or the temporary folder is full.
        """
        from holdfast import __version__

        target = _empty_folder(to, storage)
        edited = base if isinstance(base, Savepoint) or base is None else cls(base, storage=storage)
        now_ms = SystemClock().now_ms()
        kept = (edited._store, edited.manifest) if edited is not None else None
        written = SavepointWriter(kept, target, progress, now_ms).write(operators)
        of = edited.manifest if edited is not None else None
        manifest = Manifest(
            query_id=of.query_id if of else None,
            batch_id=of.batch_id if of else None,
            watermark_ms=of.watermark_ms if of else None,
            sources=of.sources if of else (),
            created_ms=now_ms,
            created_by=__version__,
            operators=written,
        )
        savepoint.write_manifest(target, manifest)
        return cls(to, storage=storage)

    # --- what it holds
    @property
    def operators(self) -> dict[str, tuple[str, ...]]:
        """Names of the states by operator."""
        return {one.name: tuple(state.name for state in one.states) for one in self.manifest.operators}

    def read(
        self,
        operator: str,
        state: str,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
    ) -> pa.RecordBatchReader:
        """A state as a table. Columns, order and parameters as of :meth:`Checkpoint.read`.

        Raises
        ------
        InvalidRequest
            No such operator, state or column.
        Corrupt
            A file is damaged. Also while the reader is read.
        """
        saved = self.manifest.operator(operator)
        wanted = saved.state(state)
        schema = wanted.columns.schema
        unknown = [name for name in columns or () if name not in schema.names]
        if unknown:
            raise InvalidRequest(f"state {state!r} has no column {unknown[0]!r}; it has {', '.join(schema.names)}")
        batches = savepoint.read_state(self._store, saved, wanted, self._folder, columns=columns, filter=filter)
        given = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        return pa.RecordBatchReader.from_batches(given, batches)

    def path(self, operator: str, state: str) -> str:
        """The folder of a state's Parquet files, for pandas, DuckDB, Polars or Spark.

        Raises
        ------
        InvalidRequest
            No such operator or state; or it has no entries, so there are no files.
        """
        saved = self.manifest.operator(operator)
        if not saved.state(state).files:
            raise InvalidRequest(
                f"state {state!r} of operator {operator!r} has no entries, so there are no files of it"
            )
        folder = table_folder(operator, state)
        return self._store.local_path(folder) or f"{self._store.uri}/{folder}"

    def verify(self) -> tuple[str, ...]:
        """Reads every byte and compares every checksum; what is damaged, in words, nothing if all is whole."""
        found = []
        for operator, state, file in self._files():
            where = f"state {state.name!r} of operator {operator.name!r}, slot {file.slot}"
            try:
                path = savepoint.table_path(self._store, operator.name, state.name, file.slot, self._folder)
                savepoint.verify_file(path, file, f"{path} ({where})")
            except Corrupt as error:
                found.append(str(error))
        return tuple(found)

    def __repr__(self) -> str:
        return f"Savepoint({self._store.uri!r})"

    def _files(self) -> Iterator[tuple[SavedOperator, SavedState, TableFile]]:
        for operator in self.manifest.operators:
            for state in operator.states:
                for file in state.files:
                    yield operator, state, file


def _empty_folder(to: str | os.PathLike[str], storage: StorageOptions | None) -> FileStore:
    """Where a savepoint shall be; InvalidRequest where something is."""
    target = open_file_store(os.fspath(to), storage)
    left = target.list("")
    if left:
        what = "a savepoint" if any(file.name == savepoint.MANIFEST for file in left) else f"{len(left)} files"
        raise InvalidRequest(
            f"{target.uri} holds {what} already: expected a folder that does not exist or is empty. What a killed "
            f"attempt left has no {savepoint.MANIFEST}, and may be deleted"
        )
    return target
