"""An operator's inputs as a processor meets them: the method that takes an input's rows, its key columns, and what
becomes of its late rows.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InvalidRequest
from holdfast.state.processor import BatchProcessor, KeyedProcessor, Processor
from holdfast.state.side_outputs import SideOutput

KEEP: Final = "keep"
DROP: Final = "drop"
#: What becomes of late rows.
Late: TypeAlias = Literal["keep", "drop"]


@dataclass(frozen=True)
class Broadcast:
    """An input that is marked as broadcast; made by :func:`broadcast`."""

    marked: Any


def broadcast(marked: Any) -> Broadcast:
    """Marks an input of :func:`connect`, each of whose rows reaches every slot: rules, prices, other small streams.

    ``hf.connect({"orders": orders, "rules": hf.broadcast(rules)}, "user", Judge(), …)``

    Such an input has no key. The processor's method for it, ``process_rules(rows, ctx)``, gets a ``pyarrow.Table`` and
    is called in each slot, before any row that has a key and any timer of the batch; it alone changes the states that
    are declared as :class:`BroadcastState`.

    Parameters
    ----------
    marked
        The streaming DataFrame; for ``holdfast.testing.Harness`` the input's schema.
    """
    return Broadcast(marked)


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
    broadcast
        Whether every slot gets all of its rows, which then have no key and no lateness.
    """

    name: str | None = None
    key_columns: tuple[str, ...] | None = None
    event_time: str | None = None
    late: Late | SideOutput = KEEP
    time_columns: tuple[str, ...] = ()
    broadcast: bool = False

    @property
    def method(self) -> str:
        """The processor's method that takes its rows."""
        return "process" if self.name is None else f"process_{self.name}"

    def lateness(self, batch: pa.RecordBatch, watermark_ms: int | None) -> pa.BooleanArray | None:
        """Which rows are late; None where none is.

        A row is late when its event time is not after the watermark, as in Flink. A row without an event time
        is never late, nor is any before the first watermark, which Spark tells as 0.
        """
        if self.event_time is None or not watermark_ms:
            return None
        times = batch.column(self.event_time)
        behind = pc.less_equal(times, pa.scalar(watermark_ms * 1000, pa.int64()).cast(times.type))
        late = pc.fill_null(behind, False)
        return late if late.true_count else None


def check_methods(processor: Processor, inputs: tuple[Input, ...], where: str) -> None:
    """Whether the processor has a method for each input, and none that would never run.

    Raises
    ------
    InvalidRequest
        It has not, or one that takes other arguments; names the method that was expected. ``open`` or ``close`` that
        yields, or any of them that is async.
    """
    for name in ("open", "close", "on_timer", "on_timers", *(one.method for one in inputs)):
        if found := _never_runs(name, getattr(processor, name, None)):
            raise InvalidRequest(f"{where}: {type(processor).__name__}.{name} would never run: it {found}")
    kind = BatchProcessor if isinstance(processor, BatchProcessor) else KeyedProcessor
    for one in inputs:
        method = vars(processor).get(one.method, getattr(type(processor), one.method, None))
        given = "rows, ctx" if one.broadcast else "batch, ctx" if kind is BatchProcessor else "key, rows, ctx"
        expected = f"{one.method}(self, {given})"
        of_input = "" if one.name is None else f" for the rows of {'broadcast ' * one.broadcast}input {one.name!r}"
        if not callable(method) or method is getattr(kind, one.method, None):
            raise InvalidRequest(f"{where}: {type(processor).__name__} lacks the method {expected}{of_input}")
        if one.name is not None and not _takes(getattr(processor, one.method), given.count(",") + 1):
            raise InvalidRequest(
                f"{where}: {type(processor).__name__}.{one.method} takes {inspect.signature(method)}; expected "
                f"{expected}{of_input}" + ("" if one.broadcast else ", which is not marked by hf.broadcast")
            )


def _never_runs(name: str, method: Any) -> str | None:
    """Why a call of the method would do nothing."""
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        return "is async; expected a plain method"
    if name in ("open", "close") and inspect.isgeneratorfunction(method):
        return "yields; expected a plain method, since rows are given by process and on_timer"
    return None


def _takes(method: Any, arguments: int) -> bool:
    """Whether it can be called with so many; one that does not say so may."""
    try:
        inspect.signature(method).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:
        return True
    return True
