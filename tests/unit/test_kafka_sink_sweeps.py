"""Whose transactions a Kafka sink sweeps, and where it looks for their markers: what no broker does on demand."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest
from tests.offline_wire import OfflineWire

from holdfast.commit.sink import Committable, Scope
from holdfast.errors import Fenced, Unavailable
from holdfast.kafka.transactional_ids import EPOCH_RING, TransactionalId, driver_id, epoch_in_name
from holdfast.kafka.transactions import EMPTY, ONGOING, Prepared, Transaction, Transactions
from holdfast.sink.kafka import KafkaSink
from holdfast.sink.kafka.witness import Place, Witnesses

QUERY = "0f0f0f0f-0000-4000-8000-000000000000"
DRIVER = driver_id(QUERY, "kafka")


class AwayWire(OfflineWire):
    """All partitions have a leader, with nothing open, but the witnesses' fifth."""

    async def leaders_of(
        self, topics: Iterable[str], node: int | None = None, *, must_see: bool = False
    ) -> dict[tuple[str, int], int]:
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
        self.state, self.fenced, self.fenced_as_found = state, list[str](), list[Prepared]()

    def listing(self, pattern: str, states: Sequence[str] = (), prefix: str = "") -> list[tuple[str, str]]:
        return [(self.name, self.state)]

    def describe(self, transactional_ids: Sequence[str]) -> list[Transaction | None]:
        return [
            Transaction(one, self.state, 9, 5 if one == DRIVER else 0, 60_000, 0, 1, ()) for one in transactional_ids
        ]

    def fence(self, transactional_ids: Sequence[str], timeout_ms: int) -> None:
        self.fenced += transactional_ids

    def fence_as_found(self, found: Sequence[Prepared]) -> list[Prepared]:
        self.fenced_as_found += found
        return list(found)


def sink_of(transactions: Transactions, monkeypatch: pytest.MonkeyPatch) -> KafkaSink:
    monkeypatch.setattr(time, "sleep", lambda _: None)
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
        sink_of(transactions, monkeypatch).abort_late(scope(10, producer_epoch=4), (), own=False)
    assert transactions.fenced == []


def test_the_owner_sweeps_what_drivers_before_it_open_late(monkeypatch: pytest.MonkeyPatch) -> None:
    transactions = KnownTransactions(10, ONGOING)
    assert sink_of(transactions, monkeypatch).abort_late(scope(12, producer_epoch=5), (), own=False) == 1
    assert transactions.fenced == [transactions.name]


@pytest.mark.parametrize("sweep", ["late", "late, between batches", "at a start"])
@pytest.mark.parametrize(("epoch", "ago"), [(40, 13), (40, 14), (40, 15), (14, 13), (40, 16)])
def test_what_may_be_a_newer_drivers_is_swept_only_where_its_witness_says_otherwise(
    epoch: int, ago: int, sweep: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stalled readers until its time limit, and no start came past its witness. Never by its name alone: that may
    be of somebody else when the brokers are asked.
    """
    # Under this driver's own names all is a stray, but while a batch is at work.
    by_name_alone = ago == EPOCH_RING and sweep != "late"
    witnessed: dict[Prepared, int] = {}
    monkeypatch.setattr(Witnesses, "epochs_of", lambda *_: witnessed)
    for said, aborted in ((None, 0), (epoch + EPOCH_RING - ago, 0), (epoch, 0), (epoch - ago, 1)):
        transactions = KnownTransactions(epoch - ago, ONGOING)
        one = Prepared(transactions.name, 9, 0)
        witnessed.clear()
        witnessed.update({one: said} if said is not None else {})
        sink, mine = sink_of(transactions, monkeypatch), scope(epoch, producer_epoch=5)
        found = sink.recover(mine, ()) if sweep == "at a start" else sink.abort_late(mine, (), own=sweep != "late")
        if by_name_alone:
            assert (found, transactions.fenced, transactions.fenced_as_found) == (1, [transactions.name], [])
        else:
            assert (found, transactions.fenced, transactions.fenced_as_found) == (aborted, [], [one] * aborted), said


@pytest.mark.parametrize("at_a_start", [False, True])
def test_a_witness_that_is_away_keeps_nobody_from_aborting_what_is_told_by_its_name(
    at_a_start: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise Unavailable("no leader")

    class Two(KnownTransactions):
        def listing(self, pattern: str, states: Sequence[str] = (), prefix: str = "") -> list[tuple[str, str]]:
            return [
                (self.name, ONGOING),
                (str(TransactionalId(QUERY, "kafka", (40 - 13) % EPOCH_RING, 0, 0, 0)), ONGOING),
            ]

    monkeypatch.setattr(Witnesses, "epochs_of", away)
    transactions = Two(39, ONGOING)
    sink, mine = sink_of(transactions, monkeypatch), scope(40, producer_epoch=5)
    with pytest.raises(Unavailable, match="no leader"):
        sink.recover(mine, ()) if at_a_start else sink.abort_late(mine, (), own=False)
    assert transactions.fenced == [transactions.name]


def test_what_a_record_names_is_kept_by_whichever_driver_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    transactions = KnownTransactions(26, ONGOING)
    one = Prepared(transactions.name, 9, 0)
    monkeypatch.setattr(Witnesses, "epochs_of", lambda *_: {one: 26})
    kept = Committable(
        0, 0, 1, 1, {name: getattr(one, name) for name in ("transactional_id", "producer_id", "producer_epoch")}
    )
    assert sink_of(transactions, monkeypatch).recover(scope(40, producer_epoch=5), [kept]) == 0
    assert transactions.fenced_as_found == []


def test_witnesses_are_asked_for_only_where_there_was_such_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that was started a few times looks every few seconds, and has its own transactions open."""
    monkeypatch.delattr(Witnesses, "epochs_of")
    for epoch, named in ((16, 16), (12, 13), (12, 15)):
        transactions = KnownTransactions(named, ONGOING)
        assert sink_of(transactions, monkeypatch).abort_late(scope(epoch, producer_epoch=5), (), own=False) == 0


def test_a_partition_of_others_witnesses_that_has_no_leader_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    transactions = KnownTransactions(14, "CompleteCommit")
    assert sink_of(transactions, monkeypatch).recover(scope(15, producer_epoch=5), ()) == 0


class SeveralSinks(KnownTransactions):
    """Names of several sinks, by (sink, epoch) and state; what is open has written to a topic."""

    def __init__(self, **found: str) -> None:
        super().__init__(40, ONGOING)
        self.found = {}
        for told, state in found.items():
            sink, _, epoch = told.rpartition("_")
            self.found[str(TransactionalId(QUERY, sink, epoch_in_name(int(epoch), witnessed=True), 0, 0, 0))] = state

    def listing(self, pattern: str, states: Sequence[str] = (), prefix: str = "") -> list[tuple[str, str]]:
        return sorted((name, state) for name, state in self.found.items() if not states or state in states)

    def ended(self) -> list[str]:
        return [name.removeprefix(f"holdfast-{QUERY}-").partition("-e")[0] for name in self.fenced]


#: What a record has of a sink in the mode exactly-once.
IN_TRANSACTIONS = [Committable(0, 0, 1, 1, {"transactional_id": "of a former batch"})]


@pytest.mark.parametrize(
    ("mode", "ended"), [("exactly-once", ["old", "old"]), ("at-least-once", ["kafka", "kafka", "old", "old"])]
)
def test_a_sink_ends_what_former_ones_have_open_and_leaves_that_of_all_others(
    mode: Any, ended: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the drivers before this one only: one after it may have sinks of its own. In another mode: its own, too."""
    transactions = SeveralSinks(
        old_39=ONGOING, old_29=ONGOING, old_37=EMPTY, old_30=EMPTY, old_38="CompleteCommit", old_41=ONGOING,
        kafka_39=ONGOING, kafka_38=EMPTY, other_39=ONGOING,
    )  # fmt: skip
    monkeypatch.setattr(Witnesses, "epochs_of", lambda *_: {})
    sink = KafkaSink("broker:9092", "t", mode=mode)
    monkeypatch.setattr(sink, "_transactions", lambda: transactions)
    found = sink.abort_former(scope(40, producer_epoch=5), {"kafka", "other"}, IN_TRANSACTIONS)
    assert transactions.ended() == sorted([*ended, "old"])
    assert found == len(ended) - (mode == "at-least-once")


def test_after_a_batch_only_what_this_drivers_tasks_may_begin_is_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """With each failed attempt, all names of eight drivers were fenced anew, a write of the coordinator's for each."""
    monkeypatch.setattr(Witnesses, "epochs_of", lambda *_: {})
    transactions = SeveralSinks()

    def name(epoch: int, partition: int, attempt: int, state: str = EMPTY) -> str:
        made = str(TransactionalId(QUERY, "kafka", epoch_in_name(epoch, witnessed=True), partition, 0, attempt))
        transactions.found[made] = state
        return made

    opened = [name(39, 0, 0, ONGOING), name(40, 3, 1, ONGOING), name(28, 0, 0, ONGOING)]
    begun = [name(40, 1, 0), name(40, 2, 1)]
    ended = [name(40, 0, 0), name(40, 2, 0, "CompleteCommit"), name(40, 1, 1), name(39, 1, 0), name(38, 5, 1)]
    sink, mine = sink_of(transactions, monkeypatch), scope(40, producer_epoch=5)
    assert sink.recover_between(mine, (), {(0, 0), (1, 1), (2, 0), (3, 0)}) == 3
    assert sorted(transactions.fenced) == sorted([*opened, *begun])
    transactions.fenced.clear()
    assert sink.recover(mine, ()) == 3
    assert sorted(transactions.fenced) == sorted([*opened, *begun, *ended[:1], *ended[2:]])


def test_who_never_had_transactions_needs_no_permission_for_any(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refused(*_: object, **__: object) -> list[tuple[str, str]]:
        asked.append(1)
        raise Unavailable("TRANSACTIONAL_ID_AUTHORIZATION_FAILED")

    transactions = SeveralSinks()
    monkeypatch.setattr(transactions, "listing", refused)
    for mode in ("at-least-once", "none"):
        sink = KafkaSink("broker:9092", "t", mode=mode)  # type: ignore[arg-type]
        monkeypatch.setattr(sink, "_transactions", lambda: transactions)
        # Asked only where there may have been transactions, and then as far as it may be.
        plain = [Committable(0, 0, 1, 1, {"mode": mode})]
        for epoch, newest, asks in ((1, [], 0), (2, plain, 0), (2, [], 1), (2, IN_TRANSACTIONS, 1)):
            asked.clear()
            assert sink.abort_former(Scope(QUERY, "run", epoch, "kafka"), {"kafka"}, newest) == 0
            assert len(asked) == asks
    with pytest.raises(Unavailable, match="AUTHORIZATION"):
        sink_of(transactions, monkeypatch).abort_former(scope(40, producer_epoch=5), {"kafka"}, [])
