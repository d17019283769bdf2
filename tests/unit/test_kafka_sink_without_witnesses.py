"""A Kafka sink without witnesses, as a late task takes the name of what is visible: by the coordinator's own rules.

One crash at an unlucky moment, which no broker has on demand: `tests/integration/kafka/test_witnesses.py` has
those that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from tests.offline_wire import OfflineWire

from holdfast.commit.sink import Committable, Outcome, Scope, SinkTask
from holdfast.kafka.markers import Markers
from holdfast.kafka.transactional_ids import TransactionalId
from holdfast.kafka.transactions import _ANSWERS, Answer, Prepared, Readiness, Transaction, Transactions
from holdfast.sink.kafka import KafkaSink, transactional_writer
from holdfast.sink.kafka.transactional_writer import TransactionalWriter

QUERY = "0f0f0f0f-0000-4000-8000-000000000000"
NAME = str(TransactionalId(QUERY, "kafka", 1, 0, 0, 0))
RECORDED = Committable(0, 0, 1, 1, {"transactional_id": NAME, "producer_id": 7, "producer_epoch": 5, "topics": ["t"]})


class Coordinator(Transactions):
    """One id, as `TransactionCoordinator` keeps it: prepared at epoch 5."""

    def __init__(self) -> None:
        super().__init__({}, 1000, OfflineWire())
        self.state, self.epoch, self.fences = "Ongoing", 5, 0

    def initialise(self) -> None:
        self.epoch += 2 if self.state == "Ongoing" else 1
        self.state = "Empty"

    def end_one(self, epoch: int, commit: bool) -> int:
        wanted = "CompleteCommit" if commit else "CompleteAbort"
        if epoch != self.epoch:
            return 90
        if self.state == "Ongoing":
            self.state = wanted
        return 0 if self.state == wanted else 48

    def listing(self, pattern: str, states: Sequence[str] = (), prefix: str = "") -> list[tuple[str, str]]:
        return [(NAME, self.state)] if not states or self.state in states else []

    async def described(self, transactional_ids: Sequence[str]) -> list[Transaction | None]:
        known = Transaction(NAME, self.state, 7, self.epoch, 60_000, -1, 1, ())
        return [known if name == NAME else None for name in transactional_ids]

    def fence(self, transactional_ids: Sequence[str], timeout_ms: int) -> None:
        for _ in transactional_ids:
            self.fences += 1
            self.initialise()

    def wait_until_ready(self, prepared: Sequence[Prepared], others: Sequence[str] = ()) -> Readiness:
        return Readiness(None, {NAME: self.describe([NAME])[0]})

    def end(self, prepared: Sequence[Prepared], commit: bool, *, ready: bool = False) -> list[Answer]:
        return [_ANSWERS[self.end_one(one.producer_epoch, commit)] for one in prepared]

    async def _ended_before(self, contested: Sequence[Prepared], known: Any) -> list[Prepared]:
        return list(contested)  # not open in any partition: whoever has begun another is


def opens(coordinator: Coordinator) -> None:
    coordinator.initialise()


def writes(coordinator: Coordinator) -> None:
    coordinator.initialise()
    coordinator.state = "Ongoing"


def scope(run: int) -> Scope:
    return Scope(QUERY, f"run-{run}", run, "kafka")


def recovers(sink: KafkaSink) -> None:
    """As the next start does, when it claims the sink and once more before its first task."""
    sink.recover(scope(2), [RECORDED])


def recovers_between(sink: KafkaSink) -> None:
    sink.recover_between(scope(1), [RECORDED], {(0, 0)})


def looks_for_its_own(sink: KafkaSink) -> None:
    sink.abort_late(scope(1), [RECORDED], own=True)


def looks_for_earlier_ones(sink: KafkaSink) -> None:
    sink.abort_late(scope(2), [RECORDED], own=False)


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    for settles in ("wait_for", "sweep"):
        monkeypatch.setattr(Markers, settles, lambda *_, **__: None)
    return Coordinator()


def sink_of(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> KafkaSink:
    sink = KafkaSink("broker:9092", "t", witness_topic=None)
    monkeypatch.setattr(sink, "_transactions", lambda: coordinator)
    return sink


@pytest.mark.parametrize("sweep", [recovers, recovers_between, looks_for_its_own, looks_for_earlier_ones])
@pytest.mark.parametrize("late", [opens, writes])
def test_no_sweep_makes_what_is_visible_look_lost(
    late: Callable[[Coordinator], None],
    sweep: Callable[[KafkaSink], None],
    coordinator: Coordinator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It fenced the late task under the name that the record has: the next start took that for the end of what it had
    committed, and wrote all of it again.
    """
    sink = sink_of(coordinator, monkeypatch)
    assert sink.commit(scope(1), [RECORDED]) == [Outcome.DONE]
    late(coordinator)
    for _ in range(2):
        sweep(sink)
        assert sink.commit(scope(2), [RECORDED]) == [Outcome.DONE]
    assert coordinator.fences == 0


@pytest.mark.parametrize("sweep", ["recover", "between", "own", "earlier"])
def test_once_spark_has_the_batch_a_late_task_under_its_name_is_a_stray(
    sweep: str, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_of(coordinator, monkeypatch)
    sink.commit(scope(1), [RECORDED])
    writes(coordinator)
    strays = {
        "recover": lambda: sink.recover(scope(2), []),
        "between": lambda: sink.recover_between(scope(1), [], {(0, 0)}),
        "own": lambda: sink.abort_late(scope(1), [], own=True),
        "earlier": lambda: sink.abort_late(scope(2), [], own=False),
    }[sweep]()
    assert (strays, coordinator.fences) == (1, 1)


def test_what_a_late_task_took_before_it_was_visible_is_lost(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_of(coordinator, monkeypatch)
    writes(coordinator)
    recovers(sink)
    assert sink.commit(scope(2), [RECORDED]) == [Outcome.LOST]


class Producer:
    """What a writer has of one."""

    def __init__(self, *_: object) -> None:
        self.client, self.aborts, self.was_dropped = self, 0, False

    def begin(self) -> None:
        pass

    def send(self, *_: object) -> None:
        pass

    def send_one(self, *_: object) -> None:
        pass

    def abort_transaction(self, _: float) -> None:
        self.aborts += 1

    def drop(self) -> None:
        self.was_dropped = True

    def wait(self) -> None:
        pass

    wait_whatever_comes = wait


PLACE = {"topic": "holdfast-witness", "topic_id": "id", "partition": 2, "since": 0}


@pytest.mark.parametrize("witness_topic", ["holdfast-witness", None])
def test_a_writer_without_a_witness_aborts_nothing_by_request(
    witness_topic: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late one took the name of what was visible and aborted: that looked like a time limit of what was visible."""
    producer = Producer()
    monkeypatch.setattr(transactional_writer, "SendingProducer", lambda *_: producer)
    monkeypatch.setattr(transactional_writer, "Initialisation", Producer)
    sink = KafkaSink("broker:9092", "t", key=None, witness_topic=witness_topic)
    owner = Scope(QUERY, "run-1", 1, "kafka", {"witness": PLACE} if witness_topic else {})
    writer = TransactionalWriter(sink.options, SinkTask(owner, 0, 0, 0, 9))
    writer.write(pa.record_batch({"value": ["v"]}))
    writer.abort()
    assert (producer.aborts, producer.was_dropped) == (int(witness_topic is not None), True)
