"""memory: the peak of a Python worker against what it was told to stay within, and what Spark's provider takes.

The same query as keyed_sum over more keys than the budget holds. What a worker takes with nothing to do (Python,
pyarrow, pandas) is measured with the same query over a thousand rows and taken off; so is the JVM's. And the peak with
one batch of many rows against one of a tenth of them: a batch is as large as it likes.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from benchmarks.conditions import descendants
from benchmarks.figures import arguments, at_most, figure
from benchmarks.records import recorded
from benchmarks.stream.rivals import RIVALS
from benchmarks.stream.ways import Way, holdfast
from benchmarks.stream.workload import made_rows, run, start_session
from pyspark.sql import SparkSession

MIB = 1 << 20


class PeakMemory:
    """Watches the descendants of this process: the largest resident set of a Python worker, and of the JVM."""

    def __init__(self) -> None:
        self.worker_bytes = 0
        self.jvm_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            for process in descendants(os.getpid()):
                with contextlib.suppress(OSError):
                    # A process that the JVM has forked and that is not another program yet has the JVM's memory.
                    program, *arguments = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
                    # Mapped files (the library, the state's) are the page cache's: anonymous memory counts.
                    size_bytes = self._anonymous_bytes(process)
                    if b"pyspark.daemon" in arguments:
                        self.worker_bytes = max(self.worker_bytes, size_bytes)
                    elif program.endswith(b"/java"):
                        self.jvm_bytes = max(self.jvm_bytes, size_bytes)

    @staticmethod
    def _anonymous_bytes(process: int) -> int:
        for line in Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        return 0


def main() -> None:
    """6M keys, some of them in every batch, under a budget of 64 MiB of changes and 64 MiB of cache a worker."""
    parser = arguments(__doc__, rows=1_000_000, keys=6_000_000, batches=12, budget_mib=64, large_batch=100_000_000)
    parser.add_argument("--only", choices=["budget", "large-batch"], help="one part")
    given = parser.parse_args()
    if given.short:
        given.rows, given.keys, given.batches, given.budget_mib, given.large_batch = 100_000, 400_000, 4, 8, 1_000_000
    settings = {
        "memory.batch.max": given.budget_mib * MIB,
        "memory.cache.max": given.budget_mib * MIB,
        "memory.spool.max": given.budget_mib * MIB // 4,
    }
    with recorded(given) as folder:
        if given.only in (None, "budget"):
            spark = start_session(folder)
            _budget(spark, folder, given.rows, given.keys, given.batches, settings)
            spark.stop()
        if given.only in (None, "large-batch"):
            _large_batch(folder, given.large_batch, given.keys, settings)


def _budget(spark: SparkSession, folder: Path, rows: int, keys: int, batches: int, settings: Mapping[str, int]) -> None:
    # A worker of two slots by turns: the batch at hand, a fold in the background, the cache, the spool, and three times
    # the pack memory (32 MiB).
    budget = sum(settings.values()) + settings["memory.batch.max"] + 3 * 32 * MIB
    idle = _measure_ours(spark, folder, 1000, 100, 3, settings)
    ours = _measure_ours(spark, folder, rows, keys, batches, settings)
    theirs = _measure(spark, folder, rows, keys, batches, RIVALS["Spark SQL, RocksDB as it comes"])
    worker = ours.worker_bytes - idle.worker_bytes
    note = f"peak {ours.worker_bytes / MIB:.0f} MiB, {idle.worker_bytes / MIB:.0f} MiB of them without state"
    figure("memory.worker_mib", worker / MIB, note=note)
    figure("memory.budget_mib", budget / MIB, note="batch, fold, cache, spool and pack memory")
    figure("memory.of_budget", worker / budget, at_most(1.0))
    jvm = max(0, theirs.jvm_bytes - ours.jvm_bytes)
    figure("memory.spark_provider_mib", jvm / MIB, note=f"rise of the JVM to {theirs.jvm_bytes / MIB:.0f} MiB")


def _large_batch(folder: Path, rows: int, keys: int, settings: Mapping[str, int]) -> None:
    """Each in workers of its own: one that has had a query before keeps its state in the cache."""
    peaks = []
    for size in (rows // 10, rows):
        spark = start_session(folder)
        peak = _measure_ours(spark, folder, size, keys, 1, settings)
        spark.stop()
        print(f"one batch of {size:,} rows: a worker's peak is {peak.worker_bytes / MIB:.0f} MiB", flush=True)
        peaks.append(peak.worker_bytes)
    note = f"a worker's peak with a batch of {rows:,} rows ÷ with one of {rows // 10:,}"
    figure("memory.large_batch", peaks[1] / peaks[0], at_most(1.1), note)


def _measure_ours(
    spark: SparkSession, folder: Path, rows: int, keys: int, batches: int, settings: Mapping[str, int]
) -> PeakMemory:
    return _measure(spark, folder, rows, keys, batches, Way(lambda made: holdfast(made, None, **settings)))


def _measure(spark: SparkSession, folder: Path, rows: int, keys: int, batches: int, way: Way) -> PeakMemory:
    source = made_rows(spark, rows, f"pmod(xxhash64(value), {keys})")
    with PeakMemory() as peak:
        run(way, source, rows, folder, measured=batches, warm_up=0)
        time.sleep(0.2)
    return peak


if __name__ == "__main__":
    main()
