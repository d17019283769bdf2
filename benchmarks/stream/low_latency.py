"""low_latency: what Spark's own settings save of a batch of 100 rows, by turns in one session.

The same running sum each time, two slots, sink `noop`, over the same files: as Spark comes, and with one thing changed.
Each way has a checkpoint of its own and goes on in it. Time is that of whole batches as Spark reports it. What each of
them costs: docs/guide/low_latency.md.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.figures import IN_TURNS, arguments, in_turns, middle, ratio
from benchmarks.records import recorded
from benchmarks.stream.rivals import AS_IT_COMES, IN_MEMORY
from benchmarks.stream.small_batch import by_turns
from benchmarks.stream.ways import Way, holdfast
from benchmarks.stream.workload import start_session

FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
DEFAULT = "as_it_comes"
WAYS = {
    DEFAULT: Way(holdfast, conf=IN_MEMORY),
    "without_checksums": Way(
        holdfast, conf={**IN_MEMORY, "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false"}
    ),
    "other_file_manager": Way(
        holdfast, conf={**IN_MEMORY, "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER}
    ),
    "rocksdb_provider": Way(holdfast, conf=AS_IT_COMES),
    "without_codegen": Way(holdfast, conf={**IN_MEMORY, "spark.sql.codegen.wholeStage": "false"}),
    "one_slot": Way(lambda rows: holdfast(rows, slots=1), conf={**IN_MEMORY, "spark.sql.shuffle.partitions": "1"}),
    "hashmap": Way(lambda rows: holdfast(rows, None, **{"state.backend": "hashmap"}), conf=IN_MEMORY),
}


def measure(folder: Path, stored: int, rounds: int, batches: int) -> None:
    """A figure ÷ `as_it_comes` for each of the others."""
    spark = start_session(folder)
    found = by_turns(spark, folder, WAYS, stored, rounds, batches)
    spark.stop()
    default = found.pop(DEFAULT)
    middle("low_latency.as_it_comes_ms", default, how=IN_TURNS)
    for name, ms in found.items():
        ratio(f"low_latency.{name}", in_turns(ms, default))


def main() -> None:
    """100k keys; six rounds of fifteen batches of each way."""
    given = arguments(__doc__, stored=100_000, rounds=6, batches=15).parse_args()
    stored, rounds, batches = (5_000, 2, 2) if given.short else (given.stored, given.rounds, given.batches)
    with recorded(given) as folder:
        measure(folder, stored, rounds, batches)


if __name__ == "__main__":
    main()
