"""Reads one range of one partition, exactly: every visible record in it, once, in order, as Arrow batches.

Offsets may be missing anywhere in a range: compaction, aborted transactions, control records. So a range ends when a
record at or past its end was seen, or its last offset, or when the broker says that the log ends there.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from holdfast.clock import SystemClock
from holdfast.errors import Corrupt, Unavailable
from holdfast.kafka.client import confluent_kafka, logger
from holdfast.kafka.client_config import without_secrets
from holdfast.source.kafka.consumers import POOL, ConsumerPool, PooledConsumer
from holdfast.source.kafka.offsets import Range
from holdfast.source.kafka.options import SourceOptions
from holdfast.source.kafka.records import record_batch

# An Arrow batch is handed over when it has so many rows, or so many bytes in values: memory is bounded, however large
# messages are.
BATCH_ROWS = 10_000
BATCH_BYTES = 16 << 20
_WAIT_S = 0.25


def read_range(options: SourceOptions, wanted: Range, pool: ConsumerPool = POOL) -> Iterator[pa.RecordBatch]:
    """The records of a range.

    Raises
    ------
    Corrupt
        Records of the range are lost, and ``failOnDataLoss`` is true.
    Unavailable
        The brokers handed over nothing for ``kafkaConsumer.pollTimeoutMs``.
    """
    consumer = pool.lease(options.client, wanted)
    intact = False
    try:
        batches = _batches(options, wanted, consumer)
        while True:
            with _no_search_for_cycles():
                batch = next(batches, None)
            if batch is None:
                break
            yield batch
        intact = True
    finally:
        pool.give_back(consumer, intact)


def _batches(options: SourceOptions, wanted: Range, consumer: PooledConsumer) -> Iterator[pa.RecordBatch]:
    pending: list[Any] = []
    size_bytes = 0
    for messages in _RangeReader(options, wanted, consumer).messages():
        pending = pending + messages if pending else messages
        size_bytes += sum(map(len, messages))
        if len(pending) >= BATCH_ROWS or size_bytes >= BATCH_BYTES:
            yield record_batch(pending, wanted.topic, wanted.partition, options.include_headers)
            pending, size_bytes = [], 0
    if pending:
        yield record_batch(pending, wanted.topic, wanted.partition, options.include_headers)


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Python looks for cycles after each 700 new objects. Messages come by the ten thousand and make none: the search
    would take a third of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _RangeReader:
    """The state of reading one range."""

    def __init__(self, options: SourceOptions, wanted: Range, consumer: PooledConsumer) -> None:
        self._options = options
        self._wanted = wanted
        self._consumer = consumer
        self._clock = SystemClock()
        self._errors = confluent_kafka().KafkaError
        self._next = wanted.start
        self._last_error = "no error"

    def messages(self) -> Iterator[list[Any]]:
        """Non-empty lists of messages, all inside the range, in order."""
        consumer, end = self._consumer, self._wanted.end
        progress_ms = self._clock.elapsed_ms()
        while self._next < end and consumer.end_of_log < end:
            before = self._next
            got, consumer.ahead = consumer.ahead or self._fetch(end - self._next), []
            inside = self._inside(got)
            if inside:
                yield inside
            if self._next > before or consumer.end_of_log >= end:
                # Time that the consumer of this generator took must not count.
                progress_ms = self._clock.elapsed_ms()
            elif self._clock.elapsed_ms() - progress_ms > self._options.poll_timeout_ms:
                raise Unavailable(
                    f"Kafka at {self._options.client['bootstrap.servers']} handed over nothing for {self._wanted}"
                    " at offset"
                    f" {self._next} within {self._options.poll_timeout_ms} ms (kafkaConsumer.pollTimeoutMs). Its"
                    " last word:"
                    f" {self._last_error}"
                )
        consumer.position = end

    def _fetch(self, left: int) -> list[Any]:
        """Wait for one message, then take all that are there: never wait for a batch to be full."""
        first = self._consumer.client.poll(_WAIT_S)
        if first is None:
            return []
        count = min(BATCH_ROWS, left)
        return [first, *self._consumer.client.consume(count - 1, 0)] if count > 1 else [first]

    def _inside(self, got: list[Any]) -> list[Any]:
        """The messages before the end of the range; later ones are kept for the range after, errors are handled."""
        if not got:
            return got
        if any(map(type(got[0]).error, got)):
            got = [message for message in got if not message.error() or self._handled(message)]
            if not got:
                return got
        end = self._wanted.end
        if got[-1].offset() >= end:
            within = next(at for at, message in enumerate(got) if message.offset() >= end)
            got, self._consumer.ahead = got[:within], got[within:]
            self._next = end
        else:
            self._next = got[-1].offset() + 1
        return got

    def _handled(self, message: Any) -> bool:
        """Act on an error; always false. Whatever may pass is waited for until the time limit."""
        error = message.error()
        code = error.code()
        if code == self._errors._PARTITION_EOF:
            self._consumer.end_of_log = max(self._consumer.end_of_log, message.offset())
        elif code in (self._errors._AUTO_OFFSET_RESET, self._errors.OFFSET_OUT_OF_RANGE):
            self._out_of_range()
        elif code in (self._errors.TOPIC_AUTHORIZATION_FAILED, self._errors._AUTHENTICATION) or error.fatal():
            raise Unavailable(f"Kafka refused to hand over {self._wanted}: {self._shown(error)}")
        else:
            self._last_error = self._shown(error)
        return False

    def _go_on_at(self, offset: int) -> None:
        place = confluent_kafka().TopicPartition(self._wanted.topic, self._wanted.partition, offset)
        self._consumer.client.assign([place])
        self._next = offset

    def _out_of_range(self) -> None:
        """The log does not have the next offset any more: retention, or a truncation."""
        place = confluent_kafka().TopicPartition(self._wanted.topic, self._wanted.partition)
        first, last = self._consumer.client.get_watermark_offsets(place, timeout=30.0, cached=False)
        if first <= self._next < last:
            # The client asked a namesake of this topic that was deleted, or went by a log that has grown since.
            self._last_error = f"offset {self._next} is not there, though the partition has [{first}, {last})"
            self._go_on_at(self._next)
            return
        message = (
            f"{self._wanted}: offset {self._next} is not there any more, the partition has [{first}, {last})."
            " Retention or a"
            " truncation overtook the query"
        )
        if self._options.fail_on_data_loss:
            raise Corrupt(
                f"{message}. It stops because failOnDataLoss is true. Set it to false to go on with what is left,"
                " or start"
                " with a new checkpoint"
            )
        logger.warning("%s; going on because failOnDataLoss is false", message)
        if self._next < first < self._wanted.end:
            self._go_on_at(first)
        else:
            self._next = self._wanted.end
            self._consumer.place = None

    def _shown(self, error: Any) -> str:
        return without_secrets(str(error), self._options.client)
