"""Records without a transaction: at-least-once, with a header to tell repeats by, or as it comes.

Producers live on in the worker process from batch to batch; one is leased to one writer at a time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from holdfast.clock import Clock, SystemClock
from holdfast.commit.sink import Committable, SinkTask
from holdfast.errors import InvalidRequest
from holdfast.kafka.renewed import Stamps, once_usable, say_not_used, stamps
from holdfast.sink.kafka.layout import DEDUP_HEADER, Layout, Records
from holdfast.sink.kafka.options import AT_LEAST_ONCE, SinkOptions
from holdfast.sink.kafka.sending import SendingProducer

IDLE_MAX = 4


class PlainWriter:
    """Writes records that are visible as soon as they are acknowledged."""

    def __init__(self, options: SinkOptions, task: SinkTask, clock: Clock | None = None) -> None:
        self._options = options
        self._task = task
        self._layout: Layout | None = None
        self._rows = self._bytes = 0
        self._counts: dict[str, int] = {}  # of partitions, by topic
        scope = task.scope
        self._dedup = f"{scope.query_id}:{scope.sink}:{task.batch_id}:{task.partition}:".encode()
        self._producer: SendingProducer | None = PRODUCERS.lease(options.producer(), clock or SystemClock())

    def write(self, batch: pa.RecordBatch) -> None:
        """See `holdfast.commit.sink.SinkWriter`."""
        if self._producer is None:
            raise InvalidRequest("The writer was prepared or aborted already: open a new one")
        if self._layout is None:
            self._layout = Layout(self._options.columns, self._options.value_format, batch.schema)
        for records in self._layout.records(batch):
            if self._options.mode == AT_LEAST_ONCE:
                self._producer.send(self._placed(records), self._options.topic, self._with_dedup(records))
            else:
                self._producer.send(records, self._options.topic, None)
            self._rows += len(records)
            self._bytes += records.size_bytes

    def prepare(self) -> Committable | None:
        """Wait for the acknowledgements: nothing is left to commit, but a replay can leave this partition out."""
        if self._producer is None:
            raise InvalidRequest("The writer was prepared or aborted already: open a new one")
        self._producer.flush(self._options.message_timeout_ms + 10_000)
        PRODUCERS.give_back(self._options.producer(), self._producer)
        self._producer = None
        if not self._rows:
            return None
        return Committable(
            self._task.partition, self._task.attempt, self._rows, self._bytes, {"mode": self._options.mode}
        )

    def abort(self) -> None:
        """What was sent is visible; what was not is dropped with the producer."""
        if self._producer is not None:
            self._producer.client.purge()
            self._producer.drop()
            self._producer = None

    def _placed(self, records: Records) -> Records:
        """With a partition for those without a key: the same in a replay, which the client would draw anew. Readers
        tell repeats partition by partition.
        """
        keys = records.keys
        if keys is not None and None not in keys:
            return records
        partitions = [-1] * len(records) if records.partitions is None else list(records.partitions)
        for at, partition in enumerate(partitions):
            if partition < 0 and (keys is None or keys[at] is None):
                topic = self._options.topic if records.topics is None else records.topics[at]
                count = self._partitions_of(topic) if topic is not None else 0
                partitions[at] = (self._rows + at) % count if count else -1
        return replace(records, partitions=partitions)

    def _partitions_of(self, topic: str) -> int:
        if topic not in self._counts:
            assert self._producer is not None  # or it had not come so far
            self._counts[topic] = self._producer.partitions_of(topic)
        return self._counts[topic]

    def _with_dedup(self, records: Records) -> list[list[tuple[str, bytes | None]]]:
        lead, first = self._dedup, self._rows
        marks = [(DEDUP_HEADER, b"%b%d" % (lead, index)) for index in range(first, first + len(records))]
        if records.headers is None:
            return [[mark] for mark in marks]
        return [[mark, *(given or ())] for mark, given in zip(marks, records.headers)]


class ProducerPool:
    """Idle producers of one process; a forked child begins with none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[Mapping[str, str], SendingProducer]] = []
        self._pid = os.getpid()

    def lease(self, config: Mapping[str, str], clock: Clock) -> SendingProducer:
        """A producer with this configuration, for one writer alone. Those with certificates that have been renewed
        since are dropped, once the new ones can be used.
        """
        files = stamps(config)
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._idle = os.getpid(), []
            alike = [producer for known, producer in self._idle if known == config]
            found = min(alike, key=lambda producer: producer.files != files, default=None)
            self._idle = [one for one in self._idle if one[1] is not found]
        if found is None:
            return once_usable(config, lambda: _made(config, clock))
        if found.files == files:
            return found
        try:
            made = _made(config, clock)
        except InvalidRequest as refusal:
            say_not_used(config, files, refusal)
            return found
        self._drop_outdated(config, made.files)
        found.drop()
        return made

    def _drop_outdated(self, config: Mapping[str, str], files: Stamps) -> None:
        with self._lock:
            outdated = [one for one in self._idle if one[0] == config and one[1].files != files]
            self._idle = [one for one in self._idle if one not in outdated]
        for _, old in outdated:
            old.drop()

    def give_back(self, config: Mapping[str, str], producer: SendingProducer) -> None:
        """Of a writer that has flushed it without a failure."""
        with self._lock:
            self._idle.append((config, producer))
            surplus, self._idle = self._idle[:-IDLE_MAX], self._idle[-IDLE_MAX:]
        for _, old in surplus:
            old.drop()


def _made(config: Mapping[str, str], clock: Clock) -> SendingProducer:
    return SendingProducer(config, f"Producer for {config['bootstrap.servers']}", clock)


PRODUCERS = ProducerPool()
