"""Consumers that live on in a worker process from batch to batch.

A new consumer costs a connection and some 30 ms; one that goes on where its last range ended has even prefetched what
comes next. A consumer is leased to one range at a time. Positions are exact: whoever leases it says where to start, and
only a consumer that stands exactly there, in the same topic (by id), keeps what it has prefetched. Where it stands, and
what that proves, is its `Cursor`'s.

Owner: the threads of one process; a forked child starts with an empty pool and leaves the parent's consumers alone.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.clock import Clock, SystemClock
from holdfast.errors import InvalidRequest
from holdfast.kafka.client import confluent_kafka, logger, open_client
from holdfast.kafka.client_config import without_secrets
from holdfast.kafka.renewed import Stamps, once_usable, say_not_used, stamps
from holdfast.source.kafka.cursor import Cursor
from holdfast.source.kafka.offsets import Range

IDLE_CONSUMERS_MAX = 8
IDLE_MS_MAX = 300_000.0

# Ours, where the user has not said otherwise. A range ends in a control record when its last transaction does;
# only the next, empty answer of the broker tells so: do not let it wait for long.
# Prefetched bytes are bounded for each consumer. Checksums are looked at, as Kafka's own consumer does: librdkafka does
# not by itself, and hands out what a broker's disk has made of a record.
_DEFAULTS = {
    "check.crcs": "true",
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
    """A consumer, the partition it is assigned, and where it stands there."""

    def __init__(self, config: Mapping[str, str], client: Any, files: Stamps = ()) -> None:
        self.config = dict(config)
        self.files = files
        self.client = client
        self._partition_type = confluent_kafka().TopicPartition
        self.place: tuple[str, str, int] | None = None
        self.cursor = Cursor(-1)
        self.idle_since_ms = 0.0
        self.is_watched = False
        #: How far a watched client has fetched, skipping what nobody may see; -1: it has not said so yet.
        self.fetched_to = -1
        self._paused = False

    def stands_at(self, wanted: Range) -> bool:
        """Whether what is parked and comes next begins with the first of a range."""
        return self.place == _place(wanted) and self.cursor.position == wanted.start

    def move_to(self, wanted: Range) -> None:
        """Go to the start of a range; for free when it stands there."""
        if self._paused and self.place is not None:
            # Also before it is sent elsewhere: a pause outlives an assignment.
            self.client.resume([self._partition_type(self.place[1], self.place[2])])
        self._paused = False
        if not self.stands_at(wanted):
            self.cursor = Cursor(wanted.start)
            self.go_on_at(wanted, wanted.start)

    def go_on_at(self, wanted: Range, offset: int) -> None:
        """Ask for what a range's partition has from an offset on; what was taken before stays parked."""
        self.place = None  # not known, should the client refuse
        self.client.assign([self._partition_type(wanted.topic, wanted.partition, offset)])
        self.place = _place(wanted)
        self.cursor.skip_to(offset)

    def go_on_with(self, client: Any, wanted: Range) -> None:
        """Another client goes on from what is proven, and says how far it gets."""
        former, self.client, self.is_watched = self.client, client, True
        former.close()
        self.go_on_at(wanted, self.cursor.next_offset)

    def told(self, statistics: str) -> None:
        """librdkafka's statistics: where each partition is fetched next."""
        if self.place is None:
            return
        _, topic, partition = self.place
        known = json.loads(statistics).get("topics", {}).get(topic, {}).get("partitions", {}).get(str(partition), {})
        self.fetched_to = max(self.fetched_to, int(known.get("next_offset", -1)))

    def rest(self, now_ms: float) -> None:
        """Between two batches: stop asking an idle partition every few ms, keep what is prefetched of a busy one."""
        self.idle_since_ms = now_ms
        if self.place is not None and self.cursor.is_at_end_of_log:
            # What came since and was prefetched is dropped by the client, and fetched again: it was never taken.
            self.client.pause([self._partition_type(self.place[1], self.place[2])])
            self._paused = True

    def forget(self, now_ms: float) -> None:
        """It was left in the middle of a range: where it stands is not known."""
        self.place, self.cursor, self._paused = None, Cursor(-1), False
        self.idle_since_ms = now_ms
        self.client.unassign()

    def close(self) -> None:
        """Give back its connections and threads."""
        self.client.close()


def connected(config: Mapping[str, Any]) -> Any:
    """A client with this configuration, and ours where it says nothing."""
    full = {"group.id": "holdfast-kafka-source", **_DEFAULTS, **config, **_FIXED}
    return open_client(confluent_kafka().Consumer, full)


class ConsumerPool:
    """All idle consumers of one process.

    Parameters
    ----------
    connect
        Makes a client; tests pass one that behaves as librdkafka's does, and fails when it is told to.
    """

    def __init__(self, clock: Clock | None = None, connect: Callable[[Mapping[str, Any]], Any] = connected) -> None:
        self._clock = clock or SystemClock()
        self._connect = connect
        self._lock = threading.Lock()
        self._idle: list[PooledConsumer] = []
        self._pid = os.getpid()

    def lease(self, config: Mapping[str, str], wanted: Range) -> PooledConsumer:
        """A consumer with this configuration, at the start of a range: best one that stands there already. Those with
        certificates that have been renewed since are closed, once the new ones can be used.
        """
        files = stamps(config)
        with self._lock:
            self._after_fork()
            alike = [consumer for consumer in self._idle if consumer.config == config]
            alike.sort(key=lambda one: (one.files != files, not one.stands_at(wanted), one.idle_since_ms))
            found = alike[0] if alike else None
            self._idle = [one for one in self._idle if one is not found]
        if found is None:
            consumer = once_usable(config, lambda: self._made(config))
        else:
            consumer = found if found.files == files else self._renewed(found, files)
        try:
            consumer.move_to(wanted)
        except BaseException:
            consumer.close()
            raise
        return consumer

    def _made(self, config: Mapping[str, str]) -> PooledConsumer:
        files = stamps(config)
        return PooledConsumer(config, self._connect(config), files)

    def _renewed(self, former: PooledConsumer, files: Stamps) -> PooledConsumer:
        """A new one, and all of before are closed; while the files cannot be used, the former."""
        try:
            made = self._made(former.config)
        except InvalidRequest as refusal:
            say_not_used(former.config, files, refusal)
            return former
        with self._lock:
            outdated = [one for one in self._idle if one.config == made.config and one.files != made.files]
            self._idle = [one for one in self._idle if one not in outdated]
        for old in (former, *outdated):
            old.close()
        return made

    def watch(self, consumer: PooledConsumer, wanted: Range, within_ms: int) -> None:
        """A leased consumer gets a client that says how far it is, some times ``within_ms``. Only for as long as the
        lease: what a client says is kept until somebody listens.
        """
        interval_ms = min(max(within_ms // 4, 50), 5_000)
        said = {"statistics.interval.ms": str(interval_ms), "stats_cb": consumer.told}
        client = once_usable(consumer.config, lambda: self._connect({**consumer.config, **said}))
        consumer.go_on_with(client, wanted)

    def give_back(self, consumer: PooledConsumer, intact: bool) -> None:
        """``intact``: the range was read to its end."""
        now_ms = self._clock.elapsed_ms()
        if consumer.is_watched:
            consumer.close()
            return
        try:
            if intact:
                consumer.rest(now_ms)
            else:
                consumer.forget(now_ms)
        except confluent_kafka().KafkaException as error:
            # What was read was read; a consumer that does not do as it is told is not kept.
            logger.warning("A consumer of the Kafka source is closed: %s", without_secrets(str(error), consumer.config))
            consumer.close()
            return
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
