"""How far a query is, committed to a consumer group so that lag tools see it. Nothing waits for it or depends on it.

By a consumer that reads nothing. The admin client could do it too, but librdkafka aborts the whole process when the
group's coordinator goes away during such a question (librdkafka's issue 4605), and the query would end with it. Used
by one thread, on which the answers come too, with the next commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from holdfast.clock import Clock
from holdfast.errors import InvalidRequest
from holdfast.kafka.client import confluent_kafka, logger, open_client
from holdfast.kafka.client_config import without_secrets
from holdfast.kafka.renewed import Stamps, say_not_used, stamps
from holdfast.source.kafka.subscription import Partition

# A member of no group has no session; but this long librdkafka waits for outstanding answers when it is closed.
_SESSION = {"session.timeout.ms": "3000", "heartbeat.interval.ms": "1000"}
# Between two tries to say the same.
_AGAIN_AFTER_MS = 1000.0
# A group without members loses its offsets at the brokers, by default seven days after they were committed last
# (offsets.retention.minutes), also where the query only waits for rows.
_RENEWED_AFTER_MS = 3_600_000.0
# A topic that was refused, as one that was deleted a moment ago, is left out for so long.
_REFUSED_AGAIN_AFTER_MS = 60_000.0


class GroupOffsets:
    """The offsets of one group.

    Parameters
    ----------
    client
        librdkafka's configuration of the source.
    """

    def __init__(self, client: Mapping[str, str], group: str, clock: Clock) -> None:
        self._consumer: Any = None
        self._files: Stamps = ()
        self._client = client
        self._group = group
        self._clock = clock
        self._warned: set[str] = set()
        self._apart = False  # one commit a topic, so that each has an answer of its own
        self._refused: set[str] = set()
        self._refused_until_ms = 0.0
        self._acknowledged: dict[Partition, int] = {}
        self._acknowledged_ms = 0.0
        self._said: dict[Partition, int] = {}
        self._again_ms = 0.0

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Tells the brokers, in the background. What fails is logged once; a later call says it all again, even if the
        query has not come any further. So does one each hour; what is refused of one topic is said each minute.
        """
        kafka, now_ms = confluent_kafka(), self._clock.elapsed_ms()
        try:
            if self._consumer is not None:
                self._consumer.poll(0)  # for the answers
            if now_ms >= self._refused_until_ms:
                self._refused.clear()
            wanted = {key: offset for key, offset in positions.items() if key[0] not in self._refused}
            is_told = wanted.items() <= self._acknowledged.items()
            if is_told and (not wanted or now_ms < self._acknowledged_ms + _RENEWED_AFTER_MS):
                return
            if wanted == self._said and now_ms < self._again_ms and not self._apart:
                return
            self._said, self._again_ms = wanted, now_ms + _AGAIN_AFTER_MS
            self._begin()
            places = [kafka.TopicPartition(topic, number, offset) for (topic, number), offset in sorted(wanted.items())]
            parts = [list(of_one) for _, of_one in groupby(places, lambda place: place.topic)]
            for part in parts if self._apart else [places]:
                self._consumer.commit(offsets=part, asynchronous=True)
            self._apart = False
        except (kafka.KafkaException, ValueError, InvalidRequest) as error:
            self._failed(error)

    def _begin(self) -> None:
        """With the files of now; while they cannot be used, those before stay."""
        files = stamps(self._client)
        if self._consumer is not None and files == self._files:
            return
        config = {**self._client, **_SESSION, "group.id": self._group, "enable.auto.commit": "false"}
        try:
            consumer = open_client(confluent_kafka().Consumer, {**config, "on_commit": self._answered})
        except InvalidRequest as refusal:
            if self._consumer is None:
                raise
            say_not_used(self._client, files, refusal)
            return
        self.close()
        self._consumer, self._files = consumer, files

    def close(self) -> None:
        """Waits for what is on its way, some seconds at most. A client that goes while an answer is outstanding, and
        was not closed, keeps two cores busy for as long as a session lasts (librdkafka 2.16).
        """
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def __del__(self) -> None:
        self.close()

    def _answered(self, error: Any, places: Sequence[Any]) -> None:
        """Where a broker refuses one partition, librdkafka says its error of all that were said with it."""
        topics, codes = {place.topic for place in places}, confluent_kafka().KafkaError
        refused = error or next((place.error for place in places if place.error is not None), None)
        if refused is None:
            self._acknowledged.update({(place.topic, place.partition): place.offset for place in places})
            self._acknowledged_ms = self._clock.elapsed_ms()
        elif refused.code() not in (codes.UNKNOWN_TOPIC_OR_PART, codes.TOPIC_AUTHORIZATION_FAILED):
            self._failed(refused)
        elif len(topics) > 1:
            self._apart = True
        else:
            self._refused |= topics
            self._refused_until_ms = self._clock.elapsed_ms() + _REFUSED_AGAIN_AFTER_MS
            self._failed(refused, *topics)

    def _failed(self, error: object, topic: str | None = None) -> None:
        of_what = f"{self._group} in topic {topic}" if topic else self._group
        if of_what not in self._warned:
            self._warned.add(of_what)
            logger.warning(
                "The offsets of consumer group %s were not committed: %s. Lag tools will not see this query%s; it is"
                " not harmed. Said once",
                of_what,
                without_secrets(str(error), self._client),
                " there" if topic else "",
            )
