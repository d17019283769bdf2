"""A processor at work on one slot of one batch: the one class that an engine drives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from holdfast import _core
from holdfast.errors import HoldfastError, InternalError, InvalidRequest
from holdfast.state.batch_counts import BatchCounts
from holdfast.state.columns import KeyColumns
from holdfast.state.context import Context
from holdfast.state.declarations import BOUND_STATES
from holdfast.state.inputs import DROP, KEEP, Input
from holdfast.state.keyed_driver import KeyedDriver
from holdfast.state.keyed_scope import KeyScope
from holdfast.state.live_operator_states import (
    BatchBroadcastState,
    BatchOperatorState,
    KeyedBroadcastState,
    KeyedOperatorState,
    LiveOperatorState,
)
from holdfast.state.live_state import LiveState, other_forms_arguments
from holdfast.state.live_timers import BatchTimers, KeyedTimers, due_until
from holdfast.state.outputs import pieces_of
from holdfast.state.processor import BatchProcessor, KeyedProcessor, Processor, Produced, declared_states
from holdfast.state.side_outputs import Outputs, SideOutput, TaggedRows

_BROADCAST_STATES = (BatchBroadcastState, KeyedBroadcastState)
_OPERATOR_STATES = (*_BROADCAST_STATES, BatchOperatorState, KeyedOperatorState)

ROWS_BYTES_MAX = 64 << 20
#: More keys of one lookup find more of their blocks read already.
TIMERS_A_CALL = 131072


class BoundProcessor:
    """A processor whose states are those of a store, from construction to :meth:`close`.

    Usage: ``process`` for each record batch of the slot in order, ``finish`` once, then ``close`` in any case; as a
    context manager it closes itself. The store must have begun its batch; taking the delta and committing is the
    caller's. Not thread-safe.

    Parameters
    ----------
    processor
        A BatchProcessor or KeyedProcessor. It may be bound once at a time.
    store
        The slot's store.
    key_schema
        The operator's key columns.
    states
        Name and state id of each declared state, as recorded with the operator.
    output_schema
        What all output is brought to, but that of side outputs.
    side_outputs
        Schema of each side output by name.
    inputs
        The operator's inputs in their order; by default one, whose rows ``process`` takes. Rows of those that are
        broadcast must come first.
    rows_bytes_max
        For a KeyedProcessor, and for broadcast inputs: input bytes that are gathered before the processor is called
        with the rows so far.
    between_chunks
        Called between timers of a BatchProcessor; and whenever the states of a KeyedProcessor have written all they
        held back, after some thousand keys at most. This is when the store may spill.
    """

    def __init__(
        self,
        processor: Processor,
        store: _core.Store,
        key_schema: pa.Schema,
        states: Sequence[tuple[str, int]],
        output_schema: pa.Schema,
        *,
        side_outputs: Mapping[str, pa.Schema] | None = None,
        inputs: Sequence[Input] = (Input(),),
        rows_bytes_max: int = ROWS_BYTES_MAX,
        between_chunks: Callable[[], None] = lambda: None,
    ) -> None:
        if BOUND_STATES in processor.__dict__:
            raise InternalError(f"{type(processor).__name__} is at work on another slot; close that first")
        declared = dict(declared_states(processor))
        if sorted(declared) != sorted(name for name, _ in states):
            raise InternalError(
                f"{type(processor).__name__} declares the states {sorted(declared)}, was bound with "
                f"{sorted(n for n, _ in states)}"
            )
        self._processor = processor
        self._output = Outputs(output_schema, side_outputs or {})
        self._keys = KeyColumns(key_schema)
        self._inputs = tuple(inputs)
        self._input: Input | None = None  # whose rows came last
        self._between_chunks = between_chunks
        self._opened = False
        self._broadcast_rows: list[pa.RecordBatch] = []
        self._rows_bytes_max = rows_bytes_max
        self._scope = scope = KeyScope()
        self.counts = BatchCounts()  #: complete once :meth:`finish` has come to its end
        self._driver: KeyedDriver | None = None
        bound: dict[str, Any]
        if isinstance(processor, KeyedProcessor):
            bound = {name: declared[name].bind_keyed(store, state_id, scope) for name, state_id in states}
            for name, state in bound.items():
                ttl = declared[name].ttl
                state.reads_ahead = ttl is None or not ttl.refreshes_on_read
            self._driver = KeyedDriver(
                processor, store, self._keys, scope, self._output, rows_bytes_max, self._end_chunk, self.counts
            )
        elif isinstance(processor, BatchProcessor):
            bound = {name: declared[name].bind_batch(store, state_id, self._keys) for name, state_id in states}
        else:
            raise InvalidRequest(
                f"{type(processor).__name__} is neither a BatchProcessor nor a KeyedProcessor; "
                "derive it from one of them"
            )
        self._states: list[LiveState] = list(bound.values())
        in_order = (bound[name] for name in declared)  # records have theirs, in which states that came later are last
        self._timers = [state for state in in_order if isinstance(state, (BatchTimers, KeyedTimers))]
        self._operator_states: list[LiveOperatorState] = [
            state for state in self._states if isinstance(state, _OPERATOR_STATES)
        ]
        processor.__dict__[BOUND_STATES] = bound

    def process(self, batch: pa.RecordBatch, ctx: Context, input_number: int = 0) -> Iterator[TaggedRows]:
        """The output for a batch of one input so far, by side output. A KeyedProcessor gathers, and gives most of its
        output in :meth:`finish`.

        Late rows of an input go where the input says, and are counted. An exception of the processor comes with a note
        that names operator, slot and batch.
        """
        try:
            self._open(ctx)
            yield from self._turn_to(self._inputs[input_number], ctx)
            if self._inputs[input_number].broadcast:
                yield from self._gather_broadcast(batch, ctx)
            else:
                yield from self._process_keyed(self._on_time(batch, ctx), ctx)
            yield from self._output.drain()
            self._end_operation()
        except Exception as error:
            self._note(error, ctx)

    def finish(self, ctx: Context) -> Iterator[TaggedRows]:
        """The rest of the output: of rows, then of the timers that are due. Only when this has come to its end may the
        batch be prepared.
        """
        try:
            self._open(ctx)
            yield from self._run_broadcast(ctx)
            if self._driver is not None:
                yield from self._driver.run(ctx)
                yield from self._driver.fire([one for one in self._timers if isinstance(one, KeyedTimers)], ctx)
            else:
                yield from self._fire(ctx)
            yield from self._output.drain()
            self._output.end()
            self._end_operation()
            for timers in self._timers:
                self.counts.timers_registered += timers.registered
                self.counts.timers_deleted += timers.deleted
        except Exception as error:
            self._note(error, ctx)

    def close(self) -> None:
        """Takes the states from the processor and calls its ``close``."""
        if self._processor.__dict__.pop(BOUND_STATES, None) is not None and self._opened:
            self._processor.close()

    def __enter__(self) -> BoundProcessor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end_operation(self) -> None:
        """A processor may catch what a state raised; the batch is lost all the same. Where none did, states that belong
        to no key hold back nothing.
        """
        for state in self._states:
            state.check()
        for state in self._operator_states:
            state.write()

    def _end_chunk(self) -> None:
        self._end_operation()
        self._between_chunks()

    def _open(self, ctx: Context) -> None:
        if not self._opened:
            self._opened = True
            ctx.send_to(self._output)
            self._processor.open(ctx)

    def _turn_to(self, one: Input, ctx: Context) -> Iterator[TaggedRows]:
        """Before the rows of another input: those that wait are done first, and keys may have other names."""
        if one is self._input:
            return
        assert not one.broadcast or self._input is None or self._input.broadcast, "rows with keys came first"
        yield from self._run_broadcast(ctx)
        if one.broadcast:
            self._input = one
            return
        if self._driver is not None:
            yield from self._driver.run(ctx)
            self._driver.call(one.method)
        self._keys.look_for(one.key_columns or self._keys.schema.names)
        self._input = one

    def _gather_broadcast(self, batch: pa.RecordBatch, ctx: Context) -> Iterator[TaggedRows]:
        if batch.num_rows:
            self._broadcast_rows.append(batch)
        if sum(rows.nbytes for rows in self._broadcast_rows) >= self._rows_bytes_max:
            yield from self._run_broadcast(ctx)

    def _run_broadcast(self, ctx: Context) -> Iterator[TaggedRows]:
        """Calls the processor with what was gathered of a broadcast input."""
        if not self._broadcast_rows:
            return
        assert self._input is not None  # whose rows they are
        rows, self._broadcast_rows = pa.Table.from_batches(self._broadcast_rows), []
        self._broadcast_at_work(True)
        yield from self._drained(getattr(self._processor, self._input.method)(rows, ctx))
        self._end_operation()
        self._broadcast_at_work(False)

    def _broadcast_at_work(self, at_work: bool) -> None:
        """States that every slot has alike may be changed; those of keys have no key."""
        self._keys.of_no_key = self._scope.of_no_key = at_work
        for state in self._operator_states:
            if isinstance(state, _BROADCAST_STATES):
                state.writable = at_work

    def _process_keyed(self, batch: pa.RecordBatch, ctx: Context) -> Iterator[TaggedRows]:
        if self._driver is None:
            yield from self._process_batch(batch, ctx)
        elif self._driver.gather(batch):
            yield from self._driver.run(ctx)

    def _on_time(self, batch: pa.RecordBatch, ctx: Context) -> pa.RecordBatch:
        """The rows that the processor gets."""
        assert self._input is not None  # turned to before
        late = self._input.lateness(batch, ctx.watermark_ms)
        if late is None:
            return batch
        if self._input.late == KEEP:
            self.counts.late_rows_kept += late.true_count
            return batch
        if isinstance(self._input.late, SideOutput):
            self.counts.late_rows_aside += late.true_count
            self._output.add_to(self._input.late, batch.filter(late))
        else:
            assert self._input.late == DROP
            self.counts.late_rows_dropped += late.true_count
        return batch.filter(pc.invert(late))

    def _process_batch(self, batch: pa.RecordBatch, ctx: Context) -> Iterator[TaggedRows]:
        assert self._input is not None  # turned to before
        if batch.num_rows:
            yield from self._drained(getattr(self._processor, self._input.method)(batch, ctx))

    def _fire(self, ctx: Context) -> Iterator[TaggedRows]:
        """Calls a BatchProcessor with all timers that are due, declaration by declaration, until none is: in one order
        of time they would be calls with a few rows each.
        """
        assert isinstance(self._processor, BatchProcessor)
        self._keys.look_for(self._keys.schema.names)  # on_timers has the key under its own names
        self._input = None
        fired = True
        while fired:  # timers of one declaration may have set some of another
            fired = False
            for timers in (one for one in self._timers if isinstance(one, BatchTimers)):
                until = due_until(timers.domain, ctx)
                while until is not None and (due := timers.take_due(until, TIMERS_A_CALL)).num_rows:
                    fired = True
                    self.counts.timers_fired += due.num_rows
                    ctx.timers = timers.name
                    yield from self._drained(self._processor.on_timers(due, ctx))
                    self._end_chunk()
        ctx.timers = None

    def _drained(self, produced: Produced) -> Iterator[TaggedRows]:
        if isinstance(produced, Iterator):
            for piece in pieces_of(produced):  # as it comes, so that a large output streams
                self._output.add(piece)
                yield from self._output.drain()
        else:
            self._output.add(produced)
            yield from self._output.drain()
        self._keys.forget()

    def _note(self, error: Exception, ctx: Context) -> NoReturn:
        key = self._driver.current_key if self._driver is not None else None
        where = f"operator {ctx.operator!r}, slot {ctx.slot} of {ctx.slots}, batch {ctx.batch_id}"
        note = f"while {type(self._processor).__name__} ran {where}"
        if key is not None:
            note += f", key {key!r}"
        if (hint := other_forms_arguments(error)) is not None:
            note += f". {hint}"
        if sys.version_info >= (3, 11):
            error.add_note(note)
            raise error
        if isinstance(error, HoldfastError):
            raise type(error)(f"{error} ({note})") from error
        if isinstance(error, MemoryError):  # which is told by its class
            raise MemoryError(f"{error} ({note})") from error
        raise RuntimeError(note) from error
