"""Several inputs, timers, a TTL and a side output in one operator: an order waits for its payments, and is told as
unpaid when the watermark has passed its time. In both forms, in batches that are replayed too, against plain Python.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_connect import START, orders, payments
from tests.streams import FileStream
from tests.waiting_processors import LONG, PAID, SHORT, UNPAID, Waiting, WaitingByKey

import holdfast as hf

pytestmark = pytest.mark.spark
BATCHES = 9
LIFE = timedelta(minutes=15)
MARKS = {"orders": ("ts", "0 seconds"), "payments": ("at", "0 seconds")}


def expected() -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """What is paid and what is not, by plain Python."""
    paid, unpaid = [], []
    waiting: dict[int, datetime] = {}
    amounts: dict[int, tuple[int, datetime]] = {}  # with the event time that a batch writes at, from which a TTL counts
    watermark, latest = None, {"orders": START, "payments": START}
    for number in range(BATCHES):
        rows, given = orders(number).to_pylist(), payments(number).to_pylist()
        written = max(row["ts"] for row in rows)
        for row in rows:
            amounts[row["order_id"]] = (row["amount"], written)
            waiting[row["order_id"]] = row["ts"] + (LONG if row["order_id"] % 2 else SHORT)

        def amount(order: int, now: datetime | None = watermark) -> int | None:
            value, at = amounts[order]
            return value if now is None or at + LIFE > now else None

        known = dict(waiting)
        for row in given:
            if row["order"] in known:
                paid.append((row["order"], amount(row["order"]), row["paid"], number))
                waiting.pop(row["order"], None)
        for order, due in sorted(waiting.items()):
            if watermark is not None and due <= watermark:
                unpaid.append((order, amount(order), due, number))
                del waiting[order]
        latest["orders"] = max(latest["orders"], written)
        latest["payments"] = max(latest["payments"], *(row["at"] for row in given))
        watermark = min(latest.values())
    return sorted(paid, key=str), sorted(unpaid, key=str)


@pytest.mark.parametrize("processor", [Waiting, WaitingByKey])
def test_orders_that_wait_for_payments(
    streams: Callable[[str], FileStream], tmp_path: Path, processor: type[hf.BatchProcessor | hf.KeyedProcessor]
) -> None:
    of_orders, of_payments = streams("orders"), streams("payments")
    checkpoint = tmp_path / "checkpoint"
    sinks = {None: hf.FileSink(str(tmp_path / "paid")), UNPAID: hf.FileSink(str(tmp_path / "unpaid"), name="unpaid")}

    def run(*numbers: int) -> None:
        of_orders.write(*map(orders, numbers))
        of_payments.write(*map(payments, numbers))
        inputs = {"orders": of_orders.events(), "payments": of_payments.events()}
        key = {"orders": "order_id", "payments": "order"}
        options: dict[str, Any] = {"watermark": MARKS, "side_outputs": [UNPAID], "ticks": "never"}
        # One slot: a TTL by event time counts from the latest that the slot has seen.
        frame = hf.connect(inputs, key, processor(), PAID, name="waiting", settings={"slots": 1}, **options)
        hf.write_exactly_once(frame, sinks, checkpoint=checkpoint, trigger={"availableNow": True}).awaitTermination()

    run(*range(6))
    newest = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    (checkpoint / "commits" / str(newest)).unlink()  # killed after the commit record: the batch runs again
    (checkpoint / "commits" / f".{newest}.crc").unlink(missing_ok=True)
    run(*range(6, BATCHES))
    paid, unpaid = expected()
    assert rows_of(tmp_path / "paid") == paid
    assert rows_of(tmp_path / "unpaid") == unpaid
    assert {row[1] is None for row in unpaid} == {True, False}


def rows_of(folder: Path) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in hf.FileSink.read(str(folder)).to_pylist()), key=str)
