"""A query whose shuffle files are lost once, as JSON: what the metrics of its two operators say; or, where it has one
and is written exactly once, which of its tasks count as tried again.

In a program, and so a JVM, of its own: once a fetch failed, a local Spark takes its only block manager off its list and
cannot register it again. From then on results of more than 1 MB are lost, and ten minutes later the JVM ends by itself.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from tests.counting_processors import LeavingTraces, LosesShuffleFiles
from tests.integration.test_metrics_in_spark import events, finished, totals
from tests.spark_sessions import start_session
from tests.streams import FileStream

import holdfast as hf
from holdfast.spark.write import BatchOutput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from holdfast.commit.record import TaskRecord


def doubted(stream: FileStream, losing: LosesShuffleFiles, folder: Path) -> list[tuple[int, int]]:
    """Partition and attempt of the tasks that Spark may have run twice, of a batch that is written exactly once."""
    frame = stream.events().transform(totals(losing))
    output = BatchOutput.__call__
    found: dict[int, tuple[TaskRecord, ...]] = {}

    def noting(self: BatchOutput, batch: DataFrame, batch_id: int) -> None:
        output(self, batch, batch_id)
        assert self._committer is not None
        found.update(self._committer.doubted)

    with patch.object(BatchOutput, "__call__", noting):
        sink = hf.FileSink(str(folder / "out"))
        query = hf.write_exactly_once(frame, sink, checkpoint=stream.checkpoint, trigger={"availableNow": True})
        query.awaitTermination()
    return [(task.partition, task.attempt) for task in found.get(0, ())]


def main(folder: Path, exactly_once: bool = False) -> None:
    spark = start_session(
        "local[2,2]",
        folder / "spark",
        spark__sql__streaming__unsupportedOperationCheck="false",
        spark__sql__shuffle__partitions="6",
        spark__holdfast__checkpoint__dir=str(folder / "state"),
        spark__holdfast__local__dir=str(folder / "local"),
    )
    stream = FileStream(spark, folder)
    stream.write(events(0))
    runs = folder / "runs"
    runs.mkdir()
    losing = LosesShuffleFiles(spark.sparkContext.getConf().get("spark.local.dir") or "", str(folder / "lost"))
    if exactly_once:
        print(json.dumps({"doubted": doubted(stream, losing, folder), "lost": (folder / "lost").exists()}))
        spark.stop()
        return
    frame = stream.events().transform(totals(LeavingTraces(str(runs)), name="first"))
    frame = frame.drop("total").transform(totals(losing, name="second"))
    query = finished(frame.writeStream.format("noop"), stream.checkpoint)
    found = {name: dataclasses.asdict(metrics) for name, metrics in hf.metrics(query).items()}
    print(json.dumps({"runs": len(list(runs.iterdir())), "metrics": found}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(bool, sys.argv[2:]))
