"""For tests: a processor without Spark, and real services. Nothing in the product needs them.

`Harness` runs a processor on states of its own. `KafkaBroker` and `KafkaCluster` run Apache Kafka itself on loopback;
they need Java, and Maven once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.testing.kafka_broker import KafkaBroker
from holdfast.testing.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from holdfast.testing.harness import Harness, Snapshot

__all__ = ["Harness", "KafkaBroker", "KafkaCluster", "Snapshot"]


def __getattr__(name: str) -> Any:
    if name in ("Harness", "Snapshot"):  # it loads pyspark, which a broker does without
        from holdfast.testing import harness

        return getattr(harness, name)
    raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
