"""States with a TTL against dictionaries with an explicit clock: random writes and reads, a clock that goes either
way, a watermark that comes late and rows ahead of it, expiry at once or in steps, TTLs that are added, changed and
taken away, batches that abort, stores that stay, catch up, spill or are opened over bases from which folds left out
what is expired. Versions of the past are opened again and must say what they said."""

from __future__ import annotations

import copy
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.example_count import examples

from holdfast import _core, rocksdb_library
from holdfast.checkpoint.as_of import AsOf
from holdfast.checkpoint.expiry import BatchStamps, BatchTime, Lifetime, StateExpiry, next_expiry, to_writer
from holdfast.checkpoint.handle import NamedVersion

KEYS = pa.schema([("key", pa.int64())])
OPTIONS = _core.BaseOptions(max_runs=2)
GROUPS = 4
VALUES, SUMS, FIRSTS, COUNTS, LISTS, MAPS = range(1, 7)
STATES = (VALUES, SUMS, FIRSTS, COUNTS, LISTS, MAPS)
#: The time that each state's TTL goes by, which never changes.
TIMES = {state: "event" if state in (FIRSTS, COUNTS, MAPS) else "processing" for state in STATES}
START = 1_000_000

keys = st.lists(st.integers(0, 5), min_size=1, max_size=5)
lengths = st.sampled_from([None, 5, 20, 60])
#: Visibility: of what is over nothing is given out, or until the time passes the next multiple.
steps = st.sampled_from([1, 1, 7])
#: Which of the times at which something expires, and how far from it.
dues = st.one_of(st.none(), st.tuples(st.integers(0, 99), st.sampled_from([-1, 0, 0, 1])))
#: By how much the clock and the watermark move, whether the first watermark comes, and where both go instead.
Move = tuple[int, int, bool, tuple[int, int] | None]
moves = st.tuples(st.integers(-40, 60), st.integers(0, 40), st.booleans(), dues)


class Oracle:
    """Entries by (state, key, place), each as [value, stamp or None], and for each state with a TTL what it went by."""

    def __init__(self) -> None:
        self.entries: dict[tuple[int, int, Any], list[Any]] = {}
        self.ttl: dict[int, int | None] = dict.fromkeys(STATES)
        self.step: dict[int, int] = dict.fromkeys(STATES, 1)
        self.cutoff: dict[int, int] = {}
        self.since: dict[int, int] = {}
        self.stamps: dict[int, int] = {}
        self.latest: dict[int, int] = {}
        self.away: set[int] = set()  # states whose TTL was taken away
        self.ordinal = 0

    def begin(self, time: BatchTime) -> None:
        """What expires is gone for good: it is taken out here and now."""
        self.stamps = {}
        rows = [latest for state, latest in self.latest.items() if TIMES[state] == "event"]
        for state in STATES:
            ttl, now = self.ttl[state], time.timestamp_ms if TIMES[state] == "processing" else time.watermark_ms
            if rows and ttl is not None and TIMES[state] == "event":
                self.latest[state] = max(*rows, self.latest.get(state, START - 99))
            if now is not None and (ttl is not None or state in self.latest):
                self.latest[state] = max(now, self.latest.get(state, now))
            if ttl is None and state in self.latest:
                self.away.add(state)
            if ttl is not None and now is not None:
                self.since.setdefault(state, now)
                if state in self.away:
                    self.come_back(state)
                cutoff = now - now % self.step[state] - ttl
                self.cutoff[state] = max(self.cutoff.get(state, cutoff), cutoff)
            if state in self.latest:
                self.stamps[state] = self.latest[state]
        for place, (_, stamp) in list(self.entries.items()):
            state = place[0]
            if state in self.cutoff and (self.since[state] if stamp is None else stamp) <= self.cutoff[state]:
                del self.entries[place]

    def as_of(self, time: BatchTime) -> None:
        """As a batch without rows leaves it, but that a state which had no TTL yet begins in the next one."""
        declared, self.ttl = self.ttl, {state: ttl if state in self.latest else None for state, ttl in self.ttl.items()}
        self.begin(time)
        self.ttl = declared

    def come_back(self, state: int) -> None:
        """The state has a TTL again: what was written earlier counts as written now."""
        self.away.discard(state)
        for place, entry in self.entries.items():
            if place[0] == state:
                entry[1] = max(self.since[state] if entry[1] is None else entry[1], self.latest[state])

    def advance(self, event: int) -> None:
        """Rows of an event time are next. Later batches know of them: rows come in any order."""
        for state in STATES:
            if TIMES[state] == "event" and self.ttl[state] is not None:
                self.stamps[state] = self.latest[state] = max(event, self.latest.get(state, event))

    def deadlines(self, time: str) -> list[int]:
        """When something expires next, if nothing happens to it before."""
        found = set()
        for (state, _, _), (_, stamp) in self.entries.items():
            ttl, written = self.ttl[state], self.since.get(state) if stamp is None else stamp
            if TIMES[state] == time and ttl is not None and written is not None:
                found.add(-(-(written + ttl) // self.step[state]) * self.step[state])
        return sorted(found)

    def lifetimes(self, refreshes: dict[int, bool]) -> list[Lifetime]:
        """As they are declared."""
        return [
            Lifetime(state, TIMES[state], ttl, self.step[state], refreshes[state])
            for state, ttl in self.ttl.items()
            if ttl is not None
        ]

    def put(self, state: int, key: int, at: Any, value: Any) -> None:
        self.entries[state, key, at] = [value, self.stamps.get(state)]

    def get(self, state: int, key: int, at: Any = None) -> Any:
        return self.entries.get((state, key, at), [None])[0]

    def drop(self, state: int, key: int) -> None:
        for place in [place for place in self.entries if place[:2] == (state, key)]:
            del self.entries[place]

    def touch(self, state: int, key: int, at: Any = None) -> None:
        if (state, key, at) in self.entries and state in self.stamps:
            self.entries[state, key, at][1] = self.stamps[state]

    def of(self, state: int, key: int) -> list[tuple[Any, Any]]:
        found = [(place[2], entry[0]) for place, entry in self.entries.items() if place[:2] == (state, key)]
        return sorted(found)


def read(array: _core.ArrowArray) -> list[Any]:
    return pa.array(array).to_pylist()


class TtlModel(RuleBasedStateMachine):
    complete = False

    def __init__(self) -> None:
        super().__init__()
        rocksdb_library.load()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-ttl-model-"))
        self.made = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(declared=st.tuples(*[st.tuples(lengths, steps, st.booleans())] * len(STATES)), is_marked=st.booleans())
    def start(self, declared: tuple[tuple[int | None, int, bool], ...], is_marked: bool) -> None:
        self.now, self.mark = START, START if is_marked else None
        self.refreshes = dict.fromkeys(STATES, False)
        self.oracle = Oracle()
        for state, (ttl, step, refreshes) in zip(STATES, declared):
            self.oracle.ttl[state], self.oracle.step[state] = ttl, step
            self.refreshes[state] = refreshes and ttl is not None
        # By sequence: what was there, its expiry, and the delta that led to it.
        self.versions: list[tuple[Oracle, tuple[StateExpiry, ...], list[pa.RecordBatch]]] = [(Oracle(), (), [])]
        self.bases: list[tuple[int, Path]] = []
        self.in_batch = False
        self.store = self.opened(0, None)

    @property
    def sequence(self) -> int:
        return len(self.versions) - 1

    def opened(self, sequence: int, base: tuple[int, Path] | None) -> _core.Store:
        store = _core.Store(
            KEYS, max_parallelism=GROUPS, first_key_group=0, end_key_group=GROUPS, complete=self.complete
        )
        first = 0
        if base is not None:
            first, folder = base
            opened = _core.Base(str(folder), OPTIONS)
            store.set_base(None if self.complete else opened, first)
            if self.complete:
                store.load(opened)
        for number in range(first + 1, sequence + 1):
            for delta in self.versions[number][2]:
                store.apply_delta(delta, number)
        return store

    def fold(self, parent: Path | None, deltas: list[pa.RecordBatch], expiry: tuple[StateExpiry, ...]) -> Path:
        folder = self.folder / f"base-{self.made}"
        self.made += 1
        writer = _core.BaseWriter(None if parent is None else str(parent), str(folder), OPTIONS, to_writer(expiry, []))
        for delta in deltas:
            writer.add(delta)
        writer.finish()
        return folder

    def bind(self, store: _core.Store) -> None:
        self.values = store.value_state(VALUES, pa.string())
        self.sums = store.reducing_state(SUMS, pa.int64(), "sum")
        self.firsts = store.reducing_state(FIRSTS, pa.string(), "first")
        self.counts = store.aggregating_state(COUNTS, pa.int64(), "count")
        self.lists = store.list_state(LISTS, pa.int64())
        self.maps = store.map_state(MAPS, pa.string(), pa.string())

    # --- between batches
    @precondition(lambda self: not self.in_batch)
    @rule(state=st.sampled_from(STATES), ttl=lengths, step=steps, refreshes=st.booleans())
    def declare(self, state: int, ttl: int | None, step: int, refreshes: bool) -> None:
        self.oracle.ttl[state], self.oracle.step[state] = ttl, step
        self.refreshes[state] = refreshes and ttl is not None

    @precondition(lambda self: not self.in_batch and self.sequence > 0)
    @rule(parent=st.integers(0, 9), sequence=st.integers(1, 99))
    def fold_some(self, parent: int, sequence: int) -> None:
        """As the background does: at any version, over any base of an ancestor, or none."""
        sequence = 1 + sequence % self.sequence
        parents = [None, *(base for base in self.bases if base[0] < sequence)]
        base = parents[parent % len(parents)]
        deltas = [
            delta for number in range((base[0] if base else 0) + 1, sequence + 1) for delta in self.versions[number][2]
        ]
        self.bases.append((sequence, self.fold(base[1] if base else None, deltas, self.versions[sequence][1])))

    @precondition(lambda self: not self.in_batch)
    @rule(which=st.integers(0, 9))
    def open_anew(self, which: int) -> None:
        ways = [None, *self.bases]
        self.store = self.opened(self.sequence, ways[which % len(ways)])

    @precondition(lambda self: not self.in_batch)
    @rule()
    def evict(self) -> None:
        self.store.evict_clean()

    @precondition(lambda self: not self.in_batch and self.sequence > 0)
    @rule(sequence=st.integers(0, 99), which=st.integers(0, 9), later=st.integers(0, 30))
    def look_back(self, sequence: int, which: int, later: int) -> None:
        """An older version, over whichever base, as a replayed batch reads it; no fold took anything from it."""
        sequence %= self.sequence + 1
        oracle, expiry, _ = self.versions[sequence]
        oracle = copy.deepcopy(oracle)
        ways = [None, *(base for base in self.bases if base[0] <= sequence)]
        store = self.opened(sequence, ways[which % len(ways)])
        time = BatchTime(START + later, self.mark and START + later)
        lifetimes = oracle.lifetimes(dict.fromkeys(STATES, False))
        store.begin(sequence + 1)
        BatchStamps(store, next_expiry(expiry, lifetimes, time, "here"), lifetimes, time)
        oracle.begin(time)
        self.bind(store)
        self.check(oracle, list(range(6)))

    @precondition(lambda self: not self.in_batch and self.sequence > 0)
    @rule(move=moves, due=dues)
    def begin_as_of(self, move: Move, due: tuple[int, int] | None) -> None:
        """Another query begins with the newest version as of a later batch, and looks at it in one of its own."""
        (passed, marked, is_first, first_due), now, mark = move, self.now, self.mark
        self.pass_time(passed, marked, is_first, first_due)
        version = NamedVersion("here", 0, "v", None, self.sequence, self.sequence, expiry=self.versions[-1][1])
        oracle, own = copy.deepcopy(self.oracle), self.oracle
        lifetimes = oracle.lifetimes(dict.fromkeys(STATES, False))
        as_of = AsOf(self.sequence + 1, BatchTime(self.now, self.mark), tuple(lifetimes), frozenset())
        oracle.as_of(as_of.time)
        self.oracle = oracle
        self.pass_time(0, 0, False, due)
        time, store = BatchTime(self.now, self.mark), self.opened(self.sequence, None)
        store.begin(self.sequence + 1)
        BatchStamps(store, next_expiry(as_of.expiry(version), lifetimes, time, "here"), lifetimes, time)
        oracle.begin(time)
        self.bind(store)
        self.check(oracle, list(range(6)))
        self.oracle, self.now, self.mark = own, now, mark

    # --- batches
    @precondition(lambda self: not self.in_batch)
    @rule(move=moves, looks=st.booleans())
    def begin(self, move: Move, looks: bool) -> None:
        self.pass_time(*move)
        self.lifetimes = self.oracle.lifetimes(self.refreshes)
        time = BatchTime(self.now, self.mark)
        self.expiry = next_expiry(self.versions[-1][1], self.lifetimes, time, "here")
        self.store.begin(self.sequence + 1)
        self.stamps = BatchStamps(self.store, self.expiry, self.lifetimes, time)
        self.oracle.begin(time)
        self.bind(self.store)
        self.pieces: list[pa.RecordBatch] = []
        self.in_batch = True
        if looks:
            self.look([*range(6)])

    @precondition(lambda self: not self.in_batch)
    @rule(move=moves, looks=st.booleans(), ahead=st.integers(-30, 50), chosen=st.one_of(st.none(), keys))
    def whole_batch(self, move: Move, looks: bool, ahead: int, chosen: list[int] | None) -> None:
        """Most that goes wrong takes several batches, which seldom come about step by step."""
        self.begin(move, looks)
        if chosen is not None:
            self.rows_come(ahead)
            self.write(chosen, 1)
        self.commit()

    @precondition(lambda self: not self.in_batch)
    @rule(state=st.sampled_from(STATES), move=moves, ahead=st.integers(-30, 50), chosen=keys)
    def go_without(self, state: int, move: Move, ahead: int, chosen: list[int]) -> None:
        """A state's TTL is away for a batch."""
        declared = self.oracle.ttl[state], self.oracle.step[state], self.refreshes[state]
        self.declare(state, None, 1, False)
        self.whole_batch(move, False, ahead, chosen)
        self.declare(state, *declared)

    def pass_time(self, passed: int, marked: int, is_first: bool, due: tuple[int, int] | None) -> None:
        self.now = max(START, self.now + passed)
        if self.mark is not None or is_first:
            self.mark = (self.mark or START) + marked
        if due is not None:
            self.go_near(*due)

    def go_near(self, which: int, off: int) -> None:
        """Both times go to where something expires, or to a moment before or after: at random they hardly ever do."""
        if clock := self.oracle.deadlines("processing"):
            self.now = clock[which % len(clock)] + off
        marks = [at + off for at in self.oracle.deadlines("event") if self.mark is not None and at + off > self.mark]
        if marks:
            self.mark = marks[which % len(marks)]

    @precondition(lambda self: self.in_batch)
    @rule(ahead=st.integers(-30, 50))
    def rows_come(self, ahead: int) -> None:
        """Rows of an event time, behind the watermark or ahead of it."""
        event = (self.mark or START) + ahead
        self.stamps.advance(event)
        self.oracle.advance(event)

    @precondition(lambda self: self.in_batch)
    @rule(chosen=keys, number=st.integers(1, 9))
    def write(self, chosen: list[int], number: int) -> None:
        rows, oracle = pa.array(chosen), self.oracle
        texts = ["x" * (number * 9 % 40)] * len(chosen)
        self.values.put(rows, pa.array(texts))
        self.sums.add_only(rows, pa.array([number] * len(chosen)))
        self.firsts.add_only(rows, pa.array(texts))
        self.counts.add_only(rows, pa.array([number] * len(chosen)))
        self.lists.append(rows, pa.array([number] * len(chosen)))
        self.maps.put(rows, pa.array([f"m{number % 3}"] * len(chosen)), pa.array(texts))
        for key in chosen:
            oracle.put(VALUES, key, None, texts[0])
            oracle.put(SUMS, key, None, (oracle.get(SUMS, key) or 0) + number)
            first = oracle.get(FIRSTS, key)
            oracle.put(FIRSTS, key, None, texts[0] if first is None else first)
            oracle.put(COUNTS, key, None, (oracle.get(COUNTS, key) or 0) + 1)
            oracle.ordinal += 1
            oracle.put(LISTS, key, oracle.ordinal, number)
            oracle.put(MAPS, key, f"m{number % 3}", texts[0])
            for state in (SUMS, FIRSTS, COUNTS):
                oracle.touch(state, key)

    @precondition(lambda self: self.in_batch)
    @rule(chosen=keys, states=st.lists(st.sampled_from(STATES), max_size=3))
    def clear(self, chosen: list[int], states: list[int]) -> None:
        rows = pa.array(chosen)
        tables: dict[int, Any] = {VALUES: self.values, SUMS: self.sums, FIRSTS: self.firsts, COUNTS: self.counts}
        tables |= {LISTS: self.lists, MAPS: self.maps}
        for state in states:
            tables[state].clear(rows)
            for key in chosen:
                self.oracle.drop(state, key)

    @precondition(lambda self: self.in_batch)
    @rule(chosen=keys)
    def look(self, chosen: list[int]) -> None:
        self.check(self.oracle, chosen)
        for state, refreshes in self.refreshes.items():
            if refreshes:
                for place in self.oracle.entries:
                    if place[0] == state and place[1] in chosen:
                        self.oracle.touch(*place)

    @precondition(lambda self: self.in_batch)
    @rule(chosen=keys, place=st.integers(0, 2))
    def look_at_one(self, chosen: list[int], place: int) -> None:
        rows, at = pa.array(chosen), f"m{place}"
        assert read(self.maps.contains(rows, pa.array([at] * len(chosen)))) == [
            (MAPS, key, at) in self.oracle.entries for key in chosen
        ]
        if self.refreshes[MAPS]:
            for key in chosen:
                self.oracle.touch(MAPS, key, at)

    @precondition(lambda self: self.in_batch and not self.complete)
    @rule()
    def spill(self) -> None:
        piece = pa.record_batch(self.store.take_delta())
        earlier = [delta for _, _, deltas in self.versions for delta in deltas]
        self.pieces.append(piece)
        folder = self.fold(None, [*earlier, *self.pieces], self.expiry)
        self.store.reset()
        self.store.set_base(_core.Base(str(folder), OPTIONS), self.sequence + 1)

    @precondition(lambda self: self.in_batch)
    @rule()
    def commit(self) -> None:
        self.pieces.append(pa.record_batch(self.store.take_delta()))
        self.store.commit()
        self.versions.append((copy.deepcopy(self.oracle), self.stamps.expiry, self.pieces))
        self.in_batch = False

    @precondition(lambda self: self.in_batch)
    @rule()
    def abort(self) -> None:
        declared = self.oracle.ttl, self.oracle.step
        self.oracle = copy.deepcopy(self.versions[-1][0])
        self.oracle.ttl, self.oracle.step = declared
        self.store = self.opened(self.sequence, self.bases[-1] if self.bases else None)
        self.in_batch = False

    def check(self, oracle: Oracle, chosen: list[int]) -> None:
        rows = pa.array(chosen)
        assert read(self.values.get(rows)) == [oracle.get(VALUES, key) for key in chosen]
        assert read(self.sums.get(rows)) == [oracle.get(SUMS, key) for key in chosen]
        assert read(self.firsts.get(rows)) == [oracle.get(FIRSTS, key) for key in chosen]
        assert read(self.counts.get(rows)) == [oracle.get(COUNTS, key) or 0 for key in chosen]
        assert read(self.lists.get(rows)) == [[value for _, value in oracle.of(LISTS, key)] for key in chosen]
        assert read(self.maps.entries(rows)) == [oracle.of(MAPS, key) for key in chosen]
        assert read(self.maps.count(rows)) == [len(oracle.of(MAPS, key)) for key in chosen]


class CompleteTtlModel(TtlModel):
    complete = True


TestTtlModel = TtlModel.TestCase
TestTtlModel.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestCompleteTtlModel = CompleteTtlModel.TestCase
TestCompleteTtlModel.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
