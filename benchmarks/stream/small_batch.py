"""small_batch: what a batch costs that has next to nothing to do: 100 rows over a state of 1M keys.

Two measurements: a slot alone, from open to its durable handle, in two workers by turns (Spark hands a slot to another
worker in most batches, so each has the batch of the other to catch up with); and whole batches of a query, against
all ways that Spark has on the same files (benchmarks/stream/rivals.py).
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.figures import IN_TURNS, Measured, arguments, at_most, figure, middle, percentile, spread
from benchmarks.records import recorded
from benchmarks.slot import TOTAL, Slot
from benchmarks.stream.rivals import RIVALS, SLUGS, TUNED, by_slug
from benchmarks.stream.ways import OURS, Way
from benchmarks.stream.workload import configured, start_session
from benchmarks.turns import against, turns
from pyspark.sql import DataFrame, SparkSession

ROWS = 100
WARM_UP = 3
# Over many keys the in-memory provider takes longer for few rows than RocksDB does, which is otherwise the other way
# round: each gets what suits it here.
WAYS = {
    "holdfast": OURS["holdfast"],
    **RIVALS,
    "applyInPandasWithState": replace(RIVALS["applyInPandasWithState"], conf=TUNED),
}
GOALS = {"spark_sql": at_most(1.25), "apply_in_pandas": at_most(1.0)}
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


def write_file(folder: Path, number: int, keys: np.ndarray) -> None:
    """The next input file; Spark reads them in order of their time."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{number:05d}.parquet"
    pq.write_table(pa.table({"key": keys, "amount": np.ones(len(keys), np.int64)}), path)
    os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))


def new_batches(spark: SparkSession, folder: Path, slug: str, way: Way) -> list[float]:
    """Milliseconds of whole batches of the files that a way has not read yet; it goes on in its own checkpoint."""
    rows: DataFrame = (
        spark.readStream.schema(FILE_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "input"))
    )
    with configured(spark, way.conf):
        writer = way.build(rows).writeStream.format("noop").outputMode(way.output_mode)
        checkpoint = str(folder / f"checkpoint-{slug}")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    batches = [batch for batch in query.recentProgress if batch.numInputRows]
    return [float(batch.durationMs["triggerExecution"]) for batch in batches]


def by_turns(
    spark: SparkSession, folder: Path, ways: Mapping[str, Way], stored: int, rounds: int, batches: int
) -> dict[str, list[float]]:
    """Every way over the same files: filled once, then some files a round, in turns. The first batches of a round, when
    a query starts, do not count. Of each round the median, milliseconds.
    """
    generator = np.random.default_rng(7)
    write_file(folder / "input", 0, np.arange(stored))
    for name, way in ways.items():
        filled = new_batches(spark, folder, SLUGS.get(name, name), way)
        print(f"{name}: filled in {sum(filled) / 1000:.1f} s", flush=True)
    calls, a_round = count(), batches + WARM_UP

    def once(name: str) -> float:
        number, at = divmod(next(calls), len(ways))
        if at == 0:
            for file in range(a_round):
                write_file(folder / "input", 1 + number * a_round + file, generator.integers(0, stored, ROWS))
        ms = new_batches(spark, folder, SLUGS.get(name, name), ways[name])[WARM_UP:]
        if len(ms) != batches:
            raise RuntimeError(f"{name}: expected {batches} batches, found {len(ms)}")
        print(f"{len(ms)} batches of {ROWS} rows, {name}: {spread(ms, ' ms')}", flush=True)
        return statistics.median(ms)

    return turns(list(ways), rounds, once)


def queries(spark: SparkSession, folder: Path, stored: int, rounds: int, batches: int) -> None:
    """Holdfast's way against all of Spark's."""
    found = by_turns(spark, folder, WAYS, stored, rounds, batches)
    ours = found.pop("holdfast")
    middle("small_batch.query_p50_ms", ours, how=IN_TURNS)
    against("small_batch.query_vs", ours, by_slug(found), faster=min, best=at_most(1.25), goals=GOALS)


def main() -> None:
    """1M keys; 500 batches of a slot, six rounds of ten batches of each query."""
    parser = arguments(__doc__, stored=1_000_000, batches=500, rounds=6, query_batches=10)
    parser.add_argument("--only", choices=["slot", "query"], help="one part")
    given = parser.parse_args()
    stored, batches, rounds, query_batches = given.stored, given.batches, given.rounds, given.query_batches
    if given.short:
        stored, batches, rounds, query_batches = 5_000, 60, 2, 2
    with recorded(given) as folder:
        if given.only in (None, "slot"):
            slot_cost(folder, stored, batches)
        if given.only in (None, "query"):
            spark = start_session(folder, scala=True)
            queries(spark, folder, stored, rounds, query_batches)
            spark.stop()


if __name__ == "__main__":
    main()
