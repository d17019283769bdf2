"""What test_repartition_kills.py kills: files in, running totals, files out exactly once, all of one checkpoint.

    python tests/faults/repartition_stream.py FOLDER PARTITIONS

Has Spark repartition the checkpoint first, where it has another number of partitions; then reads FOLDER/source, one
file a batch, until it is killed. Prints a line for each batch that is committed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.processors import TOTALS, RunningTotal
from tests.repartitioned import ROCKSDB, repartition
from tests.spark_sessions import start_session
from tests.streams import tell_batches

import holdfast as hf


def main() -> None:
    folder, partitions = Path(sys.argv[1]), int(sys.argv[2])
    checkpoint = folder / "checkpoint"
    spark = start_session(
        "local[2,4]",
        folder / "spark",
        spark__sql__streaming__stateStore__providerClass=ROCKSDB,
        spark__sql__streaming__stateStore__rocksdb__changelogCheckpointing__enabled="true",
        # Spark's own snapshots, of attempts that do not count too.
        spark__sql__streaming__stateStore__maintenanceInterval="500ms",
        spark__sql__streaming__stateStore__minDeltasForSnapshot="2",
        spark__sql__shuffle__partitions=str(partitions),
        spark__holdfast__checkpoint__dir=str(folder / "state"),
        spark__holdfast__local__dir=str(folder / "local"),
        spark__holdfast__slots="8",
        spark__holdfast__fold__deltas__max="2",
        spark__holdfast__snapshot__deltas__max="2",
        spark__holdfast__retainedBatches="2",
    )
    if needs_repartition(checkpoint, partitions):
        repartition(spark, checkpoint, partitions)
    events = spark.readStream.schema("user string, amount long").option("maxFilesPerTrigger", 1)
    totals = events.parquet(str(folder / "source")).transform(hf.keyed("user", RunningTotal(), TOTALS, name="totals"))
    query = hf.write_exactly_once(
        totals,
        hf.FileSink(str(folder / "output")),
        checkpoint=str(checkpoint),
        trigger={"processingTime": "0 seconds"},
    )
    tell_batches(query)
    query.awaitTermination()


def needs_repartition(checkpoint: Path, partitions: int) -> bool:
    """Whether Spark has planned none to this number, or one that did not come to its end."""
    planned = sorted(int(path.name) for path in (checkpoint / "offsets").glob("*") if path.name.isdigit())
    if not planned:
        return False
    found = [_partitions(checkpoint, batch_id) for batch_id in planned[-2:]]
    unfinished = len(found) == 2 and found[0] != found[1] and not (checkpoint / "commits" / str(planned[-1])).exists()
    return found[-1] != partitions or unfinished


def _partitions(checkpoint: Path, batch_id: int) -> int:
    planned = json.loads((checkpoint / "offsets" / str(batch_id)).read_text().splitlines()[1])
    return int(planned["conf"]["spark.sql.shuffle.partitions"])


if __name__ == "__main__":
    main()
