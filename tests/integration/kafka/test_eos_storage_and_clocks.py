"""Batches committed to Kafka while the checkpoint folder refuses, forgets its answers or is slow, and clocks jump."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.faulty_file_store import FaultyFileStore
from tests.integration.kafka.kafka_world import KafkaWorld
from tests.kafka_query import KafkaQuery, crashes, listen, side_by_side

from holdfast.clock import SystemClock
from holdfast.errors import Unavailable
from holdfast.storage import open_file_store

MakeQuery = Callable[..., KafkaQuery]
_WRITES = ("create_if_absent", "delete")
_HOUR_MS = 3_600_000
_RARER_AND_RARER = [number * (number + 3) // 2 for number in range(1, 30)]  # 2, 5, 9, 14, …


@pytest.fixture
def make(kafka: KafkaWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeQuery:
    """A query of its own."""
    numbers = itertools.count()
    listen(monkeypatch)

    def made(**given: Any) -> KafkaQuery:
        topic = kafka.topic(partitions=2, name=f"eos-{uuid.uuid4().hex[:8]}")
        return KafkaQuery(kafka.servers, topic, tmp_path / str(next(numbers)), **given)

    return made


def writes_of_a_query(make: MakeQuery, **given: Any) -> int:
    """How many writes it makes when nothing fails."""
    query = make(batches=3, **given)
    store = query.store = FaultyFileStore(query.store, only=_WRITES)
    assert query.start() is None
    query.check()
    return store.count


@pytest.mark.parametrize("fail_after", [False, True], ids=["refused", "answer lost"])
def test_checkpoint_storage_that_fails_at_each_write(make: MakeQuery, fail_after: bool) -> None:
    """The driver gives up at once; the next start goes on. Each write in turn: the epoch, and each batch's record."""
    writes = writes_of_a_query(make)
    assert writes >= 4

    def fail(failing: int) -> None:
        query = make(batches=3, retry_max_ms=0)
        query.store = FaultyFileStore(query.store, fail_at=[failing], fail_after=fail_after, only=_WRITES)
        query.run_to_the_end()
        assert isinstance(query.ends[0], Unavailable), f"write {failing}"
        query.check()

    side_by_side(*[partial(fail, failing) for failing in range(1, writes + 1)])


@pytest.mark.parametrize("fail_after", [False, True], ids=["refused", "answer lost"])
def test_checkpoint_storage_that_fails_at_each_write_and_is_tried_again(make: MakeQuery, fail_after: bool) -> None:
    """Within commit.retry.max nobody notices."""
    query = make()
    query.store = FaultyFileStore(
        query.store, fail_at=lambda count: count % 2 == 1, fail_after=fail_after, only=_WRITES
    )
    assert query.start() is None
    query.check()


@pytest.mark.parametrize("operation", ["get", "list"])
def test_checkpoint_storage_that_fails_at_each_read(make: MakeQuery, operation: str) -> None:
    query = make(retry_max_ms=0)
    store = query.store = FaultyFileStore(query.store, fail_at=_RARER_AND_RARER, only=(operation,))
    query.run_to_the_end(starts=40)
    assert store.count >= 3
    assert len(query.ends) > 1
    query.check()


def test_checkpoint_storage_that_fails_when_a_driver_recovers(make: MakeQuery) -> None:
    """The first driver died with a record; each operation of the next ones fails in turn."""
    query = make(retry_max_ms=0)
    query.strike("mid_commit", query.crash)
    query.start()
    inner = query.store
    for failing in range(1, 9):
        query.store = FaultyFileStore(inner, fail_at=[failing])
        query.start()
        if query.committed == query.batches:
            break
    query.store = inner
    query.run_to_the_end(starts=20)
    assert crashes(query.ends) == 1
    query.check()


def test_checkpoint_storage_that_is_slow(make: MakeQuery) -> None:
    query = make()
    query.store = FaultyFileStore(query.store, delay_s=0.05)
    assert query.start() is None
    query.check()


def test_checkpoint_storage_so_slow_that_transactions_time_out(make: MakeQuery) -> None:
    """The record comes when the transactions it names are gone: all that it names is lost, and written again."""
    query = make(batches=3, options={"kafka.transaction.timeout.ms": 1000})
    query.strike("before_record", query.wait_until_aborted)
    inner, query.store = query.store, FaultyFileStore(query.store, delay_s=0.05)
    assert isinstance(query.start(), Unavailable)
    query.store = inner
    query.run_to_the_end()
    query.check()


class JumpingClock(SystemClock):
    """An hour forward, an hour back, at each look."""

    def __init__(self) -> None:
        self.looks = 0

    def now_ms(self) -> int:
        self.looks += 1
        return super().now_ms() + (_HOUR_MS if self.looks % 2 else -_HOUR_MS)


@pytest.mark.parametrize("left_by", ["sink_after_prepare", "after_record", "mid_commit"])
def test_the_clock_jumps_an_hour_at_each_look(make: MakeQuery, monkeypatch: pytest.MonkeyPatch, left_by: str) -> None:
    """The product's clock, and the one that every library in this process would ask; with a driver that dies."""
    query = make(clock=JumpingClock())
    looks, now, now_ns = itertools.count(), time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: now() + (3600 if next(looks) % 2 else -3600))
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + (1 if next(looks) % 2 else -1) * 3600 * 10**9)
    query.strike(left_by, query.crash)
    query.run_to_the_end()
    assert crashes(query.ends) == 1
    query.check()


@pytest.mark.parametrize("hours", [-1, 1])
def test_the_clock_of_the_next_driver_is_an_hour_off(
    make: MakeQuery, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """Another machine takes over: who is newer is told by the epoch, not by when it was started."""
    query = make()
    query.strike("after_record", query.crash)
    query.start()
    now_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + hours * 3600 * 10**9)
    query.store = open_file_store(str(query.folder))
    assert query.start() is None
    query.check()
