"""From Kafka by Spark's own connector, through a keyed operator, to Kafka exactly once; until all is read."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.processors import TOTALS, RunningTotal
from tests.spark_sessions import start_session

import holdfast as hf


def main(servers: str, source: str, target: str, folder: Path, jars: str) -> None:
    """Keys are users, values their amounts."""
    settings = {"spark__jars": jars, "spark__holdfast__checkpoint__dir": str(folder / "state")}
    spark = start_session("local[2]", folder / "spark", **settings)
    clicks = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 60)
        .load()
    )
    events = clicks.selectExpr("string(key) AS user", "bigint(string(value)) AS amount")
    totals = events.transform(hf.keyed("user", RunningTotal(), TOTALS, name="totals"))
    sink = hf.KafkaSink(servers, target, key="user", value="*")
    query = hf.write_exactly_once(totals, sink, checkpoint=folder / "checkpoint", trigger={"availableNow": True})
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), sys.argv[5])
