"""`KafkaSink`: rows become records of Kafka topics, exactly once where the commit record decides.

In a task a writer prepares a transaction; on the driver it is ended by its name, producer id and epoch, from any
process and as often as it takes. docs/guide/kafka_sink.md is for users, docs/guide/transactions.md for those who
operate it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

import pyarrow as pa

from holdfast.commit.sink import CommitLimits, Committable, Outcome, Scope, SinkTask, SinkWriter
from holdfast.errors import Corrupt, Incompatible, Undecided
from holdfast.fault_points import reach
from holdfast.kafka.client import logger
from holdfast.kafka.markers import Markers
from holdfast.kafka.transactional_ids import TransactionalId, pattern_of, prefix_of
from holdfast.kafka.transactions import EMPTY, ONGOING, Answer, Prepared, Transactions, topics_of
from holdfast.sink.kafka.fitness import Fitness, check_timeouts
from holdfast.sink.kafka.layout import Columns, Layout
from holdfast.sink.kafka.options import EXACTLY_ONCE, SinkOptions, sink_client_config
from holdfast.sink.kafka.plain_writer import PlainWriter
from holdfast.sink.kafka.transactional_writer import TransactionalWriter

#: How long one call of commit, abort or recover goes on before it is the committer's turn to retry.
PATIENCE_MS = 15_000.0
#: Drivers, this one among them, whose tasks may have begun a transaction and not written yet: they are fenced too.
EPOCHS_FENCED = 8

_OUTCOMES = {Answer.DONE: Outcome.DONE, Answer.OPPOSITE: Outcome.LOST, Answer.FENCED: Outcome.LOST}


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
        Column of type ``array<struct<key string, value binary>>`` or ``map<string, binary>``.
    topic_column, partition_column
        Columns that name topic and partition of each record. A null partition leaves the choice to the partitioner.
    value_format
        ``"json"``, ``"bytes"`` or ``"string"``. Default: binary columns as bytes, strings as strings, all else as JSON.
    mode
        ``"exactly-once"``: transactions. ``"at-least-once"``: an idempotent producer, and a header ``holdfast-dedup``
        that is the same in a replay. ``"none"``: as it comes.
    name
        One of a kind among the sinks of a query, and the same over its restarts.
    when_undecided
        What to take for true where the brokers no longer know what became of a transaction: ``"stop"`` raises
        `holdfast.Undecided`; ``"done"`` and ``"lost"`` are for the one start after a person has looked.
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
        value_format: str | None = None,
        mode: str = EXACTLY_ONCE,
        name: str = "kafka",
        when_undecided: str = "stop",
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
            when_undecided=when_undecided,
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
        if self._transactional:
            check_timeouts(self._options, limits)
        Fitness(self._options).check()

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
        prepared = [_prepared(committable) for committable in committables]
        transactions = self._transactions()
        leaders = transactions.wait_until_ready(prepared)
        answers = transactions.end(prepared[:1], commit=True, ready=True)
        if prepared:
            # A crash here leaves some visible and some not: the record has them all, and the next run goes on.
            reach("mid_commit")
        answers += transactions.end(prepared[1:], commit=True, ready=True)
        done = [one for one, answer in zip(prepared, answers) if answer is Answer.DONE]
        Markers(transactions).wait_for(done, self._topics_of(done), leaders)
        return [self._outcome(one, answer) for one, answer in zip(prepared, answers)]

    def abort(self, scope: Scope, committables: Sequence[Committable]) -> None:
        """See `holdfast.commit.sink.Sink`."""
        if self._transactional:
            prepared, transactions = [_prepared(committable) for committable in committables], self._transactions()
            transactions.end(prepared, commit=False)
            Markers(transactions).sweep([one.transactional_id for one in prepared], self._topics_of(prepared))

    def recover(self, scope: Scope, keep: Sequence[Committable]) -> int:
        """See `holdfast.commit.sink.Sink`.

        Ids whose transaction has ended stay as they are: were one of them fenced, a record that still names it would
        read 'lost' where it is done. Ids of later epochs are another driver's, who has taken over. Those of drivers
        long ago, in which nothing is open, are left alone: each touch would keep the broker from forgetting them.
        """
        if not self._transactional:
            return 0
        transactions = self._transactions()
        pattern, prefix = pattern_of(scope.query_id, scope.sink), prefix_of(scope.query_id)
        listed = [
            (name, state)
            for name, state in transactions.listing(pattern, prefix=prefix)
            if _epoch_of(name) <= scope.epoch and (state == ONGOING or _epoch_of(name) > scope.epoch - EPOCHS_FENCED)
        ]
        found = [(name, state) for name, state in listed if state in (ONGOING, EMPTY)]
        kept = {_prepared(committable) for committable in keep}
        named = {one.transactional_id for one in kept}
        # What is open under a name to keep may be another's: then what was to be kept is lost already.
        doubtful = [name for name, _ in found if name in named]
        spared = {
            name for name, known in zip(doubtful, transactions.describe(doubtful)) if known and known.prepared in kept
        }
        swept = [(name, state) for name, state in found if name not in spared]
        strays = [name for name, state in swept if state == ONGOING]
        written = topics_of(transactions.describe(strays))
        transactions.fence([name for name, _ in swept], self._options.transaction_timeout_ms)
        others = [name for name, _ in listed if name not in spared]
        Markers(transactions).sweep(others, written | self._topics_of(kept))
        if strays:
            logger.warning(
                "Sink %s of query %s: aborted %d transactions that nobody had prepared, or whose batch failed: %s",
                scope.sink,
                scope.query_id,
                len(strays),
                ", ".join(strays[:8]) + (", …" if len(strays) > 8 else ""),
            )
        return len(strays)

    def abort_late(self, scope: Scope, *, own: bool) -> int:
        """See `holdfast.commit.sweeps.LateStrays`. One listing of what is open, where nothing is."""
        if not self._transactional:
            return 0
        transactions = self._transactions()
        listed = transactions.listing(pattern_of(scope.query_id, scope.sink), [ONGOING], prefix_of(scope.query_id))
        newest = scope.epoch if own else scope.epoch - 1
        strays = [name for name, _ in listed if _epoch_of(name) <= newest]
        if not strays:
            return 0
        written = topics_of(transactions.describe(strays))
        transactions.fence(strays, self._options.transaction_timeout_ms)
        Markers(transactions).sweep(strays, written | self._topics_of(()))
        logger.warning(
            "Sink %s of query %s: aborted %d transactions that tasks of a driver that died, or attempts that were given"
            " up, had opened late: %s",
            scope.sink,
            scope.query_id,
            len(strays),
            ", ".join(strays[:8]) + (", …" if len(strays) > 8 else ""),
        )
        return len(strays)

    def _topics_of(self, prepared: Iterable[Prepared]) -> set[str]:
        """All that these may have written to."""
        fixed = {self._options.topic} if self._options.topic else set()
        return fixed.union(*(one.topics for one in prepared))

    @property
    def _transactional(self) -> bool:
        return self._options.mode == EXACTLY_ONCE

    def _transactions(self) -> Transactions:
        return Transactions(self._options.client, PATIENCE_MS)

    def _outcome(self, one: Prepared, answer: Answer) -> Outcome:
        if answer is not Answer.UNKNOWN:
            return _OUTCOMES[answer]
        if self._options.when_undecided != "stop":
            logger.warning(
                "Transaction %s is taken for %s, as told", one.transactional_id, self._options.when_undecided
            )
            return Outcome(self._options.when_undecided)
        raise Undecided(
            f"Kafka at {self._options.client['bootstrap.servers']} no longer knows transaction {one.transactional_id}"
            f" (producer id {one.producer_id}, epoch {one.producer_epoch}), so it does not say whether its rows are"
            " visible; the id may have expired (transactional.id.expiration.ms). Look at"
            f" `holdfast transactions show {one.transactional_id}`, and for its rows in the topic, as a read_committed"
            " reader. Then start the query once with KafkaSink(..., when_undecided='done') if they are there, or with"
            " 'lost' if not: then they are produced again"
        )


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


def _other_mode(committable: Committable, mode: str) -> Incompatible:
    return Incompatible(
        f"Partition {committable.partition} of an unfinished batch was written with mode={mode!r}, and the sink has"
        " another mode now. Start the query once with the former mode, until a batch is finished; then change it"
    )


def _epoch_of(name: str) -> int:
    """Of a name that `pattern_of` matched."""
    parts = TransactionalId.parse(name)
    return parts.epoch if parts is not None else 0
