"""The program that test_timer_kills.py kills: files in, alerts of silent users by timer, files out exactly once.

    python tests/faults/timer_stream.py FOLDER [URL PLACE]

Reads FOLDER/source, one file a batch, until it is killed. Prints a line for each batch that is committed. With the URL
of a server and a place in it, `s3://bucket` or `hdfs://host:port/folder`, everything that is Holdfast's stands there:
state, commit records, output. Spark's own part of the checkpoint, under the same name, is in HDFS too; beside S3 it is
FOLDER/checkpoint, since the file system that Spark needs for S3 is a download of half a gigabyte.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.spark_sessions import start_session
from tests.streams import tell_batches
from tests.timer_processors import ALERTS, SilentUsers

import holdfast as hf


def main() -> None:
    folder, root = Path(sys.argv[1]), sys.argv[1]
    elsewhere = {}
    if sys.argv[2:]:
        url, root = sys.argv[2:]
        elsewhere = {"spark__holdfast__storage__endpoint": url}
    if root.startswith("s3://"):
        bucket = root.removeprefix("s3://")
        elsewhere |= {
            "spark__hadoop__fs__s3__impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
            f"spark__hadoop__fs__viewfs__mounttable__{bucket}__link__/checkpoint": f"file://{folder}/checkpoint",
        }
    spark = start_session(
        "local[2,4]",
        folder / "spark",
        spark__holdfast__checkpoint__dir=f"{root}/state",
        spark__holdfast__local__dir=str(folder / "local"),
        # Small limits, so that folds, snapshots and spills come while timers fire.
        spark__holdfast__memory__batch__max="1 MiB",
        spark__holdfast__fold__deltas__max="2",
        spark__holdfast__snapshot__deltas__max="3",
        spark__holdfast__retainedBatches="3",
        spark__sql__streaming__minBatchesToRetain="100000",  # the judge goes by the offsets of every batch
        **elsewhere,
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
        hf.FileSink(f"{root}/output"),
        checkpoint=f"{root}/checkpoint",
        trigger={"processingTime": "0 seconds"},
    )
    print("started", flush=True)
    tell_batches(query)
    query.awaitTermination()


if __name__ == "__main__":
    main()
