"""An operator's inputs as a processor meets them: the method that takes an input's rows, its key columns, and what
becomes of its late rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InvalidRequest
from holdfast.state.processor import BatchProcessor, KeyedProcessor, Processor
from holdfast.state.side_outputs import SideOutput

KEEP, DROP = "keep", "drop"


@dataclass(frozen=True)
class Input:
    """One input.

    Attributes
    ----------
    name
        Names it among several; None: it is the only one.
    key_columns
        Where the operator's key stands in it, in the key's order; None: under the key's own names.
    event_time
        The column (timestamp, microseconds, UTC) that says when a row happened; None: lateness is not known.
    late
        What becomes of rows whose event time is not after the watermark: "keep", "drop", or the side output for them.
    time_columns
        All columns (timestamps, microseconds) that the watermark goes by: what a TTL by event time counts from.
    """

    name: str | None = None
    key_columns: tuple[str, ...] | None = None
    event_time: str | None = None
    late: str | SideOutput = KEEP
    time_columns: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        """The processor's method that takes its rows."""
        return "process" if self.name is None else f"process_{self.name}"

    def lateness(self, batch: pa.RecordBatch, watermark_ms: int | None) -> pa.BooleanArray | None:
        """Which rows are late; None where none is.

        A row is late when its event time is not after the watermark, as in Spark and Flink. A row without an event time
        is never late, nor is any before the first watermark, which Spark tells as 0.
        """
        if self.event_time is None or not watermark_ms:
            return None
        times = batch.column(self.event_time)
        behind = pc.less_equal(times, pa.scalar(watermark_ms * 1000, pa.int64()).cast(times.type))
        late = pc.fill_null(behind, False)
        return late if late.true_count else None


def check_methods(processor: Processor, inputs: tuple[Input, ...], where: str) -> None:
    """Whether the processor has a method for each input.

    Raises
    ------
    InvalidRequest
        It has not; names the method that was expected.
    """
    kind = BatchProcessor if isinstance(processor, BatchProcessor) else KeyedProcessor
    given = "batch, ctx" if kind is BatchProcessor else "key, rows, ctx"
    for one in inputs:
        method = vars(processor).get(one.method, getattr(type(processor), one.method, None))
        if not callable(method) or method is getattr(kind, one.method, None):
            of_input = "" if one.name is None else f" for the rows of input {one.name!r}"
            raise InvalidRequest(
                f"{where}: {type(processor).__name__} lacks the method {one.method}(self, {given}){of_input}"
            )
