"""The program whose checkpoints earlier code wrote and today's opens: Kafka and files, one record, random numbers.

    python stream.py FOLDER SERVERS TOPIC LAST_BATCH [INPUT]

Runs under the package of any release, so it has nothing but public names. The numbers tell which run of a batch the
state belongs to: a total that goes on from another run's numbers is seen. Prints a line for each committed batch, and
stops after LAST_BATCH. Reads Spark's own source of counted rows, or the Kafka topic INPUT.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_A_BATCH = 24
OUTPUT = "seq long, user string, number long, before long, total long, rows long"


class Draws(hf.BatchProcessor):
    """A number drawn for each row; the last one and the sum of the user's, and how many there were."""

    last = hf.ValueState(pa.int64())
    total = hf.ReducingState(pa.int64(), "sum")
    rows = hf.AggregatingState(pa.int64(), "count")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        for row in range(batch.num_rows):  # one at a time: `before` is that of the row before
            one = batch.slice(row, 1)
            number = pa.array([random.SystemRandom().randrange(1_000_000)], pa.int64())
            before = self.last.get(one)
            self.last.put(one, number)
            out = one.append_column("number", number).append_column("before", before)
            out = out.append_column("total", self.total.add(one, number))
            self.rows.add(one, number)
            yield out.append_column("rows", self.rows.get(one))


def events(spark: SparkSession, servers: str, topic: str | None) -> DataFrame:
    if topic is None:
        stream = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=ROWS_A_BATCH, numPartitions=1)
        return stream.load().selectExpr("value AS seq", "concat('user-', value % 7) AS user")
    hf.register_sources(spark)
    stream = spark.readStream.format("holdfast-kafka").option("kafka.bootstrap.servers", servers)
    stream = stream.option("subscribe", topic).option("startingOffsets", "earliest")
    rows = stream.option("maxOffsetsPerTrigger", ROWS_A_BATCH).load()
    return rows.selectExpr("cast(cast(value AS string) AS long) AS seq", "cast(key AS string) AS user")


def main(folder: Path, servers: str, topic: str, last_batch: int, source: str | None = None) -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.holdfast.checkpoint.dir": str(folder / "state"),
        "spark.holdfast.local.dir": str(folder / "local"),
        "spark.holdfast.fold.deltas.max": "2",
        "spark.holdfast.snapshot.deltas.max": "3",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    drawn = events(spark, servers, source).transform(hf.keyed("user", Draws(), OUTPUT, name="draws"))
    query = hf.write_exactly_once(
        drawn,
        hf.KafkaSink(servers, topic, key="user", value="*", options={"kafka.compression.type": "none"}),
        hf.FileSink(str(folder / "out")),
        checkpoint=folder / "checkpoint",
        trigger={"processingTime": "0 seconds"},
    )
    print("started", flush=True)
    told = -1
    while query.isActive and told < last_batch:
        progress = query.lastProgress
        if progress is not None and progress.batchId > told:
            told = progress.batchId
            print("batch", told, flush=True)
        time.sleep(0.05)
    if told < last_batch:
        error = query.exception()
        print("failed", " ".join(str(error).split()), flush=True)
        raise SystemExit(1)
    query.stop()
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), *sys.argv[5:])
