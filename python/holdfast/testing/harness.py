"""A processor under test, without Spark and without waiting: batches in, output out, time moved by hand.

It runs what a task of Spark runs on one slot (`run_batch` over a `SlotState`, with real files in a folder of its own):
states are read and written, made durable and recovered by the product's own code. The harness plays Spark: it holds the
handle of the last committed version. Owner: one thread.
"""

from __future__ import annotations

import math
import operator
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal

import pyarrow as pa

from holdfast import _core
from holdfast.checkpoint import (
    Background,
    CheckpointSettings,
    Handle,
    OperatorRecord,
    SlotState,
    StoredHandle,
    operator_prefix,
    register_operator,
)
from holdfast.checkpoint.ttl_log import DeclaredTtls, note_ttls
from holdfast.clock import SystemClock
from holdfast.errors import InvalidRequest
from holdfast.settings import Settings
from holdfast.spark.keyed import check_name, check_ttls, state_changes, state_records
from holdfast.spark.operator_metrics import OperatorMetrics
from holdfast.spark.slot_batch import declared_ttls, fires, lifetimes_of, run_batch
from holdfast.spark.slot_metrics import SlotMetrics
from holdfast.spark.ticks import check_timers
from holdfast.state import (
    KEEP,
    BroadcastState,
    Context,
    Late,
    ListState,
    MapState,
    OperatorState,
    Processor,
    SideOutput,
    TaggedRows,
    Timers,
    check_broadcast,
    check_methods,
    check_side_outputs,
    declared_states,
)
from holdfast.state.columns import KeyColumns
from holdfast.state.python_values import python_of, shown
from holdfast.storage import HARNESS, open_file_store
from holdfast.testing.inputs import HarnessInputs, NumberedRows
from holdfast.testing.rows import Rows, schema_of

QUERY_ID = "00000000-0000-4000-8000-000000000000"
#: 2027-01-15 08:00 UTC: a time like any other, for tests that set none.
STARTED_MS = 1_800_000_000_000
#: No version that a test may go back to is ever deleted.
_RETAINED_BATCHES = 1_000_000
_CLOCK = SystemClock()


@dataclass(frozen=True)
class Snapshot:
    """A committed version, and where the harness stood: for :meth:`Harness.restore`. Nothing in it is to be changed."""

    handle: Handle | None
    next_batch: int
    timestamp_ms: int
    watermark_ms: int | None
    keys: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class _Batch:
    """A batch as it was given, so that it can run again."""

    before: Snapshot
    batches: tuple[NumberedRows, ...]
    attempt: int


class Harness:
    """A processor at work on one slot that has all keys.

    ::

        with Harness(RunningTotal(), "user", "user string, amount long", "user string, amount long, total long") as h:
            h.process([{"user": "ada", "amount": 1}, {"user": "ada", "amount": 2}])
            assert h.state("total", "ada") == 3

    Parameters
    ----------
    processor
        A BatchProcessor or KeyedProcessor. As in a query, each batch gets a copy of it.
    key
        Key column, or several, of the input; or by input.
    input_schema, output_schema
        Of the rows that go in and come out: text such as ``"user string, amount long"``, a pyarrow.Schema, or a
        StructType of Spark's. For a processor of ``hf.connect`` that of each input by name; of one that is broadcast
        ``hf.broadcast(schema)``.
    name
        The operator's name.
    side_outputs, late
        As for ``hf.keyed``; what they were given: :meth:`side_output`.
    event_time
        The column of timestamps that the watermark goes by, as in ``hf.keyed(watermark=(column, delay))``: late rows
        are told by it, and states whose TTL goes by event time need it. The watermark itself moves by hand:
        :attr:`watermark_ms`. With several inputs by input, as ``late`` may be.
    null_keys
        Whether null is a key like any other.
    backend
        "rocksdb" or "hashmap".
    settings
        As for ``hf.keyed``: ``{"memory.batch.max": "1 MiB", "fold.deltas.max": 4}``.
    folder
        Where checkpoint and local copies are kept; by default a temporary folder, removed by :meth:`close`.

    Raises
    ------
    InvalidRequest
        What :func:`holdfast.keyed` refuses: a wrong schema, key, processor or setting; a TTL or timers by event time
        without ``event_time``.
    """

    def __init__(
        self,
        processor: Processor,
        key: str | Sequence[str] | Mapping[str, str | Sequence[str]],
        input_schema: Any,
        output_schema: Any,
        *,
        name: str = "under-test",
        side_outputs: Sequence[SideOutput] = (),
        event_time: str | Mapping[str, str] | None = None,
        late: Late | SideOutput | Mapping[str, Late | SideOutput] = KEEP,
        null_keys: bool = False,
        backend: Literal["rocksdb", "hashmap"] = "rocksdb",
        settings: Mapping[str, Any] | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        check_name(name)
        where = f"operator {name!r}"
        self._inputs = HarnessInputs(processor, input_schema, key, event_time, late, name)
        self._output_schema = schema_of(output_schema, f"{where}, output schema")
        self._name, self._null_keys = name, null_keys
        self._sides = self._inputs.side_schemas(check_side_outputs(side_outputs, where))
        self._aside: list[TaggedRows] = []
        Settings.from_mapping({}, settings)  # refuses what is no mapping, before it is unpacked
        given = Settings.from_mapping({}, {"state.backend": backend, **(settings or {})})
        self._max_parallelism = given.max_parallelism
        self._settings = replace(CheckpointSettings.of(given), retained_batches=_RETAINED_BATCHES)
        self._background = Background()
        self._timestamp_ms = STARTED_MS
        self._watermark_ms: int | None = 0 if self._inputs.watermarked else None
        self._handle: Handle | None = None
        self._next_batch = 0
        self._keys: dict[tuple[Any, ...], None] = {}  # in the order in which they came
        self._last: _Batch | None = None
        self._metrics: OperatorMetrics | None = None
        self._own_folder = tempfile.mkdtemp(prefix="holdfast-harness-") if folder is None else None
        self._folder = self._own_folder or os.path.abspath(folder or "")
        self._store = open_file_store(os.path.join(self._folder, "state"), place=HARNESS)
        try:
            self._start(processor)
        except BaseException:
            self._remove_folder()
            raise

    # --- batches
    def process(self, *rows: Rows, **by_input: Rows) -> pa.Table:
        """Runs one micro-batch and commits it.

        Parameters
        ----------
        rows
            Rows of the input schema: a list of dicts, a record batch, a table or a frame. Several: the processor gets
            them one after the other, as it gets the parts of a large batch. None: timers that are due fire.
        by_input
            With several inputs the rows of each, by name: ``process(orders=[…], payments=[…])``. They come in the order
            of the inputs, those that are broadcast first.

        Returns
        -------
        pa.Table
            The output, in the output schema.

        Raises
        ------
        Exception
            What the processor raised. Then nothing of the batch is kept, and the next one has its number: as when
            Spark gave up on it and was started again.
        """
        return self._run(_Batch(self.snapshot(), self._inputs.batches(rows, by_input), attempt=0))

    def replay(self) -> pa.Table:
        """Runs the last batch again, as after a crash before Spark committed it: same rows, number, time and chance,
        from the version that it started from, in a new process. What comes out should be what came out the first time.

        Raises
        ------
        InvalidRequest
            No batch was processed since the start, or since :meth:`restore`.
        """
        if self._last is None:
            raise InvalidRequest("there is no batch to replay; process one first")
        again = replace(self._last, attempt=self._last.attempt + 1)
        now = self._timestamp_ms, self._watermark_ms
        self.kill()
        self.restore(again.before)
        try:
            return self._run(again)
        finally:
            self._timestamp_ms, self._watermark_ms = now

    def _run(self, batch: _Batch) -> pa.Table:
        self._last = batch
        self._metrics, self._aside = OperatorMetrics.of(self._name, self._next_batch, ()), []
        output = self._run_slot(batch)
        self._next_batch += 1
        self._aside = [tagged for tagged in output if tagged[0] is not None]
        keys = self._inputs.keys(KeyColumns(self._record.key_schema), batch.batches)
        self._keys.update(dict.fromkeys(tuple(map(_hashable, key)) for key in keys))
        return pa.Table.from_batches([rows for side, rows in output if side is None], self._output_schema)

    def side_output(self, tag: SideOutput) -> pa.Table:
        """What the last batch gave to a side output.

        Raises
        ------
        InvalidRequest
            There is no such side output.
        """
        if not isinstance(tag, SideOutput) or tag.name not in self._sides:
            raise InvalidRequest(f"side_output: {tag!r} is none; there are {', '.join(self._sides) or 'none'}")
        return pa.Table.from_batches([rows for side, rows in self._aside if side == tag.name], self._sides[tag.name])

    def _run_slot(self, batch: _Batch) -> list[TaggedRows]:
        state, processor = self._state, self._processor
        ctx = Context(
            query_id=QUERY_ID,
            operator=self._name,
            batch_id=self._next_batch,
            timestamp_ms=self._timestamp_ms,
            slot=0,
            slots=1,
            attempt=batch.attempt,
            watermark_ms=self._watermark_ms,
        )
        self._inputs.check_keys(batch.batches, self._key_codec, self._record.max_parallelism)
        has_rows = any(rows.num_rows for _, rows in batch.batches)
        if not has_rows and not fires(state, self._handle, self._record, ctx):
            return []  # as in Spark: such a slot is not called
        metrics = SlotMetrics()
        started_ms = _CLOCK.elapsed_ms()
        produced = run_batch(
            processor,
            state,
            self._handle,
            batch.batches,
            ctx,
            record=self._record,
            output_schema=self._output_schema,
            side_outputs=self._sides,
            inputs=self._inputs.met,
            metrics=metrics,
        )
        try:
            with closing(produced):
                output = list(produced)
            handle = state.prepare()
        except BaseException as error:
            state.abort(error)
            raise
        self._handle = state.whole(StoredHandle.from_text(handle.to_text()))  # as it comes back from Spark's state
        metrics.note_prepared(state)
        metrics.slot_ms = _CLOCK.elapsed_ms() - started_ms
        self._metrics = OperatorMetrics.of(self._name, ctx.batch_id, [metrics])
        return output

    @property
    def metrics(self) -> OperatorMetrics:
        """What the last batch did, as :func:`holdfast.metrics` tells it of a query. Without slots where it failed, or
        had nothing to do.

        Raises
        ------
        InvalidRequest
            No batch was processed yet.
        """
        if self._metrics is None:
            raise InvalidRequest("there are no metrics yet; process a batch first")
        return self._metrics

    # --- time
    @property
    def timestamp_ms(self) -> int:
        """The next batch's own time, ``ctx.timestamp_ms``: milliseconds since 1970 (UTC). Moves when it is set."""
        return self._timestamp_ms

    @timestamp_ms.setter
    def timestamp_ms(self, value: int) -> None:
        value = _milliseconds("timestamp_ms", value)
        if value < self._timestamp_ms:
            raise InvalidRequest(f"timestamp_ms is {self._timestamp_ms} and cannot go back to {value}; see restore()")
        self._timestamp_ms = value

    def advance(self, milliseconds: int) -> None:
        """Moves the next batch's time on."""
        self.timestamp_ms = self._timestamp_ms + _milliseconds("advance", milliseconds)

    @property
    def watermark_ms(self) -> int | None:
        """The event-time watermark of the next batch, ``ctx.watermark_ms``. At first 0, as in a query, where none has
        come yet; None without ``event_time``, where the query has none, until it is set.
        """
        return self._watermark_ms

    @watermark_ms.setter
    def watermark_ms(self, value: int) -> None:
        value = _milliseconds("watermark_ms", value)
        if self._watermark_ms is not None and value < self._watermark_ms:
            raise InvalidRequest(f"watermark_ms is {self._watermark_ms} and cannot go back to {value}; see restore()")
        self._watermark_ms = value

    # --- states
    def state(self, name: str, *key: Any) -> Any:
        """A state as it was last committed: without what had expired by the time of that batch.

        Parameters
        ----------
        name
            Of the state.
        key
            The key columns' values. Without them: of all keys that came in, but those that have no Python value (a year
            past 9999). States that belong to no key take none.

        Returns
        -------
        Any
            A Python value: the value or result, or None where there is none; a list; a dict; of timers a list of
            dicts with ``time`` and ``namespace``, in order of time. Without a key: a dict of them by key (a tuple, or
            the value itself where there is one key column; structs as tuples too), without those that have nothing. Of
            a broadcast state a dict, of an operator state a list.
        """
        keys = [key] if key else list(self._keys)
        key_columns = self._inputs.key_schema.names
        declaration = dict(declared_states(self._processor)).get(name)
        if declaration is None:
            known = ", ".join(known for known, _ in declared_states(self._processor))
            raise InvalidRequest(f"{type(self._processor).__name__} has no state {name!r}; it has {known or 'none'}")
        of_no_key = isinstance(declaration, (BroadcastState, OperatorState))
        if key and (of_no_key or len(key) != len(key_columns)):
            of = "it belongs to no key" if of_no_key else f"the key columns are {', '.join(key_columns)}"
            raise InvalidRequest(f"state({name!r}): {key!r} has {len(key)} values; {of}")
        state_id = next(recorded.id for recorded in self._record.states if recorded.name == name)
        if not keys and not of_no_key:
            return {}
        live: Any = declaration.bind_batch(
            self._state.open(self._handle), state_id, KeyColumns(self._record.key_schema)
        )
        if of_no_key:
            return _map(live.items()) if isinstance(declaration, BroadcastState) else python_of(live.get(), name)
        is_timers = isinstance(declaration, Timers)
        columns = [pa.array([one[i] for one in keys], field.type) for i, field in enumerate(self._record.key_schema)]
        asked = pa.RecordBatch.from_arrays(columns, schema=self._record.key_schema)
        read = live.entries if isinstance(declaration, MapState) else live.list if is_timers else live.get
        found = python_of(read(asked), name)
        if isinstance(declaration, MapState):
            found = [_map(entries) for entries in found]
        if key:
            return found[0]
        single = len(key_columns) == 1
        several = isinstance(declaration, (ListState, MapState, Timers))
        there = [(one, value) for one, value in zip(keys, found) if (value if several else value is not None)]
        return {one[0] if single else one: value for one, value in there}

    # --- life and death
    def snapshot(self) -> Snapshot:
        """The last committed version, and time as it is."""
        return Snapshot(self._handle, self._next_batch, self._timestamp_ms, self._watermark_ms, tuple(self._keys))

    def restore(self, snapshot: Snapshot) -> None:
        """Goes back to a version, as a restart from a checkpoint does."""
        self._handle, self._next_batch = snapshot.handle, snapshot.next_batch
        self._timestamp_ms, self._watermark_ms = snapshot.timestamp_ms, snapshot.watermark_ms
        self._keys = dict.fromkeys(snapshot.keys)
        self._last = None

    def kill(self, *, lose_local_copies: bool = False) -> None:
        """Kills the worker process: what it had in memory is gone, and is read back from files.

        Parameters
        ----------
        lose_local_copies
            The machine is lost too: state is restored from the checkpoint folder alone.
        """
        self._background.stop()
        self._background = Background()
        if lose_local_copies:
            shutil.rmtree(os.path.join(self._folder, "local"), ignore_errors=True)
        self._open_state()

    def restart(self, processor: Processor | None = None) -> None:
        """Starts the query again, with the same or another processor.

        Raises
        ------
        Incompatible
            The processor's states are not those that were recorded.
        """
        self.kill()
        self._start(processor if processor is not None else self._processor)

    def close(self) -> None:
        """Ends it, and removes the folder if it is its own."""
        self._background.stop()
        self._state.release_memory()
        self._remove_folder()

    def __enter__(self) -> Harness:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, processor: Processor) -> None:
        if not isinstance(processor, Processor):
            raise InvalidRequest(
                f"expected a BatchProcessor or KeyedProcessor, found {processor!r}; a class needs its ()"
            )
        check_broadcast(processor, self._inputs.met, f"operator {self._name!r}")
        check_methods(processor, self._inputs.met, f"operator {self._name!r}")
        check_ttls(processor, any(one.time_columns for one in self._inputs.met), f"operator {self._name!r}")
        check_timers(processor, self._inputs.key_schema.names, self._inputs.watermarked, f"operator {self._name!r}")
        declared = OperatorRecord(
            name=self._name,
            max_parallelism=self._max_parallelism,
            slots=1,
            labels=(0,),
            key_schema=self._inputs.key_schema,
            null_keys=self._null_keys,
            states=state_records(processor),
            changes=state_changes(processor),
        )
        self._record = register_operator(self._store, declared, prefix=operator_prefix(QUERY_ID, self._name))
        ttls = lifetimes_of(declared_ttls(processor), self._record.states)
        note_ttls(self._store, operator_prefix(QUERY_ID, self._name), DeclaredTtls(self._next_batch, ttls))
        self._key_codec = _core.KeyCodec(self._record.key_schema, null_keys=self._record.null_keys)
        self._processor = processor
        self._open_state()

    def _remove_folder(self) -> None:
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)

    def _open_state(self) -> None:
        self._state = SlotState(
            record=self._record,
            slot=0,
            file_store=self._store,
            prefix=operator_prefix(QUERY_ID, self._name),
            local_dir=os.path.join(self._folder, "local"),
            settings=self._settings,
            background=self._background,
        )


def _milliseconds(what: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidRequest(f"{what}: expected whole milliseconds, an int, found {shown(value)}") from None


def _map(entries: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Of a map's entries; map keys that are structs as tuples."""
    return {_hashable(map_key): value for map_key, value in entries}


def _hashable(value: Any) -> Any:
    """A key's value with its structs as tuples, which Arrow takes for structs again; every NaN is one key."""
    if isinstance(value, dict):
        return tuple(map(_hashable, value.values()))
    return math.nan if isinstance(value, float) and value != value else value
