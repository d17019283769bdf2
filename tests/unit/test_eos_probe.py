"""The probe beside a query says how late a row is, also where its producer could not keep the pace."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from benchmarks.stream import eos_probe

PER_S, ROWS = 1000, 20


def test_a_row_that_had_to_wait_for_the_one_before_it_carries_when_it_was_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """It carried when it was sent: a broker that hung for a second cost one row a second, and the next ones nothing."""
    sent: list[tuple[int, int]] = []
    enough = threading.Event()

    class Slow:
        def __init__(self, *_: Any) -> None:
            pass

        def send(self, records: list[Any]) -> None:
            time.sleep(0.01)  # ten times as long as there is for a row
            number, due_ns = map(int, records[0].value.split(b" "))
            sent.append((number, due_ns))
            if len(sent) == ROWS:
                enough.set()

    monkeypatch.setattr(eos_probe, "TransactionalFeed", Slow)
    writing = eos_probe._Writing("nobody:9092", "topic", PER_S)
    assert enough.wait(120)
    writing.enough.set()
    writing.join(120)
    begun_ns = sent[0][1]
    assert sent[:ROWS] == [(number, begun_ns + number * 1_000_000_000 // PER_S) for number in range(ROWS)]
