"""What is said of partitions in which an open transaction holds readers back: which, how often, and of no others."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import pytest

from holdfast.source.kafka.stalls import StallWatch
from holdfast.source.kafka.subscription import Partition

A, B = ("a", 0), ("b", 1)


class Scene:
    """A clock, and what the brokers would say."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.high: dict[Partition, int] = {}
        self.asked: list[list[Partition]] = []
        self.watch = StallWatch(self.high_watermarks, self)

    def now_ms(self) -> int:
        return 1_800_000_000_000 + int(self.ms)

    def elapsed_ms(self) -> float:
        return self.ms

    def high_watermarks(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        self.asked.append(list(partitions))
        return {key: self.high[key] for key in partitions if key in self.high}

    def batches(self, stable: Mapping[Partition, int], seconds: int) -> None:
        """One a second."""
        for _ in range(seconds):
            self.watch.look(stable)
            self.ms += 1000


@pytest.fixture
def scene(caplog: pytest.LogCaptureFixture) -> Scene:
    caplog.set_level(logging.WARNING, "holdfast.kafka")
    return Scene()


def test_a_partition_that_waits_is_said_once_and_now_and_then(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.high = {A: 9, B: 7}
    scene.batches({A: 5, B: 7}, 30)
    assert caplog.messages == []
    scene.batches({A: 5, B: 7}, 290)
    [said] = caplog.messages
    assert "a-0 has waited for 30 s at offset 5" in said
    assert "high watermark is 9" in said
    assert "transactions list" in said
    scene.batches({A: 5, B: 7}, 300)
    assert len(caplog.messages) == 2
    assert set(scene.watch.waiting()) == {A}


def test_what_moves_does_not_wait(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """A writer that always has a transaction open, as one of exactly-once output has."""
    for second in range(200):
        scene.high = {A: second + 3}
        scene.batches({A: second}, 1)
    assert scene.watch.waiting() == {}
    assert caplog.messages == []
    assert scene.asked == []


def test_its_time_counts_anew_when_it_went_on(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.high = {A: 9}
    scene.batches({A: 5}, 25)
    assert set(scene.watch.waiting()) == {A}
    scene.batches({A: 6}, 1)
    assert scene.watch.waiting() == {}
    scene.batches({A: 6}, 25)
    assert caplog.messages == []
    scene.batches({A: 6}, 30)
    scene.batches({A: 9}, 1)
    assert [("has waited" in said, "goes on at offset 6" in said) for said in caplog.messages] == [
        (True, False),
        (False, True),
    ]


def test_an_idle_topic_is_asked_about_every_few_seconds_only(scene: Scene) -> None:
    scene.high = {A: 5}
    scene.batches({A: 5}, 100)
    assert 15 <= len(scene.asked) <= 20
    assert scene.watch.waiting() == {}


def test_a_partition_that_is_gone_is_forgotten(scene: Scene) -> None:
    scene.high = {A: 9}
    scene.batches({A: 5}, 12)
    assert set(scene.watch.waiting()) == {A}
    scene.batches({B: 5}, 130)
    assert scene.watch.waiting() == {}


def test_a_partition_that_waits_is_told_with_all_that_waits_there(scene: Scene) -> None:
    scene.batches({A: 5}, 20)
    scene.high = {A: 9}
    scene.batches({A: 5}, 13)
    scene.high = {A: 12}
    scene.batches({A: 5}, 10)
    assert scene.watch.waiting() == {
        A: {
            "last_stable_offset": 5,
            "high_watermark": 12,
            "since_ms": 1_800_000_020_000,
            "waiting_ms": 23_000,
        }
    }


def test_a_partition_without_a_leader_for_a_while_waits_as_it_did(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """An alarm on how long it waits would have missed it."""
    scene.high = {A: 9}
    scene.batches({A: 5}, 60)
    caplog.clear()
    for unheard in (1, 20):
        scene.batches({}, unheard)
        assert scene.watch.waiting()[A]["waiting_ms"] >= 50_000
        scene.batches({A: 5}, 10)
    assert scene.watch.waiting()[A]["since_ms"] < 1_800_000_000_000 + 10_000
    assert caplog.messages == []


def test_a_log_that_lost_what_waited_is_not_said_to_wait_for_ever(scene: Scene) -> None:
    scene.high = {A: 9}
    scene.batches({A: 5}, 12)
    assert set(scene.watch.waiting()) == {A}
    scene.high = {A: 5}
    scene.batches({A: 5}, 12)
    assert scene.watch.waiting() == {}


def test_one_run_says_what_it_leaves_to_the_next(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.high = {A: 9, B: 7}
    scene.watch.tell_of_one_run({A: 5, B: 7})
    [said] = caplog.messages
    assert "a-0 is read up to offset 5 in this run" in said
    assert "left to the next run" in said
    assert set(scene.watch.waiting()) == {A}
    scene.batches({A: 5, B: 7}, 1)
    assert set(scene.watch.waiting()) == {A}
