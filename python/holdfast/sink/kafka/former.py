"""What sinks of this query that are no more have open: renamed, removed, or of another mode since a batch was stopped.

Readers of its partitions wait for it, also for what the new sink commits. Runs on the driver, once a start, when all
that the newest record names has been committed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from holdfast.commit.sink import Scope
from holdfast.kafka.markers import Markers
from holdfast.kafka.transactional_ids import TransactionalId, drivers_ago, pattern_of, prefix_of
from holdfast.kafka.transactions import EMPTY, ONGOING, Transactions, topics_of
from holdfast.sink.kafka.options import EXACTLY_ONCE, SinkOptions
from holdfast.sink.kafka.witness import Witnesses

#: Drivers, this one among them, whose tasks may have begun a transaction and not written yet: they are fenced too.
EPOCHS_FENCED = 8


class FormerSinks:
    """Those whose transactions are at the cluster of a sink that the query has now."""

    def __init__(self, options: SinkOptions, transactions: Transactions, scope: Scope) -> None:
        self._options = options
        self._transactions = transactions
        self._scope = scope

    def abort(self, names: Collection[str]) -> list[str]:
        """What was open, and is aborted now.

        Parameters
        ----------
        names
            Of the Kafka sinks that the query has now.

        Raises
        ------
        Unavailable
            Brokers do not answer, or this user may not.
        """
        query_id = self._scope.query_id
        others = {*names} if self._options.mode == EXACTLY_ONCE else {*names} - {self._scope.sink}
        states = (ONGOING, EMPTY)
        listed = self._transactions.listing(pattern_of(query_id), states, prefix=prefix_of(query_id))
        found = {
            name: (named.sink, state)
            for name, state in listed
            if (named := TransactionalId.parse(name)) is not None
            and named.query_id == query_id
            and named.sink not in others
            and self._is_mine_to_end(named, state)
        }
        if not found:
            return []
        strays = [name for name, (_, state) in found.items() if state == ONGOING]
        written = topics_of(self._transactions.describe(strays))
        self._transactions.fence(list(found), self._options.transaction_timeout_ms)
        for sink in sorted({sink for sink, _ in found.values()}):
            mine = [name for name in strays if found[name][0] == sink]
            Markers(self._transactions).sweep(mine, written, self._witnesses_of(sink, written))
        return strays

    def _is_mine_to_end(self, named: TransactionalId, state: str) -> bool:
        """Whether it is of no driver after this one, which may have sinks of its own. Of names with whole epochs those
        of the first few drivers look like a newer one's, too: they are left to the time limit.
        """
        ago = drivers_ago(named.epoch, self._scope.epoch, witnessed=True)
        return ago >= 0 and (state == ONGOING or ago < EPOCHS_FENCED)

    def _witnesses_of(self, sink: str, written: Collection[str]) -> list[tuple[str, int]]:
        """The partition with the witnesses of a former sink, where they were in this one's topic."""
        topic = self._options.witness_topic
        if topic is None or topic not in written:
            return []
        place = Witnesses(self._transactions, topic).place_of(replace(self._scope, sink=sink), None)
        return [(place.topic, place.partition)]
