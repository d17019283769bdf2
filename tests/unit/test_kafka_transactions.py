"""What an answer to EndTxn means, and what is asked again: codes that no broker gives on demand."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.admin.transactions import DescribeProducersRequest, ListTransactionsRequest
from kafka.protocol.metadata import ApiVersionsRequest
from tests.offline_wire import OfflineWire

from holdfast.errors import InvalidRequest, Unavailable
from holdfast.kafka.transactions import Answer, Prepared, Transactions


class ScriptedWire(OfflineWire):
    """Answers with codes from a script, one list a transactional id; the last one stays."""

    def __init__(self, **codes: list[int]) -> None:
        super().__init__()
        self.codes = codes
        self.asked: list[tuple[str, int, Any]] = []
        self.leader_of: dict[tuple[str, int], list[int]] = {}
        self.pinged: list[int] = []
        self.described: list[list[str]] = []
        self.forgotten: set[str] = set()
        self.features, self.features_epoch = {"transaction.version": 2}, 7
        self.unlearnt = 0  # questions until the broker knows what it coordinates

    async def leaders(self, node: int, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return {place: codes.pop(0) for place, codes in self.leader_of.items() if place in places}

    async def ping(self, node: int) -> None:
        self.pinged.append(node)

    async def find_coordinator(self, transactional_id: str) -> None:
        self._coordinators[transactional_id] = 7

    async def brokers(self) -> list[int]:
        return [7]

    async def leaders_of(
        self, topics: Iterable[str], node: int | None = None, *, must_see: bool = False
    ) -> dict[tuple[str, int], int]:
        return {(topic, number): 7 for topic in topics for number in range(3)}

    def version_of(self, request: Any) -> int:
        return 2

    async def send(self, request: Any, node: int) -> Any:
        assert node == 7
        if isinstance(request, ListTransactionsRequest):
            known = [] if self.unlearnt else [SimpleNamespace(transactional_id="tx", transaction_state="Ongoing")]
            return SimpleNamespace(error_code=0, transaction_states=known)
        if isinstance(request, ApiVersionsRequest):
            levels = [SimpleNamespace(name=name, max_version_level=level) for name, level in self.features.items()]
            return SimpleNamespace(
                error_code=0, finalized_features_epoch=self.features_epoch, finalized_features=levels
            )
        self.described.append(list(request.transactional_ids))
        return SimpleNamespace(transaction_states=[self._described(one) for one in request.transactional_ids])

    async def to_coordinator(self, transactional_id: str, request: Any) -> Any:
        self.asked.append((transactional_id, request._max_version, request))
        codes = self.codes[transactional_id]
        return SimpleNamespace(error_code=codes.pop(0) if len(codes) > 1 else codes[0])

    def _described(self, transactional_id: str) -> Any:
        topics = [SimpleNamespace(topic=topic, partitions=[number]) for topic, number in self.leader_of]
        self.unlearnt = max(0, self.unlearnt - 1)
        return SimpleNamespace(
            error_code=16 if self.unlearnt else 105 if transactional_id in self.forgotten else 0,
            transactional_id=transactional_id,
            transaction_state="Ongoing",
            transaction_timeout_ms=1000,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=topics,
        )


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


def end(wire: ScriptedWire, commit: bool = True, patience_ms: float = 1000.0) -> list[Answer]:
    transactions = Transactions({}, patience_ms, wire)
    return transactions.end([Prepared(name, number, 0) for number, name in enumerate(wire.codes)], commit)


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (0, Answer.DONE),
        (48, Answer.OPPOSITE),
        (90, Answer.FENCED),
        (47, Answer.FENCED),
        (49, Answer.UNKNOWN),
    ],
)
def test_an_answer_is_an_answer(code: int, answer: Answer) -> None:
    wire = ScriptedWire(a=[code])
    assert end(wire, commit=False) == [answer]
    assert len(wire.asked) == 1


@pytest.mark.parametrize("code", [7, 14, 15, 16, 51])
def test_a_broker_that_is_busy_or_moves_is_asked_again(code: int) -> None:
    wire = ScriptedWire(a=[code, code, 0])
    assert end(wire) == [Answer.DONE]
    assert len(wire.asked) == 3


class FencedWire(ScriptedWire):
    """A coordinator that answers "fenced" to the end of ``a`` (producer 7, epoch 5), and the partition t-0.

    Parameters
    ----------
    known
        What it says of the id, (state, epoch), look by look; the last one stays.
    open_epoch
        Which transaction of the producer the leader of t-0 calls open; None: no one.
    """

    def __init__(self, known: list[tuple[str, int]], open_epoch: int | None, look_code: int = 0) -> None:
        super().__init__(a=[90])
        self.known, self.open_epoch, self.look_code = known, open_epoch, look_code
        self.leader_of = {("t", 0): []}
        self.found_anew = 0

    async def leaders(self, node: int, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, 7)

    async def know(self, node: int) -> None:
        assert node == 7

    async def find_coordinator(self, transactional_id: str) -> None:
        self.found_anew += 1
        await super().find_coordinator(transactional_id)

    async def send(self, request: Any, node: int) -> Any:
        if not isinstance(request, DescribeProducersRequest):
            return await super().send(request, node)
        one = SimpleNamespace(
            producer_id=7, producer_epoch=self.open_epoch, coordinator_epoch=0, current_txn_start_offset=3
        )
        part = SimpleNamespace(
            partition_index=0,
            error_code=self.look_code,
            active_producers=[] if self.open_epoch is None or self.look_code else [one],
        )
        return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[part])])

    def _described(self, transactional_id: str) -> Any:
        state, epoch = self.known.pop(0) if len(self.known) > 1 else self.known[0]
        found = super()._described(transactional_id)
        found.transaction_state, found.producer_id, found.producer_epoch = state, 7, epoch
        return found

    def commit(self, patience_ms: float = 500.0) -> Answer:
        """The answer to the wish to commit ``a``."""
        known, one = Transactions({}, patience_ms, self), [Prepared("a", 7, 5)]
        [answer] = known.told_of_takeovers(one, known.end(one, True, ready=True))
        return answer


@pytest.mark.parametrize(
    ("state", "epoch", "answer"),
    [
        ("Empty", 6, Answer.DONE),  # a zombie took the name when it was committed
        ("CompleteCommit", 6, Answer.DONE),  # and what it wrote was committed, too
        ("CompleteAbort", 6, Answer.FENCED),  # timed out
        ("Empty", 7, Answer.FENCED),  # timed out, or aborted by who took the name; then taken
        ("Ongoing", 7, Answer.FENCED),
        ("CompleteAbort", 7, Answer.UNKNOWN),  # the time limit of who took the name before the end, or after it
        ("CompleteCommit", 7, Answer.UNKNOWN),
    ],
)
def test_what_was_committed_before_its_name_was_taken_is_done(state: str, epoch: int, answer: Answer) -> None:
    assert FencedWire([(state, epoch)], None).commit() is answer


def test_what_its_coordinator_fails_to_fence_is_not_done() -> None:
    """Its epoch has moved in memory only: ended by nobody, open in its partition. Markers were forced onto it."""
    with pytest.raises(Unavailable, match=r"learn what became of 1 transactions .* a is contested"):
        FencedWire([("Ongoing", 6)], open_epoch=5).commit()


def test_what_was_ended_before_its_name_was_taken_for_another_transaction_is_done() -> None:
    wire = FencedWire([("Ongoing", 6)], open_epoch=6)
    assert wire.commit() is Answer.DONE
    assert wire.found_anew >= 2, "the coordinator is looked for again before its word counts"


def test_a_fence_that_succeeds_between_two_looks_does_not_make_an_abort_look_like_a_commit() -> None:
    wire = FencedWire([("Ongoing", 6), ("PrepareAbort", 6), ("PrepareAbort", 6), ("CompleteAbort", 6)], open_epoch=None)
    assert wire.commit() is Answer.FENCED


def test_without_the_right_to_look_nothing_is_concluded_from_a_name_that_is_open_again() -> None:
    with pytest.raises(Unavailable, match="a is contested"):
        FencedWire([("Ongoing", 6)], open_epoch=None, look_code=29).commit()


@pytest.mark.parametrize(
    "known",
    [
        [("PrepareAbort", 6), ("CompleteAbort", 6)],
        [("PrepareEpochFence", 6), ("CompleteAbort", 6)],
        [("Ongoing", 4), ("CompleteAbort", 6)],  # the coordinator knows less than it did
        [("SomethingNew", 6), ("CompleteAbort", 6)],
    ],
)
def test_what_is_being_ended_is_asked_for_again(known: list[tuple[str, int]]) -> None:
    assert FencedWire(known, None).commit() is Answer.FENCED


def test_a_coordinator_that_forgot_a_fence_which_it_could_not_write_down_is_asked_to_commit_again() -> None:
    with pytest.raises(Unavailable, match="a is open"):
        FencedWire([("Ongoing", 5)], open_epoch=5).commit()


def test_only_those_without_an_answer_are_asked_again() -> None:
    wire = ScriptedWire(a=[0], b=[51, 90], c=[49])
    assert end(wire, commit=False) == [Answer.DONE, Answer.FENCED, Answer.UNKNOWN]
    assert [name for name, _, _ in wire.asked] == ["a", "b", "c", "b"]


def test_patience_has_an_end() -> None:
    with pytest.raises(Unavailable, match=r"broker:9092 did not commit 1 transactions within 0.5 s: .*CONCURRENT"):
        end(ScriptedWire(a=[51]), patience_ms=500)


@pytest.mark.parametrize(("code", "message"), [(53, "WRITE and DESCRIBE on its transactional ids"), (42, "error 42")])
def test_a_refusal_is_told_at_once_and_after_all_were_asked(code: int, message: str) -> None:
    wire = ScriptedWire(a=[51], b=[code], c=[0])
    with pytest.raises(Unavailable, match=message):
        end(wire)
    assert [name for name, _, _ in wire.asked] == ["a", "b", "c"]


def test_end_txn_is_version_3_always() -> None:
    wire = ScriptedWire(a=[0])
    end(wire, commit=False)
    [(_, version, request)] = wire.asked
    assert (request._min_version, version) == (3, 3)
    assert (request.transactional_id, request.committed) == ("a", False)


def test_fencing_goes_on_until_all_are_fenced() -> None:
    wire = ScriptedWire(a=[0], b=[51, 51, 0])
    Transactions({}, 1000.0, wire).fence(["a", "b"], 60_000)
    assert [name for name, _, _ in wire.asked] == ["a", "b", "b", "b"]
    with pytest.raises(InvalidRequest, match="transaction.timeout.ms=60000: it is more than"):
        Transactions({}, 1000.0, ScriptedWire(a=[50])).fence(["a"], 60_000)


def test_no_transaction_is_ended_while_a_partition_has_no_leader() -> None:
    wire = ScriptedWire(a=[0])
    wire.leader_of = {("t", 0): [1, 1, 1], ("t", 1): [-1, -1, 2]}
    assert end(wire) == [Answer.DONE]
    assert len(wire.asked) == 1
    assert sorted(wire.pinged) == [1, 2]
    wire = ScriptedWire(a=[0])
    wire.leader_of = {("t", 3): [-1] * 1000}
    with pytest.raises(Unavailable, match="partitions without a leader: t-3"):
        end(wire, patience_ms=500)
    assert wire.asked == []


def test_leaders_are_looked_for_once_before_a_commit_in_two_goes_and_before_each_repeat() -> None:
    wire = ScriptedWire(a=[51, 0])
    wire.leader_of = {("t", 0): [-1, 1, -1, 1]}
    known, prepared = Transactions({}, 1000.0, wire), [Prepared("a", 0, 0)]
    known.wait_until_ready(prepared)
    assert (wire.asked, wire.pinged) == ([], [1])
    assert known.end(prepared, True, ready=True) == [Answer.DONE]
    assert len(wire.asked) == 2
    assert wire.leader_of == {("t", 0): []}


def test_a_coordinator_is_asked_for_many_descriptions_at_once() -> None:
    wire = ScriptedWire()
    wire.forgotten = {"id-3"}
    names = [f"id-{number}" for number in range(1200)]
    found = Transactions({}, 1000.0, wire).describe(names)
    assert [one and one.transactional_id for one in found] == [None if name == "id-3" else name for name in names]
    assert [len(asked) for asked in wire.described] == [500, 500, 200]


def test_a_broker_that_does_not_know_yet_what_it_coordinates_is_asked_again() -> None:
    """It would list nothing, and no error: strays would stay open."""
    wire = ScriptedWire()
    wire.unlearnt = 8
    assert Transactions({}, 60_000.0, wire).listing("tx", ["Ongoing"]) == [("tx", "Ongoing")]
    assert len(wire.described) > 1
    assert all(len(names) == 3 for names in wire.described), "one name for each partition of the coordinators' topic"


def test_nothing_to_ask_asks_nothing() -> None:
    wire = ScriptedWire()
    known = Transactions({}, 1000.0, wire)
    known.wait_until_ready([])
    assert known.end([], True) == []
    assert known.describe([]) == []
    known.fence([], 1)
    assert wire.asked == []


@pytest.mark.parametrize(("code", "is_aborted"), [(0, True), (47, False), (90, False), (48, False), (49, False)])
def test_a_fence_of_what_was_found_tells_whom_it_met(code: int, is_aborted: bool) -> None:
    """All but 0: somebody has the name now, or the broker ended it."""
    wire, one = ScriptedWire(tx=[51, code]), Prepared("tx", 4, 2)
    assert Transactions({}, 5_000, wire).fence_as_found([one]) == [one] * is_aborted
    [_, (_, _, request)] = wire.asked
    assert (request.producer_id, request.producer_epoch, request.committed) == (4, 2, False)
    assert request._min_version == 5, "earlier ones leave the producer its epoch"


@pytest.mark.parametrize(
    ("features", "epoch"), [({"transaction.version": 1}, 7), ({}, 7), ({"transaction.version": 2}, -1)]
)
def test_a_coordinator_below_the_level_is_never_asked_to_abort_and_bump(features: dict[str, int], epoch: int) -> None:
    """With 4.3.1 the id was lost to everybody until the broker was started again."""
    wire = ScriptedWire(tx=[0])
    wire.features, wire.features_epoch = features, epoch
    assert Transactions({}, 5_000, wire).fence_as_found([Prepared("tx", 4, 2)]) == []
    assert wire.asked == []
