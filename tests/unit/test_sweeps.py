"""Looks for late strays: when, how often, how long; by a clock that the test moves. What is swept after a batch."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Sequence

import pytest
from tests.commit_world import Run, World, WorldSink

from holdfast.commit.sink import Committable, Scope
from holdfast.commit.sweeps import FIRST_PAUSE_MS, PAUSE_MAX_MS, LateSweeps, Schedule
from holdfast.errors import Unavailable

WATCH_MS = 60_000.0


class Clock:
    """Stands still until the test moves it."""

    def __init__(self) -> None:
        self.ms = 0.0

    def now_ms(self) -> int:
        return int(self.ms)

    def elapsed_ms(self) -> float:
        return self.ms


class Strays:
    """A sink's other side: what opens when, and when it was aborted."""

    def __init__(self, clock: Clock, opens_ms: list[float], took_ms: float = 5.0) -> None:
        self.clock, self.open, self.took_ms = clock, sorted(opens_ms), took_ms
        self.looks: list[tuple[float, bool]] = []
        self.stalled_ms: list[float] = []

    def abort(self, own: bool) -> int:
        self.looks.append((self.clock.ms, own))
        self.clock.ms += self.took_ms
        found = [at for at in self.open if at <= self.clock.ms]
        self.stalled_ms += [self.clock.ms - at for at in found]
        self.open = self.open[len(found) :]
        return len(found)


def watch(clock: Clock, strays: Strays) -> None:
    for pause_ms in LateSweeps(WATCH_MS, clock, strays.abort, lambda: True).pauses():
        clock.ms += pause_ms


def test_what_opens_within_the_time_is_aborted_within_seconds_and_begins_the_time_anew() -> None:
    clock = Clock()
    strays = Strays(clock, [200.0, 20_000.0, 59_000.0, 110_000.0, 168_000.0])
    watch(clock, strays)
    assert strays.open == []
    assert max(strays.stalled_ms) <= PAUSE_MAX_MS + 2 * strays.took_ms
    assert 168_000 + WATCH_MS <= clock.ms <= 168_000 + WATCH_MS + 3 * PAUSE_MAX_MS


def test_looks_end_and_become_rare_on_the_way() -> None:
    clock = Clock()
    strays = Strays(clock, [])
    watch(clock, strays)
    times = [at for at, _ in strays.looks]
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert times[0] == FIRST_PAUSE_MS
    assert pauses == sorted(pauses)
    assert len(times) < WATCH_MS / PAUSE_MAX_MS + 6
    assert not any(own for _, own in strays.looks), "the thread leaves this driver's own transactions alone"
    assert WATCH_MS <= clock.ms <= WATCH_MS + PAUSE_MAX_MS


def test_a_look_that_takes_long_is_rare() -> None:
    clock = Clock()
    strays = Strays(clock, [], took_ms=1000.0)
    watch(clock, strays)
    assert len(strays.looks) <= 4


def test_a_look_that_fails_is_repeated_and_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "holdfast.commit")
    clock, looks = Clock(), []

    def abort(own: bool) -> int:
        looks.append(own)
        raise Unavailable("the test wanted it")

    for pause_ms in LateSweeps(WATCH_MS, clock, abort, lambda: True).pauses():
        clock.ms += pause_ms
    assert len(looks) > WATCH_MS / PAUSE_MAX_MS
    assert set(caplog.messages) == {"what late tasks may have opened is looked for again later: the test wanted it"}
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_own_strays_are_looked_for_between_batches_once_attempts_have_failed() -> None:
    clock = Clock()
    strays = Strays(clock, [])
    sweeps = LateSweeps(WATCH_MS, clock, strays.abort, lambda: True)
    for _ in range(100):
        sweeps.between_batches()
        clock.ms += 100
    assert strays.looks == [], "nothing has failed"
    sweeps.attempts_failed()
    failed_ms = clock.ms
    for _ in range(1200):
        sweeps.between_batches()
        clock.ms += 100
    assert all(own for _, own in strays.looks)
    assert 10 <= len(strays.looks) <= WATCH_MS / PAUSE_MAX_MS + 6
    assert strays.looks[-1][0] <= failed_ms + WATCH_MS


def test_the_thread_ends_when_it_is_told_to() -> None:
    clock = Clock()
    sweeps = LateSweeps(WATCH_MS, clock, lambda own: 0, lambda: True)
    sweeps.start()
    [thread] = [one for one in threading.enumerate() if one is sweeps._thread]
    assert thread.daemon, "a program ends without it"
    sweeps.stop()
    thread.join(120)
    assert not thread.is_alive()


def test_the_thread_ends_with_the_query_whoever_stopped_it() -> None:
    looks: list[bool] = []
    sweeps = LateSweeps(WATCH_MS, Clock(), lambda own: looks.append(own) or 0, lambda: False)  # type: ignore[func-returns-value]
    sweeps.start()
    assert sweeps._thread is not None
    sweeps._thread.join(120)
    assert not sweeps._thread.is_alive()
    assert looks == []


@pytest.mark.parametrize("watch_ms", [0.0, 100.0])
def test_a_time_of_nothing_is_no_look_or_one(watch_ms: float) -> None:
    schedule = Schedule(watch_ms)
    schedule.sign(0.0)
    assert not schedule.is_due(FIRST_PAUSE_MS)
    assert schedule.pause_ms(watch_ms + 1) is None


def test_no_error_is_the_last_look(caplog: pytest.LogCaptureFixture) -> None:
    """One that none of ours is was told as if the brokers had not answered, where nobody looks."""
    clock, looks = Clock(), []

    def abort(own: bool) -> int:
        looks.append(own)
        raise ValueError("of a library's")

    for pause_ms in LateSweeps(WATCH_MS, clock, abort, lambda: True).pauses():
        clock.ms += pause_ms
    assert len(looks) > WATCH_MS / PAUSE_MAX_MS
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert "raise ValueError" in caplog.text, "where it was raised"


class BetweenSink(WorldSink):
    """One that is told which attempts count."""

    told: Collection[tuple[int, int]] = frozenset()

    def recover_between(self, scope: Scope, keep: Sequence[Committable], recorded: Collection[tuple[int, int]]) -> int:
        self.told = recorded
        return self.recover(scope, keep)


def test_a_sink_is_told_which_attempts_count_where_some_have_failed() -> None:
    world = World(batches=2)
    sink = BetweenSink(world, "sink0")
    run = Run(world)
    run.committer._sinks = {"sink0": sink}  # type: ignore[dict-item]
    run.play(0)
    assert not sink.told
    world.fails_next_task = True
    run.play(1)
    assert sink.told == {(0, 1), (1, 0)}
    world.check()


class KeepingSink(WorldSink):
    """One that notes of which batch it is to keep what is named; -1: of none."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "sink0")
        self.swept: list[int] = []
        self.looked: list[int] = []

    def recover(self, scope: Scope, keep: Sequence[Committable]) -> int:
        self.swept.append(self._batch_of(keep))
        return super().recover(scope, keep)

    def abort_late(self, scope: Scope, keep: Sequence[Committable], *, own: bool) -> int:
        self.looked.append(self._batch_of(keep))
        return 0

    def _batch_of(self, keep: Sequence[Committable]) -> int:
        found = {self._world.witnesses[self.name][one.body["generation"]].rows[0][0] for one in keep}
        return max(found, default=-1)


def driver_of(world: World) -> tuple[Run, KeepingSink]:
    run, sink = Run(world), KeepingSink(world)
    run.committer._sinks = {"sink0": sink}  # type: ignore[dict-item]
    run.committer.close()  # the thread: the test looks itself
    return run, sink


def test_what_the_next_start_asks_for_is_kept_from_all_sweeps_until_spark_has_its_batch() -> None:
    """Without witnesses a sweep that came sooner made what was visible look lost."""
    world = World(batches=4)
    run, sink = driver_of(world)
    world.fails_next_task = True
    run.play(0)
    del world.files["commits/0"], world.spark_state[0]  # the driver dies before
    assert [run.committer._abort_late(own) for own in (True, False)] == [0, 0]
    assert (sink.swept, sink.looked) == ([-1, -1, 0], [0, 0])

    run, sink = driver_of(world)
    run.committer.start()
    run.committer._abort_late(False)
    assert (sink.swept, sink.looked) == ([0, 0], [0])
    run.play(0)
    run.committer._abort_late(False)
    assert (sink.swept, sink.looked) == ([0, 0], [0, -1]), "Spark has it"
    run.play(1)
    run.play(2)
    assert sink.swept == [0, 0, 1], "what was spared is swept, once"

    run, sink = driver_of(world)
    run.committer.start()
    run.committer._abort_late(False)
    assert (sink.swept, sink.looked) == ([2, -1], [-1]), "nobody asks for what Spark has"
