"""Processors that several tests share. Spark's workers import this module."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import holdfast as hf

TOTALS = "user string, amount long, total long"
NUMBERED = "key long, source int, number long"
SURROUNDINGS = (
    "query_id string, operator string, batch_id long, slot int, slots int, timestamp timestamp, watermark_ms long, "
    "random double, rows long"
)
MATCHED = "order_id long, amount long, paid long, batch long"


class RunningTotal(hf.BatchProcessor):
    """The sum so far, after each row."""

    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        yield batch.append_column("total", self.total.add(batch["user"], batch["amount"]))


class RunningTotalOfAnyKey(hf.BatchProcessor):
    """The sum of ``v`` so far by the operator's key, whatever that is, after each row."""

    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> pa.RecordBatch:
        return batch.append_column("total", self.total.add(batch, batch["v"]))


class LastSeen(hf.BatchProcessor):
    """The greatest amount so far, after each row."""

    total = hf.ReducingState(pa.int64(), "max")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> pa.RecordBatch:
        return batch.append_column("total", self.total.add(batch["user"], batch["amount"]))


class CountsByKey(hf.KeyedProcessor):
    """A key at a time: rows so far, and the amounts of the last call, of the key."""

    seen = hf.ValueState(pa.int64())
    amounts = hf.ListState(pa.int64())

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[dict[str, Any]]:
        seen = (self.seen.value() or 0) + len(rows)
        self.seen.update(seen)
        for amount in rows["amount"].to_pylist():
            self.amounts.add(amount)
        yield {"user": key[0], "amount": pc.sum(rows["amount"]).as_py(), "total": seen}


class Remembers(hf.KeyedProcessor):
    """A sum, and a list of which the order is seen."""

    sum = hf.ReducingState(pa.int64(), "sum")
    amounts = hf.ListState(pa.int64())

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[dict[str, Any]]:
        for amount in rows["amount"].to_pylist():
            self.sum.add(amount)
            self.amounts.add(amount)
        weighed = sum(place * amount for place, amount in enumerate(self.amounts.get()))
        yield {"user": key[0], "amount": self.sum.get(), "total": weighed}


class Passing(hf.BatchProcessor):
    """No state, rows as they are."""

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> pa.RecordBatch:
        return batch


class FailingOnce(RunningTotal):
    """Raises on the first attempt of one batch, half-way through its rows."""

    def __init__(self, batch_id: int, marker: str) -> None:
        self.batch_id = batch_id
        self.marker = marker

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        yield from super().process(batch, ctx)
        if ctx.batch_id == self.batch_id:
            try:
                os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            raise RuntimeError("the first attempt of this batch fails")


class Arrivals(hf.BatchProcessor):
    """Rows as they come, with the slot's own count in front."""

    def __init__(self, fail_in: str | None = None) -> None:
        self.fail_in = fail_in

    def open(self, ctx: hf.Context) -> None:
        self.arrived = 0

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        arrivals = pa.array(range(self.arrived, self.arrived + batch.num_rows), pa.int64())
        self.arrived += batch.num_rows
        slots = pa.array([ctx.slot] * batch.num_rows, pa.int32())
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, slots, arrivals], names=[*batch.schema.names, "slot", "arrival"]
        )
        if self.fail_in is not None and not Path(self.fail_in).exists() and self.arrived > 3_000:
            Path(self.fail_in).touch()
            raise RuntimeError("the first attempt fails")


def number(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Numbers the rows of a source partition."""
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None
    start = 0
    for batch in batches:
        numbers = pa.array(range(start, start + batch.num_rows), pa.int64())
        sources = pa.array([task.partitionId()] * batch.num_rows, pa.int32())
        start += batch.num_rows
        yield pa.RecordBatch.from_arrays([batch.column("key"), sources, numbers], names=["key", "source", "number"])


class Doubles(hf.BatchProcessor):
    """RunningTotal with another type of state."""

    total = hf.ReducingState(pa.float64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        return None


class Greatest(hf.BatchProcessor):
    """RunningTotal with another function."""

    total = hf.ReducingState(pa.int64(), "max")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        return None


class OtherName(hf.BatchProcessor):
    """RunningTotal whose state has another name."""

    totl = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        return None


class Mispriced(RunningTotal):
    """Asks for what is not there."""

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
        prices = {"c": 1}
        return prices["what the user got wrong"]


class KilledEachTime(RunningTotal):
    """Its worker is killed, as by a kernel that has no memory left."""

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


class WithoutTotal(RunningTotal):
    """Lacks a column of its output."""

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
        return batch


class Surroundings(hf.BatchProcessor):
    """One row a slot and batch: its context, and how many rows came."""

    def open(self, ctx: hf.Context) -> None:
        ctx.counters.add("opened")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> dict[str, Any]:
        return {
            "query_id": ctx.query_id,
            "operator": ctx.operator,
            "batch_id": ctx.batch_id,
            "slot": ctx.slot,
            "slots": ctx.slots,
            "timestamp": ctx.timestamp,
            "watermark_ms": ctx.watermark_ms,
            "random": float(ctx.random.random()),
            "rows": batch.num_rows,
        }


class Remembering(hf.BatchProcessor):
    """Keeps what no processor should rely on: the slots that it has seen."""

    def __init__(self, broadcast: Any) -> None:
        self.broadcast = broadcast
        self.slots: list[int] = []

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> list[dict[str, Any]]:
        assert self.broadcast.value == "has arrived"
        self.slots.append(ctx.slot)
        return [{"slot": ctx.slot, "seen": slot} for slot in self.slots]


class Process(hf.BatchProcessor):
    """Tells which process a slot runs in, and how many objects its collector looks at."""

    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> pa.RecordBatch:
        self.total.add_only(batch, batch["k"])
        row = {"map_pid": batch["pid"][0].as_py(), "slot_pid": os.getpid(), "objects": len(gc.get_objects())}
        return pa.RecordBatch.from_pylist([row])


def with_pid(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.append_column("pid", pa.array([os.getpid()] * batch.num_rows))


class RecentByBatch(hf.BatchProcessor):
    """How often a user was seen within ten minutes, by event time."""

    seen = hf.AggregatingState(pa.string(), "count", ttl=hf.TTL("10 min", time="event"))

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
        yield pa.record_batch({"user": batch["user"], "n": self.seen.add(batch, batch["user"])})


class RecentByKey(hf.KeyedProcessor):
    """The same a key at a time."""

    seen = hf.ListState(pa.int64(), ttl=hf.TTL("10 min", time="event"))

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
        self.seen.add_all([ctx.batch_id] * rows.num_rows)
        yield {"user": key[0], "n": len(self.seen.get())}


class BriefAndLong(hf.BatchProcessor):
    """Ten times a count that lives for a day, and one that lives for a moment."""

    brief = hf.AggregatingState(pa.string(), "count", ttl="1 ms")
    long = hf.AggregatingState(pa.string(), "count", ttl="1 d")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
        n = [10 * a + b for a, b in zip(self.long.add(batch, "x").to_pylist(), self.brief.add(batch, "x").to_pylist())]
        yield {"user": batch["user"].to_pylist()[0], "n": n[0]}


LATE = hf.SideOutput("late")
REFUSED = hf.SideOutput("refused", "user string, why string not null")


class Sorted(RunningTotal):
    """RunningTotal that refuses amounts below 0."""

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        refused = batch.filter(pc.less(batch["amount"], 0))
        ctx.output(REFUSED, [{"user": user, "why": "below 0"} for user in refused["user"].to_pylist()])
        good = batch.filter(pc.greater_equal(batch["amount"], 0))
        yield from super().process(good.select(["user", "amount"]), ctx)


class SortedByKey(hf.KeyedProcessor):
    """The same, a key at a time."""

    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[dict[str, Any]]:
        for amount in rows["amount"].to_pylist():
            if amount < 0:
                ctx.output(REFUSED, {"user": key[0], "why": "below 0"})
            else:
                self.total.add(amount)
                yield {"user": key[0], "amount": amount, "total": self.total.get()}


class TotalsOfTimed(RunningTotal):
    """RunningTotal of rows that have a time too."""

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
        return super().process(batch.select(["user", "amount"]), ctx)


class Match(hf.BatchProcessor):
    """Each payment with its order and what was paid of it so far; orders of the same batch are known."""

    def __init__(self, fail_in: str | None = None) -> None:
        self.fail_in = fail_in

    amount = hf.ValueState(pa.int64())
    paid = hf.ReducingState(pa.int64(), "sum")

    def process_orders(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.amount.put(batch, batch["amount"])

    def process_payments(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        amounts, paid = self.amount.get(batch), self.paid.add(batch, batch["paid"])
        batches = pa.array([ctx.batch_id] * batch.num_rows, pa.int64())
        yield pa.RecordBatch.from_arrays(
            [batch["order"], amounts, paid, batches], names=["order_id", "amount", "paid", "batch"]
        )
        if self.fail_in is not None and ctx.batch_id == 2 and not os.path.exists(self.fail_in):
            Path(self.fail_in).touch()
            raise RuntimeError("the first attempt of this batch fails")


class MatchByKey(hf.KeyedProcessor):
    """The same, a key at a time."""

    amount = hf.ValueState(pa.int64())
    paid = hf.ReducingState(pa.int64(), "sum")

    def process_orders(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
        self.amount.update(rows["amount"][-1].as_py())

    def process_payments(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[dict[str, Any]]:
        for paid in rows["paid"].to_pylist():
            self.paid.add(paid)
            yield {
                "order_id": key[0],
                "amount": self.amount.value(),
                "paid": self.paid.get(),
                "batch": ctx.batch_id,
            }


JUDGED = "order_id long, user string, least long, total long, heard long, slot int, batch long"


class Judge(hf.BatchProcessor):
    """Each order with the rule that holds for it, how much its user has ordered, and how many rules its slot heard."""

    rules = hf.BroadcastState(pa.string(), pa.int64())
    heard = hf.OperatorState(pa.int64(), redistribution="split")
    total = hf.ReducingState(pa.int64(), "sum")

    def process_rules(self, rows: pa.Table, ctx: hf.Context) -> Iterator[dict[str, Any]]:
        """Later rows win; what the slot has then is given out where an order would be."""
        for name, least in zip(rows["name"].to_pylist(), rows["least"].to_pylist()):
            if least is None:
                self.rules.remove(name)
            else:
                self.rules.put(name, least)
            self.heard.add(least)
        yield {"order_id": -1, "user": repr(self.rules.items()), **self.surroundings(ctx)}

    def process_orders(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[dict[str, Any]]:
        total, least = self.total.add(batch, batch["amount"]), self.rules.get(batch["rule"])
        for row, so_far, rule in zip(batch.to_pylist(), total.to_pylist(), least.to_pylist()):
            assert self.rules.get(row["rule"]) == rule
            given = {"order_id": row["order_id"], "user": row["user"], **self.surroundings(ctx)}
            yield {**given, "least": rule, "total": so_far}

    def surroundings(self: Judge | JudgeByKey, ctx: hf.Context) -> dict[str, Any]:
        found = {"heard": len(self.heard.get()), "slot": ctx.slot, "batch": ctx.batch_id}
        return {"least": None, "total": None, **found}


class JudgeByKey(hf.KeyedProcessor):
    """The same, a key at a time."""

    rules = hf.BroadcastState(pa.string(), pa.int64())
    heard = hf.OperatorState(pa.int64(), redistribution="split")
    total = hf.ReducingState(pa.int64(), "sum")
    process_rules = Judge.process_rules
    surroundings = Judge.surroundings

    def process_orders(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[dict[str, Any]]:
        for row in rows.to_pylist():
            self.total.add(row["amount"])
            given = {"order_id": row["order_id"], "user": key[0], **self.surroundings(ctx)}
            yield {**given, "least": self.rules.get(row["rule"]), "total": self.total.get()}
