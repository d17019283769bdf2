"""Whether what a transaction wrote is still there, before it is committed.

Kafka's coordinator commits a transaction whose topic was deleted, or deleted and made again, or lost its log to an
unclean election: there is nobody left to disagree, and it says "done". So each partition's leader is asked whether the
producer has a transaction open there. Where it has none, its rows are gone, and the transaction must not be committed.
One whose topic was made again while it was written goes on in the new one, and is open there with a part of its rows
only: that is told by the topic's id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.clock import Clock, SystemClock
from holdfast.kafka.open_ends import Place, look_into
from holdfast.kafka.transactions import ONGOING, Prepared, Readiness, Transactions
from holdfast.kafka.wire import Retry, are_two_topics

#: How long the brokers must say that a partition does not exist. One that has just started knows of none for a moment.
GONE_AFTER_MS = 3_000.0


class Presence:
    """Asks for one caller with its patience."""

    def __init__(self, transactions: Transactions, clock: Clock | None = None) -> None:
        self._transactions = transactions
        self._wire = transactions.wire
        self._clock = clock or SystemClock()

    def missing(
        self, prepared: Sequence[Prepared], found: Readiness, begun_in: Mapping[Prepared, Mapping[str, str]]
    ) -> dict[Prepared, list[Place]]:
        """Of those that are open at their coordinator, what they wrote to and is gone.

        Parameters
        ----------
        found
            What `Transactions.wait_until_ready` has just said of them.
        begun_in
            Of each, ids that topics had by name before it was begun, as far as they are known.

        Raises
        ------
        Unavailable
            A leader does not answer.
        """
        places = {one: _places_of(one, found) for one in prepared}
        wanted = {place for each in places.values() for place in each}
        if not wanted:
            return {}
        named = {topic for one in prepared for topic in begun_in.get(one, {})}
        since_ms: float | None = None

        async def ask() -> dict[Prepared, list[Place]]:
            nonlocal since_ms
            shown = await self._producers(wanted)
            ids = await self._wire.topic_ids(named) if named else {}

            def is_gone(one: Prepared, place: Place) -> bool:
                producers, before = shown[place], begun_in.get(one, {}).get(place[0])
                is_new = before is not None and are_two_topics(before, ids.get(place[0], before))
                return is_new or (producers is not None and one.producer_id not in producers)

            found_gone = ((one, sorted(p for p in each if is_gone(one, p))) for one, each in places.items())
            gone = {one: lost for one, lost in found_gone if lost}
            if not gone:
                return {}
            # Since they first said so: before, a leader may have been away, and it begins with knowing of nothing.
            now_ms = self._clock.elapsed_ms()
            since_ms = now_ms if since_ms is None else since_ms
            if now_ms - since_ms < GONE_AFTER_MS:
                name = next(iter(next(iter(gone.values()))))
                raise Retry(f"what was written to {name[0]}-{name[1]} is gone")
            return gone

        return self._wire.call("show what is to be committed", self._transactions.patience_ms, ask)

    async def _producers(self, places: set[Place]) -> dict[Place, set[int] | None]:
        """Producers with an open transaction in each; None: this user may not see them."""
        led = await self._wire.leaders_of({topic for topic, _ in places}, must_see=True)
        look = await look_into(self._wire, {place: led[place] for place in places if place in led})
        shown: dict[Place, set[int] | None] = {place: None if place in look.hidden else set() for place in places}
        for one in look.open_ends:
            producers = shown.get(one.place)
            if producers is not None:
                producers.add(one.producer_id)
        return shown


def _places_of(one: Prepared, found: Readiness) -> tuple[Place, ...]:
    known = found.known.get(one.transactional_id)
    if known is None or known.state != ONGOING or known.prepared != one:
        return ()
    return known.partitions
