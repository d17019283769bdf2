"""A Store against dictionaries: random operations on every kind of state, over real bases, through commits, aborts,
spills, folds, evictions, restores and followers that catch up by deltas."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.example_count import examples

from holdfast import _core, rocksdb_library
from holdfast.errors import InvalidRequest

KEYS = pa.schema([("name", pa.string()), ("number", pa.int16())])
MAX_PARALLELISM = 16
OPTIONS = _core.BaseOptions(max_runs=3)
Key = tuple[str | None, int | None]

# Few keys, so that operations meet; with nulls and a zero byte, which key encodings escape.
ALL_KEYS: list[Key] = [(name, number) for name in ("a", "b\0", None) for number in (-1, 7, None)]
keys = st.lists(st.sampled_from(ALL_KEYS), max_size=12)
texts = st.one_of(st.none(), st.text("xyz", max_size=40))
numbers = st.one_of(st.none(), st.integers(-1000, 1000))
map_keys = st.sampled_from(["", "m", "n", "mm"])
times = st.one_of(st.integers(-3, 9), st.sampled_from([-(2**63), 2**63 - 1]))
POINT = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
points = st.one_of(
    st.none(), st.builds(lambda x, y: {"x": x, "y": y}, numbers, st.one_of(st.none(), st.lists(texts, max_size=3)))
)


def rows_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[Key, Any]]]:
    return st.lists(st.tuples(st.sampled_from(ALL_KEYS), values), max_size=12)


def key_batch(chosen: Sequence[Key]) -> pa.RecordBatch:
    columns = [pa.array([key[i] for key in chosen], field.type) for i, field in enumerate(KEYS)]
    return pa.RecordBatch.from_arrays(columns, schema=KEYS)


def read(array: _core.ArrowArray) -> list[Any]:
    return pa.array(array).to_pylist()


class Oracle:
    """What the states should hold, at one version."""

    def __init__(self) -> None:
        self.values: dict[Key, Any] = {}
        self.sums: dict[Key, int] = {}
        self.greatest: dict[Key, str] = {}
        self.averages: dict[Key, list[int]] = {}
        self.lists: dict[Key, list[Any]] = {}
        self.maps: dict[Key, dict[str, Any]] = {}
        self.timers: set[tuple[int, Key, str]] = set()

    def due(self) -> list[tuple[int, Key, str]]:
        """In order of time, key (nulls first), namespace."""

        def place(timer: tuple[int, Key, str]) -> Any:
            time, (name, number), namespace = timer
            return time, name is not None, name or "", number is not None, number or 0, namespace

        return sorted(self.timers, key=place)


class Opened:
    """A Store with its states."""

    def __init__(self, *, complete: bool, declare: bool = True) -> None:
        self.store = _core.Store(
            KEYS,
            max_parallelism=MAX_PARALLELISM,
            first_key_group=0,
            end_key_group=MAX_PARALLELISM,
            null_keys=True,
            complete=complete,
        )
        self.base_sequence = 0
        if declare:
            self.declare()

    def set_base(self, base: _core.Base, sequence: int) -> None:
        self.store.set_base(base, sequence)
        self.base_sequence = sequence

    def declare(self) -> None:
        self.values = self.store.value_state(0, POINT)
        self.sums = self.store.reducing_state(1, pa.int64(), "sum")
        self.greatest = self.store.reducing_state(2, pa.string(), "max")
        self.averages = self.store.aggregating_state(3, pa.int64(), "avg")
        self.lists = self.store.list_state(4, pa.string())
        self.maps = self.store.map_state(5, pa.string(), pa.int64())
        self.timers = self.store.timers(0x8001)

    def check(self, oracle: Oracle, chosen: Sequence[Key]) -> None:
        batch = key_batch(chosen)
        assert read(self.values.get(batch)) == [oracle.values.get(key) for key in chosen]
        assert read(self.values.contains(batch)) == [key in oracle.values for key in chosen]
        assert read(self.sums.get(batch)) == [oracle.sums.get(key) for key in chosen]
        assert read(self.greatest.get(batch)) == [oracle.greatest.get(key) for key in chosen]
        averages = [oracle.averages.get(key) for key in chosen]
        assert read(self.averages.get(batch)) == [None if a is None else sum(a) / len(a) for a in averages]
        assert read(self.lists.get(batch)) == [oracle.lists.get(key, []) for key in chosen]
        assert read(self.maps.count(batch)) == [len(oracle.maps.get(key, {})) for key in chosen]
        assert read(self.maps.entries(batch)) == [sorted(oracle.maps.get(key, {}).items()) for key in chosen]
        due = oracle.due()
        assert self.timers.next_due() == (due[0][0] if due else None)
        assert [[(t["time"], t["namespace"]) for t in row] for row in read(self.timers.list(batch))] == [
            [(time, namespace) for time, of, namespace in due if of == key] for key in chosen
        ]


class StoreModel(RuleBasedStateMachine):
    complete = False

    def __init__(self) -> None:
        super().__init__()
        rocksdb_library.load()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-store-model-"))
        self.bases_made = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize()
    def start(self) -> None:
        self.live = Opened(complete=self.complete)
        self.follower: Opened | None = None
        self.base: tuple[int, Path | None] = (0, None)  # what a committed base holds, and where it is
        self.versions: list[tuple[Oracle, list[pa.RecordBatch]]] = [(Oracle(), [])]
        self.in_batch = False

    @property
    def sequence(self) -> int:
        return len(self.versions) - 1

    def fold(self, parent: Path | None, deltas: Sequence[pa.RecordBatch]) -> Path:
        """The next base, as a background thread would make it."""
        directory = self.folder / f"base-{self.bases_made}"
        self.bases_made += 1
        writer = _core.BaseWriter(None if parent is None else str(parent), str(directory), OPTIONS)
        for delta in deltas:
            writer.add(delta)
        writer.finish()
        return directory

    def deltas(self, first: int, last: int) -> list[pa.RecordBatch]:
        return [piece for _, pieces in self.versions[first : last + 1] for piece in pieces]

    def open(self, *, declare_first: bool) -> Opened:
        """Another Store at the last version: the base, then the deltas since."""
        opened = Opened(complete=self.complete, declare=declare_first)
        sequence, directory = self.base
        if directory is not None:
            base = _core.Base(str(directory), OPTIONS)
            opened.set_base(base, sequence)
            if self.complete:
                opened.store.load(base)
        self.catch_up(opened)
        opened.declare()
        return opened

    def catch_up(self, opened: Opened) -> None:
        for sequence in range(opened.store.sequence + 1, self.sequence + 1):
            for piece in self.versions[sequence][1]:
                opened.store.apply_delta(piece, sequence)

    # --- versions

    @precondition(lambda self: not self.in_batch)
    @rule()
    def begin(self) -> None:
        self.live.store.begin(self.sequence + 1)
        self.oracle = copy.deepcopy(self.versions[-1][0])
        self.pieces: list[pa.RecordBatch] = []
        self.spilled: tuple[Path, int] | None = None  # a private base, and how many pieces it holds
        self.in_batch = True

    @precondition(lambda self: self.in_batch)
    @rule()
    def take_delta(self) -> None:
        self.pieces.append(pa.record_batch(self.live.store.take_delta()))
        keys_of = [(row["key_group"], row["state"], row["key"]) for row in self.pieces[-1].to_pylist()]
        assert len(set(keys_of)) == len(keys_of)
        assert self.live.store.dirty_bytes == 0

    @precondition(lambda self: self.in_batch)
    @rule()
    def commit(self) -> None:
        self.take_delta()
        self.live.store.commit()
        self.versions.append((self.oracle, self.pieces))
        self.in_batch = False
        assert self.live.store.sequence == self.sequence
        self.live.check(self.oracle, ALL_KEYS)

    @precondition(lambda self: self.in_batch)
    @rule(declare_first=st.booleans())
    def abort(self, declare_first: bool) -> None:
        self.in_batch = False
        self.live = self.open(declare_first=declare_first)
        self.live.check(self.versions[-1][0], ALL_KEYS)

    @precondition(lambda self: self.in_batch and not self.complete)
    @rule()
    def spill(self) -> None:
        self.take_delta()
        if self.spilled is None:
            sequence, directory = self.base
            deltas = self.deltas(sequence + 1, self.sequence) + self.pieces
        else:
            directory, held = self.spilled
            deltas = self.pieces[held:]
        spilled = self.fold(directory, deltas)
        self.spilled = (spilled, len(self.pieces))
        self.live.store.reset()
        self.live.set_base(_core.Base(str(spilled), OPTIONS), self.sequence + 1)

    @precondition(lambda self: self.versions[-1][0] is not None)
    @rule(data=st.data())
    def move_base(self, data: st.DataObject) -> None:
        if self.in_batch and self.spilled is not None:
            return  # the private base is ahead of every committed one
        sequence, directory = self.base
        target = data.draw(st.integers(sequence, self.sequence))
        self.base = (target, self.fold(directory, self.deltas(sequence + 1, target)))
        base, store = _core.Base(str(self.base[1]), OPTIONS), self.live.store
        older = target < self.live.base_sequence  # a batch that spilled has left the live Store on a base above this
        holds_nothing = not self.in_batch and store.counters["entries"] == 0
        if older and not holds_nothing:
            with pytest.raises(InvalidRequest, match="cannot move to a base"):
                store.set_base(base, target)
            assert store.sequence == self.sequence
            return
        self.live.set_base(base, target)
        if older:  # nothing contradicts it: the Store is at that version
            assert store.sequence == target
            self.catch_up(self.live)
        assert store.sequence == self.sequence
        if target == self.sequence and not self.in_batch:
            assert store.pending_bytes == 0

    @rule()
    def evict_clean(self) -> None:
        self.live.store.evict_clean()

    @precondition(lambda self: not self.in_batch)
    @rule(declare_first=st.booleans())
    def restore(self, declare_first: bool) -> None:
        self.live = self.open(declare_first=declare_first)
        self.live.check(self.versions[-1][0], ALL_KEYS)

    @rule()
    def follow(self) -> None:
        """Another process that has the slot open catches up."""
        if self.follower is None:
            self.follower = self.open(declare_first=True)
        self.catch_up(self.follower)
        self.follower.check(self.versions[-1][0], ALL_KEYS)

    # --- reads, in a batch or between batches

    @rule(chosen=keys)
    def look(self, chosen: list[Key]) -> None:
        self.live.check(self.oracle if self.in_batch else self.versions[-1][0], chosen)

    @rule(chosen=keys)
    def distinct(self, chosen: list[Key]) -> None:
        codes, rows = self.live.store.distinct(key_batch(chosen))
        first_rows = read(rows)
        assert [chosen[first_rows[code]] for code in read(codes)] == chosen
        assert first_rows == sorted({chosen.index(key) for key in chosen})

    @rule(chosen=rows_of(map_keys))
    def look_into_maps(self, chosen: list[tuple[Key, str]]) -> None:
        oracle = self.oracle if self.in_batch else self.versions[-1][0]
        batch, names = self.split(chosen, pa.string())
        maps = [oracle.maps.get(key, {}) for key, _ in chosen]
        found = zip(maps, (name for _, name in chosen))
        assert read(self.live.maps.contains(batch, names)) == [name in m for m, name in found]
        found = zip(maps, (name for _, name in chosen))
        assert read(self.live.maps.get(batch, names)) == [m.get(name) for m, name in found]

    # --- writes

    @staticmethod
    def split(rows: Sequence[tuple[Key, Any]], type_: pa.DataType) -> tuple[pa.RecordBatch, pa.Array]:
        return key_batch([key for key, _ in rows]), pa.array([value for _, value in rows], type_)

    @precondition(lambda self: self.in_batch)
    @rule(rows=rows_of(points))
    def put_values(self, rows: list[tuple[Key, Any]]) -> None:
        self.live.values.put(*self.split(rows, POINT))
        for key, value in rows:
            self.oracle.values.pop(key, None)
            if value is not None:
                self.oracle.values[key] = value

    @precondition(lambda self: self.in_batch)
    @rule(rows=rows_of(numbers), only=st.booleans())
    def add_to_sums(self, rows: list[tuple[Key, int | None]], only: bool) -> None:
        def fold(key: Key, value: int) -> None:
            self.oracle.sums[key] = self.oracle.sums.get(key, 0) + value

        self.add(self.live.sums, rows, pa.int64(), fold, None if only else self.oracle.sums.get)

    @precondition(lambda self: self.in_batch)
    @rule(rows=rows_of(texts), only=st.booleans())
    def add_to_greatest(self, rows: list[tuple[Key, str | None]], only: bool) -> None:
        def fold(key: Key, value: str) -> None:
            self.oracle.greatest[key] = max(self.oracle.greatest.get(key, ""), value)

        self.add(self.live.greatest, rows, pa.string(), fold, None if only else self.oracle.greatest.get)

    @precondition(lambda self: self.in_batch)
    @rule(rows=rows_of(numbers), only=st.booleans())
    def add_to_averages(self, rows: list[tuple[Key, int | None]], only: bool) -> None:
        def fold(key: Key, value: int) -> None:
            self.oracle.averages.setdefault(key, []).append(value)

        def average(key: Key) -> float | None:
            seen = self.oracle.averages.get(key)
            return None if seen is None else sum(seen) / len(seen)

        self.add(self.live.averages, rows, pa.int64(), fold, None if only else average)

    def add(
        self,
        table: _core.ReducingTable | _core.AggregatingTable,
        rows: list[tuple[Key, Any]],
        type_: pa.DataType,
        fold: Callable[[Key, Any], None],
        result: Callable[[Key], Any] | None,
    ) -> None:
        expected = []
        for key, value in rows:
            if value is not None:
                fold(key, value)
            expected.append(None if result is None else result(key))
        arguments = self.split(rows, type_)
        if result is None:
            table.add_only(*arguments)
        else:
            assert read(table.add(*arguments)) == expected

    @precondition(lambda self: self.in_batch)
    @rule(rows=rows_of(texts))
    def append(self, rows: list[tuple[Key, str | None]]) -> None:
        self.live.lists.append(*self.split(rows, pa.string()))
        for key, value in rows:
            self.oracle.lists.setdefault(key, []).append(value)

    @precondition(lambda self: self.in_batch)
    @rule(rows=rows_of(st.tuples(map_keys, numbers)))
    def put_into_maps(self, rows: list[tuple[Key, tuple[str, int | None]]]) -> None:
        names = pa.array([name for _, (name, _) in rows], pa.string())
        values = pa.array([value for _, (_, value) in rows], pa.int64())
        self.live.maps.put(key_batch([key for key, _ in rows]), names, values)
        for key, (name, value) in rows:
            self.oracle.maps.setdefault(key, {})[name] = value

    @precondition(lambda self: self.in_batch)
    @rule(rows=rows_of(map_keys))
    def remove_from_maps(self, rows: list[tuple[Key, str]]) -> None:
        self.live.maps.remove(*self.split(rows, pa.string()))
        for key, name in rows:
            self.oracle.maps.get(key, {}).pop(name, None)

    @precondition(lambda self: self.in_batch)
    @rule(rows=rows_of(st.tuples(times, map_keys)), register=st.booleans())
    def register_or_delete_timers(self, rows: list[tuple[Key, tuple[int, str]]], register: bool) -> None:
        call = self.live.timers.register if register else self.live.timers.delete
        at = pa.array([time for _, (time, _) in rows], pa.int64())
        call(key_batch([key for key, _ in rows]), at, pa.array([name for _, (_, name) in rows], pa.string()))
        for key, (time, name) in rows:
            (self.oracle.timers.add if register else self.oracle.timers.discard)((time, key, name))

    @precondition(lambda self: self.in_batch)
    @rule(until=times, limit=st.integers(1, 8))
    def take_due_timers(self, until: int, limit: int) -> None:
        due = [timer for timer in self.oracle.due() if timer[0] <= until][:limit]
        taken = [
            (row["time"], (row["key"]["name"], row["key"]["number"]), row["namespace"])
            for row in read(self.live.timers.take_due(until, limit))
        ]
        assert taken == due
        self.oracle.timers.difference_update(due)

    @precondition(lambda self: self.in_batch)
    @rule(kind=st.sampled_from(["values", "sums", "greatest", "averages", "lists", "maps"]), chosen=keys)
    def clear(self, kind: str, chosen: list[Key]) -> None:
        getattr(self.live, kind).clear(key_batch(chosen))
        for key in chosen:
            getattr(self.oracle, kind).pop(key, None)


class CompleteStoreModel(StoreModel):
    complete = True


TestRocksDb = StoreModel.TestCase
TestRocksDb.settings = settings(max_examples=examples(60), stateful_step_count=40)
TestHashmap = CompleteStoreModel.TestCase
TestHashmap.settings = settings(max_examples=examples(40), stateful_step_count=40)
