"""A driver takes a Kafka sink over: by a transactional id of its own, and by a claim among the witnesses.

The id's epoch at the coordinator is the fence of drivers that do not share a checkpoint folder: who took it over last
is the owner, and every commit looks whether it still is. The claim is what a later start from a copy finds. It is
written in a transaction of that id, and committed once nobody else's is found before it: of two drivers that start at
the same moment, one is fenced and leaves no claim. Runs on the driver, once a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from holdfast.clock import Clock, SystemClock
from holdfast.commit.epochs import Driver
from holdfast.commit.sink import Scope
from holdfast.commit.traces import Trace
from holdfast.errors import Corrupt, Fenced, HoldfastError
from holdfast.kafka.client import logger
from holdfast.kafka.renewed import once_usable
from holdfast.kafka.transactional_ids import EPOCH_RING, driver_id
from holdfast.kafka.transactions import Answer, Prepared, Transaction, Transactions
from holdfast.sink.kafka.options import SinkOptions
from holdfast.sink.kafka.sending import SendingProducer
from holdfast.sink.kafka.transactional_writer import IDENTITY_WITHIN_MS, STATISTICS_MS, Initialisation
from holdfast.sink.kafka.witness import Place, Witnesses, claim_key, claim_text

Check = Callable[[Sequence[Trace]], None]
Abort = Callable[[], object]


class Claim:
    """The claim of one driver."""

    def __init__(
        self, options: SinkOptions, transactions: Transactions, scope: Scope, driver: Driver, clock: Clock | None = None
    ) -> None:
        """For one start of a driver."""
        self._options = options
        self._transactions = transactions
        self._scope = scope
        self._driver = driver
        self._clock = clock or SystemClock()
        self._id = driver_id(scope.query_id, scope.sink)
        self._what = f"Claim {self._id} at {options.client['bootstrap.servers']}"

    def make(self, kept: Sequence[Prepared], earlier: Place | None, check: Check, abort: Abort) -> dict[str, Any]:
        """Take over. What `Scope.claim` then holds.

        First the driver before is fenced, then what it has open is aborted, then it is looked at what was committed:
        after that nothing of it can be any more.

        Parameters
        ----------
        kept
            What the newest record names: this driver will commit it.
        earlier
            Where the witnesses of that are.
        abort
            Aborts all else that is open.

        Raises
        ------
        Fenced
            Another driver takes over at the same moment.
        Unavailable
            Something that was open has not ended yet.
        """
        config = {**self._options.producer(), "transactional.id": self._id, "statistics.interval.ms": STATISTICS_MS}
        producer = once_usable(config, lambda: SendingProducer(config, self._what, self._clock))
        try:
            Initialisation(producer, self._options, self._what).wait()
            abort()
            if self._options.witness_topic is None:
                mine = self._identity(producer)
                return {"driver": asdict(mine)}
            return self._leave_witness(producer, self._options.witness_topic, kept, earlier, check)
        finally:
            producer.drop()

    def _leave_witness(
        self,
        producer: SendingProducer,
        topic: str,
        kept: Sequence[Prepared],
        earlier: Place | None,
        check: Check,
    ) -> dict[str, Any]:
        witnesses = Witnesses(self._transactions, topic)
        place = witnesses.place_of(self._scope, earlier)
        producer.begin()
        text = claim_text(self._scope, self._driver)
        producer.send_one(topic, place.partition, claim_key(self._scope, EPOCH_RING), text)
        producer.flush(self._options.message_timeout_ms + 10_000)
        mine = self._identity(producer)
        producer.drop()  # leaves the transaction open
        try:
            traces, offset = witnesses.traces_before(place, self._scope, mine, kept)
            check(traces)
        except HoldfastError:
            self._give_up(mine)
            raise
        if self._transactions.end([mine], commit=True) != [Answer.DONE]:
            raise Fenced(
                f"{self._what}: another driver claims sink {self._scope.sink!r} of query {self._scope.query_id} at the"
                " same moment. Stop one of the two: copies of one checkpoint must not run both, unless the copy was"
                " forked (`holdfast fork`)"
            )
        claimed = Place(place.topic, place.topic_id, place.partition, offset)
        witness = asdict(claimed)
        return {"driver": asdict(mine), "witness": witness, "recorded": {"witness": witness}}

    def _identity(self, producer: SendingProducer) -> Prepared:
        return Prepared(self._id, *producer.wait_for_identity(IDENTITY_WITHIN_MS))

    def _give_up(self, mine: Prepared) -> None:
        try:
            self._transactions.end([mine], commit=False)
        except HoldfastError as error:
            logger.info("%s is aborted by its time limit: %s", self._what, error)


def place_of(claim: Mapping[str, Any]) -> Place | None:
    """Where a run's witnesses are; None: it leaves none."""
    return Place.parse(claim["witness"]) if "witness" in claim else None


def check_is_owner(scope: Scope, known: Mapping[str, Transaction | None], servers: str) -> None:
    """Whether the driver of ``scope`` is the last that took the sink over.

    An id that the coordinator has forgotten was nobody's for long: then the claims among the witnesses speak.

    Raises
    ------
    Fenced
        Another one has.
    """
    if "driver" not in scope.claim:
        return
    mine = scope.claim["driver"]
    found = known.get(mine["transactional_id"])
    if found is None or (found.producer_id, found.producer_epoch) == (mine["producer_id"], mine["producer_epoch"]):
        return
    raise Fenced(
        f"Another driver took sink {scope.sink!r} of query {scope.query_id} over at Kafka at {servers}: transactional"
        f" id {found.transactional_id} is of producer {found.producer_id}, epoch {found.producer_epoch}; this driver,"
        f" run {scope.run_id}, has producer {mine['producer_id']}, epoch {mine['producer_epoch']}. Nothing of this one"
        " becomes visible any more. Stop one of the two: copies of one checkpoint must not run both, unless the copy"
        " was forked (`holdfast fork`)"
    )


def driver_of(scope: Scope) -> tuple[str, ...]:
    """The id to ask the coordinators for, together with a batch's transactions."""
    return (scope.claim["driver"]["transactional_id"],) if "driver" in scope.claim else ()


def parse_place(body: Mapping[str, Any]) -> Place | None:
    """Where the witness of a recorded transaction is; None: it has none.

    Raises
    ------
    Corrupt
        Something else is there.
    """
    if "witness" not in body:
        return None
    try:
        return Place.parse(body["witness"])
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"a committable's witness lacks what it has: {error!r}") from error
