"""growth: what becomes of the rate when the state grows and the work does not.

Batches of 1M rows that touch 100k keys each: all the keys there are, or 100k others of 10M each time.
"""

from __future__ import annotations

import argparse
from itertools import chain
from pathlib import Path

from benchmarks.figures import arguments, at_least, in_turns, ratio, spread
from benchmarks.records import recorded
from benchmarks.stream.rivals import RIVALS
from benchmarks.stream.ways import OURS
from benchmarks.stream.workload import made_rows, run, start_session
from benchmarks.turns import turns
from pyspark.sql import SparkSession

# Has no common divisor with powers of ten, so it scatters the keys of a batch over all keys, each once.
STRIDE = 1_000_003


WAYS = {"holdfast": OURS["holdfast"], "Spark SQL, tuned": RIVALS["Spark SQL, RocksDB tuned"]}


def key_sql(rows: int, touched: int, stored: int, filling: int) -> str:
    """SQL for the key of row `value`: first every key once, then `touched` keys a batch."""
    drawn = f"((value div {rows}) * {touched} + value % {touched}) * {STRIDE} % {stored}"
    return f"CASE WHEN value < {filling} THEN value % {stored} ELSE {drawn} END"


class Queries:
    """Queries of each way and number of stored keys, in one session."""

    def __init__(self, spark: SparkSession, folder: Path, given: argparse.Namespace) -> None:
        self._spark, self._folder, self._given = spark, folder, given

    def once(self, name: str) -> list[float]:
        """Rows/s of the measured batches of a query from an empty state on; the name is of `names`."""
        given = self._given
        way, stored = name.rsplit(" over ", 1)
        filling = -(-int(stored) // given.rows)
        source = made_rows(
            self._spark, given.rows, key_sql(given.rows, given.touched, int(stored), filling * given.rows)
        )
        warm_up = filling + given.warm_up
        found = run(WAYS[way], source, given.rows, self._folder, measured=given.measured, warm_up=warm_up)
        print(f"{name} keys stored: {spread(found.rows_per_s)} rows/s", flush=True)
        return found.rows_per_s


def main() -> None:
    """10M against 100k stored keys, for Holdfast and Spark SQL."""
    parser = arguments(__doc__, rows=1_000_000, touched=100_000, stored=10_000_000, measured=6, warm_up=4, rounds=2)
    given = parser.parse_args()
    if given.short:
        given.rows, given.touched, given.stored, given.measured, given.warm_up = 50_000, 5_000, 200_000, 3, 2
    with recorded(given) as folder:
        spark = start_session(folder)
        queries = Queries(spark, folder, given)
        names = [f"{way} over {stored}" for stored in (given.touched, given.stored) for way in WAYS]
        for name in names[: len(WAYS)]:
            queries.once(name)  # in a JVM that still compiles: not counted
        found = turns(names, given.rounds, queries.once)
        few, few_theirs, many, many_theirs = (list(chain.from_iterable(found[name])) for name in names)
        spark.stop()
        note = f"{given.stored:,} ÷ {given.touched:,} keys"
        ratio("growth.10m_vs_100k", in_turns(many, few), at_least(0.6), note)
        ratio("growth.spark_sql_10m_vs_100k", in_turns(many_theirs, few_theirs), note="the same of Spark SQL")
        ratio("growth.100k_vs_spark_sql_tuned", in_turns(few, few_theirs), note=f"over {given.touched:,} stored keys")
        ratio("growth.10m_vs_spark_sql_tuned", in_turns(many, many_theirs), note=f"over {given.stored:,} stored keys")


if __name__ == "__main__":
    main()
