"""The slot side: one call a slot and batch, from the handle in Spark's state through the processor to the next handle.

Runs in `applyInPandasWithState`, on the task's thread. The order that exactness rests on: all output is handed over,
then the delta is durable, then Spark's state gets the handle. If anything stops before that (an exception, a kill, a
consumer that reads no further), Spark keeps the old handle, and the batch runs again from the old version. What the
slot did is told last, in a row of its own (`metrics.py`): on that nothing rests.

A slot of an operator with timers is called in every batch, with rows or without (docs/rfcs/0010); one that has neither
rows nor a timer that is due makes no version. In the first batch of a generation that has an origin all are called, and
get their first version (docs/rfcs/0015). In a replay all are called: what the recorded attempts did counts, also in a
slot that this program has no rows for (docs/rfcs/0004).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.state import GroupState

from holdfast.arrow.arrays import one_batch
from holdfast.checkpoint import Handle, SlotState, StoredHandle
from holdfast.clock import SystemClock
from holdfast.errors import Corrupt, Incompatible, InternalError
from holdfast.fault_points import reach
from holdfast.spark import worker
from holdfast.spark.output import OutputPackers, metrics_frame
from holdfast.spark.plan import InputPlan, OperatorPlan
from holdfast.spark.slot_batch import fires, run_batch
from holdfast.spark.slot_metrics import SlotMetrics
from holdfast.spark.spool import BlobSpool
from holdfast.spark.worker_process import out_of_memory, prepare_worker_process
from holdfast.state import Context, Processor
from holdfast.storage import StorageOptions

STATE_SCHEMA = "handle string"
# Rows and bytes that a vectorised processor is called with at once, where blobs are small.
_CALL_ROWS = 65536
_CALL_BYTES = 8 << 20
_CLOCK = SystemClock()

SlotFunction = Callable[[tuple[Any, ...], Iterator[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]


def slot_function(plan: OperatorPlan, processor: Processor) -> SlotFunction:
    """The function for `applyInPandasWithState`."""

    def run_slot(
        key: tuple[Any, ...], frames: Iterator[pd.DataFrame], group_state: GroupState
    ) -> Iterator[pd.DataFrame]:
        prepare_worker_process()
        return _run_slot(plan, processor, int(key[0]), frames, group_state)

    return run_slot


def _run_slot(
    plan: OperatorPlan, processor: Processor, label: int, frames: Iterator[pd.DataFrame], group_state: GroupState
) -> Iterator[pd.DataFrame]:
    started_ms = _CLOCK.elapsed_ms()
    identity = worker.BatchIdentity.of_task()
    live = worker.operator(plan, identity)
    if label not in live.record.labels:
        raise InternalError(f"operator {plan.name!r}: {label} is not the label of any of its {live.record.slots} slots")
    slot = live.record.labels.index(label)
    where = f"operator {plan.name!r}, slot {slot}, batch {identity.batch_id}"
    parent = _parent(plan, live, identity, slot, group_state)
    taken_over = _take_over(plan, live, identity, slot, parent)
    if taken_over is not None:
        for _ in frames:
            continue
        group_state.update((taken_over.to_text(),))
        metrics = SlotMetrics(slot=slot, task=identity.task_attempt_id, taken_over=1)
        yield _told(metrics, plan, live, started_ms)
        return
    processed: SlotMetrics | None = None
    with BlobSpool(plan.settings.spool_memory_max_bytes, live.local_dir, where) as spool:
        for frame in frames:
            for data in frame["blob"]:
                if data is not None:
                    spool.add(data)
        if len(spool) or (parent is not None and plan.timers):
            ctx = _context(plan, identity, live, slot, group_state)
            processed = yield from _process(plan, processor, live, identity, parent, spool, ctx, group_state)
    if processed is None:
        processed = _take_over_idle(plan, live, identity, slot, parent, group_state)
    if processed is None:  # opened all the same, to see whether a timer is due
        worker.trim_slot_states(plan.settings.cache_memory_max_bytes)
    else:
        yield _told(processed, plan, live, started_ms)


def _parent(
    plan: OperatorPlan, live: worker.LiveOperator, identity: worker.BatchIdentity, slot: int, group_state: GroupState
) -> Handle | None:
    """The version that the batch runs on: Spark's, or the slot's first; None is the empty state."""
    if group_state.exists:
        live.opening.note_handle(identity.batch_id)
        return _that_counts(plan, live, identity, slot, group_state)
    if live.record.origin is None:
        return None
    first = worker.slot_state(plan, live, slot).first_version()
    if first is not None:
        group_state.update((first.to_text(),))  # it is the slot's version, whether the batch leads to another or not
    return first


def _that_counts(
    plan: OperatorPlan, live: worker.LiveOperator, identity: worker.BatchIdentity, slot: int, group_state: GroupState
) -> Handle:
    """Spark's version, or the one that the batch's record has in place of it. Spark's store keeps in an executor's
    memory what a task has left there, also of an attempt that did not count, and a later batch may run there again.
    """
    stored, state = StoredHandle.from_text(group_state.get[0]), worker.slot_state(plan, live, slot)
    counts = _recorded_parent(plan, state, identity, stored)
    if counts is None or counts.version_id == stored.version_id:  # or it is of a task of a stage before the sink's
        return counts or state.whole(stored)
    worker.LOGGER.warning(
        "%s: Spark has this version, of an attempt at batch %d that did not count; it goes on from %s, with which the "
        "output that is visible was made",
        stored.where,
        stored.batch_id,
        counts.version_id,
    )
    group_state.update((counts.to_text(),))
    return counts


def _recorded_parent(
    plan: OperatorPlan, state: SlotState, identity: worker.BatchIdentity, stored: StoredHandle
) -> Handle | None:
    """The version that counts in place of Spark's, or Spark's own; None: nothing says which. In a replay what the
    recorded attempts went on from says it, however long the slot was quiet, and of tasks of each stage.
    """
    replay, partition = identity.replay, identity.partition
    if replay is not None:
        version_id = replay.done.get(partition) or replay.lost.get(partition)
        parent = state.made_on(stored, identity.batch_id, version_id, replay.run_id)
        if parent is not None:
            return parent
    recorded = identity.recorded.version(
        stored.batch_id, partition, identity.run_id, lambda: StorageOptions.of(plan.settings)
    )
    return None if recorded in (None, stored.version_id) else state.beside(stored, str(recorded))


def _told(metrics: SlotMetrics, plan: OperatorPlan, live: worker.LiveOperator, started_ms: float) -> pd.DataFrame:
    """What the slot did, once its next version is there and Spark has its handle."""
    metrics.note_prepared(worker.slot_state(plan, live, metrics.slot))
    worker.trim_slot_states(plan.settings.cache_memory_max_bytes)
    metrics.slot_ms = _CLOCK.elapsed_ms() - started_ms
    return metrics_frame(metrics)


def _take_over(
    plan: OperatorPlan, live: worker.LiveOperator, identity: worker.BatchIdentity, slot: int, parent: Handle | None
) -> Handle | None:
    """The version that the recorded attempt at this task prepared, when its output is visible already.

    None where there is nothing to take over: no replay, or a task whose output was lost, or another stage's task.
    """
    replay = identity.replay
    version_id = replay.done.get(identity.partition) if replay else None
    if version_id is None:
        return None
    return worker.slot_state(plan, live, slot).adopt(parent, identity.batch_id, version_id)


def _take_over_idle(
    plan: OperatorPlan,
    live: worker.LiveOperator,
    identity: worker.BatchIdentity,
    slot: int,
    parent: Handle | None,
    group_state: GroupState,
) -> SlotMetrics | None:
    """In a replay, of a slot that has nothing to do now: the version of the run whose output is visible. This task is
    of a stage before the sink's, or its output was lost. None where that run did nothing in the slot either.
    """
    replay = identity.replay
    if replay is None:
        return None
    state = worker.slot_state(plan, live, slot)
    lost = replay.lost.get(identity.partition)
    is_missing = lost is not None and state.has_prepared(parent, lost)
    handle = None if is_missing else state.adopt_of_run(parent, identity.batch_id, replay.run_id)
    if is_missing or (replay.lost and handle is not None):
        raise Incompatible(
            f"operator {plan.name!r}, slot {slot}, batch {identity.batch_id}: it runs again, since some of its output "
            f"was lost, and the run whose output is visible ({replay.run_id}) gave rows of this slot, which has none "
            f"now: they would be missing. Rows are kept out before the operator, or it has no timers any more: start "
            f"the program as it was before once more, until batch {identity.batch_id} is committed"
        )
    if handle is None:
        return None
    group_state.update((handle.to_text(),))
    return SlotMetrics(slot=slot, task=identity.task_attempt_id, taken_over=1)


def _process(
    plan: OperatorPlan,
    processor: Processor,
    live: worker.LiveOperator,
    identity: worker.BatchIdentity,
    parent: Handle | None,
    spool: BlobSpool,
    ctx: Context,
    group_state: GroupState,
) -> Generator[pd.DataFrame, None, SlotMetrics | None]:
    """Gives the output, and what the slot did; None where that is nothing."""
    metrics = SlotMetrics(slot=ctx.slot, task=identity.task_attempt_id)
    state = worker.slot_state(plan, live, ctx.slot)
    side_outputs = dict(plan.side_outputs)
    output = OutputPackers(ctx.slot, list(side_outputs), plan.settings.blob_max_bytes, plan.arrow_rows_max)
    try:
        if identity.replay is None:  # what a replay goes on from, and to, is recorded
            state.admit(parent, identity.batch_id, look_again=identity.attempt > 0)
            live.note_admitted(identity.batch_id)
        if not len(spool) and not fires(state, parent, live.record, ctx):
            return None
        produced = run_batch(
            processor,
            state,
            parent,
            _call_batches(spool, plan.inputs),
            ctx,
            record=live.record,
            output_schema=plan.output_schema,
            side_outputs=side_outputs,
            inputs=[one.met for one in plan.inputs],
            version_id=live.version_id(identity),
            metrics=metrics,
        )
        with closing(produced):  # the processor's close() comes before anything else that an error leads to
            for tagged in produced:
                yield from output.add(tagged)
        yield from output.finish()
        handle = _prepare(state, identity, parent)
        reach("before_handle")
        group_state.update((handle.to_text(),))
        reach("after_handle")
        return metrics
    except BaseException as error:  # also GeneratorExit: Spark reads no further
        state.abort(error)
        refused = out_of_memory(error, f"operator {plan.name!r}, slot {ctx.slot}, batch {ctx.batch_id}")
        if refused is not None:
            raise refused from error
        raise


def _prepare(state: SlotState, identity: worker.BatchIdentity, parent: Handle | None) -> Handle:
    """This attempt's version; or, in a replay, that of the run whose output is visible, where this is not the task
    whose output was lost. Then this task is of a stage before the sink's: the tasks after it need its output again.
    """
    replay = identity.replay
    if replay is None:
        return state.prepare()
    lost = replay.lost.get(identity.partition)
    if lost is not None and state.has_prepared(parent, lost):
        return state.prepare()
    state.abort()
    handle = state.adopt_of_run(parent, identity.batch_id, replay.run_id)
    if handle is None:
        raise Incompatible(
            f"batch {identity.batch_id} runs again, and some of its output is visible already, made by run "
            f"{replay.run_id}; but that run prepared no version of a slot that has rows now (after version "
            f"{parent.version_id if parent else 'none'}, task {identity.partition}). Either the program or its source "
            f"does not repeat itself, or the file was deleted from the checkpoint: restore it"
        )
    return handle


def _call_batches(spool: BlobSpool, inputs: Sequence[InputPlan]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows in their order, each batch with its input's number; small blobs put together."""
    gathered: list[pa.RecordBatch] = []
    rows = size_bytes = number = 0
    for blob in spool.read():
        full = rows + blob.rows > _CALL_ROWS or size_bytes + blob.data.size > _CALL_BYTES
        if gathered and (full or blob.channel != number):
            yield number, one_batch(gathered)
            gathered = []
            rows = size_bytes = 0
        if blob.channel >= len(inputs):
            raise Corrupt(f"a packed row is of input {blob.channel}; the operator has {len(inputs)}")
        number = blob.channel
        gathered.append(blob.read(inputs[number].schema))
        rows += blob.rows
        size_bytes += blob.data.size
    if gathered:
        yield number, one_batch(gathered)


def _context(
    plan: OperatorPlan, identity: worker.BatchIdentity, live: worker.LiveOperator, slot: int, group_state: GroupState
) -> Context:
    return Context(
        query_id=identity.query_id,
        operator=plan.name,
        batch_id=identity.batch_id,
        timestamp_ms=group_state.getCurrentProcessingTimeMs(),
        slot=slot,
        slots=live.record.slots,
        attempt=identity.attempt,
        watermark_ms=group_state.getCurrentWatermarkMs() if plan.watermarked else None,
        logger=worker.LOGGER.getChild("processor"),
    )
