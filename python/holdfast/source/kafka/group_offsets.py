"""How far a query is, committed to a consumer group so that lag tools see it. Nothing waits for it or depends on it.

By a consumer that reads nothing. The admin client could do it too, but librdkafka aborts the whole process when the
group's coordinator goes away during such a question (librdkafka's issue 4605), and the query would end with it. Used
by one thread, on which the answers come too, with the next commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.clock import Clock
from holdfast.kafka.client import confluent_kafka, logger
from holdfast.kafka.client_config import without_secrets
from holdfast.source.kafka.subscription import Partition

# A member of no group has no session; but this long librdkafka waits for outstanding answers when it is closed.
_SESSION = {"session.timeout.ms": "3000", "heartbeat.interval.ms": "1000"}
# Between two tries to say the same.
_AGAIN_AFTER_MS = 1000.0
# A group without members loses its offsets at the brokers, by default seven days after they were committed last
# (offsets.retention.minutes), also where the query only waits for rows.
_RENEWED_AFTER_MS = 3_600_000.0


class GroupOffsets:
    """The offsets of one group.

    Parameters
    ----------
    client
        librdkafka's configuration of the source.
    """

    def __init__(self, client: Mapping[str, str], group: str, clock: Clock) -> None:
        self._consumer: Any = None
        self._client = client
        self._group = group
        self._clock = clock
        self._is_warned = False
        self._acknowledged: dict[Partition, int] = {}
        self._acknowledged_ms = 0.0
        self._said: dict[Partition, int] = {}
        self._again_ms = 0.0

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Tells the brokers, in the background. What fails is logged once; a later call says it all again, even if the
        query has not come any further. So does one each hour.
        """
        kafka = confluent_kafka()
        wanted, now_ms = dict(positions), self._clock.elapsed_ms()
        try:
            if self._consumer is not None:
                self._consumer.poll(0)  # for the answers
            is_known = wanted == self._acknowledged and now_ms < self._acknowledged_ms + _RENEWED_AFTER_MS
            if is_known or (wanted == self._said and now_ms < self._again_ms):
                return
            self._said, self._again_ms = wanted, now_ms + _AGAIN_AFTER_MS
            if self._consumer is None:
                config = {**self._client, **_SESSION, "group.id": self._group, "enable.auto.commit": "false"}
                self._consumer = kafka.Consumer({**config, "on_commit": self._answered}, logger=logger)
            places = [kafka.TopicPartition(topic, number, offset) for (topic, number), offset in sorted(wanted.items())]
            self._consumer.commit(offsets=places, asynchronous=True)
        except (kafka.KafkaException, ValueError) as error:
            self._failed(error)

    def close(self) -> None:
        """Waits for what is on its way, some seconds at most. A client that goes while an answer is outstanding, and
        was not closed, keeps two cores busy for as long as a session lasts (librdkafka 2.16).
        """
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def __del__(self) -> None:
        self.close()

    def _answered(self, error: object, places: Sequence[Any]) -> None:
        refused = error or next((place.error for place in places if place.error is not None), None)
        if refused is not None:
            self._failed(refused)
        else:
            self._acknowledged = {(place.topic, place.partition): place.offset for place in places}
            self._acknowledged_ms = self._clock.elapsed_ms()

    def _failed(self, error: object) -> None:
        if not self._is_warned:
            self._is_warned = True
            logger.warning(
                "The offsets of consumer group %s were not committed: %s. Lag tools will not see this query; it is"
                " not harmed. Said once",
                self._group,
                without_secrets(str(error), self._client),
            )
