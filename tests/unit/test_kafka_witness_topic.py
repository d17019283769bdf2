"""The topic of witnesses, seen by brokers that do not know it yet: what no broker does on demand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from holdfast.errors import InvalidRequest, Unavailable
from holdfast.sink.kafka import KafkaSink, fitness
from holdfast.sink.kafka.fitness import Fitness
from holdfast.sink.kafka.witness_topic import WitnessTopic

TOPIC = "forgets"


class _Answer:
    def __init__(self, found: Any) -> None:
        self._found = found

    def result(self) -> Any:
        if isinstance(self._found, int):
            raise KafkaException(KafkaError(self._found))
        return self._found


class _Admin:
    """Of a topic that somebody else has just made: the brokers that are asked hear of it after some questions."""

    def __init__(self, unknown: int) -> None:
        self._unknown = unknown

    def describe_topics(self, names: Any, **_: Any) -> Any:
        return {TOPIC: _Answer(KafkaError.UNKNOWN_TOPIC_OR_PART)}

    def list_topics(self, **_: Any) -> Any:
        return SimpleNamespace(brokers={1: None})

    def create_topics(self, new: Any, **_: Any) -> Any:
        return {TOPIC: _Answer(KafkaError.TOPIC_ALREADY_EXISTS)}

    def describe_configs(self, resources: list[Any], **_: Any) -> Any:
        self._unknown -= 1
        settings = {"cleanup.policy": "delete", "compression.type": "producer"}
        found = {name: SimpleNamespace(value=value) for name, value in settings.items()}
        return {resources[0]: _Answer(KafkaError.UNKNOWN_TOPIC_OR_PART if self._unknown >= 0 else found)}


def ensure(admin: _Admin, monkeypatch: pytest.MonkeyPatch, answer_within_ms: float = 60_000) -> None:
    monkeypatch.setattr(fitness, "_PAUSE_S", 0)
    monkeypatch.setattr(fitness, "learn_brokers", lambda admin: None)
    asking = Fitness(KafkaSink("broker:9092", "t").options, answer_within_ms=answer_within_ms)
    monkeypatch.setattr(Fitness, "admin", admin)
    WitnessTopic(TOPIC, asking).ensure(1)


@pytest.mark.parametrize("unknown", [0, 3])
def test_one_that_forgets_and_was_just_made_is_refused(unknown: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was taken as it was, since the broker that was asked for its settings did not know it yet."""
    with pytest.raises(InvalidRequest, match="cannot hold witnesses: it has cleanup.policy=delete"):
        ensure(_Admin(unknown), monkeypatch)


def test_one_that_no_broker_comes_to_know_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="did not describe topic forgets's settings"):
        ensure(_Admin(1_000_000), monkeypatch, answer_within_ms=50)
