"""The Kafka source: ``spark.readStream.format("holdfast-kafka")`` after ``register(spark)``.

From the outside in: `source` (what Spark looks up), `stream` and `batch` (its interfaces), `planner` (what a batch
reads), `cluster` (questions to the brokers), `stalls` (what waits for an open transaction), `reading`, `consumers` and
`cursor` (the tasks), `options` and `offsets` (data).
"""

from holdfast.source.kafka.source import FORMAT, KafkaDataSource, register

__all__ = ["FORMAT", "KafkaDataSource", "register"]
