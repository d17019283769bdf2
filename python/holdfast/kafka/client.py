"""The one door to confluent-kafka: imported when first needed, with a clear error when it is missing."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

from holdfast.errors import InvalidRequest, Unavailable
from holdfast.kafka.client_config import is_secret, without_secrets

#: How long one question of an admin client may take, as Java's does, before it is asked again: a broker that hangs
#: keeps it for so long, and others may lead what it led long before that.
QUESTION_MS = 30_000
_LEARN_WITHIN_S = 5.0
_PASSING = (
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "REQUEST_TIMED_OUT",
    "BROKER_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
    "NETWORK_EXCEPTION",
    "NOT_CONTROLLER",
    "KAFKA_STORAGE_ERROR",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
    "THROTTLING_QUOTA_EXCEEDED",
    "UNKNOWN_TOPIC_ID",
    "INCONSISTENT_TOPIC_ID",
    "_TRANSPORT",
    "_TIMED_OUT",
    "_TIMED_OUT_QUEUE",
    "_ALL_BROKERS_DOWN",
    "_RESOLVE",
)
_lock = threading.Lock()
_admin_clients: dict[tuple[int, tuple[tuple[str, str], ...]], Any] = {}

logger = logging.getLogger("holdfast.kafka")

# Properties of consumers and producers that librdkafka would warn about in an admin client.
_NOT_ADMIN = (
    "acks",
    "auto.",
    "batch.",
    "check.crcs",
    "compression.",
    "consume.",
    "coordinator.",
    "delivery.",
    "enable.auto",
    "enable.idempotence",
    "enable.partition.eof",
    "fetch.",
    "group.",
    "heartbeat.",
    "isolation.level",
    "linger.ms",
    "max.partition.fetch",
    "max.poll",
    "message.timeout",
    "partition.assignment",
    "partitioner",
    "queue.buffering",
    "queued.",
    "request.required.acks",
    "session.timeout",
    "sticky.partitioning",
    "transaction",
)


def confluent_kafka() -> ModuleType:
    """The package; `Unavailable` says how to install it."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise Unavailable(
            f"Kafka sources and sinks need the package confluent-kafka ({error})."
            " Install it on the driver and on all executors: pip install 'holdfast-spark[kafka]'"
        ) from error
    return confluent_kafka


def admin_client(config: Mapping[str, str]) -> Any:
    """This process's admin client for a cluster, made at the first call and never destroyed.

    Its answers come in a thread of librdkafka's. Were the last reference to a client dropped there,
    by a callback or by the garbage collector, librdkafka would abort the whole process;
    that of a client that lives as long as the process cannot be.
    """
    taken = {name: value for name, value in config.items() if not name.startswith(_NOT_ADMIN)}
    key = (os.getpid(), tuple(sorted(taken.items())))
    with _lock:
        if key not in _admin_clients:
            kafka = confluent_kafka()
            try:
                _admin_clients[key] = kafka.admin.AdminClient(taken, logger=logger)
            except (kafka.KafkaException, ValueError, TypeError) as error:
                raise refused(error, config) from None
        return _admin_clients[key]


def question_ms(config: Mapping[str, str]) -> int:
    """The time limit of one question: the user's for one request, where it is given."""
    return int(config.get("socket.timeout.ms", QUESTION_MS))


def passes(error: Any) -> bool:
    """Whether an error is one that goes by itself while brokers come and go, as Kafka's protocol says, or as long as
    nobody can be reached. librdkafka knows that of producers' errors only.
    """
    codes = confluent_kafka().KafkaError
    return bool(error.retriable()) or error.code() in {getattr(codes, name) for name in _PASSING}


def learn_brokers(admin: Any) -> None:
    """Who is there now, after a question that nobody answered. Topics are described by the broker that the last answer
    named as the controller, and with KRaft that is any: a client that was told of one that hangs waits for it alone.
    """
    with suppress(confluent_kafka().KafkaException):
        admin.list_topics(timeout=_LEARN_WITHIN_S)


def refused(error: Exception, config: Mapping[str, str]) -> InvalidRequest:
    """What to raise when librdkafka does not take a configuration. Values of secrets are never in it."""
    text = without_secrets(str(error), config)
    names = ", ".join(sorted(f"kafka.{name}" + (" (secret)" if is_secret(name) else "") for name in config))
    return InvalidRequest(
        f"The Kafka client refused its configuration: {text}. The options kafka.* are passed to librdkafka, under its"
        f" names (CONFIGURATION.md in librdkafka); given were {names}"
    )
