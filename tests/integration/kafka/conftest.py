"""One Kafka broker for all tests that need one. Without Java or Maven they fail, and say so; nothing is skipped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from holdfast.testing import KafkaBroker

if TYPE_CHECKING:
    from tests.integration.kafka.kafka_world import KafkaWorld

    from holdfast.source.kafka.consumers import ConsumerPool


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(settings={"log.initial.task.delay.ms": "500"}) as running:
        yield running


@pytest.fixture(scope="session")
def kafka(broker: KafkaBroker) -> KafkaWorld:
    from tests.integration.kafka.kafka_world import KafkaWorld

    return KafkaWorld(broker)


@pytest.fixture
def pool() -> Iterator[ConsumerPool]:
    from holdfast.source.kafka.consumers import ConsumerPool

    consumers = ConsumerPool()
    yield consumers
    consumers.clear()
