"""Feeds the flights into Kafka in order of time, some days a second. Ends early when its standard input is closed.

    python kafka_feeder.py FOLDER SERVERS TOPIC DAYS_A_SECOND

A day is a file of FOLDER/input. A flight is one record: its carrier is the key, its columns in JSON are the value. Of
each day that the brokers have acknowledged, a line goes to FOLDER/fed.jsonl.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
from confluent_kafka import Producer


def records(file: Path) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a day."""
    for flight in pq.read_table(file).to_pylist():
        flight["departure"] = flight["departure"].isoformat()
        yield flight["carrier"].encode(), json.dumps(flight).encode()


def feed(folder: Path, servers: str, topic: str, days_a_second: float) -> None:
    """All days, each when it is due."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,  # nothing is lost, twice or out of order on the way in, either
            "partitioner": "murmur2_random",  # as Kafka's own client: a carrier's flights are in one partition
            "linger.ms": 5,
        }
    )
    failures: list[str] = []
    rows, began = 0, time.monotonic()
    with open(folder / "fed.jsonl", "a", encoding="utf-8") as told:
        for day, file in enumerate(sorted((folder / "input").glob("*.parquet"))):
            while (wait_s := began + day / days_a_second - time.monotonic()) > 0:
                if select.select([sys.stdin], [], [], wait_s)[0]:
                    return
            for key, value in records(file):
                producer.produce(topic, value, key, on_delivery=lambda e, _: failures.append(str(e)) if e else None)
                rows += 1
            if producer.flush(60) or failures:
                raise SystemExit(f"day {day} was not acknowledged: {failures[:1]}")
            told.write(json.dumps({"at": time.time(), "rows": rows}) + "\n")
            told.flush()


if __name__ == "__main__":
    feed(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]))
