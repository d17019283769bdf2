"""A query of two operators whose shuffle files are lost once: what its metrics say, as JSON.

In a program, and so a JVM, of its own: once a fetch failed, a local Spark takes its only block manager off its list and
cannot register it again. From then on results of more than 1 MB are lost, and ten minutes later the JVM ends by itself.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from tests.counting_processors import LeavingTraces, LosesShuffleFiles
from tests.integration.test_metrics_in_spark import events, finished, totals
from tests.spark_sessions import start_session
from tests.streams import FileStream

import holdfast as hf


def main(folder: Path) -> None:
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
    frame = stream.events().transform(totals(LeavingTraces(str(runs)), name="first"))
    frame = frame.drop("total").transform(totals(losing, name="second"))
    query = finished(frame.writeStream.format("noop"), stream.checkpoint)
    found = {name: dataclasses.asdict(metrics) for name, metrics in hf.metrics(query).items()}
    print(json.dumps({"runs": len(list(runs.iterdir())), "metrics": found}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
