"""Transactions of Kafka from the outside: end one that another process prepared, list, describe, fence.

What was prepared is ended by EndTxn of version 3, always. Version 5 bumps the producer's epoch with each transaction,
so that a repeat can not be told from a conflict; mixing the two makes a repeat of what was committed look like an
abort. Where nobody will ask again, it is the fence that spares who came after: `Transactions.fence_as_found`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.errors import InvalidRequest
from holdfast.kafka.client import logger
from holdfast.kafka.coordinators import STATE_PARTITIONS, STATE_TOPIC, probes
from holdfast.kafka.fates import Fate, State, fate
from holdfast.kafka.open_ends import look_at_places
from holdfast.kafka.requests import (
    END_TXN_AND_BUMP_VERSION,
    describe_transactions,
    end_txn,
    features,
    init_producer_id,
    list_transactions,
)
from holdfast.kafka.transactional_ids import PREFIX
from holdfast.kafka.wire import Retry, Wire, refuse, wire_to

_LIST_BY_PATTERN = 2  # KIP-1152, Kafka 4.1
_NOT_FOUND = 105
_INVALID_TIMEOUT = 50
_VERSION_FEATURE, _BUMPING_LEVEL = "transaction.version", 2
_DESCRIBED_AT_ONCE = 500

ONGOING = State.ONGOING.value
EMPTY = State.EMPTY.value
OPEN_STATES = (
    ONGOING,
    State.PREPARE_COMMIT.value,
    State.PREPARE_ABORT.value,
    State.PREPARE_EPOCH_FENCE.value,
)


@dataclass(frozen=True)
class Prepared:
    """One transaction of one producer: what it takes to end it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    #: What it may have written to.
    topics: tuple[str, ...] = field(default=(), compare=False)


_left: set[Prepared] = set()  # and said so


@dataclass(frozen=True)
class Transaction:
    """What the coordinator knows of a transactional id.

    Attributes
    ----------
    started_ms
        Milliseconds since 1970; -1: nothing is open.
    partitions
        (topic, partition) of what was written to.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    coordinator: int
    partitions: tuple[tuple[str, int], ...]

    @property
    def prepared(self) -> Prepared:
        """What it takes to end it."""
        return Prepared(self.transactional_id, self.producer_id, self.producer_epoch)


def fate_of(known: Transaction | None, one: Prepared) -> Fate:
    """What became of a transaction, by what its coordinator knows of the id now."""
    if known is None or known.producer_id != one.producer_id:
        return Fate.FORGOTTEN  # expired; or out of epochs, which gives the id another producer
    return fate(known.state, known.producer_epoch - one.producer_epoch)


@dataclass(frozen=True)
class Readiness:
    """What was found when transactions could be ended.

    Attributes
    ----------
    leaders
        Their partitions and who leads them; those that do not exist are missing. None when one of the transactions has
        ended already, which no longer tells its own.
    known
        What the coordinators know of each id that was asked for.
    """

    leaders: dict[tuple[str, int], int] | None
    known: Mapping[str, Transaction | None]


def topics_of(described: Iterable[Transaction | None]) -> set[str]:
    """What these have written to, as long as they are open."""
    return {topic for one in described if one is not None for topic, _ in one.partitions}


class Answer(enum.Enum):
    """The coordinator's answer to the wish to end a transaction."""

    DONE = "done"
    """It has ended so, now or before."""
    OPPOSITE = "opposite"
    """It has ended the other way."""
    FENCED = "fenced"
    """The producer was superseded, or the broker timed the transaction out, before it had ended: aborted."""
    UNKNOWN = "unknown"
    """The coordinator knows the id no more, or knows it of another producer."""


_ANSWERS = {0: Answer.DONE, 48: Answer.OPPOSITE, 47: Answer.FENCED, 90: Answer.FENCED, 49: Answer.UNKNOWN}


class Transactions:
    """The transactions of one cluster, for one caller with its patience."""

    def __init__(self, config: Mapping[str, str], patience_ms: float, wire: Wire | None = None) -> None:
        self.wire = wire or wire_to(config)
        self.patience_ms = patience_ms

    def wait_until_ready(self, prepared: Sequence[Prepared], others: Sequence[str] = ()) -> Readiness:
        """Until each partition of these has a leader that answers: before that, none of them may be committed.

        Parameters
        ----------
        others
            Ids to describe with them, in the same question.

        Raises
        ------
        Unavailable
            Not within the patience.
        """
        names = [one.transactional_id for one in prepared]
        what = f"commit {len(prepared)} transactions"
        if not prepared:
            return Readiness({}, {})
        return self.wire.call(what, self.patience_ms, lambda: self._wait_for_leaders(names, others))

    def end(self, prepared: Sequence[Prepared], commit: bool, *, ready: bool = False) -> list[Answer]:
        """Commit or abort; all side by side; one answer each. May be repeated.

        Parameters
        ----------
        ready
            `wait_until_ready` has just returned. What must be asked again looks again.

        Raises
        ------
        Unavailable
            Not all answered. Those that did are ended nevertheless: call again with the same.
        """
        answers: dict[int, Answer] = {}
        attempts = 0

        async def ask_one(number: int) -> None:
            one = prepared[number]
            request = end_txn(one.transactional_id, one.producer_id, one.producer_epoch, commit=commit)
            code = (await self.wire.to_coordinator(one.transactional_id, request)).error_code
            if code not in _ANSWERS:
                refuse(code, f"the end of transaction {one.transactional_id}")
            answers[number] = _ANSWERS[code]

        async def ask_all() -> None:
            nonlocal attempts
            attempts += 1
            left = [number for number in range(len(prepared)) if number not in answers]
            if attempts > 1 or not ready:
                await self._wait_for_leaders([prepared[number].transactional_id for number in left])
            await self.wire.all_of(ask_one(number) for number in left)

        if prepared:
            verb = "commit" if commit else "abort"
            self.wire.call(f"{verb} {len(prepared)} transactions", self.patience_ms, ask_all)
        return [answers[number] for number in range(len(prepared))]

    def listing(self, pattern: str, states: Sequence[str] = (), prefix: str = PREFIX) -> list[tuple[str, str]]:
        """(id, state) of each transactional id that matches as a whole, on all brokers, sorted.

        Parameters
        ----------
        pattern
            A regular expression.
        states
            Only these; all when there are none.
        prefix
            Of ids that this user may describe: some that nobody has tell whether all coordinators answer.
        """
        whole = re.compile(pattern)

        async def ask_one(node: int) -> list[tuple[str, str]]:
            request = list_transactions(states)
            if self.wire.version_of(request) >= _LIST_BY_PATTERN:
                request.transactional_id_pattern = pattern
            answer = await self.wire.send(request, node)
            if answer.error_code:
                refuse(answer.error_code, f"a listing of its transactions (broker {node})")
            return [(found.transactional_id, found.transaction_state) for found in answer.transaction_states]

        async def ask_all() -> list[tuple[str, str]]:
            brokers = await self.wire.brokers()
            if not brokers:
                raise Retry("the cluster names no brokers")
            # Who coordinates nothing yet lists nothing.
            known = await self.wire.leaders_of([STATE_TOPIC])
            await self.described(probes(prefix, len(known) or STATE_PARTITIONS))
            found = await self.wire.all_of(ask_one(node) for node in brokers)
            return sorted({entry for entries in found for entry in entries if whole.fullmatch(entry[0])})

        return self.wire.call("list its transactions", self.patience_ms, ask_all)

    def describe(self, transactional_ids: Sequence[str]) -> list[Transaction | None]:
        """What is known of each; None: nothing."""

        async def ask_all() -> list[Transaction | None]:
            return await self.described(transactional_ids)

        return self.wire.call("describe transactions", self.patience_ms, ask_all) if transactional_ids else []

    def fence(self, transactional_ids: Sequence[str], timeout_ms: int) -> None:
        """Abort what is open and let no producer of today write under these ids again.

        A plain abort would leave a zombie its epoch, and its next write would open the transaction anew.
        """

        async def ask_one(transactional_id: str) -> None:
            request = init_producer_id(transactional_id, timeout_ms)
            code = (await self.wire.to_coordinator(transactional_id, request)).error_code
            if code == _INVALID_TIMEOUT:
                raise InvalidRequest(
                    f"Kafka at {self.wire.servers} refuses kafka.transaction.timeout.ms={timeout_ms}: it is more than"
                    " the brokers' transaction.max.timeout.ms"
                )
            if code:
                refuse(code, f"the fencing of transactional id {transactional_id}")
            fenced.add(transactional_id)

        async def ask_all() -> None:
            left = [one for one in transactional_ids if one not in fenced]
            await self._wait_for_leaders(left)
            await self.wire.all_of(ask_one(one) for one in left)

        fenced: set[str] = set()
        if transactional_ids:
            self.wire.call(f"fence {len(transactional_ids)} transactional ids", self.patience_ms, ask_all)

    def fence_as_found(self, found: Sequence[Prepared]) -> list[Prepared]:
        """Abort these, and let their producers write no more; whoever has taken an id since they were found is spared.

        The coordinator compares producer and epoch as it ends the transaction, and its markers have the next epoch: no
        moment lies between the look and the act, as there does before `fence`. That takes Kafka 4.0 and its feature
        transaction.version 2. Without, an abort would leave the producer its epoch, to write on behind the marker,
        where no time limit ends it any more: nothing is done.

        Returns
        -------
        list[Prepared]
            Those that are aborted now.
        """
        answers: dict[Prepared, Answer] = {}

        async def ask_one(one: Prepared) -> None:
            if not await self._bumps(self.wire.coordinator_of(one.transactional_id)):
                _say_left(one)
                answers[one] = Answer.UNKNOWN
                return
            ids = one.transactional_id, one.producer_id, one.producer_epoch
            request = end_txn(*ids, commit=False, version=END_TXN_AND_BUMP_VERSION)
            code = (await self.wire.to_coordinator(one.transactional_id, request)).error_code
            if code not in _ANSWERS:
                refuse(code, f"the end of transaction {one.transactional_id}")
            answers[one] = _ANSWERS[code]

        async def ask_all() -> None:
            left = [one for one in found if one not in answers]
            await self._wait_for_leaders([one.transactional_id for one in left])
            await self.wire.all_of(ask_one(one) for one in left)

        if found:
            self.wire.call(f"fence {len(found)} producers", self.patience_ms, ask_all)
        return [one for one in found if answers[one] is Answer.DONE]

    def told_of_takeovers(self, prepared: Sequence[Prepared], answers: Sequence[Answer]) -> list[Answer]:
        """The answers to a commit. An id that was taken over is fenced, also when it was committed before; and one that
        its coordinator fails to fence is fenced, though nothing has been decided.
        """
        fenced = [one for one, answer in zip(prepared, answers) if answer is Answer.FENCED]
        if not fenced:
            return list(answers)
        what = f"learn what became of {len(fenced)} transactions whose producers were fenced"
        fates = self.wire.call(what, self.patience_ms, lambda: self._decided(fenced))
        told = {Fate.ENDED: Answer.DONE, Fate.FORGOTTEN: Answer.UNKNOWN}
        return [told.get(fates[one], answer) if one in fates else answer for one, answer in zip(prepared, answers)]

    async def _decided(self, fenced: Sequence[Prepared]) -> dict[Prepared, Fate]:
        """Their fates, none of which can change any more; only inside of a question."""
        names = [one.transactional_id for one in fenced]
        known = dict(zip(names, await self.described(names)))
        fates = {one: fate_of(known[one.transactional_id], one) for one in fenced}
        contested = [one for one, found in fates.items() if found is Fate.CONTESTED]
        if contested:
            fates.update(dict.fromkeys(await self._ended_before(contested, known), Fate.ENDED))
        for one, found in fates.items():
            if not found.is_decided:
                now = known[one.transactional_id]
                raise Retry(f"transaction {one.transactional_id} is {found.value}, its coordinator says {now}")
        return fates

    async def _ended_before(
        self, contested: Sequence[Prepared], known: Mapping[str, Transaction | None]
    ) -> list[Prepared]:
        """Those that had ended when somebody began another one under their id.

        One that its coordinator fails to fence is open in each of its partitions. A fence that succeeds between two
        looks leaves the state for good, and so does a coordinator that has lost its place: the id must be the same
        before and after, by whom the brokers call its coordinator then.
        """
        written = {one: _partitions_of(known[one.transactional_id]) for one in contested}
        look = await look_at_places(self.wire, {place for places in written.values() for place in places})
        still_open = {(one.place, one.producer_id, one.producer_epoch) for one in look.open_ends}
        names = [one.transactional_id for one in contested]
        await self.wire.all_of(self.wire.find_coordinator(name) for name in names)
        again = dict(zip(names, await self.described(names)))
        return [
            one
            for one, places in written.items()
            if places
            and again[one.transactional_id] == known[one.transactional_id]
            and look.hidden.isdisjoint(places)
            and not any((place, one.producer_id, one.producer_epoch) in still_open for place in places)
        ]

    async def described(self, transactional_ids: Sequence[str]) -> list[Transaction | None]:
        """What is known of each, asked of its coordinator, which takes many at once; only inside of a question."""
        strange = [one for one in transactional_ids if self.wire.coordinator_of(one) < 0]
        await self.wire.all_of(self.wire.find_coordinator(one) for one in strange)
        by_node: dict[int, list[str]] = {}
        for one in dict.fromkeys(transactional_ids):
            by_node.setdefault(self.wire.coordinator_of(one), []).append(one)
        asked = [
            self._describe(node, names[start : start + _DESCRIBED_AT_ONCE])
            for node, names in by_node.items()
            for start in range(0, len(names), _DESCRIBED_AT_ONCE)
        ]
        found = {name: one for part in await self.wire.all_of(asked) for name, one in part.items()}
        return [found[one] for one in transactional_ids]

    async def _bumps(self, node: int) -> bool:
        """Whether a coordinator that ends a transaction moves its producer's epoch.

        One below the level refuses that request with the transaction half ended in its memory, and answers
        CONCURRENT_TRANSACTIONS to all about that id from then on (seen with 4.3.1): it must never get it.
        """
        answer = await self.wire.send(features(), node)
        levels = {one.name: int(one.max_version_level) for one in answer.finalized_features or ()}
        return (
            answer.error_code == 0
            and answer.finalized_features_epoch >= 0
            and levels.get(_VERSION_FEATURE, 0) >= _BUMPING_LEVEL
        )

    async def _describe(self, node: int, transactional_ids: list[str]) -> dict[str, Transaction | None]:
        answer = await self.wire.send(describe_transactions(transactional_ids), node)
        found: dict[str, Transaction | None] = dict.fromkeys(transactional_ids)
        for one in answer.transaction_states:
            if one.error_code == _NOT_FOUND:
                continue
            if one.error_code:
                refuse(one.error_code, f"a description of transaction {one.transactional_id}")
            found[one.transactional_id] = Transaction(
                transactional_id=one.transactional_id,
                state=one.transaction_state,
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                timeout_ms=one.transaction_timeout_ms,
                started_ms=one.transaction_start_time_ms,
                coordinator=node,
                partitions=tuple(sorted((topic.topic, number) for topic in one.topics for number in topic.partitions)),
            )
        return found

    async def _wait_for_leaders(self, transactional_ids: Sequence[str], others: Sequence[str] = ()) -> Readiness:
        """Not now, while a partition of an open transaction has no leader, or its leader does not answer.

        Kafka's coordinator takes a partition without a leader for a deleted one: it leaves out the marker that ends the
        transaction there, and calls the transaction complete. When the partition comes back, its rows are invisible
        and its readers stand still, for ever. (Seen with 4.3.1: one replica, its broker killed.)
        """
        asked = [*transactional_ids, *others]
        known = dict(zip(asked, await self.described(asked)))
        described = [known[one] for one in transactional_ids]
        places: dict[int, set[tuple[str, int]]] = {}
        for one in described:
            if one is not None and one.state == ONGOING:
                places.setdefault(one.coordinator, set()).update(one.partitions)
        found = await self.wire.all_of(self.wire.leaders(node, sorted(wanted)) for node, wanted in places.items())
        leaders = {place: leader for leaders in found for place, leader in leaders.items()}
        missing = [f"{topic}-{number}" for (topic, number), leader in sorted(leaders.items()) if leader < 0]
        if missing:
            raise Retry(f"partitions without a leader: {', '.join(missing[:8])}")
        # Coordinators have just answered.
        await self.wire.all_of(self.wire.ping(leader) for leader in set(leaders.values()) - places.keys())
        are_open = all(one is not None and one.state == ONGOING for one in described)
        return Readiness(leaders if are_open else None, known)


def _say_left(one: Prepared) -> None:
    if one not in _left:
        _left.add(one)
        logger.warning(
            "Transaction %s of a driver long ago is open, and stays so until its time limit: brokers below Kafka 4.0,"
            " or below its feature transaction.version 2, cannot abort it without harm to a newer driver that may have"
            " its name. Where there is none, `holdfast transactions abort` does it now",
            one.transactional_id,
        )


def _partitions_of(known: Transaction | None) -> tuple[tuple[str, int], ...]:
    return known.partitions if known is not None else ()
