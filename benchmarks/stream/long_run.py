"""long_run: 200 batches and more of each way, so that what happens only once in a while is inside.

A running sum. Holdfast folds deltas into bases and uploads snapshots in the background; Spark's maintenance uploads
snapshots of its stores and deletes old files, once a minute. How many of each there were is counted: a run without any
says nothing. Rates are of the whole time of half of a round's batches, not of a median batch. Keys uniform, or by
Zipf's law.
"""

from __future__ import annotations

import argparse
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.figures import IN_TURNS, arguments, at_least, figure, in_turns, middle, percentile, ratio
from benchmarks.records import recorded
from benchmarks.stream.rivals import FAST, SLUGS, by_slug
from benchmarks.stream.ways import OURS
from benchmarks.stream.workload import configured, made_rows, start_session, watch
from benchmarks.turns import against, best_of, turns
from pyspark.sql import SparkSession

from holdfast.spark.metrics import operators_in

#: Of the ways of keyed_sum those that may be the best here. RocksDB as it comes is the tuned one with worse settings;
#: Scala has the tuned one's provider and its rate; a dict a partition is read and written whole in each batch.
RIVALS = ("Spark SQL, in memory", "Spark SQL, RocksDB tuned")
WAYS = {"holdfast": OURS["holdfast"], **{name: FAST[name] for name in RIVALS}}
#: Keys of row `value`, of so many: uniform; or the n-th as often as 1/n, scattered.
KEYS = {
    "uniform": "pmod(xxhash64(value), {keys})",
    "zipf": "pmod(xxhash64(CAST(pow({keys}D, pmod(xxhash64(value), 1073741824) / 1073741824D) AS LONG)), {keys})",
}
BATCHES_MIN = 200


@dataclass
class Round:
    """One query: its batches, and what was done beside them."""

    rows: int
    ms: list[float]
    folds: int = 0
    snapshots: int = 0
    #: Names of the snapshot files that Spark's maintenance has left.
    uploaded: set[str] = field(default_factory=set)

    @property
    def halves(self) -> tuple[list[float], list[float]]:
        """Times of the batches, of its first and of its second half."""
        middle = len(self.ms) // 2
        return self.ms[:middle], self.ms[middle:]

    @property
    def rates(self) -> list[float]:
        """Rows/s over each half."""
        return [self.rate_of(half) for half in self.halves]

    def rate_of(self, ms: list[float]) -> float:
        """Rows/s over the whole time of some of its batches."""
        return self.rows * len(ms) / sum(ms) * 1000


class LongRuns:
    """Queries of one size."""

    def __init__(self, spark: SparkSession, folder: Path, given: argparse.Namespace) -> None:
        self._spark, self._folder, self._given = spark, folder, given

    def once(self, name: str) -> Round:
        """One way's round, from an empty state."""
        given, way = self._given, WAYS[name]
        checkpoint = self._folder / f"checkpoint-{uuid.uuid4().hex}"
        source = made_rows(self._spark, given.rows, KEYS[given.keys_drawn].format(keys=given.keys))
        found = Round(given.rows, [])
        started = time.monotonic()
        with configured(self._spark, way.conf):
            writer = way.build(source).writeStream.format("noop").outputMode(way.output_mode)
            query = writer.option("checkpointLocation", str(checkpoint)).start()
            batches = watch(
                query, given.rows, measured=given.batches, warm_up=given.warm_up, each=lambda: _look(checkpoint, found)
            )
        found.ms = batches.ms
        progress: Any
        for progress in query.recentProgress:
            for operator in operators_in(progress).values():
                found.folds += operator.folds
                found.snapshots += operator.snapshots
        beside = f"{found.folds} folds, {found.snapshots} snapshots, {len(found.uploaded)} of Spark's"
        seconds = time.monotonic() - started
        print(
            f"{name:<42} {found.rate_of(found.ms):,.0f} rows/s, {len(found.ms)} batches, {seconds:.0f} s, {beside}",
            flush=True,
        )
        return found


def _look(checkpoint: Path, found: Round) -> None:
    """Old ones are deleted on the way, so they are looked for after each batch."""
    for pattern in ("state/*/*/*.zip", "state/*/*/*.snapshot"):
        found.uploaded.update(str(path.relative_to(checkpoint)) for path in checkpoint.glob(pattern))


def tell(prefix: str, rounds: dict[str, list[Round]]) -> None:
    """All figures, of two samples a round."""
    rates = {name: [rate for one in found for rate in one.rates] for name, found in rounds.items()}
    ours = rates.pop("holdfast")
    against(f"{prefix}.vs", ours, by_slug(rates), faster=max, best=at_least(1))
    middle(f"{prefix}.rows_per_s", ours, how=IN_TURNS)
    p99 = {name: [percentile(half, 99) for one in found for half in one.halves] for name, found in rounds.items()}
    best = best_of(rates, max)
    ratio(f"{prefix}.p99_vs_best", in_turns(p99["holdfast"], p99[best]), note=f"time ÷ time of {best}")
    mine = rounds["holdfast"]
    note = "in all rounds together"
    figure(f"{prefix}.batches", sum(len(one.ms) for one in mine), note=note)
    figure(f"{prefix}.folds", sum(one.folds for one in mine), at_least(1), note)
    figure(f"{prefix}.snapshots", sum(one.snapshots for one in mine), at_least(1), note)
    for name in rates:
        uploads = sum(len(one.uploaded) for one in rounds[name])
        figure(f"{prefix}.uploads_{SLUGS[name]}", uploads, at_least(1), f"snapshots of {name}, {note}")


def main() -> None:
    """300k rows a batch over 600k keys."""
    parser = arguments(__doc__, rows=300_000, keys=600_000, batches=BATCHES_MIN, warm_up=10, rounds=3)
    parser.add_argument("--keys-drawn", choices=list(KEYS), default="uniform", help="how often each key comes")
    given = parser.parse_args()
    if given.short:
        given.rows, given.keys, given.batches, given.warm_up, given.rounds = 20_000, 5_000, 12, 2, 1
    elif given.batches < BATCHES_MIN:
        raise SystemExit(
            f"--batches {given.batches}: expected at least {BATCHES_MIN}, fewer have no maintenance inside"
        )
    with recorded(given, part=given.keys_drawn) as folder:
        spark = start_session(folder)
        runs = LongRuns(spark, folder, given)
        rounds = turns(list(WAYS), given.rounds, runs.once)
        spark.stop()
        tell(f"long_run.{given.keys_drawn}", rounds)


if __name__ == "__main__":
    main()
