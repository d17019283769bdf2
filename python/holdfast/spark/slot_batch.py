"""One batch on one slot, from the version before it to all of its output: what Spark's task and the test harness share.

Nothing here knows Spark. Preparing the version that the batch leads to is the caller's, once the output is handed over.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.checkpoint import BatchStamps, BatchTime, Handle, Lifetime, OperatorRecord, SlotState, StateRecord
from holdfast.fault_points import reach
from holdfast.spark.slot_metrics import SlotMetrics
from holdfast.state import (
    TTL,
    BoundProcessor,
    Context,
    Input,
    Processor,
    TaggedRows,
    Timers,
    any_due,
    declared_states,
    fresh_copy,
)


def run_batch(
    processor: Processor,
    state: SlotState,
    parent: Handle | None,
    batches: Iterable[tuple[int, pa.RecordBatch]],
    ctx: Context,
    *,
    record: OperatorRecord,
    output_schema: pa.Schema,
    side_outputs: Mapping[str, pa.Schema] | None = None,
    inputs: Sequence[Input] = (Input(),),
    version_id: str | None = None,
    metrics: SlotMetrics | None = None,
) -> Generator[TaggedRows, None, None]:
    """Opens ``state`` at ``parent``, begins the batch, and gives the processor's output as it comes: for its rows, then
    for its timers that are due.

    A copy of the processor is at work: a task may have several slots, and what one leaves in it is not the next one's.

    Whoever stops before the end must close it, and then, as with an error, abort the state.

    Parameters
    ----------
    batches
        Rows, each batch with the number of its input.
    side_outputs, inputs
        As for :class:`BoundProcessor`.
    version_id
        As for :meth:`SlotState.begin`.
    metrics
        What the batch counts goes there.
    """
    metrics = metrics if metrics is not None else SlotMetrics()
    store = state.open(parent)
    time = BatchTime(ctx.timestamp_ms, ctx.watermark_ms)
    lifetimes = lifetimes_of(declared_ttls(processor), record.states)
    stamps = state.begin(ctx.batch_id, version_id, lifetimes, time)
    states = [(declared.name, declared.id) for declared in record.states]
    bound_to = (fresh_copy(processor), store, record.key_schema, states, output_schema)
    with BoundProcessor(
        *bound_to, side_outputs=side_outputs, inputs=inputs, between_chunks=state.spill_if_needed
    ) as bound:
        for number, batch in batches:
            _note_event_times(stamps, batch, inputs[number].time_columns)
            metrics.note_in(inputs[number].name, batch)
            for produced in bound.process(batch, ctx, number):
                metrics.note_out(produced)
                yield produced
            reach("mid_batch")
            state.spill_if_needed()
        has_timers = bool(_timers(record))
        for produced in bound.finish(ctx):
            metrics.note_out(produced)
            yield produced
            if has_timers:
                reach("mid_timers")
        metrics.note_processed(bound.counts, ctx.counters)


def fires(state: SlotState, parent: Handle | None, record: OperatorRecord, ctx: Context) -> bool:
    """Whether a slot without rows has something to do in the batch: a timer that is due."""
    timers = _timers(record)
    return parent is not None and bool(timers) and any_due(state.open(parent), timers, ctx)


def _timers(record: OperatorRecord) -> list[tuple[int, str]]:
    return [(found.id, str(found.function)) for found in record.states if found.kind == Timers.kind]


def declared_ttls(processor: Processor | type[Processor]) -> tuple[tuple[str, TTL], ...]:
    """By state, of those that have one."""
    states = declared_states(processor)
    return tuple((name, ttl) for name, declaration in states if (ttl := declaration.ttl) is not None)


def lifetimes_of(ttls: Iterable[tuple[str, TTL]], states: Iterable[StateRecord]) -> tuple[Lifetime, ...]:
    """What is declared of these states, under the ids that are recorded."""
    ids = {state.name: state.id for state in states}
    return tuple(
        Lifetime(ids[name], ttl.time, ttl.duration_ms, ttl.step_ms, ttl.refreshes_on_read)
        for name, ttl in ttls
        if name in ids
    )


def _note_event_times(stamps: BatchStamps, batch: pa.RecordBatch, columns: Sequence[str]) -> None:
    """What a batch writes lives on after the rows that it was written for, not after a watermark that lags behind."""
    if not stamps.follows_events:
        return
    for column in columns:
        latest = pc.max(batch[column].cast(pa.int64())).as_py()  # microseconds
        if latest is not None:
            stamps.advance(latest // 1000)
