"""Processes beside a query from Kafka to Kafka under load: one produces rows by the clock, one reads at the other end.

An open loop: when a row is due does not depend on how far the query is, and latency counts from when it was due: what
waits is counted as waiting. Most rows are load, many to a message; some are probes, each with a key and a message of
its own, whose amount says when it was due.
"""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from benchmarks.stream.eos_probe import PARTITIONS, QUIET, WITHIN_S, reading_all_of
from confluent_kafka import Producer

ROWS_A_MESSAGE = 50
PROBES_PER_S = 200
_TICK_S = 0.01
_PAIR = np.dtype(">i8")


@dataclass(frozen=True)
class Load:
    """So many rows a second over so many keys, for ``warm_up_s`` that do not count and ``seconds`` that do."""

    rows_per_s: int
    keys: int
    warm_up_s: float
    seconds: float


@dataclass(frozen=True)
class Seen:
    """Of the probes that count: milliseconds from due to seen; and how late at most the producer was itself."""

    ms: list[float]
    producer_late_ms: float


def under_load(servers: str, source: str, target: str, load: Load) -> Seen:
    """Produces, reads, and waits until the last probe was seen.

    Raises
    ------
    RuntimeError
        A probe was seen twice, or none within a minute.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, context) as beside:
        producing: Future[tuple[int, float]] = beside.submit(_produce, servers, source, load)
        reading = beside.submit(_read, servers, target, load)
        probes, late_ms = producing.result()
        seen = reading.result()
    if len(seen) != probes:
        raise RuntimeError(f"expected {probes} probes at the other end, found {len(seen)}")
    first = min(seen.values())[0]
    counted = [ms for due_us, ms in seen.values() if due_us >= first + load.warm_up_s * 1e6]
    return Seen(counted, late_ms)


def fill(servers: str, source: str, rows: int, keys: int) -> None:
    """So many rows at once, for the capacity."""
    generator = np.random.default_rng(1)
    producer = _producer(servers)
    for number in range(-(-rows // ROWS_A_MESSAGE)):
        _send(producer, source, _message(generator, keys), number)
    producer.flush()


def _produce(servers: str, source: str, load: Load) -> tuple[int, float]:
    generator = np.random.default_rng(2)
    producer = _producer(servers)
    messages = probes = 0
    late_s = 0.0
    start, start_us = time.monotonic(), time.time_ns() // 1000
    total_s = load.warm_up_s + load.seconds
    while (now := time.monotonic() - start) < total_s:
        while messages * ROWS_A_MESSAGE < now * load.rows_per_s:
            _send(producer, source, _message(generator, load.keys), messages)
            messages += 1
        while (due_s := probes / PROBES_PER_S) <= now:
            late_s = max(late_s, time.monotonic() - start - due_s)
            probe = np.array([-1 - probes, start_us + int(due_s * 1e6)], _PAIR)
            _send(producer, source, probe.tobytes(), probes)
            probes += 1
        producer.poll(0)
        time.sleep(max(0.0, _TICK_S - (time.monotonic() - start - now)))
    producer.flush()
    return probes, late_s * 1000


def _read(servers: str, target: str, load: Load) -> dict[int, tuple[int, float]]:
    """By probe: when it was due, in microseconds, and how many milliseconds later it was seen."""
    consumer = reading_all_of(servers, target)
    wanted = int(np.ceil((load.warm_up_s + load.seconds) * PROBES_PER_S))
    seen: dict[int, tuple[int, float]] = {}
    moved = time.monotonic()
    while len(seen) < wanted and time.monotonic() - moved < WITHIN_S:
        message: Any = consumer.poll(0.2)
        if message is None or message.error():
            continue
        moved, now_us = time.monotonic(), time.time_ns() / 1000
        number, due_us = map(int, message.value().split(b" "))
        if number in seen:
            raise RuntimeError(f"probe {number} was seen twice")
        seen[number] = (due_us, (now_us - due_us) / 1000)
    consumer.close()
    return seen


def _producer(servers: str) -> Producer:
    return Producer({"bootstrap.servers": servers, "linger.ms": 2, "enable.idempotence": True}, logger=QUIET)


def _message(generator: np.random.Generator, keys: int) -> bytes:
    pairs = np.empty((ROWS_A_MESSAGE, 2), _PAIR)
    pairs[:, 0] = generator.integers(0, keys, ROWS_A_MESSAGE)
    pairs[:, 1] = 1
    return pairs.tobytes()


def _send(producer: Producer, topic: str, value: bytes, number: int) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=number % PARTITIONS)
        except BufferError:  # the queue is full: what is due meanwhile waits, and that counts
            producer.poll(0.1)
        else:
            return
