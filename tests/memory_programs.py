"""Programs of tests that measure memory, each in a process of its own: what one before it took would count too.

Run as ``python -m tests.memory_programs NAME ARGUMENT …``; the last line they print is JSON.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from tests.checkpoint_driver import SlotDriver

import holdfast as hf
from holdfast.checkpoint import CheckpointSettings
from holdfast.testing import Harness

MIB = 1 << 20
KEYS = 100


def measured(name: str, *given: object) -> Any:
    """What a program found, run in a new process."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.memory_programs", name, *map(str, given)],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=Path(__file__).parent.parent,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def anonymous_bytes() -> int:
    """Memory of this process that is no file's, once freed memory was given back."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's own
    if trim is not None:
        trim(0)
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon:"))


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# --- one large value
class KeepsOne(hf.BatchProcessor):
    """Keeps what comes; gives the size of what is kept where nothing comes."""

    kept = hf.ValueState(pa.binary())

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        if batch["value"].null_count == 0:
            self.kept.put(batch, batch["value"])
        else:
            yield pa.record_batch([batch["key"], pc.binary_length(self.kept.get(batch))], names=["key", "size"])


def incompressible(size_bytes: int) -> pa.Array:
    """One value, made without a second copy of it."""
    buffer = pa.allocate_buffer(size_bytes)
    view = memoryview(buffer).cast("B")
    some = os.urandom(MIB)
    for begin in range(0, size_bytes, MIB):
        view[begin : begin + MIB] = some
    offsets = pa.array([0, size_bytes], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, buffer])


def large_value(backend: str, mib: str, folder: str) -> dict[str, float]:
    """A value written, folded, written again, read after a reopening and after a restore, one thing after the other;
    what its process took at most, above what it takes without, in sizes of the value.
    """
    size_bytes = int(mib) * MIB
    schema = pa.schema([("key", pa.string()), ("value", pa.binary())])
    out = pa.schema([("key", pa.string()), ("size", pa.int32())])
    given = {"fold.deltas.max": 1, "snapshot.deltas.max": 1}
    with Harness(KeepsOne(), "key", schema, out, backend=backend, settings=given, folder=folder) as harness:  # type: ignore[arg-type]

        def run(value: pa.Array) -> list[int]:
            rows = harness.process(pa.record_batch([pa.array(["a"]), value], schema=schema))
            harness._state.forget_clean()  # as a worker does above memory.cache.max
            assert harness._background.drain(600)
            return rows["size"].to_pylist()

        nothing = pa.array([None], pa.binary())
        run(pa.array([b"small"]))
        run(nothing)
        before = _peak_bytes()
        run(incompressible(size_bytes))
        written = _peak_bytes()
        run(incompressible(size_bytes))
        for lost in (False, True):
            harness.kill(lose_local_copies=lost)
            anonymous_bytes()  # a process that is killed leaves nothing; this one goes on
            assert run(nothing) == [size_bytes]
    return {"written": (written - before) / size_bytes, "in all": (_peak_bytes() - before) / size_bytes}


def large_values_at_once(backend: str, count: str, mib: str, folder: str) -> dict[str, float]:
    """Several values read from a base or deltas as a slot opens; the peak above what they take, in sizes of one."""
    size_bytes = int(mib) * MIB
    settings = CheckpointSettings(backend=backend, fold_deltas_max=1, batch_memory_max_bytes=4096 * MIB)
    driver = SlotDriver(folder, settings=settings)
    process = driver.process()
    keys = pa.array(range(int(count)), pa.int64())
    for number in range(int(count)):
        states = process.state.open(driver.handle).value_state(91, pa.binary())
        process.state.begin(driver.next_batch)
        states.put(keys.slice(number, 1), incompressible(size_bytes))
        driver.handle = process.state.prepare()
        driver.next_batch += 1
        process.rest()
    process.state.release_memory()
    del states
    anonymous_bytes()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is now what there is
    before = _peak_of_status()
    held = process.state.open(driver.handle)
    assert pa.array(held.value_state(91, pa.binary()).get(keys.slice(0, 1)))[0].as_buffer().size == size_bytes
    return {"above": (_peak_of_status() - before) / size_bytes}


def _peak_of_status() -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


# --- many small batches
class ComesAndGoes(hf.BatchProcessor):
    """Two sets of keys by turns: the same ones, and such as no batch had before, whose predecessors are removed."""

    value = hf.ValueState(pa.string())
    cleared = hf.ListState(pa.string())
    refilled = hf.ListState(pa.string())
    entries = hf.MapState(pa.int64(), pa.string())
    total = hf.ReducingState(pa.int64(), "sum")
    expires = hf.ValueState(pa.string(), ttl="20 s")
    due = hf.Timers("processing")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        text = pa.array([f"{ctx.batch_id} of {row}" * 3 for row in range(batch.num_rows)])
        now = pa.array([ctx.batch_id] * batch.num_rows, pa.int64())
        before = pa.array([ctx.batch_id - 2] * batch.num_rows, pa.int64())
        self.value.put(batch, text)
        self.cleared.add(batch, text)
        self.cleared.clear(batch)
        self.refilled.update(batch, pa.array([[one] for one in text.to_pylist()]))
        self.entries.put(batch, now, text)
        self.entries.remove(batch, before)
        self.total.add_only(batch, now)
        self.expires.put(batch, text)
        self.due.register(batch, [ctx.timestamp + timedelta(seconds=3)] * batch.num_rows)
        gone = pa.record_batch([pa.array([key - 2 * KEYS for key in batch["key"].to_pylist()])], names=["key"])
        for state in (self.value, self.refilled, self.entries, self.total):
            state.clear(gone)

    def on_timers(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        """Fired ones are gone."""


def small_batches(backend: str, count: str, folder: str) -> dict[str, list[int]]:
    """Memory of the process, and what the overlay says of its own, twenty times on the way."""
    schema = pa.schema([("key", pa.int64())])
    given = {"fold.deltas.max": 8, "snapshot.deltas.max": 32}
    found: dict[str, list[int]] = {"process": [], "overlay": []}
    with Harness(ComesAndGoes(), "key", schema, schema, backend=backend, settings=given, folder=folder) as harness:  # type: ignore[arg-type]
        # As a query does, and a Harness does not, which may be asked to go back to any version.
        harness._settings = replace(harness._settings, retained_batches=10)
        harness.kill()
        for number in range(int(count)):
            first = number * KEYS if number % 2 else 0
            harness.process(pa.record_batch([pa.array(range(first, first + KEYS))], schema=schema))
            harness._keys.clear()
            harness.advance(1000)
            if (number + 1) % (int(count) // 20) == 0:
                assert harness._background.drain(600)
                found["overlay"].append(harness._state.memory_bytes)
                found["process"].append(anonymous_bytes())
    return found


# --- an open base
def open_base(entries: str, cache_mib: str, folder: str) -> dict[str, float]:
    """A base as workers with limited memory read it, not mapped; larger than its block cache: what that takes."""
    from holdfast import _core, rocksdb_library
    from holdfast.checkpoint.delta_file import DELTA_SCHEMA

    rocksdb_library.load()
    resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))  # any limit: bases are not mapped
    count = int(entries)
    options = _core.BaseOptions(block_cache_bytes=int(cache_mib) * MIB)
    writer = _core.BaseWriter(None, folder + "/base", options)
    some = 100_000
    for begin in range(0, count, some):
        rows = range(begin, min(begin + some, count))
        keys = pa.array([b"%09d" % row for row in rows], pa.binary())  # 13 bytes with key group and state
        values = pa.array([b"%016d" % row for row in rows], pa.binary())
        parts = [pa.array([0] * len(rows), pa.uint16()), pa.array([1] * len(rows), pa.uint16()), keys, values]
        writer.add(pa.RecordBatch.from_arrays(parts, schema=DELTA_SCHEMA))
    writer.finish()
    del writer, parts, keys, values
    before = anonymous_bytes()
    base = _core.Base(folder + "/base", options)
    opened = anonymous_bytes()
    read = sum(pa.record_batch(batch).num_rows for batch in base.scan(batch_rows=1000))
    assert read == count
    return {"a key": (opened - before) / count, "read": float(anonymous_bytes() - opened)}


__all__ = ["anonymous_bytes", "measured"]

if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
