"""growth: what becomes of the rate when the state grows and the work does not.

Batches of 1M rows that touch 100k keys each: all the keys there are, or 100k others of 10M each time.
"""

from __future__ import annotations

from benchmarks.figures import arguments, at_least, one_after_the_other, ratio, spread
from benchmarks.records import recorded
from benchmarks.stream.rivals import RIVALS
from benchmarks.stream.ways import OURS
from benchmarks.stream.workload import Batches, made_rows, run, start_session

# Has no common divisor with powers of ten, so it scatters the keys of a batch over all keys, each once.
STRIDE = 1_000_003


WAYS = {"holdfast": OURS["holdfast"], "Spark SQL, tuned": RIVALS["Spark SQL, RocksDB tuned"]}


def key_sql(rows: int, touched: int, stored: int, filling: int) -> str:
    """SQL for the key of row `value`: first every key once, then `touched` keys a batch."""
    drawn = f"((value div {rows}) * {touched} + value % {touched}) * {STRIDE} % {stored}"
    return f"CASE WHEN value < {filling} THEN value % {stored} ELSE {drawn} END"


def main() -> None:
    """10M against 100k stored keys, for Holdfast and, for comparison, Spark SQL."""
    parser = arguments(__doc__, rows=1_000_000, touched=100_000, stored=10_000_000, measured=12, warm_up=4)
    parser.add_argument("--ours-only", action="store_true", help="without Spark SQL beside it")
    given = parser.parse_args()
    if given.short:
        given.rows, given.touched, given.stored, given.measured, given.warm_up = 50_000, 5_000, 200_000, 4, 2
    with recorded(given) as folder:
        spark = start_session(folder)
        for name, way in list(WAYS.items())[: 1 if given.ours_only else None]:
            found: dict[int, Batches] = {}
            for stored in (given.touched, given.stored):
                filling = -(-stored // given.rows)
                key = key_sql(given.rows, given.touched, stored, filling * given.rows)
                found[stored] = run(
                    way,
                    made_rows(spark, given.rows, key),
                    given.rows,
                    folder,
                    measured=given.measured,
                    warm_up=filling + given.warm_up,
                )
                print(f"{name}, {stored:,} keys stored: {spread(found[stored].rows_per_s)} rows/s", flush=True)
            compared = one_after_the_other(found[given.stored].rows_per_s, found[given.touched].rows_per_s)
            if name == "holdfast":
                ratio("growth.10m_vs_100k", compared, at_least(0.6), f"{given.stored:,} ÷ {given.touched:,} keys")
            else:
                ratio("growth.spark_sql_10m_vs_100k", compared, note="the same of Spark SQL")
        spark.stop()


if __name__ == "__main__":
    main()
