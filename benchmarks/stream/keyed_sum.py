"""keyed_sum: a running sum by key, in all the ways that PySpark has of keeping it, side by side.

Every way runs in the same JVM, one after the other, in rounds of opposite order, so that a machine that gets slower or
faster on the way shows in the spread.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from statistics import median

from benchmarks.figures import (
    IN_TURNS,
    Goal,
    Measured,
    arguments,
    at_least,
    at_most,
    figure,
    in_turns,
    one_after_the_other,
    ratio,
    spread,
)
from benchmarks.records import recorded
from benchmarks.stream.ways import WAYS
from benchmarks.stream.workload import Batches, made_rows, run, start_session
from pyspark.sql import SparkSession

FAST = [
    "empty pipe",
    "holdfast, no output",
    "holdfast, no output, hashmap",
    "holdfast",
    "holdfast, a total for each row",
    "Spark SQL",
]
ROUNDS = 6
SLOW = ["applyInPandasWithState", "transformWithStateInPandas"]


def measure(
    spark: SparkSession, folder: Path, name: str, rows: int, keys: int, *, measured: int, warm_up: int
) -> Batches:
    """One way at one size. Keys are drawn by hash, so they come in no order."""
    way, output_mode = WAYS[name]
    source = made_rows(spark, rows, f"pmod(xxhash64(value), {keys})")
    batches = run(way(source), rows, folder, measured=measured, warm_up=warm_up, output_mode=output_mode)
    print(f"{rows:>11,} rows {keys:>11,} keys  {name:<32} {spread(batches.rows_per_s)} rows/s", flush=True)
    return batches


def compare(
    spark: SparkSession, folder: Path, names: list[str], rows: int, keys: int, *, measured: int, warm_up: int
) -> dict[str, list[list[float]]]:
    """Rows/s of each way in each round; rounds go in opposite orders. What is first in a JVM would be measured while
    that is still compiling: a batch of each way goes before, and does not count.
    """
    rates: dict[str, list[list[float]]] = {name: [] for name in names}
    for name in names:
        measure(spark, folder, name, rows, keys, measured=1, warm_up=warm_up)
    for number in range(ROUNDS):
        for name in names[::-1] if number % 2 else names:
            found = measure(spark, folder, name, rows, keys, measured=-(-measured // 2), warm_up=warm_up // 2)
            rates[name].append(found.rows_per_s)
    return rates


def all_rounds(rates: list[list[float]]) -> list[float]:
    return list(chain.from_iterable(rates))


def cost(name: str, pipe: list[list[float]], way: list[list[float]], goal: Goal) -> None:
    """Time over that of the pipe, part of it:
    by rounds, since a machine's speed changes more from round to round than state costs.
    """
    by_round = [median(empty) / median(full) - 1 for empty, full in zip(pipe, way)]
    figure(name, median(by_round), goal, measured=Measured.again(by_round, IN_TURNS))


def main_size(spark: SparkSession, folder: Path, rows: int, keys: int, measured: int, warm_up: int) -> None:
    """1M rows and 200k keys, the size of the goals."""
    fast = compare(spark, folder, FAST, rows, keys, measured=measured, warm_up=warm_up)
    ours, theirs = all_rounds(fast["holdfast"]), all_rounds(fast["Spark SQL"])
    ratio("keyed_sum.vs_spark_sql", in_turns(ours, theirs), at_least(1.5))
    ratio("keyed_sum.vs_spark_sql_each_row", in_turns(all_rounds(fast["holdfast, a total for each row"]), theirs))
    pipe = fast["empty pipe"]
    cost("keyed_sum.state_cost", pipe, fast["holdfast, no output"], at_most(0.25))
    cost("keyed_sum.state_cost_hashmap", pipe, fast["holdfast, no output, hashmap"], at_most(0.10))
    figure("keyed_sum.rows_per_s", median(ours), measured=Measured.again(ours))


def slow_ways(
    spark: SparkSession, folder: Path, rows: int, keys: int, slow_rows: int, measured: int, warm_up: int
) -> None:
    """Spark's own Python operators, between two rounds of ours. Minutes a batch, so one of warm-up and two measured."""
    slow_keys = slow_rows * keys // rows

    def ours() -> list[float]:
        return measure(spark, folder, "holdfast", rows, keys, measured=measured, warm_up=warm_up).rows_per_s

    rates = ours()
    theirs = {
        name: measure(spark, folder, name, slow_rows, slow_keys, measured=2, warm_up=1).rows_per_s for name in SLOW
    }
    rates += ours()
    note = f"theirs at {slow_rows:,} rows a batch and {slow_keys:,} keys"
    ratio("keyed_sum.vs_apply_in_pandas", one_after_the_other(rates, theirs[SLOW[0]]), at_least(120.0), note)
    ratio(
        "keyed_sum.vs_transform_with_state_in_pandas",
        one_after_the_other(rates, theirs[SLOW[1]]),
        at_least(180.0),
        note,
    )


def many_keys(spark: SparkSession, folder: Path, rows: int, keys: int, stored: int, measured: int) -> None:
    """Nearly every row a key of its own: the map side combines nothing and the state grows. Over 5M stored keys."""
    warm_up = -(-stored // rows) + 1
    rates = {}
    for name in ("holdfast", "Spark SQL"):
        rates[name] = measure(spark, folder, name, rows, keys, measured=measured, warm_up=warm_up).rows_per_s
    note = f"{rows:,} rows a batch drawn from {keys:,} keys, after {warm_up} batches"
    compared = one_after_the_other(rates["holdfast"], rates["Spark SQL"])
    ratio("keyed_sum.vs_spark_sql_many_keys", compared, at_least(2.5), note)


def grid(spark: SparkSession, folder: Path) -> None:
    """All sizes. Where Spark's map-side combine wins (many rows, few keys), the table says so."""
    for rows in (100_000, 1_000_000, 20_000_000):
        for keys in (20_000, 200_000, 20_000_000):
            measured, warm_up = (2, 1) if rows > 1_000_000 else (6, 2)
            rates = {
                n: measure(spark, folder, n, rows, keys, measured=measured, warm_up=warm_up).rows_per_s
                for n in ("empty pipe", "holdfast", "Spark SQL")
            }
            note = "map-side combine leaves Spark one row a key to shuffle" if rows > 10 * keys else ""
            name = f"keyed_sum.vs_spark_sql.{rows // 1000}k_rows_{keys // 1000}k_keys"
            ratio(name, one_after_the_other(rates["holdfast"], rates["Spark SQL"]), note=note)


def main() -> None:
    """The goals' sizes; with --only grid all sizes; with --short small ones."""
    parser = arguments(__doc__, measured=8, warm_up=4)
    parser.add_argument(
        "--only", choices=["main", "slow", "many-keys", "grid"], help="one part; grid takes half an hour"
    )
    parser.add_argument("--slow-rows", type=int, default=1_000_000, help="rows a batch of Spark's Python operators")
    given = parser.parse_args()
    with recorded(given) as folder:
        spark = start_session(folder)
        if given.only == "grid":
            grid(spark, folder)
        elif given.short:
            main_size(spark, folder, 100_000, 20_000, 3, 2)
            slow_ways(spark, folder, 20_000, 2_000, 4_000, 3, 2)
            many_keys(spark, folder, 100_000, 2_000_000, 300_000, 3)
        else:
            rows, keys = 1_000_000, 200_000
            if given.only in (None, "main"):
                main_size(spark, folder, rows, keys, given.measured, given.warm_up)
            if given.only in (None, "slow"):
                slow_ways(spark, folder, rows, keys, given.slow_rows, given.measured, given.warm_up)
            if given.only in (None, "many-keys"):
                many_keys(spark, folder, rows, 20_000_000, 5_000_000, 5)
        spark.stop()


if __name__ == "__main__":
    main()
