"""One process beside a query from Kafka to Kafka: it produces rows at a steady pace and reads them at the other end.

Both ends have one clock. Rows carry when they were due, whether or not the one before was done by then: what delays the
producer is waited for by its rows too. The reader says how much later it saw each. A row comes in a transaction of its
own, with aborted ones between them.
"""

from __future__ import annotations

import logging
import multiprocessing
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from holdfast.testing.kafka_feed import Record, TransactionalFeed

PARTITIONS = 4
WITHIN_S = 60.0
QUIET = logging.getLogger("benchmarks.kafka")


@dataclass(frozen=True)
class Pace:
    """So many rows that count, so many a second; before them ``warm_up_s``, once the first has come through."""

    rows: int
    warm_up_s: float
    per_s: int


def latencies(servers: str, source: str, target: str, pace: Pace) -> list[float]:
    """Milliseconds from when each row was due to when a read_committed consumer sees it."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as beside:
        return beside.submit(_probe, servers, source, target, pace).result()


def reading_all_of(servers: str, topic: str) -> Consumer:
    """A read_committed consumer at the beginning of a topic, which hands over at once what it gets."""
    settings = {"bootstrap.servers": servers, "group.id": "probe", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "fetch.wait.max.ms": 10, "enable.auto.commit": False}, logger=QUIET)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    return consumer


def _probe(servers: str, source: str, target: str, pace: Pace) -> list[float]:
    consumer = reading_all_of(servers, target)
    writing = _Writing(servers, source, pace.per_s)
    seen: dict[int, tuple[int, float]] = {}  # by row: when it was due, and how much later it was seen
    counted, counts_from_ns = 0, 0
    moved = time.monotonic()
    while writing.is_alive() or len(seen) < writing.rows:
        message: Any = consumer.poll(0.2)
        if time.monotonic() - moved > WITHIN_S:
            raise RuntimeError(f"{writing.rows - len(seen)} of {writing.rows} rows were not seen within {WITHIN_S:g} s")
        if message is None or message.error():
            continue
        moved, now_ns = time.monotonic(), time.time_ns()
        number, due_ns = map(int, message.value().split(b" "))
        if number in seen:
            raise RuntimeError(f"row {number} was seen twice")
        seen[number] = (due_ns, (now_ns - due_ns) / 1e6)
        counts_from_ns = counts_from_ns or now_ns + int(pace.warm_up_s * 1e9)
        counted += due_ns > counts_from_ns
        if counted >= pace.rows:
            writing.enough.set()
    consumer.close()
    return [ms for due_ns, ms in seen.values() if due_ns > counts_from_ns]


class _Writing(threading.Thread):
    """Produces until it is enough."""

    def __init__(self, servers: str, topic: str, per_s: int) -> None:
        super().__init__(daemon=True)
        self.enough = threading.Event()
        self.rows = 0
        self._feed = TransactionalFeed(servers, topic, f"feed-of-{topic}")
        self._per_s = per_s
        self.start()

    def run(self) -> None:
        """Row after row."""
        started, started_ns = time.monotonic(), time.time_ns()
        while not self.enough.wait(max(0.0, started + self.rows / self._per_s - time.monotonic())):
            row = b"%d %d" % (self.rows, started_ns + self.rows * 1_000_000_000 // self._per_s)
            self._feed.send([Record(row, partition=self.rows % PARTITIONS)])
            self.rows += 1
