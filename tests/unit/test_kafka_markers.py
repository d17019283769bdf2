"""When a marker is waited for, when it is written in the coordinator's place, and when neither: what no broker does on
demand. With a real one: tests/integration/kafka/test_markers.py.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.admin.transactions import DescribeProducersRequest
from kafka.protocol.producer.transaction import WriteTxnMarkersRequest
from tests.offline_wire import OfflineWire

from holdfast.errors import Corrupt, Unavailable
from holdfast.kafka import open_ends
from holdfast.kafka.markers import Markers
from holdfast.kafka.transactions import Prepared, Transactions

ONE = Prepared("id", 9, 3)


class PartitionWire(OfflineWire):
    """A partition ``t-0`` with one transaction, and its coordinator.

    Parameters
    ----------
    looks
        Whether the transaction is open, look by look; the last one stays.
    state, epoch
        What the coordinator knows of the id.
    complete_after
        So many times it has said so, then it is done: all followers have the markers.
    look_code, write_code
        Error codes of DescribeProducers and WriteTxnMarkers.
    """

    def __init__(
        self,
        looks: list[bool],
        state: str,
        epoch: int = 3,
        *,
        complete_after: int = 1_000_000,
        look_code: int = 0,
        write_code: int = 0,
    ) -> None:
        super().__init__()
        self.looks, self.state, self.epoch = looks, state, epoch
        self.left = complete_after
        self.look_code, self.write_code = look_code, write_code
        self.written: list[bool] = []

    async def leaders_of(
        self, topics: Iterable[str], node: int | None = None, *, must_see: bool = False
    ) -> dict[tuple[str, int], int]:
        return {(topic, 0): 1 for topic in topics}

    async def know(self, node: int) -> None:
        assert node == 1

    async def find_coordinator(self, transactional_id: str) -> None:
        self._coordinators[transactional_id] = 1

    async def send(self, request: Any, node: int) -> Any:
        if isinstance(request, DescribeProducersRequest):
            return _answer(partition_index=0, error_code=self.look_code, active_producers=self._producers())
        if isinstance(request, WriteTxnMarkersRequest):
            [marker] = request.markers
            assert (marker.producer_id, marker.producer_epoch) == (9, 3)
            self.written.append(marker.transaction_result)
            self.looks = [False] if not self.write_code else self.looks
            return SimpleNamespace(markers=[_answer(error_code=self.write_code)])
        self.left -= 1
        if self.left < 0:
            self.state = "CompleteCommit"
        known = SimpleNamespace(
            error_code=0,
            transactional_id="id",
            transaction_state=self.state,
            producer_id=9,
            producer_epoch=self.epoch,
            transaction_timeout_ms=1000,
            transaction_start_time_ms=0,
            topics=[],
        )
        return SimpleNamespace(transaction_states=[known])

    def _producers(self) -> list[Any]:
        is_open = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        stranger = SimpleNamespace(producer_id=1, producer_epoch=0, coordinator_epoch=-1, current_txn_start_offset=5)
        own = SimpleNamespace(
            producer_id=9, producer_epoch=3, coordinator_epoch=-1, current_txn_start_offset=7 if is_open else -1
        )
        return [stranger, own]


def _answer(**partition: Any) -> Any:
    return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[SimpleNamespace(**partition)])])


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setattr(open_ends, "_not_shown", set())  # what other tests were told


def wait_for(wire: PartitionWire) -> None:
    Markers(Transactions({}, 1000.0, wire)).wait_for([ONE], ["t"], {("t", 0): 1})


def sweep(wire: PartitionWire) -> None:
    Markers(Transactions({}, 1000.0, wire)).sweep(["id"], ["t"])


def test_a_marker_on_its_way_is_waited_for() -> None:
    wire = PartitionWire([True] * 20 + [False], "PrepareCommit", complete_after=9)
    wait_for(wire)
    assert (wire.written, wire.looks) == ([], [False])


def test_a_marker_that_followers_do_not_have_yet_is_waited_for() -> None:
    """Done was said when the leader had it: readers wait for all that are in sync."""
    wire = PartitionWire([False], "PrepareCommit", complete_after=9)
    wait_for(wire)
    assert (wire.written, wire.state) == ([], "CompleteCommit")
    with pytest.raises(Unavailable, match="the markers of 1 transactions are not with all followers in sync yet"):
        wait_for(PartitionWire([False], "PrepareCommit"))


def test_a_marker_that_never_comes_is_not_written_while_the_coordinator_is_at_work() -> None:
    wire = PartitionWire([True], "PrepareCommit")
    with pytest.raises(Unavailable, match="did not make visible 1 transaction within 1 s"):
        wait_for(wire)
    assert wire.written == []


def test_a_marker_that_came_after_the_coordinator_said_so_is_not_written() -> None:
    wire = PartitionWire([True] * 4 + [False], "CompleteCommit")
    wait_for(wire)
    assert wire.written == []


@pytest.mark.parametrize(
    ("state", "epoch"), [("CompleteCommit", 3), ("Empty", 4), ("CompleteCommit", 4), ("CompleteAbort", 5)]
)
def test_what_was_committed_gets_its_marker_whoever_took_the_id_since(state: str, epoch: int) -> None:
    wire = PartitionWire([True], state, epoch)
    wait_for(wire)
    assert wire.written == [True]


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence", "SomethingNew"])
@pytest.mark.parametrize("epoch", [4, 5])
def test_no_marker_is_written_while_the_id_is_open_at_a_later_epoch(state: str, epoch: int) -> None:
    """A fence bumps the epoch in memory before it is written down: the transaction may be open still."""
    for settle in (wait_for, sweep):
        wire = PartitionWire([True], state, epoch)
        with pytest.raises(Unavailable, match="id is still open in 1 partitions"):
            settle(wire)
        assert wire.written == []


def test_a_coordinator_that_takes_back_a_commit_is_not_helped() -> None:
    wire = PartitionWire([True], "CompleteAbort", 3)
    with pytest.raises(Corrupt, match=r"transaction id \(producer id 9, epoch 3\) has confirmed its commit"):
        wait_for(wire)
    assert wire.written == []


@pytest.mark.parametrize(
    ("state", "epoch", "written"),
    [
        ("CompleteCommit", 3, [True]),
        ("CompleteAbort", 3, [False]),
        ("CompleteAbort", 4, [False]),  # a time limit
        ("Empty", 5, [False]),  # whoever took it over had to abort it first
        ("Ongoing", 3, []),  # at work
        ("Empty", 4, []),  # it had ended before somebody took it over; nobody knows how
        ("CompleteCommit", 4, []),
    ],
)
def test_a_sweep_ends_what_has_ended_and_never_guesses(state: str, epoch: int, written: list[bool]) -> None:
    wire = PartitionWire([True], state, epoch)
    sweep(wire)
    assert wire.written == written


def test_without_the_right_to_look_nobody_looks_and_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="holdfast.kafka"):
        for _ in range(2):
            wait_for(PartitionWire([True], "CompleteCommit", look_code=29))
    assert [record.getMessage() for record in caplog.records if "READ on the topic" in record.getMessage()] != []
    assert caplog.text.count("READ on the topic") == 1


def test_without_the_right_to_write_a_marker_the_error_says_what_to_do() -> None:
    wire = PartitionWire([True], "CompleteCommit", write_code=31)
    with pytest.raises(Unavailable, match=r"missing in t-0 to commit transaction id \(producer id 9, epoch 3\).*ALTER"):
        wait_for(wire)


def test_a_partition_that_is_gone_is_not_waited_for() -> None:
    wait_for(PartitionWire([True], "CompleteCommit", look_code=3))
