"""A partition's log as a model, and a consumer of it that behaves as librdkafka's does, without a broker.

What of librdkafka matters, and tests/integration/kafka/test_kafka_consumer.py holds against the real one: records come
in order; an end-of-partition event comes in that order too, once for each end that is reached, at the last stable
offset; markers, aborted and compacted records are skipped without a word; a fetch may bring any number of records; what
was fetched and not taken is dropped by a pause and by an assignment, and fetched again; where the log has not the
offset that is asked for, one error comes, and nothing after it. The schedule is the test's: how much a fetch brings,
what fails, what takes its time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from confluent_kafka import KafkaError, TopicPartition

TOPIC = "t"
MARKER, ABORTED, COMPACTED = "marker", "aborted", "compacted"


class PartitionLog:
    """Offset by offset: a visible value, or what is there in its stead. Only grows, but for `delete_before`."""

    def __init__(self) -> None:
        self.entries: list[bytes | str] = []
        self.first = 0
        #: What compaction took: a consumer may have fetched it before.
        self.compacted: dict[int, bytes] = {}
        self._stable: int | None = None

    @property
    def last_stable(self) -> int:
        """Where a read_committed reader's log ends."""
        return len(self.entries) if self._stable is None else self._stable

    def plain(self, count: int) -> None:
        """Records without a transaction."""
        self.entries += [f"v{len(self.entries) + at}".encode() for at in range(count)]

    def transaction(self, count: int, commit: bool) -> None:
        """Records of one transaction, and its marker."""
        if commit:
            self.plain(count)
        else:
            self.entries += [ABORTED] * count
        self.entries.append(MARKER)

    def open_transaction(self, count: int) -> None:
        """Records that nobody may see yet."""
        if self._stable is None:
            self._stable = len(self.entries)
        self.plain(count)

    def end_transaction(self, commit: bool) -> None:
        """Of the open one, should there be one."""
        if self._stable is None:
            return
        if not commit:
            self.entries[self._stable :] = [ABORTED] * (len(self.entries) - self._stable)
        self.entries.append(MARKER)
        self._stable = None

    def compact(self, offsets: Sequence[int]) -> None:
        """Records that a later one of their key has replaced; never the last of the log."""
        for offset in offsets:
            if offset < len(self.entries) - 1 and offset < self.last_stable:
                entry = self.entries[offset]
                if isinstance(entry, bytes):
                    self.compacted[offset] = entry
                self.entries[offset] = COMPACTED

    def delete_before(self, offset: int) -> None:
        """Retention."""
        self.first = max(self.first, min(offset, self.last_stable))

    def visible(self, start: int, end: int) -> list[tuple[int, bytes]]:
        """What a read_committed reader sees in a range."""
        return [
            (at, self.entries[at])  # type: ignore[misc]
            for at in range(max(start, self.first), min(end, self.last_stable))
            if isinstance(self.entries[at], bytes)
        ]


class Message:
    """A record, or an event."""

    def __init__(self, offset: int, value: bytes | None = None, error: KafkaError | None = None) -> None:
        self._offset, self._value, self._error = offset, value, error

    def error(self) -> KafkaError | None:
        return self._error

    def offset(self) -> int:
        return self._offset

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return 0

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def __len__(self) -> int:
        return len(self._value or b"")


class LogConsumer:
    """A consumer of one log, with the methods of confluent-kafka's that the source calls.

    Parameters
    ----------
    draw
        The schedule. None: fetches bring all there is, and nothing fails.
    failures
        How likely a fetch is to bring an error that passes.
    """

    def __init__(self, log: PartitionLog, draw: random.Random | None = None, failures: float = 0.0) -> None:
        self._log = log
        self._draw = draw
        self._failures = failures
        self._queue: list[Message] = []
        self._fetch_at: int | None = None
        self._ended_at = -1
        self._app_at = 0
        self._paused = False

    def assign(self, places: Sequence[TopicPartition]) -> None:
        [place] = places
        self._fetch_at = self._app_at = place.offset
        self._queue, self._ended_at = [], -1

    def unassign(self) -> None:
        self._fetch_at, self._queue = None, []

    def pause(self, places: Sequence[TopicPartition]) -> None:
        self._paused = True
        self._queue, self._ended_at = [], -1
        if self._fetch_at is not None:
            self._fetch_at = self._app_at

    def resume(self, places: Sequence[TopicPartition]) -> None:
        self._paused = False

    def close(self) -> None:
        self.unassign()

    def get_watermark_offsets(self, place: TopicPartition, timeout: float, cached: bool) -> tuple[int, int]:
        assert not cached, "the cached one is of the last fetch"
        return self._log.first, self._log.last_stable

    def poll(self, timeout: float) -> Message | None:
        for _ in range(1 if self._draw is None else self._draw.choice([0, 1, 1, 2, 5])):
            self._fetch()
        if not self._queue:
            self._fetch()
        return self._taken(1)[0] if self._queue else None

    def consume(self, count: int, timeout: float) -> list[Message]:
        if self._draw is not None:
            for _ in range(self._draw.choice([0, 0, 1, 3])):
                self._fetch()
            count = self._draw.choice([count, count, self._draw.randrange(count + 1)])
        else:
            self._fetch()
        return self._taken(count)

    def _taken(self, count: int) -> list[Message]:
        taken, self._queue = self._queue[:count], self._queue[count:]
        records = [message for message in taken if message.error() is None]
        if records:
            self._app_at = records[-1].offset() + 1
        return taken

    def _fetch(self) -> None:
        """One answer of the broker."""
        if self._fetch_at is None or self._paused:
            return
        if self._draw is not None and self._draw.random() < self._failures:
            code = self._draw.choice([KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT])
            self._queue.append(Message(-1001, error=KafkaError(code)))
            return
        if not self._log.first <= self._fetch_at <= len(self._log.entries):
            self._queue.append(Message(self._fetch_at, error=KafkaError(KafkaError._AUTO_OFFSET_RESET)))
            self._fetch_at = None
            return
        end = self._log.last_stable
        if self._fetch_at >= end:
            if self._fetch_at == end and self._ended_at != end:
                self._queue.append(Message(end, error=KafkaError(KafkaError._PARTITION_EOF)))
                self._ended_at = end
            return
        until = end if self._draw is None else min(end, self._fetch_at + self._draw.choice([1, 1, 2, 3, 7, 50]))
        self._queue += [Message(at, value) for at, value in self._log.visible(self._fetch_at, until)]
        self._fetch_at = until
