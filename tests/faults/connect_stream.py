"""The program of test_connect_kills: payments meet their orders. What is found goes to files; late orders, and payments
of no order, to a topic of Kafka each.

    python tests/faults/connect_stream.py FOLDER SERVERS LATE UNKNOWN

Each payment draws a number, which its order's state adds up: another attempt at a batch has other output and state.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.spark_sessions import start_session
from tests.streams import tell_batches

import holdfast as hf

ORDERS = "order_id long, at timestamp"
PAYMENTS = "payment long, order long"
LATE, UNKNOWN = hf.SideOutput("late"), hf.SideOutput("unknown", "value long")


class Match(hf.BatchProcessor):
    known = hf.ValueState(pa.bool_())
    payments = hf.ReducingState(pa.int64(), "sum")
    drawn = hf.ReducingState(pa.int64(), "sum")

    def process_orders(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.known.put(batch, True)

    def process_payments(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        known = self.known.get(batch)
        ctx.output(UNKNOWN, [{"value": number} for number in batch["payment"].filter(known.is_null()).to_pylist()])
        found = batch.filter(known.is_valid())
        numbers = pa.array([int.from_bytes(os.urandom(4), "little") for _ in range(found.num_rows)], pa.int64())
        columns = [*found.columns, self.payments.add(found, 1), numbers, self.drawn.add(found, numbers)]
        yield pa.RecordBatch.from_arrays(columns, names=["payment", "order", "n", "number", "drawn"])


def main(folder: Path, servers: str, late: str, unknown: str) -> None:
    spark = start_session(
        "local[2,4]",
        folder / f"spark-{os.getpid()}",
        spark__holdfast__checkpoint__dir=str(folder / "state"),
        spark__holdfast__local__dir=str(folder / "local"),
    )
    orders, payments = (
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        for name, schema in (("orders", ORDERS), ("payments", PAYMENTS))
    )
    matched = hf.connect(
        {"orders": orders, "payments": payments},
        {"orders": "order_id", "payments": "order"},
        Match(),
        f"{PAYMENTS}, n long, number long, drawn long",
        name="match",
        watermark={"orders": ("at", "1 minute")},
        late={"orders": LATE},
        side_outputs=[UNKNOWN],
    )
    sinks: dict[hf.SideOutput | None, Any] = {
        None: hf.FileSink(str(folder / "out")),
        LATE: hf.KafkaSink(servers, late, key=None, value="order_id", name="late"),
        UNKNOWN: hf.KafkaSink(servers, unknown, key=None, name="unknown"),
    }
    query = hf.write_exactly_once(
        matched, sinks, checkpoint=folder / "checkpoint", trigger={"processingTime": "0 seconds"}
    )
    tell_batches(query)
    query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
