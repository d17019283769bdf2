"""Whether rows are gone before they are committed: what no broker does on demand. With a real one:
tests/integration/kafka/test_witnesses.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.offline_wire import OfflineWire

from holdfast.errors import Unavailable
from holdfast.kafka.presence import GONE_AFTER_MS, Presence
from holdfast.kafka.transactions import Prepared, Readiness, Transaction, Transactions
from holdfast.kafka.wire import NO_TOPIC_ID, Wire

ONE, TWO = Prepared("one", 7, 3), Prepared("two", 8, 0)


class LeadersWire(OfflineWire):
    """Partitions ``t-0`` and ``t-1`` led by broker 1, and who has a transaction open in each.

    ``codes``: what DescribeProducers answers, look by look; the last one stays.
    """

    def __init__(self, opened: dict[int, set[int]], codes: tuple[int, ...] = (0,)) -> None:
        super().__init__()
        self.opened, self.codes, self.looks = opened, list(codes), 0
        self.ids = ["first"]  # of the topic, look by look; the last one stays

    def elapsed_ms(self) -> float:
        self.now_ms_ += 100
        return self.now_ms_

    async def leaders_of(
        self, topics: Iterable[str], node: int | None = None, *, must_see: bool = False
    ) -> dict[tuple[str, int], int]:
        return {(topic, number): 1 for topic in topics for number in self.opened}

    async def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        assert set(topics) == {"t"}
        found = self.ids.pop(0) if len(self.ids) > 1 else self.ids[0]
        return {"t": found} if found else {}

    async def know(self, node: int) -> None:
        assert node == 1

    async def send(self, request: Any, node: int) -> Any:
        self.looks += 1
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        parts = [
            SimpleNamespace(
                partition_index=number,
                error_code=code,
                active_producers=[
                    SimpleNamespace(producer_id=one, producer_epoch=0, coordinator_epoch=0, current_txn_start_offset=5)
                    for one in self.opened[number]
                ],
            )
            for number in request.topics[0].partition_indexes
        ]
        return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=parts)])


def missing(
    wire: LeadersWire, *states: str, monkeypatch: pytest.MonkeyPatch, begun_in: str | None = None
) -> dict[Prepared, list[tuple[str, int]]]:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    prepared = (ONE, TWO)[: len(states)]
    known = {
        one.transactional_id: Transaction(
            one.transactional_id, state, one.producer_id, one.producer_epoch, 60_000, 0, 1, (("t", 0), ("t", 1))
        )
        for one, state in zip(prepared, states)
    }
    transactions = Transactions({}, 10_000, wire)
    return Presence(transactions, wire).missing(
        prepared, Readiness({}, known), {ONE: {"t": begun_in}} if begun_in else {}
    )


def test_what_is_open_with_all_its_leaders_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = LeadersWire({0: {7, 8}, 1: {7, 8}})
    assert missing(wire, "Ongoing", "Ongoing", monkeypatch=monkeypatch) == {}
    assert wire.looks == 1, "one question a leader"


def test_what_a_leader_does_not_know_of_is_gone_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has just started may know of nothing for a moment."""
    wire = LeadersWire({0: {7, 8}, 1: {7}})
    assert missing(wire, "Ongoing", "Ongoing", monkeypatch=monkeypatch) == {TWO: [("t", 1)]}
    assert wire.now_ms_ > GONE_AFTER_MS
    assert missing(LeadersWire({0: {7}}), "Ongoing", monkeypatch=monkeypatch) == {ONE: [("t", 1)]}


class MetadataWire(LeadersWire):
    """One whose broker answers Metadata with a code for the topic."""

    leaders_of = Wire.leaders_of  # type: ignore[assignment]

    def __init__(self, *codes: int) -> None:
        super().__init__({}, codes)

    async def _any_broker(self) -> int:
        return 1

    async def send(self, request: Any, node: int) -> Any:
        self.looks += 1
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        return SimpleNamespace(topics=[SimpleNamespace(name="t", error_code=code, partitions=[])])


def test_a_topic_that_this_user_must_not_see_any_more_is_not_one_that_was_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its permission was taken away when tasks had written: all was aborted, and a deleted topic was looked for."""
    with pytest.raises(Unavailable, match="refuses a description of topic t: TOPIC_AUTHORIZATION_FAILED.*Grant it"):
        missing(MetadataWire(29), "Ongoing", monkeypatch=monkeypatch)
    with pytest.raises(Unavailable, match="did not show what is to be committed .* topic t: error 5"):
        missing(MetadataWire(5), "Ongoing", monkeypatch=monkeypatch)
    assert missing(MetadataWire(5, 3), "Ongoing", monkeypatch=monkeypatch) == {ONE: [("t", 0), ("t", 1)]}


def test_who_only_looks_for_strays_leaves_out_what_it_must_not_see() -> None:
    """A query goes on that has another topic now, and no permission for the former one."""
    wire = MetadataWire(29)
    assert wire.call("look", 1000, lambda: wire.leaders_of(["t"])) == {}


def test_what_has_ended_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = LeadersWire({0: set(), 1: set()})
    for state in ("CompleteCommit", "PrepareCommit", "Empty"):
        assert missing(wire, state, monkeypatch=monkeypatch) == {}
    assert wire.looks == 0


def test_a_leader_that_moves_is_asked_again_and_one_that_must_not_tell_is_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = LeadersWire({0: {7}, 1: {7}}, codes=(6, 0))
    assert missing(wire, "Ongoing", monkeypatch=monkeypatch) == {}
    assert missing(LeadersWire({0: set(), 1: set()}, codes=(29,)), "Ongoing", monkeypatch=monkeypatch) == {}
    with pytest.raises(Unavailable, match="NOT_LEADER"):
        missing(LeadersWire({0: {7}, 1: {7}}, codes=(6,)), "Ongoing", monkeypatch=monkeypatch)


def test_a_leader_that_was_away_and_knows_of_nothing_when_it_is_back_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time in which it says so counts, not the time until it says anything."""
    wire = LeadersWire({0: {7}, 1: {7}}, codes=(*[6] * 15, 3, 0))
    assert missing(wire, "Ongoing", monkeypatch=monkeypatch) == {}
    assert wire.now_ms_ > GONE_AFTER_MS


@pytest.mark.parametrize("may_look", [True, False])
def test_what_was_begun_in_a_topic_of_another_id_is_gone_though_it_is_open(
    may_look: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic was made again while the task wrote, and its producer went on in the new one."""

    def gone(*ids: str, begun_in: str = "first") -> dict[Prepared, list[tuple[str, int]]]:
        wire = LeadersWire({0: {7, 8}, 1: {7, 8}}, codes=(0 if may_look else 29,))
        wire.ids = list(ids)
        return missing(wire, "Ongoing", "Ongoing", monkeypatch=monkeypatch, begun_in=begun_in)

    assert gone("first") == {}
    assert gone("second") == {ONE: [("t", 0), ("t", 1)]}, "of the other one nobody knows where it was begun"
    assert gone("second", "first") == {}, "a broker that has yet to learn"
    assert gone("") == {}, "what there is not is told by its partitions"
    for unknown in NO_TOPIC_ID:
        assert gone(unknown) == gone("second", begun_in=unknown) == {}, "brokers that know no ids, before an upgrade"
