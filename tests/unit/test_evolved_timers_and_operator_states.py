"""Programs that have other timers, broadcast states, operator states and keys than the one before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from tests.checkpoint_driver import operator_record

import holdfast as hf
from holdfast.testing import Harness

ROWS = "user string, n long"
OUT = "user string, fired string"
BACKENDS = ("rocksdb", "hashmap")
SETTINGS = {"fold.deltas.max": 2}
MINUTE_MS = 60_000


class Alarms(hf.KeyedProcessor):
    """Sets a timer for each row in each of its timers, ``n`` minutes on, and says which fired."""

    names: tuple[str, ...] = ("due",)

    def process(self, key: Any, rows: Any, ctx: hf.Context) -> None:
        for n in rows["n"].to_pylist():
            for name in self.names:
                getattr(self, name).register(ctx.timestamp + timedelta(minutes=n), name)


def on_timer(self: Any, key: Any, time: datetime, namespace: str, ctx: hf.Context) -> Iterator[Any]:
    yield {"user": key[0], "fired": namespace}


def alarms(**lines: Any) -> Any:
    timers = tuple(name for name, line in lines.items() if isinstance(line, hf.Timers))
    called = {"on_timer": on_timer} if timers else {}
    return type("Program", (Alarms,), {**lines, **called, "names": timers})()


def fired(h: Harness, *rows: dict[str, Any]) -> list[tuple[str, str]]:
    """What fires two minutes later."""
    h.advance(2 * MINUTE_MS)
    return sorted(tuple(row.values()) for row in h.process(rows).to_pylist())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lose_local_copies", [False, True])
def test_timers_are_renamed_and_those_that_were_dropped_never_fire(backend: Any, lose_local_copies: bool) -> None:
    """Nor for timers that are declared since: they have an id of their own."""

    def goes_on(**lines: Any) -> None:
        h.kill(lose_local_copies=lose_local_copies)
        h.restart(alarms(**lines))

    first = {"due": hf.Timers("processing"), "other": hf.Timers("processing")}
    with Harness(alarms(**first), "user", ROWS, OUT, settings=SETTINGS, backend=backend) as h:
        for user in ("ada", "bob", "cyd"):
            h.process([{"user": user, "n": 1}])
        goes_on(late=hf.renamed_from("due", hf.Timers("processing")), other=hf.DroppedState())
        assert fired(h) == [("ada", "due"), ("bob", "due"), ("cyd", "due")]
        h.process([{"user": "di", "n": 1}])
        goes_on(late=hf.Timers("processing"), more=hf.Timers("processing"))
        assert fired(h, {"user": "eve", "n": 1}) == [("di", "late")]
        assert fired(h) == [("eve", "late"), ("eve", "more")]
        goes_on(late=hf.DroppedState(), more=hf.DroppedState(), seen=hf.ValueState(pa.int64()))
        for _ in range(3):
            assert fired(h, {"user": "ada", "n": 1}) == []
        with pytest.raises(hf.Incompatible, match="'late': was dropped in this checkpoint, for good"):
            h.restart(alarms(late=hf.Timers("processing"), seen=hf.ValueState(pa.int64())))
        goes_on(last=hf.Timers("processing"), seen=hf.ValueState(pa.int64()))
        assert fired(h) == []


def test_timers_of_another_time_are_others() -> None:
    timed = f"{ROWS}, at timestamp"
    with Harness(alarms(due=hf.Timers("processing")), "user", timed, OUT, settings=SETTINGS, event_time="at") as h:
        h.process([{"user": "ada", "n": 1, "at": None}])
        with pytest.raises(hf.Incompatible, match="state 'due': recorded timers.*processing, declared timers.*event"):
            h.restart(alarms(due=hf.Timers("event")))


class Follows(hf.KeyedProcessor):
    """Keeps each rule, and of each row what rules there are."""

    def process_rules(self, rows: pa.Table, ctx: Any) -> None:
        for row in rows.to_pylist():
            self.rules.put(row["name"], self.made(row["v"]))  # type: ignore[attr-defined]

    def process_events(self, key: Any, rows: Any, ctx: Any) -> None:
        self.met.add(dict(self.rules.items()).get("a"))  # type: ignore[attr-defined]


def follows(rules: Any, met: Any, made: Any) -> Any:
    return type("Program", (Follows,), {"rules": rules, "met": met, "made": staticmethod(made)})()


@pytest.mark.parametrize("backend", BACKENDS)
def test_broadcast_and_operator_states_take_other_types_and_names(backend: Any) -> None:
    one = pa.struct([("v", pa.int32()), ("why", pa.string())])
    two = pa.struct(
        [
            hf.with_default(pa.field("by", pa.string(), False), "?"),
            hf.renamed_from("v", pa.field("value", pa.int64())),
            hf.dropped_field("why"),
        ]
    )
    was, now = {"by": "?", "value": 1}, {"by": "me", "value": 2}

    def states(kind: pa.DataType) -> tuple[Any, Any]:
        return hf.BroadcastState(pa.string(), kind), hf.OperatorState(kind, redistribution="split")

    inputs = {"events": ROWS, "rules": hf.broadcast("name string, v long")}
    program = follows(*states(one), lambda v: {"v": v, "why": "x"})
    with Harness(program, {"events": "user"}, inputs, OUT, settings=SETTINGS, backend=backend) as h:
        for _ in range(3):
            h.process(rules=[{"name": "a", "v": 1}, {"name": "b", "v": 1}], events=[{"user": "ada", "n": 1}])
        h.kill(lose_local_copies=True)
        h.restart(follows(*states(two), lambda v: {"by": "me", "value": v}))
        assert h.state("rules") == {"a": was, "b": was} and h.state("met") == [was] * 3
        for _ in range(3):
            h.process(rules=[{"name": "b", "v": 2}], events=[{"user": "ada", "n": 1}])
        h.kill(lose_local_copies=True)
        assert h.state("rules") == {"a": was, "b": now} and h.state("met") == [was] * 6
        for wrong in (
            (hf.BroadcastState(pa.large_binary(), two), states(two)[1], "rules"),
            (states(two)[0], hf.OperatorState(two, redistribution="union"), "met"),
        ):
            with pytest.raises(hf.Incompatible, match=f"state '{wrong[2]}': recorded"):
                h.restart(follows(wrong[0], wrong[1], lambda v: v))


@pytest.mark.parametrize(
    "key",
    [
        pa.int64(),
        pa.struct([("a", pa.int64())]),
        pa.struct([("a", pa.int32()), ("b", pa.int8())]),
        pa.struct([("b", pa.int32())]),
        pa.struct([pa.field("a", pa.int32(), False)]),
    ],
)
def test_a_key_of_a_map_state_stays_as_it_was(key: pa.DataType) -> None:
    """Its bytes are where an entry is: another type would not find it."""

    class First(hf.BatchProcessor):
        by = hf.MapState(pa.struct([("a", pa.int32())]), pa.int64())

        def process(self, batch: Any, ctx: Any) -> None: ...

    class Then(First):
        by = hf.MapState(key, pa.int64())

    with Harness(First(), "user", ROWS, OUT) as h, pytest.raises(hf.Incompatible, match="state 'by': recorded map"):
        h.restart(Then())


def test_key_columns_stay_as_they_were() -> None:
    recorded = operator_record()
    wider = pa.schema([pa.field(field.name, pa.large_binary()) for field in recorded.key_schema])
    (told,) = recorded.differences(replace(recorded, key_schema=wider))
    assert told.startswith("key columns: recorded")
