"""Feeds the flights into Kafka in order of time, some days a second. Ends early when its standard input is closed.

    python kafka_feeder.py FOLDER SERVERS TOPIC DAYS_A_SECOND

A day is a file of FOLDER/input. A flight is one record: its carrier is the key, its columns in JSON are the value. They
come in transactions, small and large, with aborted ones between them, so that offsets have gaps, as in the world. Of
each day that is committed, a line goes to FOLDER/fed.jsonl.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from holdfast.testing.kafka_feed import Record, TransactionalFeed

# What is in aborted transactions: a flight of a carrier that there is not.
ABORTED = json.dumps({"carrier": "aborted"}).encode()


def records(file: Path) -> Iterator[Record]:
    """The flights of a day."""
    for flight in pq.read_table(file).to_pylist():
        flight["departure"] = flight["departure"].isoformat()
        yield Record(json.dumps(flight).encode(), flight["carrier"].encode())


def feed(folder: Path, servers: str, topic: str, days_a_second: float) -> None:
    """All days, each when it is due."""
    # As Kafka's own client: a carrier's flights are in one partition.
    partitioner = {"partitioner": "murmur2_random"}
    producer = TransactionalFeed(servers, topic, "flights-feeder", decoy=ABORTED, small_max=3, config=partitioner)
    rows, began = 0, time.monotonic()
    with open(folder / "fed.jsonl", "a", encoding="utf-8") as told:
        for day, file in enumerate(sorted((folder / "input").glob("*.parquet"))):
            while (wait_s := began + day / days_a_second - time.monotonic()) > 0:
                if select.select([sys.stdin], [], [], wait_s)[0]:
                    return
            flights = list(records(file))
            producer.send(flights)
            rows += len(flights)
            told.write(json.dumps({"at": time.time(), "rows": rows}) + "\n")
            told.flush()


if __name__ == "__main__":
    feed(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]))
