"""`KafkaSink`: rows become records of Kafka topics, exactly once where the commit record decides.

In a task a writer prepares a transaction; on the driver it is ended by its name, producer id and epoch,
from any process and as often as it takes.
docs/guide/kafka_sink.md is for users, docs/guide/transactions.md for those who operate it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, final

import pyarrow as pa

from holdfast.commit.epochs import Driver
from holdfast.commit.sink import CommitLimits, Committable, Outcome, Scope, SinkTask, SinkWriter
from holdfast.commit.traces import Trace
from holdfast.errors import Corrupt, HoldfastError, Incompatible
from holdfast.fault_points import reach
from holdfast.kafka.client import confluent_kafka, logger
from holdfast.kafka.markers import Markers
from holdfast.kafka.presence import Presence
from holdfast.kafka.transactional_ids import (
    WITNESS_TOPIC,
    TransactionalId,
    drivers_ago,
    may_be_of_earlier,
    pattern_of,
    prefix_of,
)
from holdfast.kafka.transactions import EMPTY, ONGOING, Answer, Prepared, Readiness, Transactions, topics_of
from holdfast.kafka.wire import kafka_python
from holdfast.sink.kafka.claim import Claim, check_is_owner, driver_of, parse_place, place_of
from holdfast.sink.kafka.fitness import Fitness, check_timeouts
from holdfast.sink.kafka.former import EPOCHS_FENCED, FormerSinks
from holdfast.sink.kafka.layout import Columns, Layout
from holdfast.sink.kafka.options import EXACTLY_ONCE, STOP, SinkOptions, sink_client_config
from holdfast.sink.kafka.outcomes import Ended, Outcomes
from holdfast.sink.kafka.plain_writer import PlainWriter
from holdfast.sink.kafka.transactional_writer import TransactionalWriter
from holdfast.sink.kafka.witness import Place, Witnesses

#: How long one call of commit, abort or recover goes on before it is the committer's turn to retry.
PATIENCE_MS = 15_000.0


@final
class KafkaSink:
    """Writes rows to Kafka.

    Parameters
    ----------
    bootstrap_servers
        ``host:port`` of one or more brokers, with commas.
    topic
        Where all records go; or ``topic_column``.
    key
        Column of the records' keys: binary and string as they are, other types as JSON. None: no keys.
    value
        Column of the records' values; or several, or ``"*"`` for all that are nothing else, as one JSON object. A null
        in a single column is a record without a value (a tombstone).
    headers
        Column of type ``array<struct<key string, value binary>>`` or ``map<string, binary>``. Headers of the name
        ``holdfast-dedup`` are left out: another sink wrote them.
    topic_column, partition_column
        Columns that name topic and partition of each record. A null partition leaves the choice to the partitioner.
    value_format
        ``"json"``, ``"bytes"`` or ``"string"``. Default: binary columns as bytes, strings as strings, all else as JSON.
    mode
        ``"exactly-once"``: transactions. ``"at-least-once"``: an idempotent producer, and a header ``holdfast-dedup``
        that is the same in a replay. ``"none"``: as it comes.
    name
        One of a kind among the sinks of a query, and the same over its restarts.
    witness_topic
        Where each transaction leaves a record that says, for as long as the topic lives, whether it was committed.
        Created at start if it is missing. None: there is none, and what the brokers forget is asked of a person.
    when_undecided
        What to take for true where nobody knows any more what became of a transaction: ``"stop"`` raises
        `holdfast.Undecided`, whose message has the mapping of transactional ids to ``"done"`` or ``"lost"`` to give
        here, for the one start after a person has looked.
    options
        ``kafka.*`` for librdkafka: security, ``kafka.compression.type``, ``kafka.partitioner``,
        ``kafka.transaction.timeout.ms`` and all others.

    Raises
    ------
    InvalidRequest
        Options are wrong or contradict each other.
    """

    kind = "kafka"

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str | None = None,
        *,
        key: str | None = "key",
        value: str | Sequence[str] = "value",
        headers: str | None = None,
        topic_column: str | None = None,
        partition_column: str | None = None,
        value_format: Literal["json", "bytes", "string"] | None = None,
        mode: Literal["exactly-once", "at-least-once", "none"] = EXACTLY_ONCE,
        name: str = "kafka",
        witness_topic: str | None = WITNESS_TOPIC,
        when_undecided: Literal["stop"] | Mapping[str, str] = STOP,
        options: Mapping[str, object] | None = None,
    ) -> None:
        self._options = SinkOptions(
            name=name,
            mode=mode,
            topic=topic,
            columns=Columns(
                key=key,
                value=value if isinstance(value, str) else tuple(value),
                headers=headers,
                topic=topic_column,
                partition=partition_column,
            ),
            value_format=value_format,
            witness_topic=witness_topic,
            when_undecided=when_undecided if isinstance(when_undecided, str) else dict(when_undecided),
            client=sink_client_config(bootstrap_servers, mode, options),
        )

    @property
    def name(self) -> str:
        """See `holdfast.commit.sink.Sink`."""
        return self._options.name

    @property
    def options(self) -> SinkOptions:
        """Its options, checked."""
        return self._options

    def __repr__(self) -> str:
        where = self._options.topic or f"<{self._options.columns.topic}>"
        servers = self._options.client["bootstrap.servers"]
        return f"KafkaSink({servers!r}, {where!r}, mode={self._options.mode!r}, name={self.name!r})"

    def check(self, schema: pa.Schema, limits: CommitLimits) -> None:
        """See `holdfast.commit.sink.Sink`."""
        Layout(self._options.columns, self._options.value_format, schema)
        confluent_kafka()  # asked for before the brokers are, which may take a minute
        if self._transactional:
            kafka_python()
            check_timeouts(self._options, limits)
        Fitness(self._options).check()

    def traces(self, scope: Scope, newest: Sequence[Committable]) -> Sequence[Trace]:
        """See `holdfast.commit.sink.Sink`. Without witnesses: the epochs in the names of transactions."""
        if not self._transactional:
            return []
        transactions = self._transactions()
        if self._options.witness_topic is not None:
            witnesses = Witnesses(transactions, self._options.witness_topic)
            return witnesses.traces(witnesses.place_of(scope, _earlier(scope, newest)), scope)
        listed = transactions.listing(pattern_of(scope.query_id, scope.sink), prefix=prefix_of(scope.query_id))
        return [Trace(epoch=_epoch_of(name), said=f"transactional id {name}") for name, _ in listed]

    def claim(
        self, scope: Scope, driver: Driver, newest: Sequence[Committable], check: Callable[[Sequence[Trace]], None]
    ) -> Mapping[str, Any]:
        """See `holdfast.commit.sink.Sink`."""
        if not self._transactional:
            return {}
        kept = _named(newest)
        claim = Claim(self._options, self._transactions(), scope, driver)
        made = claim.make(kept, _earlier(scope, newest), check, lambda: self.recover(scope, newest))
        return {**made, "topic_ids": self._topic_ids()}

    def open(self, task: SinkTask) -> SinkWriter:
        """See `holdfast.commit.sink.Sink`."""
        return TransactionalWriter(self._options, task) if self._transactional else PlainWriter(self._options, task)

    def commit(self, scope: Scope, committables: Sequence[Committable]) -> Sequence[Outcome]:
        """See `holdfast.commit.sink.Sink`."""
        if not self._transactional:
            for committable in committables:
                if "mode" not in committable.body:
                    raise _other_mode(committable, EXACTLY_ONCE)
            return [Outcome.DONE] * len(committables)
        if not committables:
            return []
        prepared = [_prepared(committable) for committable in committables]
        bodies = dict(zip(prepared, (committable.body for committable in committables)))
        transactions = self._transactions()
        ready = transactions.wait_until_ready(prepared, driver_of(scope))
        check_is_owner(scope, ready.known, transactions.wire.servers)
        begun_in = {one: dict(body.get("topic_ids", {})) for one, body in bodies.items()}
        lost = self._abort_what_is_gone(transactions, prepared, ready, begun_in)
        left = [one for one in prepared if one not in lost]
        answers = transactions.end(left[:1], commit=True, ready=True)
        # A crash here leaves some visible and some not: the record has them all, and the next run goes on.
        reach("mid_commit")
        answers += transactions.end(left[1:], commit=True, ready=True)
        done = [one for one, answer in zip(left, answers) if answer is Answer.DONE]
        alone = self._witnesses_at(transactions, scope, committables)
        Markers(transactions).wait_for(done, self._topics_of(done), ready.leaders, alone)
        ended = [Ended(one, parse_place(bodies[one]), answer) for one, answer in zip(left, answers)]
        found = dict(zip(left, Outcomes(self._options, transactions, scope).of(ended)))
        return [found.get(one, Outcome.LOST) for one in prepared]

    def abort(self, scope: Scope, committables: Sequence[Committable]) -> None:
        """See `holdfast.commit.sink.Sink`."""
        if self._transactional:
            prepared, transactions = [_prepared(committable) for committable in committables], self._transactions()
            transactions.end(prepared, commit=False)
            alone = self._witnesses_at(transactions, scope, committables)
            Markers(transactions).sweep([one.transactional_id for one in prepared], self._topics_of(prepared), alone)

    def recover(self, scope: Scope, keep: Sequence[Committable]) -> int:
        """See `holdfast.commit.sink.Sink`.

        Ids whose transaction has ended stay as they are: were one of them fenced, a record that still names it would
        read 'lost' where it is done. Ids of later epochs are another driver's, who has taken over, unless the witness
        of what is open there says that it is of one long ago. Those of drivers long ago, in which nothing is open, are
        left alone: each touch would keep the broker from forgetting them.

        So are names of ``keep`` that have no witness, whoever has something open under them: by how far a late task
        alone has moved the epoch of such a name its coordinator tells what became of what was to be kept.
        """
        return self._recover(scope, keep, lambda name: True)

    def recover_between(self, scope: Scope, keep: Sequence[Committable], recorded: Collection[tuple[int, int]]) -> int:
        """See `holdfast.commit.sweeps.SweepsBetween`. Fencing is a write of the coordinator's for each id."""

        def may_begin(name: str) -> bool:
            parts = TransactionalId.parse(name)
            is_mine = self._drivers_ago(name, scope) == 0
            return is_mine and parts is not None and (parts.partition, parts.attempt) not in recorded

        return self._recover(scope, keep, may_begin)

    def _recover(self, scope: Scope, keep: Sequence[Committable], may_begin: Callable[[str], bool]) -> int:
        """``may_begin``: which ids that have nothing open are fenced, as somebody may begin a transaction yet."""
        if not self._transactional:
            return 0
        transactions = self._transactions()
        pattern, prefix = pattern_of(scope.query_id, scope.sink), prefix_of(scope.query_id)
        all_states = transactions.listing(pattern, prefix=prefix)
        ago = {name: self._drivers_ago(name, scope) for name, _ in all_states}
        listed = [
            (name, state)
            for name, state in all_states
            if ago[name] >= 0 and (state == ONGOING or ago[name] < EPOCHS_FENCED)
        ]
        found = [(name, state) for name, state in listed if state == ONGOING or (state == EMPTY and may_begin(name))]
        kept = set(_named(keep))
        spared = _told_by_epochs(keep)
        named = {one.transactional_id for one in kept} - spared
        # What is open under a name to keep may be another's: what was to be kept has ended, and its witness says how.
        doubtful = [name for name, _ in found if name in named]
        spared |= {
            name for name, known in zip(doubtful, transactions.describe(doubtful)) if known and known.prepared in kept
        }
        swept = [(name, state) for name, state in found if name not in spared]
        strays = [name for name, state in swept if state == ONGOING]
        written = topics_of(transactions.describe(strays))
        transactions.fence([name for name, _ in swept], self._options.transaction_timeout_ms)
        others = [name for name, _ in listed if name not in spared]
        alone = self._witnesses_at(transactions, scope, keep)
        Markers(transactions).sweep(others, written | self._topics_of(kept), alone)
        doubtful = [name for name, state in all_states if state == ONGOING and ago[name] < 0]
        strays += self._abort_as_found(transactions, scope, keep, doubtful)
        if strays:
            logger.warning(
                "Sink %s of query %s: aborted %d transactions that nobody had prepared, or whose batch failed: %s",
                scope.sink,
                scope.query_id,
                len(strays),
                _in_words(strays),
            )
        return len(strays)

    def abort_late(self, scope: Scope, keep: Sequence[Committable], *, own: bool) -> int:
        """See `holdfast.commit.sweeps.LateStrays`. One listing of what is open, where nothing is."""
        if not self._transactional:
            return 0
        transactions = self._transactions()
        spared = _told_by_epochs(keep)
        found = transactions.listing(pattern_of(scope.query_id, scope.sink), [ONGOING], prefix_of(scope.query_id))
        listed = [(name, state) for name, state in found if name not in spared]
        # What this driver has open may be a batch at work; what newer ones have open is none of its business.
        strays = [name for name, _ in listed if self._drivers_ago(name, scope) >= (0 if own else 1)]
        doubtful = [name for name, _ in listed if name not in strays]
        if strays:
            # In a ring, what drivers after this one open looks like what those long before it did: the owner sweeps.
            owned = driver_of(scope)
            check_is_owner(scope, dict(zip(owned, transactions.describe(owned))), transactions.wire.servers)
            written = topics_of(transactions.describe(strays))
            transactions.fence(strays, self._options.transaction_timeout_ms)
            alone = self._witnesses_at(transactions, scope, ())
            Markers(transactions).sweep(strays, written | self._topics_of(()), alone)
        strays += self._abort_as_found(transactions, scope, (), doubtful)
        if not strays:
            return 0
        logger.warning(
            "Sink %s of query %s: aborted %d transactions that tasks of a driver that died, or attempts that were given"
            " up, had opened late: %s",
            scope.sink,
            scope.query_id,
            len(strays),
            _in_words(strays),
        )
        return len(strays)

    def abort_former(self, scope: Scope, names: Collection[str], newest: Sequence[Committable]) -> int:
        """See `holdfast.commit.former_sinks.EndsOthers`. In another mode: where there may have been transactions, and
        as far as this user may, since who never had any needs neither permission nor a topic for them.
        """
        had_some = any("transactional_id" in one.body for one in newest)
        is_unknown = not newest and scope.epoch > 1  # a batch may have been interrupted before the first record
        if not self._transactional and not had_some and not is_unknown:
            return 0
        try:
            strays = FormerSinks(self._options, self._transactions(), scope).abort(names)
        except HoldfastError as error:
            if self._transactional:
                raise
            logger.info("What sink %s had open in another mode is not looked for: %s", scope.sink, error)
            return 0
        if strays:
            logger.warning(
                "Query %s: aborted %d transactions of sinks that it no longer has: %s",
                scope.query_id,
                len(strays),
                _in_words(strays),
            )
        return len(strays)

    def _topics_of(self, prepared: Iterable[Prepared]) -> set[str]:
        """All that these may have written to."""
        fixed = {topic for topic in (self._options.topic, self._options.witness_topic) if topic}
        return fixed.union(*(one.topics for one in prepared))

    def _abort_as_found(
        self, transactions: Transactions, scope: Scope, keep: Sequence[Committable], doubtful: Sequence[str]
    ) -> list[str]:
        """Names of those that drivers before this one had open, which are aborted now: by whole epochs, so also rightly
        by a driver that was overtaken. After all others, since their witnesses are read, which may be away.
        """
        kept = set(_named(keep))
        earlier = [one for one in self._of_earlier_drivers(transactions, scope, keep, doubtful) if one not in kept]
        aborted = transactions.fence_as_found(earlier)
        names = [one.transactional_id for one in aborted]
        if names:
            topics = self._topics_of([*kept, *aborted])
            Markers(transactions).sweep(names, topics, self._witnesses_at(transactions, scope, keep))
        return names

    def _of_earlier_drivers(
        self, transactions: Transactions, scope: Scope, named: Sequence[Committable], doubtful: Sequence[str]
    ) -> list[Prepared]:
        """Those that drivers before this one have open, of names that may be a newer one's, or this one's, as well.

        The ring of epochs in names is small; the witness in each transaction has the whole one.
        """
        if self._options.witness_topic is None:
            return []
        asked = [name for name in doubtful if may_be_of_earlier(_epoch_of(name), scope.epoch, witnessed=True)]
        found = [
            replace(one.prepared, topics=tuple(sorted(topics_of([one]))))
            for one in transactions.describe(asked)
            if one is not None and one.state == ONGOING
        ]
        if not found:
            return []
        witnesses = Witnesses(transactions, self._options.witness_topic)
        epochs = witnesses.epochs_of(_place_of(witnesses, scope, named), scope, found)
        return [one for one in found if epochs.get(one, scope.epoch) < scope.epoch]

    def _witnesses_at(
        self, transactions: Transactions, scope: Scope, named: Sequence[Committable]
    ) -> list[tuple[str, int]]:
        """The partition with all witnesses of this query and sink: others of that topic are none of its business."""
        if self._options.witness_topic is None:
            return []
        witnesses = Witnesses(transactions, self._options.witness_topic)
        place = _place_of(witnesses, scope, named)
        return [(place.topic, place.partition)]

    def _drivers_ago(self, name: str, scope: Scope) -> int:
        return drivers_ago(_epoch_of(name), scope.epoch, witnessed=self._options.witness_topic is not None)

    @property
    def _transactional(self) -> bool:
        return self._options.mode == EXACTLY_ONCE

    def _transactions(self) -> Transactions:
        return Transactions(self._options.client, PATIENCE_MS)

    def _topic_ids(self) -> dict[str, str]:
        """Of the topic that all rows go to, before any is written: of others nobody knows yet which they are."""
        topic, transactions = self._options.topic, self._transactions()
        if topic is None:
            return {}
        asked = f"tell the id of topic {topic}", transactions.patience_ms
        return transactions.wire.call(*asked, lambda: transactions.wire.topic_ids([topic]))

    def _abort_what_is_gone(
        self,
        transactions: Transactions,
        prepared: Sequence[Prepared],
        ready: Readiness,
        begun_in: Mapping[Prepared, Mapping[str, str]],
    ) -> set[Prepared]:
        """Those whose rows are no longer there, once they are aborted: lost, whatever else anybody would say."""
        gone = Presence(transactions).missing(prepared, ready, begun_in)
        for one, places in gone.items():
            logger.warning(
                "Transaction %s wrote to %s, where its rows are gone: the topic was deleted, or made again, or has lost"
                " its log. All of the transaction is aborted; the next start writes it again",
                one.transactional_id,
                ", ".join(f"{topic}-{number}" for topic, number in places[:8]),
            )
        answers = transactions.end(list(gone), commit=False)
        return {one for one, answer in zip(gone, answers) if answer is Answer.DONE}


def _in_words(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")


def _prepared(committable: Committable) -> Prepared:
    body: Mapping[str, Any] = committable.body
    if "mode" in body:
        raise _other_mode(committable, str(body["mode"]))
    try:
        identity = str(body["transactional_id"]), int(body["producer_id"]), int(body["producer_epoch"])
        return Prepared(*identity, topics=tuple(map(str, body.get("topics", ()))))
    except (KeyError, TypeError, ValueError):
        raise Corrupt(
            f"The committable of partition {committable.partition} is not one of a Kafka transaction: expected"
            f" transactional_id, producer_id and producer_epoch, found {sorted(body)}"
        ) from None


def _named(kept: Sequence[Committable]) -> list[Prepared]:
    """The transactions among them: a sink of another mode had none."""
    return [_prepared(committable) for committable in kept if "mode" not in committable.body]


def _told_by_epochs(kept: Sequence[Committable]) -> set[str]:
    """Names of those without a witness. A fence after a late task's take-over would make what is visible look lost."""
    return {one.transactional_id for one in _named([each for each in kept if "witness" not in each.body])}


def _other_mode(committable: Committable, mode: str) -> Incompatible:
    return Incompatible(
        f"Partition {committable.partition} of an unfinished batch was written with mode={mode!r}, and the sink has"
        " another mode now. Start the query once with the former mode, until a batch is finished; then change it"
    )


def _earlier(scope: Scope, newest: Sequence[Committable]) -> Place | None:
    """Where the newest recorded witnesses are, or their claim is that left none; the oldest of the places, so that
    nothing behind is overlooked.
    """
    bodies = [*(one.body for one in newest), scope.recorded]
    places = [place for body in bodies if (place := parse_place(body)) is not None]
    return min(places, key=lambda place: place.since, default=None)


def _place_of(witnesses: Witnesses, scope: Scope, named: Sequence[Committable]) -> Place:
    """Where those of this run are, or will be once it has claimed the sink."""
    return place_of(scope.claim) or witnesses.place_of(scope, _earlier(scope, named))


def _epoch_of(name: str) -> int:
    """Of a name that `pattern_of` matched."""
    parts = TransactionalId.parse(name)
    return parts.epoch if parts is not None else 0
