"""An operator through generations, without Spark: slots that are opened, run, given up and committed as Spark does it,
and plain Python that says what is right. Knows how keys are spread over slots from `KeyCodec` alone.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections import Counter, defaultdict
from copy import copy, deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.checkpoint_driver import HOST, SMALL, FakeClock, through_text
from tests.faulty_file_store import FaultyFileStore
from tests.spark_files import SparkFiles

from holdfast import _core
from holdfast.checkpoint import (
    FIRST_OPERATOR_STATE_ID,
    FIRST_TIMERS_ID,
    Background,
    BatchTime,
    CheckpointSettings,
    Handle,
    Lifetime,
    OperatorRecord,
    SavepointOrigin,
    SlotState,
    StateRecord,
    VersionsOrigin,
    register_operator,
)
from holdfast.checkpoint.native_manifest import NativeManifest, opened_manifest
from holdfast.checkpoint.origin import Origin
from holdfast.checkpoint.schema_evolution import next_schema
from holdfast.checkpoint.value_schemas import plain_schema
from holdfast.errors import Unavailable
from holdfast.inspect import OperatorTables, Savepoint
from holdfast.inspect.savepoint import Format
from holdfast.storage import LocalFileStore

GROUPS = 16
KEYS = pa.schema([("k", pa.int64())])
KEY_COUNT = 40
TTL_MS = 50
START_MS = 1_000_000
_ELEMENT = pa.schema([("element", pa.int64())])
_VALUE = pa.schema([("value", pa.int64())])
_WIDER = {pa.int16(): pa.int32(), pa.int32(): pa.int64()}
#: Savepoints have names alone: what is made of one may have other ids.
STATES = (
    StateRecord(1, "values", "value", pa.schema([("value", pa.int16())])),  # wider in later generations
    StateRecord(2, "sums", "reducing", _VALUE, "sum"),
    StateRecord(3, "lists", "list", _ELEMENT),
    StateRecord(4, "maps", "map", pa.schema([("key", pa.string()), ("value", pa.int64())])),
    StateRecord(
        FIRST_OPERATOR_STATE_ID, "rules", "broadcast", pa.schema([("key", pa.string()), ("value", pa.int64())])
    ),
    StateRecord(FIRST_OPERATOR_STATE_ID + 1, "split", "operator", _ELEMENT, "split"),
    StateRecord(FIRST_OPERATOR_STATE_ID + 2, "union", "operator", _ELEMENT, "union"),
    StateRecord(FIRST_TIMERS_ID, "due", "timers", pa.schema([("namespace", pa.string())]), "processing"),
)
_CODEC = _core.KeyCodec(KEYS)


def slots_of_keys(slots: int) -> list[int]:
    """The slot of each key."""
    found = [0] * KEY_COUNT
    order, offsets = _CODEC.partition(_keys(range(KEY_COUNT)), GROUPS, slots)
    rows, bounds = pa.array(order).to_pylist(), pa.array(offsets).to_pylist()
    for slot in range(slots):
        for row in rows[bounds[slot] : bounds[slot + 1]]:
            found[row] = slot
    return found


def _keys(keys: Any) -> pa.Array:
    return pa.array(list(keys), pa.int64())


class Oracle:
    """What the operator holds, whatever its slots are."""

    def __init__(self) -> None:
        self.values: dict[int, tuple[int, int]] = {}  # value, stamp
        self.sums: dict[int, int] = {}
        self.lists: dict[int, list[int]] = defaultdict(list)
        self.maps: dict[int, dict[str, int]] = defaultdict(dict)
        self.timers: dict[int, set[int]] = defaultdict(set)
        self.rules: dict[str, int] = {}
        self.split: dict[int, list[int]] = defaultdict(list)  # by slot
        self.union: dict[int, list[int]] = defaultdict(list)

    def alive(self, key: int, now_ms: int) -> int | None:
        value, stamp = self.values.get(key, (None, 0))
        return value if stamp > now_ms - TTL_MS else None


class Generation:
    """One generation: its slots' committed handles, and the processes that run them."""

    def __init__(
        self,
        world: World,
        number: int,
        slots: int,
        store: Any,
        backend: str,
        origin: Origin | None = None,
        states: tuple[StateRecord, ...] = STATES,
    ) -> None:
        self.world, self.number, self.slots, self.store = world, number, slots, store
        self.ids = {state.name: state.id for state in states}
        self.kept = next(plain_schema(state).field(0).type for state in states if state.name == "values")
        self.settings: CheckpointSettings = replace(SMALL, backend=backend, fold_deltas_max=2, snapshot_deltas_max=3)
        self.query = f"{number:08x}-0000-4000-8000-000000000000"
        self.record = OperatorRecord("all", GROUPS, slots, tuple(range(slots)), KEYS, False, states, (), origin)
        # Through its text, as every process reads it.
        self.record = OperatorRecord.from_json(self.record.to_json())
        self.handles: list[Handle | None] = [None] * slots
        self.batch_id = 0
        self._kept: dict[int, SlotState] = {}

    def state(self, slot: int) -> SlotState:
        """The slot in a process that has it already, or in a new one."""
        world = self.world
        if slot not in self._kept or world.draw.random() < 0.3:
            local = world.draw.choice(["local-a", "local-b"])
            if world.draw.random() < 0.1:
                shutil.rmtree(world.folder / local, ignore_errors=True)
                self._kept.clear()
            self._kept[slot] = SlotState(
                record=self.record,
                slot=slot,
                file_store=self.store,
                prefix=f"{self.query}/all",
                local_dir=str(world.folder / local),
                settings=self.settings,
                clock=world.clock,
                host=replace(HOST, name=local),
                background=world.background,
            )
        return self._kept[slot]

    def origin(self) -> VersionsOrigin:
        """What the next generation may begin with."""
        handles = tuple(None if one is None else one.stored() for one in self.handles)
        time = BatchTime(self.world.now_ms)
        return VersionsOrigin(self.store.uri, self.query, "all", self.batch_id - 1, handles, ("all",), time=time)


class World:
    """Plays batches in the newest generation against the oracle."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.draw, self.clock = folder, random.Random(seed), FakeClock()
        self.background = Background()
        self.now_ms = START_MS
        self.oracle = Oracle()
        self.generation = Generation(self, 0, self.draw.randint(1, 8), self.new_store("store-0"), "rocksdb")

    def new_store(self, name: str) -> FaultyFileStore:
        return FaultyFileStore(LocalFileStore(os.path.join(self.folder, name)), remote=self.draw.random() < 0.3)

    def rescale(self, slots: int) -> None:
        """A new generation of the newest one's versions, perhaps in another store and backend."""
        before, number = self.generation, self.generation.number + 1
        states, origin = self.saved(before) if self.draw.random() < 0.4 else (before.record.states, before.origin())
        states = tuple(self.evolved(state) for state in states)
        store = self.new_store(f"store-{number}") if self.draw.random() < 0.5 else before.store
        backend = self.draw.choice(["rocksdb", "hashmap"])
        self.generation = Generation(self, number, slots, store, backend, origin, states)
        self.redistribute(before.slots, slots)
        self.batch()
        assert all(self.generation.handles), "all slots are called in the first batch of a generation with an origin"
        # Nothing of the earlier generation is needed any more.
        assert self.background.drain(240)
        shutil.rmtree(os.path.join(before.store.inner.root, before.query))
        for local in ("local-a", "local-b"):
            for left in (self.folder / local).glob(f"*/{before.query}"):
                shutil.rmtree(left)

    def evolved(self, state: StateRecord) -> StateRecord:
        """The state as the next program declares it: of values perhaps a wider type."""
        kept = plain_schema(state).field(0).type
        if state.name != "values" or kept not in _WIDER or self.draw.random() < 0.5:
            return state
        return next_schema(state, replace(STATES[0], schema=pa.schema([("value", _WIDER[kept])])), ())

    def fork(self) -> World:
        """A copy of the checkpoint and of its state folder, which goes on by itself, as this one does."""
        assert self.background.drain(240)
        before = self.generation
        twin: World = copy(self)
        twin.folder = Path(tempfile.mkdtemp(prefix="fork-", dir=self.folder))
        twin.clock, twin.background, twin.oracle = FakeClock(), Background(), deepcopy(self.oracle)
        shutil.copytree(before.store.inner.root, twin.folder / "forked")
        generation = copy(before)
        generation.world, generation.store, generation._kept = twin, twin.new_store("forked"), {}
        generation.handles = list(before.handles)
        twin.generation = generation
        return twin

    def saved(self, before: Generation) -> tuple[tuple[StateRecord, ...], Origin]:
        """A savepoint of a generation, perhaps moved, perhaps claimed; of either format, or of one that was made of the
        other. With the states under the ids that they have there, or under any, where a savepoint has names alone.
        """
        folder = self.folder / f"saved-{before.number}"
        formats: tuple[Format, Format] = ("canonical", "native")
        made = self.savepoint(before, folder, self.draw.choice(formats))
        if self.draw.random() < 0.3:
            folder = self.folder / f"converted-{before.number}"
            made = made.convert(folder)
        if made.format == "canonical" and self.draw.random() < 0.5:
            folder = self.rewritten(made, self.folder / f"rewritten-{before.number}")
        if self.draw.random() < 0.5:
            folder = folder.rename(self.folder / f"moved-{before.number}")
        claim = self.draw.random() < 0.3
        manifest = opened_manifest(LocalFileStore(str(folder)))
        if isinstance(manifest, NativeManifest):
            return manifest.operator("all").record.states, replace(manifest.origin("all", str(folder)), claim=claim)
        states = tuple((state.name, state.id) for state in STATES)
        batch_id = before.batch_id - 1
        operators = ("all",)
        plain = pa.schema([("value", before.kept)])
        return (replace(STATES[0], schema=plain), *STATES[1:]), SavepointOrigin(
            str(folder), manifest.checksum, before.query, batch_id, "all", operators, states, claim
        )

    def savepoint(self, generation: Generation, folder: Path, format: Format) -> Savepoint:
        """One of a generation as it is."""
        spark = SparkFiles(self.folder / f"spark-{folder.name}", generation.query)
        texts = [handle.to_text() for handle in generation.handles if handle is not None]
        spark.commit(generation.batch_id - 1, texts, snapshot=True, timestamp_ms=self.now_ms)
        store = generation.store.inner
        register_operator(store, generation.record, prefix=f"{generation.query}/all")
        return Savepoint.create(checkpoint=spark.folder, state=store.root, to=folder, format=format)

    def rewritten(self, saved: Savepoint, folder: Path) -> Path:
        """The same, made of its tables; their rows come in any order."""
        tables = {}
        for state in self.draw.sample(STATES, self.draw.randint(1, len(STATES))):
            table = saved.read("all", state.name).read_all()
            order = self.draw.sample(range(len(table)), len(table))
            left = [name for name in table.column_names if name != "key_group" or self.draw.random() < 0.5]
            tables[state.name] = table.take(pa.array(order, pa.int64())).select(left)
        Savepoint.write(folder, OperatorTables("all", tables), base=saved)
        return folder

    def redistribute(self, before: int, after: int) -> None:
        oracle = self.oracle
        everything = [element for slot in range(before) for element in oracle.union[slot]]
        oracle.union = defaultdict(list, {slot: list(everything) for slot in range(after)})
        dealt: dict[int, list[int]] = defaultdict(list)
        for slot in range(before):
            groups = {group for group in range(GROUPS) if group * before // GROUPS == slot}
            takers = sorted({group * after // GROUPS for group in groups})
            for number, element in enumerate(oracle.split[slot]):
                dealt[takers[number % len(takers)]].append(element)
        kept = Counter(element for found in oracle.split.values() for element in found)
        assert kept == Counter(element for found in dealt.values() for element in found)
        oracle.split = dealt

    def batch(self) -> None:
        """One batch: any slots have rows; where the generation has an origin all are called until they have handles."""
        draw, generation = self.draw, self.generation
        self.now_ms += draw.choice([0, 1, 5, 20])
        places = slots_of_keys(generation.slots)
        rows = {key: draw.randrange(1000) for key in draw.sample(range(KEY_COUNT), draw.randint(0, 12))}
        rules = {draw.choice("abc"): draw.choice([None, draw.randrange(9)])} if draw.random() < 0.3 else {}
        called = {places[key] for key in rows} | {draw.randrange(generation.slots)}
        if rules or (generation.record.origin and not all(generation.handles)):
            called = set(range(generation.slots))
        made: dict[int, Handle] = {}
        for _ in range(draw.choice([1, 1, 2])):  # the batch runs again: not all slots had come so far, or Spark died
            for slot in sorted(called):
                if draw.random() < 0.9 or slot in made:
                    made[slot] = self.task(slot, {key: v for key, v in rows.items() if places[key] == slot}, rules)
        for slot in sorted(called):
            made[slot] = self.task(slot, {key: value for key, value in rows.items() if places[key] == slot}, rules)
        for slot, handle in made.items():
            generation.handles[slot] = through_text(handle)
        self.note(rows, rules, called)
        generation.batch_id += 1

    def task(self, slot: int, rows: dict[int, int], rules: dict[str, int | None]) -> Handle:
        """A slot's part of a batch; what fails is tried again, in any process."""
        store = self.generation.store
        for attempt in range(5):
            state = self.generation.state(slot)
            if attempt < 4 and self.draw.random() < 0.15:
                store.count, store.fail_at = 0, (self.draw.randint(1, 8),)
                store.fail_after = self.draw.random() < 0.5
            failures = store.failures
            try:
                return self.attempt(state, slot, rows, rules)
            except Unavailable as error:
                assert store.failures > failures, "nothing has failed"
                state.abort(error)
            finally:
                store.fail_at = ()
        raise AssertionError("five attempts failed")

    def attempt(self, state: SlotState, slot: int, rows: dict[int, int], rules: dict[str, int | None]) -> Handle:
        committed = self.generation.handles[slot]
        parent = state.first_version() if committed is None else state.whole(committed.stored())
        store, ids = state.open(parent), self.generation.ids
        self.check(store, slot)
        lifetime = Lifetime(ids["values"], "processing", TTL_MS, 1, False)
        state.begin(self.generation.batch_id, None, [lifetime], BatchTime(self.now_ms))
        fired = pa.array(store.timers(ids["due"]).take_due(self.now_ms, 1000)).to_pylist()
        expected = sorted((time, key) for key, time in self.due(slot))
        assert [(row["time"], row["key"]["k"]) for row in fired] == expected
        keys = _keys(rows)
        # A value is asked for in the batch, whose time says what has expired.
        asked = [key for key, place in enumerate(slots_of_keys(self.generation.slots)) if place == slot]
        alive = pa.array(store.value_state(ids["values"], self.generation.kept).get(_keys(asked))).to_pylist()
        assert alive == [self.oracle.alive(key, self.now_ms) for key in asked]
        if rows:
            column = _keys(rows.values())
            store.value_state(ids["values"], self.generation.kept).put(keys, column.cast(self.generation.kept))
            store.reducing_state(ids["sums"], pa.int64(), "sum").add_only(keys, column)
            store.list_state(ids["lists"], pa.int64()).append(keys, column)
            texts = pa.array([str(value % 3) for value in rows.values()])
            store.map_state(ids["maps"], pa.string(), pa.int64()).put(keys, texts, column)
            times = pa.array([self.now_ms + 1 + value % 40 for value in rows.values()], pa.int64())
            store.timers(ids["due"]).register(keys, times, pa.array([""] * len(rows)))
            nothing, first = pa.nulls(1), column.slice(0, 1)
            store.list_state(ids["split"], pa.int64()).append(nothing, first)
            store.list_state(ids["union"], pa.int64()).append(nothing, first)
        table = store.map_state(ids["rules"], pa.string(), pa.int64())
        for name, value in rules.items():
            if value is None:
                table.remove(pa.nulls(1), pa.array([name]))
            else:
                table.put(pa.nulls(1), pa.array([name]), pa.array([value], pa.int64()))
        return state.prepare()

    def due(self, slot: int) -> list[tuple[int, int]]:
        places = slots_of_keys(self.generation.slots)
        found = [(key, time) for key, times in self.oracle.timers.items() for time in times if time <= self.now_ms]
        return [(key, time) for key, time in found if places[key] == slot]

    def note(self, rows: dict[int, int], rules: dict[str, int | None], called: set[int]) -> None:
        """The batch is committed."""
        oracle, places = self.oracle, slots_of_keys(self.generation.slots)
        for slot in called:
            for key, time in self.due(slot):
                oracle.timers[key].discard(time)
        firsts: dict[int, int] = {}
        for key, value in rows.items():
            oracle.values[key] = (value, self.now_ms)
            oracle.sums[key] = oracle.sums.get(key, 0) + value
            oracle.lists[key].append(value)
            oracle.maps[key][str(value % 3)] = value
            oracle.timers[key].add(self.now_ms + 1 + value % 40)
            firsts.setdefault(places[key], value)
        for slot, value in firsts.items():
            oracle.split[slot].append(value)
            oracle.union[slot].append(value)
        for name, rule in rules.items():
            if rule is None:
                oracle.rules.pop(name, None)
            else:
                oracle.rules[name] = rule

    def check(self, store: _core.Store, slot: int) -> None:
        """All that a slot holds, but for the values, which depend on the time of a batch."""
        oracle, places, ids = self.oracle, slots_of_keys(self.generation.slots), self.generation.ids
        own = [key for key in range(KEY_COUNT) if places[key] == slot]
        keys = _keys(own)

        def read(array: _core.ArrowArray) -> list[Any]:
            return pa.array(array).to_pylist()

        sums = read(store.reducing_state(ids["sums"], pa.int64(), "sum").get(keys))
        assert sums == [oracle.sums.get(key) for key in own]
        assert read(store.list_state(ids["lists"], pa.int64()).get(keys)) == [oracle.lists[key] for key in own]
        maps = read(store.map_state(ids["maps"], pa.string(), pa.int64()).entries(keys))
        assert maps == [sorted(oracle.maps[key].items()) for key in own]
        listed = read(store.timers(ids["due"]).list(keys))
        assert [[timer["time"] for timer in timers] for timers in listed] == [sorted(oracle.timers[key]) for key in own]
        nothing = pa.nulls(1)
        if self.generation.handles[slot] or self.generation.record.origin:
            [rules] = read(store.map_state(ids["rules"], pa.string(), pa.int64()).entries(nothing))
            assert rules == sorted(oracle.rules.items())
        assert read(store.list_state(ids["split"], pa.int64()).get(nothing)) == [oracle.split[slot]]
        assert read(store.list_state(ids["union"], pa.int64()).get(nothing)) == [oracle.union[slot]]
