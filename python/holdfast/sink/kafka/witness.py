"""Witnesses: whether a transaction was committed, for as long as their topic lives. Format: docs/formats/witness.md.

The brokers' memory of a transaction ends with the next producer of its name, with `transactional.id.expiration.ms`, and
with the epochs of a producer id. So each transaction also writes one record to a topic that is compacted and never
deletes: a witness that ended as the transaction did. A driver leaves a claim there, so that whoever starts from a copy
of its checkpoint sees that there is somebody else. All of a query and sink are in one partition. See docs/rfcs/0006.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from holdfast.commit.epochs import Driver
from holdfast.commit.sink import Scope, SinkTask
from holdfast.commit.traces import Trace
from holdfast.errors import Corrupt, Unavailable
from holdfast.kafka.open_ends import look_at_places
from holdfast.kafka.partition_log import (
    Ending,
    KnownTopic,
    LogPart,
    LogRecord,
    PartitionLog,
    existing_topic,
    known_topic,
)
from holdfast.kafka.transactional_ids import TransactionalId, driver_id
from holdfast.kafka.transactions import Prepared, Transactions
from holdfast.kafka.wire import NO_TOPIC_ID, are_two_topics
from holdfast.sealed import checksum_of, seal, unseal

WITNESS_FORMAT, CLAIM_FORMAT = "holdfast.witness", "holdfast.claim"
VERSION = 1


@dataclass(frozen=True)
class Place:
    """Where a query's witnesses are.

    Attributes
    ----------
    topic_id
        Tells the topic from one of the same name that is made later.
    since
        Offset of the driver's claim: what its tasks write comes behind it.
    """

    topic: str
    topic_id: str
    partition: int
    since: int

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Place:
        """From the body of a committable, or from a claim."""
        return cls(str(data["topic"]), str(data["topic_id"]), int(data["partition"]), int(data["since"]))


class Verdict(enum.Enum):
    """What a witness says of its transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    NOT_KNOWN = "not known"


def witness_text(task: SinkTask) -> bytes:
    """What a transaction says of itself."""
    fields = {
        "query_id": task.scope.query_id,
        "sink": task.scope.sink,
        "epoch": task.scope.epoch,
        "run_id": task.scope.run_id,
        "batch_id": task.batch_id,
        "partition": task.partition,
        "attempt": task.attempt,
        "task_attempt_id": task.task_attempt_id,
    }
    return seal(WITNESS_FORMAT, VERSION, fields).encode()


def claim_text(scope: Scope, driver: Driver) -> bytes:
    """What a driver says that takes a sink over."""
    fields = {"query_id": scope.query_id, "sink": scope.sink, "epoch": scope.epoch, **asdict(driver)}
    return seal(CLAIM_FORMAT, VERSION, fields).encode()


class Witnesses:
    """The topic of witnesses, for one caller with its patience."""

    def __init__(self, transactions: Transactions, topic: str) -> None:
        self._wire = transactions.wire
        self._patience_ms = transactions.patience_ms
        self._topic = topic

    def place_of(self, scope: Scope, earlier: Place | None) -> Place:
        """Where those of a query and sink are, by its number; ``earlier``: where the newest that is recorded is."""
        known = existing_topic(self._wire, self._topic, self._patience_ms)
        was_here = earlier is not None and earlier.topic == self._topic
        if earlier is not None and was_here and not are_two_topics(earlier.topic_id, known.topic_id):
            topic_id = earlier.topic_id if known.topic_id in NO_TOPIC_ID else known.topic_id
            return Place(self._topic, topic_id, earlier.partition, earlier.since)
        digest = int(checksum_of(f"{scope.query_id}/{scope.sink}".encode()), 16)
        return Place(self._topic, known.topic_id, digest % len(known.leaders), 0)

    def traces(self, place: Place, scope: Scope) -> list[Trace]:
        """What drivers of this query and sink have left behind a place, oldest first: what is committed only."""
        part = self._read_what_is_left(place, scope)
        return [_trace(record, place, scope) for record in part.records if record.ending is Ending.COMMITTED]

    def traces_before(
        self, place: Place, scope: Scope, mine: Prepared, kept: Sequence[Prepared]
    ) -> tuple[list[Trace], int]:
        """The same up to the claim that ``mine`` has just written, and the offset of that. All of it must have ended,
        but what is ``kept``.

        Raises
        ------
        Unavailable
            Something has not ended yet, or the claim does not show yet.
        """
        records = self._read_what_is_left(place, scope).records
        at = next((number for number, one in enumerate(records) if _is_by(one, mine)), None)
        if at is None:
            raise Unavailable(
                f"Kafka at {self._wire.servers} acknowledged a claim in {place.topic}-{place.partition}"
                " and does not show it yet"
            )
        still = [
            one.key.decode()
            for one in records[:at]
            if one.ending is Ending.OPEN and not any(_is_by(one, other) for other in kept)
        ]
        if still:
            raise Unavailable(f"Kafka at {self._wire.servers} has not yet ended {', '.join(still[:8])}")
        committed = [one for one in records[:at] if one.ending is Ending.COMMITTED]
        return [_trace(one, place, scope) for one in committed], records[at].offset

    def verdicts(self, scope: Scope, asked: Sequence[tuple[Prepared, Place]], claim: Place) -> list[Verdict]:
        """What became of transactions, as their witnesses say. ``claim``: this driver's own."""
        parts: dict[Place, LogPart | None] = {}
        ids: dict[str, KnownTopic | None] = {}
        found = []
        for one, place in asked:
            if place.topic not in ids:
                ids[place.topic] = known_topic(self._wire, place.topic, self._patience_ms)
            known = ids[place.topic]
            if known is None or are_two_topics(place.topic_id, known.topic_id):
                found.append(Verdict.NOT_KNOWN)  # the topic was deleted, or made again
                continue
            if place not in parts:
                parts[place] = self._read(place, scope)
            found.append(_verdict(one, place, parts[place], claim))
        return found

    def epochs_of(self, place: Place, scope: Scope, asked: Iterable[Prepared]) -> dict[Prepared, int]:
        """Whose open transactions are: the whole epoch of the driver, for which its name has too little room.

        Missing are those of which it does not show: the witness may be on its way still.
        """
        where = (place.topic, place.partition)
        look = self._wire.call(
            f"look who writes to {place.topic}", self._patience_ms, lambda: look_at_places(self._wire, [where])
        )
        starts = {(one.producer_id, one.producer_epoch): one.start_offset for one in look.open_ends}
        wanted = {(one.producer_id, one.producer_epoch): one for one in asked}
        shown = wanted.keys() & starts.keys()
        if not shown:
            return {}
        part = self._read(replace(place, since=min(starts[one] for one in shown)), scope)
        found = {}
        for record in part.records if part is not None else ():
            one = wanted.get((record.producer_id, record.producer_epoch))
            if one is not None and record.key == one.transactional_id.encode():
                found[one] = _trace(record, place, scope).epoch
        return {one: epoch for one, epoch in found.items() if epoch is not None}

    def _read_what_is_left(self, place: Place, scope: Scope) -> LogPart:
        """A log that ends before the place was lost (one replica, and its disk): then all that is in it came later."""
        return self._read(place, scope) or self._read(replace(place, since=0), scope) or LogPart(0, 0, ())

    def _read(self, place: Place, scope: Scope) -> LogPart | None:
        log = PartitionLog(self._wire, place.topic, place.partition, self._patience_ms)
        return log.read(place.since, lambda key: _is_of(key, scope))


def _verdict(one: Prepared, place: Place, part: LogPart | None, claim: Place) -> Verdict:
    if part is None:
        return Verdict.NOT_KNOWN  # the log has lost its end
    for record in part.records:
        if record.key == one.transactional_id.encode() and _is_by(record, one):
            return Verdict[record.ending.name]
    if part.start > place.since:
        return Verdict.NOT_KNOWN  # it may have been deleted
    if (claim.topic_id, claim.partition) != (place.topic_id, place.partition):
        return Verdict.NOT_KNOWN  # this driver's claim is elsewhere: nothing to compare with
    # The cleaner takes what was aborted, and what has a successor of its name: there is none, or the checkpoint would
    # have been refused. That the log ends behind a later claim says that it is not a new leader's, which has yet to
    # learn how much of its log all replicas have.
    return Verdict.ABORTED if part.end > claim.since > place.since else Verdict.OPEN


def _is_by(record: LogRecord, one: Prepared) -> bool:
    return (record.producer_id, record.producer_epoch) == (one.producer_id, one.producer_epoch)


def _is_of(key: bytes, scope: Scope) -> bool:
    """Whether a key is of a query and sink: a transaction's name, or a claim."""
    try:
        text = key.decode("ascii")
    except UnicodeDecodeError:
        return False
    if text.rpartition("/")[0] == driver_id(scope.query_id, scope.sink):
        return True
    named = TransactionalId.parse(text)
    return named is not None and (named.query_id, named.sink) == (scope.query_id, scope.sink)


def claim_key(scope: Scope, ring: int) -> bytes:
    """Few, so that the cleaner keeps few."""
    return f"{driver_id(scope.query_id, scope.sink)}/{scope.epoch % ring}".encode()


def _trace(record: LogRecord, place: Place, scope: Scope) -> Trace:
    where = f"the record at {place.topic}-{place.partition}, offset {record.offset}"
    is_claim = b"/" in record.key
    fields = unseal(record.value, CLAIM_FORMAT if is_claim else WITNESS_FORMAT, VERSION, where)
    try:
        epoch, run_id = int(fields["epoch"]), str(fields["run_id"])
        if (fields["query_id"], fields["sink"]) != (scope.query_id, scope.sink):
            raise Corrupt(f"{where} has another query and sink than its key: {fields['query_id']}, {fields['sink']}")
        who = f"run {run_id} of epoch {epoch}"
        if is_claim:
            return Trace(epoch, run_id, None, f"{who}, process {fields['pid']} on {fields['host']}; {where}")
        return Trace(epoch, run_id, int(fields["batch_id"]), f"{who}; {where}")
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, Corrupt):
            raise
        raise Corrupt(f"{where} lacks what a witness has: {error!r}") from error
