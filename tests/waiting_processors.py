"""Processors of orders that wait for payments: several inputs, timers, a TTL and a side output in one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import holdfast as hf

UTC = pa.timestamp("us", "UTC")
SHORT, LONG = timedelta(minutes=5), timedelta(minutes=15)  # how long orders of even and of odd numbers wait
UNPAID = hf.SideOutput("unpaid", "order_id long, amount long, due timestamp, batch long")
PAID = "order_id long, amount long, paid long, batch long"


def due_of(order_ids: pa.Array, times: pa.Array) -> pa.Array:
    odd = pc.equal(pc.bit_wise_and(order_ids, 1), 1)
    return pc.if_else(odd, pc.add(times, pa.scalar(LONG)), pc.add(times, pa.scalar(SHORT)))


class Waiting(hf.BatchProcessor):
    """The first payment of an order that is waited for pays it; what is not paid in time goes aside."""

    amount = hf.ValueState(pa.int64(), ttl=hf.TTL("15 min", time="event"))
    due_at = hf.ValueState(UTC)
    due = hf.Timers("event")

    def process_orders(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        at = due_of(batch["order_id"], batch["ts"])
        self.amount.put(batch, batch["amount"])
        self.due_at.put(batch, at)
        self.due.register(batch, at)

    def process_payments(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        at = self.due_at.get(batch)
        waited = batch.filter(pc.is_valid(at))
        yield pa.RecordBatch.from_arrays(
            [waited["order"], self.amount.get(waited), waited["paid"], [ctx.batch_id] * waited.num_rows],
            names=["order_id", "amount", "paid", "batch"],
        )
        self.due.delete(waited, at.drop_null())
        self.due_at.clear(waited)

    def on_timers(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        ctx.output(
            UNPAID,
            pa.RecordBatch.from_arrays(
                [batch["order_id"], self.amount.get(batch), batch["time"], [ctx.batch_id] * batch.num_rows],
                names=["order_id", "amount", "due", "batch"],
            ),
        )
        self.due_at.clear(batch)


class WaitingByKey(hf.KeyedProcessor):
    """The same, a key at a time; payments of a batch after the first find nothing that waits."""

    amount = hf.ValueState(pa.int64(), ttl=hf.TTL("15 min", time="event"))
    due_at = hf.ValueState(UTC)
    due = hf.Timers("event")

    def process_orders(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
        [order] = rows.to_pylist()
        at = order["ts"] + (LONG if order["order_id"] % 2 else SHORT)
        self.amount.update(order["amount"])
        self.due_at.update(at)
        self.due.register(at)

    def process_payments(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[dict[str, Any]]:
        at = self.due_at.value()
        if at is not None:
            for paid in rows["paid"].to_pylist():
                yield {"order_id": key[0], "amount": self.amount.value(), "paid": paid, "batch": ctx.batch_id}
            self.due.delete(at)
            self.due_at.clear()

    def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: hf.Context) -> None:
        ctx.output(UNPAID, {"order_id": key[0], "amount": self.amount.value(), "due": time, "batch": ctx.batch_id})
        self.due_at.clear()
