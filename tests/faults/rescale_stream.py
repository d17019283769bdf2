"""The program that test_rescale_kills.py kills: files in, running totals, files out exactly once, in one generation.

    python tests/faults/rescale_stream.py FOLDER GENERATION SLOTS

Reads FOLDER/GENERATION/source, one file a batch, until it is killed; what is not the first generation begins with the
state of the one before, or with the savepoint FOLDER/GENERATION/saved where there is one. Prints a line for each batch
that is committed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.processors import TOTALS, RunningTotal
from tests.spark_sessions import start_session
from tests.streams import tell_batches

import holdfast as hf


def main() -> None:
    folder, generation, slots = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    own = folder / str(generation)
    spark = start_session(
        "local[2,4]",
        own / "spark",
        spark__holdfast__checkpoint__dir=str(folder / "state"),
        spark__holdfast__local__dir=str(folder / "local"),
        spark__holdfast__slots=str(slots),
        # Small limits, so that folds, snapshots and retention come in the first batches.
        spark__holdfast__fold__deltas__max="2",
        spark__holdfast__snapshot__deltas__max="2",
        spark__holdfast__retainedBatches="2",
    )
    events = (
        spark.readStream.schema("user string, amount long").option("maxFilesPerTrigger", 1).parquet(str(own / "source"))
    )
    restore = hf.Restore(folder / str(generation - 1) / "checkpoint") if generation else None
    if (own / "saved").exists():
        restore = hf.Restore(savepoint=own / "saved")
    totals = events.transform(hf.keyed("user", RunningTotal(), TOTALS, name="totals", restore=restore))
    query = hf.write_exactly_once(
        totals,
        hf.FileSink(str(own / "output")),
        checkpoint=str(own / "checkpoint"),
        trigger={"processingTime": "0 seconds"},
    )
    print("started", flush=True)
    tell_batches(query)
    query.awaitTermination()


if __name__ == "__main__":
    main()
