"""Random programs one after the other on one checkpoint, and on those that begin with it, whose values have other types
each time: fields of structs at any depth are added, dropped, renamed, reordered, widened and made nullable, between
batches, kills, lost machines, batches that run twice, and restores from versions and savepoints. Plain Python says what
each value, by whatever program it was written, is read as.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.evolving_queries import FORMATS, Query

import holdfast as hf
from holdfast.testing import Harness

USERS = ("ada", "bob", "cy", "di")
STATES = ("value", "list", "map", "last", "gathered", "buffer")
#: Leaves, and what each may become.
WIDER = {
    "int8": ("int16", "int32", "int64"),
    "int16": ("int32", "int64"),
    "int32": ("int64",),
    "int64": (),
    "uint8": ("uint32", "int16", "int64"),
    "uint32": ("uint64", "int64"),
    "uint64": (),
    "float": ("double",),
    "double": (),
    "decimal5": ("decimal9", "decimal30"),
    "decimal9": ("decimal30",),
    "decimal30": (),
    "string": (),
    "binary": (),
    "bool_": (),
}
GIVEN: dict[int, dict[str, Any]] = {}  # by row, what each state is given


@dataclass
class Leaf:
    kind: str

    def arrow(self) -> pa.DataType:
        if self.kind.startswith("decimal"):
            return pa.decimal128(int(self.kind[7:]), 2)
        made: pa.DataType = {"float": pa.float32(), "double": pa.float64()}.get(self.kind) or getattr(pa, self.kind)()
        return made

    def draw(self, draw: random.Random) -> Any:
        if self.kind.startswith("decimal"):
            return Decimal(draw.randint(-99999, 99999)) / 100
        if self.kind in ("float", "double"):
            return draw.randint(-1000, 1000) / 8
        if self.kind == "string":
            return "é" * draw.randint(0, 5)
        if self.kind == "binary":
            return bytes(draw.randint(0, 200))
        if self.kind == "bool_":
            return draw.random() < 0.5
        bits = self.arrow().bit_width
        return draw.choice((0, 1, 2 ** (bits - 1) - 1, 0 if self.kind.startswith("u") else -(2 ** (bits - 1))))

    def read(self, value: Any) -> Any:
        return value


@dataclass
class Many:
    """A list or a map of strings."""

    element: Any
    is_map: bool

    def arrow(self) -> pa.DataType:
        inner = self.element.arrow()
        return pa.map_(pa.string(), inner) if self.is_map else pa.list_(inner)

    def draw(self, draw: random.Random) -> Any:
        return [None if draw.random() < 0.2 else self.element.draw(draw) for _ in range(draw.randint(0, 3))]

    def read(self, value: Any) -> Any:
        elements = [None if one is None else self.element.read(one) for one in value]
        return [(f"k{at}", one) for at, one in enumerate(elements)] if self.is_map else elements


@dataclass
class Field:
    uid: int
    name: str
    node: Any
    nullable: bool = True
    default: Any = None
    before: str | None = None  # the name that it had, as long as the program says it

    def arrow(self) -> pa.Field:
        made = pa.field(self.name, self.node.arrow(), self.nullable)
        if self.before is not None:
            made = hf.renamed_from(self.before, made)
        return made if self.default is None else hf.with_default(made, self.default)


@dataclass
class Struct:
    """Its values are dictionaries by the fields' numbers, which no program knows."""

    fields: list[Field]
    dropped: list[str] = field(default_factory=list)

    def arrow(self) -> pa.DataType:
        return pa.struct([*(one.arrow() for one in self.fields), *map(hf.dropped_field, self.dropped)])

    def draw(self, draw: random.Random) -> Any:
        return {one.uid: None if one.nullable and draw.random() < 0.2 else one.node.draw(draw) for one in self.fields}

    def read(self, value: Any) -> Any:
        found = ((one, value.get(one.uid, one.default)) for one in self.fields)
        return {one.name: None if inner is None else one.node.read(inner) for one, inner in found}


class Gathered:
    """Keeps what came last."""

    def create(self) -> Any:
        return None

    def add(self, accumulator: Any, n: int) -> Any:
        return GIVEN[n]["gathered"]

    def merge(self, a: Any, b: Any) -> Any:
        return b

    def result(self, accumulator: Any) -> Any:
        return accumulator


def process(self: Any, key: Any, rows: Any, ctx: Any) -> None:
    for n in rows["n"].to_pylist():
        given = GIVEN[n]
        self.value.update(given["value"])
        self.list.add(given["list"])
        self.map.put(n % 3, given["map"])
        self.last.add(given["last"])
        self.gathered.add(n)
        self.buffer.add(given["buffer"])


class World:
    """The newest of some queries, the types that its states have now, and what they hold."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.draw = random.Random(seed)
        self.folder, self.queries = folder, 0
        self.numbers = 0
        self.types = {state: self.struct(2) for state in STATES}
        self.held: dict[str, dict[str, Any]] = {state: {} for state in STATES}
        self.buffer: list[Any] = []
        self.harness = self.query(None)

    def query(self, origin: Query | Path | None) -> Harness:
        self.queries += 1
        self.now = Query(
            self.folder / str(self.queries),
            self.program(),
            origin,
            backend=self.draw.choice(("rocksdb", "hashmap")),
            settings={"fold.deltas.max": 2, "snapshot.deltas.max": 3},
        )
        return self.now.harness

    def program(self) -> hf.KeyedProcessor:
        kinds = {state: node.arrow() for state, node in self.types.items()}
        states = {
            "value": hf.ValueState(kinds["value"], ttl=self.draw.choice((None, "1000 d"))),
            "list": hf.ListState(kinds["list"]),
            "map": hf.MapState(pa.int64(), kinds["map"]),
            "last": hf.ReducingState(kinds["last"], "last"),
            "gathered": hf.AggregatingState(pa.int64(), Gathered, kinds["gathered"], unmarked(kinds["gathered"])),
            "buffer": hf.OperatorState(kinds["buffer"], redistribution="split"),
        }
        made: Any = type("Program", (hf.KeyedProcessor,), {**states, "process": process})
        processor: hf.KeyedProcessor = made()
        return processor

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def node(self, depth: int) -> Any:
        if depth and self.draw.random() < 0.4:
            return self.struct(depth - 1)
        if depth and self.draw.random() < 0.3:
            return Many(self.node(depth - 1), self.draw.random() < 0.5)
        return Leaf(self.draw.choice(sorted(WIDER)))

    def struct(self, depth: int) -> Struct:
        return Struct([self.field(depth, self.draw.random() < 0.7) for _ in range(self.draw.randint(1, 4))])

    def field(self, depth: int, nullable: bool) -> Field:
        uid = self.number()
        return Field(uid, f"f{uid}", self.node(depth), nullable)

    def structs(self) -> list[Struct]:
        found: list[Struct] = []

        def look(node: Any) -> None:
            if isinstance(node, Struct):
                found.append(node)
                for one in node.fields:
                    look(one.node)
            elif isinstance(node, Many):
                look(node.element)

        for node in self.types.values():
            look(node)
        return found

    def forget_lines(self) -> None:
        """The program says no more what it said at earlier restarts."""
        for struct in self.structs():
            struct.dropped = []
            for one in struct.fields:
                one.before = None

    def change(self) -> None:
        """Some changes at once, and a restart."""
        self.forget_lines()
        for _ in range(self.draw.randint(1, 4)):
            struct = self.draw.choice(self.structs())
            self.change_of(struct)
        self.harness.restart(self.program())
        if self.draw.random() < 0.5:
            self.harness.restart(self.program())
        if self.draw.random() < 0.5:
            self.forget_lines()
            self.harness.restart(self.program())

    def restore(self) -> None:
        """A new query with a changed program, which begins with this one."""
        if not self.harness.snapshot().next_batch:
            return
        before, keys = self.now, self.harness.snapshot().keys
        before.commit()
        origin: Query | Path = before.saved(self.draw.choice(FORMATS)) if self.draw.random() < 0.5 else before
        self.forget_lines()
        for _ in range(self.draw.randint(0, 4)):
            self.change_of(self.draw.choice(self.structs()))
        self.harness.close()
        self.harness = self.query(origin)
        self.harness.restore(replace(self.harness.snapshot(), keys=keys))

    def change_of(self, struct: Struct) -> None:
        what = self.draw.choice(("add", "drop", "rename", "reorder", "widen", "nullable"))
        one = self.draw.choice(struct.fields) if struct.fields else None
        if what == "add" or one is None:
            new = self.field(1, True)
            if isinstance(new.node, Leaf) and self.draw.random() < 0.6:
                new.default = new.node.draw(self.draw)
                new.nullable = self.draw.random() < 0.5
            struct.fields.insert(self.draw.randint(0, len(struct.fields)), new)
        elif what == "drop" and one.before is None and len(struct.fields) > 1:
            struct.fields.remove(one)
            struct.dropped.append(one.name)
        elif what == "rename" and one.before is None and f"f{self.numbers}" != one.name:
            one.before, one.name = one.name, f"f{self.number()}"
        elif what == "reorder":
            self.draw.shuffle(struct.fields)
        elif what == "widen" and isinstance(one.node, Leaf) and WIDER[one.node.kind]:
            one.node.kind = self.draw.choice(WIDER[one.node.kind])
        elif what == "nullable":
            one.nullable = True

    def mistake(self) -> None:
        """A program that leaves a field out, or gives it a type that holds less, changes nothing."""
        self.forget_lines()
        struct = self.draw.choice(self.structs())
        one = self.draw.choice(struct.fields)
        kind = one.node
        if self.draw.random() < 0.5 and len(struct.fields) > 1:
            at = struct.fields.index(one)
            struct.fields.remove(one)
            wrong = self.program()
            struct.fields.insert(at, one)
        else:
            default, one.default = one.default, None
            one.node = Leaf("int8" if not isinstance(kind, Leaf) or kind.kind != "int8" else "string")
            wrong = self.program()
            one.node, one.default = kind, default
        with pytest.raises(hf.Incompatible, match=one.name):
            self.harness.restart(wrong)
        self.harness.restart(self.program())

    def batch(self) -> None:
        rows = []
        for _ in range(self.draw.randint(1, 5)):
            n, user = self.number(), self.draw.choice(USERS)
            drawn = {state: node.draw(self.draw) for state, node in self.types.items()}
            GIVEN[n] = {state: self.types[state].read(value) for state, value in drawn.items()}
            rows.append({"user": user, "n": n})
            for state in ("value", "last", "gathered"):
                self.held[state][user] = drawn[state]
            self.held["list"].setdefault(user, []).append(drawn["list"])
            self.held["map"].setdefault(user, {})[n % 3] = drawn["map"]
            self.buffer.append(drawn["buffer"])
        self.harness.process(rows)
        if self.draw.random() < 0.2:
            self.harness.replay()

    def expected(self, state: str) -> Any:
        read = self.types[state].read
        if state == "list":
            return {user: [read(one) for one in held] for user, held in self.held[state].items()}
        if state == "map":
            return {user: {at: read(one) for at, one in held.items()} for user, held in self.held[state].items()}
        return {user: read(held) for user, held in self.held[state].items()}

    def check(self) -> None:
        for state in STATES[:-1]:
            assert self.harness.state(state) == self.expected(state), state
        expected = [self.types["buffer"].read(one) for one in self.buffer]
        for one in self.harness.state("buffer"):  # in no order that a user knows
            expected.remove(one)
        assert not expected

    def step(self) -> None:
        self.draw.choice((self.batch, self.batch, self.change, self.change, self.mistake, self.restore))()
        if self.draw.random() < 0.3:
            self.harness.kill(lose_local_copies=self.draw.random() < 0.5)
        self.check()


def unmarked(kind: pa.DataType) -> pa.DataType:
    """The type as values have it: what an aggregate gives says nothing of earlier fields."""
    if pa.types.is_struct(kind):
        fields = [one for one in kind if not pa.types.is_null(one.type)]
        return pa.struct([pa.field(one.name, unmarked(one.type), one.nullable) for one in fields])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, unmarked(kind.item_type))
    return pa.list_(unmarked(kind.value_type)) if pa.types.is_list(kind) else kind


LONG = [pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6)]
SLOW = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 60)]


@pytest.mark.parametrize("seed", [0, *LONG, *SLOW])
def test_values_are_read_as_the_newest_type_whatever_program_wrote_them(seed: int, tmp_path: Path) -> None:
    world = World(seed, tmp_path)
    try:
        for _ in range(25):
            world.step()
    finally:
        world.harness.close()
