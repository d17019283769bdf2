"""One slot driven without Spark, as Spark's tasks drive it: open at a handle, a batch, the next handle."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast import rocksdb_library
from holdfast._core import Store
from holdfast.checkpoint import (
    BatchTime,
    CheckpointSettings,
    Handle,
    Lifetime,
    OperatorRecord,
    SlotState,
    StateRecord,
    StoredHandle,
    process_background,
)
from holdfast.spark.slot_batch import run_batch
from holdfast.state import Context, Processor
from holdfast.storage import LocalFileStore
from holdfast.storage.file_store import Data

KEYS = pa.schema([("key", pa.int64())])
TOTAL = StateRecord(id=1, name="total", kind="reducing", schema=pa.schema([("value", pa.int64())]), function="sum")
PAYLOAD = StateRecord(id=1, name="payload", kind="value", schema=pa.schema([("value", pa.binary())]), function=None)


class CountingStore(LocalFileStore):
    """A folder that counts what is uploaded to it."""

    delta_bytes = 0
    snapshot_bytes = 0

    def put(self, name: str, data: Data) -> None:
        self._count(name, len(memoryview(data)))
        super().put(name, data)

    def put_file(self, name: str, path: str) -> None:
        self._count(name, Path(path).stat().st_size)
        super().put_file(name, path)

    def _count(self, name: str, size_bytes: int) -> None:
        if "/delta/" in name:
            self.delta_bytes += size_bytes
        else:
            self.snapshot_bytes += size_bytes


class Slot:
    """The only slot of an operator, in as many workers of one machine as asked for."""

    def __init__(self, folder: Path, *states: StateRecord, workers: int = 1, **settings: Any) -> None:
        rocksdb_library.load()
        self.store = CountingStore(str(folder / "state"))
        self.record = OperatorRecord(
            name="slot", max_parallelism=4096, slots=1, labels=(0,), key_schema=KEYS, null_keys=False, states=states
        )
        self.settings = CheckpointSettings(**settings)
        self.handle: Handle | None = None
        self._text: str | None = None
        self.batch_id = 0
        self.lifetimes: tuple[Lifetime, ...] = ()
        self.now_ms = 1_700_000_000_000
        self._local = str(folder / "local")
        self._workers = [self.worker() for _ in range(workers)]
        self._stays_in: int | None = None

    def worker(self, local: str | None = None) -> SlotState:
        """The slot in another worker, which knows nothing yet."""
        return SlotState(
            record=self.record,
            slot=0,
            file_store=self.store,
            prefix="query/slot",
            local_dir=local or self._local,
            settings=self.settings,
        )

    def evolve(self, *states: StateRecord) -> None:
        """The slot as the next program has it: other states, in workers that know nothing yet."""
        self.record = replace(self.record, states=states)
        self._workers = [self.worker() for _ in self._workers]

    def add(self, keys: pa.Array, values: pa.Array) -> float:
        """A batch that adds to totals, in the next worker. Milliseconds from open to the durable handle."""
        start = time.perf_counter()
        state, store = self._begin()
        store.reducing_state(TOTAL.id, pa.int64(), "sum").add_only(keys, values)
        return self._prepare(state, start)

    def put(self, keys: pa.Array, values: pa.Array) -> float:
        """A batch that sets payloads. Milliseconds, as above."""
        start = time.perf_counter()
        state, store = self._begin()
        table = store.value_state(PAYLOAD.id, pa.binary())
        for at in range(0, len(keys), 65536):
            table.put(keys.slice(at, 65536), values.slice(at, 65536))
            state.spill_if_needed()
        return self._prepare(state, start)

    def process(
        self, processor: Processor, output: pa.Schema, timestamp_ms: int, batches: Iterable[pa.RecordBatch]
    ) -> tuple[float, int]:
        """A batch of a processor, as a task runs it. Milliseconds, as above, and rows of output."""
        start = time.perf_counter()
        state = self._next_worker()
        ctx = Context(query_id="q", operator="slot", batch_id=self.batch_id, timestamp_ms=timestamp_ms, slot=0, slots=1)
        rows = ((0, batch) for batch in batches)
        produced = run_batch(processor, state, self.parent(state), rows, ctx, record=self.record, output_schema=output)
        given = sum(out.num_rows for _, out in produced)
        return self._prepare(state, start), given

    def settle(self) -> None:
        """Waits until folds and uploads are done."""
        process_background().drain()

    def stay(self) -> None:
        """From here on every batch is in the worker that had the last one."""
        self._stays_in = (self.batch_id - 1) % len(self._workers)

    def take_turns(self) -> None:
        """From here on, and from the beginning, each batch is in the next worker."""
        self._stays_in = None

    def _next_worker(self) -> SlotState:
        return self._workers[self.batch_id % len(self._workers) if self._stays_in is None else self._stays_in]

    def parent(self, state: SlotState) -> Handle | None:
        """The version that the next batch runs on, of which a task has the text."""
        return state.whole(StoredHandle.from_text(self._text)) if self._text is not None else None

    def _begin(self) -> tuple[SlotState, Store]:
        state = self._next_worker()
        store = state.open(self.parent(state))
        state.begin(self.batch_id, None, self.lifetimes, BatchTime(self.now_ms))
        return state, store

    def _prepare(self, state: SlotState, start: float) -> float:
        handle = state.prepare()
        self._text = handle.to_text()
        ms = (time.perf_counter() - start) * 1000
        self.handle = handle
        self.batch_id += 1
        return ms


def payloads(generator: np.random.Generator, count: int, size: int) -> pa.Array:
    """Binary values that no compression makes smaller."""
    content = pa.py_buffer(generator.bytes(count * size))
    offsets = pa.py_buffer(np.arange(0, (count + 1) * size, size, dtype=np.int32))
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets, content])
