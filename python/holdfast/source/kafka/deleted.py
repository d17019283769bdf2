"""Topics that were deleted, and when the offset may leave them out: else it names all that were ever read, each batch.

One answer is no proof that a topic does not exist: a broker that has just started knows none, and one that is cut off
from its controller none that is new. So it has to be unknown whenever it is asked for by name, for an hour. Since when
is in the offset, as runs of Trigger.AvailableNow are short. But two runs may be a night apart, or a clock may jump, and
nobody has asked in between: so in the run that leaves it out it is unknown for `DOUBT_MS` too, by the clock that never
jumps. A run that goes on has seen that by then; one that does not asks until it has. What is hidden, or not subscribed
to any more, exists: its positions are kept. Owner: the planner, one for each query, used by one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from holdfast.clock import Clock
from holdfast.source.kafka.cluster import Cluster
from holdfast.source.kafka.doubt import DOUBT_MS, Doubt

LEFT_OUT_AFTER_MS = 3_600_000
# Each question costs the batch that asks it: a topic that is not subscribed to any more may exist for years.
_AGAIN_AFTER_MS = 60_000.0


class DeletedTopics:
    """What the brokers say of topics that are not there."""

    def __init__(self, cluster: Cluster, clock: Clock, doubt: Callable[[], Doubt]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._doubt = doubt
        self._asked_ms: float | None = None
        self._asked: frozenset[str] = frozenset()
        self._unknown_ms: dict[str, float] = {}  # since when in this run

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
        self._unknown_ms = {topic: at_ms for topic, at_ms in self._unknown_ms.items() if topic in missing}
        elapsed_ms = self._clock.elapsed_ms()
        is_due = self._asked_ms is None or elapsed_ms >= self._asked_ms + _AGAIN_AFTER_MS
        if not missing or (missing <= self._asked and not is_due):
            return known, set()
        self._asked_ms, self._asked = elapsed_ms, frozenset(missing)
        now_ms = self._clock.now_ms()
        unknown = self._unknown(missing, known)
        over = {topic for topic in unknown if now_ms >= known.setdefault(topic, now_ms) + LEFT_OUT_AFTER_MS}
        left_out = {topic for topic in over if elapsed_ms >= self._unknown_ms[topic] + DOUBT_MS}
        doubt, doubtful = self._doubt(), over - left_out
        while doubtful and doubt.lasts():
            doubtful = self._unknown(doubtful, known)
        left_out |= doubtful
        return {topic: at_ms for topic, at_ms in known.items() if topic not in left_out}, left_out

    def _unknown(self, topics: Set[str], since: dict[str, int]) -> set[str]:
        """Those that do not exist, by what the brokers say now. What may exist goes from ``since``; of what they do not
        answer nothing is known that was not known before.
        """
        unknown = set()
        for topic, may_exist in self._cluster.existing(topics).items():
            if may_exist:
                since.pop(topic, None)
                self._unknown_ms.pop(topic, None)
            else:
                unknown.add(topic)
                self._unknown_ms.setdefault(topic, self._clock.elapsed_ms())
        return unknown
