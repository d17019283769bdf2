"""One partition's log as it lies there: committed, aborted and open records, each with its end.

A `read_committed` consumer sees nothing behind the first open transaction of a partition, whoever it belongs to. Here
the markers are read themselves, so that what one producer wrote can be judged while another one's transaction is open.
Kafka's cleaner keeps a transaction's marker for as long as it keeps any of its records (`Cleaner`,
`CleanedTransactionMetadata`), so a record whose marker is not there is open. Used by one thread.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.clock import Clock, SystemClock
from holdfast.errors import Corrupt, InvalidRequest, Unavailable
from holdfast.kafka.presence import GONE_AFTER_MS
from holdfast.kafka.requests import (
    DamagedBatchError,
    earliest_offset,
    fetch,
    latest_offset,
    metadata,
    record_batches,
)
from holdfast.kafka.wire import Retry, Wire, refuse

_FETCH_BYTES = 4 << 20
_WAIT_MS = 500
_OUT_OF_RANGE, _NOT_ALLOWED = 1, 29
_NO_TOPIC = 3
_ELSEWHERE = {
    _NO_TOPIC: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    9: "REPLICA_NOT_AVAILABLE",
    78: "OFFSET_NOT_AVAILABLE",  # of a new leader, which does not know yet how far all replicas are
}
#: So many times a leader is asked where the log ends before it is believed that a record lies behind it.
_ENDS_ASKED_MAX = 5
_MARKER = struct.Struct(">hh")  # version, type
_COMMIT = 1


class Ending(enum.Enum):
    """How the transaction of a record ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"


@dataclass
class LogRecord:
    """A record, and who wrote it. Without a transaction it is committed."""

    offset: int
    key: bytes
    value: bytes
    producer_id: int
    producer_epoch: int
    ending: Ending


@dataclass(frozen=True)
class LogPart:
    """Records from where they were asked for.

    Attributes
    ----------
    start
        The partition's first offset: what was before is deleted.
    end
        All below was read; every replica in sync has it.
    """

    start: int
    end: int
    records: tuple[LogRecord, ...]


@dataclass(frozen=True)
class KnownTopic:
    """A topic as the brokers know it now. ``topic_id``: another one when it was deleted and made again."""

    topic_id: str
    leaders: dict[int, int]


def known_topic(wire: Wire, topic: str, patience_ms: float, clock: Clock | None = None) -> KnownTopic | None:
    """What the brokers know of a topic; None: there is none, as they have said for a while."""
    time, since_ms = clock or SystemClock(), -1.0

    async def ask() -> KnownTopic | None:
        nonlocal since_ms
        found = await _known_topic(wire, topic)
        if found is None:
            now_ms = time.elapsed_ms()
            since_ms = now_ms if since_ms < 0 else since_ms
            if now_ms - since_ms < GONE_AFTER_MS:
                raise Retry("there is no such topic")
        return found

    return wire.call(f"describe topic {topic}", patience_ms, ask)


def existing_topic(wire: Wire, topic: str, patience_ms: float) -> KnownTopic:
    """The same of a topic that must be there: one that was just made is not known to all brokers at once.

    Raises
    ------
    Unavailable
        It is missing.
    """

    async def ask() -> KnownTopic:
        found = await _known_topic(wire, topic)
        if found is None or not found.leaders:
            raise Retry("there is no such topic; a start of the query makes it")
        return found

    return wire.call(f"describe topic {topic}", patience_ms, ask)


async def _known_topic(wire: Wire, topic: str) -> KnownTopic | None:
    [node, *_] = await wire.brokers() or [-1]
    if node < 0:
        raise Retry("the cluster names no brokers")
    [found] = (await wire.send(metadata([topic]), node)).topics
    if found.error_code == _NO_TOPIC:
        return None
    if found.error_code:
        refuse(found.error_code, f"a description of topic {topic}")
    return KnownTopic(str(found.topic_id), {part.partition_index: int(part.leader_id) for part in found.partitions})


class PartitionLog:
    """Reads one partition."""

    def __init__(self, wire: Wire, topic: str, partition: int, patience_ms: float) -> None:
        self._wire = wire
        self._topic = topic
        self._partition = partition
        self._patience_ms = patience_ms

    def read(self, start: int, wanted: Callable[[bytes], bool]) -> LogPart | None:
        """All records from ``start`` to where the log ends now, of keys that are wanted.

        None: the log ends before ``start``, so it is not the one in which that was known.

        Raises
        ------
        Unavailable
            The partition's leader does not answer, or this user must not read it.
        Corrupt
            What it has is damaged: an ending that nobody wrote would make rows be written twice, or not at all.
        """
        found = _Endings(wanted)
        place, first, end = start, 0, -1
        while end < 0 or place < end:
            answer = self._fetched(place, end)
            if answer.error_code == _OUT_OF_RANGE:
                earliest = self._earliest()
                if earliest <= place:
                    return None
                place = earliest  # what was before is deleted
                continue
            first = max(0, answer.log_start_offset)
            end = int(answer.high_watermark) if end < 0 else end
            reached = self._taken(found, answer, place, start)
            # Nothing more below the end: the cleaner has taken it.
            place = max(place, reached) if reached > place else end
        return None if end < start else LogPart(first, end, tuple(found.records))

    def _taken(self, found: _Endings, answer: Any, place: int, start: int) -> int:
        try:
            reached = found.take(bytes(answer.records or b""), start)
            # A batch's place is in no checksum. But the end that an answer names the broker noted before it read, and
            # has then read up to the end by that time: what was appended in between lies behind the one that it names.
            if reached > answer.high_watermark and reached > (end := self._end(reached)):
                raise DamagedBatchError(f"it says that it ends at {reached}, and the log at {end}")
        except DamagedBatchError as error:
            raise Corrupt(
                f"{self._topic}-{self._partition}: a batch at offset {max(place, found.reached)} or later is damaged:"
                f" {error}. Where another replica has it whole, let that one lead the partition"
                " (kafka-leader-election.sh) and start the query again. Where none has, delete what is before the next"
                " whole batch (kafka-delete-records.sh): of transactions whose witnesses were there their coordinators"
                " are then asked alone"
            ) from error
        return reached

    def _fetched(self, offset: int, end: int) -> Any:
        what = f"read {self._topic}-{self._partition}"
        return self._wire.call(what, self._patience_ms, lambda: self._fetch(offset, end))

    async def _fetch(self, offset: int, end: int) -> Any:
        """``end``: up to where the log is known to go; -1: not yet."""
        leader, place = await self._leader(), (self._topic, self._partition)
        answer = await self._wire.send(fetch(place, offset, bytes_max=_FETCH_BYTES, wait_ms=_WAIT_MS), leader)
        if answer.error_code:
            refuse(answer.error_code, f"a look into {self._topic}-{self._partition}")
        parts = [one for each in answer.responses for one in each.partitions]
        if not parts:
            # Over its quota, a client is answered at once, and with no partition at all. (KIP-219)
            raise Retry(f"the brokers hold back what is in {self._topic}-{self._partition}: a quota of this user's")
        [found] = parts
        if found.error_code in _ELSEWHERE:
            raise Retry(f"partition {self._topic}-{self._partition}: {_ELSEWHERE[found.error_code]}")
        if found.error_code == _NOT_ALLOWED:
            raise Unavailable(
                f"Kafka refuses a look into topic {self._topic}:"
                " grant READ, WRITE and DESCRIBE on it to the user of this query"
            )
        if found.error_code not in (0, _OUT_OF_RANGE):
            refuse(found.error_code, f"a look into {self._topic}-{self._partition}")
        # One that has just become leader gives out no more than it knows that others have: what it leaves out is there.
        if not found.error_code and not found.records and found.high_watermark < end:
            raise Retry(
                f"the leader of partition {self._topic}-{self._partition} gives it out up to {found.high_watermark}, "
                f"and the one before it did up to {end}"
            )
        return found

    async def _leader(self) -> int:
        leader = (await self._wire.leaders_of([self._topic], must_see=True)).get((self._topic, self._partition), -1)
        if leader < 0:
            raise Retry(f"partition {self._topic}-{self._partition} has no leader")
        await self._wire.know(leader)
        return leader

    def _earliest(self) -> int:
        """Where the log begins now."""
        what = f"list the offsets of {self._topic}"
        return self._wire.call(what, self._patience_ms, lambda: self._offset(earliest_offset))

    def _end(self, reached: int) -> int:
        """Where the log ends now; one that ends before ``reached`` a few times in a row does."""
        asked = 0

        async def ask() -> int:
            nonlocal asked
            end, asked = await self._offset(latest_offset), asked + 1
            if end < reached and asked < _ENDS_ASKED_MAX:
                raise Retry(f"it ends at {end}, and has given out what ends at {reached}")
            return end

        return self._wire.call(f"say where {self._topic}-{self._partition} ends", self._patience_ms, ask)

    async def _offset(self, wanted: Callable[[tuple[str, int]], Any]) -> int:
        answer = await self._wire.send(wanted((self._topic, self._partition)), await self._leader())
        [found] = [one for each in answer.topics for one in each.partitions]
        if found.error_code in _ELSEWHERE:
            raise Retry(f"partition {self._topic}-{self._partition}: {_ELSEWHERE[found.error_code]}")
        if found.error_code:
            refuse(found.error_code, f"the offsets of {self._topic}-{self._partition}")
        return int(found.offset)


class _Endings:
    """Puts records and the markers behind them together, batch by batch in the order of the log."""

    def __init__(self, wanted: Callable[[bytes], bool]) -> None:
        self._wanted = wanted
        self._open: dict[int, list[LogRecord]] = {}  # by producer id: a producer has one transaction at a time
        self.records: list[LogRecord] = []
        self.reached = -1

    def take(self, data: bytes, start: int) -> int:
        """The offset behind the last whole batch; -1 when there is none. DamagedBatchError as `record_batches`."""
        reached = -1
        for batch in record_batches(data):
            if batch.is_control_batch:
                self._end(batch)
            else:
                self._add(batch, start)
            self.reached = reached = batch.next_offset
        return reached

    def _end(self, batch: Any) -> None:
        for marker in batch:
            _, kind = _MARKER.unpack_from(marker.key)
            ending = Ending.COMMITTED if kind == _COMMIT else Ending.ABORTED
            for record in self._open.pop(batch.producer_id, ()):
                record.ending = ending

    def _add(self, batch: Any, start: int) -> None:
        if batch.compression_type:
            raise InvalidRequest(
                f"Batches in a topic of witnesses are compressed (offset {batch.base_offset}): set its"
                " compression.type=uncompressed, so that the brokers store them as they can be read everywhere"
            )
        for found in batch:
            key, value = bytes(found.key or b""), bytes(found.value or b"")
            if found.offset < start or not self._wanted(key):
                continue
            ending = Ending.OPEN if batch.is_transactional else Ending.COMMITTED
            record = LogRecord(found.offset, key, value, batch.producer_id, batch.producer_epoch, ending)
            self.records.append(record)
            if ending is Ending.OPEN:
                self._open.setdefault(batch.producer_id, []).append(record)
