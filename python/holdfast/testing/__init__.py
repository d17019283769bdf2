"""Real services for tests and demos. Nothing in the product needs them.

`KafkaBroker` and `KafkaCluster` run Apache Kafka itself on loopback; they need Java, and Maven once.
"""

from holdfast.testing.kafka_broker import KafkaBroker
from holdfast.testing.kafka_cluster import KafkaCluster

__all__ = ["KafkaBroker", "KafkaCluster"]
