"""Runs a KeyedProcessor over a slot's rows: gathers them, groups them by key, and calls the processor key by key; then
timer by timer.

Keys are taken in chunks, for each of which states read and write once (see keyed_scope.py). A chunk is as large as
keeps what it moves near a limit, going by the chunks before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as is_type

from holdfast import _core
from holdfast.arrow.arrays import one_batch
from holdfast.errors import InternalError, InvalidRequest
from holdfast.state.batch_counts import BatchCounts
from holdfast.state.columns import CoreKeys, KeyColumns
from holdfast.state.context import Context
from holdfast.state.keyed_scope import CHUNK_KEYS_MAX, KeyScope
from holdfast.state.live_timers import KeyedTimers, TimerQueue, core_keys, due_until, queues_of, time_of
from holdfast.state.outputs import pieces_of
from holdfast.state.processor import KeyedProcessor, Produced
from holdfast.state.python_values import python_of
from holdfast.state.side_outputs import Outputs, TaggedRows

CHUNK_KEYS_MIN = 64
_TAKEN_OF_SEVERAL_MIN = 4
CHUNK_GROWTH_MAX = 4
CHUNK_BYTES = 8 << 20  # in Arrow; as Python values they are some ten times that


class KeyedDriver:
    """One a slot and batch. ``rows_bytes_max``: rows gathered before keys are called with what is there."""

    def __init__(
        self,
        processor: KeyedProcessor,
        store: _core.Store,
        keys: KeyColumns,
        scope: KeyScope,
        output: Outputs,
        rows_bytes_max: int,
        between_chunks: Callable[[], None],
        counts: BatchCounts,
    ) -> None:
        self._processor = processor
        self._method = "process"
        self._store = store
        self._keys = keys
        self._scope = scope
        self._output = output
        self._rows_bytes_max = rows_bytes_max
        self._between_chunks = between_chunks
        self._counts = counts
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._chunk_keys = CHUNK_KEYS_MIN
        self.current_key: tuple[Any, ...] | None = None  # for error notes

    def gather(self, batch: pa.RecordBatch) -> bool:
        """Keeps a batch; True when the limit is reached and :meth:`run` is due."""
        if batch.num_rows:
            self._gathered.append(batch)
            self._gathered_bytes += batch.nbytes
        return self._gathered_bytes >= self._rows_bytes_max

    def call(self, method: str) -> None:
        """Which of the processor's methods takes what is gathered from now on; nothing may be waiting."""
        assert not self._gathered, "rows of another input wait"
        self._method = method

    def run(self, ctx: Context) -> Iterator[TaggedRows]:
        """Calls the processor with all that was gathered."""
        if not self._gathered:
            return
        batches, self._gathered, self._gathered_bytes = self._gathered, [], 0
        rows = one_batch(batches)
        distinct, rows, offsets = self._grouped(rows)
        first = 0
        while first < len(distinct):
            size = min(self._chunk_keys, len(distinct) - first)
            yield from self._run_chunk(distinct.slice(first, size), rows, offsets[first : first + size + 1], ctx)
            first += size

    def fire(self, timers: Sequence[KeyedTimers], ctx: Context) -> Iterator[TaggedRows]:
        """Calls the processor with each timer that is due, in order of time, until none is. ``timers``: in order of
        declaration.
        """
        queues = queues_of(timers)
        fired = True
        while fired:  # timers of one kind of time may have set some of the other
            fired = False
            for queue in queues:
                for given in self._fire(queue, ctx):
                    fired = True
                    yield from given
        ctx.timers = None

    def _grouped(self, rows: pa.RecordBatch) -> tuple[CoreKeys, pa.RecordBatch, list[int]]:
        """Distinct keys by first appearance, rows grouped by key in their first order,
        and where each key's rows begin.
        """
        keys = self._keys.of(rows)
        core_codes, core_first_rows = self._store.distinct(keys)
        codes = pa.array(core_codes).to_numpy()
        distinct = keys.take(pa.array(core_first_rows))
        offsets = np.zeros(len(distinct) + 1, np.int64)
        np.cumsum(np.bincount(codes, minlength=len(distinct)), out=offsets[1:])
        if np.any(codes[1:] < codes[:-1]):
            rows = rows.take(pa.array(np.argsort(codes, kind="stable")))
        self._keys.forget()
        return distinct, rows, offsets.tolist()

    def _run_chunk(
        self, keys: CoreKeys, rows: pa.RecordBatch, offsets: list[int], ctx: Context
    ) -> Iterator[TaggedRows]:
        process, start = getattr(self._processor, self._method), offsets[0]
        chunk = rows.slice(start, offsets[-1] - start)
        pieces = self._frames(chunk, keys, offsets) if self._processor.rows == "pandas" else _Tables(chunk)

        def call(index: int, key: tuple[Any, ...]) -> Produced:
            return process(key, pieces.slice(offsets[index] - start, offsets[index + 1] - offsets[index]), ctx)

        yield from self._call_chunk(keys, call, chunk.nbytes)

    def _frames(self, chunk: pa.RecordBatch, keys: CoreKeys, offsets: list[int]) -> _Frames:
        try:
            return _Frames(chunk)
        except pa.ArrowMemoryError:
            raise
        except pa.ArrowException:
            name, row, error = _not_in_pandas(chunk)
            index = bisect_right(offsets, offsets[0] + row) - 1
            [self.current_key] = self._keys.tuples(keys.slice(index, 1))
            raise InvalidRequest(
                f"input column {name!r}: a value of {chunk.schema.field(name).type} has no form in pandas ({error}); "
                'expected text in UTF-8, but Spark\'s may be any bytes: take rows as tables (rows = "arrow"), leave '
                "the column out, cast it to binary, or keep such rows out before (is_valid_utf8, since Spark 4.0)"
            ) from None

    def _fire(self, queue: TimerQueue, ctx: Context) -> Iterator[Iterator[TaggedRows]]:
        """The output of each chunk of timers. A key is once in a chunk, so what its timer sets or deletes is done
        before its next one is taken.
        """
        until = due_until(queue.domain, ctx)
        limit = CHUNK_KEYS_MIN
        while until is not None and len(due := queue.take_due(until, limit)):
            count = self._different_keys(core_keys(due.flatten()[0]))
            if count < len(due):
                queue.put_back(due, count)
            keys, times, namespaces = due.slice(0, count).flatten()
            self._counts.timers_fired += count
            named = python_of(namespaces, "timers, namespaces")  # which a BatchProcessor may have set
            call = self._timer_call(times.to_pylist(), named, queue.names(count), ctx)
            yield self._call_chunk(core_keys(keys), call, due.nbytes)
            # Of several declarations what is put back costs more, and the next timers of the same keys may be near.
            least = _TAKEN_OF_SEVERAL_MIN if queue.is_several else CHUNK_KEYS_MIN
            limit = max(least, min(self._chunk_keys, CHUNK_GROWTH_MAX * count))

    def _timer_call(
        self, at: list[int], named: list[str], declared: Sequence[str], ctx: Context
    ) -> Callable[[int, tuple[Any, ...]], Produced]:
        """Calls on_timer with the timer of each key of a chunk."""
        on_timer = self._processor.on_timer
        ctx.timers = declared[0]
        if len(declared) == 1:
            return lambda index, key: on_timer(key, time_of(at[index], declared[0]), named[index], ctx)

        def call(index: int, key: tuple[Any, ...]) -> Produced:
            ctx.timers = declared[index]
            return on_timer(key, time_of(at[index], declared[index]), named[index], ctx)

        return call

    def _different_keys(self, keys: CoreKeys) -> int:
        """How many keys, from the first on, are all different."""
        codes = pa.array(self._store.distinct(keys)[0]).to_numpy()
        again = np.flatnonzero(codes != np.arange(len(codes)))
        return int(again[0]) if len(again) else len(codes)

    def _call_chunk(
        self, keys: CoreKeys, call: Callable[[int, tuple[Any, ...]], Produced], read_bytes: int
    ) -> Iterator[TaggedRows]:
        """Output leaves when the chunk ends, or as soon as it is much: one key may give more than memory holds."""
        scope, output = self._scope, self._output
        tuples = self._keys.tuples(keys)
        scope.begin(keys, tuples)
        given_bytes = 0
        for index, key in enumerate(tuples):
            self.current_key = key
            scope.index = index
            produced = call(index, key)
            for piece in pieces_of(produced) if isinstance(produced, Iterator) else (produced,):
                output.add(piece)
                if output.is_full:
                    self.current_key = None  # rows of other keys are among them
                    given_bytes += yield from self._drained()
                    self.current_key = key
        self.current_key = None
        scope.end()
        self._between_chunks()
        given_bytes += yield from self._drained()
        self._resize(len(tuples), scope.moved_bytes + read_bytes + given_bytes)

    def _drained(self) -> Generator[TaggedRows, None, int]:
        """The output so far; at last how many bytes that were."""
        given = self._output.drain()
        yield from given
        return sum(rows.nbytes for _, rows in given)

    def _resize(self, keys: int, moved_bytes: int) -> None:
        fitting = CHUNK_BYTES * keys // max(moved_bytes, 1)
        self._chunk_keys = max(CHUNK_KEYS_MIN, min(fitting, self._chunk_keys * CHUNK_GROWTH_MAX, CHUNK_KEYS_MAX))


class _Tables:
    """Runs of a chunk's rows as tables."""

    def __init__(self, chunk: pa.RecordBatch) -> None:
        self.slice = pa.Table.from_batches([chunk]).slice


def _in_pandas(columns: pa.RecordBatch) -> Any:
    # Otherwise a null of any key makes floats of all integers of the chunk, and past 2**53 others of them.
    return columns.to_pandas(integer_object_nulls=True)


def _not_in_pandas(chunk: pa.RecordBatch) -> tuple[str, int, pa.ArrowException]:
    """The first column that pandas has no form for, the first row of that, and why."""
    for name in chunk.schema.names:
        column = chunk.select([name])
        try:
            _in_pandas(column)
        except pa.ArrowException:
            for row in range(len(column)):
                try:
                    _in_pandas(column.slice(row, 1))
                except pa.ArrowException as error:
                    return name, row, error
    raise InternalError("a column that pandas took alone was refused among others")


class _Frames:
    """Runs of a chunk's rows as frames, each with an index from 0."""

    def __init__(self, chunk: pa.RecordBatch) -> None:
        import pandas

        self._frame = _in_pandas(chunk)
        self._index = pandas.RangeIndex
        #: Columns of Python's objects for some keys' nulls, by position, each with how many nulls there are before each
        #: row. Other keys have them as numpy has them: in a frame without those nulls, which is for them.
        self._with_nulls = [
            (at, np.concatenate([[0], np.cumsum(column.is_null().to_numpy(zero_copy_only=False))]))
            for at, column in enumerate(chunk.columns)
            if column.null_count and _is_whole(column.type)
        ]
        self._without = self._frame.copy(deep=False)
        for at, _ in self._with_nulls:
            column = chunk.column(at)
            nothing = pa.scalar(False if is_type.is_boolean(column.type) else 0, column.type)
            self._without.isetitem(at, column.fill_null(nothing).to_numpy(zero_copy_only=False))

    def slice(self, offset: int, length: int) -> Any:
        end = offset + length
        whole = [at for at, nulls in self._with_nulls if nulls[offset] == nulls[end]]
        source = self._without if len(whole) == len(self._with_nulls) else self._frame
        # A frame of its own: to pandas 2 a mere slice is a copy that had better not be changed, and it warns.
        frame = source.iloc[offset:end].copy(deep=False)
        frame.index = self._index(length)
        if source is self._frame:
            for at in whole:
                frame.isetitem(at, self._without.iloc[offset:end, at].to_numpy())  # which it copies
        return frame


def _is_whole(type: pa.DataType) -> bool:
    """Whether numpy has the type, but no null of it."""
    return bool(is_type.is_integer(type) or is_type.is_boolean(type))
