"""Whether what a transaction wrote is still there, before it is committed.

Kafka's coordinator commits a transaction whose topic was deleted, or deleted and made again, or lost its log to an
unclean election: there is nobody left to disagree, and it says "done". So each partition's leader is asked whether the
producer has a transaction open there. Where it has none, its rows are gone, and the transaction must not be committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from holdfast.clock import Clock, SystemClock
from holdfast.kafka.transactions import ONGOING, Prepared, Readiness, Transactions
from holdfast.kafka.wire import Retry, refuse

Place = tuple[str, int]

#: How long the brokers must say that a partition does not exist. One that has just started knows of none for a moment.
GONE_AFTER_MS = 3_000.0
_NO_SUCH_PARTITION, _NOT_ALLOWED = 3, 29
_ELSEWHERE = (5, 6, 9)


class Presence:
    """Asks for one caller with its patience."""

    def __init__(self, transactions: Transactions, clock: Clock | None = None) -> None:
        self._transactions = transactions
        self._wire = transactions.wire
        self._clock = clock or SystemClock()

    def missing(self, prepared: Sequence[Prepared], found: Readiness) -> dict[Prepared, list[Place]]:
        """Of those that are open at their coordinator, what they wrote to and is gone.

        Parameters
        ----------
        found
            What `Transactions.wait_until_ready` has just said of them.

        Raises
        ------
        Unavailable
            A leader does not answer.
        """
        places = {one: _places_of(one, found) for one in prepared}
        wanted = {place for each in places.values() for place in each}
        if not wanted:
            return {}
        since_ms = self._clock.elapsed_ms()

        async def ask() -> dict[Prepared, list[Place]]:
            shown = await self._producers(wanted)
            gone = {
                one: lost
                for one, each in places.items()
                if (lost := sorted(p for p in each if shown[p] is not None and one.producer_id not in shown[p]))  # type: ignore[operator]
            }
            if gone and self._clock.elapsed_ms() - since_ms < GONE_AFTER_MS:
                name = next(iter(next(iter(gone.values()))))
                raise Retry(f"what was written to {name[0]}-{name[1]} is gone")
            return gone

        return self._wire.call("show what is to be committed", self._transactions.patience_ms, ask)

    async def _producers(self, places: Iterable[Place]) -> dict[Place, set[int] | None]:
        """Producers with an open transaction in each; None: this user may not see them."""
        wanted = set(places)
        leaders = await self._wire.leaders_of({topic for topic, _ in wanted})
        shown: dict[Place, set[int] | None] = {place: set() for place in wanted if place not in leaders}
        by_leader: dict[int, list[Place]] = {}
        for place in wanted - shown.keys():
            if leaders[place] < 0:
                raise Retry(f"partition {place[0]}-{place[1]} has no leader")
            by_leader.setdefault(leaders[place], []).append(place)
        for part in await self._wire.all_of(self._ask(node, each) for node, each in by_leader.items()):
            shown.update(part)
        return shown

    async def _ask(self, node: int, places: Sequence[Place]) -> Mapping[Place, set[int] | None]:
        from kafka.protocol.admin.transactions import DescribeProducersRequest

        by_topic: dict[str, list[int]] = {}
        for topic, number in places:
            by_topic.setdefault(topic, []).append(number)
        kind = DescribeProducersRequest.TopicRequest
        topics = [kind(name=name, partition_indexes=numbers) for name, numbers in by_topic.items()]
        await self._wire.know(node)
        answer = await self._wire.send(DescribeProducersRequest(topics=topics), node)
        found: dict[Place, set[int] | None] = {}
        for topic in answer.topics:
            for part in topic.partitions:
                place, code = (topic.name, part.partition_index), part.error_code
                if code in _ELSEWHERE:
                    raise Retry(f"partition {place[0]}-{place[1]} moves")
                if code not in (0, _NO_SUCH_PARTITION, _NOT_ALLOWED):
                    refuse(code, f"a look at the transactions in {place[0]}-{place[1]}")
                open_there = {one.producer_id for one in part.active_producers if one.current_txn_start_offset >= 0}
                found[place] = None if code == _NOT_ALLOWED else open_there
        return found


def _places_of(one: Prepared, found: Readiness) -> tuple[Place, ...]:
    known = found.known.get(one.transactional_id)
    if known is None or known.state != ONGOING or known.prepared != one:
        return ()
    return known.partitions
