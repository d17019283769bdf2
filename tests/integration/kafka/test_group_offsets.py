"""Lag tools see an idle query as long as it lives: brokers forget the offsets of a group without members."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.integration.kafka.kafka_world import KafkaWorld, eventually

from holdfast.clock import SystemClock
from holdfast.source.kafka.group_offsets import GroupOffsets

pytestmark = pytest.mark.spark
HOUR_MS = 3_600_000


@dataclass
class Ahead(SystemClock):
    ahead_ms: float = 0.0

    def elapsed_ms(self) -> float:
        return super().elapsed_ms() + self.ahead_ms


def test_a_query_that_waits_for_rows_tells_its_group_again_each_hour(kafka: KafkaWorld) -> None:
    """After a week without rows the group was gone."""
    topic, clock = kafka.topic(), Ahead()
    group, place = f"group-of-{topic}", (topic, 0)
    offsets = GroupOffsets({"bootstrap.servers": kafka.servers}, group, clock)

    def told() -> int | None:
        offsets.commit({place: 5})
        return kafka.group_offset(group, topic)

    eventually(lambda: told() == 5 and offsets._acknowledged == {place: 5})
    kafka.admin.delete_consumer_groups([group])[group].result(60)
    for _ in range(3):
        assert told() != 5
    clock.ahead_ms += HOUR_MS
    eventually(lambda: told() == 5)
    offsets.close()


def test_a_topic_that_is_refused_does_not_keep_the_others_from_being_told(
    kafka: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """All counted as refused: they were told again each second, for good, and the warning was of the whole query."""
    topic, clock = kafka.topic(), Ahead()
    group, gone = f"group-of-{topic}", f"never-made-{topic}"
    offsets = GroupOffsets({"bootstrap.servers": kafka.servers}, group, clock)

    def told() -> int | None:
        offsets.commit({(topic, 0): 5, (gone, 0): 7})
        return kafka.group_offset(group, topic)

    eventually(lambda: told() == 5 and "not committed" in caplog.text)
    assert f"{group} in topic {gone} were not committed" in caplog.text
    kafka.admin.delete_consumer_groups([group])[group].result(60)
    for _ in range(3):
        clock.ahead_ms += 2_000
        assert told() != 5
    clock.ahead_ms += 60_000
    eventually(lambda: told() == 5)
    offsets.close()
