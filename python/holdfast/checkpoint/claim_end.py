"""The end of a claim, off a batch's path: looked at until it is done, once in each process.

Whatever is wrong with the savepoint's folder (gone, not to be written, damaged) is wrong with that folder alone: no
state is in it any more that the query needs. So it fails by itself, waits by itself, and is told once.
Owner: the background's thread; `is_claim_due` is asked by those of slots too.
"""

from __future__ import annotations

from holdfast.checkpoint import claim
from holdfast.checkpoint.handle import Handle
from holdfast.checkpoint.slot_context import SlotContext
from holdfast.errors import HoldfastError


def is_claim_due(context: SlotContext, parent: Handle | None) -> bool:
    """Whether there is a savepoint that the operator claimed, has taken over, and was not looked at here, since a
    process may have been killed at it. That the parent is of one of the operator's own batches says that Spark has
    committed that one; and in the first of them all of its slots began.
    """
    origin, progress = context.record.origin, context.background_work.claim
    if origin is None or not origin.claim or progress.is_ended or parent is None or parent.batch_id < 0:
        return False
    return progress.back_off.is_over(context.clock.elapsed_ms())


def end_claim(context: SlotContext) -> None:
    """Never raises: what fails is logged, once of each kind, and tried again at a later batch."""
    origin, progress = context.record.origin, context.background_work.claim
    if origin is None:
        return
    try:
        claim.end(context, origin)
        progress.is_ended = True
    except Exception as error:
        progress.back_off.failed(context.clock.elapsed_ms())
        kind = type(error).__name__
        if kind not in progress.told:
            progress.told.add(kind)
            context.logger.warning(
                "%s was claimed and is taken over, but it cannot be ended: %s: %s. The query needs nothing of it any "
                "more and goes on; this is tried again, in the end once an hour. Let the workers write in that folder; "
                "or leave restore= out of the program, and delete the savepoint: holdfast savepoint dispose",
                origin.where,
                kind,
                error,
                exc_info=not isinstance(error, HoldfastError),
            )
