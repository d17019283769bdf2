"""small_batch: what a batch costs that has next to nothing to do: 100 rows over a state of 1M keys.

Two measurements: a slot alone, from open to its durable handle, in two workers by turns (Spark hands a slot to another
worker in most batches, so each has the batch of the other to catch up with); and whole batches of a query, against
Spark SQL's aggregation and applyInPandasWithState on the same files.
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.figures import Measured, arguments, at_most, figure, one_after_the_other, percentile, ratio, spread
from benchmarks.records import recorded
from benchmarks.slot import TOTAL, Slot
from benchmarks.stream.ways import WAYS
from benchmarks.stream.workload import start_session
from pyspark.sql import DataFrame, SparkSession

ROWS = 100
FILE_SCHEMA = "key long, amount long"


def slot_cost(folder: Path, stored: int, batches: int) -> None:
    """p50 and p99 over batches in steady state, folds in the background included."""
    slot = Slot(folder, TOTAL, workers=2)
    generator = np.random.default_rng(7)
    for start in range(0, stored, 250_000):
        keys = np.arange(start, min(start + 250_000, stored))
        slot.add(pa.array(keys), pa.array(np.ones(len(keys), np.int64)))
    ones = pa.array(np.ones(ROWS, np.int64))
    for _ in range(40):
        slot.add(pa.array(generator.integers(0, stored, ROWS)), ones)
    slot.settle()
    ms = [slot.add(pa.array(generator.integers(0, stored, ROWS)), ones) for _ in range(batches)]
    note = f"{batches} batches of {ROWS} rows over {stored:,} keys, two workers by turns"
    figure("small_batch.p50_ms", percentile(ms, 50), at_most(20), note, Measured.again(ms))
    figure("small_batch.p99_ms", percentile(ms, 99), at_most(40), note, Measured.among(ms))


def write_files(folder: Path, stored: int, batches: int) -> None:
    """One large file that fills the state, then small ones; Spark reads them in order of their time."""
    generator = np.random.default_rng(7)
    folder.mkdir()
    for number in range(batches + 1):
        keys = np.arange(stored) if number == 0 else generator.integers(0, stored, ROWS)
        path = folder / f"{number:05d}.parquet"
        pq.write_table(pa.table({"key": keys, "amount": np.ones(len(keys), np.int64)}), path)
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))


def query_cost(spark: SparkSession, folder: Path, name: str, batches: int) -> list[float]:
    """Milliseconds of whole batches, without the first which fills, and ten of warm-up."""
    way, output_mode = WAYS[name]
    rows: DataFrame = (
        spark.readStream.schema(FILE_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "input"))
    )
    query = (
        way(rows)
        .writeStream.format("noop")
        .outputMode(output_mode)
        .option("checkpointLocation", str(folder / f"checkpoint-{name}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    ms = [float(batch.durationMs["triggerExecution"]) for batch in query.recentProgress if batch.numInputRows == ROWS]
    print(f"{len(ms)} batches of {ROWS} rows, {name}: {spread(ms, ' ms')}")
    return ms[min(10, batches // 2) :]


def main() -> None:
    """1M keys; 500 batches of a slot, 60 of each query."""
    parser = arguments(__doc__, stored=1_000_000, batches=500, query_batches=60)
    given = parser.parse_args()
    stored, batches, query_batches = given.stored, given.batches, given.query_batches
    if given.short:
        stored, batches, query_batches = 50_000, 60, 8
    with recorded(given) as folder:
        slot_cost(folder, stored, batches)
        write_files(folder / "input", stored, query_batches)
        spark = start_session(folder)
        ours = query_cost(spark, folder, "holdfast", query_batches)
        theirs = query_cost(spark, folder, "Spark SQL", query_batches)
        python = query_cost(spark, folder, "applyInPandasWithState", query_batches)
        spark.stop()
        figure("small_batch.query_p50_ms", statistics.median(ours), measured=Measured.again(ours))
        note = "time ÷ time: below 1 is faster than"
        ratio("small_batch.query_vs_spark", one_after_the_other(ours, theirs), at_most(1.25), f"{note} Spark SQL")
        ratio(
            "small_batch.query_vs_apply",
            one_after_the_other(ours, python),
            at_most(1.0),
            f"{note} Spark's own Python state",
        )


if __name__ == "__main__":
    main()
