"""recovery: a state of 1 GB, opened again: on the machine that has a local copy, on a new one, and against Spark's own.

In a steady state: after many batches that change it, so that there are deltas (Spark: changelogs) to be replayed.
warm and cold: one slot without Spark, in a worker that knows nothing, from open to the first 1,000 values read; with
all files in the page cache, and with none of them. Storage is a local folder: on an object store, add the time of the
download.
vs_spark: a whole query, killed and started again in a new JVM without local files and with nothing in the page cache;
what its first batch takes longer than its later ones. The state is the same, cut in two, under Spark's RocksDB provider
with changelog. Restarts of both in turns.
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
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.figures import IN_TURNS, ROOT, arguments, at_most, in_turns, middle, ratio
from benchmarks.page_cache import forget
from benchmarks.records import recorded
from benchmarks.slot import PAYLOAD, Slot, payloads
from benchmarks.stream.last_payload import ROWS, spark_state
from benchmarks.stream.workload import start_session
from benchmarks.turns import turns
from pyspark.sql import DataFrame

import holdfast as hf
from holdfast.spark.metrics import operators_in

VALUE_BYTES = 100
#: What the state lives through before it is opened again, and what a query does after each restart.
STEADY_ROWS = 10_000
RESTART_FILES = 5


class LastPayload(hf.BatchProcessor):
    """Keeps the last payload of each key."""

    payload = hf.ValueState(pa.binary())

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.payload.put(batch, batch["payload"])


def holdfast_state(rows: DataFrame) -> DataFrame:
    """The state under Holdfast."""
    return rows.transform(hf.keyed("key", LastPayload(), ROWS, name="payloads", output_mode="update"))


ENGINES = {"holdfast": holdfast_state, "spark": spark_state}


def slot_recovery(folder: Path, stored: int, batches: int, rounds: int) -> None:
    """The slot alone."""
    # Folds and snapshots of a small form are due as early, for its size, as those of the full one.
    small = {"fold_bytes_max": 1 << 20, "snapshot_bytes_min": 1 << 20} if stored < 1_000_000 else {}
    slot = Slot(folder, PAYLOAD, **small)
    generator = np.random.default_rng(7)
    for start in range(0, stored, 500_000):
        keys = np.arange(start, min(start + 500_000, stored))
        slot.put(pa.array(keys), payloads(generator, len(keys), VALUE_BYTES))
        slot.settle()
    for _ in range(batches):
        slot.put(
            pa.array(generator.choice(stored, STEADY_ROWS, replace=False)),
            payloads(generator, STEADY_ROWS, VALUE_BYTES),
        )
        slot.settle()
    wanted = pa.array(generator.integers(0, stored, 1000))
    ways: dict[str, list[Opening]] = {"warm": [], "cold": [], "warm_uncached": [], "cold_uncached": []}
    for number in range(rounds):
        for name, found in ways.items():
            elsewhere = folder / f"elsewhere-{number}"
            cached = forget(folder) if name.endswith("_uncached") else None
            found.append(_open_and_read(slot, str(elsewhere) if name.startswith("cold") else None, wanted, cached))
            shutil.rmtree(elsewhere, ignore_errors=True)
    goals = {"warm": at_most(0.5), "cold": at_most(3)}
    for name, found in ways.items():
        deltas = "/".join(map(str, sorted({one.deltas for one in found})))
        note = f"{stored * (8 + VALUE_BYTES) / 1e9:.2f} GB, {deltas} deltas replayed"
        if name in goals:
            note += ", files in the page cache"
        else:
            note += f", {max(one.cached_bytes for one in found) / 1e6:.1f} MB of the files in the page cache before"
        middle(f"recovery.{name}_s", [one.seconds for one in found], goals.get(name), note, IN_TURNS)


@dataclass(frozen=True)
class Opening:
    """How long it took from open to the first values, how many deltas it replayed, what the page cache had before."""

    seconds: float
    deltas: int
    cached_bytes: int


def _open_and_read(slot: Slot, local: str | None, wanted: pa.Array, cached: int | None) -> Opening:
    start = time.perf_counter()
    state = slot.worker(local)
    store = state.open(slot.parent(state))
    values = pa.array(store.value_state(PAYLOAD.id, pa.binary()).get(wanted))
    seconds = time.perf_counter() - start
    if values.null_count:
        raise RuntimeError(f"{values.null_count} of {len(wanted)} values are missing")
    recovery = state.recovery
    if recovery is None:
        raise RuntimeError("a worker that knows nothing opened the slot without a recovery")
    before = "" if cached is None else f", {cached / 1e6:.1f} MB in the page cache before"
    print(f"{recovery.way}: {seconds:.3f} s, {recovery.deltas} deltas{before}", flush=True)
    state.release_memory()
    return Opening(seconds, recovery.deltas, cached or 0)


class Input:
    """Files that a query reads one a batch: large ones fill the state in order of keys, small ones touch any keys."""

    def __init__(self, folder: Path, stored: int, large_rows: int) -> None:
        self._folder, self._stored, self._files = folder, stored, 0
        folder.mkdir(parents=True)
        for start in range(0, stored, large_rows):
            self._write(np.arange(start, start + large_rows))

    def small(self, files: int, rows: int) -> None:
        """So many more, of so many rows."""
        for _ in range(files):
            self._write(np.random.default_rng(self._files).integers(0, self._stored, rows))

    def _write(self, keys: np.ndarray) -> None:
        path = self._folder / f"{self._files:05d}.parquet"
        generator = np.random.default_rng(self._files)
        pq.write_table(pa.table({"key": keys, "payload": payloads(generator, len(keys), VALUE_BYTES)}), path)
        os.utime(path, (1_000_000_000 + self._files, 1_000_000_000 + self._files))
        self._files += 1


def run_engine(folder: Path, engine: str) -> None:
    """The role of the child process: reads all new files, prints the milliseconds of its batches and of the first
    one's opening of our slots, and is killed.
    """
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
    opened = [operator.open_ms_max for operator in operators_in(query.recentProgress[0]).values()]
    print("MS " + json.dumps([ms, opened]), flush=True)
    os.killpg(0, signal.SIGKILL)  # the JVM too: nothing is closed in order


class Restarts:
    """One query with its state, that is killed and started again."""

    def __init__(self, folder: Path, engine: str, stored: int, large_rows: int, batches: int) -> None:
        self._folder, self._engine = folder, engine
        self._input = Input(folder / "input", stored, large_rows)
        self._input.small(batches, STEADY_ROWS)
        self.replayed: list[int] = []
        self.opening_s: list[float] = []
        _child(folder, engine)

    def once(self) -> float:
        """Seconds that the first batch after a restart takes longer than the later ones."""
        for local in ("holdfast-local", "spark-local"):
            shutil.rmtree(self._folder / local, ignore_errors=True)
        self._input.small(RESTART_FILES, STEADY_ROWS)
        if self._engine == "spark":
            self.replayed.append(changelogs_after_snapshots(self._folder / "checkpoint" / "state" / "0"))
        cached = forget(self._folder)
        ms, opened_ms = _child(self._folder, self._engine)
        self.opening_s += [each / 1000 for each in opened_ms]
        first, later = ms[0] / 1000, statistics.median(ms[2:]) / 1000
        told = f"{self._engine}: first batch {first:.2f} s, later ones {later:.2f} s"
        print(f"{told}, {cached / 1e6:.1f} MB in the page cache before", flush=True)
        return first - later


def changelogs_after_snapshots(state: Path) -> int:
    """Of Spark's operator: how many changelogs its partitions replay at the next start, in all."""
    found = 0
    for partition in state.glob("[0-9]*"):
        versions = {
            kind: [int(path.name.split(".")[0].split("_")[0]) for path in partition.glob(f"*.{kind}")]
            for kind in ("zip", "changelog")
        }
        newest = max(versions["zip"], default=0)
        found += sum(version > newest for version in versions["changelog"])
    return found


def _child(folder: Path, engine: str) -> tuple[list[float], list[float]]:
    command = [sys.executable, "-m", "benchmarks.recovery.recovery", "--child", engine, "--folder", str(folder)]
    child = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True, start_new_session=True)
    if child.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the {engine} query ended with exit code {child.returncode}")
    (line,) = [line for line in child.stdout.splitlines() if line.startswith("MS ")]
    batches, opened = json.loads(line.removeprefix("MS "))
    return batches, opened


def main() -> None:
    """1 GB: 9.2M keys with values of 100 bytes."""
    parser = arguments(__doc__, gigabytes=1.0, batches=40, rounds=6)
    parser.add_argument("--child", choices=list(ENGINES), help="used by the benchmark itself")
    parser.add_argument("--only", choices=["slot", "query"], help="one part")
    given = parser.parse_args()
    if given.child:
        run_engine(given.folder, given.child)
        return
    gigabytes = 0.02 if given.short else given.gigabytes
    batches, rounds = (6, 1) if given.short else (given.batches, given.rounds)
    large_rows = 50_000 if given.short else 1_000_000
    stored = max(1, int(gigabytes * 1e9 / (8 + VALUE_BYTES) / large_rows)) * large_rows
    with recorded(given) as folder:
        if given.only in (None, "slot"):
            slot_recovery(folder / "slot", stored, batches, rounds)
        if given.only in (None, "query"):
            queries(folder, stored, large_rows, batches, rounds)


def queries(folder: Path, stored: int, large_rows: int, batches: int, rounds: int) -> None:
    """Ours and Spark's, each restarted so many times."""
    queries = {engine: Restarts(folder / engine, engine, stored, large_rows, batches) for engine in ENGINES}
    found = turns(list(ENGINES), rounds, lambda engine: queries[engine].once())
    replayed = sorted(queries["spark"].replayed)
    note = f"seconds more than a later batch, the start of workers among them; Spark replayed {replayed} changelogs"
    ratio("recovery.vs_spark", in_turns(found["holdfast"], found["spark"]), at_most(0.3), note)
    middle("recovery.restart_s", found["holdfast"], how=IN_TURNS)
    middle(
        "recovery.opening_s",
        queries["holdfast"].opening_s,
        note="the slower slot of the same first batch",
        how=IN_TURNS,
    )


if __name__ == "__main__":
    main()
