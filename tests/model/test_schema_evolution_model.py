"""Random programs one after the other on one checkpoint: states of every kind are added, dropped and renamed, between
batches, kills, lost machines and batches that run twice. A dictionary by state says what is right.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.state import declared_states
from holdfast.testing import Harness

KINDS = ("value", "list", "map", "reducing", "aggregating", "operator", "timers")
USERS = ("ada", "bob", "cy", "di")
FAR = datetime(2100, 1, 1, tzinfo=timezone.utc)


def declaration(kind: str) -> Any:
    return {
        "value": lambda: hf.ValueState(pa.struct([("n", pa.int64())])),
        "list": lambda: hf.ListState(pa.int64()),
        "map": lambda: hf.MapState(pa.int64(), pa.string()),
        "reducing": lambda: hf.ReducingState(pa.int64(), "sum"),
        "aggregating": lambda: hf.AggregatingState(pa.int64(), "count"),
        "operator": lambda: hf.OperatorState(pa.int64(), redistribution="split"),
        "timers": lambda: hf.Timers("event"),
    }[kind]()


def process(self: Any, key: Any, rows: Any, ctx: Any) -> None:
    for name, declared in declared_states(self):
        state = getattr(self, name)
        for n in rows["n"].to_pylist():
            if declared.kind == "value":
                state.update({"n": n})
            elif declared.kind == "map":
                state.put(n % 3, str(n))
            elif declared.kind == "timers":
                state.register(FAR, str(n % 3))
            else:
                state.add(n)


def on_timer(self: Any, key: Any, time: Any, namespace: str, ctx: Any) -> None:
    raise AssertionError("no timer is due")


@dataclass
class Oracle:
    """One state: what it holds, by key."""

    kind: str
    held: dict[str, Any] = field(default_factory=dict)
    of_no_key: list[int] = field(default_factory=list)

    def add(self, user: str, n: int) -> None:
        if self.kind == "operator":
            self.of_no_key.append(n)
        elif self.kind == "value":
            self.held[user] = {"n": n}
        elif self.kind == "list":
            self.held[user] = [*self.held.get(user, []), n]
        elif self.kind == "map":
            self.held[user] = {**self.held.get(user, {}), n % 3: str(n)}
        elif self.kind == "timers":
            self.held[user] = sorted({*self.held.get(user, ()), str(n % 3)})
        else:
            self.held[user] = self.held.get(user, 0) + (n if self.kind == "reducing" else 1)

    def expected(self) -> Any:
        return sorted(self.of_no_key) if self.kind == "operator" else self.held


def found(kind: str, read: Any) -> Any:
    if kind == "operator":
        return sorted(read)
    if kind == "timers":
        return {user: [timer["namespace"] for timer in timers] for user, timers in read.items()}
    if kind == "aggregating":  # of a key that nothing was added to, 0
        return {user: count for user, count in read.items() if count}
    return read


class World:
    """One checkpoint, and the programs that run on it."""

    def __init__(self, seed: int, folder: Any) -> None:
        self.draw = random.Random(seed)
        self.states = {"s0": Oracle("reducing"), "s1": Oracle(self.draw.choice(KINDS))}
        self.gone: dict[str, str] = {}
        self.names = 2
        self.harness = Harness(
            self.program(),
            "user",
            "user string, n long",
            "user string, n long",
            backend=self.draw.choice(("rocksdb", "hashmap")),
            settings={"fold.deltas.max": 2, "snapshot.deltas.max": 3},
            folder=folder,
        )

    def program(self, **more: Any) -> hf.KeyedProcessor:
        attributes = {name: declaration(state.kind) for name, state in self.states.items()}
        shuffled = self.draw.sample(sorted({**attributes, **more}.items()), len({**attributes, **more}))
        timers = any(isinstance(state, hf.Timers) for _, state in shuffled)
        methods = {"process": process, **({"on_timer": on_timer} if timers else {})}
        made: Any = type("Program", (hf.KeyedProcessor,), {**dict(shuffled), **methods})
        processor: hf.KeyedProcessor = made()
        return processor

    def new_name(self) -> str:
        self.names += 1
        return f"s{self.names}"

    def change(self) -> None:
        """Some changes at once, and a restart."""
        lines: dict[str, Any] = {}
        untouched = sorted(self.states)
        self.draw.shuffle(untouched)
        for change in self.draw.choices(("add", "drop", "rename"), k=self.draw.randint(0, 3)):
            if change == "add":
                self.states[self.new_name()] = Oracle(self.draw.choice(KINDS))
            elif len(untouched) > 1:
                name = untouched.pop()
                state = self.states.pop(name)
                if change == "drop":
                    self.gone[name] = state.kind
                    lines[name] = hf.DroppedState()
                else:
                    self.states[new := self.new_name()] = state
                    lines[new] = hf.renamed_from(name, declaration(state.kind))
        if self.draw.random() < 0.5:
            lines.update({name: hf.DroppedState() for name in self.gone})
        self.harness.restart(self.program(**lines))
        if self.draw.random() < 0.3:
            self.harness.restart(self.program())

    def mistake(self) -> None:
        """A program that leaves something out, or wants back what is gone, changes nothing."""
        if self.gone and self.draw.random() < 0.5:
            name = self.draw.choice(sorted(self.gone))
            wrong = self.program(**{name: declaration(self.gone[name])})
        elif len(self.states) > 1:
            name = self.draw.choice(sorted(self.states))
            left = self.states.pop(name)
            wrong = self.program(**({self.new_name(): declaration(left.kind)} if self.draw.random() < 0.5 else {}))
            self.states[name] = left
        else:
            return
        with pytest.raises(hf.Incompatible, match=f"state '{name}'"):
            self.harness.restart(wrong)
        self.harness.restart(self.program())

    def batch(self) -> None:
        rows = [
            {"user": self.draw.choice(USERS), "n": self.draw.randint(0, 99)} for _ in range(self.draw.randint(1, 8))
        ]
        self.harness.process(rows)
        for row in rows:
            for state in self.states.values():
                state.add(str(row["user"]), int(str(row["n"])))
        if self.draw.random() < 0.2:
            self.harness.replay()

    def check(self) -> None:
        for name, state in self.states.items():
            read = found(state.kind, self.harness.state(name))
            assert read == state.expected(), f"{name}, a {state.kind}"

    def step(self) -> None:
        steps = (self.batch, self.batch, self.batch, self.change, self.mistake)
        self.draw.choice(steps)()
        if self.draw.random() < 0.3:
            self.harness.kill(lose_local_copies=self.draw.random() < 0.5)
        self.check()


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 60))])
def test_states_hold_what_they_should_whatever_program_comes(seed: int, tmp_path: Any) -> None:
    world = World(seed, tmp_path)
    with world.harness:
        for _ in range(40):
            world.step()
