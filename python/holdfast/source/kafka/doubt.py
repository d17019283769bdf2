"""What looks lost is asked for again: one answer of one broker is no proof.

A broker that has just started lists no topics, one that was asleep knows old ones, old ends: each answers at once, and
for some seconds. What still looks lost after that is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from typing import TypeAlias

from holdfast.clock import Clock
from holdfast.errors import InvalidRequest
from holdfast.source.kafka.cluster import Cluster, Topics
from holdfast.source.kafka.offsets import SourceOffset
from holdfast.source.kafka.options import SourceOptions
from holdfast.source.kafka.subscription import Partition

# How long, and how often.
DOUBT_MS = 10_000.0
PAUSE_S = 0.5
# What brokers before 2.8, which know no topic ids, answer.
_NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"

#: The topics of a source, and the ends of their partitions; of some a leader may not have said any.
Available: TypeAlias = "tuple[Topics, dict[Partition, int]]"


class Doubt:
    """One doubt, from now on."""

    def __init__(self, clock: Clock, pause: Callable[[float], None] = time.sleep) -> None:
        self._clock = clock
        self._pause = pause
        self._until_ms = clock.elapsed_ms() + DOUBT_MS

    def lasts(self) -> bool:
        """Whether to ask again: then after a pause."""
        if self._clock.elapsed_ms() >= self._until_ms:
            return False
        self._pause(PAUSE_S)
        return True


def starting_topics(options: SourceOptions, cluster: Cluster, doubt: Doubt) -> Topics:
    """What a query reads that starts now. None, where it subscribes to a pattern that nothing matches.

    Raises
    ------
    InvalidRequest
        Something that the subscription names does not exist.
    """
    topics = cluster.topics()
    while (not topics.partitions or _missing(options, topics)) and doubt.lasts():
        topics = cluster.topics()
    if missing := _missing(options, topics):
        raise InvalidRequest(
            f"{options.subscription}: {', '.join(missing)} does not exist at {options.client['bootstrap.servers']}."
            " Create it first, or use subscribePattern, which waits for topics to come"
        )
    return topics


def _missing(options: SourceOptions, topics: Topics) -> list[str]:
    found, places = {topic for topic, _ in topics.partitions}, set(topics.partitions)
    missing = [topic for topic in options.subscription.topics if topic not in found]
    return missing + [f"{topic}-{number}" for topic, number in sorted(set(options.subscription.partitions) - places)]


def silent(found: Available) -> set[Partition]:
    """Partitions that are there, and whose ends nobody has said."""
    topics, ends = found
    return set(topics.partitions) - ends.keys()


def recreated(since: SourceOffset, topics: Topics) -> set[str]:
    """Topics that were deleted and created again."""
    return {topic for topic, now in topics.topic_ids.items() if differ(since.topic_ids.get(topic), now)}


def gone(since: SourceOffset, topics: Topics) -> set[Partition]:
    """Partitions that were read before and are not listed, but those of topics that were created again."""
    present, others = set(topics.partitions), recreated(since, topics)
    return {key for key in since.positions if key not in present and key[0] not in others}


def refreshed(fixed: Available, now: Available, doubtful: Set[Partition], since: SourceOffset) -> Available:
    """An end that was fixed once, with a later answer for nothing but what is in doubt. All else stays: it would move
    the end, or forget a partition that only the earlier answer had. So does a topic that was the one that was read,
    where the later answer has another one: that is a doubt of its own.
    """
    (topics, ends), (topics_now, ends_now) = fixed, now
    strangers = recreated(since, topics_now) - recreated(since, topics)
    names = {topic for topic, _ in doubtful} - strangers
    asked = {topic: topic_id for topic, topic_id in topics_now.topic_ids.items() if topic in names}
    others = {topic for topic, topic_id in asked.items() if differ(topics.topic_ids.get(topic), topic_id)}
    wanted = {key for key in topics_now.partitions if key[0] in others or (key in doubtful and key[0] in names)}
    # Of what is in doubt an end that was said stays until another one is.
    stay = {key for key in topics.partitions if key[0] not in others and (key in ends or key not in doubtful)}
    kept = {key: end for key, end in ends.items() if key[0] not in others}
    later = {key: end for key, end in ends_now.items() if key in wanted}
    return Topics(sorted(stay | wanted), with_ids(topics.topic_ids, asked)), {**kept, **later}


def with_ids(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Ids by name, where ``now`` is the newer answer. A broker that knows none takes nothing from what is known: of a
    topic that is deleted and made again while it answers, the id before is all that tells.
    """
    return {**before, **{topic: known for topic, known in now.items() if known != _NO_TOPIC_ID or topic not in before}}


def differ(before: str | None, now: str) -> bool:
    """Whether two ids are of two topics."""
    return before is not None and before != now and _NO_TOPIC_ID not in (before, now)
