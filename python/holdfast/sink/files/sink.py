"""FileSink: the options, and what the driver does with staged files. Format: docs/formats/file_output.md."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast._core import xxh64_file
from holdfast.commit.epochs import Driver
from holdfast.commit.sink import CommitLimits, Committable, Outcome, Scope, SinkTask
from holdfast.commit.traces import Trace
from holdfast.errors import Fenced, Incompatible, InternalError, InvalidRequest, Undecided
from holdfast.fault_points import reach
from holdfast.sealed import CHECKSUM_DIGITS
from holdfast.sink.files.fences import check_is_owner, fence_traces, leave_fence, take_over, withdraw
from holdfast.sink.files.layout import (
    PUBLISHED_END,
    README,
    SPARK_LOG,
    Layout,
    batch_of_manifest,
    batch_of_published,
    epoch_of_staged,
    is_manifest,
)
from holdfast.sink.files.reading import CommittedFile, Manifest, read_files, read_manifests
from holdfast.sink.files.writer import FileWriter
from holdfast.storage import (
    FILES,
    FileStore,
    StorageOptions,
    local_file,
    open_file_store,
    run_parallel,
    store_uri,
    try_out,
)

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_COMPRESSIONS = ("zstd", "snappy", "lz4", "gzip", "brotli", "none")
_README = b"""Written by Holdfast. batches/ names the files that each batch committed; see docs/formats/file_output.md.
"""
#: Files of a batch that get their names at once, where each takes some answers of a store that is elsewhere.
_PUBLISH_THREADS = 8
_COMPARING = threading.Lock()
#: Files that are still being written have no name yet, whatever the clock says.
_ALWAYS_MS = 1 << 62


@dataclass(frozen=True)
class FileSink:
    """Parquet files in a folder. A plain listing never has a partial file; the manifests have each batch whole.

    Parameters
    ----------
    path
        A folder, or a file URI, that the driver and all executors reach; a folder of HDFS, ``hdfs://…``; or a prefix in
        a bucket: ``s3://…``, ``gs://…``, ``az://…``, ``abfss://…``. Its store must create files only if they are
        absent, as HDFS, all clouds and mounted file systems do.
    name
        One of a kind in its query, and the same over its restarts.
    compression
        "zstd", "snappy", "lz4", "gzip", "brotli" or "none".
    row_group_rows
        Rows of a row group, at most.
    storage
        How an object store or HDFS is reached; by default as the session's ``spark.holdfast.storage.*`` say.

    Raises
    ------
    InvalidRequest
        A wrong option.
    """

    path: str
    name: str = "files"
    compression: Literal["zstd", "snappy", "lz4", "gzip", "brotli", "none"] = "zstd"
    row_group_rows: int = 1 << 20
    storage: StorageOptions | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.path, (str, os.PathLike)) or not os.fspath(self.path):
            raise InvalidRequest(f"FileSink: path is {self.path!r}; expected a folder or URI")
        try:
            object.__setattr__(self, "path", store_uri(os.fspath(self.path)))
        except InvalidRequest as error:
            raise InvalidRequest(f"FileSink: path: {error}") from None
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise InvalidRequest(f"FileSink: name is {self.name!r}; expected up to 64 letters, digits, '_', '-' or '.'")
        if self.compression not in _COMPRESSIONS:
            raise InvalidRequest(
                f"FileSink: compression is {self.compression!r}; expected one of {', '.join(_COMPRESSIONS)}"
            )
        if not isinstance(self.row_group_rows, int) or self.row_group_rows < 1:
            raise InvalidRequest(f"FileSink: row_group_rows is {self.row_group_rows!r}; expected a number above 0")

    @property
    def kind(self) -> str:
        return "files"

    def check(self, schema: pa.Schema, limits: CommitLimits) -> None:
        try:
            pq.ParquetWriter(pa.BufferOutputStream(), schema, compression=self.compression).close()
        except (pa.ArrowException, OSError) as error:
            raise InvalidRequest(f"FileSink {self.name!r}: rows cannot be written as Parquet: {error}") from error
        try:
            try_out(self._store(), copies=True)
        except InvalidRequest as error:
            raise InvalidRequest(f"FileSink {self.name!r}: path: {error}") from None
        self._check_readers_see_it()
        self._store().create_if_absent(README, _README)

    def with_storage(self, storage: StorageOptions) -> FileSink:
        return self if self.storage is not None else replace(self, storage=storage)

    def traces(self, scope: Scope, newest: Sequence[Committable]) -> list[Trace]:
        """The fences of drivers, and the newest batch of which something is visible, where it is newer than the
        checkpoint's: what a query has written in its life is not listed at each of its starts.
        """
        store, layout = self._store(), _layout(scope)
        found = fence_traces(store, layout)
        known = max((int(one.body["batch_id"]) for one in newest), default=None)
        manifest, file = ("", "") if known is None else (layout.manifest(known), layout.after_published(known))
        manifests = [name for name in store.names(layout.manifests, after=manifest) if is_manifest(name)]
        if manifests:
            found.append(Trace(batch_id=batch_of_manifest(max(manifests)), said=f"{max(manifests)} in {store.uri}"))
        published = [name for name in store.names("", file, PUBLISHED_END) if layout.is_published(name)]
        if published:
            found.append(Trace(batch_id=batch_of_published(max(published)), said=f"{max(published)} in {store.uri}"))
        return found

    def claim(
        self, scope: Scope, driver: Driver, newest: Sequence[Committable], check: Callable[[Sequence[Trace]], None]
    ) -> Mapping[str, Any]:
        """See `holdfast.sink.files.fences`."""
        store, layout = self._store(), _layout(scope)
        try:
            check(self.traces(scope, newest))
            take_over(store, layout, scope)
            self.recover(scope, newest)
            check(self.traces(scope, newest))
        except (Incompatible, Fenced):  # also by an earlier call, which the store failed after it had taken over
            withdraw(store, layout, scope)
            raise
        return {}

    def open(self, task: SinkTask) -> FileWriter:
        return FileWriter(self._store(), _layout(task.scope), task, self.compression, self.row_group_rows)

    def commit(self, scope: Scope, committables: Sequence[Committable]) -> list[Outcome]:
        if not committables:
            return []
        batches = {one.body["batch_id"] for one in committables}
        if len(batches) != 1:
            raise InternalError(f"FileSink {self.name!r} was asked to commit batches {sorted(batches)} at once")
        store, layout, batch_id = self._store(), _layout(scope), int(batches.pop())
        check_is_owner(store, layout, scope)
        committed = _manifest(store, layout, batch_id)

        def publish(one: Committable) -> Outcome:
            # What the manifest names was visible, even if somebody has moved it elsewhere since.
            known = committed is not None and _file(one) in committed.files
            outcome = Outcome.DONE if known else self._published(store, one)
            reach("mid_commit")
            return outcome

        threads = 1 if store.local_path(README) else _PUBLISH_THREADS
        outcomes = run_parallel([partial(publish, one) for one in committables], threads)
        done = [_file(one) for one, outcome in zip(committables, outcomes) if outcome is Outcome.DONE]
        self._record(store, layout, batch_id, done, is_whole=len(done) == len(committables))
        store.delete([str(one.body["staged"]) for one in committables])
        return outcomes

    def abort(self, scope: Scope, committables: Sequence[Committable]) -> None:
        self._store().delete([str(one.body["staged"]) for one in committables])

    def recover(self, scope: Scope, keep: Sequence[Committable]) -> int:
        store, layout = self._store(), _layout(scope)
        leave_fence(store, layout, scope)
        kept = {str(one.body["staged"]) for one in keep}
        strays = [
            file.name
            for file in store.list(layout.staging)
            if file.name not in kept and (epoch_of_staged(file.name) or 0) <= scope.epoch
        ]
        store.delete(strays)
        return len(strays) + store.sweep(layout.staging, _ALWAYS_MS)

    @staticmethod
    def files(path: str, storage: StorageOptions | None = None) -> list[CommittedFile]:
        """The files of all batches that are committed and whole, in order of query, sink, batch and partition.

        Raises
        ------
        Corrupt
            A manifest is damaged.
        """
        return [file for manifest in read_manifests(open_file_store(path, storage, FILES)) for file in manifest.files]

    @staticmethod
    def read(path: str, storage: StorageOptions | None = None) -> pa.Table:
        """The rows of all batches that are committed and whole: none of a batch, or all of it.

        Every file is compared with its checksum. The table is held in memory; for more than that, hand the names of
        :meth:`files` to a Parquet reader.

        A column that came later is null in the rows before. One whose type has changed between batches has the type
        that holds the values of all: of whole numbers the widest, a double beside floats, a decimal with the digits of
        both, UTC beside other time zones.

        Raises
        ------
        Corrupt
            A manifest or a file is damaged or missing.
        Incompatible
            A column has changed its type, and no type holds all its values as they are.
        InvalidRequest
            Nothing has been committed there yet, so there are no columns either.
        """
        table = read_files(open_file_store(path, storage, FILES), FileSink.files(path, storage))
        if table is None:
            raise InvalidRequest(f"{path} holds no committed batch: no FileSink has written there yet")
        return table

    def _store(self) -> FileStore:
        return open_file_store(self.path, self.storage, FILES)

    def _check_readers_see_it(self) -> None:
        """Spark reads of a folder with a log of its own sink what stands in that log, and nothing else."""
        if self._store().names(f"{SPARK_LOG}/"):
            raise InvalidRequest(
                f"FileSink {self.name!r}: Spark's own file sink has written to {self.path}, and left {SPARK_LOG}, by "
                f"which Spark reads the folder: it would never show a file of this sink. Give another folder, or move "
                f"{SPARK_LOG} away, and the old files with it. Where all readers set "
                f"spark.sql.streaming.fileStreamSink.ignoreMetadata, it may go alone"
            )

    def _published(self, store: FileStore, one: Committable) -> Outcome:
        outcome = _publish(store, one)
        written_to = str(one.body.get("folder", store.uri))
        if outcome is Outcome.LOST and written_to != store.uri:
            raise Incompatible(
                f"FileSink {self.name!r} wrote partition {one.partition} of batch {one.body['batch_id']} to "
                f"{written_to}, where it may be visible already, and it is not in {store.uri}. Start the query once "
                f"with path= as it was, until that batch is committed; then change it. Or, if that folder is lost, run "
                f"`holdfast fork` on the checkpoint: the batch is then written once more, to the new one"
            )
        return outcome

    def _record(
        self, store: FileStore, layout: Layout, batch_id: int, done: list[CommittedFile], is_whole: bool
    ) -> None:
        """Writes the batch's manifest; or, when files of it were lost, notes those that are published."""
        known: dict[int, CommittedFile] = {}
        parts = 0
        while (data := store.get(layout.part(batch_id, parts))) is not None:
            part = Manifest.from_text(data, layout.part(batch_id, parts))
            known.update((file.partition, file) for file in part.files)
            parts += 1
        if not is_whole:
            new = tuple(file for file in done if file.partition not in known)
            if new:
                text = Manifest(layout.query_id, layout.sink, batch_id, new).to_text()
                store.create_if_absent(layout.part(batch_id, parts), text.encode())
            return
        known.update((file.partition, file) for file in done)
        files = tuple(file for _, file in sorted(known.items()))
        name = layout.manifest(batch_id)
        text = Manifest(layout.query_id, layout.sink, batch_id, files).to_text()
        if not store.create_if_absent(name, text.encode()) and store.get(name) != text.encode():
            raise Undecided(
                f"{name} in {store.uri} names other files of batch {batch_id} than the commit record. Compare the two "
                f"(docs/formats/file_output.md), delete the one that is wrong, and start the query again"
            )


def _layout(scope: Scope) -> Layout:
    return Layout(scope.query_id, scope.sink)


def _manifest(store: FileStore, layout: Layout, batch_id: int) -> Manifest | None:
    name = layout.manifest(batch_id)
    data = store.get(name)
    return None if data is None else Manifest.from_text(data, f"{name} in {store.uri}")


def _publish(store: FileStore, one: Committable) -> Outcome:
    staged, published = str(one.body["staged"]), str(one.body["published"])
    made = store.copy_if_absent(staged, published)
    if made is None:
        return Outcome.LOST
    with _COMPARING:  # one copy of a file on this disk at a time
        is_strange = not made and not _is_ours(store, one)
    if is_strange:  # made by whom? Not by an earlier call
        raise Undecided(
            f"{published} in {store.uri} is there, but is not what the commit record says was staged as {staged}: "
            f"expected checksum {one.body['checksum']}. If it is damaged, restore it; if nothing should be there, "
            f"delete it; then start the query again"
        )
    return Outcome.DONE


def _is_ours(store: FileStore, one: Committable) -> bool:
    """Whether the published file is what was staged. It may be of any size: it never is in memory as a whole."""
    with local_file(store, str(one.body["published"])) as path:
        if not os.path.isfile(path):
            return False
        checksum, size_bytes = xxh64_file(path)
    return (f"{checksum:0{CHECKSUM_DIGITS}x}", size_bytes) == (one.body["checksum"], one.size_bytes)


def _file(one: Committable) -> CommittedFile:
    return CommittedFile(one.partition, str(one.body["published"]), one.rows, one.size_bytes, str(one.body["checksum"]))
