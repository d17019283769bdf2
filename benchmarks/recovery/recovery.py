"""recovery: a state of 1 GB, opened again: on the machine that has a local copy, on a new one, and against Spark's own.

warm and cold: one slot without Spark, in a worker that knows nothing, from open to the first 1,000 values read. The
files are in the page cache, and storage is a local folder: on an object store, add the time of the download.
vs_spark: a whole query, killed and started again in a new JVM without local files; what its first batch takes longer
than its later ones. The state is the same, cut in two, under Spark's RocksDB provider with changelog.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.figures import IN_TURNS, ROOT, arguments, at_most, figure, middle
from benchmarks.records import recorded
from benchmarks.slot import PAYLOAD, Slot, payloads
from benchmarks.stream.workload import start_session
from pyspark.sql import DataFrame

import holdfast as hf

VALUE_BYTES = 100
SMALL_ROWS = 1000
SMALL_FILES = 6
ROWS = "key long, payload binary"


class LastPayload(hf.BatchProcessor):
    """Keeps the last payload of each key."""

    payload = hf.ValueState(pa.binary())

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.payload.put(batch, batch["payload"])


def holdfast_state(rows: DataFrame) -> DataFrame:
    """The state under Holdfast."""
    return rows.transform(hf.keyed("key", LastPayload(), ROWS, name="payloads", output_mode="update"))


def spark_state(rows: DataFrame) -> DataFrame:
    """The state under Spark's provider: the last payload, as an aggregation keeps it."""
    return rows.groupBy("key").agg({"payload": "last"})


ENGINES = {"holdfast": holdfast_state, "spark": spark_state}


def slot_recovery(folder: Path, stored: int, rounds: int) -> None:
    """The slot alone."""
    # Folds and snapshots of a small form are due as early, for its size, as those of the full one.
    small = {"fold_bytes_max": 1 << 20, "snapshot_bytes_min": 1 << 20} if stored < 1_000_000 else {}
    slot = Slot(folder, PAYLOAD, **small)
    generator = np.random.default_rng(7)
    for start in range(0, stored, 500_000):
        keys = np.arange(start, min(start + 500_000, stored))
        slot.put(pa.array(keys), payloads(generator, len(keys), VALUE_BYTES))
        slot.settle()
    for _ in range(3):  # so that a handle names the newest snapshot
        slot.put(pa.array(np.arange(100)), payloads(generator, 100, VALUE_BYTES))
        slot.settle()
    wanted = pa.array(generator.integers(0, stored, 1000))
    warm, cold = [], []
    for number in range(rounds):
        warm.append(_open_and_read(slot, None, wanted))
        elsewhere = folder / f"elsewhere-{number}"
        cold.append(_open_and_read(slot, str(elsewhere), wanted))
        shutil.rmtree(elsewhere)
    note = f"{stored * (8 + VALUE_BYTES) / 1e9:.2f} GB"
    middle("recovery.warm_s", warm, at_most(0.5), note, IN_TURNS)
    middle("recovery.cold_s", cold, at_most(3), note, IN_TURNS)


def _open_and_read(slot: Slot, local: str | None, wanted: pa.Array) -> float:
    start = time.perf_counter()
    state = slot.worker(local)
    store = state.open(slot.parent(state))
    values = pa.array(store.value_state(PAYLOAD.id, pa.binary()).get(wanted))
    seconds = time.perf_counter() - start
    if values.null_count:
        raise RuntimeError(f"{values.null_count} of {len(wanted)} values are missing")
    way = state.recovery.way if state.recovery else "unknown"
    print(f"{way}: {seconds:.3f} s", flush=True)
    state.release_memory()
    return seconds


def write_files(folder: Path, first: int, sizes: list[int], stored: int) -> None:
    """Input files, numbered on; large ones fill the state in order of keys, small ones touch it anywhere."""
    generator = np.random.default_rng(first)
    folder.mkdir(exist_ok=True)
    filled = 0
    for number, size in enumerate(sizes, first):
        if size == SMALL_ROWS:
            keys = generator.integers(0, stored, size)
        else:
            keys = np.arange(filled, filled + size)
            filled += size
        path = folder / f"{number:05d}.parquet"
        pq.write_table(pa.table({"key": keys, "payload": payloads(generator, size, VALUE_BYTES)}), path)
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))


def run_engine(folder: Path, engine: str) -> None:
    """The role of the child process: reads all new files, prints the milliseconds of its batches, and is killed."""
    spark = start_session(folder)
    rows = spark.readStream.schema(ROWS).option("maxFilesPerTrigger", 1).parquet(str(folder / "input"))
    query = (
        ENGINES[engine](rows)
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    ms = [batch.durationMs["triggerExecution"] for batch in query.recentProgress if batch.numInputRows]
    print("MS " + json.dumps(ms), flush=True)
    os.killpg(0, signal.SIGKILL)  # the JVM too: nothing is closed in order


def restart_cost(folder: Path, engine: str, stored: int, large_rows: int) -> float:
    """Seconds that the first batch after a restart takes longer than the later ones."""
    folder.mkdir()
    large = [large_rows] * (stored // large_rows)
    write_files(folder / "input", 0, large + [SMALL_ROWS] * SMALL_FILES, stored)
    _child(folder, engine)
    shutil.rmtree(folder / "holdfast-local", ignore_errors=True)
    shutil.rmtree(folder / "spark-local", ignore_errors=True)
    write_files(folder / "input", len(large) + SMALL_FILES, [SMALL_ROWS] * SMALL_FILES, stored)
    ms = _child(folder, engine)
    first, later = ms[0] / 1000, statistics.median(ms[2:]) / 1000
    print(f"{engine}: first batch {first:.2f} s, later ones {later:.2f} s", flush=True)
    return first - later


def _child(folder: Path, engine: str) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.recovery.recovery", "--child", engine, "--folder", str(folder)]
    child = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True, start_new_session=True)
    if child.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the {engine} query ended with exit code {child.returncode}")
    (line,) = [line for line in child.stdout.splitlines() if line.startswith("MS ")]
    found: list[float] = json.loads(line.removeprefix("MS "))
    return found


def main() -> None:
    """1 GB: 9.2M keys with values of 100 bytes."""
    parser = arguments(__doc__, gigabytes=1.0, rounds=5)
    parser.add_argument("--child", choices=list(ENGINES), help="used by the benchmark itself")
    parser.add_argument("--only", choices=["slot", "query"], help="one part")
    given = parser.parse_args()
    if given.child:
        run_engine(given.folder, given.child)
        return
    gigabytes = 0.02 if given.short else given.gigabytes
    large_rows = 50_000 if given.short else 1_000_000
    stored = max(1, int(gigabytes * 1e9 / (8 + VALUE_BYTES) / large_rows)) * large_rows
    with recorded(given) as folder:
        if given.only in (None, "slot"):
            slot_recovery(folder / "slot", stored, given.rounds)
        if given.only in (None, "query"):
            ours = restart_cost(folder / "holdfast", "holdfast", stored, large_rows)
            theirs = restart_cost(folder / "spark", "spark", stored, large_rows)
            note = f"{ours:.2f} s against {theirs:.2f} s more than a later batch; both with the start of their workers"
            figure("recovery.vs_spark", ours / theirs, at_most(0.3), note)


if __name__ == "__main__":
    main()
