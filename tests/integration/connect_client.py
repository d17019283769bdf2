"""A program on a session of Spark Connect, whose server it starts: a keyed operator, twice, and what is refused."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import holdfast as hf

FOLDER = Path(sys.argv[1])


class RunningTotal(hf.BatchProcessor):
    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        yield batch.append_column("total", self.total.add(batch, batch["amount"]))


def refused(call: Callable[[], Any]) -> None:
    try:
        call()
    except hf.InvalidRequest as error:
        print("refused", error, flush=True)


spark = (
    SparkSession.builder.remote("local[2]")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.log.level", "OFF")
    .config("spark.holdfast.checkpoint.dir", str(FOLDER / "state"))
    .getOrCreate()
)
events = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).load()
events = events.selectExpr("concat('user-', value % 10) AS user", "value AS amount")
totals = events.transform(hf.keyed("user", RunningTotal(), "user string, amount long, total long", name="totals"))
writer = totals.writeStream.format("parquet").option("path", str(FOLDER / "out"))
writer = writer.option("checkpointLocation", str(FOLDER / "checkpoint"))
for batch_id in (1, 3):
    query = writer.start()
    while query.isActive and not (query.lastProgress and query.lastProgress["batchId"] >= batch_id):
        time.sleep(0.2)
    query.stop()
    assert query.exception() is None, query.exception()
rows = spark.read.parquet(str(FOLDER / "out")).toArrow().to_pylist()
wrong = [row for row in rows if sum(range(int(row["user"][5:]), row["amount"] + 1, 10)) != row["total"]]
print("rows", len(rows) >= 4000, "wrong", len(wrong))
refused(lambda: hf.start(writer))
refused(lambda: hf.await_termination(query))
refused(lambda: hf.metrics(query))
refused(lambda: hf.write_exactly_once(totals, hf.FileSink(str(FOLDER / "files")), checkpoint=FOLDER / "other"))
