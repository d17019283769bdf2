"""Whose transactions a Kafka sink sweeps, and where it looks for their markers: what no broker does on demand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest
from tests.offline_wire import OfflineWire

from holdfast.commit.sink import Scope
from holdfast.errors import Fenced
from holdfast.kafka import wire as wire_module
from holdfast.kafka.transactional_ids import TransactionalId, driver_id, epoch_in_name
from holdfast.kafka.transactions import ONGOING, Prepared, Transaction, Transactions
from holdfast.sink.kafka import KafkaSink
from holdfast.sink.kafka.witness import Place

QUERY = "0f0f0f0f-0000-4000-8000-000000000000"
DRIVER = driver_id(QUERY, "kafka")


class AwayWire(OfflineWire):
    """All partitions have a leader, with nothing open, but the witnesses' fifth."""

    async def leaders_of(self, topics: Iterable[str], node: int | None = None) -> dict[tuple[str, int], int]:
        away = ("holdfast-witness", 5)
        return {(topic, number): -1 if (topic, number) == away else 1 for topic in topics for number in range(16)}

    async def know(self, node: int) -> None:
        assert node == 1

    async def send(self, request: Any, node: int) -> Any:
        def parts(numbers: list[int]) -> list[Any]:
            return [SimpleNamespace(partition_index=one, error_code=0, active_producers=[]) for one in numbers]

        topics = [SimpleNamespace(name=one.name, partitions=parts(one.partition_indexes)) for one in request.topics]
        return SimpleNamespace(topics=topics)


class KnownTransactions(Transactions):
    """One name, in one state, and the driver that took the sink over last: of producer epoch 5."""

    def __init__(self, epoch: int, state: str) -> None:
        super().__init__({}, 1000, AwayWire())
        self.name = str(TransactionalId(QUERY, "kafka", epoch_in_name(epoch, witnessed=True), 0, 0, 0))
        self.state, self.fenced = state, list[str]()

    def listing(self, pattern: str, states: Sequence[str] = (), prefix: str = "") -> list[tuple[str, str]]:
        return [(self.name, self.state)]

    def describe(self, transactional_ids: Sequence[str]) -> list[Transaction | None]:
        return [
            Transaction(one, self.state, 9, 5 if one == DRIVER else 0, 60_000, 0, 1, ()) for one in transactional_ids
        ]

    def fence(self, transactional_ids: Sequence[str], timeout_ms: int) -> None:
        self.fenced += transactional_ids


def sink_of(transactions: Transactions, monkeypatch: pytest.MonkeyPatch) -> KafkaSink:
    monkeypatch.setattr(wire_module.time, "sleep", lambda _: None)
    sink = KafkaSink("broker:9092", "t")
    monkeypatch.setattr(sink, "_transactions", lambda: transactions)
    return sink


def scope(epoch: int, producer_epoch: int) -> Scope:
    claim = {
        "driver": asdict(Prepared(DRIVER, 9, producer_epoch)),
        "witness": asdict(Place("holdfast-witness", "id", 2, 0)),
    }
    return Scope(QUERY, f"run-{epoch}", epoch, "kafka", claim)


@pytest.mark.parametrize("later", [4, 8, 15])
def test_an_overtaken_driver_takes_no_later_ones_transactions_for_those_of_long_ago(
    later: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hangs, while its successors crash and start: names are a ring, and each find made it look on."""
    transactions = KnownTransactions(10 + later, ONGOING)
    with pytest.raises(Fenced, match="Another driver took sink 'kafka'"):
        sink_of(transactions, monkeypatch).abort_late(scope(10, producer_epoch=4), own=False)
    assert transactions.fenced == []


def test_the_owner_sweeps_what_drivers_before_it_open_late(monkeypatch: pytest.MonkeyPatch) -> None:
    transactions = KnownTransactions(10, ONGOING)
    assert sink_of(transactions, monkeypatch).abort_late(scope(12, producer_epoch=5), own=False) == 1
    assert transactions.fenced == [transactions.name]


def test_a_partition_of_others_witnesses_that_has_no_leader_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    transactions = KnownTransactions(14, "CompleteCommit")
    assert sink_of(transactions, monkeypatch).recover(scope(15, producer_epoch=5), ()) == 0
