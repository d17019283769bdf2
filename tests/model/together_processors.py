"""Both forms of the program of the model of all states together: they follow the steps that rows bring, and give what
each read found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
from tests.model.together_oracle import FailedOnPurpose, Life
from tests.model.together_program import READS, TIMERS, Step, at_firing, at_once, of_text

import holdfast as hf

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)

Answer = dict[str, Any]


def time_at(microseconds: int) -> datetime:
    return _EPOCH + microseconds * _MICROSECOND


def microseconds_of(time: datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND


def _answer(user: str | None, what: str, told: Any) -> Answer:
    return {"user": user, "what": what, "told": told if isinstance(told, str) else repr(told)}


def _listed(state: str, found: Sequence[Any]) -> list[Any]:
    """Timers as the oracle tells them, whatever form they came in."""
    pairs = [tuple(one.values()) if isinstance(one, dict) else one for one in found]
    return [(microseconds_of(time), namespace) for time, namespace in pairs]


class ByKey(hf.KeyedProcessor):
    """Step by step."""

    def process_rules(self: Any, rows: pa.Table, ctx: hf.Context) -> Answer:
        for row in rows.to_pylist():
            _change_rule(self, row["name"], row["most"])
        return _answer(None, "rules", repr(self.rules.items()))

    def process_clicks(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[Answer]:
        for text in rows["does"].to_pylist():
            yield from self._follow(key[0], of_text(text))

    process_orders = process_clicks

    def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: hf.Context) -> Iterator[Answer]:
        at = microseconds_of(time)
        yield _answer(key[0], f"{ctx.timers} fires", f"{at} {namespace}")
        yield from self._follow(key[0], at_firing(namespace, at))

    def _follow(self, user: str, steps: Sequence[Step]) -> Iterator[Answer]:
        for step in steps:
            found = self._do(*step)
            if step[1] in READS:
                yield _answer(user, f"{step[0]}.{step[1]}", repr(found))

    def _do(self, state: str, call: str, *arguments: Any) -> Any:
        if state == "fail":
            raise FailedOnPurpose
        live = getattr(self, state)
        if state in TIMERS:
            if call == "list":
                return _listed(state, live.list())
            return getattr(live, call)(time_at(arguments[0]), arguments[1])
        if call == "show":
            return live.items()
        if state == "value":
            call = {"get": "value", "put": "update"}.get(call, call)
        return getattr(live, call)(*arguments)


class AtOnce(hf.BatchProcessor):
    """Each call for all rows that ask for it."""

    def process_rules(self: Any, rows: pa.Table, ctx: hf.Context) -> Answer:
        for row in rows.to_pylist():
            _change_rule(self, row["name"], row["most"])
        return _answer(None, "rules", repr(self.rules.items()))

    def process_clicks(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[Answer]:
        yield from self._follow(batch["user"].to_pylist(), [of_text(text) for text in batch["does"].to_pylist()])

    def process_orders(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[Answer]:
        yield from self._follow(batch["account"].to_pylist(), [of_text(text) for text in batch["does"].to_pylist()])

    def on_timers(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[Answer]:
        users, namespaces = batch["user"].to_pylist(), batch["namespace"].to_pylist()
        times = [microseconds_of(time) for time in batch["time"].to_pylist()]
        for user, at, namespace in zip(users, times, namespaces):
            yield _answer(user, f"{ctx.timers} fires", f"{at} {namespace}")
        yield from self._follow(users, [at_firing(namespace, at) for namespace, at in zip(namespaces, times)])

    def _follow(self, users: Sequence[str], scripts: Sequence[Sequence[Step]]) -> Iterator[Answer]:
        for state, call, members in at_once(scripts):
            asking = [users[row] if len(step) < 5 else step[4] for row, step in members]  # timers of others
            arguments = [list(column) for column in zip(*(step[2:4] for _, step in members))]
            found = self._do(state, call, asking, arguments)
            if call in READS:
                yield from (_answer(user, f"{state}.{call}", repr(one)) for user, one in zip(asking, found))

    def _do(self, state: str, call: str, users: list[str], arguments: list[list[Any]]) -> Any:
        if state == "fail":
            raise FailedOnPurpose
        live = getattr(self, state)
        if state in TIMERS:
            return self._time(state, call, users, arguments)
        if state == "rules":
            return live.get(pa.array(arguments[0])).to_pylist() if call == "get" else [live.items()] * len(users)
        if state == "odd":
            return live.add_all(arguments[0]) if call == "add" else [live.get().to_pylist()] * len(users)
        if call == "show":
            return live.entries(users).to_pylist()
        if state in ("total", "log", "count") and call == "add":
            return live.add_only(users, arguments[0])
        typed = [self._column(state, column) for column in arguments]
        found = getattr(live, call)(users, *typed)
        return found.to_pylist() if call in READS else None

    def _time(self, state: str, call: str, users: list[str], arguments: list[list[Any]]) -> Any:
        live = getattr(self, state)
        if call == "list":
            return [_listed(state, found) for found in live.list(users).to_pylist()]
        times = pa.array([time_at(at) for at in arguments[0]], pa.timestamp("us", "UTC"))
        return getattr(live, call)(users, times, arguments[1])

    def _column(self, state: str, column: list[Any]) -> pa.Array:
        if any(isinstance(one, list) for one in column):
            return pa.array(column, pa.list_(pa.int64()))
        return pa.array(column, pa.string() if any(isinstance(one, str) for one in column) else pa.int64())


def _change_rule(processor: Any, name: str, most: int | None) -> None:
    if most is None:
        processor.rules.remove(name)
    else:
        processor.rules.put(name, most)


def program(form: type, lives: Mapping[str, Life], times: Mapping[str, str]) -> Any:
    """A processor of the form, whose states live for so long."""

    def ttl(state: str) -> Any:
        life = lives[state]
        if life.ttl_ms is None:
            return None
        return hf.TTL(
            life.ttl_ms,
            refresh="read_and_write" if life.by_reads else "write",
            visibility="until_cleaned" if life.until_cleaned else "never_expired",
            time="event" if times[state] == "event" else "processing",
        )

    declared = {
        "value": hf.ValueState(pa.int64(), ttl=ttl("value")),
        "early": hf.Timers("event"),
        "items": hf.ListState(pa.int64(), ttl=ttl("items")),
        "entries": hf.MapState(pa.string(), pa.int64(), ttl=ttl("entries")),
        "clock": hf.Timers("processing"),
        "total": hf.ReducingState(pa.int64(), "sum", ttl=ttl("total")),
        "log": hf.ReducingState(pa.string(), lambda a, b: a + b, ttl=ttl("log")),
        "count": hf.AggregatingState(pa.int64(), "count", ttl=ttl("count")),
        "again": hf.Timers("event"),
        "rules": hf.BroadcastState(pa.string(), pa.int64()),
        "odd": hf.OperatorState(pa.int64(), redistribution="split"),
    }
    return type("Program", (form,), declared)()
