"""An independent reader: a plain consumer that knows Kafka and nothing of Holdfast or Spark.

    python kafka_reader.py follow SERVERS TOPIC FOLDER               until its standard input is closed
    python kafka_reader.py read   SERVERS TOPIC ISOLATION FILE       once, from the start to the end

`follow` tells what a read_committed consumer sees by now: how many rows, in FOLDER/visible.jsonl; and the newest of
each key, in FOLDER/newest.json. `read` writes all there is into a Parquet file, in the order of each partition.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition

TELL_EVERY_S = 0.2
WITHIN_S = 60.0


def consumer(servers: str, topic: str, isolation: str) -> tuple[Any, set[int]]:
    """A consumer at the start of all partitions, and their numbers."""
    reader = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "independent-reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    numbers = set(reader.list_topics(topic, WITHIN_S).topics[topic].partitions)
    reader.assign([TopicPartition(topic, number, 0) for number in numbers])
    return reader, numbers


def follow(servers: str, topic: str, folder: Path) -> None:
    """Counts while others write."""
    reader, _ = consumer(servers, topic, "read_committed")
    rows, newest, due = 0, {}, time.monotonic()
    with open(folder / "visible.jsonl", "a", encoding="utf-8") as told:
        while not select.select([sys.stdin], [], [], 0)[0]:
            for message in reader.consume(5000, TELL_EVERY_S):
                if not message.error():
                    newest[message.key()] = message
                    rows += 1
            if time.monotonic() >= due:
                due = time.monotonic() + TELL_EVERY_S
                told.write(json.dumps({"at": time.time(), "rows": rows}) + "\n")
                told.flush()
                figures = {key.decode(): json.loads(message.value()) for key, message in newest.items()}
                (folder / "newest.tmp").write_text(json.dumps(figures), encoding="utf-8")
                (folder / "newest.tmp").replace(folder / "newest.json")
    reader.close()


def read(servers: str, topic: str, isolation: str, file: Path) -> None:
    """Reads all there is."""
    reader, left = consumer(servers, topic, isolation)
    rows, deadline = [], time.monotonic() + WITHIN_S
    while left:
        if time.monotonic() > deadline:
            raise SystemExit(f"partitions {left} of {topic} did not end within {WITHIN_S:g} s")
        for message in reader.consume(5000, 0.2):
            if message.error():
                left.discard(message.partition())
            else:
                rows.append((message.partition(), message.offset(), message.key(), message.value()))
    reader.close()
    names = ["partition", "offset", "key", "value"]
    types = [pa.int32(), pa.int64(), pa.binary(), pa.binary()]
    columns = list(zip(*rows)) or [()] * len(names)
    table = pa.table([pa.array(column, of) for column, of in zip(columns, types)], names=names)
    pq.write_table(table.sort_by([("partition", "ascending"), ("offset", "ascending")]), file)


if __name__ == "__main__":
    way, *given = sys.argv[1:]
    if way == "follow":
        follow(given[0], given[1], Path(given[2]))
    else:
        read(given[0], given[1], given[2], Path(given[3]))
