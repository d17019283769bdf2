"""kill -9 of whoever can die at every step of an exactly-once stream from Kafka to Kafka: what is lost, what is twice.

The harness of tests/faults: Kafka in, two keyed operators of which one draws random numbers, two topics and files out,
read back by a read_committed consumer in a process of its own and compared record by record, and in order by key. Then
the same stream written as Spark's users write it (foreachBatch, an idempotent producer in each task), killed at those
of the same steps that it has.

Figures: exactly_once.kills, .pairs_missing, .lost, .twice, and of the pattern .spark_pattern_kills and so on.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.figures import arguments, at_most, figure
from benchmarks.records import recorded
from tests.faults import eos_spark_pattern
from tests.faults.eos_harness import KAFKA, STEPS, impossible, run, show
from tests.faults.eos_oracle import Differences
from tests.faults.kill_plan import WHO, Coverage, Pair

SPARK_PATTERN = "tests.faults.eos_spark_pattern:SparkPatternWorld"
#: In the small form: a task that had prepared, a driver that was committing.
SHORT = (Pair("sink_after_prepare", "worker"), Pair("mid_commit", "python"))
SHORT_PATTERN = (Pair("sink_after_prepare", "worker"), Pair("after_commit", "python"))
#: Of Spark's own pattern: what it survives by itself, and the death of everything.
PATTERN_WHO = ("worker", "python", "group")


def strike(name: str, world: str, folder: Path, coverage: Coverage, seed: int) -> Differences:
    """One stream's kills; prints its table."""
    print(f"# {name}: {len(coverage.cells)} pairs of step and who dies", flush=True)
    _, found = run(folder, coverage, seed, world)
    print("\n".join(f"# {line[:200]}" for line in (*show(coverage, found).splitlines(), *found.other[:3])), flush=True)
    figure(f"{name}kills", coverage.kills)
    figure(f"{name}pairs_missing", len(coverage.missing), at_most(0))
    return found


def main() -> None:
    given = arguments(__doc__, kills=3, pattern_kills=2, seed=1).parse_args()
    with recorded(given) as folder:
        every = Coverage(STEPS, WHO, impossible(KAFKA), given.kills)
        found = strike("exactly_once.", KAFKA, folder / "eos", Coverage.of(SHORT) if given.short else every, given.seed)
        figure("exactly_once.lost", found.lost, at_most(0))
        figure("exactly_once.twice", found.twice, at_most(0))
        figure("exactly_once.other_differences", len(found.other), at_most(0))
        every = Coverage(eos_spark_pattern.STEPS, PATTERN_WHO, impossible(SPARK_PATTERN), given.pattern_kills)
        of_pattern = Coverage.of(SHORT_PATTERN) if given.short else every
        pattern = strike("exactly_once.spark_pattern_", SPARK_PATTERN, folder / "spark", of_pattern, given.seed)
        figure("exactly_once.spark_pattern_lost", pattern.lost)
        figure("exactly_once.spark_pattern_twice", pattern.twice, note="rows that users get twice today")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
