"""A query that a test kills: writes down what each batch read, and waits for the kill in the batch it is told to."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark_sessions import start_session

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(servers: str, topic: str, folder: Path, wait_in: int) -> None:
    """From the latest on, in batches of 120 offsets."""
    # A machine that is busy with other tests takes its time to start a Python worker.
    spark = start_session("local[2]", folder / "spark", spark__python__authenticate__socketTimeout="120s")
    hf.register_sources(spark)
    stream = (
        spark.readStream.format("holdfast-kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("maxOffsetsPerTrigger", 120)
        .option("minPartitions", 5)
        .load()
    )

    def note(frame: DataFrame, batch_id: int) -> None:
        rows = sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())
        with (folder / "batches").open("a") as out:
            out.write(json.dumps([batch_id, rows]) + "\n")
        if batch_id == wait_in:
            (folder / f"reached-{wait_in}").touch()
            time.sleep(600)

    writer = stream.writeStream.foreachBatch(note).option("checkpointLocation", str(folder / "checkpoint"))
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
