"""`hf.write_exactly_once`: a streaming query whose output is visible exactly once. Runs on the driver.

Each batch is one call of `foreachBatch`, in which exactly one full action runs: with two, Spark would run the state
twice from the same version; with none, its state version would be missing for good. See docs/rfcs/0004.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.clock import SystemClock
from holdfast.commit.batch import Replay, TaskResult
from holdfast.commit.committer import CommitOptions, Committer
from holdfast.commit.epochs import Driver
from holdfast.commit.retries import Retries
from holdfast.commit.sink import CommitLimits, KeepsFiles, Sink
from holdfast.errors import HoldfastError, InternalError, InvalidRequest, Unavailable
from holdfast.settings import Settings
from holdfast.spark import schemas
from holdfast.spark.checkpoint_path import spark_path
from holdfast.spark.declared_operators import note_declared_ttls
from holdfast.spark.interruption import given_up, interruption
from holdfast.spark.mapping import map_in_arrow
from holdfast.spark.once import check_stand_once
from holdfast.spark.operators_within import known_operators_within, rows_stay
from holdfast.spark.output import Unpacking
from holdfast.spark.packed_output import packed_output
from holdfast.spark.query import Query, check_checkpoint, register_beginning, started
from holdfast.spark.recorded import RECORDED_PROPERTY, recorded_property
from holdfast.spark.registration import register_runs
from holdfast.spark.replay import REPLAY_PROPERTY, RUN_PROPERTY, SlotReplay
from holdfast.spark.routes import Route, plan_routes
from holdfast.spark.sessions import (
    fixed_tasks,
    refuse_connect,
    refuse_unpinned_threads,
    spark_retained_batches,
    spark_writes_changelogs,
)
from holdfast.spark.sink_task import RESULT_SCHEMA, SinkPlan, decode_results, sink_function
from holdfast.spark.stages import run_anew
from holdfast.spark.worker_process import check_worker_python
from holdfast.spark_files.stale_snapshots import forget_stale_snapshots
from holdfast.state import SideOutput
from holdfast.storage import FileStore, StorageOptions, open_checkpoint, try_out
from holdfast.units import parse_duration

_MODES = ("append", "update", "complete")
_README = b"Written by Holdfast: commit records and epochs of exactly-once output. See docs/formats/commit_record.md.\n"


def write_exactly_once(
    df: DataFrame,
    *sinks: Sink | Mapping[SideOutput | None, Sink | Sequence[Sink]],
    checkpoint: str | os.PathLike[str],
    query_name: str | None = None,
    trigger: Mapping[str, Any] | None = None,
    output_mode: Literal["append", "update", "complete"] = "append",
    settings: Mapping[str, Any] | None = None,
) -> Query:
    """Starts a query that writes each row of ``df`` to each sink exactly once, whatever is killed when.

    ``query = hf.write_exactly_once(totals, hf.FileSink("/data/totals"), checkpoint="/data/checkpoint")``

    Parameters
    ----------
    df
        A streaming DataFrame, with or without operators.
    sinks
        One or several, each with a name of its own. All of them commit a batch by one record. Where ``df`` is what an
        operator with side outputs gives: one mapping, from each output (None: the main one) to its sink or sinks,
        ``{None: hf.KafkaSink(…), late: hf.KafkaSink(…, name="late")}``. An output that nobody shall see has ``()``.
    checkpoint
        The query's checkpoint folder: Spark's own, which also holds the commit records. A folder, also of HDFS
        (``hdfs://…``), or a prefix in a bucket under the name by which Spark knows it (``s3a://…``). Its store must
        create files only if they are absent, as HDFS, all clouds, and local and mounted file systems do.
    query_name
        As for ``DataStreamWriter.queryName``.
    trigger
        As for ``DataStreamWriter.trigger``, of it ``processingTime``, ``availableNow`` and ``once``; by default
        ``{"processingTime": "1 second"}``.
    output_mode
        As for ``DataStreamWriter.outputMode``.
    settings
        ``commit.retry.max`` and others, over the session's ``spark.holdfast.*``. Those of operators do nothing here,
        but for ``retainedBatches``: they are for ``hf.keyed`` and ``hf.connect``.

    The query runs with ``spark.sql.adaptive.streaming.stateless.enabled`` false, whatever the session says: a batch
    that runs again must have the tasks that it had.

    Returns
    -------
    Query
        Spark's StreamingQuery, whose ``awaitTermination`` raises errors as what they are: Fenced (another driver took
        over), Unavailable (start it again), Incompatible, Undecided, Corrupt. See :class:`holdfast.Query`.

    Raises
    ------
    InvalidRequest
        No sink, two of one name, an output without any, a wrong trigger, or what a sink's own check finds; or an
        operator stands twice in the query.
    Incompatible
        An operator is not what the checkpoint recorded, or its state folder has nothing of it.
    Corrupt
        What the checkpoint or the state folder recorded is damaged.
    Unavailable
        The checkpoint folder or a sink's other side does not answer.
    """
    refuse_connect(df, "write_exactly_once", "exactly-once output commits on the driver, so use a classic session")
    refuse_unpinned_threads("write_exactly_once")
    routes = plan_routes(df.schema, sinks)
    if not df.isStreaming:
        raise InvalidRequest("write_exactly_once: the DataFrame does not stream; read it with spark.readStream")
    if output_mode not in _MODES:
        raise InvalidRequest(f"write_exactly_once: output_mode is {output_mode!r}; expected one of {', '.join(_MODES)}")
    check_worker_python(df.sparkSession)
    conf = dict(df.sparkSession.conf.getAll)
    given = Settings.from_mapping(conf, settings)
    when = dict(trigger) if trigger is not None else {"processingTime": "1 second"}
    limits = CommitLimits(_trigger_ms(when), given.commit_retry_max_ms, given.commit_retry_backoff_ms)
    schema = schemas.sink_schema(df.schema, "write_exactly_once")
    known = known_operators_within(df)
    operators = known or []
    check_stand_once(operators, "write_exactly_once")
    storage = StorageOptions.of(given)
    store = _tried_out(os.fspath(checkpoint), storage)
    to_note = check_checkpoint(store, os.fspath(checkpoint), df.sparkSession, operators)
    store.create_if_absent("holdfast/README.txt", _README)
    routes = _with_storage(routes, storage)
    for route in routes:
        for sink in route.sinks:
            sink.check(route.schema, limits)
    options = CommitOptions(
        retries=Retries(given.commit_retry_max_ms, given.commit_retry_backoff_ms),
        retained_batches=given.retained_batches or spark_retained_batches(conf),
        orphan_max_ms=given.commit_orphan_max_ms,
        slots_take_over=known is None or bool(known),
        rows_stay=lambda: rows_stay(df),
        speculation=str(df.sparkSession.sparkContext.getConf().get("spark.speculation", "false")).lower() == "true",
    )
    retained, changelogs = spark_retained_batches(conf), spark_writes_changelogs(conf)
    options.retries.call("looking at Spark's state", lambda: forget_stale_snapshots(store, retained, changelogs))
    packed = packed_output(df)
    output = BatchOutput(store, routes, options, schema, packed.unpacking if packed else None)
    output.operators = frozenset(instance for _, instance in operators)
    writer = (
        (packed.frame if packed else df)
        .writeStream.foreachBatch(output)
        .option("checkpointLocation", spark_path(os.fspath(checkpoint)))
        .outputMode(output_mode)
        .trigger(**when)
    )
    if query_name is not None:
        writer = writer.queryName(query_name)

    def begin() -> Query:
        with fixed_tasks(df.sparkSession):  # a replay knows by a task's number what became of its output
            output.query = writer.start()
        return Query(output.query, output)

    def go_on(query: Query) -> None:
        register_beginning(query, operators)
        if to_note:
            note_declared_ttls(to_note, query.runId)

    return started(begin, go_on)


def _tried_out(checkpoint: str, storage: StorageOptions) -> FileStore:
    """The checkpoint's folder, which creates a file once."""
    store = open_checkpoint(checkpoint, storage)
    try:
        try_out(store)
    except InvalidRequest as error:
        raise InvalidRequest(f"write_exactly_once: checkpoint: {error}") from None
    return store


class BatchOutput:
    """The function for `foreachBatch`: runs each batch by the committer's protocol. Owner: the query's own thread."""

    def __init__(
        self,
        store: FileStore,
        routes: Sequence[Route],
        options: CommitOptions,
        schema: pa.Schema,
        unpacking: Unpacking | None = None,
    ) -> None:
        self._store = store
        self._routes = routes
        self._sinks = [sink for route in routes for sink in route.sinks]
        self._options = options
        self._schema = schema
        self._unpacking = unpacking
        self._committer: Committer | None = None
        self._run_id: str | None = None  # as Spark names the group of the run's jobs; known from the first batch on
        self.operators: frozenset[str] = frozenset()  #: instances of the query's, as far as they are known
        self._unregistered: tuple[str, str] | None = None  # query and run, until its operators are registered
        self.query: StreamingQuery | None = None  #: known once Spark has started it
        self.error: HoldfastError | None = None  #: what ended the query, if it was Holdfast's

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """One batch."""
        try:
            self._run(batch, batch_id)
        except HoldfastError as error:
            self.close()
            if isinstance(error, Unavailable) and not self.is_running():
                raise given_up(error) from None
            self.error = error
            raise
        except Exception as error:
            self.close()
            if self._run_id is not None and (short := interruption(error, self._run_id)) is not None:
                raise short from None
            raise

    def is_running(self) -> bool:
        """Whether Spark still runs the query: others than its owner may stop it."""
        try:
            return self.query is None or self.query.isActive
        except Exception:  # of py4j's many kinds: the JVM is gone, and the query with it
            return False

    def close(self) -> None:
        """The query has ended."""
        if self._committer is not None:
            self._committer.close()

    def _run(self, batch: DataFrame, batch_id: int) -> None:
        spark = batch.sparkSession.sparkContext
        if self._committer is None:
            query_id = spark.getLocalProperty("sql.streaming.queryId")
            run_id = spark.getLocalProperty("spark.jobGroup.id")
            if not query_id or not run_id:
                raise InternalError(f"Spark tells no query and run to foreachBatch: found {query_id!r} and {run_id!r}")
            self._run_id = run_id
            self._unregistered = (query_id, run_id)
            spark.setLocalProperty(RUN_PROPERTY, run_id)
            clock = SystemClock()
            driver = Driver(run_id, socket.gethostname(), os.getpid(), clock.now_ms())
            options = replace(self._options, is_running=self.is_running)
            self._committer = Committer(self._store, query_id, driver, self._sinks, options)
        committer = self._committer

        def run_job(replay: Replay | None) -> list[TaskResult]:
            plan = SinkPlan(
                routes=self._routes,
                scopes={sink.name: committer.scope(sink.name) for sink in self._sinks},
                batch_id=batch_id,
                schema=self._schema,
                unpacking=self._unpacking,
                replay=replay,
            )
            if (
                self._unregistered is not None
            ):  # by now the committer has started: a copy that is refused changes nothing
                committer.check_newest()  # who was stopped meanwhile would register after its successor
                register_runs(*self._unregistered, batch_id, self.operators)
                self._unregistered = None
            told = None if replay is None else SlotReplay.of(replay).to_property()
            spark.setLocalProperty(REPLAY_PROPERTY, told)  # type: ignore[arg-type]  # None takes it away
            spark.setLocalProperty(RECORDED_PROPERTY, recorded_property(committer.told))  # type: ignore[arg-type]
            try:
                rows = map_in_arrow(batch, sink_function(plan), RESULT_SCHEMA).collect()
            finally:
                spark.setLocalProperty(REPLAY_PROPERTY, None)  # type: ignore[arg-type]
                spark.setLocalProperty(RECORDED_PROPERTY, None)  # type: ignore[arg-type]
            return decode_results([bytes(row["result"]) for row in rows], lambda stages: run_anew(spark, stages))

        committer.run_batch(batch_id, run_job)


def _trigger_ms(trigger: Mapping[str, Any]) -> int | None:
    """Time between batches; None: as fast as possible, or until all is read."""
    if list(trigger) == ["processingTime"]:
        return parse_duration(trigger["processingTime"]) or None
    if list(trigger) in (["availableNow"], ["once"]) and all(value is True for value in trigger.values()):
        return None
    raise InvalidRequest(
        f'write_exactly_once: trigger is {dict(trigger)!r}; expected {{"processingTime": "1 second"}} or '
        f'{{"availableNow": True}}: exactly-once output needs batches'
    )


def _with_storage(routes: Sequence[Route], storage: StorageOptions) -> tuple[Route, ...]:
    def reached(sink: Sink) -> Sink:
        return sink.with_storage(storage) if isinstance(sink, KeepsFiles) else sink

    return tuple(replace(route, sinks=tuple(map(reached, route.sinks))) for route in routes)
