"""Options of the Kafka sink, checked; and the producer's configuration that they come to. Knows no broker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.errors import InvalidRequest
from holdfast.kafka.client_config import client_config
from holdfast.kafka.wire_config import wire_config
from holdfast.sink.kafka.layout import VALUE_FORMATS, Columns

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"
NONE: Final = "none"
MODES = (EXACTLY_ONCE, AT_LEAST_ONCE, NONE)
STOP: Final = "stop"
OUTCOMES = ("done", "lost")

TRANSACTION_TIMEOUT_MS = 900_000  # the brokers' own transaction.max.timeout.ms, unless somebody set it
MESSAGE_TIMEOUT_MS = 120_000

_RESERVED = {
    "transactional.id": "the sink names its transactions, so that a recovery finds them",
    "enable.idempotence": "the option mode decides it",
    "statistics.interval.ms": "the sink reads the producer's id and epoch from the statistics",
    "delivery.report.only.error": "the sink watches deliveries itself",
    "enable.gapless.guarantee": "the option mode decides it",
    "interceptor.classes": "interceptors might change what is written",
    "key.serializer": "a column of binary or string is taken as it is, see docs/guide/kafka_sink.md",
    "value.serializer": "use value_format, see docs/guide/kafka_sink.md",
}
_BY_MODE = ("acks", "request.required.acks")
# Where the user has not said otherwise. The same keys go to the same partitions as from Kafka's Java client. The queue
# of one task is bounded. Short pauses: a transaction's producer is new, and its broker is there or it is not.
_DEFAULTS = {
    "partitioner": "murmur2_random",
    "linger.ms": "5",
    "queue.buffering.max.kbytes": "65536",
    "reconnect.backoff.ms": "10",
    "reconnect.backoff.max.ms": "1000",
    "retry.backoff.ms": "20",
}
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True)
class SinkOptions:
    """All options of one sink, checked. ``client`` may hold secrets, so it is left out of the text of this object."""

    name: str
    mode: str
    topic: str | None
    columns: Columns
    value_format: str | None
    when_undecided: str | Mapping[str, str]
    witness_topic: str | None
    client: dict[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise InvalidRequest(
                f"name={self.name!r}: expected letters, digits, '_', '-' and '.', at most 64, not starting with '-' or"
                " '.': it is a part of transactional ids"
            )
        _one_of("mode", self.mode, MODES)
        _check_answers(self.when_undecided)
        self._check_witness_topic()
        if self.value_format is not None:
            _one_of("value_format", self.value_format, VALUE_FORMATS)
        if (self.topic is None) == (self.columns.topic is None):
            found = "both" if self.topic is not None else "neither"
            raise InvalidRequest(f"KafkaSink needs topic= or topic_column=, one of them; found {found}")
        if self.mode == EXACTLY_ONCE:
            wire_config(self.client)  # refuses what only librdkafka knows

    def _check_witness_topic(self) -> None:
        topic = self.witness_topic
        if topic is not None and (not isinstance(topic, str) or _TOPIC.fullmatch(topic) is None):
            raise InvalidRequest(
                f"witness_topic={topic!r}: expected a topic's name (letters, digits, '.', '_' and '-'), or None to do"
                " without witnesses"
            )
        if topic is not None and topic == self.topic:
            raise InvalidRequest(f"witness_topic={topic!r} is the topic that rows go to: name another one")

    @property
    def transaction_timeout_ms(self) -> int:
        """How long the broker lets a transaction be open before it aborts it."""
        return _number(self.client, "transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)

    @property
    def transaction_timeout_given(self) -> bool:
        """Whether the user chose it."""
        return "transaction.timeout.ms" in self.client

    @property
    def message_timeout_ms(self) -> int:
        """How long a record may wait for its acknowledgement."""
        default = MESSAGE_TIMEOUT_MS
        if self.mode == EXACTLY_ONCE:
            default = min(default, self.transaction_timeout_ms)
        return _number(self.client, "message.timeout.ms", default)

    def producer(self) -> dict[str, str]:
        """The configuration of a producer, but for its transactional id."""
        made = {**_DEFAULTS, **self.client, "message.timeout.ms": str(self.message_timeout_ms)}
        if self.mode == EXACTLY_ONCE:
            made["transaction.timeout.ms"] = str(self.transaction_timeout_ms)
        else:
            made.pop("transaction.timeout.ms", None)
        if self.mode == AT_LEAST_ONCE:
            made["enable.idempotence"] = "true"
        return made


def sink_client_config(bootstrap_servers: str, mode: str, options: Mapping[str, object] | None) -> dict[str, str]:
    """librdkafka's configuration from the sink's ``options``; names are read without regard to case.

    Raises
    ------
    InvalidRequest
        An option does not start with ``kafka.``, or cannot be set.
    """
    texts = {name.lower(): _text(value) for name, value in (options or {}).items()}
    strange = sorted(name for name in texts if not name.startswith("kafka."))
    if strange:
        raise InvalidRequest(
            f"KafkaSink(options=): {strange[0]!r} is not passed to Kafka: expected names that start with 'kafka.'; the"
            " rest are parameters of KafkaSink"
        )
    given = texts.setdefault("kafka.bootstrap.servers", bootstrap_servers)
    if given != bootstrap_servers:
        raise InvalidRequest("options kafka.bootstrap.servers contradicts KafkaSink's first argument: remove it")
    config = client_config(texts, _RESERVED)
    if "delivery.timeout.ms" in config:
        config["message.timeout.ms"] = config.pop("delivery.timeout.ms")
    by_mode = [name for name in _BY_MODE if name in config]
    if by_mode and mode != NONE and config[by_mode[0]] not in ("all", "-1"):
        raise InvalidRequest(f"kafka.{by_mode[0]}={config[by_mode[0]]} would lose records: mode={mode!r} needs 'all'")
    return config


def _number(config: Mapping[str, str], name: str, default: int) -> int:
    try:
        number = int(config.get(name, default))
    except ValueError:
        number = 0
    if number <= 0:
        raise InvalidRequest(f"kafka.{name}={config[name]!r}: expected a number of milliseconds above 0")
    return number


def _check_answers(answers: object) -> None:
    """Of ``when_undecided``."""
    if isinstance(answers, Mapping):
        for name, answer in answers.items():
            if not isinstance(name, str) or answer not in OUTCOMES:
                raise InvalidRequest(
                    f"when_undecided: {name!r} is said to be {answer!r}:"
                    " expected a transactional id, and 'done' or 'lost'"
                )
    elif answers != STOP:
        raise InvalidRequest(
            f"when_undecided={answers!r}: expected 'stop', or a mapping of transactional ids to 'done' or 'lost'."
            " Transactions of one batch can have ended differently, so each has an answer of its own"
        )


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidRequest(f"{what}={value!r}: expected one of {', '.join(map(repr, allowed))}")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
