"""Consumers that live on in a worker process from batch to batch.

A new consumer costs a connection and some 30 ms; one that goes on where its last range ended has even prefetched what
comes next. A consumer is leased to one range at a time. Positions are exact: whoever leases it says where to start, and
only a consumer that stands exactly there, in the same topic (by id), keeps what it has prefetched.

Owner: the threads of one process; a forked child starts with an empty pool and leaves the parent's consumers alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

from holdfast.clock import Clock, SystemClock
from holdfast.kafka.client import confluent_kafka, logger, refused
from holdfast.source.kafka.offsets import Range

IDLE_CONSUMERS_MAX = 8
IDLE_MS_MAX = 300_000.0

# Ours, where the user has not said otherwise. A range ends in a control record when its last transaction does; only the
# next, empty answer of the broker tells so: do not let it wait for long. Prefetched bytes are bounded for each
# consumer.
_DEFAULTS = {
    "fetch.wait.max.ms": "10",
    "fetch.queue.backoff.ms": "5",
    "fetch.error.backoff.ms": "50",
    "queued.max.messages.kbytes": "16384",
    "reconnect.backoff.ms": "20",
    "reconnect.backoff.max.ms": "1000",
}
_FIXED = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
}


class PooledConsumer:
    """A consumer, the place it stands at, and what it has handed over beyond the end of its last range."""

    def __init__(self, config: Mapping[str, str]) -> None:
        kafka = confluent_kafka()
        self.config = dict(config)
        full = {"group.id": "holdfast-kafka-source", **_DEFAULTS, **config, **_FIXED}
        try:
            self.client: Any = kafka.Consumer(full, logger=logger)
        except (kafka.KafkaException, ValueError, TypeError) as error:
            raise refused(error, full) from None
        self._partition_type = kafka.TopicPartition
        self.place: tuple[str, str, int] | None = None
        self.position = -1
        self.end_of_log = -1
        self.ahead: list[Any] = []
        self.idle_since_ms = 0.0
        self._paused = False

    def stands_at(self, wanted: Range) -> bool:
        """Whether the next message to hand over is the first of a range."""
        return self.place == _place(wanted) and self.position == wanted.start

    def move_to(self, wanted: Range) -> None:
        """Go to the start of a range; for free when it stands there."""
        if self._paused and self.place is not None:
            # Also before it is sent elsewhere: a pause outlives an assignment.
            self.client.resume([self._partition_type(self.place[1], self.place[2])])
        if not self.stands_at(wanted):
            self.client.assign([self._partition_type(wanted.topic, wanted.partition, wanted.start)])
            self.place, self.position, self.end_of_log, self.ahead = _place(wanted), wanted.start, -1, []
        self._paused = False

    def rest(self, now_ms: float) -> None:
        """Between two batches: stop asking an idle partition every few ms, keep what is prefetched of a busy one."""
        self.idle_since_ms = now_ms
        if self.place is None:
            return
        _, topic, number = self.place
        if not self.ahead and self.end_of_log >= self.position:
            self.client.pause([self._partition_type(topic, number)])
            self._paused = True

    def forget(self, now_ms: float) -> None:
        """It was left in the middle of a range: where it stands is not known."""
        self.client.unassign()
        self.place, self.position, self.ahead, self._paused = None, -1, [], False
        self.idle_since_ms = now_ms

    def close(self) -> None:
        """Give back its connections and threads."""
        self.client.close()


class ConsumerPool:
    """All idle consumers of one process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._idle: list[PooledConsumer] = []
        self._pid = os.getpid()

    def lease(self, config: Mapping[str, str], wanted: Range) -> PooledConsumer:
        """A consumer with this configuration, at the start of a range: best one that stands there already."""
        with self._lock:
            self._after_fork()
            alike = [consumer for consumer in self._idle if consumer.config == config]
            alike.sort(key=lambda consumer: (not consumer.stands_at(wanted), consumer.idle_since_ms))
            found = alike[0] if alike else None
            if found is not None:
                self._idle.remove(found)
        consumer = found or PooledConsumer(config)
        consumer.move_to(wanted)
        return consumer

    def give_back(self, consumer: PooledConsumer, intact: bool) -> None:
        """``intact``: the range was read to its end."""
        now_ms = self._clock.elapsed_ms()
        if intact:
            consumer.rest(now_ms)
        else:
            consumer.forget(now_ms)
        with self._lock:
            self._after_fork()
            self._idle.append(consumer)
            stale = now_ms - IDLE_MS_MAX
            drop = [old for old in self._idle if old.idle_since_ms < stale]
            kept = [old for old in self._idle if old.idle_since_ms >= stale]
            drop += kept[: max(0, len(kept) - IDLE_CONSUMERS_MAX)]
            self._idle = [old for old in kept if old not in drop]
        for old in drop:
            old.close()

    def clear(self) -> None:
        """Close all idle consumers."""
        with self._lock:
            idle, self._idle = self._idle, []
        for consumer in idle:
            consumer.close()

    def _after_fork(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._idle = []


def _place(part: Range) -> tuple[str, str, int]:
    return part.topic_id, part.topic, part.partition


POOL = ConsumerPool()
