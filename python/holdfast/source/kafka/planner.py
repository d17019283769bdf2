"""Plans the batches of a stream: where it starts, how far it may go, which ranges that means, what was lost meanwhile.

Runs on the driver, one for each query, used by one thread. Knows no Spark: `stream.py` puts it behind Spark's
interface.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.clock import Clock, Ids, SystemClock, new_id
from holdfast.errors import Corrupt, InvalidRequest
from holdfast.kafka.client import logger
from holdfast.source.kafka.admission import limited, split
from holdfast.source.kafka.cluster import Cluster, Topics
from holdfast.source.kafka.offsets import Range, SourceOffset, ranges_between
from holdfast.source.kafka.options import SourceOptions
from holdfast.source.kafka.stalls import StallWatch
from holdfast.source.kafka.subscription import Partition

# How long what looks lost is asked for again. A broker that has just started lists no topics, one that was asleep knows
# old ones, old ends: each answers at once, and for some seconds.
_DOUBT_MS = 10_000.0
_PAUSE_S = 0.5
# What brokers before 2.8, which know no topic ids, answer.
_NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


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
        self._fixed_end: tuple[Topics, dict[Partition, int]] | None = None
        self._last_trigger_ms: float | None = None
        # Where the next batch starts: what Spark 4.0 and 4.1 do not hand over.
        self._known: SourceOffset | None = None
        self._initial: SourceOffset | None = None
        self._checked_end: SourceOffset | None = None
        self._gone: set[Partition] = set()  # and said so
        self._stalls = StallWatch(cluster.high_watermarks, self._clock)

    def initial(self) -> dict[str, Any]:
        """Where a new query starts: settled when it is first asked. Spark asks only when its checkpoint is empty, and
        again, in a new process, on a replay of batch 0.
        """
        if self._initial is None:
            topics = self._cluster.topics()
            self._refuse_missing(topics)
            positions = self._cluster.resolve(self._options.starting, topics.partitions)
            self._initial = SourceOffset(positions, positions, topics.topic_ids, self._ids()[:16])
            self._known = self._initial
        return self._initial.to_json()

    def fix_end(self) -> None:
        """Trigger.AvailableNow: nothing later than now is read."""
        self._fixed_end = self._cluster.available()
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
        if start is not None:
            since = SourceOffset.from_json(start)
        else:
            since = self._known or SourceOffset.from_json(self.initial())
        self._commit_group(since)
        topics, latest = self._available_since(since)
        begin = self._begin(since, topics, latest)
        ends = {key: max(latest.get(key, position), position) for key, position in begin.items()}
        if limit and self._should_wait(begin, ends):
            ends = dict(begin)
        if limit and self._options.max_offsets_per_trigger is not None:
            ends = limited(begin, ends, self._options.max_offsets_per_trigger)
        topic_ids = {topic: since.topic_ids[topic] for topic, _ in begin if topic in since.topic_ids}
        topic_ids.update(topics.topic_ids)
        if ends == since.positions and topic_ids == since.topic_ids:
            end = since
        else:
            source_id = since.source_id or self._ids()[:16]
            end = SourceOffset(ends, _starts(since, begin), topic_ids, source_id)
        self._checked_end = end
        return start if start is not None and end is since else end.to_json()

    def newest(self) -> dict[str, Any]:
        """For progress reports: the newest offsets to read, and which partitions wait for an open transaction."""
        topics, latest = self._available()
        content = SourceOffset(latest, {}, topics.topic_ids).to_json()
        waiting = {f"{topic}-{number}": stall for (topic, number), stall in self._stalls.waiting().items()}
        return {**content, "waiting": waiting} if waiting else content

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
            self._known = SourceOffset(until.positions, until.starts, until.topic_ids, since.source_id)
            begin = self._begin(since, Topics(list(until.positions), until.topic_ids), until.positions)
            since = SourceOffset(begin, {}, until.topic_ids)
        ranges = ranges_between(since, until)
        if ranges and until != self._checked_end:
            ranges = self._still_there(ranges, since)
        return split(ranges, self._options.min_partitions, self._options.max_records_per_partition)

    def commit(self, end: dict[str, Any]) -> None:
        """A checkpoint holds all before ``end``."""
        self._commit_group(SourceOffset.from_json(end))

    def _commit_group(self, offset: SourceOffset) -> None:
        """Let lag tools see how far the query is. Never read back."""
        if not self._options.commit_group_offsets or not offset.positions:
            return
        group = self._options.client.get("group.id")
        if group is None and offset.source_id is None:
            return
        self._cluster.commit_group(group or f"{self._options.group_id_prefix}-{offset.source_id}", offset.positions)

    def _available(self) -> tuple[Topics, dict[Partition, int]]:
        topics, latest = self._cluster.available()
        if self._cluster.reads_committed:
            self._stalls.look(latest)
        return topics, latest

    def _available_since(self, since: SourceOffset) -> tuple[Topics, dict[Partition, int]]:
        """What is there, asked for again where something of ``since`` seems lost."""
        until_ms = self._clock.elapsed_ms() + _DOUBT_MS
        while True:
            topics, latest = self._fixed_end or self._available()
            seems_whole = not (_recreated(since, topics) or _gone(since, topics) - self._gone)
            seems_whole = seems_whole and not self._behind(since.positions, latest)
            if seems_whole or self._clock.elapsed_ms() >= until_ms:
                return topics, latest
            self._pause(_PAUSE_S)
            if self._fixed_end is not None:
                self._fixed_end = self._cluster.available()

    def _refuse_missing(self, topics: Topics) -> None:
        subscription = self._options.subscription
        found = {topic for topic, _ in topics.partitions}
        missing = [topic for topic in subscription.topics if topic not in found]
        missing += [
            f"{topic}-{number}" for topic, number in sorted(set(subscription.partitions) - set(topics.partitions))
        ]
        if missing:
            raise InvalidRequest(
                f"{subscription}: {', '.join(missing)} does not exist at {self._options.client['bootstrap.servers']}."
                " Create it first, or use subscribePattern, which waits for topics to come"
            )

    def _begin(self, since: SourceOffset, topics: Topics, latest: Mapping[Partition, int]) -> dict[Partition, int]:
        """Where each partition is read from, after what was lost has been reported. All that were read before are among
        them, whether ``latest`` has them or not, and whether they are there or not: a broker that has just started may
        not know a topic yet. One that was left out would be new in the next batch, and read from its start once more.
        """
        recreated = _recreated(since, topics)
        for topic in sorted(recreated):
            self._lost(
                f"Topic {topic} was deleted and created again (its id was {since.topic_ids[topic]}, now it is"
                f" {topics.topic_ids[topic]}): what was not read of the old one is lost. The new one is read from its"
                " start"
            )
        gone = _gone(since, topics)
        if gone - self._gone:
            names = ", ".join(f"{topic}-{number}" for topic, number in sorted(gone))
            self._lost(f"{names} do not exist any more: what was not read of them is lost, unless they come back")
        self._gone = gone
        new = [key for key in latest if key not in since.positions or key[0] in recreated]
        earliest = self._cluster.earliest(new)
        begin = {key: earliest.get(key, latest[key]) for key in new}
        for (topic, number), offset in sorted(begin.items()):
            if offset > 0 and topic not in recreated:
                self._lost(
                    f"{topic}-{number} is new to this query and starts at {offset} instead of 0: what was before it"
                    " is lost"
                )
        known = {key: offset for key, offset in since.positions.items() if key[0] not in recreated}
        return {**known, **begin, **self._truncated(known, latest)}

    def _truncated(self, known: Mapping[Partition, int], latest: Mapping[Partition, int]) -> dict[Partition, int]:
        """Where partitions are read on that end before what was read of them."""
        behind = self._behind(known, latest)
        for (topic, number), end in sorted(behind.items()):
            self._lost(
                f"{topic}-{number} ends at {end}, but was read up to {known[topic, number]} already: its log was"
                " truncated. It is read on from its end"
            )
        return behind

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

    def _still_there(self, ranges: list[Range], since: SourceOffset) -> list[Range]:
        """A replay after a restart: a namesake of a deleted topic has other records at the same offsets."""
        until_ms = self._clock.elapsed_ms() + _DOUBT_MS
        topic_ids = {**since.topic_ids, **{part.topic: part.topic_id for part in ranges if part.topic_id}}
        read = SourceOffset({(part.topic, part.partition): part.start for part in ranges}, {}, topic_ids)
        topics = self._cluster.topics()
        while (_recreated(read, topics) or _gone(read, topics)) and self._clock.elapsed_ms() < until_ms:
            self._pause(_PAUSE_S)
            topics = self._cluster.topics()
        present = set(topics.partitions)
        kept = []
        for part in ranges:
            if (part.topic, part.partition) not in present:
                self._lost(f"{part} is to be read again, but the partition does not exist any more")
            elif _differ(part.topic_id or since.topic_ids.get(part.topic), topics.topic_ids[part.topic]):
                self._lost(f"{part} is to be read again, but the topic was deleted and created again since")
            else:
                kept.append(part)
        return kept

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


def _recreated(since: SourceOffset, topics: Topics) -> set[str]:
    return {topic for topic, now in topics.topic_ids.items() if _differ(since.topic_ids.get(topic), now)}


def _gone(since: SourceOffset, topics: Topics) -> set[Partition]:
    """Partitions that were read before and are not listed, but those of topics that were created again."""
    present, recreated = set(topics.partitions), _recreated(since, topics)
    return {key for key in since.positions if key not in present and key[0] not in recreated}


def _differ(before: str | None, now: str) -> bool:
    return before is not None and before != now and _NO_TOPIC_ID not in (before, now)
