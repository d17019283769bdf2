"""Whether all output that is visible is of batches that Spark has committed. What begins before would write it again.

A batch's commit record makes its output visible; Spark commits the batch after that. Who was killed, or stopped, in
between left a batch that Spark runs once more, and does not write again. A query that runs is there for a moment.
"""

from __future__ import annotations

import time

from holdfast.clock import Clock
from holdfast.commit.given_up import check_not_given_up
from holdfast.commit.record_log import RecordLog
from holdfast.commit.timeline import timeline_of
from holdfast.errors import Incompatible
from holdfast.inspect.committed import Committed

#: How long a query that runs may take from a record to Spark's commit, before it is taken for one that has ended.
_WAIT_MAX_MS = 10_000
_PAUSE_S = 0.1
#: Who gives ``restore`` at each start may meet what became of the earlier query long after.
HAS_BEGUN = "A query that has begun goes on without restore=: leave it out"


def check_settled(committed: Committed, batch_id: int) -> None:
    """Of an earlier query that has ended, with which another begins.

    Raises
    ------
    Incompatible
        Output of a later batch is visible, or Spark has given one up.
    """
    try:
        newest = _newest_visible(committed)
    except Incompatible as error:
        raise Incompatible(f"restore: {error}. {HAS_BEGUN}") from error
    if newest is not None and newest > batch_id:
        raise Incompatible(
            f"restore: {_unsettled(committed, batch_id, newest)} {HAS_BEGUN}. Otherwise start the earlier query once "
            "more, until it has committed that batch, then stop it"
        )


def wait_until_settled(committed: Committed, clock: Clock) -> None:
    """Until Spark has committed what is visible as this begins; of a query that runs, or has ended.

    Raises
    ------
    Incompatible
        Spark does not commit it, or has given it up.
    """
    newest = _newest_visible(committed)
    if newest is None:
        return
    until_ms = clock.elapsed_ms() + _WAIT_MAX_MS
    while (last := max(committed.batches(), default=-1)) < newest:
        if clock.elapsed_ms() >= until_ms:
            raise Incompatible(
                f"savepoint: {_unsettled(committed, last, newest)} Start the query once more, until it has committed "
                "that batch, then try again; of one that runs, try again. Or name the batch to take (batch_id=, "
                "--batch), for a query whose output goes elsewhere"
            )
        time.sleep(_PAUSE_S)


def _newest_visible(committed: Committed) -> int | None:
    records = RecordLog(committed.store, timeline_of(committed.store, committed.query_id))
    records.load()
    if records.newest_batch is not None:
        check_not_given_up(committed.store, records.newest_batch)
    return records.newest_batch


def _unsettled(committed: Committed, batch_id: int, newest: int) -> str:
    reached = f"up to batch {batch_id}" if batch_id >= 0 else "no batch"
    return (
        f"Spark has committed {committed.store.uri} {reached}, and output is visible of batch {newest}: a query that "
        "begins there would write it again."
    )
