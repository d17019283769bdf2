"""The configuration of the source's consumers: what the user set, and what the source decides itself."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.errors import InvalidRequest
from holdfast.kafka.client_config import client_config

# What the source decides itself, and why.
_RESERVED = {
    "auto.offset.reset": "use the option startingOffsets: the source, not the group, knows where to start",
    "enable.auto.commit": "the source commits the group's offsets after each checkpoint, see commitGroupOffsets",
    "enable.auto.offset.store": "the source commits the group's offsets after each checkpoint, see commitGroupOffsets",
    "key.deserializer": "keys are bytes: use the functions of a DataFrame to decode them",
    "value.deserializer": "values are bytes: use the functions of a DataFrame to decode them",
    "interceptor.classes": "interceptors might change what is read",
    "enable.partition.eof": "the source needs it to end a range",
    "group.instance.id": "the source assigns partitions itself and joins no group",
}


def consumer_config(texts: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's configuration from the options, their names in lower case; read_committed where nothing is said.

    Raises
    ------
    InvalidRequest
        ``kafka.bootstrap.servers`` is missing, a name is reserved, or known to Java's client only, or there is no such
        isolation level.
    """
    config = {"isolation.level": "read_committed", **client_config(texts, _RESERVED)}
    # The plan goes by it as the tasks' clients do, and they take it in any case.
    level = config["isolation.level"].strip().lower()
    if level not in ("read_committed", "read_uncommitted"):
        raise InvalidRequest(
            f"kafka.isolation.level is {config['isolation.level']!r}: expected read_committed or read_uncommitted"
        )
    return {**config, "isolation.level": level}
