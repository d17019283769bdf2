"""The markers that end a transaction in each of its partitions: whether they came, and those that never will.

Kafka answers EndTxn when the end is decided; its coordinator writes a marker into each partition after that, and only
then are the rows visible. A coordinator that comes back, after a crash, sooner than the leader of such a partition
takes the partition for a deleted one: it leaves the marker out and calls the transaction complete. The rows would be
invisible, and their readers stand still, for ever. (Kafka 4.3.1, one replica, its broker killed within milliseconds of
the answer: two times in five.) Here the marker is then written, as ``kafka-transactions.sh abort`` does, but with the
decision that was made (KIP-664: DescribeProducers, WriteTxnMarkers).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.errors import Unavailable
from holdfast.kafka.client import logger
from holdfast.kafka.transactions import EMPTY, ONGOING, OPEN_STATES, Prepared, Transaction, Transactions
from holdfast.kafka.wire import Retry, refuse

Place = tuple[str, int]
"""A topic and a partition of it."""

# Round trips, a millisecond each, before the coordinator is asked why: most markers have come by then.
_QUICK_LOOKS = 4
_NO_SUCH_PARTITION, _TOPIC_NOT_ALLOWED, _CLUSTER_NOT_ALLOWED = 3, 29, 31
_ELSEWHERE = {5: "LEADER_NOT_AVAILABLE", 6: "NOT_LEADER_OR_FOLLOWER", 9: "REPLICA_NOT_AVAILABLE"}

_not_shown: set[Place] = set()


@dataclass(frozen=True)
class OpenEnd:
    """A transaction that the leader of a partition calls open there."""

    place: Place
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int


class End(enum.Enum):
    """How the coordinator ended a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    NOT_YET = "not yet"
    UNKNOWN = "unknown"


class Markers:
    """The markers of a cluster's transactions, for one caller with its patience."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._wire = transactions.wire

    def wait_for(
        self, committed: Sequence[Prepared], topics: Iterable[str], leaders: Mapping[Place, int] | None
    ) -> None:
        """Until what was committed is visible.

        Parameters
        ----------
        topics
            All that it may have written to.
        leaders
            Where it has written to, and who has led it lately. None: it may be any partition of the topics.

        Raises
        ------
        Unavailable
            Not within the patience, or a marker is missing and this user must not write it.
        """
        self._settle("make visible", committed, set(committed), frozenset(topics), leaders)

    def sweep(self, transactional_ids: Sequence[str], topics: Iterable[str]) -> None:
        """Until nothing of these ids is open in the topics that is not open at its coordinator.

        Raises
        ------
        Unavailable
            As for `wait_for`.
        """
        known = [one.prepared for one in self._transactions.describe(transactional_ids) if one is not None]
        self._settle("end", known, set(), frozenset(topics), None)

    def _settle(
        self,
        verb: str,
        ended: Sequence[Prepared],
        committed: set[Prepared],
        topics: frozenset[str],
        leaders: Mapping[Place, int] | None,
    ) -> None:
        names = {one.producer_id: one.transactional_id for one in ended}
        lately = leaders

        async def look() -> list[OpenEnd]:
            nonlocal lately
            led, lately = lately, None  # whatever fails, the next look asks who leads
            if led is None:
                now = await self._wire.leaders_of(topics)
                led = now if leaders is None else {place: now[place] for place in leaders if place in now}
            found = [one for one in await self._open_ends(led) if one.producer_id in names]
            lately = led
            return found

        async def ask() -> None:
            for _ in range(_QUICK_LOOKS):
                if not (before := await look()):
                    return
            ids = sorted({names[one.producer_id] for one in before})
            described = dict(zip(ids, await self._transactions.described(ids)))
            # What was open before its coordinator called it complete, and still is, will be for ever.
            after = set(await look())
            ends = [(one, _end_of(one, names, described, committed)) for one in before if one in after]
            for one, end in ends:
                if end in (End.COMMITTED, End.ABORTED):
                    await self._write(one, names[one.producer_id], end is End.COMMITTED)
                elif end is End.UNKNOWN:
                    logger.warning("%s has no end in %s, and nobody knows which", names[one.producer_id], one.place)
            if len(ends) < len(before) or not all(end in (End.OPEN, End.UNKNOWN) for _, end in ends):
                raise Retry(f"{ids[0]} is still open in {len(ends)} partitions")

        if ended:
            count = f"{len(names)} transaction{'' if len(names) == 1 else 's'}"
            self._wire.call(f"{verb} {count}", self._transactions.patience_ms, ask)

    async def _open_ends(self, leaders: Mapping[Place, int]) -> list[OpenEnd]:
        """All that the leaders call open."""
        by_leader: dict[int, dict[str, list[int]]] = {}
        for (topic, number), leader in leaders.items():
            if leader < 0:
                raise Retry(f"partition {topic}-{number} has no leader")
            by_leader.setdefault(leader, {}).setdefault(topic, []).append(number)
        asked = [self._open_ends_at(leader, wanted) for leader, wanted in by_leader.items()]
        return [one for found in await self._wire.all_of(asked) for one in found]

    async def _open_ends_at(self, leader: int, wanted: Mapping[str, list[int]]) -> list[OpenEnd]:
        from kafka.protocol.admin.transactions import DescribeProducersRequest

        topic = DescribeProducersRequest.TopicRequest
        topics = [topic(name=name, partition_indexes=numbers) for name, numbers in wanted.items()]
        await self._wire.know(leader)
        answer = await self._wire.send(DescribeProducersRequest(topics=topics), leader)
        places = [((one.name, part.partition_index), part) for one in answer.topics for part in one.partitions]
        return [
            OpenEnd(place, one.producer_id, one.producer_epoch, one.coordinator_epoch, one.current_txn_start_offset)
            for place, part in places
            if _is_shown(part.error_code, place)
            for one in part.active_producers
            if one.current_txn_start_offset >= 0
        ]

    async def _write(self, missing: OpenEnd, transactional_id: str, commit: bool) -> None:
        """One marker, in the coordinator's place."""
        from kafka.protocol.producer.transaction import WriteTxnMarkersRequest

        (topic, number), marker = missing.place, WriteTxnMarkersRequest.WritableTxnMarker
        what = (
            f"the marker that is missing in {topic}-{number} to {'commit' if commit else 'abort'} transaction"
            f" {transactional_id} (producer id {missing.producer_id}, epoch {missing.producer_epoch})"
        )
        leader = (await self._wire.leaders_of([topic])).get(missing.place, -1)
        if leader < 0:
            raise Retry(f"{what}: the partition has no leader")
        await self._wire.know(leader)
        written = marker(
            producer_id=missing.producer_id,
            producer_epoch=missing.producer_epoch,
            transaction_result=commit,
            topics=[marker.WritableTxnMarkerTopic(name=topic, partition_indexes=[number])],
            coordinator_epoch=max(0, missing.coordinator_epoch),
        )
        answer = await self._wire.send(WriteTxnMarkersRequest(markers=[written]), leader)
        [code] = [part.error_code for one in answer.markers for name in one.topics for part in name.partitions]
        if code in _ELSEWHERE:
            raise Retry(f"{what}: {_ELSEWHERE[code]}")
        if code == _CLUSTER_NOT_ALLOWED:
            raise Unavailable(
                f"Kafka refuses {what}. A broker that died has left it out, and readers stand still behind it. Grant"
                " the user of this query ALTER on the cluster, at least for one start: docs/guide/transactions.md"
            )
        if code:
            refuse(code, what)
        logger.warning("Wrote %s: a broker that died had left it out", what)


def _end_of(
    one: OpenEnd, names: Mapping[int, str], described: Mapping[str, Transaction | None], committed: set[Prepared]
) -> End:
    name = names[one.producer_id]
    known = described[name]
    is_its_own = known is not None and known.producer_id == one.producer_id
    if known is not None and is_its_own and known.state in OPEN_STATES:
        if known.state != ONGOING:
            return End.NOT_YET
        if known.producer_epoch == one.producer_epoch:
            return End.OPEN
    if Prepared(name, one.producer_id, one.producer_epoch) in committed:
        return End.COMMITTED
    if known is None or not is_its_own:
        return End.UNKNOWN
    moved = known.producer_epoch - one.producer_epoch
    if known.state == "CompleteCommit":
        return End.COMMITTED if moved == 0 else End.UNKNOWN
    # A take-over moves the epoch by one, and by one more when it had to abort first.
    was_aborted = known.state == "CompleteAbort" or (known.state in (EMPTY, ONGOING) and moved > 1)
    return End.ABORTED if was_aborted else End.UNKNOWN


def _is_shown(code: int, place: Place) -> bool:
    """Whether a leader may tell of its partition's producers; False as well when there is no such partition."""
    topic, number = place
    if code in _ELSEWHERE:
        raise Retry(f"partition {topic}-{number}: {_ELSEWHERE[code]}")
    if code == _TOPIC_NOT_ALLOWED and place not in _not_shown:
        _not_shown.add(place)
        logger.warning(
            "Whether commits arrive in %s-%d is not looked at: it needs READ on the topic. Without, a broker that dies"
            " at the wrong moment can leave rows invisible",
            topic,
            number,
        )
    if code not in (0, _NO_SUCH_PARTITION, _TOPIC_NOT_ALLOWED):
        refuse(code, f"a look at the transactions in {topic}-{number}")
    return code == 0
