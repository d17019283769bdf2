"""`hf.Savepoint`: the state of a query at one batch, which a user owns. Format: docs/formats/savepoint.md."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from holdfast import savepoint
from holdfast.checkpoint.native_manifest import NativeManifest, NativeOperator, opened_manifest
from holdfast.clock import SystemClock
from holdfast.errors import InvalidRequest
from holdfast.inspect.checkpoint import Checkpoint
from holdfast.inspect.descriptions import Disposal
from holdfast.inspect.disposal import MANIFESTS, dispose
from holdfast.inspect.native_maker import NativeMaker
from holdfast.inspect.native_of_tables import native_of_tables
from holdfast.inspect.native_savepoint import NativeSavepoint
from holdfast.inspect.not_begun import check_all_begun
from holdfast.inspect.operator_tables import OperatorTables
from holdfast.inspect.own_folder import OwnFolder
from holdfast.inspect.saved_tables import SavedTables
from holdfast.inspect.savepoint_maker import Progress, SavepointMaker
from holdfast.inspect.savepoint_writer import SavepointWriter
from holdfast.inspect.versions import Wanted
from holdfast.savepoint import Manifest, SavedOperator
from holdfast.storage import SAVEPOINT, FileStore, StorageOptions, open_file_store

#: Parquet that any program reads; or the checkpoint's own files.
Format = Literal["canonical", "native"]
# All that an attempt writes before its manifest: tables, or files of slots. A query's own state has others beside them.
_OF_ATTEMPT = re.compile(r"operators/[^/]+/[^/]+/slot-\d+\.parquet|[^/]+/[^/]+/slot-\d+/(delta|snapshot|sst)/[^/]+")


class Savepoint:
    """A savepoint: the whole state of a query after one batch, in Parquet or in the checkpoint's own files.

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
        self._store = open_file_store(os.fspath(path), storage, SAVEPOINT)
        found = opened_manifest(self._store)
        self._own = OwnFolder()
        self._content: SavedTables | NativeSavepoint
        if isinstance(found, NativeManifest):
            self._content = NativeSavepoint(self._store, found, self._own.path)
            self.manifest: Manifest = found.about  #: what it says of itself; a native one has no tables
        else:
            self._content = SavedTables(self._store, found, self._own.path)
            self.manifest = found
        self._content.check_files()

    @classmethod
    def create(
        cls,
        *,
        checkpoint: str | os.PathLike[str] | Checkpoint,
        to: str | os.PathLike[str],
        batch_id: int | None = None,
        format: Format = "canonical",
        state: str | os.PathLike[str] | None = None,
        spark: Any = None,
        progress: Progress | None = None,
        storage: StorageOptions | None = None,
    ) -> Savepoint:
        """Makes a savepoint of a query's last committed batch, whether it runs or not: consistent over all operators
        and slots, since it is what Spark has committed together. Output of :func:`hf.write_exactly_once` that is
        visible as this begins is of that batch and those before: where Spark has not committed a batch yet, this waits.

        A native one shares the checkpoint's files by hard link, or by copies that the bucket's server makes, where
        ``to`` is on the same file system or in the same bucket: then it costs next to nothing, whatever the state's
        size. Otherwise they are copied. They are its own: it stays whole, whatever becomes of the checkpoint. What is
        in them is not read: :meth:`verify` compares it.

        Memory is bounded by some row groups. A crash leaves a folder without ``savepoint.json``, which is none.

        Parameters
        ----------
        checkpoint, state, spark
            As for :class:`Checkpoint`; or an open one.
        to
            A folder that does not exist, or is empty.
        batch_id
            A batch that the checkpoint retains, whatever is visible of later ones; None: the newest.
        format
            "canonical": tables in Parquet. "native": files of the checkpoint.
        progress
            Called with the number of rows so far; of a native one, of files.
        storage
            Endpoint, region and retries of buckets.

        Raises
        ------
        InvalidRequest
            There is something in ``to``; or the checkpoint, or the batch, is none.
        Corrupt
            No way leads to the version of a slot; or a broadcast state is not the same in all slots.
        Incompatible
            Parquet cannot hold a type, or a value; or Spark has not committed the newest batch whose output is visible
            after some seconds: whoever begins with the savepoint would write that output again. Or an operator that
            begins with the state of an earlier query has had no rows yet.
        Unavailable
            Storage does not answer; or a query that runs has cleaned the version away meanwhile: do it again.
        """
        if format not in get_args(Format):
            raise InvalidRequest(f"format is {format!r}; expected one of {', '.join(map(repr, get_args(Format)))}")
        target = _empty_folder(to, storage)
        with ExitStack() as opened:
            if isinstance(checkpoint, Checkpoint):
                source = checkpoint
            else:
                source = opened.enter_context(Checkpoint(checkpoint, state=state, spark=spark, storage=storage))
            manifest = _made(source, target, batch_id, format, progress)
        savepoint.write_manifest(target, manifest.to_text())
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
        target = _empty_folder(to, storage)
        edited = base if isinstance(base, Savepoint) or base is None else cls(base, storage=storage)
        if edited is not None and not isinstance(edited._content, SavedTables):
            raise InvalidRequest(
                f"base is {edited._store.uri}, a native savepoint, which has no tables: make a canonical one of it, "
                "Savepoint.convert"
            )
        about = _about(edited.manifest if edited is not None else None)
        kept = (edited._store, edited.manifest) if edited is not None else None
        written = SavepointWriter(kept, target, progress, about.created_ms).write(operators)
        savepoint.write_manifest(target, replace(about, operators=written).to_text())
        return cls(to, storage=storage)

    def convert(
        self,
        to: str | os.PathLike[str],
        *,
        progress: Progress | None = None,
        storage: StorageOptions | None = None,
    ) -> Savepoint:
        """Makes one of the other format of it: canonical of native, native of canonical. This one stays as it is.

        Rows are the same, query, batch and offsets too.

        Parameters
        ----------
        to
            A folder that does not exist, or is empty.
        progress, storage
            As for :meth:`create`.

        Raises
        ------
        InvalidRequest
            There is something in ``to``.
        Corrupt
            A file of this one is damaged.
        Incompatible
            Parquet cannot hold a type, or a value.
        Unavailable
            Storage does not answer, or the temporary folder is full.
        """
        target, about, content = _empty_folder(to, storage), _about(self.manifest), self._content
        if isinstance(content, SavedTables):
            text = native_of_tables(content, about, target, self._own.path, progress).to_text()
        else:
            maker = SavepointMaker(content.versions, target, progress)
            written = tuple(maker.operator(one.record, one.versions, None) for one in content.manifest.operators)
            text = replace(about, operators=written).to_text()
        savepoint.write_manifest(target, text)
        return Savepoint(to, storage=storage)

    @classmethod
    def dispose(
        cls, path: str | os.PathLike[str], *, apply: bool = False, storage: StorageOptions | None = None
    ) -> Disposal:
        """What the savepoint in a folder consists of, and its deletion. Whatever else is in the folder stays.

        A query that began with it needs it until each operator has had rows in a committed batch. If this is killed,
        the savepoint is there, or is none any more and the next call goes on.

        Parameters
        ----------
        apply
            Delete it. By default nothing is changed.
        storage
            Endpoint, region and retries of a bucket.

        Raises
        ------
        InvalidRequest
            No savepoint is there, or a query has claimed it and may need it. Nothing was deleted.
        Corrupt
            Its manifest is damaged, or a file of it is a symbolic link. Nothing was deleted.
        Incompatible
            A newer Holdfast made it. Nothing was deleted.
        Unavailable
            Storage does not answer. Some of it may be deleted.
        """
        return dispose(open_file_store(os.fspath(path), storage, SAVEPOINT), apply)

    # --- what it holds
    @property
    def format(self) -> Format:
        """Of what it consists."""
        return "canonical" if isinstance(self._content, SavedTables) else "native"

    @property
    def files(self) -> int:
        """How many it consists of, without the manifest."""
        return len(self._content.sizes())

    @property
    def bytes(self) -> int:
        """Of these files."""
        return sum(self._content.sizes().values())

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
        return self._content.read(operator, state, Wanted(None, columns, filter))

    def path(self, operator: str, state: str) -> str:
        """The folder of a state's Parquet files, for pandas, DuckDB, Polars or Spark.

        Raises
        ------
        InvalidRequest
            No such operator or state; or it has no entries, so there are no files; or the savepoint is a native one.
        """
        return self._content.path(operator, state)

    def verify(self) -> tuple[str, ...]:
        """Reads every byte and compares every checksum; what is damaged, in words, nothing if all is whole."""
        return tuple(self._content.damages())

    def __repr__(self) -> str:
        return f"Savepoint({self._store.uri!r})"


def _made(
    source: Checkpoint, target: FileStore, batch_id: int | None, format: Format, progress: Progress | None
) -> Manifest | NativeManifest:
    """Writes all files but the manifest, which is what is returned."""
    if batch_id is None:
        source.settle()
    committed = source.at(batch_id)
    check_all_begun(committed, source.state_store, source.query_id, "savepoint")
    batch = committed.batch
    about = _about(Manifest(source.query_id, batch.batch_id, batch.watermark_ms, batch.sources, 0, "", ()))
    tables = SavepointMaker(source.tables, target, progress)
    native = NativeMaker(source.tables, source.state_store, target, progress)
    saved: list[SavedOperator] = []
    files: list[NativeOperator] = []
    for name in sorted(committed.handles):
        with source.retained(batch.batch_id):
            record, handles = source.record(name), committed.handles[name]
            as_of = committed.as_of(record, source.state_store)
            if format == "native":
                files.append(native.operator(record, handles, as_of))
            else:
                saved.append(tables.operator(record, handles, as_of))
    if format == "native":
        return NativeManifest.of(about, source.query_id, files)
    return replace(about, operators=tuple(saved))


def _about(of: Manifest | None) -> Manifest:
    """What a savepoint says of itself that is made now; ``of``: which has query, batch and offsets, if any has."""
    from holdfast import __version__

    made_of = of or Manifest(None, None, None, (), 0, "", ())
    now_ms = SystemClock().now_ms()
    return replace(made_of, created_ms=now_ms, created_by=__version__, operators=(), checksum="")


def _empty_folder(to: str | os.PathLike[str], storage: StorageOptions | None) -> FileStore:
    """Where a savepoint shall be; InvalidRequest where something is."""
    target = open_file_store(os.fspath(to), storage, SAVEPOINT)
    place = os.path.dirname(target.local_path(savepoint.MANIFEST) or "")
    if os.path.exists(place) and not os.path.isdir(place):
        raise InvalidRequest(f"{target.uri} is a file: expected a folder that does not exist or is empty")
    left = target.list("")
    if left:
        names = {file.name for file in left}
        what = f"{len(left)} files" if names.isdisjoint(MANIFESTS) else "a savepoint"
        if all(map(_OF_ATTEMPT.fullmatch, names)):
            then = f"What a killed attempt left has no {savepoint.MANIFEST}, as this, and may be deleted"
        else:
            then = "Choose another folder, and leave this one as it is"
        raise InvalidRequest(
            f"{target.uri} holds {what} already: expected a folder that does not exist or is empty. {then}"
        )
    return target
