"""What Spark's users write today: foreachBatch, and in each task an idempotent producer. It repeats what a task that
died, or a batch that was not committed, had sent already.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.eos_kafka_world import KafkaWorld
from tests.faults.eos_oracle import Visible

from holdfast.fault_points import reach

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming import StreamingQuery

#: The steps that it has, by the names of their counterparts.
STEPS = ("mid_batch", "before_handle", "after_handle", "sink_open", "sink_mid", "sink_before_prepare",
         "sink_after_prepare", "after_commit", "random")  # fmt: skip


class SparkPatternWorld(KafkaWorld):
    """The same input, the same operators, the same reader."""

    topics: Mapping[str, str] = {"by-kind": "kind"}

    def write(self, output: DataFrame, checkpoint: Path, trigger: Mapping[str, Any]) -> StreamingQuery:
        send = _sender(self._servers(), self.topics)

        def write_batch(batch: DataFrame, batch_id: int) -> None:
            batch.foreachPartition(send)
            reach("after_commit")

        writer = output.writeStream.foreachBatch(write_batch).option("checkpointLocation", str(checkpoint))
        return writer.trigger(**trigger).start()

    def committed(self) -> list[Visible]:
        return self.seen_in_topics()


def _sender(servers: str, topics: Mapping[str, str]) -> Callable[[Iterable[Row]], None]:
    def send(rows: Iterable[Row]) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        reach("sink_open")
        for row in rows:
            for topic, key in topics.items():
                producer.produce(topic, json.dumps(row.asDict()), row[key])
            producer.poll(0)
            reach("sink_mid")
        reach("sink_before_prepare")
        producer.flush()
        reach("sink_after_prepare")

    return send
