"""Plans the batches of a stream: where it starts, how far it may go, which ranges that means, what was lost meanwhile.

Runs on the driver, one for each query, used by one thread.
Knows no Spark: `stream.py` puts it behind Spark's interface.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from typing import Any

from holdfast.clock import Clock, Ids, SystemClock, new_id
from holdfast.errors import Corrupt, InvalidRequest, Unavailable
from holdfast.kafka.client import logger
from holdfast.source.kafka.admission import limited, split
from holdfast.source.kafka.cluster import Cluster, Topics, listed
from holdfast.source.kafka.deleted import DeletedTopics
from holdfast.source.kafka.doubt import (
    Available,
    Doubt,
    differ,
    gone,
    recreated,
    refreshed,
    silent,
    starting_topics,
    with_ids,
)
from holdfast.source.kafka.offsets import Range, SourceOffset, ranges_between
from holdfast.source.kafka.options import SourceOptions
from holdfast.source.kafka.stalls import StallWatch
from holdfast.source.kafka.subscription import Partition, Subscription

# In place of where a query starts that its options do not say as things are now. No query has such an id.
_NO_START = SourceOffset({}, source_id="")


class StreamPlanner:
    """The plan of one streaming query.

    Parameters
    ----------
    clock, ids, pause
        For ``maxTriggerDelay``, for the names of sources, and for waits; tests pass their own.
    """

    def __init__(
        self,
        options: SourceOptions,
        cluster: Cluster,
        clock: Clock | None = None,
        ids: Ids = new_id,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._clock = clock or SystemClock()
        self._ids = ids
        self._pause = pause
        self._fixed_end: Available | None = None
        self._last_trigger_ms: float | None = None
        # Where the next batch starts: what Spark 4.0 and 4.1 do not hand over.
        self._known: SourceOffset | None = None
        self._initial: SourceOffset | None = None
        self._refusal: InvalidRequest | None = None
        self._checked_end: SourceOffset | None = None
        self._gone: set[Partition] = set()  # and said so
        self._deleted = DeletedTopics(cluster, self._clock, self._doubt)
        self._stalls = StallWatch(cluster.high_watermarks, self._clock)

    def initial(self) -> dict[str, Any]:
        """Where a new query starts: settled when it is first asked. Spark asks only when its checkpoint is empty, and
        again, in a new process, on a replay of batch 0.
        """
        if self._initial is None:
            topics = starting_topics(self._options, self._cluster, self._doubt())
            positions = self._cluster.resolve(self._options.starting, topics.partitions)
            self._initial = SourceOffset(positions, positions, topics.topic_ids, self._ids()[:16])
            self._known = self._initial
        return self._initial.to_json()

    def start(self) -> dict[str, Any]:
        """`initial`, for Spark. A replay of batch 0 needs none, its logged end has all starts, and the options may not
        name all there is by now: what they are refused for is raised by the first `latest` that needs a start.
        """
        try:
            return self.initial()
        except InvalidRequest as refusal:
            self._refusal = refusal
            return _NO_START.to_json()

    def fix_end(self) -> None:
        """Trigger.AvailableNow: nothing later than now is read, and all that is there now."""
        doubt = self._doubt()
        found = self._cluster.available()
        while silent(found) and doubt.lasts():
            known = SourceOffset({}, {}, found[0].topic_ids)
            found = refreshed(found, self._cluster.available(), silent(found), known)
        self._fixed_end = found
        if self._cluster.reads_committed:
            self._stalls.tell_of_one_run(self._fixed_end[1])

    def latest(self, start: dict[str, Any] | None, limit: bool = True) -> dict[str, Any]:
        """Where the next batch ends; ``start`` itself when there is nothing to read.

        Parameters
        ----------
        start
            Where it starts. None when Spark does not say (4.0, 4.1): then the end of the batch planned last, or what
            Spark named as the end of the log at a restart (see `ranges`), or where a new query starts.
        limit
            Whether the options that limit a batch hold.
        """
        since = SourceOffset.from_json(start) if start is not None else self._known
        if since is None or since == _NO_START:
            if self._refusal is not None:
                raise self._refusal
            since = SourceOffset.from_json(self.initial())
        self._commit_group(since)
        topics, latest = self._available_since(since)
        begin = self._begin(since, topics, latest)
        unknown_since = self._without_deleted(begin, since, topics)
        ends = {key: max(latest.get(key, position), position) for key, position in begin.items()}
        if limit and self._should_wait(begin, ends):
            ends = dict(begin)
        if limit and self._options.max_offsets_per_trigger is not None:
            ends = limited(begin, ends, self._options.max_offsets_per_trigger)
        known = {topic: since.topic_ids[topic] for topic, _ in begin if topic in since.topic_ids}
        topic_ids = with_ids(known, topics.topic_ids)
        # What is gone is left out with nobody's objection, or `_begin` had raised: that is kept for later starts.
        gone_now, end = frozenset(self._gone), since
        now = replace(since, positions=ends, topic_ids=topic_ids, gone=gone_now, unknown_since=unknown_since)
        if now != since:
            source_id = since.source_id or self._ids()[:16]
            end = replace(now, starts=_starts(since, begin), source_id=source_id, split=self._options.split)
        self._checked_end = end
        return start if start is not None and end is since else end.to_json()

    def newest(self) -> dict[str, Any]:
        """For progress reports: the newest offsets to read, and which partitions wait for an open transaction.

        That none waits is said too: reports of Spark 4.0 and 4.1, which do not ask for this, say nothing of it.
        """
        topics, latest = self._available()
        content = SourceOffset(latest, {}, topics.topic_ids).to_json()
        waiting = {f"{topic}-{number}": stall for (topic, number), stall in self._stalls.waiting().items()}
        return {**content, "waiting": waiting}

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
        """What the tasks of a batch read: the same for the same arguments, as long as the topics still have it."""
        since, until = SourceOffset.from_json(start), SourceOffset.from_json(end)
        self._known = until
        if since == until:
            # A batch without data from here; the starts in its offset are those of the batch before. Or, on Spark 4.0
            # and 4.1, how a query that is started again says where it is: the first question of all, with the newest
            # offset of its log twice (AcceptsLatestSeenOffset).
            return []
        if not until.source_id:
            # As the first Holdfast planned the first batch after a restart on Spark 4.0 and 4.1: without its start.
            # What was lost shows only here.
            self._known = replace(until, source_id=since.source_id)
            begin = self._begin(since, Topics(list(until.positions), until.topic_ids), until.positions)
            since = SourceOffset(begin, {}, until.topic_ids)
        ranges = ranges_between(since, until)
        lost = self._not_there(ranges, since) if ranges and until != self._checked_end else set()
        # A task is known by its number, and by it what became of its output: what is lost stays, as tasks of nothing.
        parts = split(ranges, *(self._options.split if until.split is None else until.split))
        return [part._replace(end=part.start) if (part.topic, part.partition) in lost else part for part in parts]

    def commit(self, end: dict[str, Any]) -> None:
        """A checkpoint holds all before ``end``."""
        self._commit_group(SourceOffset.from_json(end))

    def close(self) -> None:
        """The query has ended."""
        self._cluster.close()

    def _commit_group(self, offset: SourceOffset) -> None:
        """Let lag tools see how far the query is. Never read back. What it has left out stands still for good."""
        positions = {key: position for key, position in offset.positions.items() if key not in offset.gone}
        if not self._options.commit_group_offsets or not positions:
            return
        group = self._options.client.get("group.id")
        if group is None and offset.source_id is None:
            return
        self._cluster.commit_group(group or f"{self._options.group_id_prefix}-{offset.source_id}", positions)

    def _doubt(self) -> Doubt:
        return Doubt(self._clock, self._pause)

    def _available(self) -> Available:
        topics, latest = self._cluster.available()
        if self._cluster.reads_committed:
            self._stalls.look(latest)
        return topics, latest

    def _available_since(self, since: SourceOffset) -> Available:
        """What is there, asked for again where something of ``since`` seems lost."""
        doubt = self._doubt()
        if self._fixed_end is None:
            found = self._available()
            while self._doubtful(since, found) and doubt.lasts():
                found = self._available()
            return found
        while (doubtful := self._doubtful(since, self._fixed_end)) and doubt.lasts():
            self._fixed_end = refreshed(self._fixed_end, self._cluster.available(), doubtful, since)
        # No later batch of this run would have them.
        if unsaid := silent(self._fixed_end) & since.positions.keys():
            raise Unavailable(
                f"Kafka at {self._options.client['bootstrap.servers']} has {listed(unsaid)},"
                " but did not say where they end: expected it of each partition,"
                " as Trigger.AvailableNow reads all that is there. Start the query again"
            )
        return self._fixed_end

    def _doubtful(self, since: SourceOffset, found: Available) -> set[Partition]:
        """Partitions of ``since`` of which something seems lost; or, where the end is fixed, is not known."""
        topics, latest = found
        others = recreated(since, topics)
        doubtful = {key for key in since.positions if key[0] in others}
        doubtful |= gone(since, topics) - self._gone - since.gone
        doubtful |= self._behind(since.positions, latest).keys()
        return doubtful if self._fixed_end is None else doubtful | silent(found) & since.positions.keys()

    def _begin(self, since: SourceOffset, topics: Topics, latest: Mapping[Partition, int]) -> dict[Partition, int]:
        """Where each partition is read from, after what was lost has been reported. All that were read before are among
        them, whether ``latest`` has them or not, and whether they are there or not: a broker that has just started may
        not know a topic yet. One that was left out would be new in the next batch, and read from its start once more.
        """
        others = recreated(since, topics)
        not_accepted = {topic for topic, _ in since.positions.keys() - since.gone}
        for topic in sorted(others & not_accepted):
            self._lost(
                f"Topic {topic} was deleted and created again"
                f" (its id was {since.topic_ids[topic]}, now it is {topics.topic_ids[topic]}):"
                " what was not read of the old one is lost. The new one is read from its start"
            )
        missing = gone(since, topics)
        subscription, untold = self._options.subscription, missing - self._gone - since.gone
        # Of an earlier release a query may have read it.
        if untold := {key for key in untold if not subscription.leaves_out(key[0])}:
            self._lost(_missing_in_words(untold, subscription))
        self._gone = missing
        new = [key for key in latest if key not in since.positions or key[0] in others]
        earliest = self._cluster.earliest(new)
        # Whose leader does not say it yet is new in the next batch.
        begin = {key: earliest[key] for key in new if key in earliest}
        for (topic, number), offset in sorted(begin.items()):
            if offset > 0 and topic not in others:
                self._lost(
                    f"{topic}-{number} is new to this query and starts at {offset} instead of 0:"
                    " what was before it is lost"
                )
        known = {key: offset for key, offset in since.positions.items() if key[0] not in others}
        is_new = self._initial is not None and since.positions == self._initial.positions
        return {**known, **begin, **self._truncated(known, latest, is_new)}

    def _without_deleted(self, begin: dict[Partition, int], since: SourceOffset, topics: Topics) -> dict[str, int]:
        """Takes out of ``begin`` what was deleted long ago; since when the rest of what is missing does not exist."""
        missing = {topic for topic, _ in self._gone} - topics.topic_ids.keys()
        unknown_since, left_out = self._deleted.look(missing, since.unknown_since)
        for key in [key for key in begin if key[0] in left_out]:
            del begin[key]
        self._gone = {key for key in self._gone if key[0] not in left_out}
        return unknown_since

    def _truncated(
        self, known: Mapping[Partition, int], latest: Mapping[Partition, int], is_new: bool
    ) -> dict[Partition, int]:
        """Where partitions are read on that end before what was read of them, or before where a new query begins."""
        behind = self._behind(known, latest)
        for (topic, number), end in sorted(behind.items()):
            if is_new and (self._options.starting.offsets or {}).get((topic, number)) == known[topic, number]:
                self._starts_past(topic, number, known[topic, number], end)
                continue
            self._lost(
                f"{topic}-{number} ends at {end}, but was read up to {known[topic, number]} already: its log was"
                " truncated. It is read on from its end"
            )
        return behind

    def _starts_past(self, topic: str, number: int, start: int, end: int) -> None:
        message = f"{topic}-{number}: startingOffsets has {start}, but the partition ends at {end}"
        if self._options.fail_on_data_loss:
            raise InvalidRequest(
                f"{message}. Use an offset up to that, or -1 for its end, or set failOnDataLoss to false to begin there"
            )
        logger.warning("%s; it is read from there because failOnDataLoss is false", message)

    def _behind(self, known: Mapping[Partition, int], latest: Mapping[Partition, int]) -> dict[Partition, int]:
        """Partitions whose logs end before what was read of them, and where.

        That a partition's leader did not answer, or that less can be read of it than before, is no proof of it: a
        partition waits where it is while its log has what was read, as when it was read_uncommitted before.
        """
        behind = {key: latest[key] for key, position in known.items() if latest.get(key, position) < position}
        if behind and self._cluster.reads_committed:
            high = self._cluster.high_watermarks(sorted(behind))
            behind = {key: end for key, end in behind.items() if high.get(key, known[key]) < known[key]}
        return behind

    def _not_there(self, ranges: list[Range], since: SourceOffset) -> set[Partition]:
        """What a replay after a restart cannot read: a namesake of a deleted topic has other records at the same
        offsets. What is subscribed to by now is the next batch's.
        """
        doubt, names = self._doubt(), {part.topic for part in ranges}
        topic_ids = {**since.topic_ids, **{part.topic: part.topic_id for part in ranges if part.topic_id}}
        read = SourceOffset({(part.topic, part.partition): part.start for part in ranges}, {}, topic_ids)
        topics = self._cluster.topics_of(names)
        while (recreated(read, topics) or gone(read, topics)) and doubt.lasts():
            topics = self._cluster.topics_of(names)
        present, lost = set(topics.partitions), set()
        for part in ranges:
            key = part.topic, part.partition
            if key not in present:
                self._lost(f"{part} is to be read again, but the partition does not exist any more")
            elif differ(part.topic_id or since.topic_ids.get(part.topic), topics.topic_ids[part.topic]):
                self._lost(f"{part} is to be read again, but the topic was deleted and created again since")
            else:
                continue
            lost.add(key)
        return lost

    def _should_wait(self, begin: Mapping[Partition, int], ends: Mapping[Partition, int]) -> bool:
        minimum = self._options.min_offsets_per_trigger
        if minimum is None or self._fixed_end is not None:
            return False
        now_ms = self._clock.elapsed_ms()
        due = self._last_trigger_ms is None or now_ms - self._last_trigger_ms >= self._options.max_trigger_delay_ms
        if due or sum(ends[key] - begin[key] for key in ends) >= minimum:
            self._last_trigger_ms = now_ms
            return False
        return True

    def _lost(self, message: str) -> None:
        if self._options.fail_on_data_loss:
            raise Corrupt(
                f"{message}. The query stops because failOnDataLoss is true. Set it to false to go on with what is"
                " left, or start with a new checkpoint"
            )
        logger.warning("%s; going on because failOnDataLoss is false", message)


def _missing_in_words(missing: Set[Partition], subscription: Subscription) -> str:
    """Why partitions that were read before are not listed any more, as far as that is known."""
    left_out = {key for key in missing if not subscription.covers(key)}
    if left_out:
        said = f"{listed(left_out)} were read before, and {subscription} does not name them any more: what was not read"
        others = f". {listed(missing - left_out)} do not exist any more" if missing - left_out else ""
        return f"{said} of them is left out{others}"
    # A pattern is matched with what the brokers list, and they list nothing that a user may not describe.
    hidden = ", or this user may not describe them" if subscription.pattern is not None else ""
    return f"{listed(missing)} do not exist any more{hidden}: what was not read of them is lost, unless they come back"


def _starts(since: SourceOffset, begin: Mapping[Partition, int]) -> dict[Partition, int]:
    """The starts that the next offset carries.

    Of partitions that ``since`` does not have there; and, as long as nothing of a partition was read, those that
    ``since`` carries: if it is the initial one, Spark has not persisted it.
    """
    starts = {}
    for key, offset in begin.items():
        if since.positions.get(key) != offset or since.starts.get(key) == offset:
            starts[key] = offset
    return starts
