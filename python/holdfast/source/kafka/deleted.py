"""Topics that were deleted, and when the offset may leave them out: else it names all that were ever read, each batch.

One answer is no proof that a topic does not exist: a broker that has just started knows none, and one that is cut off
from its controller none that is new. So it has to be unknown whenever it is asked for by name, for an hour. Since when
is in the offset, as runs of Trigger.AvailableNow are short. What is hidden, or not subscribed to any more, exists: its
positions are kept. Owner: the planner, one for each query, used by one thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from holdfast.clock import Clock
from holdfast.source.kafka.cluster import Cluster

LEFT_OUT_AFTER_MS = 3_600_000
# Each question costs the batch that asks it: a topic that is not subscribed to any more may exist for years.
_AGAIN_AFTER_MS = 60_000.0


class DeletedTopics:
    """What the brokers say of topics that are not there."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._asked_ms: float | None = None
        self._asked: frozenset[str] = frozenset()

    def look(self, missing: Set[str], since: Mapping[str, int]) -> tuple[dict[str, int], set[str]]:
        """Since when each of the missing topics does not exist, and those of them that are to be left out.

        Parameters
        ----------
        missing
            Topics that were read, and are not there, or not subscribed to.
        since
            Since when they do not exist, as the offset before has it: milliseconds since 1970.
        """
        known = {topic: at_ms for topic, at_ms in since.items() if topic in missing}
        elapsed_ms = self._clock.elapsed_ms()
        is_due = self._asked_ms is None or elapsed_ms >= self._asked_ms + _AGAIN_AFTER_MS
        if not missing or (missing <= self._asked and not is_due):
            return known, set()
        self._asked_ms, self._asked = elapsed_ms, frozenset(missing)
        now_ms = self._clock.now_ms()
        unknown = {topic: known.get(topic, now_ms) for topic in self._cluster.unknown_topics(missing)}
        left_out = {topic for topic, at_ms in unknown.items() if now_ms >= at_ms + LEFT_OUT_AFTER_MS}
        return {topic: at_ms for topic, at_ms in unknown.items() if topic not in left_out}, left_out
