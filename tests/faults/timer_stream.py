"""The program that test_timer_kills.py kills: files in, alerts of silent users by timer, files out exactly once.

    python tests/faults/timer_stream.py FOLDER

Reads FOLDER/source, one file a batch, until it is killed. Prints a line for each batch that is committed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.spark_sessions import start_session
from tests.streams import tell_batches
from tests.timer_processors import ALERTS, SilentUsers

import holdfast as hf


def main() -> None:
    folder = Path(sys.argv[1])
    spark = start_session(
        "local[2,4]",
        folder / "spark",
        spark__holdfast__checkpoint__dir=str(folder / "state"),
        spark__holdfast__local__dir=str(folder / "local"),
        # Small limits, so that folds, snapshots and spills come while timers fire.
        spark__holdfast__memory__batch__max="1 MiB",
        spark__holdfast__fold__deltas__max="2",
        spark__holdfast__snapshot__deltas__max="3",
        spark__holdfast__retainedBatches="3",
    )
    events = (
        spark.readStream.schema("user string, ts timestamp")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "source"))
    )
    alerts = events.transform(
        hf.keyed("user", SilentUsers(), ALERTS, name="silent", watermark=("ts", "0 seconds"), ticks="never")
    )
    query = hf.write_exactly_once(
        alerts,
        hf.FileSink(str(folder / "output")),
        checkpoint=str(folder / "checkpoint"),
        trigger={"processingTime": "0 seconds"},
    )
    print("started", flush=True)
    tell_batches(query)
    query.awaitTermination()


if __name__ == "__main__":
    main()
