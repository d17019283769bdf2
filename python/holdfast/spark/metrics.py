"""What operators did in a query's batches, and what its Kafka sources wait for, on the driver: `hf.metrics` and
`hf.MetricsListener`. See docs/rfcs/0013.

Each slot gives a row of text as the last of its batch, which Spark's observed metrics (`DataFrame.observe`) collect and
bring with the query's progress. Up to some release they have a stage twice that ran again, for shuffle files that were
lost; here the slots are told apart, and each counts once.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.errors import InvalidRequest
from holdfast.spark.operator_metrics import OperatorMetrics
from holdfast.spark.query import unavailable
from holdfast.spark.sessions import refuse_connect
from holdfast.spark.slot_metrics import METRICS_COLUMN, OBSERVED, SlotMetrics
from holdfast.spark.source_stalls import SourceStall, stalls_in

_LOGGER = logging.getLogger("holdfast.metrics")
_SLOTS = "slots"
#: Runs of queries whose last batch is kept in mind: of those that were asked for last.
RUNS_MAX = 256


@dataclass(frozen=True)
class BatchMetrics:
    """What the operators of one query did in one batch.

    Attributes
    ----------
    query_id, run_id, query_name
        As Spark names the query; the id stays over restarts, the name may be None.
    batch_id
        Number of the micro-batch.
    operators
        By operator.
    stalls
        As in :class:`QueryMetrics`.
    """

    query_id: str
    run_id: str
    query_name: str | None
    batch_id: int
    operators: dict[str, OperatorMetrics]
    stalls: tuple[SourceStall, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {**vars(self), **_parts_to_dict(self.operators, self.stalls)}


class QueryMetrics(dict[str, OperatorMetrics]):
    """What `hf.metrics` tells of a query: by operator what each did, and what its sources wait for.

    Attributes
    ----------
    stalls
        Partitions that ``holdfast-kafka`` sources of the query can read no further, since a transaction is open in
        them, by the newest progress. None: nobody can say, as before the first progress, or with Spark 4.0 and 4.1.
    """

    def __init__(
        self,
        operators: Mapping[str, OperatorMetrics] | Iterable[tuple[str, OperatorMetrics]] = (),
        stalls: tuple[SourceStall, ...] | None = None,
    ) -> None:
        super().__init__(operators)
        self.stalls = stalls

    def __repr__(self) -> str:
        return f"QueryMetrics({super().__repr__()}, stalls={self.stalls!r})"

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON: ``operators`` by name, and ``stalls``."""
        return _parts_to_dict(self, self.stalls)


def _parts_to_dict(operators: Mapping[str, OperatorMetrics], stalls: tuple[SourceStall, ...] | None) -> dict[str, Any]:
    return {
        "operators": {name: one.to_dict() for name, one in operators.items()},
        "stalls": None if stalls is None else [one.to_dict() for one in stalls],
    }


def observed(slotted: DataFrame, operator: str, instance: str) -> DataFrame:
    """What slots give, watched for the rows that are for the driver.

    The instance tells two operators of one name apart: Spark would refuse the second before Holdfast can say why.
    """
    return slotted.observe(f"{OBSERVED}{operator}.{instance}", sql.collect_list(METRICS_COLUMN).alias(_SLOTS))


def metrics(query: StreamingQuery) -> QueryMetrics:
    """What each operator of a query did in its last batch, and what its Kafka sources wait for now.

    ``hf.metrics(query)["totals"].rows_in``, ``hf.metrics(query).stalls``

    Parameters
    ----------
    query
        Any query of Spark's, also one that has ended.

    Returns
    -------
    QueryMetrics
        A dictionary by operator, empty before the first batch has ended and where the query has no operator of
        Holdfast; and its ``stalls``. Empty too where nobody asked between the last batch and the hundredth progress
        after it, some 16 minutes of an idle query: Spark has forgotten the batch by then. Who asked has its figures
        for as long as the query is idle.

    Raises
    ------
    InvalidRequest
        Not a query.
    Unavailable
        Spark's JVM is gone.
    """
    refuse_connect(query, "metrics", "its lastProgress has what Spark itself counts")
    if not isinstance(query, StreamingQuery):
        raise InvalidRequest(
            f"metrics: expected a StreamingQuery, as DataStreamWriter.start() gives it, found {query!r}"
        )
    try:
        last = query.lastProgress
        return QueryMetrics({} if last is None else _of_last_batch(query, last), stalls_in(last))
    except Exception as error:
        gone = unavailable(error)
        if gone is None:
            raise
        raise gone from None


@dataclass
class _LastFigures:
    """What runs did in their last batches, by run id: an idle query's progresses push that of its last batch out of the
    hundred that Spark keeps. Safe for threads.
    """

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _by_run: OrderedDict[str, tuple[int, dict[str, OperatorMetrics]]] = field(default_factory=OrderedDict)

    def get(self, run_id: str) -> tuple[int, dict[str, OperatorMetrics]]:
        """The batch that the newest progress named when this was found, and the figures; -1 where nobody asked."""
        with self._lock:
            return self._by_run.get(run_id, (-1, {}))

    def put(self, run_id: str, newest: int, found: dict[str, OperatorMetrics]) -> None:
        with self._lock:
            self._by_run[run_id] = (newest, found)
            self._by_run.move_to_end(run_id)
            if len(self._by_run) > RUNS_MAX:
                self._by_run.popitem(last=False)


_LAST_FIGURES = _LastFigures()


def _of_last_batch(query: StreamingQuery, last: StreamingQueryProgress) -> dict[str, OperatorMetrics]:
    """What the operators did in the last batch, which ``last`` need not be of: Spark also tells of the progress of a
    query that had no batch to run, under the number of the next one.
    """
    run_id = str(last.runId)
    found = operators_in(last)
    if not found:
        newest, known = _LAST_FIGURES.get(run_id)
        if newest == last.batchId:  # idle since: all that Spark keeps need not be read again
            found = known
        else:
            found = next(filter(None, map(operators_in, reversed(query.recentProgress))), {})
            if not found and last.batchId - 1 in {one.batch_id for one in known.values()}:
                found = known
    _LAST_FIGURES.put(run_id, last.batchId, found)
    return found


def operators_in(progress: StreamingQueryProgress) -> dict[str, OperatorMetrics]:
    """By operator, out of what Spark tells of a batch."""
    found = {}
    seen: Mapping[str, Any] = progress.observedMetrics or {}
    for name, row in seen.items():
        operator, _, instance = name.removeprefix(OBSERVED).rpartition(".")
        if name.startswith(OBSERVED) and operator and instance and _SLOTS in row:
            found[operator] = OperatorMetrics.of(operator, progress.batchId, _slots(row[_SLOTS] or ()))
    return dict(sorted(found.items()))


def _slots(texts: Iterable[Any]) -> list[SlotMetrics]:
    return [told for text in texts if (told := SlotMetrics.from_text(text)) is not None]


def log_metrics(batch: BatchMetrics) -> None:
    """Logs a line for each operator, as INFO of the logger "holdfast.metrics"."""
    query = batch.query_name or batch.query_id[:8]
    for name, told in batch.operators.items():
        late = told.late_rows_kept + told.late_rows_dropped + told.late_rows_aside
        _LOGGER.info(
            "%-12s batch %6d  %-16s in %9d  out %9d  late %6d  fired %6d  written %9d  delta %11d B  slowest %8.1f ms",
            query, batch.batch_id, name, sum(told.rows_in.values()), sum(told.rows_out.values()), late,
            told.timers_fired, told.entries_written, told.delta_bytes, told.slot_ms_max,
        )  # fmt: skip


class MetricsListener(StreamingQueryListener):
    """Calls a function with the metrics of each batch of each query of a session that has operators of Holdfast.

    ``spark.streams.addListener(hf.MetricsListener(lambda batch: print(batch.to_dict())))``

    Parameters
    ----------
    callback
        Called with a :class:`BatchMetrics`, on the driver, some moments after the batch, in order of batches. By
        default a line for each operator is logged, as INFO of the logger "holdfast.metrics". An exception of it is
        logged, the first one with its lines, and neither the query nor the next call knows of it.
    """

    def __init__(self, callback: Callable[[BatchMetrics], object] = log_metrics) -> None:
        if not callable(callback):
            raise InvalidRequest(f"MetricsListener: expected a function that takes BatchMetrics, found {callback!r}")
        self._callback = callback
        self._has_failed = False

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing: there are no metrics yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Spark calls it after each batch."""
        try:
            progress = event.progress
            found = operators_in(progress)
            if found:
                told = (str(progress.id), str(progress.runId), progress.name, progress.batchId)
                self._callback(BatchMetrics(*told, found, stalls_in(progress)))
        except Exception as error:  # of the callback: Spark would write it to its own log each time
            if not self._has_failed:
                self._has_failed = True
                _LOGGER.exception(
                    "the callback of a MetricsListener failed; it is called again, and this not said again"
                )
            else:
                _LOGGER.debug("the callback of a MetricsListener failed again: %s", error)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing: no batch ran."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing: the last batch was told."""
