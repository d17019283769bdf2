"""States with a TTL and without, timers, several inputs, late rows, and states of no key in one program, against plain
Python: batches that fail, replays, kills, lost machines, versions gone back to, restarts with another TTL; both forms
of processors, both backends. After each step all states of all keys, all output, and the timers that are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from tests.example_count import examples
from tests.model.together_oracle import FailedOnPurpose, Given, Life, Oracle, Output, Program, Row, Told
from tests.model.together_processors import AtOnce, ByKey, microseconds_of, program, time_at
from tests.model.together_program import KEPT, MS, SCRIPTS, START_MS, TIMERS, USERS, Step, moved, to_text

import holdfast as hf
from holdfast.state import bound, keyed_driver
from holdfast.testing import Harness

UTC = pa.timestamp("us", "UTC")
SCHEMAS = {
    "clicks": pa.schema([("user", pa.string()), ("ts", UTC), ("does", pa.string())]),
    "orders": pa.schema([("does", pa.string()), ("at", UTC), ("account", pa.string())]),
    "rules": pa.schema([("name", pa.string()), ("most", pa.int64())]),
}
KEYS = {"clicks": "user", "orders": "account"}
EVENT_TIMES = {"clicks": "ts", "orders": "at"}
ASIDE = {name: hf.SideOutput(f"late_{name}") for name in KEYS}
OUTPUT = "user string, what string, told string"

# --- what rows may ask for; times count from the batch's clock or watermark
_TIMES = (-2 * MS, 0, MS, MS + 1, 5 * MS, 30 * MS)
_WRITES: list[Step] = [
    *(("value", "put", value) for value in (1, None)),
    *(("items", "add", value) for value in (1, 2, None)),
    ("items", "update", [3, None]),
    *(("entries", "put", name, value) for name in "xy" for value in (1, None)),
    *(("total", "add", value) for value in (1, 2)),
    ("log", "add", "a"),
    ("log", "add", "b"),
    ("count", "add", 1),
    ("odd", "add", 1),
]
_READS: list[Step] = [
    *((state, "get") for state in ("value", "items", "total", "log", "count")),
    *(("entries", call, name) for call in ("get", "contains") for name in "xy"),
    ("entries", "show"),
    *(("rules", "get", name) for name in "rs"),
    ("rules", "show"),
    ("odd", "get"),
    *((kind, "list") for kind in TIMERS),
]
_ENDS: list[Step] = [*((state, "clear") for state in KEPT), *(("entries", "remove", name) for name in "xy")]
_kinds, _ats = st.sampled_from(list(TIMERS)), st.sampled_from(_TIMES)
_sets = st.tuples(_kinds, st.sampled_from(("register", "register", "delete")), _ats, st.sampled_from(list(SCRIPTS)))
_for_others = st.tuples(_kinds, st.just("register"), _ats, st.just("reads"), st.sampled_from(USERS))

_asked = st.sampled_from(_WRITES), st.sampled_from(_WRITES), st.sampled_from(_READS), st.sampled_from(_ENDS)
steps: st.SearchStrategy[Step] = st.one_of(*_asked, _sets, _sets, _for_others)
event_times = st.sampled_from((None, -3 * MS, 0, 1, MS, 20 * MS + 999))
rows = st.lists(st.tuples(st.sampled_from(USERS), event_times, st.lists(steps, max_size=5)), max_size=4)
changes = st.lists(st.tuples(st.sampled_from("rs"), st.sampled_from((1, 2, None))), max_size=2)
#: How time goes on before a batch: a way, by how much, how far from what is due.
moves = st.tuples(
    st.sampled_from(("stays", "clock", "mark", "both", "to a deadline", "to a deadline")),
    st.integers(0, 40),
    st.sampled_from((-1, 0, 0, 1)),
)
lifetimes = st.builds(
    Life, st.sampled_from((None, 1, 7, 20, 64, 100)), st.booleans(), st.sampled_from((False, False, True))
)
lives = st.fixed_dictionaries(dict.fromkeys(KEPT, lifetimes))
times = st.fixed_dictionaries(dict.fromkeys(KEPT, st.sampled_from(("event", "processing"))))
programs = st.builds(
    Program,
    st.booleans(),
    st.permutations(list(KEYS)).map(tuple),
    st.fixed_dictionaries(dict.fromkeys(KEYS, st.sampled_from(("keep", "drop", "aside")))),
    times,
    st.sampled_from((1, 3, 100)),
)
often = st.sampled_from((1, 2, 3, 30))
looks = st.sampled_from((True, True, True, False))


@contextmanager
def limits_of(limit: int) -> Iterator[None]:
    """So many keys and timers at once, whatever is fast."""
    driver: Any = keyed_driver
    kept = bound.TIMERS_A_CALL, driver.CHUNK_KEYS_MIN, driver.CHUNK_KEYS_MAX
    bound.TIMERS_A_CALL = driver.CHUNK_KEYS_MIN = driver.CHUNK_KEYS_MAX = limit
    try:
        yield
    finally:
        bound.TIMERS_A_CALL, driver.CHUNK_KEYS_MIN, driver.CHUNK_KEYS_MAX = kept


class TogetherModel(RuleBasedStateMachine):
    backend: Any = "rocksdb"
    harness: Harness | None = None

    @initialize(asked=programs, life=lives, folds=often, snapshots=often)
    def start(self, asked: Program, life: dict[str, Life], folds: int, snapshots: int) -> None:
        self.program, self.lives, self.oracle = asked, life, Oracle()
        self.clock, self.mark = START_MS, 0
        self.known: set[str] = set()
        self.kept: list[tuple[Any, Oracle, int, int, set[str]]] = []
        self.last: tuple[Oracle, Given] | None = None
        late: dict[str, Any] = {name: ASIDE[name] if how == "aside" else how for name, how in asked.late.items()}
        self.harness = Harness(
            self.processor(),
            KEYS,
            {**{name: SCHEMAS[name] for name in asked.order}, "rules": hf.broadcast(SCHEMAS["rules"])},
            OUTPUT,
            event_time=EVENT_TIMES,
            late=late,
            backend=self.backend,
            settings={"fold.deltas.max": folds, "snapshot.deltas.max": snapshots},
        )
        self.harness.timestamp_ms = START_MS

    def teardown(self) -> None:
        if self.harness is not None:
            self.harness.close()

    def processor(self) -> Any:
        return program(AtOnce if self.program.vectorised else ByKey, self.lives, self.program.times)

    # --- batches
    @rule(move=moves, clicks=rows, orders=rows, rules=changes, looks=looks)
    def batch(self, move: tuple[str, int, int], clicks: Any, orders: Any, rules: Any, looks: bool) -> None:
        self.move(*move)
        self.run(self.given({"clicks": clicks, "orders": orders}, rules), looks)

    @rule(move=moves, name=st.sampled_from(list(KEYS)), asked=rows, looks=looks)
    def batch_of_one(self, move: tuple[str, int, int], name: str, asked: Any, looks: bool) -> None:
        self.move(*move)
        self.run(self.given({name: asked}, ()), looks)

    @rule(move=moves, looks=looks)
    def tick(self, move: tuple[str, int, int], looks: bool) -> None:
        self.move(*move)
        self.run(self.given({}, ()), looks)

    @rule(asked=rows, user=st.sampled_from(USERS))
    def failure(self, asked: Any, user: str) -> None:
        """Nothing of the batch is kept."""
        given = self.given({"orders": [*asked, (user, None, [("total", "add", 8), ("fail", "now")])]}, ())
        assert self.harness is not None
        with pytest.raises(FailedOnPurpose):
            self.oracle.take(given, self.program, self.lives)
        with limits_of(self.program.limit), pytest.raises(FailedOnPurpose):
            self.harness.process(**self.arrow(given))
        self.last = None
        self.check()

    @precondition(lambda self: self.last is not None)
    @rule()
    def replay(self) -> None:
        """With the program of now, whatever it was that ran the batch first."""
        assert self.harness is not None and self.last is not None
        before, given = self.last
        self.oracle, expected = before.take(given, self.program, self.lives)
        with limits_of(self.program.limit):
            found = self.harness.replay()
        self.compare(found, expected)
        self.check()

    # --- life and death
    @rule(lose=st.booleans(), looks=looks)
    def kill(self, lose: bool, looks: bool) -> None:
        assert self.harness is not None
        self.harness.kill(lose_local_copies=lose)
        if looks:
            self.check()

    @rule(life=lives, states=st.sets(st.sampled_from(KEPT)), looks=looks)
    def restart(self, life: dict[str, Life], states: set[str], looks: bool) -> None:
        """With the same program, or with another TTL of some states."""
        assert self.harness is not None
        self.lives = {state: life[state] if state in states else self.lives[state] for state in KEPT}
        self.harness.restart(self.processor())
        if looks:
            self.check()

    @rule()
    def keep_version(self) -> None:
        assert self.harness is not None
        self.kept.append((self.harness.snapshot(), self.oracle, self.clock, self.mark, set(self.known)))

    @precondition(lambda self: self.kept)
    @rule(which=st.integers(0, 9), kills=st.sampled_from((None, False, True)))
    def go_back(self, which: int, kills: bool | None) -> None:
        assert self.harness is not None
        snapshot, self.oracle, self.clock, self.mark, known = self.kept[which % len(self.kept)]
        self.known, self.last = set(known), None
        if kills is not None:
            self.harness.kill(lose_local_copies=kills)
        self.harness.restore(snapshot)
        self.check()

    # --- what a step is made of
    def move(self, way: str, by: int, off: int) -> None:
        """Time goes on, or to where something expires or fires, or a moment before or after."""
        if way in ("clock", "both"):
            self.clock += by
        if way in ("mark", "both"):
            self.mark = (self.mark or START_MS) + by
        if way == "to a deadline":
            time = ("event", "processing")[by % 2]
            now = self.clock if time == "processing" else self.mark
            ahead = [at + off for at in self.oracle.deadlines(self.program, self.lives, time) if at + off > now]
            if ahead and time == "processing":
                self.clock = ahead[by // 2 % len(ahead)]
            elif ahead:
                self.mark = ahead[by // 2 % len(ahead)]

    def given(self, asked: Mapping[str, Sequence[Any]], rules: Sequence[Any]) -> Given:
        now = {"event": (self.mark or START_MS) * MS, "processing": self.clock * MS}

        def row(user: str, at: int | None, does: Sequence[Step]) -> Row:
            grounded = tuple(moved(step, now[TIMERS.get(step[0], "event")]) for step in does)
            return Row(user, None if at is None else now["event"] + at, grounded)

        by_input = {name: [row(*one) for one in some] for name, some in asked.items()}
        return Given(by_input, tuple(rules), self.clock, self.mark)

    def arrow(self, given: Given) -> dict[str, Any]:
        tables: dict[str, Any] = {
            name: [
                {KEYS[name]: row.user, EVENT_TIMES[name]: row.at and time_at(row.at), "does": to_text(row.steps)}
                for row in some
            ]
            for name, some in given.rows.items()
        }
        if given.changes:
            tables["rules"] = [{"name": name, "most": most} for name, most in given.changes]
        return tables

    def run(self, given: Given, looks: bool) -> None:
        assert self.harness is not None
        self.harness.timestamp_ms = given.clock_ms
        self.harness.watermark_ms = given.mark_ms
        self.last = self.oracle, given
        self.oracle, expected = self.oracle.take(given, self.program, self.lives)
        with limits_of(self.program.limit):
            found = self.harness.process(**self.arrow(given))
        self.known |= {row.user for some in given.rows.values() for row in some}
        self.compare(found, expected)
        if looks:
            self.check()

    def compare(self, found: pa.Table, expected: Output) -> None:
        """Of rows all in their order; of timers too, or of each key: which of them come at once must not be seen."""
        assert self.harness is not None
        told: list[Told] = [(row["user"], row["what"], row["told"]) for row in found.to_pylist()]
        count = len(expected.by_rows)
        assert told[:count] == expected.by_rows
        for users in [USERS] if self.program.vectorised else USERS:
            by_timers = [one for one in expected.by_timers if one[0] in users]  # type: ignore[operator]
            assert [one for one in told[count:] if one[0] is None or one[0] in users] == by_timers
        for name, how in self.program.late.items():
            if how == "aside":
                aside = self.harness.side_output(ASIDE[name]).to_pylist()
                late = [(row[KEYS[name]], microseconds_of(row[EVENT_TIMES[name]]), row["does"]) for row in aside]
                assert late == [(row.user, row.at, to_text(row.steps)) for row in expected.aside.get(name, ())]

    def check(self) -> None:
        for state in KEPT:
            expected = {user: self.oracle.of(state, user) for user in USERS}
            if state == "entries":
                expected = {user: dict(entries) for user, entries in expected.items()}
            assert self.states_of(state, {} if state == "entries" else [] if state == "items" else None) == expected
        for kind in TIMERS:
            left = {user: self.oracle.timers_of(kind, user) for user in USERS}
            found = self.states_of(kind, [])
            assert {
                user: [(microseconds_of(one["time"]), one["namespace"]) for one in timers]
                for user, timers in found.items()
            } == left
        assert self.harness is not None
        assert self.harness.state("rules") == self.oracle.rules
        assert self.harness.state("odd") == self.oracle.odd

    def states_of(self, name: str, nothing: Any) -> dict[str, Any]:
        """Of all users, also of those that no row has named."""
        assert self.harness is not None
        named = self.harness.state(name)
        assert set(named) <= self.known
        others = {user: self.harness.state(name, user) for user in USERS if user not in self.known}
        return dict.fromkeys(USERS, nothing) | others | named


class CompleteTogetherModel(TogetherModel):
    backend = "hashmap"


TestTogetherModel = TogetherModel.TestCase
TestTogetherModel.settings = settings(max_examples=examples(12), stateful_step_count=20, deadline=None)
TestCompleteTogetherModel = CompleteTogetherModel.TestCase
TestCompleteTogetherModel.settings = settings(max_examples=examples(12), stateful_step_count=20, deadline=None)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("model", [TogetherModel, CompleteTogetherModel])
def test_together_for_long(model: type[TogetherModel]) -> None:
    run_state_machine_as_test(model, settings=settings(max_examples=1500, stateful_step_count=40, deadline=None))
