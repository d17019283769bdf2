"""A first program: running totals by user. Stop it roughly (kill -9), start it again: the totals go on."""

import pyarrow as pa
from pyspark.sql import SparkSession

import holdfast as hf


class RunningTotal(hf.BatchProcessor):
    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch, ctx):
        yield batch.append_column("total", self.total.add(batch, batch["amount"]))


spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.sql.shuffle.partitions", 2)
    .config("spark.holdfast.checkpoint.dir", "/tmp/first-program/state")
    .config(map=hf.terminal_log("/tmp/first-program/spark.log"))
    .getOrCreate()
)
events = (
    spark.readStream.format("rate-micro-batch")
    .option("rowsPerBatch", 1000)
    .load()
    .selectExpr("concat('user-', value % 10) AS user", "value AS amount")
)
totals = events.transform(hf.keyed("user", RunningTotal(), "user string, amount long, total long", name="totals"))
writer = totals.writeStream.format("console").trigger(processingTime="1 second")
query = hf.start(writer, checkpoint="/tmp/first-program/spark")
query.awaitTermination()
