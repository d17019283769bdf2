"""Starting a query, and waiting for it: errors reach the caller as what they are. Runs on the driver.

Spark tells a worker's error as text inside a StreamingQueryException of hundreds of lines. Here the error itself is
raised, of its own class, with nothing but its message; Spark's stays at hand as its ``__context__``.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from holdfast.checkpoint import QueryPhase
from holdfast.clock import SystemClock
from holdfast.commit.timeline import spark_query_id
from holdfast.errors import HoldfastError, InvalidRequest, Unavailable
from holdfast.settings import Settings
from holdfast.spark.checkpoint_path import check_as_given, local_folder
from holdfast.spark.declared_operators import (
    TtlsToNote,
    check_declared,
    declared_places,
    note_declared_ttls,
    ttls_to_note,
)
from holdfast.spark.registration import register_origins
from holdfast.spark.sessions import refuse_connect, spark_retained_batches, spark_writes_changelogs
from holdfast.spark.state_folders import check_folders
from holdfast.spark.state_reader import state_texts
from holdfast.spark.told_errors import ToldError, lost_process, told_error
from holdfast.spark_files.logs import batch_numbers, committed_batches
from holdfast.spark_files.stale_snapshots import forget_stale_snapshots
from holdfast.storage import (
    CHECKPOINT,
    FileStore,
    LocalFileStore,
    StorageOptions,
    open_file_store,
    shown,
    store_uri,
)

_LOGGER = logging.getLogger("holdfast.spark")
#: How long Ctrl-C may go unnoticed, seconds.
_LOOK_EVERY_S = 0.5


class QueryOutput(Protocol):
    """Who commits a query's output on the driver. ``error``: what ended the query there, if anything."""

    error: HoldfastError | None

    def close(self) -> None:
        """The query has ended."""


def start(
    writer: DataStreamWriter,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    session: SparkSession | None = None,
) -> Query:
    """Starts a query into one of Spark's own sinks.

    ``query = hf.start(totals.writeStream.format("console"), checkpoint="/data/checkpoint")``

    Parameters
    ----------
    writer
        What ``DataFrame.writeStream`` gives, with its options.
    checkpoint
        The query's ``checkpointLocation``. Given here, operators are compared with what it recorded before the query
        starts; set as an option of the writer, at the first batch. Snapshots of Spark's own state that may be of an
        attempt that did not count are deleted from it; docs/rfcs/0020 says when that matters. In a bucket or HDFS both
        are done where ``spark.holdfast.checkpoint.dir`` is there too; where they are not done, a warning says so.
        Without a scheme it is a place of Hadoop's default file system, as for Spark: name one of HDFS with its scheme.
    session
        By whose settings ``checkpoint`` is looked at: ``df.sparkSession``, where the program has several sessions, or
        in a thread of its own. By default the one that is active, which need not be the writer's: no public call of
        Spark tells that. In a thread of the program's own none is active.

    Returns
    -------
    Query
        Spark's StreamingQuery, whose ``awaitTermination`` raises errors as what they are; see :class:`Query`.

    Raises
    ------
    Incompatible
        An operator is not what the checkpoint recorded: names each difference. Or Spark's state has versions of it,
        and its state folder nothing.
    Corrupt
        What the checkpoint or the state folder recorded is damaged.
    InvalidRequest
        ``checkpoint`` is a path that Spark would make an oddly named folder of: ``~/x``, ``$HOME/x``; or a ``file:``
        URI with ``?``, ``#``, or an escape such as ``%20``, which Spark does not decode: give the plain path. Or
        ``session`` is none.
    Unavailable
        Spark's JVM is gone.
    """
    refuse_connect(writer, "start", "start it with the writer's own start()")
    if not isinstance(writer, DataStreamWriter):
        raise InvalidRequest(f"start: expected a DataFrame's writeStream, found {writer!r}")
    if session is not None and not isinstance(session, SparkSession):
        raise InvalidRequest(f"start: session is {session!r}; expected a SparkSession: that of the DataFrame")
    to_note: list[TtlsToNote] = []
    if checkpoint is not None:
        check_as_given(os.fspath(checkpoint))
        with _jvm_there():
            to_note = _prepare(os.fspath(checkpoint), session if session is not None else _session_here())

    def begin() -> Query:
        with _jvm_there():
            if checkpoint is None:
                return Query(writer.start())
            return Query(writer.option("checkpointLocation", os.fspath(checkpoint)).start())

    def go_on(query: Query) -> None:
        if checkpoint is not None:
            _warn_if_elsewhere(os.fspath(checkpoint))
        if to_note:
            note_declared_ttls(to_note, query.runId)

    return started(begin, go_on)


def started(begin: Callable[[], Query], go_on: Callable[[Query], None]) -> Query:
    """A query that has begun, once what follows is done too. Where that fails, or Ctrl-C is pressed before its caller
    has the query, it is stopped: nobody else could.
    """
    query = None
    try:
        with _interruptible(None):  # kept while Spark starts it: interrupted, that call would start it all the same
            query = begin()
        go_on(query)
    except BaseException:
        if query is not None:
            query.stop()
        raise
    return query


def register_beginning(query: Query, operators: list[tuple[str, str]]) -> None:
    """Records what the operators of a query that has started begin with: its first batch may have no rows, and a
    program that leaves ``restore`` out after it would begin with nothing.

    Raises
    ------
    HoldfastError
        One contradicts what is recorded, as its first task would say.
    """
    if operators:
        register_origins(query.id, {instance for _, instance in operators})


def _session_here() -> SparkSession | None:
    """The active session: a writer does not tell its own. In a thread of the program's own there is none, and another
    query's would be no better: how many batches it retains decides what of Spark's must be left as it is.
    """
    session = SparkSession.getActiveSession()
    if session is None:
        _LOGGER.warning(
            "no Spark session is active in this thread: what Spark snapshotted of attempts that do not count is left "
            "as it is, and settings for the checkpoint's place are not known; give hf.start(session=df.sparkSession)"
        )
    return session


def _prepare(checkpoint: str, session: SparkSession | None) -> list[TtlsToNote]:
    """What is done with a checkpoint before Spark opens it, as far as this process reaches it. Returns what is to be
    noted once the query has started.
    """
    conf = {} if session is None else dict(session.conf.getAll)
    to_note: list[TtlsToNote] = []
    try:
        store = _reached(checkpoint, conf)
        if store is None:
            _LOGGER.warning(
                "the checkpoint %s is not looked at before the query starts: of buckets and HDFS, only that of "
                "spark.holdfast.checkpoint.dir is known to be reached from here. Operators are compared at the first "
                "batch, and what Spark snapshotted of attempts that do not count is left as it is. Have checkpoint and "
                "state in one bucket, or one HDFS",
                shown(checkpoint),
            )
            return to_note
        to_note = check_checkpoint(store, checkpoint, session)
        # How many batches Spark retains is not known then: what it calls committed is left as it is.
        forget_stale_snapshots(
            store, 0 if session is None else spark_retained_batches(conf), spark_writes_changelogs(conf)
        )
    except Unavailable as error:  # Spark may reach it all the same, by credentials of its own
        _LOGGER.warning("the checkpoint %s is not looked at before the query starts: %s", store_uri(checkpoint), error)
    return to_note


def _reached(checkpoint: str, conf: Mapping[str, str]) -> FileStore | None:
    """The checkpoint, where Python reaches it for sure: only the JVM may know its file system, or have its credentials.
    Those of the place where the state is are known.
    """
    folder = local_folder(checkpoint)
    if folder is not None:
        return LocalFileStore(folder, place=CHECKPOINT)
    settings = Settings.from_mapping(conf, None)
    for place, options in [(settings.checkpoint_dir or "", StorageOptions.of(settings)), *declared_places()]:
        bucket = _bucket(checkpoint, options)
        if bucket is not None and _bucket(place, options) == bucket:
            return open_file_store(checkpoint, options, CHECKPOINT)
    return None


def _bucket(uri: str, options: StorageOptions) -> list[str] | None:
    """What two places have in common that are reached alike; None where only the JVM may know the place."""
    try:
        return open_file_store(uri, options).uri.split("/")[:3]
    except InvalidRequest:
        return None


def _warn_if_elsewhere(checkpoint: str) -> None:
    """Spark has written its metadata by now: where a path without a scheme is of another file system than this one, or
    a relative one begins elsewhere, another folder was looked at. That is no reason to name Spark another place, where
    the query would begin anew.
    """
    folder = local_folder(checkpoint)
    if folder is None or os.path.exists(os.path.join(folder, "metadata")):
        return
    _LOGGER.warning(
        "the checkpoint %s was not looked at before the query started: Spark does not keep it in %s of this machine. A "
        "path without a scheme is one of Hadoop's default file system, and a relative one begins where the JVM was "
        "started. Operators are compared at the first batch, and what Spark snapshotted of attempts that do not count "
        "is left as it is. Name it with its scheme: hdfs://namenode:8020/…; or by its whole path",
        checkpoint,
        folder,
    )


def check_checkpoint(
    store: FileStore, checkpoint: str, session: SparkSession | None, operators: Sequence[tuple[str, str]] = ()
) -> list[TtlsToNote]:
    """Compares the operators that were declared with a checkpoint, where it is no new one. Writes nothing: returns
    their TTLs, which are to be noted once the query has started. ``checkpoint``: as it was given. ``session``: reads
    Spark's own state, where only Spark can. ``operators``: those within the query, where that is known.

    Raises
    ------
    Incompatible
        See :func:`holdfast.spark.declared_operators.check_declared`, and
        :func:`holdfast.spark.state_folders.check_folders`.
    """
    if store.get("metadata") is None:
        return []
    query_id = spark_query_id(store)
    spark_reader = None if session is None else partial(state_texts, session, checkpoint)
    known = check_declared(query_id, _phase(store), {instance for _, instance in operators})
    if operators:
        known = known.of({name for name, _ in operators})
    check_folders(store, query_id, known, spark_reader)
    batches = committed_batches(store)
    return ttls_to_note(query_id, batches[-1] + 1 if batches else 0, {instance for _, instance in operators})


def _phase(store: FileStore) -> QueryPhase:
    newest = max(batch_numbers(store, "offsets/"), default=None)
    if newest is None:
        return QueryPhase.PLANNED_NOTHING
    return QueryPhase.COMMITTED if newest or committed_batches(store) else QueryPhase.COMMITTED_NOTHING


class Query(StreamingQuery):
    """A streaming query that raises errors as what they are.

    ``awaitTermination`` and ``processAllAvailable`` raise Holdfast's own error where one ended the query, on the driver
    or in a worker: Fenced (another driver took over), Unavailable (start it again), Incompatible, Undecided, Corrupt,
    InvalidRequest. An exception of a processor's own code comes as a StreamingQueryException whose text is that
    exception, with the lines that raised it. All else is Spark's. Ctrl-C stops the query. Whatever is asked of a query
    whose JVM is gone raises Unavailable.
    """

    def __init__(self, query: StreamingQuery, output: QueryOutput | None = None) -> None:
        super().__init__(query._jsq)
        self._output = output

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """As Spark's; see there. ``timeout``: seconds."""
        if timeout is not None and timeout <= 0:
            raise InvalidRequest(f"awaitTermination: timeout is {timeout!r}; expected seconds above 0, or None")
        clock = SystemClock()
        until_ms = math.inf if timeout is None else clock.elapsed_ms() + timeout * 1000
        with self._plain_errors(), _interruptible(self) as look:
            while (left_ms := until_ms - clock.elapsed_ms()) > 0:
                if super().awaitTermination(max(0.001, min(left_ms / 1000, _LOOK_EVERY_S))):  # type: ignore[arg-type]
                    return None if timeout is None else True
                look()
        return False

    def processAllAvailable(self) -> None:  # noqa: N802
        """As Spark's; see there."""
        with self._plain_errors(), _interruptible(self) as look:
            asked = _in_a_thread(super().processAllAvailable)
            while not wait([asked], _LOOK_EVERY_S).done:
                look()
            asked.result()

    def stop(self) -> None:
        """As Spark's; see there."""
        try:
            with _jvm_there():
                super().stop()
        finally:
            if self._output is not None:
                self._output.close()

    @property
    def id(self) -> str:
        """As Spark's; see there."""
        with _jvm_there():
            return super().id

    @property
    def runId(self) -> str:  # noqa: N802
        """As Spark's; see there."""
        with _jvm_there():
            return super().runId

    @property
    def name(self) -> str:
        """As Spark's; see there."""
        with _jvm_there():
            return super().name

    @property
    def isActive(self) -> bool:  # noqa: N802
        """As Spark's; see there."""
        with _jvm_there():
            return super().isActive

    @property
    def status(self) -> dict[str, Any]:
        """As Spark's; see there."""
        with _jvm_there():
            return super().status

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]:  # noqa: N802
        """As Spark's; see there."""
        with _jvm_there():
            return super().recentProgress

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:  # noqa: N802
        """As Spark's; see there."""
        with _jvm_there():
            return super().lastProgress

    def exception(self) -> StreamingQueryException | None:
        """As Spark's; see there."""
        with _jvm_there():
            return super().exception()

    def explain(self, extended: bool = False) -> None:
        """As Spark's; see there."""
        with _jvm_there():
            super().explain(extended)

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            own = self._output.error if self._output is not None else None
            if own is not None:
                _LOGGER.info("A query ended on the driver", exc_info=own)
            plain = own or plain_error(error)
            if plain is None:
                raise
            raise plain.with_traceback(None) from None


def await_termination(query: StreamingQuery, timeout: float | None = None) -> bool | None:
    """Waits for a query, however it was started, and raises what ended it as what it is.

    ``hf.await_termination(totals.writeStream.format("console").start())``

    Parameters
    ----------
    query
        Any query of Spark's.
    timeout
        Seconds; by default until the query ends.

    Returns
    -------
    bool | None
        With ``timeout``: whether the query has ended.

    Raises
    ------
    HoldfastError
        What ended the query, of its own class; else Spark's StreamingQueryException. See :class:`Query`.
    """
    refuse_connect(query, "await_termination", "wait with the query's own awaitTermination()")
    if not isinstance(query, StreamingQuery):
        raise InvalidRequest(
            f"await_termination: expected a StreamingQuery, as DataStreamWriter.start() gives it, found {query!r}"
        )
    return (query if isinstance(query, Query) else Query(query)).awaitTermination(timeout)


def plain_error(error: Exception) -> Exception | None:
    """What ended a query, out of what pyspark raised; None where that says it best.

    Spark's own text goes to the log, where those find it who need it.
    """
    gone = unavailable(error)
    if gone is not None:
        return gone
    text = str(error)
    told = told_error(text)
    plain: Exception | None = lost_process(text) if told is None or told.is_carrier else None
    if plain is None and told is not None:
        plain = told.as_holdfast() or failed(told)
    if plain is not None:
        _LOGGER.info("A query ended, of which Spark says: %s", error)
    return plain


def failed(told: ToldError) -> StreamingQueryException:
    """The error for an exception of the user's own code."""
    return StreamingQueryException(f"the query failed:\n{told}")


def unavailable(error: Exception) -> Unavailable | None:
    """The error for a JVM that does not answer any more; None where it answered."""
    of_py4j = type(error).__module__.startswith("py4j.") and not hasattr(error, "java_exception")
    if not of_py4j and not isinstance(error, OSError):
        return None
    return Unavailable(
        "Spark's driver is gone: the connection to its JVM ended. It was killed, ran out of memory, or the session was "
        "stopped. Start the program again: a query goes on from the last batch that was committed"
    )


@contextmanager
def _jvm_there() -> Iterator[None]:
    """A JVM that is gone is Unavailable, in place of an error of py4j's connection."""
    try:
        yield
    except Exception as error:
        gone = unavailable(error)
        if gone is None:
            raise
        raise gone from None


def _in_a_thread(call: Callable[[], None]) -> Future[None]:
    """What waits in the JVM, so that this thread may look for Ctrl-C. A program that ends does not wait for it."""
    told: Future[None] = Future()

    def run() -> None:
        try:
            call()
            told.set_result(None)
        except BaseException as error:
            told.set_exception(error)

    threading.Thread(target=run, daemon=True, name="holdfast-waits-for-spark").start()
    return told


@contextmanager
def _interruptible(query: StreamingQuery | None) -> Iterator[Any]:
    """Ctrl-C is kept until ``look()``, which then stops the query and raises KeyboardInterrupt; or to the end, which
    raises it too. ``query``: None where there is none yet, and nobody looks: the second Ctrl-C is not kept.

    Raised in the middle of a call to the JVM it would come with py4j's traceback, and pyspark's own handler cancels the
    batch's jobs first: then the query fails, with some hundred lines, in place of being stopped. A handler of the
    program's own stays.
    """
    pressed = threading.Event()

    def press(number: int, frame: object) -> None:
        pressed.set()
        if query is None:
            signal.signal(signal.SIGINT, before)  # whoever presses again does not want to wait

    def look() -> None:
        if pressed.is_set():
            signal.signal(signal.SIGINT, before)  # whoever presses again does not want to wait
            if query is not None:
                query.stop()
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    replaceable = before is signal.default_int_handler or getattr(before, "__module__", "").startswith("pyspark.")
    if not replaceable or threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    signal.signal(signal.SIGINT, press)
    try:
        yield look
    finally:
        signal.signal(signal.SIGINT, before)
        if pressed.is_set():  # also when the query ended by itself at the same moment
            raise KeyboardInterrupt from None
