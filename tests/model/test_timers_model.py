"""Timers of both kinds of processors against plain Python sets: set, deleted and listed by rows and while timers fire,
two declarations of event time and one of processing time, over commits, batches that are given up and run again, bases
and reopening.
"""

from __future__ import annotations

import copy
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_count import examples
from tests.model.slot_versions import Slot
from tests.unit.state_bench import USER, bind, make_context

import holdfast as hf
from holdfast import rocksdb_library
from holdfast.checkpoint import FIRST_TIMERS_ID
from holdfast.state import bound, keyed_driver

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
FIRED = pa.schema([("user", pa.string()), ("kind", pa.string()), ("minute", pa.int64()), ("namespace", pa.string())])
ROWS = pa.schema([("user", pa.string()), ("row", pa.int64())])
#: Declarations in their order, and what time each goes by.
DOMAINS = {"event": "event", "clock": "processing", "again": "event"}
KINDS = tuple(DOMAINS)
IDS = {kind: FIRST_TIMERS_ID + number for number, kind in enumerate(KINDS)}
#: What fires in one order of time: a key at a time all of one domain, vectorised each declaration.
BY_DOMAIN, BY_DECLARATION = [["event", "again"], ["clock"]], [[kind] for kind in KINDS]

Timer = tuple[int, str]  # minute, namespace
#: Whether it is set or deleted, which declaration's, when.
Change = tuple[bool, str, Timer]
Fired = tuple[str, str, int, str]


@dataclass
class Model:
    """The timers that are set, by declaration, as (minute, key, namespace)."""

    timers: dict[str, set[tuple[int, str, str]]] = field(default_factory=lambda: {kind: set() for kind in KINDS})

    def change(self, key: str, changes: list[Change]) -> None:
        for is_set, kind, (minute, namespace) in changes:
            (self.timers[kind].add if is_set else self.timers[kind].discard)((minute, key, namespace))

    def of(self, key: str, kind: str) -> list[Timer]:
        return sorted((minute, namespace) for minute, other, namespace in self.timers[kind] if other == key)

    def only(self, key: str) -> Model:
        return Model({kind: {timer for timer in timers if timer[1] == key} for kind, timers in self.timers.items()})

    def fire(
        self, until: dict[str, int], react: Callable[..., list[Change]], limit: int, queues: list[list[str]]
    ) -> list[Fired]:
        """What fires, so many a call, queue by queue until no timer is due."""
        found: list[Fired] = []
        while any(self._due(until, queue) for queue in queues):
            for queue in queues:
                while due := self._due(until, queue)[:limit]:
                    for minute, number, key, namespace in due:
                        self.timers[queue[number]].remove((minute, key, namespace))
                    for minute, number, key, namespace in due:
                        found.append((key, queue[number], minute, namespace))
                        self.change(key, react(key, queue[number], minute, namespace))
        return found

    def _due(self, until: dict[str, int], queue: list[str]) -> list[tuple[int, int, str, str]]:
        """In order of time, of one time in order of declaration."""
        return sorted(
            (minute, number, key, namespace)
            for number, kind in enumerate(queue)
            for minute, key, namespace in self.timers[kind]
            if minute <= until[DOMAINS[kind]]
        )


@dataclass
class Batch:
    """Changes by rows; how far both times are; and how it ends."""

    rows: list[tuple[str, list[Change]]]
    until: dict[str, int]
    limit: int
    ends: str
    reopens: str


def _batches() -> st.SearchStrategy[list[Batch]]:
    timer = st.tuples(st.integers(-3, 40), st.sampled_from(["", "x", "y"]))
    change = st.tuples(st.sampled_from([True, True, True, False]), st.sampled_from(KINDS), timer)
    row = st.tuples(st.sampled_from("abcdef"), st.lists(change, max_size=4))
    until = st.fixed_dictionaries({domain: st.integers(0, 45) for domain in sorted(set(DOMAINS.values()))})
    ends, reopens = st.sampled_from(["commit", "commit", "abort"]), st.sampled_from(["stays", "deltas", "base"])
    return st.lists(st.builds(Batch, st.lists(row, max_size=8), until, st.integers(1, 6), ends, reopens), max_size=6)


def _reactions(seed: int) -> Callable[..., list[Change]]:
    """What a timer that fires sets and deletes: only what is later than itself, so that there is an end to it."""

    def react(key: str, kind: str, minute: int, namespace: str) -> list[Change]:
        draw = random.Random(f"{seed} {key} {kind} {minute} {namespace}")
        return [
            (draw.random() < 0.6, draw.choice(KINDS), (minute + draw.randrange(1, 9), draw.choice(["", "x"])))
            for _ in range(draw.choice([0, 0, 1, 2]))
        ]

    return react


def at(minute: int) -> datetime:
    return START + timedelta(minutes=minute)


def minute_of(time: datetime) -> int:
    return (time - START) // timedelta(minutes=1)


class Keyed(hf.KeyedProcessor):
    """Does what the rows say, and what a timer says; looks at all timers of the key before and after."""

    event = hf.Timers("event")
    clock = hf.Timers("processing")
    again = hf.Timers("event")
    changes: list[list[Change]]
    react: Callable[..., list[Change]]
    model: Model

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
        for row in rows["row"].to_pylist():
            self._change(key[0], self.changes[row])

    def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: hf.Context) -> Any:
        fired = minute_of(time), key[0], namespace
        self.model.timers[ctx.timers or ""].remove(fired)
        self._change(key[0], self.react(key[0], ctx.timers, fired[0], namespace))
        return key[0], ctx.timers, fired[0], namespace

    def _change(self, key: str, changes: list[Change]) -> None:
        for is_set, kind, (minute, namespace) in changes:
            timers = getattr(self, kind)
            (timers.register if is_set else timers.delete)(at(minute), namespace)
        self.model.change(key, changes)
        for kind in KINDS:
            assert [(minute_of(time), name) for time, name in getattr(self, kind).list()] == self.model.of(key, kind)


class Vectorised(hf.BatchProcessor):
    """The same, a batch at a time."""

    event = hf.Timers("event")
    clock = hf.Timers("processing")
    again = hf.Timers("event")
    changes: list[list[Change]]
    react: Callable[..., list[Change]]
    model: Model

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        for user, row in zip(batch["user"].to_pylist(), batch["row"].to_pylist()):
            self._change([(user, change) for change in self.changes[row]])

    def on_timers(self, batch: pa.RecordBatch, ctx: hf.Context) -> pa.RecordBatch:
        minutes = [minute_of(time) for time in batch["time"].to_pylist()]
        fired = list(zip(batch["user"].to_pylist(), minutes, batch["namespace"].to_pylist()))
        for user, minute, namespace in fired:
            self._change([(user, change) for change in self.react(user, ctx.timers, minute, namespace)])
        kinds = pa.repeat(pa.scalar(ctx.timers), batch.num_rows)
        return pa.record_batch([batch["user"], kinds, pa.array(minutes, pa.int64()), batch["namespace"]], schema=FIRED)

    def _change(self, changes: list[tuple[str, Change]]) -> None:
        for user, (is_set, kind, (minute, namespace)) in changes:
            timers = getattr(self, kind)
            (timers.register if is_set else timers.delete)([user], [at(minute)], namespace)


@contextmanager
def limits_of(timers: int) -> Iterator[None]:
    """So many timers at once, whatever is fast."""
    kept = bound.TIMERS_A_CALL, keyed_driver.CHUNK_KEYS_MIN
    bound.TIMERS_A_CALL = keyed_driver.CHUNK_KEYS_MIN = timers
    try:
        yield
    finally:
        bound.TIMERS_A_CALL, keyed_driver.CHUNK_KEYS_MIN = kept


def run_batch(processor: Any, slot: Slot, batch: Batch, number: int, model: Model) -> list[Fired]:
    """One attempt at a batch; gives what fired, in its order."""
    slot.store.begin(len(slot.deltas) + 1)
    processor.changes = [changes for _, changes in batch.rows]
    processor.model = copy.deepcopy(model)
    ms = {domain: int(at(minute).timestamp() * 1000) for domain, minute in batch.until.items()}
    ctx = make_context(number, watermark_ms=ms["event"], timestamp_ms=ms["processing"])
    rows = pa.record_batch([[key for key, _ in batch.rows], list(range(len(batch.rows)))], schema=ROWS)
    with limits_of(batch.limit), bind(processor, FIRED, slot.store) as at_work:
        found = [row for _, out in at_work.process(rows, ctx) for row in out.to_pylist()]
        found += [row for _, out in at_work.finish(ctx) for row in out.to_pylist()]
    return [tuple(row.values()) for row in found]


def check(kind: type, found: list[Fired], expected: list[Fired], alone: dict[str, list[Fired]]) -> None:
    """A batch at a time, all of it; a key at a time, each key as if it were alone."""
    if kind is Vectorised:
        assert found == expected
        return
    for key in "abcdef":
        assert [fired for fired in found if fired[0] == key] == alone[key]


@pytest.mark.parametrize("kind", [Keyed, Vectorised])
@settings(max_examples=examples(40), deadline=None)
@given(program=_batches(), seed=st.integers(0, 1000))
def test_timers_are_plain_python_sets(kind: type, program: list[Batch], seed: int) -> None:
    rocksdb_library.load()
    processor, model = kind(), Model()
    processor.react = _reactions(seed)
    slot = Slot(USER)
    last = Batch([], {"event": 99, "processing": 99}, 3, "commit", "base")
    try:
        for number, batch in enumerate([*program, last]):
            after = copy.deepcopy(model)
            for key, changes in batch.rows:
                after.change(key, changes)
            # What a key's timer deletes does not fire, unless both are in one call of a BatchProcessor.
            fires = (1, BY_DOMAIN) if kind is Keyed else (batch.limit, BY_DECLARATION)
            alone = {key: after.only(key).fire(batch.until, processor.react, *fires) for key in "abcdef"}
            expected = after.fire(batch.until, processor.react, *fires)
            check(kind, run_batch(processor, slot, batch, number, model), expected, alone)
            if batch.ends == "abort":  # given up, and run again: as it was
                slot.end(batch.reopens, committed=False)
                check(kind, run_batch(processor, slot, batch, number, model), expected, alone)
            slot.end(batch.reopens, committed=True)
            model = after
            for declared, state_id in IDS.items():
                earliest = min((int(at(timer[0]).timestamp() * 1e6) for timer in model.timers[declared]), default=None)
                assert slot.store.timers(state_id).next_due() == earliest
    finally:
        shutil.rmtree(slot.folder)
