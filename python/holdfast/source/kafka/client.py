"""The one door to confluent-kafka: imported when first needed, with a clear error when it is missing."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import ModuleType

from holdfast.errors import InvalidRequest, Unavailable
from holdfast.source.kafka.client_config import is_secret, without_secrets

logger = logging.getLogger("holdfast.kafka")

# Properties of consumers that librdkafka would warn about in an admin client.
_CONSUMER_ONLY = (
    "auto.",
    "check.crcs",
    "consume.",
    "coordinator.",
    "enable.auto",
    "enable.partition.eof",
    "fetch.",
    "group.",
    "heartbeat.",
    "isolation.level",
    "max.partition.fetch",
    "max.poll",
    "partition.assignment",
    "queued.",
    "session.timeout",
)


def confluent_kafka() -> ModuleType:
    """The package; `Unavailable` says how to install it."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise Unavailable(
            f"Kafka sources and sinks need the package confluent-kafka ({error}). Install holdfast[kafka] on the"
            " driver and on all executors"
        ) from error
    return confluent_kafka


def admin_config(config: Mapping[str, str]) -> dict[str, str]:
    """What of a consumer's configuration an admin client takes."""
    return {name: value for name, value in config.items() if not name.startswith(_CONSUMER_ONLY)}


def refused(error: Exception, config: Mapping[str, str]) -> InvalidRequest:
    """What to raise when librdkafka does not take a configuration. Values of secrets are never in it."""
    text = without_secrets(str(error), config)
    names = ", ".join(sorted(f"kafka.{name}" + (" (secret)" if is_secret(name) else "") for name in config))
    return InvalidRequest(
        f"The Kafka client refused its configuration: {text}. The options kafka.* are passed to librdkafka, under its"
        f" names (CONFIGURATION.md in librdkafka); given were {names}"
    )
