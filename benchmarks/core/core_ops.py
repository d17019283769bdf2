"""core_ops: read-modify-write in the core, against the same by RocksDB's C API alone; and on keys that are in memory.

No Spark. One thread. Cold means: opened anew, nothing of the state in the process;
the files are in the page cache for both.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from benchmarks.figures import ROOT, arguments, at_least, in_turns, middle, ratio, spread
from benchmarks.records import recorded

from holdfast import _core, rocksdb_library

KEYS = pa.schema([("key", pa.int64())])
STATE_ID = 1
PARALLELISM = 4096
# Two ways to read that RocksDB has; the comparator takes the one that is faster here.
TABLES = "block_based_table_factory={{filter_policy=bloomfilter:10:false;block_cache={}}};"
READ_OPTIONS = {
    "mapped files": "allow_mmap_reads=true;" + TABLES.format("8M"),
    "block cache": TABLES.format("256M"),
}
COMMON_OPTIONS = "max_open_files=-1;write_buffer_size=268435456;info_log_level=FATAL_LEVEL;compression=kNoCompression;"


def new_store() -> tuple[_core.Store, _core.ReducingTable]:
    """A slot that holds all key groups, with one sum."""
    store = _core.Store(KEYS, max_parallelism=PARALLELISM, first_key_group=0, end_key_group=PARALLELISM)
    return store, store.reducing_state(STATE_ID, pa.int64(), "sum")


def scattered(numbers: np.ndarray) -> pa.Array:
    """Keys that are far from each other where their numbers are near: a bijection of 64 bits."""
    return pa.array((numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64))


def make_base(folder: Path, stored: int) -> Path:
    """A base of so many keys."""
    store, table = new_store()
    directory = folder / "base"
    writer = _core.BaseWriter(None, str(directory), _core.BaseOptions())
    store.begin(1)
    for start in range(0, stored, 1_000_000):
        keys = scattered(np.arange(start, min(start + 1_000_000, stored)))
        table.add_only(keys, pa.array(np.ones(len(keys), np.int64)))
        writer.add(store.take_delta())
    writer.finish()
    return directory


def holdfast_cold(directory: Path, keys: pa.Array, ones: pa.Array) -> float:
    """Milliseconds from opening the base to a delta of all changes."""
    start = time.perf_counter()
    store, table = new_store()
    store.set_base(_core.Base(str(directory), _core.BaseOptions()), 1)
    store.begin(2)
    table.add_only(keys, ones)
    delta = store.take_delta()
    store.commit()
    ms = (time.perf_counter() - start) * 1000
    if len(delta) != len(keys):
        raise RuntimeError(f"expected {len(keys)} changes, found {len(delta)}")
    return ms


def store_keys(keys: pa.Array) -> tuple[bytes, int]:
    """The keys as they are stored, in the order of the rows, and the size of each."""
    codec = _core.KeyCodec(KEYS)
    groups = pa.array(codec.key_groups(keys, PARALLELISM)).to_numpy().astype(">u2")
    encoded = pa.array(codec.encode(keys))
    size = len(encoded[0].as_py())
    body = np.frombuffer(encoded.buffers()[2], np.uint8, count=size * len(keys)).reshape(-1, size)
    head = np.empty((len(keys), 4), np.uint8)
    head[:, :2] = groups.view(np.uint8).reshape(-1, 2)
    head[:, 2:] = np.frombuffer(STATE_ID.to_bytes(2, "big"), np.uint8)
    return np.hstack([head, body]).tobytes(), size + 4


def compile_comparator(folder: Path) -> Path:
    """bare_rocksdb, optimised."""
    program = folder / "bare_rocksdb"
    source = ROOT / "benchmarks" / "core" / "bare_rocksdb.cc"
    compiler = os.environ.get("CXX", "c++")
    subprocess.run([compiler, "-std=c++20", "-O3", str(source), "-o", str(program), "-ldl"], check=True)
    return program


def bare_cold(program: Path, base: Path, folder: Path, keys: pa.Array, options: str) -> float:
    """Milliseconds of the comparator, on a copy of the base."""
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for file in base.iterdir():
        if file.suffix == ".sst":
            os.link(file, copy / file.name)
        elif file.name != "SEAL":
            shutil.copy(file, copy)
    content, key_bytes = store_keys(keys)
    (folder / "keys").write_bytes(content)
    library = str(rocksdb_library.load().path)
    command = [str(program), library, str(copy), str(folder / "keys"), str(key_bytes), options]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    parts = dict(line.split() for line in output.splitlines())
    return float(parts["open_ms"]) + float(parts["get_ms"]) + float(parts["put_ms"])


def cold(folder: Path, stored: int, touched: int, rounds: int) -> None:
    """Both on the same keys of the same base, in turn."""
    base = make_base(folder, stored)
    program = compile_comparator(folder)
    generator = np.random.default_rng(7)
    ours: list[float] = []
    theirs: dict[str, list[float]] = {name: [] for name in READ_OPTIONS}
    for _ in range(rounds):
        keys = scattered(generator.choice(stored, touched, replace=False))
        ones = pa.array(np.ones(touched, np.int64))
        ours.append(touched / holdfast_cold(base, keys, ones) * 1000)
        for name, options in READ_OPTIONS.items():
            theirs[name].append(touched / bare_cold(program, base, folder, keys, COMMON_OPTIONS + options) * 1000)
    print(f"{touched:,} of {stored:,} keys: holdfast {spread(ours)} rows/s")
    for name, rates in theirs.items():
        print(f"{touched:,} of {stored:,} keys: RocksDB, {name} {spread(rates)} rows/s")
    best = max(theirs, key=lambda name: statistics.median(theirs[name]))
    ratio("core_ops.vs_rocksdb", in_turns(ours, theirs[best]), at_least(1.0), f"RocksDB at its best: {best}")


def hot(rows: int, distinct: int, rounds: int) -> None:
    """Batches over keys that the overlay holds: rows per second of one core."""
    store, table = new_store()
    generator = np.random.default_rng(7)
    rates = []
    for batch in range(rounds + 2):
        keys = scattered(generator.integers(0, distinct, rows))
        ones = pa.array(np.ones(rows, np.int64))
        store.begin(batch + 1)
        start = time.process_time()
        table.add_only(keys, ones)
        seconds = time.process_time() - start
        store.take_delta()
        store.commit()
        if batch >= 2:
            rates.append(rows / seconds)
    note = f"quartiles {spread(rates)}; {rows:,} rows over {distinct:,} keys"
    middle("core_ops.hot_rows_per_s", rates, at_least(5e6), note)


def main() -> None:
    """480,000 of 5M keys; 1M rows over 20,000 keys."""
    parser = arguments(__doc__, stored=5_000_000, touched=480_000, rounds=10)
    given = parser.parse_args()
    rocksdb_library.load()
    with recorded(given) as folder:
        if given.short:
            cold(folder, 200_000, 20_000, 5)
            hot(200_000, 20_000, 5)
        else:
            cold(folder, given.stored, given.touched, given.rounds)
            hot(1_000_000, 20_000, given.rounds)


if __name__ == "__main__":
    main()
