"""What became of the transactions of a record: by their coordinators' answers, by their witnesses, or by a person.

A coordinator that says "committed" is right. All else it may say of something that was committed, too: to a name that a
late task took over, to a producer id that has run out of epochs, to an id that has expired. There the witness decides;
where there is none, the coordinator's memory of take-overs, and after that a person, for each transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.commit.sink import Outcome, Scope
from holdfast.errors import Unavailable, Undecided
from holdfast.kafka.client import logger
from holdfast.kafka.markers import Markers
from holdfast.kafka.transactions import Answer, Prepared, Transactions
from holdfast.sink.kafka.claim import place_of
from holdfast.sink.kafka.options import SinkOptions
from holdfast.sink.kafka.witness import Place, Verdict, Witnesses

_OF_ANSWER = {Answer.DONE: Outcome.DONE, Answer.OPPOSITE: Outcome.LOST, Answer.FENCED: Outcome.LOST}
_OF_VERDICT = {Verdict.COMMITTED: Outcome.DONE, Verdict.ABORTED: Outcome.LOST}


@dataclass(frozen=True)
class Ended:
    """One transaction, and what its coordinator answered to the wish to commit it."""

    prepared: Prepared
    place: Place | None
    answer: Answer


class Outcomes:
    """Decides for one caller of `KafkaSink.commit`."""

    def __init__(self, options: SinkOptions, transactions: Transactions, scope: Scope) -> None:
        self._options = options
        self._transactions = transactions
        self._scope = scope

    def of(self, ended: Sequence[Ended]) -> list[Outcome]:
        """One for each, in order.

        Raises
        ------
        Unavailable
            A witness's transaction has not ended yet.
        Undecided
            Nobody knows of some. The message names them all.
        """
        found: list[Outcome | None] = [_OF_ANSWER.get(answer) for answer in self._remembered(ended)]
        doubtful = [number for number, one in enumerate(ended) if one.answer is not Answer.DONE and one.place]
        for number, verdict in zip(doubtful, self._verdicts([ended[number] for number in doubtful])):
            found[number] = _OF_VERDICT.get(verdict)
        forgotten = [number for number, outcome in enumerate(found) if outcome is None]
        for number, outcome in zip(forgotten, self._told([ended[number].prepared for number in forgotten])):
            found[number] = outcome
        return [outcome for outcome in found if outcome is not None]

    def _remembered(self, ended: Sequence[Ended]) -> list[Answer]:
        """The answers; without a witness, as far as the coordinators remember what was taken over."""
        answers = [one.answer for one in ended]
        plain = [number for number, one in enumerate(ended) if one.place is None]
        told = self._transactions.told_of_takeovers([ended[n].prepared for n in plain], [answers[n] for n in plain])
        for number, answer in zip(plain, told):
            answers[number] = answer
        return answers

    def _verdicts(self, doubtful: Sequence[Ended]) -> list[Verdict]:
        if not doubtful:
            return []
        claim = place_of(self._scope.claim) or Place("", "", -1, -1)
        places = {(one.place.topic, one.place.partition) for one in doubtful if one.place is not None}
        topics = {topic for topic, _ in places}
        # Where witnesses of one topic are in several partitions, all of it is looked at.
        alone = places if len(places) == len(topics) else set()
        # A marker that a broker left out would leave the witness open for ever.
        Markers(self._transactions).sweep([one.prepared.transactional_id for one in doubtful], topics, alone)
        asked = [(one.prepared, one.place) for one in doubtful if one.place is not None]
        verdicts = Witnesses(self._transactions, claim.topic).verdicts(self._scope, asked, claim)
        still = [one.prepared.transactional_id for one, found in zip(doubtful, verdicts) if found is Verdict.OPEN]
        if still:
            raise Unavailable(
                f"Kafka at {self._transactions.wire.servers} has not yet ended {', '.join(still[:8])}, as their"
                " witnesses say. It does at the latest when kafka.transaction.timeout.ms is over. If it does not,"
                " `kafka-transactions.sh find-hanging` shows what stands still"
            )
        # Where a broker left out a marker, readers of the rows wait for it as well.
        shown = [one.prepared for one, found in zip(doubtful, verdicts) if found is Verdict.COMMITTED]
        Markers(self._transactions).wait_for(shown, {topic for one in shown for topic in one.topics}, None, alone)
        for one, found in zip(doubtful, verdicts):
            logger.info("Transaction %s: %s, as its witness says", one.prepared.transactional_id, found.value)
        return verdicts

    def _told(self, forgotten: Sequence[Prepared]) -> list[Outcome]:
        """What a person says of transactions that nobody else knows of."""
        if not forgotten:
            return []
        given = self._options.when_undecided
        answers: Mapping[str, str] = given if isinstance(given, Mapping) else {}
        missing = [one for one in forgotten if one.transactional_id not in answers]
        if missing:
            raise Undecided(_question(missing, answers, self._transactions.wire.servers))
        for one in forgotten:
            logger.warning(
                "Transaction %s is taken for %s, as told", one.transactional_id, answers[one.transactional_id]
            )
        return [Outcome(answers[one.transactional_id]) for one in forgotten]


def _question(missing: Sequence[Prepared], answers: Mapping[str, str], servers: str) -> str:
    named = ", ".join(
        f"{one.transactional_id} (producer id {one.producer_id}, epoch {one.producer_epoch})" for one in missing
    )
    mapping = json.dumps({**answers, **{one.transactional_id: "?" for one in missing}})
    return (
        f"Kafka at {servers} no longer knows {len(missing)} transactions of this batch, so it does not say whether"
        f" their rows are visible: {named}. Their ids may have expired (transactional.id.expiration.ms), and they have"
        " no witness, or its topic was deleted. Each may have ended in its own way. Look for the rows of each in the"
        " topic, as a read_committed reader; `holdfast transactions show ID` says what is left of it. Then start the"
        f' query once with KafkaSink(..., when_undecided={mapping}), with "done" in place of "?" where its rows are'
        ' there, and "lost" where they are not: then they are produced again'
    )
