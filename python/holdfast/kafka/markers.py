"""The markers that end a transaction in each of its partitions: whether they came, and those that never will.

Kafka answers EndTxn when the end is decided; its coordinator writes a marker into each partition after that, and only
then are the rows visible. A coordinator that comes back, after a crash, sooner than the leader of such a partition
takes the partition for a deleted one: it leaves the marker out and calls the transaction complete. The rows would be
invisible, and their readers stand still, for ever. (Kafka 4.3.1, one replica, its broker killed within milliseconds of
the answer: two times in five.) Here the marker is then written, as ``kafka-transactions.sh abort`` does, but with the
decision that was made (KIP-664: WriteTxnMarkers).

A marker is written only of a transaction that the coordinator has done with (`Fate.is_over`), and that was open in the
partition both before and after the coordinator said so. A marker of one that is not over would end half of it.

A partition's leader has the marker before its followers do, and a reader sees the rows when all in sync have it: so a
commit is done when its coordinator calls it complete, which waits for them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence

from holdfast.errors import Corrupt, InternalError, Unavailable
from holdfast.kafka.client import logger
from holdfast.kafka.fates import Fate, State
from holdfast.kafka.open_ends import ELSEWHERE, OpenEnd, Place, look_into
from holdfast.kafka.requests import write_txn_marker
from holdfast.kafka.transactions import Prepared, Transaction, Transactions, fate_of
from holdfast.kafka.wire import Retry, Wire, refuse

# Round trips, a millisecond each, before the coordinator is asked why: most markers have come by then.
_QUICK_LOOKS = 4
_CLUSTER_NOT_ALLOWED = 31


class End(enum.Enum):
    """What is to be done about a transaction that is open in a partition."""

    COMMIT = "write the marker of its commit"
    ABORT = "write the marker of its abort"
    WAIT = "its coordinator is at work: look again"
    LEAVE = "it is open at its coordinator, too: nobody's business here"
    UNKNOWN = "it is over, and nobody knows how: leave it, and say so"


class Markers:
    """The markers of a cluster's transactions, for one caller with its patience."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._wire = transactions.wire

    def wait_for(
        self,
        committed: Sequence[Prepared],
        topics: Iterable[str],
        leaders: Mapping[Place, int] | None,
        alone: Iterable[Place] = (),
    ) -> None:
        """Until what was committed is visible.

        Parameters
        ----------
        topics
            All that it may have written to.
        leaders
            Where it has written to, and who has led it lately. None: it may be any partition of the topics.
        alone
            But of these partitions' topics no other one, which may have no leader for as long as it likes.

        Raises
        ------
        Unavailable
            Not within the patience, or a marker is missing and this user must not write it.
        Corrupt
            The coordinator has said "committed", and says "aborted" now.
        """
        self._settle("make visible", committed, frozenset(committed), _Partitions(self._wire, topics, leaders, alone))

    def sweep(self, transactional_ids: Sequence[str], topics: Iterable[str], alone: Iterable[Place] = ()) -> None:
        """Until nothing of these ids is open in the topics that is not open at its coordinator.

        Parameters
        ----------
        alone
            As for `wait_for`.

        Raises
        ------
        Unavailable
            As for `wait_for`.
        """
        known = [one.prepared for one in self._transactions.describe(transactional_ids) if one is not None]
        self._settle("end", known, frozenset(), _Partitions(self._wire, topics, None, alone))

    def _settle(
        self, verb: str, ended: Sequence[Prepared], committed: frozenset[Prepared], partitions: _Partitions
    ) -> None:
        if not ended:
            return
        names = {one.producer_id: one.transactional_id for one in ended}
        count = f"{len(names)} transaction{'' if len(names) == 1 else 's'}"
        self._wire.call(
            f"{verb} {count}",
            self._transactions.patience_ms,
            lambda: self._settle_once(names, committed, partitions),
        )

    async def _settle_once(
        self, names: Mapping[int, str], committed: frozenset[Prepared], partitions: _Partitions
    ) -> None:
        """One attempt: look, ask the coordinators, look again, and write what is missing."""
        for _ in range(_QUICK_LOOKS):
            before = await partitions.open_ends_of(names)
            if not before:
                await self._check_followers(committed)
                return
        ids = sorted({names[one.producer_id] for one in before})
        known = dict(zip(ids, await self._transactions.described(ids)))
        # What was open before its coordinator called it over, and still is, will be for ever.
        after = set(await partitions.open_ends_of(names))
        stuck = [one for one in before if one in after]
        ends = [end_of(one, names[one.producer_id], known[names[one.producer_id]], committed) for one in stuck]
        for one, end in zip(stuck, ends):
            name = names[one.producer_id]
            if end in (End.COMMIT, End.ABORT):
                _check_is_over(one, name, known[name])
                await self._write(one, name, commit=end is End.COMMIT)
            elif end is End.UNKNOWN:
                logger.warning("%s has no end in %s, and nobody knows which", name, one.place)
        if len(stuck) < len(before) or not all(end in (End.LEAVE, End.UNKNOWN) for end in ends):
            raise Retry(f"{ids[0]} is still open in {len(stuck)} partitions")

    async def _check_followers(self, committed: frozenset[Prepared]) -> None:
        """A leader has a marker before its followers do, and readers wait for all that are in sync. So does the
        coordinator before it calls a transaction complete.
        """
        ids = sorted({one.transactional_id for one in committed})
        for _ in range(_QUICK_LOOKS):
            known = dict(zip(ids, await self._transactions.described(ids)))
            late = [one for one in committed if _is_being_committed(known[one.transactional_id], one)]
            if not late:
                return
        raise Retry(f"the markers of {len(late)} transactions are not with all followers in sync yet")

    async def _write(self, missing: OpenEnd, transactional_id: str, commit: bool) -> None:
        """One marker, in the coordinator's place."""
        topic, number = missing.place
        what = (
            f"the marker that is missing in {topic}-{number} to {'commit' if commit else 'abort'} transaction"
            f" {transactional_id} (producer id {missing.producer_id}, epoch {missing.producer_epoch})"
        )
        leader = (await self._wire.leaders_of([topic])).get(missing.place, -1)
        if leader < 0:
            raise Retry(f"{what}: the partition has no leader")
        await self._wire.know(leader)
        producer = missing.producer_id, missing.producer_epoch
        marker = write_txn_marker(missing.place, producer, max(0, missing.coordinator_epoch), commit=commit)
        answer = await self._wire.send(marker, leader)
        [code] = [part.error_code for one in answer.markers for name in one.topics for part in name.partitions]
        if code in ELSEWHERE:
            raise Retry(f"{what}: {ELSEWHERE[code]}")
        if code == _CLUSTER_NOT_ALLOWED:
            raise Unavailable(
                f"Kafka refuses {what}. A broker that died has left it out, and readers stand still behind it. Grant"
                " the user of this query ALTER on the cluster, at least for one start: docs/guide/transactions.md"
            )
        if code:
            refuse(code, what)
        logger.warning("Wrote %s: a broker that died had left it out", what)


class _Partitions:
    """Where transactions may be open. Who leads there is believed until something fails."""

    def __init__(
        self, wire: Wire, topics: Iterable[str], leaders: Mapping[Place, int] | None, alone: Iterable[Place]
    ) -> None:
        self._wire = wire
        self._alone = dict(alone)
        self._topics = frozenset(topics)
        self._only = None if leaders is None else frozenset(leaders)
        self._lately = leaders

    async def open_ends_of(self, producer_ids: Mapping[int, str]) -> list[OpenEnd]:
        """All that these producers have open; only inside of a question."""
        leaders, self._lately = self._lately, None  # whatever fails, the next look asks who leads
        if leaders is None:
            now = await self._wire.leaders_of(self._topics)
            leaders = {place: leader for place, leader in now.items() if self._is_meant(place)}
        look = await look_into(self._wire, leaders)
        self._lately = leaders
        return [one for one in look.open_ends if one.producer_id in producer_ids]

    def _is_meant(self, place: Place) -> bool:
        topic, number = place
        return self._alone.get(topic, number) == number if self._only is None else place in self._only


def _is_being_committed(known: Transaction | None, one: Prepared) -> bool:
    return known is not None and known.prepared == one and known.state == State.PREPARE_COMMIT.value


def end_of(one: OpenEnd, name: str, known: Transaction | None, committed: frozenset[Prepared]) -> End:
    """What is to be done about a transaction that is open in a partition.

    Parameters
    ----------
    known
        What its coordinator says of the id, after the partition was looked at.
    committed
        Transactions whose commit their coordinator has confirmed.
    """
    this = Prepared(name, one.producer_id, one.producer_epoch)
    found = fate_of(known, this)
    if found is Fate.OPEN:
        return End.LEAVE
    if not found.is_over:
        return End.WAIT
    if this in committed:
        if known is not None and known.prepared == this and found is Fate.ABORTED:
            raise Corrupt(
                f"The coordinator of transaction {name} (producer id {one.producer_id}, epoch {one.producer_epoch}) has"
                " confirmed its commit, and calls it aborted now: expected what was decided once to stay. Its log has"
                " lost what it had acknowledged (an unclean election of __transaction_state). Compare the rows of its"
                " batch in the topic with the commit record before the query is started again"
            )
        return End.COMMIT
    if found is Fate.COMMITTED:
        return End.COMMIT
    return End.ABORT if found is Fate.ABORTED else End.UNKNOWN


def _check_is_over(one: OpenEnd, name: str, known: Transaction | None) -> None:
    """The other half of `end_of`: just before a marker goes out, whoever decided."""
    if not fate_of(known, Prepared(name, one.producer_id, one.producer_epoch)).is_over:
        raise InternalError(f"a marker was about to end transaction {name}, which its coordinator calls {known}")
