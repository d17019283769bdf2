"""One batch on one slot, from the version before it to all of its output: what Spark's task and the test harness share.

Nothing here knows Spark. Preparing the version that the batch leads to is the caller's, once the output is handed over.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

import pyarrow as pa

from holdfast.checkpoint import Handle, OperatorRecord, SlotState
from holdfast.fault_points import reach
from holdfast.state import BoundProcessor, Context, Processor, Timers, any_due


def run_batch(
    processor: Processor,
    state: SlotState,
    parent: Handle | None,
    batches: Iterable[pa.RecordBatch],
    ctx: Context,
    *,
    record: OperatorRecord,
    output_schema: pa.Schema,
    version_id: str | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """Opens ``state`` at ``parent``, begins the batch, and gives the processor's output as it comes: for its rows, then
    for its timers that are due.

    Whoever stops before the end must close it, and then, as with an error, abort the state.

    Parameters
    ----------
    version_id
        As for :meth:`SlotState.begin`.
    """
    store = state.open(parent)
    state.begin(ctx.batch_id, version_id)
    states = [(declared.name, declared.id) for declared in record.states]
    bound_to = (processor, store, record.key_schema, states, output_schema)
    with BoundProcessor(*bound_to, between_chunks=state.spill_if_needed) as bound:
        for batch in batches:
            yield from bound.process(batch, ctx)
            reach("mid_batch")
            state.spill_if_needed()
        has_timers = bool(_timers(record))
        for produced in bound.finish(ctx):
            yield produced
            if has_timers:
                reach("mid_timers")


def fires(state: SlotState, parent: Handle | None, record: OperatorRecord, ctx: Context) -> bool:
    """Whether a slot without rows has something to do in the batch: a timer that is due."""
    timers = _timers(record)
    return parent is not None and bool(timers) and any_due(state.open(parent), timers, ctx)


def _timers(record: OperatorRecord) -> list[tuple[int, str]]:
    return [(found.id, str(found.function)) for found in record.states if found.kind == Timers.kind]
