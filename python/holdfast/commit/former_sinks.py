"""Sinks that a query had before: renamed, removed, or of another kind since. The records still name them.

What they wrote is as visible as all else, so it is asked about too when a copy of the checkpoint starts. What a batch
that was interrupted has open there nobody would ever end: who starts next ends it, by a sink that reaches the same
other side. Owner: the driver's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, runtime_checkable

from holdfast.commit.record import CommitRecord, SinkRecord
from holdfast.commit.record_log import RecordLog
from holdfast.commit.sink import Committable, Scope, Sink
from holdfast.errors import Corrupt, HoldfastError

_LOGGER = logging.getLogger("holdfast.commit")
#: The kind whose readers wait for what is open.
_KAFKA = "kafka"
#: One after the other, at each start.
_READ_MAX = 16


@runtime_checkable
class EndsOthers(Protocol):
    """A sink that finds at its other side what sinks of its kind have open there under other names."""

    def abort_former(self, scope: Scope, names: Collection[str], newest: Sequence[Committable]) -> int:
        """Abort what this query has open there under a name that no sink of it has now. Gives the number of strays.

        On the driver, once a run, when all that the newest record names has been committed.

        Parameters
        ----------
        scope
            This sink's.
        names
            Of all sinks of this kind that the query has now: each looks after its own.
        newest
            What the newest record has of sinks of this kind.

        Raises
        ------
        Unavailable
            It did not work now.
        """


def recorded_sinks(log: RecordLog) -> Mapping[str, SinkRecord]:
    """All names of sinks in the records that are kept, each with what the newest of those that were read says of it.

    Not all are read: a driver has the same sinks in all of its batches, and between two records of one driver there are
    no others. Where each batch had a driver of its own, only the newest are: a copy is of one of those. One that cannot
    be read is left out: an older one, which another driver may just have deleted.
    """
    batches = log.batches
    read: dict[int, CommitRecord | None] = {}

    def epoch_of(number: int) -> int | None:
        if number not in read:
            try:
                read[number] = log.newest(batches[number])
            except Corrupt:
                read[number] = None
        record = read[number]
        return None if record is None else record.epoch

    def look(low: int, high: int) -> None:
        first, last = epoch_of(low), epoch_of(high)
        if high - low > 1 and len(read) < _READ_MAX and (first is None or first != last):
            middle = (low + high) // 2
            look(middle, high)
            look(low, middle)

    if batches:
        look(0, len(batches) - 1)
    found: dict[str, SinkRecord] = {}
    for _, record in sorted(read.items()):
        found.update(record.sinks if record is not None else {})
    return found


def end_former_sinks(sinks: Collection[Sink], scope_of: Callable[[str], Scope], record: CommitRecord | None) -> None:
    """Aborts what sinks that are no more have open, as far as that works now: a time limit does the rest.

    Parameters
    ----------
    record
        The newest. All that it names of former sinks is visible: else nobody could have started without them.
    """
    reached = set()
    for sink in sinks:
        if isinstance(sink, EndsOthers):
            reached.add(sink.kind)
            recorded = record.sinks.values() if record is not None else ()
            newest = [committable for one in recorded if one.kind == sink.kind for committable in one.committables]
            try:
                sink.abort_former(scope_of(sink.name), {one.name for one in sinks if one.kind == sink.kind}, newest)
            except HoldfastError as error:
                _LOGGER.warning(
                    "what sinks that this query had under other names than %r may have open stays so until a time "
                    "limit, and readers wait for it: %s",
                    sink.name,
                    error,
                )
    for name, former in (record.sinks if record is not None else {}).items():
        if former.kind == _KAFKA and former.kind not in reached:
            _LOGGER.warning(
                "this query had a Kafka sink %r, and has none now: what a batch that was interrupted has open there "
                "stays so until the transaction timeout, and readers wait for it. `holdfast transactions abort --query "
                "%s --sink %s` ends it",
                name,
                scope_of(name).query_id,
                name,
            )
