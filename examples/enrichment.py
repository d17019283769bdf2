"""Orders with the names of their customers: two inputs that share a key. Orders that come too late, and orders of
unknown customers, go to outputs of their own, all of them exactly once. Kill it (kill -9), start it again.
"""

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import holdfast as hf

late = hf.SideOutput("late")
unknown = hf.SideOutput("unknown", "order_id long, customer_id long, amount long, ts timestamp")


class Enrich(hf.BatchProcessor):
    customer = hf.ValueState(pa.string())

    def process_customers(self, batch, ctx):
        self.customer.put(batch, batch["customer"])

    def process_orders(self, batch, ctx):
        customers = self.customer.get(batch)
        ctx.output(unknown, batch.filter(customers.is_null()))
        yield batch.drop_columns(["ts"]).append_column("customer", customers).filter(pc.is_valid(customers))


spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.sql.shuffle.partitions", 2)
    .config("spark.holdfast.checkpoint.dir", "/tmp/enrichment/state")
    .getOrCreate()
)
# A customer changes the name every ten batches. A minute passes with each batch; every fiftieth order is an hour old.
customers = (
    spark.readStream.format("rate-micro-batch")
    .option("rowsPerBatch", 10)
    .load()
    .selectExpr("value % 100 AS customer_id", "concat('name ', value div 100) AS customer")
)
orders = (
    spark.readStream.format("rate-micro-batch")
    .option("rowsPerBatch", 1000)
    .option("advanceMillisPerBatch", 60_000)
    .option("startTimestamp", 1_767_225_600_000)
    .load()
    .selectExpr(
        "value AS order_id",
        "value % 120 AS customer_id",
        "value % 7 AS amount",
        "timestamp - make_dt_interval(0, if(value % 50 = 0, 1, 0)) AS ts",
    )
)
enriched = hf.connect(
    {"customers": customers, "orders": orders},
    "customer_id",
    Enrich(),
    "order_id long, customer_id long, amount long, customer string",
    name="enrich",
    watermark={"orders": ("ts", "10 minutes")},
    late={"orders": late},
    side_outputs=[unknown],
)
query = hf.write_exactly_once(
    enriched,
    {
        None: hf.FileSink("/tmp/enrichment/orders", name="orders"),
        late: hf.FileSink("/tmp/enrichment/late", name="late"),
        unknown: hf.FileSink("/tmp/enrichment/unknown", name="unknown"),
    },
    checkpoint="/tmp/enrichment/spark",
)
query.awaitTermination()
