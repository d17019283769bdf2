"""The task side of exactly-once output: rows of one partition into all sinks in one pass, then one line for the driver.

Runs in `mapInArrow`. What a crash leaves here is prepared and named by nothing: the next recovery aborts it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from holdfast.commit.batch import Replay, TaskResult
from holdfast.commit.record import committables_from_rows, committables_to_rows
from holdfast.commit.sink import Scope, Sink, SinkTask, SinkWriter
from holdfast.errors import InternalError
from holdfast.fault_points import reach
from holdfast.spark.output import Unpacking
from holdfast.spark.routes import Route
from holdfast.spark.schemas import conform
from holdfast.spark.worker_process import prepare_worker_process

RESULT_SCHEMA = "result binary"
_RESULT = pa.schema([("result", pa.binary())])


@dataclass(frozen=True)
class SinkPlan:
    """One batch's output. Travels in the closure.

    Attributes
    ----------
    scopes
        By sink.
    schema
        Of the DataFrame.
    unpacking
        Where the tasks are given an operator's packed rows: how they are read. Their outputs are the routes, by number.
    replay
        What each sink takes rows of, when the batch runs again; None: all do, of all.
    """

    routes: Sequence[Route]
    scopes: Mapping[str, Scope]
    batch_id: int
    schema: pa.Schema
    unpacking: Unpacking | None = None
    replay: Replay | None = None

    @property
    def sinks(self) -> list[Sink]:
        return [sink for route in self.routes for sink in route.sinks]

    def opens(self, sink: str, partition: int) -> bool:
        return self.replay is None or self.replay.writes(sink, partition)


def sink_function(plan: SinkPlan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`."""

    def write_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        result = _write(plan, batches)
        told = encode_result(result, _context().stageId())
        yield pa.record_batch([pa.array([told], pa.binary())], schema=_RESULT)

    return write_partition


def encode_result(result: TaskResult, stage: int) -> bytes:
    return json.dumps(
        {
            "stage": stage,
            "partition": result.partition,
            "attempt": result.attempt,
            "task_attempt_id": result.task_attempt_id,
            "rows": result.rows,
            "sinks": {name: committables_to_rows([one])[0] for name, one in result.committables.items()},
        }
    ).encode()


def decode_results(data: Sequence[bytes], run_anew: Callable[[set[int]], set[int]]) -> list[TaskResult]:
    """What tasks sent; JSON, because nothing that comes over the network is unpickled here.

    Parameters
    ----------
    run_anew
        Of the stages of the tasks, those that Spark ran more than once.
    """
    told = [json.loads(one) for one in data]
    stages = [one.pop("stage", None) for one in told]  # executors of an earlier version tell none
    anew = run_anew({stage for stage in stages if stage is not None})
    return [_result(one, stage is None or stage in anew) for one, stage in zip(told, stages)]


def _result(told: dict[str, Any], run_anew: bool) -> TaskResult:
    sinks = told.pop("sinks")
    found = {name: committables_from_rows([row])[0] for name, row in sinks.items()}
    return TaskResult(**told, committables=found, run_anew=run_anew)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise InternalError("a sink was opened outside a Spark task")
    return context


def _write(plan: SinkPlan, batches: Iterator[pa.RecordBatch]) -> TaskResult:
    prepare_worker_process()
    context = _context()
    partition, attempt, task_attempt_id = context.partitionId(), context.attemptNumber(), context.taskAttemptId()
    writers: dict[str, SinkWriter] = {}
    rows = 0
    try:
        for sink in plan.sinks:
            if plan.opens(sink.name, partition):
                task = SinkTask(plan.scopes[sink.name], plan.batch_id, partition, attempt, task_attempt_id)
                writers[sink.name] = sink.open(task)
        reach("sink_open")
        for count, routed in _routed(plan, batches):
            rows += count
            if writers and count:
                _write_batch(routed, writers)
                reach("sink_mid")
        reach("sink_before_prepare")
        prepared = {name: writer.prepare() for name, writer in writers.items()}
        reach("sink_after_prepare")
    except BaseException:
        for writer in writers.values():
            with suppress(Exception):  # what is told is why the task failed
                writer.abort()
        raise
    committables = {name: one for name, one in prepared.items() if one is not None}
    return TaskResult(partition, attempt, task_attempt_id, rows, committables)


def _routed(
    plan: SinkPlan, batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[int, list[tuple[Route, pa.RecordBatch]]]]:
    """How many rows came at once, and which of them go which way."""
    if plan.unpacking is not None:
        for number, rows in plan.unpacking.rows(batches):
            route = plan.routes[number]
            yield rows.num_rows, [(route, conform(rows, route.schema, "output"))]
        return
    for batch in batches:
        rows = conform(batch, plan.schema, "output")
        yield batch.num_rows, [(route, route.rows(rows)) for route in plan.routes]


def _write_batch(routed: Sequence[tuple[Route, pa.RecordBatch]], writers: Mapping[str, SinkWriter]) -> None:
    for route, rows in routed:
        for sink in route.sinks:
            if rows.num_rows and sink.name in writers:
                writers[sink.name].write(rows)
