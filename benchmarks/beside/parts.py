"""What is measured in a tree of any commit: parts of the engine, and a whole query; processor seconds of each, as JSON.

Run by benchmarks/beside/earlier.py, with the tree's own ``holdfast`` and ``benchmarks.slot``: so nothing is used here
but what both commits have. No benchmark by itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.slot import TOTAL, Slot

SMALL = 100
STORED = 1_000_000
FILES = 60
WARM_UP = 20


def ones(count: int) -> pa.Array:
    """As many ones."""
    return pa.array(np.ones(count, np.int64))


def of_process(work: Callable[[], None]) -> float:
    """Processor seconds of this process, its background thread included."""
    start = time.process_time()
    work()
    return time.process_time() - start


def of_tree() -> float:
    """Processor seconds of this process and of all its descendants so far, those that have ended included."""
    total = 0.0
    here = psutil.Process()
    for process in [here, *here.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def filled(folder: Path, stored: int, workers: int) -> Slot:
    """A slot with a total for each key below ``stored``."""
    slot = Slot(folder, TOTAL, workers=workers)
    for start in range(0, stored, 250_000):
        keys = np.arange(start, min(start + 250_000, stored))
        slot.add(pa.array(keys), ones(len(keys)))
    slot.settle()
    return slot


def of_adding(slot: Slot, batches: Iterable[pa.Array]) -> float:
    """Processor seconds of batches that add one for each key, folds included."""

    def work() -> None:
        for keys in batches:
            slot.add(keys, ones(len(keys)))
        slot.settle()

    return of_process(work)


def small_batch(folder: Path, scale: float) -> float:
    """Batches of 100 rows, in two workers by turns, folds included."""
    slot, generator = filled(folder, int(STORED * scale), 2), np.random.default_rng(7)
    drawn = [pa.array(generator.integers(0, int(STORED * scale), SMALL)) for _ in range(int(1000 * scale))]
    return of_adding(slot, drawn)


def core_ops(folder: Path, scale: float) -> float:
    """With totals given out: 480,000 of 5M keys in files, five times; then 1M rows over 20,000 keys, ten times."""
    stored = int(5_000_000 * scale)
    slot, generator = filled(folder, stored, 1), np.random.default_rng(7)
    cold = [pa.array(generator.permutation(stored)[: stored * 96 // 1000]) for _ in range(5)]
    hot = [pa.array(generator.integers(0, max(1, stored // 250), stored // 5)) for _ in range(10)]

    def work() -> None:
        for keys in (*cold, *hot):
            state, store = slot._begin()
            store.reducing_state(TOTAL.id, pa.int64(), "sum").add(keys, ones(len(keys)))
            slot._prepare(state, 0.0)
        slot.settle()

    return of_process(work)


def keyed_sum(folder: Path, scale: float) -> float:
    """Batches of 500,000 rows over as many keys."""
    slot, generator = Slot(folder, TOTAL), np.random.default_rng(7)
    rows = int(500_000 * scale)
    drawn = [pa.array(generator.integers(0, rows, rows)) for _ in range(20)]
    return of_adding(slot, drawn)


def growth(folder: Path, scale: float) -> float:
    """Keys that never came before, 100,000 a batch."""
    slot = Slot(folder, TOTAL)
    rows = int(100_000 * scale)
    return of_adding(slot, (pa.array(np.arange(number * rows, (number + 1) * rows) * 7919) for number in range(30)))


def recovery(folder: Path, scale: float) -> float:
    """A slot opened in a worker that knows nothing: ten times on the machine that has it, ten times on a new one."""
    slot = filled(folder, int(STORED * scale), 1)
    for number in range(3):  # so that a handle names the newest snapshot
        slot.add(pa.array(np.arange(number, number + 10)), ones(10))
        slot.settle()

    def work() -> None:
        for number in range(10):
            slot.worker().open(slot.handle)
            slot.worker(str(folder / f"new-{number}")).open(slot.handle)

    return of_process(work)


def query(folder: Path, scale: float) -> float:
    """Whole batches of 100 rows of a query on files, at local[2]: the JVM and all Python processes."""
    from pyspark.sql import SparkSession  # the engine's parts know nothing of Spark

    import holdfast as hf

    class Sums(hf.BatchProcessor):
        """A total by key."""

        total = hf.ReducingState(pa.int64(), "sum")

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> pa.RecordBatch:
            return batch.select(["key"]).append_column("total", self.total.add(batch, batch["amount"]))

    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    settings: dict[str, Any] = {
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder / "spark"),
        "spark.holdfast.checkpoint.dir": str(folder / "state"),
        "spark.holdfast.local.dir": str(folder / "local"),
    }
    spark = session.config(map=settings).getOrCreate()
    generator, source = np.random.default_rng(7), folder / "input"
    source.mkdir()

    def files(first: int, count: int) -> None:
        for number in range(first, first + count):
            keys = np.arange(int(STORED * scale)) if number == 0 else generator.integers(0, int(STORED * scale), SMALL)
            path = source / f".{number:05d}.parquet"
            pq.write_table(pa.table({"key": keys, "amount": np.ones(len(keys), np.int64)}), path)
            os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
            path.rename(source / f"{number:05d}.parquet")

    files(0, 1 + WARM_UP)
    rows = spark.readStream.schema("key long, amount long").option("maxFilesPerTrigger", 1).parquet(str(source))
    out = rows.transform(hf.keyed("key", Sums(), "key long, total long", name="sums"))
    started = out.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        started.processAllAvailable()
        start = of_tree()
        files(1 + WARM_UP, FILES)
        started.processAllAvailable()
        return of_tree() - start
    finally:
        started.stop()
        spark.stop()


PARTS = {part.__name__: part for part in (small_batch, core_ops, keyed_sum, growth, recovery, query)}

if __name__ == "__main__":
    where, share, *names = sys.argv[1:]
    for name in names:
        place = Path(where) / name
        place.mkdir()
        print("processor seconds", json.dumps({name: PARTS[name](place, float(share))}), flush=True)
