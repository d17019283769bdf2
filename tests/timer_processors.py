"""Processors with timers that several tests share. Spark's workers import this module."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from tests.silence_oracle import HOUR

import holdfast as hf

EVENTS = pa.schema([("user", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
ALERTS = "user string, batch long, events long, silent_since timestamp, time timestamp"


class SilentUsers(hf.KeyedProcessor):
    """Says who had no event for an hour, and how many before; and again after each further hour, three times."""

    events = hf.ValueState(pa.int64())
    last = hf.ValueState(pa.timestamp("us", "UTC"))
    silent = hf.Timers("event")

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
        last = self.last.value()
        if last is not None:
            for time, namespace in self.silent.list():
                self.silent.delete(time, namespace)
        latest = max([*rows["ts"].to_pylist(), *([last] if last else [])])
        self.events.update((self.events.value() or 0) + len(rows))
        self.last.update(latest)
        self.silent.register(latest + HOUR, "1")

    def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: hf.Context) -> Iterator[Any]:
        if int(namespace) < 3:
            self.silent.register(time + HOUR, str(int(namespace) + 1))
        yield key[0], ctx.batch_id, self.events.value(), self.last.value(), time


class SilentUsersVectorised(hf.BatchProcessor):
    """The same, a batch at a time: a timer that a later event has overtaken says nothing."""

    events = hf.ReducingState(pa.int64(), "sum")
    last = hf.ReducingState(pa.timestamp("us", "UTC"), "max")
    silent = hf.Timers("event")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.events.add_only(batch, 1)
        self.last.add_only(batch, batch["ts"])
        self.silent.register(batch, pc.add(self.last.get(batch), pa.scalar(HOUR)), "1")

    def on_timers(self, batch: pa.RecordBatch, ctx: hf.Context) -> pa.RecordBatch:
        count = batch["namespace"].cast(pa.int64())
        last = self.last.get(batch)
        hours = pc.multiply(count, HOUR // timedelta(microseconds=1)).cast(pa.duration("us"))
        still = pc.equal(batch["time"], pc.add(last, hours))
        batch, count, last = batch.filter(still), count.filter(still), last.filter(still)
        again = pc.less(count, 3)
        self.silent.register(
            batch["user"].filter(again),
            pc.add(batch["time"], pa.scalar(HOUR)).filter(again),
            pc.add(count, 1).cast(pa.string()).filter(again),
        )
        at = pa.repeat(pa.scalar(ctx.batch_id, pa.int64()), batch.num_rows)
        return pa.RecordBatch.from_arrays(
            [batch["user"], at, self.events.get(batch), last, batch["time"]],
            names=["user", "batch", "events", "silent_since", "time"],
        )


class CountedAlerts(hf.KeyedProcessor):
    """Of a user, how many alerts have come."""

    alerts = hf.ValueState(pa.int64())

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[Any]:
        count = (self.alerts.value() or 0) + len(rows)
        self.alerts.update(count)
        yield key[0], count


class Reminders(hf.KeyedProcessor):
    """Each row asks to be reminded, so many seconds of processing time after its batch."""

    due = hf.Timers("processing")

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
        for seconds in rows["seconds"].to_pylist():
            self.due.register(ctx.timestamp + timedelta(seconds=seconds), str(ctx.batch_id))

    def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: hf.Context) -> Any:
        return {"user": key[0], "asked": int(namespace), "batch": ctx.batch_id, "late": ctx.timestamp >= time}


class NoReminders(hf.KeyedProcessor):
    """What it was before it had timers."""

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
        return None


REMINDERS = "user string, asked long, batch long, late boolean"
