"""The job through Kafka: flights from one topic, each carrier's figures into another, exactly once.

`kafka_demo.py` runs it, kills it twice and counts what is visible. It knows nothing of that.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from job import CARRIER, FLIGHTS, CarrierDelays, start_session, tell_progress
from pyspark.sql import functions as sql
from session import committed_rows

import holdfast as hf

SOURCE, OUTPUT = "flights", "figures"  # topics
BATCHES_MIN = 15  # so many, however fast the flights come


def run(folder: Path, servers: str, rows: int) -> None:
    """Runs until so many rows are committed."""
    spark = start_session(folder)
    hf.register_sources(spark)
    messages = (
        spark.readStream.format("holdfast-kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", max(1, rows // BATCHES_MIN))
        .load()
    )
    flights = messages.select(sql.from_json(messages.value.cast("string"), FLIGHTS).alias("flight")).select("flight.*")
    figures = flights.transform(hf.keyed("carrier", CarrierDelays(), CARRIER, name="carriers"))
    query = hf.write_exactly_once(
        figures,
        hf.KafkaSink(servers, OUTPUT, key="carrier", value="*"),
        checkpoint=folder / "checkpoint",
        trigger={"processingTime": "500 milliseconds"},
    )
    tell_progress(query, folder, lambda: committed_rows(folder) >= rows)
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="state and checkpoint go there")
    parser.add_argument("servers", help="host:port of a broker that has both topics")
    parser.add_argument("rows", type=int, help="how many flights there will be in all")
    given = parser.parse_args()
    run(given.folder.resolve(), given.servers, given.rows)
