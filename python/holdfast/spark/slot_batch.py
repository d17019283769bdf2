"""One batch on one slot, from the version before it to all of its output: what Spark's task and the test harness share.

Nothing here knows Spark. Preparing the version that the batch leads to is the caller's, once the output is handed over.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence

import pyarrow as pa

from holdfast.checkpoint import Handle, OperatorRecord, SlotState
from holdfast.fault_points import reach
from holdfast.state import BoundProcessor, Context, Input, Processor, TaggedRows, fresh_copy


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
) -> Generator[TaggedRows, None, None]:
    """Opens ``state`` at ``parent``, begins the batch, and gives the processor's output for its rows as it comes.

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
    """
    store = state.open(parent)
    state.begin(ctx.batch_id, version_id)
    states = [(declared.name, declared.id) for declared in record.states]
    bound_to = (fresh_copy(processor), store, record.key_schema, states, output_schema)
    with BoundProcessor(
        *bound_to, side_outputs=side_outputs, inputs=inputs, between_chunks=state.spill_if_needed
    ) as bound:
        for number, batch in batches:
            yield from bound.process(batch, ctx, number)
            reach("mid_batch")
            state.spill_if_needed()
        yield from bound.finish(ctx)
