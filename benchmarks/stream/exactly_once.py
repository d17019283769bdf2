"""kill -9 at every step of an exactly-once stream from Kafka to Kafka: what is lost, and what is there twice.

The harness of tests/faults: Kafka in, two keyed operators of which one draws random numbers, two topics and files out,
read back by a read_committed consumer in a process of its own and compared record by record, and in order by key. Then
the same stream written as Spark's users write it (foreachBatch, an idempotent producer in each task), killed at those
of the same steps that it has.

Figures: exactly_once.kills, .lost, .twice, .spark_pattern_kills, .spark_pattern_lost, .spark_pattern_twice.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.figures import arguments, at_least, at_most, figure, machine, work_folder
from tests.faults import eos_spark_pattern
from tests.faults.eos_harness import KAFKA, STEPS, Campaign, Differences, run, show

SPARK_PATTERN = "tests.faults.eos_spark_pattern:SparkPatternWorld"
#: In the small form: a task that had prepared, a driver that was committing.
SHORT = ("sink_after_prepare", "mid_commit")
SHORT_PATTERN = ("sink_after_prepare", "after_commit")


def strike(name: str, world: str, folder: Path, steps: tuple[str, ...], kills: int, seed: int) -> Differences:
    """One stream's kills; prints its table."""
    print(f"# {name}: {kills} kills at each of {', '.join(steps)}", flush=True)
    campaign, found = run(folder, steps, kills, seed, world)
    print("\n".join(f"# {line[:200]}" for line in (*show(campaign, found).splitlines(), *found.other[:3])), flush=True)
    figure(f"{name}kills", _kills(campaign), at_least(kills * len(steps)))
    return found


def _kills(campaign: Campaign) -> int:
    return sum(tally.kills for tally in campaign.tally.values())


def main() -> None:
    given = arguments(__doc__, kills=20, pattern_kills=5, seed=1).parse_args()
    machine()
    with work_folder(given.folder) as folder:
        kills, steps = (1, SHORT) if given.short else (given.kills, STEPS)
        found = strike("exactly_once.", KAFKA, folder / "holdfast", steps, kills, given.seed)
        figure("exactly_once.lost", found.lost, at_most(0))
        figure("exactly_once.twice", found.twice, at_most(0))
        figure("exactly_once.other_differences", len(found.other), at_most(0))
        kills, of_pattern = (1, SHORT_PATTERN) if given.short else (given.pattern_kills, eos_spark_pattern.STEPS)
        pattern = strike("exactly_once.spark_pattern_", SPARK_PATTERN, folder / "spark", of_pattern, kills, given.seed)
        figure("exactly_once.spark_pattern_lost", pattern.lost)
        figure("exactly_once.spark_pattern_twice", pattern.twice, note="rows that users get twice today")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
