"""keyed_sum: a running sum by key, in all the ways that Spark has of keeping it, each with its best settings.

Every way runs in the same JVM, in turns, rounds of opposite order: same rows, same keys, same sink. A round of a way is
a query with a checkpoint of its own; what counts of it is the median of its measured batches. Where a round takes
minutes there are fewer rounds, and each batch that is measured counts.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks.figures import IN_TURNS, Goal, arguments, at_least, at_most, in_turns, middle, ratio, spread
from benchmarks.pages import GRID_KEYS, GRID_ROWS, grid_name
from benchmarks.records import recorded
from benchmarks.stream.rivals import FAST, RIVALS, SLOW, by_slug
from benchmarks.stream.ways import OURS
from benchmarks.stream.workload import Batches, made_rows, run, start_session
from benchmarks.turns import against, best_of, turns
from pyspark.sql import SparkSession

WAYS = {**OURS, **RIVALS}
SQL = [name for name in FAST if name.startswith("Spark SQL")]
#: Of these, which may be the best: as it comes, RocksDB is the tuned one with worse settings (keyed_sum.main has all).
BEST_SQL = ["Spark SQL, RocksDB tuned", "Spark SQL, in memory"]
#: Rows a batch, at most, of the rounds that do not count: they are there for the JVM to compile.
FIRST_ROWS, FIRST_ROWS_SLOW = 1_000_000, 100_000
GOALS = {"apply_in_pandas": at_least(120), "transform_with_state_in_pandas": at_least(180)}


@dataclass(frozen=True)
class Size:
    """Rows a batch, keys that they are drawn from, rounds, and batches of a round: measured, and before these."""

    rows: int
    keys: int
    rounds: int
    measured: int
    warm_up: int

    def by_batches(self, rounds: int) -> Size:
        """So few rounds, and in these as many batches together as there were rounds."""
        return replace(self, rounds=rounds, measured=-(-self.rounds // rounds))


class Comparison:
    """Queries of one size in one session."""

    def __init__(self, spark: SparkSession, folder: Path, size: Size, first_rows: int = FIRST_ROWS) -> None:
        self._spark, self._folder, self._size = spark, folder, size
        self._first = replace(size, rows=min(size.rows, first_rows), measured=1)

    def once(self, name: str) -> Batches:
        """One way's round. Keys are drawn by hash, so they come in no order."""
        size = self._size
        source = made_rows(self._spark, size.rows, f"pmod(xxhash64(value), {size.keys})")
        found = run(WAYS[name], source, size.rows, self._folder, measured=size.measured, warm_up=size.warm_up)
        told = f"{spread(found.rows_per_s)} rows/s, {found.processor_ms_a_batch:.0f} processor ms a batch"
        print(f"{size.rows:>11,} rows {size.keys:>11,} keys  {name:<42} {told}", flush=True)
        return found

    def rates(self, *names: str) -> dict[str, list[float]]:
        """Rows/s of each way in each round. What is first in a JVM would be measured while that is still compiling:
        a round of each goes before, and does not count.
        """
        return {name: [rate(one) for one in found] for name, found in self.rounds(*names).items()}

    def rates_of_batches(self, *names: str) -> dict[str, list[float]]:
        """Rows/s of each way in each batch that is measured."""
        return {name: [each for one in found for each in one.rows_per_s] for name, found in self.rounds(*names).items()}

    def rounds(self, *names: str) -> dict[str, list[Batches]]:
        """The same, whole."""
        for name in names:
            Comparison(self._spark, self._folder, self._first).once(name)
        return turns(names, self._size.rounds, self.once)


def rate(batches: Batches) -> float:
    """A round's."""
    return median(batches.rows_per_s)


def main_size(compare: Comparison) -> None:
    """1M rows and 200k keys, the size of the goals: every rival that takes seconds."""
    pipes = ("empty pipe", "holdfast, no output", "holdfast, no output, hashmap")
    found = compare.rounds(*pipes, "holdfast", "holdfast, a total for each row", *FAST)
    rates = {name: [rate(one) for one in rounds] for name, rounds in found.items()}
    ours = rates["holdfast"]
    against("keyed_sum.vs", ours, by_slug(rates), faster=max, best=at_least(1.5))
    sql = best_of({name: rates[name] for name in SQL}, max)
    each_row = in_turns(rates["holdfast, a total for each row"], rates[sql])
    ratio("keyed_sum.vs_spark_sql_each_row", each_row, note=f"the best of three: {sql}")
    for suffix, name, goal in (("", pipes[1], at_most(0.25)), ("_hashmap", pipes[2], at_most(0.10))):
        cost(f"keyed_sum.state_cost{suffix}", found[pipes[0]], found[name], goal)
    middle("keyed_sum.rows_per_s", ours, how=IN_TURNS)


def cost(name: str, pipe: list[Batches], way: list[Batches], goal: Goal) -> None:
    """Processor time of a batch over that of the pipe, part of it; and time by the clock. By rounds, since a machine's
    speed changes more from round to round than state costs.
    """
    processor = [full.processor_ms_a_batch / empty.processor_ms_a_batch - 1 for empty, full in zip(pipe, way)]
    clock = [full.median_ms / empty.median_ms - 1 for empty, full in zip(pipe, way)]
    middle(name, processor, goal, "processor time, JVM and workers", IN_TURNS)
    middle(f"{name}_by_the_clock", clock, how=IN_TURNS)


def slow_ways(compare: Comparison) -> None:
    """Those that call Python once a key, beside ours: minutes a batch."""
    rates = compare.rates_of_batches("holdfast", *SLOW)
    for name, theirs in by_slug(rates).items():
        ratio(f"keyed_sum.vs_{name}", in_turns(rates["holdfast"], theirs), GOALS.get(name))


def many_keys(compare: Comparison, note: str) -> None:
    """Nearly every row a key of its own: the map side combines nothing and the state grows. Over 5M stored keys."""
    rates = compare.rates_of_batches("holdfast", *BEST_SQL, "transformWithState, Scala")
    against("keyed_sum.many_keys_vs", rates["holdfast"], by_slug(rates), faster=max, best=at_least(2.5))
    print(f"# {note}")


def grid(spark: SparkSession, folder: Path, rounds: int) -> None:
    """All sizes, against the better of Spark SQL's two best; where its map-side combine wins, the table says so."""
    for rows in GRID_ROWS:
        for keys in GRID_KEYS:
            size = Size(rows, keys, rounds, 1, 1 if rows > 1_000_000 else 2).by_batches(2)
            rates = Comparison(spark, folder, size).rates_of_batches("holdfast", *BEST_SQL)
            best = best_of({name: rates[name] for name in BEST_SQL}, max)
            ratio(grid_name(rows, keys), in_turns(rates["holdfast"], rates[best]), note=f"the better of two: {best}")


def measure(spark: SparkSession, folder: Path, given: argparse.Namespace) -> None:
    """All parts but the grid, or one."""
    size = Size(1_000_000, 200_000, given.rounds, given.measured, given.warm_up)
    slow = Size(given.slow_rows, given.slow_rows // 5, given.rounds, 1, 1).by_batches(3)
    stored = 5_000_000
    many = Size(1_000_000, 20_000_000, given.rounds, 1, stored // 1_000_000 + 1).by_batches(2)
    if given.short:
        size, slow, stored = Size(100_000, 20_000, 2, 2, 1), Size(2_000, 400, 1, 1, 1), 200_000
        many = Size(100_000, 2_000_000, 1, 2, 2)
    if given.only in (None, "main"):
        main_size(Comparison(spark, folder, size))
    if given.only in (None, "slow"):
        slow_ways(Comparison(spark, folder, slow, FIRST_ROWS_SLOW))
    if given.only in (None, "many-keys"):
        note = f"{many.rows:,} rows a batch drawn from {many.keys:,} keys, over {stored:,} of them stored"
        many_keys(Comparison(spark, folder, many), note)


def main() -> None:
    """The goals' sizes; with --only grid all sizes; with --short small ones."""
    parser = arguments(__doc__, rounds=6, measured=4, warm_up=2, slow_rows=1_000_000)
    parser.add_argument("--only", choices=["main", "slow", "many-keys", "grid"], help="one part; grid takes hours")
    given = parser.parse_args()
    with recorded(given) as folder:
        spark = start_session(folder, scala=True)
        if given.only == "grid":
            grid(spark, folder, given.rounds)
        else:
            measure(spark, folder, given)
        spark.stop()


if __name__ == "__main__":
    main()
