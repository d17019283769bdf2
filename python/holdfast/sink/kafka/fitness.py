"""At start, on the driver: whether the brokers are fit for a sink. Later, output would be lost again and again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from holdfast.clock import Clock, SystemClock
from holdfast.commit.sink import CommitLimits
from holdfast.errors import InvalidRequest, Unavailable
from holdfast.kafka.client import admin_client, confluent_kafka, heard, learn_brokers, logger, question_ms, why_silent
from holdfast.kafka.client_config import without_secrets
from holdfast.sink.kafka.options import EXACTLY_ONCE, SinkOptions
from holdfast.sink.kafka.witness_topic import NOT_ALLOWED, WitnessTopic
from holdfast.units import format_duration

ANSWER_WITHIN_MS = 60_000.0
_PAUSE_S = 0.2


def check_timeouts(options: SinkOptions, limits: CommitLimits) -> None:
    """Whether a transaction may be open for as long as a batch takes.

    Raises
    ------
    InvalidRequest
        The trigger is longer than the transaction timeout, and nobody said that this is meant.
    """
    timeout_ms, trigger_ms = options.transaction_timeout_ms, limits.trigger_ms
    if trigger_ms is None or trigger_ms <= timeout_ms or options.transaction_timeout_given:
        return
    raise InvalidRequest(
        f"Sink {options.name!r}: the trigger is {format_duration(trigger_ms)}, and a transaction may be open for"
        f" {format_duration(timeout_ms)} only. If a batch takes longer than that,"
        " its output is lost and produced again, without end."
        " Set kafka.transaction.timeout.ms in KafkaSink's options to more than a batch ever takes"
        " (and the brokers' transaction.max.timeout.ms to at least as much); see docs/guide/transactions.md"
    )


class Fitness:
    """Questions to the brokers of a sink."""

    def __init__(
        self, options: SinkOptions, clock: Clock | None = None, answer_within_ms: float = ANSWER_WITHIN_MS
    ) -> None:
        self._options = options
        self._kafka = confluent_kafka()
        admin_client(options.client)  # what it refuses is told now
        self._clock = clock or SystemClock()
        self._answer_within_ms = answer_within_ms

    def check(self) -> None:
        """All of it.

        Raises
        ------
        InvalidRequest
            The topic does not exist, or the transaction timeout is more than the brokers allow.
        Unavailable
            The brokers do not answer.
        """
        replicas = self._check_topic(self._options.topic) if self._options.topic is not None else 1
        if self._options.mode == EXACTLY_ONCE:
            self._check_broker_maximum()
            if self._options.witness_topic is not None:
                WitnessTopic(self._options.witness_topic, self).ensure(replicas)

    def _check_topic(self, topic: str) -> int:
        """How many replicas it has."""
        names = self._kafka.TopicCollection([topic])
        codes = self._kafka.KafkaError

        def question(within_s: float) -> Any:
            return self.admin.describe_topics(names, request_timeout=within_s)[topic].result()

        try:
            found = self.ask(f"describe topic {topic}", question, (codes.UNKNOWN_TOPIC_OR_PART, codes.TOPIC_EXCEPTION))
            return min((len(part.replicas) for part in found.partitions), default=1)
        except self._kafka.KafkaException as error:
            raise InvalidRequest(
                f"Sink {self._options.name!r} writes to topic {topic!r}, which Kafka at {self.servers} does not have"
                f" ({error.args[0].str()}). Create it, with as many partitions as it shall have, and start again"
            ) from None

    def _check_broker_maximum(self) -> None:
        maximum_ms = self._broker_maximum_ms()
        timeout_ms = self._options.transaction_timeout_ms
        if maximum_ms is not None and timeout_ms > maximum_ms:
            raise InvalidRequest(
                f"Sink {self._options.name!r}: kafka.transaction.timeout.ms is {timeout_ms},"
                f" and Kafka at {self.servers} allows {maximum_ms} (transaction.max.timeout.ms)."
                " Set the one to at most, or the other to at least that; see docs/guide/transactions.md"
            )

    def _broker_maximum_ms(self) -> int | None:
        """None: this user may not ask. A timeout that is too long then fails in the first task, with the same words."""
        admin, kafka = self._kafka.admin, self._kafka

        def question(within_s: float) -> Any:
            # One that is there now: who hangs is named for some seconds more.
            brokers = self.admin.list_topics(timeout=within_s).brokers
            resource = admin.ConfigResource(admin.ResourceType.BROKER, str(min(brokers)))
            return self.admin.describe_configs([resource], request_timeout=within_s)[resource].result()

        try:
            found = self.ask("describe its brokers' settings", question, NOT_ALLOWED)
        except kafka.KafkaException as error:
            logger.info("The brokers' transaction.max.timeout.ms is not known: %s", error.args[0].str())
            return None
        value = found["transaction.max.timeout.ms"].value
        return int(value) if value is not None else None

    @property
    def admin(self) -> Any:
        """To be asked one question."""
        return admin_client(self._options.client)

    @property
    def servers(self) -> str:
        """The brokers as the user named them."""
        return self._options.client["bootstrap.servers"]

    def ask(self, what: str, question: Callable[[float], Any], answers: tuple[int, ...] = ()) -> Any:
        """Ask until there is an answer; errors of the codes ``answers`` are answers and are raised as they are."""
        deadline_ms, since = self._clock.elapsed_ms() + self._answer_within_ms, heard(self._options.client)
        while True:
            left_ms = deadline_ms - self._clock.elapsed_ms()
            try:
                answer = question(max(1000.0, min(left_ms, question_ms(self._options.client))) / 1000)
                heard(self._options.client)
                return answer
            except self._kafka.KafkaException as error:
                why = why_silent(self._options.client, since)
                if error.args[0].code() in answers:
                    raise
                if self._clock.elapsed_ms() >= deadline_ms:
                    text = without_secrets(str(error), self._options.client)
                    raise Unavailable(f"Kafka at {self.servers} did not {what}: {text}{why}") from None
                time.sleep(_PAUSE_S)
                learn_brokers(self.admin)
