"""Who shares connections to a cluster: nobody. A broker that hangs delays the query that asks it, and no other one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

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
