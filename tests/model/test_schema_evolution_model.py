"""Random programs one after the other on one checkpoint, and on those that begin with it: states of every kind are
added, dropped and renamed, between batches, kills, lost machines, batches that run twice, and restores from versions
and savepoints. A dictionary by state says what is right.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.evolving_queries import FORMATS, Query, said

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
        "timers": lambda: hf.Timers("processing"),
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
    """The newest of some queries, and the programs that run on it."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.draw = random.Random(seed)
        self.folder, self.queries = folder, 0
        self.states = {"s0": Oracle("reducing"), "s1": Oracle(self.draw.choice(KINDS))}
        self.gone: dict[str, str] = {}
        self.names = 2
        self.harness = self.query(self.program())

    def query(self, processor: hf.KeyedProcessor, origin: Query | Path | None = None, **more: Any) -> Harness:
        self.queries += 1
        self.now = Query(
            self.folder / str(self.queries),
            processor,
            origin,
            backend=self.draw.choice(("rocksdb", "hashmap")),
            settings={"fold.deltas.max": 2, "snapshot.deltas.max": 3},
            **more,
        )
        return self.now.harness

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

    def changed(self) -> list[tuple[str, str, str]]:
        """Some changes at once: what, name, and of a rename the name before."""
        made: list[tuple[str, str, str]] = []
        untouched = sorted(self.states)
        self.draw.shuffle(untouched)
        for change in self.draw.choices(("add", "drop", "rename"), k=self.draw.randint(0, 3)):
            if change == "add":
                self.states[new := self.new_name()] = Oracle(self.draw.choice(KINDS))
                made.append((change, new, ""))
            elif len(untouched) > 1:
                name = untouched.pop()
                state = self.states.pop(name)
                if change == "drop":
                    self.gone[name] = state.kind
                    made.append((change, name, ""))
                else:
                    self.states[new := self.new_name()] = state
                    made.append((change, new, name))
        return made

    def lines(self, changes: list[tuple[str, str, str]]) -> dict[str, Any]:
        """As a processor says them."""
        renamed = {
            now: hf.renamed_from(before, declaration(self.states[now].kind))
            for change, now, before in changes
            if change == "rename"
        }
        return {**renamed, **{name: hf.DroppedState() for change, name, _ in changes if change == "drop"}}

    def change(self) -> None:
        """A restart with a changed program."""
        lines = self.lines(self.changed())
        if self.draw.random() < 0.5:
            lines.update({name: hf.DroppedState() for name in self.gone})
        self.harness.restart(self.program(**lines))
        if self.draw.random() < 0.3:
            self.harness.restart(self.program())

    def restore(self) -> None:
        """A new query with a changed program, which begins with this one; each change is said in either place."""
        if not self.harness.snapshot().next_batch:
            return
        before, keys = self.now, self.harness.snapshot().keys
        before.commit()
        origin: Query | Path = before.saved(self.draw.choice(FORMATS)) if self.draw.random() < 0.5 else before
        if origin is not before:
            self.gone = {}  # a savepoint has what there is
        changes = self.changed()
        beside = [one for one in changes if one[0] == "add" or self.draw.random() < 0.5]
        changes_beside = said(
            [name for change, name, _ in beside if change == "drop"],
            {old: new for change, new, old in beside if change == "rename"},
            [name for change, name, _ in beside if change == "add"],
        )
        lines = self.lines([one for one in changes if one not in beside])
        self.harness.close()
        self.harness = self.query(self.program(**lines), origin, changes=changes_beside)
        self.harness.restore(replace(self.harness.snapshot(), keys=keys))
        if self.draw.random() < 0.5:  # given again, it changes nothing
            self.now.register(self.now.beginning(origin, self.program(**lines), changes_beside))

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
        steps = (self.batch, self.batch, self.batch, self.change, self.mistake, self.restore)
        self.draw.choice(steps)()
        if self.draw.random() < 0.3:
            self.harness.kill(lose_local_copies=self.draw.random() < 0.5)
        self.check()


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 60))])
def test_states_hold_what_they_should_whatever_program_comes(seed: int, tmp_path: Path) -> None:
    world = World(seed, tmp_path)
    try:
        for _ in range(40):
            world.step()
    finally:
        world.harness.close()
