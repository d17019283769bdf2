"""Reads one range of one partition, exactly: every visible record in it, once, in order, as Arrow batches.

Offsets may be missing anywhere in a range: compaction, aborted transactions, control records. So a range ends when a
record at its last offset or past it was given, or when the broker says that the log ends there or later. The `Cursor`
keeps what that proves, and what was given beyond the end for the range after.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import pyarrow as pa

from holdfast.clock import SystemClock
from holdfast.errors import Corrupt, InternalError, Unavailable
from holdfast.kafka.client import confluent_kafka, logger
from holdfast.kafka.client_config import without_secrets
from holdfast.source.kafka.cluster import Cluster
from holdfast.source.kafka.consumers import POOL, ConsumerPool, PooledConsumer
from holdfast.source.kafka.doubt import Doubt, differ
from holdfast.source.kafka.offsets import Range
from holdfast.source.kafka.options import SourceOptions
from holdfast.source.kafka.records import record_batch

# An Arrow batch is handed over when it has so many rows, or so many bytes in values:
# memory is bounded, however large messages are.
BATCH_ROWS = 10_000
BATCH_BYTES = 16 << 20
_WAIT_S = 0.25
_ANOTHER = "{0} was to be read, but the topic was deleted and created again"
#: librdkafka's words when a leader's log ends, in the epoch of what was read last, before that. Its code is that of
#: any offset that is out of range.
_TRUNCATED = re.compile(r"log truncation detected at .*: broker end offset is (\d+)")


def read_range(options: SourceOptions, wanted: Range, pool: ConsumerPool = POOL) -> Iterator[pa.RecordBatch]:
    """The records of a range.

    Raises
    ------
    Corrupt
        Records of the range are lost, and ``failOnDataLoss`` is true; or the brokers have them damaged.
    Unavailable
        The brokers handed over nothing for ``kafkaConsumer.pollTimeoutMs``, or the client refused to ask them; or the
        topic was deleted and created again meanwhile, and ``failOnDataLoss`` is false: another attempt leaves it out.
    """
    if wanted.start >= wanted.end:
        return  # what a replay cannot read any more: nobody is asked for it
    # A topic with this id at the end was there all the time. Asked before, too, where rows may be left out.
    if not options.fail_on_data_loss and _namesake(options, wanted):
        logger.warning("%s; its rows are left out because failOnDataLoss is false", _ANOTHER.format(wanted))
        return
    yield from _read(options, wanted, pool)
    namesake = _namesake(options, wanted)
    if namesake and options.fail_on_data_loss:
        raise Corrupt(
            f"{_ANOTHER.format(wanted)} (its id was {wanted.topic_id}, now it is {namesake}): what was read may be of"
            " the new one, and is not used. It stops because failOnDataLoss is true. Set it to false to go on with what"
            " is left, or start with a new checkpoint"
        )
    if namesake:
        raise Unavailable(f"{_ANOTHER.format(wanted)} while it was read: what was read is not used. Spark tries again")


def _namesake(options: SourceOptions, wanted: Range) -> str | None:
    """The id of another topic that has this name now; None where there is none, or brokers know no ids."""
    if not wanted.topic_id:
        return None
    cluster, doubt = Cluster(options), Doubt(SystemClock())
    while True:
        now = cluster.topic_id(wanted.topic)
        if now is None or not differ(wanted.topic_id, now):
            return None
        if not doubt.lasts():  # a broker that was asleep may know the namesake of long ago
            return now


def _read(options: SourceOptions, wanted: Range, pool: ConsumerPool) -> Iterator[pa.RecordBatch]:
    with _refusals(options, wanted):
        consumer = pool.lease(options.client, wanted)
    intact = False
    try:
        batches = _batches(options, _RangeReader(options, wanted, consumer, pool))
        while True:
            with _refusals(options, wanted), _no_search_for_cycles():
                batch = next(batches, None)
            if batch is None:
                break
            yield batch
        intact = True
    finally:
        pool.give_back(consumer, intact)


@contextmanager
def _refusals(options: SourceOptions, wanted: Range) -> Iterator[None]:
    """Errors that the client raises, rather than hands over as a message."""
    kafka = confluent_kafka()
    try:
        yield
    except kafka.KafkaException as error:
        raise Unavailable(
            f"Kafka at {options.client['bootstrap.servers']} could not be asked for {wanted}:"
            f" {without_secrets(str(error), options.client)}. Spark tries the task again"
        ) from None


def _batches(options: SourceOptions, reader: _RangeReader) -> Iterator[pa.RecordBatch]:
    wanted, size_bytes = reader.wanted, 0
    pending: list[Any] = []
    for messages in reader.messages():
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

    def __init__(self, options: SourceOptions, wanted: Range, consumer: PooledConsumer, pool: ConsumerPool) -> None:
        self._options = options
        self.wanted = wanted
        self._consumer = consumer
        self._pool = pool
        self._clock = SystemClock()
        self._errors = confluent_kafka().KafkaError
        self._last_error = "no error"
        self._progress_ms = self._clock.elapsed_ms()
        self._doubt: Doubt | None = None

    def messages(self) -> Iterator[list[Any]]:
        """Non-empty lists of messages, all inside the range, in order."""
        end, before = self.wanted.end, (-1, -1)
        while True:
            inside = self._consumer.cursor.hand_out(end)  # first what is parked: it may be all there is
            if inside:
                yield inside
            position = self._consumer.cursor.position
            if position >= end:
                return
            reached = position, self._consumer.fetched_to
            if reached > before:
                # Time that the consumer of this generator took must not count.
                before, self._progress_ms = reached, self._clock.elapsed_ms()
            elif self._clock.elapsed_ms() - self._progress_ms > self._options.poll_timeout_ms:
                is_cut_off = self._suspect(position)
                self._progress_ms = self._clock.elapsed_ms()
                if is_cut_off:
                    continue
            self._take(self._fetch(end - position))

    def _suspect(self, position: int) -> bool:
        """Nothing came for so long. A stretch of aborted records is skipped without a word: a client that counts what
        it fetches takes over, and goes on for as long as it gets further. Where the log ends, none would: whether the
        rest of the range is left out for that.
        """
        if self._consumer.cursor.is_at_end_of_log and self._is_cut_off(position):
            self._consumer.cursor.skip_to(self.wanted.end)
            self._consumer.place = None
            return True
        if not self._consumer.is_watched:
            self._pool.watch(self._consumer, self.wanted, self._options.poll_timeout_ms)
            return False
        raise Unavailable(
            f"Kafka at {self._options.client['bootstrap.servers']} handed over nothing for {self.wanted} at offset"
            f" {position}, and the client got no further, within {self._options.poll_timeout_ms} ms"
            f" (kafkaConsumer.pollTimeoutMs), and before that again. Its last word:"
            f" {self._last_error}{self._consumer.cursor.end_in_words}"
        )

    def _is_cut_off(self, position: int) -> bool:
        """Whether the log ends before the range, visible or not, and its end is lost: nobody can wait for it."""
        key = self.wanted.topic, self.wanted.partition
        cluster, doubt = Cluster(self._options), Doubt(self._clock)
        while True:
            high = cluster.high_watermarks([key]).get(key, self.wanted.end)
            if high >= self.wanted.end:
                return False
            if not doubt.lasts():
                break
        self._lost(
            f"{self.wanted} was read up to {position}, and its log ends at {high}: it was truncated since the range was"
            " planned, as by a leader that did not have all of it"
        )
        return True

    def _fetch(self, left: int) -> list[Any]:
        """Wait for one message, then take all that are there: never wait for a batch to be full."""
        first = self._consumer.client.poll(_WAIT_S)
        if first is None:
            return []
        count = min(BATCH_ROWS, left)
        return [first, *self._consumer.client.consume(count - 1, 0)] if count > 1 else [first]

    def _take(self, got: list[Any]) -> None:
        """Hand what the client gave to the cursor, in its order: an event counts for what came before it."""
        if not got:
            return
        if not any(map(type(got[0]).error, got)):
            self._take_records(got)
            return
        for is_event, some in groupby(got, key=lambda message: bool(message.error())):
            if not is_event:
                self._take_records(list(some))
            elif any(map(self._is_elsewhere_after, some)):
                return  # what is left is of where the consumer was

    def _take_records(self, records: list[Any]) -> None:
        for record in (records[0], records[-1]):
            if (record.topic(), record.partition()) != (self.wanted.topic, self.wanted.partition):
                raise InternalError(
                    f"Expected records of {self.wanted}, found one of {record.topic()}-{record.partition()} at offset"
                    f" {record.offset()}: the client gave what belongs to another assignment"
                )
        self._consumer.cursor.take(records)

    def _is_elsewhere_after(self, event: Any) -> bool:
        """Act on an error or an event; whether the consumer was sent to another offset. Whatever may pass is waited for
        until the time limit.
        """
        error = event.error()
        code = error.code()
        if code == self._errors._PARTITION_EOF:
            if (event.topic(), event.partition()) == (self.wanted.topic, self.wanted.partition):
                self._consumer.cursor.log_ended(event.offset())
        elif code in (self._errors._AUTO_OFFSET_RESET, self._errors.OFFSET_OUT_OF_RANGE):
            self._out_of_range(str(error))
            return True
        elif code in (self._errors.TOPIC_AUTHORIZATION_FAILED, self._errors._AUTHENTICATION) or error.fatal():
            raise Unavailable(f"Kafka refused to hand over {self.wanted}: {self._shown(error)}")
        elif code in (self._errors._BAD_MSG, self._errors._BAD_COMPRESSION):
            self._damaged(error)
            return True
        else:
            self._last_error = self._shown(error)
        return False

    def _damaged(self, error: Any) -> None:
        """Not by which offset: that of a damaged batch may be damaged, too."""
        if self._is_behind():
            return
        raise Corrupt(
            f"{self.wanted}: what Kafka at {self._options.client['bootstrap.servers']} has from offset"
            f" {self._consumer.cursor.next_offset} on is damaged: {self._shown(error)}. Nothing of it is handed out,"
            " whatever failOnDataLoss says. Where another replica has it whole, let that one lead the partition"
            " (kafka-leader-election.sh) and start the query again. Where none has, delete what is before the next"
            " whole batch (kafka-delete-records.sh), and go on with failOnDataLoss=false; what is whole before the"
            f" damage, from offset {self.wanted.start} on, goes with it, unless a batch read up to it (endingOffsets)"
            " has kept it"
        )

    def _out_of_range(self, said: str) -> None:
        """The log does not have the offset that is fetched next any more: retention, or a truncation.

        After a truncation it may have that offset again, of another record: the log has grown since. Only the client
        knows, as it went by the leader's epoch; asked for its offsets, the log looks whole.
        """
        consumer, wanted = self._consumer, self.wanted
        missing = consumer.cursor.next_offset
        truncated = _TRUNCATED.search(said)
        is_told = truncated is not None and int(truncated[1]) < missing
        if truncated is not None and is_told:
            self._lost(
                f"{wanted}: its log was truncated to offset {truncated[1]}, and was read up to {missing} before: a"
                f" leader took over that did not have all of it. Records from {truncated[1]} on that were handed out"
                " are gone from the log, and others may stand in their place, which are not read"
            )
        if self._is_behind():
            return
        place = confluent_kafka().TopicPartition(wanted.topic, wanted.partition)
        first, last = consumer.client.get_watermark_offsets(place, timeout=30.0, cached=False)
        if first <= missing < last:
            # The client asked a namesake of this topic that was deleted, or went by a log that has grown since.
            self._last_error = f"offset {missing} is not there, though the partition has [{first}, {last})"
            consumer.go_on_at(wanted, missing)
            return
        if not is_told:
            if last <= missing and self._is_in_doubt():
                consumer.go_on_at(wanted, missing)
                return
            self._lost(
                f"{wanted}: offset {missing} is not there any more, the partition has [{first}, {last}). Retention or a"
                " truncation overtook the query"
            )
        if missing < first < wanted.end:
            consumer.go_on_at(wanted, first)
        else:
            consumer.cursor.skip_to(wanted.end)
            consumer.place = None

    def _is_behind(self) -> bool:
        """Whether an error is of what comes after this range, all of which was given: for who reads the next one."""
        if self._consumer.cursor.next_offset < self.wanted.end:
            return False
        self._consumer.place = None
        return True

    def _is_in_doubt(self) -> bool:
        """Whether a log's end may be that of a leader that was asleep, or does not know yet what it has. (Its start
        never goes back.) Such answers are no news of the partition, but they are no silence either.
        """
        self._doubt = self._doubt or Doubt(self._clock)
        is_in_doubt = self._doubt.lasts()
        self._progress_ms = self._clock.elapsed_ms()
        return is_in_doubt

    def _lost(self, message: str) -> None:
        if self._options.fail_on_data_loss:
            raise Corrupt(
                f"{message}. It stops because failOnDataLoss is true. Set it to false to go on with what is left, or"
                " start with a new checkpoint"
            )
        logger.warning("%s; going on because failOnDataLoss is false", message)

    def _shown(self, error: Any) -> str:
        return without_secrets(str(error), self._options.client)
