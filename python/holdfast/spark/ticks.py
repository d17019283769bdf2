"""How slots with timers are woken where they get no rows, as a user says it. docs/rfcs/0010 says why.

In a batch that has rows anywhere, pack has Spark call each slot. In an idle query a source of ticks makes batches
(tick_source.py); its rows do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import pyarrow as pa

from holdfast.errors import InvalidRequest
from holdfast.spark.pack import wake_rows
from holdfast.spark.worker_process import prepare_worker_process
from holdfast.state import BatchProcessor, Processor, Timers, declared_timers
from holdfast.units import parse_duration

NEVER = "never"


def interval_ms(ticks: str | None, timers: Sequence[Timers], where: str) -> int | None:
    """Of the source of ticks that a user asks for: 0 for one that is silent, None for none.

    Raises
    ------
    InvalidRequest
        No duration; or nothing was said, and there are timers.
    """
    if ticks is None and not timers:
        return None
    if ticks is None:
        names = ", ".join(repr(declared.name) for declared in timers)
        raise InvalidRequest(
            f"{where} has the timers {names}, and Spark runs no batch while no rows come: say how long timers may wait "
            'then. ticks="10 seconds" adds a source of ticks, which makes a batch that often. Spark fixes the sources '
            f'of a query at its first batch, so one that has run without must go on with ticks="{NEVER}": its timers '
            "fire in the next batch that has rows"
        )
    if ticks == NEVER:
        return None
    try:
        interval = parse_duration(ticks)
    except InvalidRequest as error:
        raise InvalidRequest(f'{where}: ticks: {error}; or "{NEVER}"') from None
    if interval == 0:
        raise InvalidRequest(f'{where}: ticks is {ticks!r}; expected a duration above 0, or "{NEVER}"')
    return interval if timers else 0


def check_timers(processor: Processor, key_columns: Collection[str], watermarked: bool, where: str) -> None:
    """Whether the operator can have the timers that its processor declares; InvalidRequest otherwise.

    Parameters
    ----------
    key_columns
        The key's own names.
    watermarked
        Whether an input has a watermark.
    """
    timers = declared_timers(processor)
    for declared in timers:
        if declared.domain == "event" and not watermarked:
            raise InvalidRequest(
                f"{where}: the timers {declared.name!r} go by event time, and there is no watermark that tells it; "
                'declare one, watermark=("ts", "10 minutes") (a Harness: event_time="ts"), or take '
                'Timers("processing")'
            )
    taken = {"time", "namespace"}.intersection(key_columns)
    if timers and isinstance(processor, BatchProcessor) and taken:
        raise InvalidRequest(
            f"{where}: key column {min(taken)!r} has the name of a column that on_timers is called with beside the key "
            "columns (time, namespace); rename it"
        )


def wake_function(
    labels: Callable[[], tuple[int, ...]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow` behind ticks: has Spark call each slot."""

    def wake(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if sum(batch.num_rows for batch in batches):
            prepare_worker_process()
            yield wake_rows(pa.array(labels(), pa.int64()))

    return wake
