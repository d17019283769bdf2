"""Who shares connections to a cluster: nobody. A broker that hangs delays the query that asks it, and no other one; so
does one whose quota of requests is used up.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import NodeNotReadyError
from tests.offline_wire import OfflineWire

from holdfast.errors import Unavailable
from holdfast.kafka.transactions import Answer, Prepared, Transactions
from holdfast.kafka.wire import Wire, wire_to

CONFIG = {"bootstrap.servers": "nobody:9092"}


class InItsThread:
    """Runs questions where they are asked."""

    def run(self, question: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        try:
            question().send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError("an answer does not wait here")


def test_a_broker_that_hangs_delays_no_other_query_of_the_same_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """One lock for each configuration: every query waited for the one whose broker did not answer."""
    monkeypatch.setattr(Wire, "_connected", lambda self, within_ms: InItsThread())
    hanging, answered = threading.Event(), threading.Event()

    async def hang() -> str:
        hanging.set()
        assert answered.wait(240)
        return "late"

    async def answer() -> str:
        return "at once"

    slow = threading.Thread(target=lambda: wire_to(CONFIG).call("hang", 240_000, hang))
    slow.start()
    assert hanging.wait(120)
    found = []
    other = threading.Thread(target=lambda: found.append(wire_to(CONFIG).call("answer", 240_000, answer)))
    other.start()
    other.join(120)
    assert found == ["at once"], "while the other one hangs"
    answered.set()
    slow.join(120)


def test_a_thread_keeps_its_connections_and_those_of_threads_that_ended_are_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[Wire] = []
    close = Wire.close

    def note(self: Wire) -> None:
        closed.append(self)
        close(self)

    monkeypatch.setattr(Wire, "close", note)
    mine = wire_to(CONFIG)
    assert wire_to(CONFIG) is mine
    others: list[Wire] = []
    thread = threading.Thread(target=lambda: others.append(wire_to(CONFIG)))
    thread.start()
    thread.join()
    assert others[0] is not mine
    assert wire_to(CONFIG) is mine
    assert others[0] in closed
    assert mine not in closed


class PausedWire(OfflineWire):
    """To one broker whose quota of requests is used up: with each answer kafka-python pauses its connection for a time,
    and refuses all requests until that is over.
    """

    def __init__(self, throttle_ms: float) -> None:
        super().__init__()
        self.throttle_ms, self.paused_until_ms = throttle_ms, -1.0
        self.sent: list[str] = []
        self.cluster = SimpleNamespace(
            broker_metadata=lambda node: SimpleNamespace(), brokers=lambda: [SimpleNamespace(node_id=1)]
        )

    def elapsed_ms(self) -> float:
        return self.now_ms_

    async def _pause(self, ms: float) -> None:
        self.now_ms_ += ms

    def _live(self) -> Any:
        return SimpleNamespace(
            cluster=self.cluster,
            get_connection=lambda node: SimpleNamespace(paused={"throttle"} if self.is_paused() else set()),
            least_loaded_node=lambda: None if self.is_paused() else 1,
            send=self.answer,
        )

    def is_paused(self) -> bool:
        return self.now_ms_ < self.paused_until_ms

    async def answer(self, request: Any, node_id: int, request_timeout_ms: int) -> Any:
        if self.is_paused():
            raise NodeNotReadyError("Node paused: {'throttle'}")
        self.paused_until_ms = self.now_ms_ + self.throttle_ms
        self.sent.append(type(request).__name__)
        names = getattr(request, "transactional_ids", None) or []
        one = {"error_code": 0, "transaction_state": "Ongoing", "producer_id": 1, "producer_epoch": 0}
        times = {"transaction_timeout_ms": 1, "transaction_start_time_ms": 1}
        written = [SimpleNamespace(topic="t", partitions=[0])]
        found = [SimpleNamespace(transactional_id=name, topics=written, **one, **times) for name in names]
        partition = SimpleNamespace(partition_index=0, leader_id=1)
        topic = SimpleNamespace(name="t", error_code=0, partitions=[partition])
        return SimpleNamespace(error_code=0, node_id=1, topics=[topic], transaction_states=found)


def test_a_quota_of_requests_that_is_used_up_delays_a_commit_and_does_not_stop_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each answer was the last one of its question, who coordinates was forgotten, and EndTxn was never sent."""
    wire = PausedWire(throttle_ms=200)
    monkeypatch.setattr(time, "sleep", lambda seconds: setattr(wire, "now_ms_", wire.now_ms_ + 1000 * seconds))
    prepared = [Prepared(f"holdfast-q-kafka-e1-{number}-0-0", 1, 0) for number in range(3)]
    assert Transactions({}, 15_000, wire).end(prepared, commit=True) == 3 * [Answer.DONE]
    assert Counter(wire.sent) == {
        "FindCoordinatorRequest": 3, "DescribeTransactionsRequest": 1, "MetadataRequest": 1, "EndTxnRequest": 3
    }  # fmt: skip
    assert wire.now_ms_ == 7 * 200


def test_a_broker_that_takes_no_requests_is_waited_for_no_longer_than_for_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = PausedWire(throttle_ms=60_000)
    monkeypatch.setattr(time, "sleep", lambda seconds: setattr(wire, "now_ms_", wire.now_ms_ + 1000 * seconds))
    with pytest.raises(Unavailable, match="takes no requests .*request_percentage"):
        Transactions({}, 15_000, wire).end([Prepared("holdfast-q-kafka-e1-0-0-0", 1, 0)], commit=True)
    assert wire.now_ms_ < 25_000
    assert wire.sent == ["FindCoordinatorRequest"]
