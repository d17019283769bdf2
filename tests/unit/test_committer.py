"""What the committer refuses, retries, keeps and tells."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.commit_world import (
    Clock,
    Run,
    World,
    WorldSink,
    WorldStore,
    after_the_first_record,
    drive,
    records,
)

from holdfast.commit import sweeps
from holdfast.commit.batch import Replay, TaskResult
from holdfast.commit.committer import CommitOptions, Committer, CommitTimes
from holdfast.commit.epochs import Driver
from holdfast.commit.record import CommitRecord
from holdfast.commit.record_log import RecordLog, record_name
from holdfast.commit.retries import Retries
from holdfast.commit.sink import Committable, Outcome, Scope
from holdfast.commit.traces import Trace
from holdfast.errors import Fenced, Incompatible, InternalError, InvalidRequest, Unavailable, Undecided
from holdfast.storage import LocalFileStore, StoredFile


def roll_back(world: World, batches: int, keep_offsets: bool = True) -> None:
    """Spark's checkpoint goes back by some batches."""
    for batch in range(world.next_batch - batches, world.next_batch):
        del world.spark_state[batch]
        del world.files[f"commits/{batch}"]
        if not keep_offsets:
            world.files[f"offsets/{batch}"] = b"written anew"


def test_records_are_kept_as_long_as_spark_keeps_batches() -> None:
    world = World(batches=8)
    assert drive(world, 8) is None
    assert records(world) == [f"{batch:012d}-0000.json" for batch in (5, 6, 7)]


def test_a_rollback_with_the_same_offsets_writes_nothing_twice() -> None:
    world = World(batches=6)
    drive(world, 6)
    state = dict(world.spark_state)
    roll_back(world, 3)
    assert drive(world, 6) is None
    world.check()
    assert world.spark_state == state


def test_a_rollback_with_other_offsets_is_refused() -> None:
    world = World(batches=6)
    drive(world, 6)
    roll_back(world, 2, keep_offsets=False)
    end = drive(world, 6)
    assert isinstance(end, Incompatible)
    assert "batch 4 runs again with other offsets" in str(end)
    assert "run `holdfast fork world`" in str(end) and "delete" not in str(end)


def test_a_rollback_further_than_records_are_kept_is_refused() -> None:
    world = World(batches=6)
    drive(world, 6)
    roll_back(world, 5)
    end = drive(world, 6)
    assert isinstance(end, Incompatible)
    assert "rolled back further than records are kept" in str(end)
    assert "has records of batches 3 to 5 only" in str(end) and "Roll back to batch 3" in str(end)
    assert "run `holdfast fork world`" in str(end) and "delete" not in str(end)
    world.fork("query")
    assert drive(world, 6) is None
    assert sorted(row[0] for row in world.visible["sink0"]) == sorted([*range(6), *range(1, 6)] * 2), "as it was told"


def test_offsets_that_cannot_be_read_are_not_compared() -> None:
    world = World(batches=4)
    drive(world, 4)
    roll_back(world, 1)
    del world.files["offsets/3"]
    run = Run(world)
    run.committer.run_batch(3, lambda replay: [])
    assert run.committer.epoch == 2


def test_an_overtaken_driver_is_fenced_and_says_by_whom() -> None:
    world = World(batches=9)
    old = Run(world)
    old.play(0)
    assert drive(world, 2) is None
    with pytest.raises(Fenced, match=r"epoch 2 \(run run2, process 1 on host\); this is epoch 1, run run1"):
        old.play(2)
    world.batches = 2
    world.check()
    assert all(t.state != "prepared" for t in world.transactions["sink0"].values())


def test_a_sink_that_does_not_answer_is_asked_until_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    world = World(batches=2)
    run = Run(world)
    run.committer._retries.sleep(50)  # a clock begins anywhere
    asked: list[float] = []

    def commit(scope: Scope, committables: Sequence[Committable]) -> list[Outcome]:
        asked.append(run.committer._retries.clock.elapsed_ms())
        raise Unavailable("no answer")

    run.sinks[0].commit = commit  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match=r"failed 4 times in 0\.7 s; the limit is 1 s .*retry\.max.*no answer"):
        run.play(0)
    assert [one - 50_000 for one in asked] == [0, 100, 300, 700]
    doing = "committing batch 0 to sink 'sink0' failed and is tried again in"
    assert said(caplog) == [f"{doing} {pause_ms} ms: no answer" for pause_ms in (100, 200, 400)]
    assert drive(world, 2) is None
    world.check()


def test_what_is_undecided_stops_every_start_until_somebody_decides() -> None:
    world = World(batches=2, plan={after_the_first_record(): "crash"})
    drive(world, 2)
    assert world.log[-1].startswith("get holdfast/query/epochs/"), "the record is written, nothing is committed"

    def commit(scope: Scope, committables: Sequence[Committable]) -> list[Outcome]:
        raise Undecided("the broker forgot; holdfast transactions …")

    for _ in range(2):
        run = Run(world)
        run.sinks[0].commit = commit  # type: ignore[method-assign]
        with pytest.raises(Undecided):
            run.play(0)
    name = record_name("query", 0, 0)
    log = RecordLog(run.committer._store, "query")
    log.load()
    record = log.newest(0)
    assert record is not None
    with pytest.raises(InvalidRequest, match="partition 7 cannot be said to be done: it wrote nothing"):
        record.decided("sink0", {7: Outcome.DONE})
    log.create(record.decided("sink0", {0: Outcome.LOST, 1: Outcome.LOST}))
    assert drive(world, 2) is None, "both are written again, without a question"
    world.check()
    assert name in world.files


class ClaimsOnly(WorldSink):
    """One that leaves what is open as it is, when it is taken over."""

    def claim(
        self, scope: Scope, driver: Driver, newest: Sequence[Committable], check: Callable[[Sequence[Trace]], None]
    ) -> Mapping[str, Any]:
        self._world.owners[scope.query_id, scope.sink] = scope.run_id
        return {"owner": scope.run_id}


def test_a_start_aborts_what_a_killed_driver_left_and_tells_how_much(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "holdfast.commit")
    clean = World(batches=1)
    drive(clean, 1)
    world = World(plan={1 + clean.log.index(f"create {record_name('query', 0, 0)}"): "crash"})
    drive(world, 1)
    with_options(world, [ClaimsOnly(world, "sink0")]).committer.start()
    assert {one.state for one in world.transactions["sink0"].values()} == {"aborted"}
    assert said(caplog) == ["sink 'sink0': 2 strays of earlier attempts were aborted"]


def away(*given: object) -> int:
    raise Unavailable("away")


def test_strays_that_cannot_be_aborted_now_stop_no_query_and_are_told(caplog: pytest.LogCaptureFixture) -> None:
    world = World(batches=2)
    run = Run(world)
    run.committer.start()
    run.sinks[0].recover = away  # type: ignore[assignment,method-assign]
    world.fails_next_task = True
    run.play(0)
    assert said(caplog) == ["strays of attempts that failed are aborted later: away"]


def test_who_is_overtaken_and_cannot_abort_says_so(caplog: pytest.LogCaptureFixture) -> None:
    world = World(batches=2)
    run = Run(world)
    run.sinks[0].abort = away  # type: ignore[method-assign, assignment]

    def job(replay: Replay | None) -> list[TaskResult]:
        Run(world).committer.start()
        return [run._task(0, partition, replay, {}) for partition in range(2)]

    with pytest.raises(Fenced):
        run.committer.run_batch(0, job)
    assert said(caplog) == ["what sink 'sink0' prepared is aborted by the next start: away"]


def test_what_spark_has_committed_is_not_asked_for_again() -> None:
    """After long enough the other side may have forgotten it, and would answer Undecided."""
    world = World(batches=4)
    assert drive(world, 2) is None
    run = Run(world)

    def commit(scope: Scope, committables: Sequence[Committable]) -> list[Outcome]:
        raise Undecided("forgotten")

    for sink in run.sinks:
        sink.commit = commit  # type: ignore[method-assign]
    run.committer.start()
    assert drive(world, 4) is None
    world.check()


def test_a_sink_that_has_output_in_flight_cannot_be_left_out() -> None:
    world = World(batches=2, plan={after_the_first_record(): "crash"})
    drive(world, 2)
    run = Run(world)
    run.committer._sinks = {}
    with pytest.raises(Incompatible, match="output of sink 'sink0', of kind 'world', that may not be visible yet"):
        run.play(0)


class SinkOfAnotherKind(WorldSink):
    """One that cannot read what others have recorded."""

    kind = "another"

    def traces(self, scope: Scope, newest: Sequence[Committable]) -> list[Trace]:
        assert not newest
        return super().traces(scope, newest)

    def recover(self, scope: Scope, keep: Sequence[Committable]) -> int:
        assert not keep
        return super().recover(scope, keep)


def with_another_kind(world: World) -> Run:
    """A driver whose sink has the name of one that wrote somewhere else before."""
    run = Run(world)
    run.sinks = [SinkOfAnotherKind(world, "sink0")]
    run.committer._sinks = {"sink0": run.sinks[0]}  # type: ignore[dict-item]
    return run


def test_a_sink_of_another_kind_may_take_a_name_once_all_of_the_record_is_visible() -> None:
    """It was given what the other had recorded: a FileSink ended in a KeyError, a KafkaSink called it Corrupt."""
    world = World(batches=2)
    assert drive(world, 1) is None
    with_another_kind(world).play(1)
    world.check()


def test_a_sink_of_another_kind_may_not_take_a_name_before() -> None:
    world = World(batches=2, plan={after_the_first_record(): "crash"})
    drive(world, 2)
    with pytest.raises(Incompatible, match="output of sink 'sink0', of kind 'world', that may not be visible yet"):
        with_another_kind(world).play(0)


def test_a_driver_that_is_overtaken_while_it_waits_for_a_sink_does_not_fence_its_successor() -> None:
    world = World(batches=3)
    slow, heir = Run(world), Run(world)
    claim = slow.sinks[0].claim

    def late(*given: object) -> object:
        if world.next_batch == 0:
            heir.play(0)
            raise Unavailable("the sink was away")
        return claim(*given)  # type: ignore[arg-type]

    slow.sinks[0].claim = late  # type: ignore[method-assign, assignment]
    with pytest.raises(Fenced, match="this is epoch 1"):
        slow.play(0)
    heir.play(1)
    heir.play(2)
    world.check()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "holdfast.commit"]


def test_who_is_overtaken_as_it_records_says_by_whom() -> None:
    clean = World()
    drive(clean, 4)
    plan = {1 + clean.log.index(f"create {record_name('query', 0, 0)}"): "overtake"}
    world = World(plan=plan)
    end = drive(world, 4)
    assert isinstance(end, Fenced)
    assert "batch 0 was recorded by another driver, run run2 of epoch 2, which took over the checkpoint" in str(end)
    assert "this is epoch 1" in str(end) and "Stop one of the two" in str(end)


def test_a_record_that_an_overtaken_driver_just_managed_to_write_counts() -> None:
    world = World(batches=2)
    old = Run(world)
    old.committer.start()
    record = old.committer._new_record(0, 0, [old._task(0, partition, None, {}) for partition in range(2)])
    heir = Run(world)

    def job(replay: Replay | None) -> list[TaskResult]:
        old.committer._log.create(record)
        return [heir._task(0, partition, replay, {}) for partition in range(2)]

    world.files["offsets/0"] = b"offsets of 0"
    with pytest.raises(Unavailable, match="run run1 of epoch 1, just before this driver, of epoch 2, took its place"):
        heir.committer.run_batch(0, job)
    assert not any(one.state == "prepared" for one in world.transactions["sink0"].values())
    assert drive(world, 2) is None
    world.check()


def test_who_is_overtaken_aborts_what_its_tasks_prepared_since() -> None:
    """Its successor has swept before."""
    world = World(sinks=2)
    old = Run(world)

    def job(replay: Replay | None) -> list[TaskResult]:
        Run(world).committer.start()
        results = [old._task(0, partition, None, {}) for partition in range(2)]
        return [replace(one, committables={"sink1": one.committables["sink1"]}) for one in results]

    with pytest.raises(Fenced):
        old.committer.run_batch(0, job)
    assert {one.state for one in world.transactions["sink1"].values()} == {"aborted"}


def test_a_commit_is_timed(caplog: pytest.LogCaptureFixture) -> None:
    """Benchmarks read it."""
    caplog.set_level("DEBUG", "holdfast.commit")
    run = Run(World())
    sleep, sink = run.committer._retries.sleep, run.sinks[0]
    sleep(7)
    create, commit = run.committer._store.create_if_absent, sink.commit
    run.committer._store.create_if_absent = lambda *given: (sleep(0.02), create(*given))[1]  # type: ignore[method-assign]
    sink.commit = lambda *given: (sleep(0.3), commit(*given))[1]  # type: ignore[method-assign]
    assert run.committer.times == CommitTimes(0.0, 0.0)
    run.play(0)
    assert (round(run.committer.times.record_ms), round(run.committer.times.commit_ms)) == (20, 300)
    assert said(caplog)[-1] == f"batch 0: {run.committer.times}"


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("sweep holdfast/query/", "old epochs and half-written files are cleared at the next start: sweep"),
        ("delete", "old commit records are deleted later: delete"),
    ],
)
def test_what_can_be_done_later_stops_no_query_and_is_told(
    step: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    clean = World()
    drive(clean, 4)
    world = World(plan={1 + clean.log.index(step): "refuse"})
    assert drive(world, 4) is None
    assert any(one.startswith(told) and one.endswith("the test wanted it") for one in said(caplog)), said(caplog)
    world.check()


def test_a_start_clears_what_killed_drivers_were_writing_and_leaves_what_a_live_one_writes(tmp_path: Path) -> None:
    names = ("holdfast/query/records/.tmp-old", "holdfast/query/records/.tmp-new", "offsets/.tmp-old")
    for name in names:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        os.utime(file, (50_000, 50_000) if name.endswith("old") else (98_000, 98_000))
    clock = Clock()
    clock.ms = 100_000_000
    options = CommitOptions(Retries(1_000, 100, clock, clock.sleep), 3)
    Committer(LocalFileStore(str(tmp_path)), "query", Driver("run", "host", 1, 0), [], options).start()
    assert [(tmp_path / name).exists() for name in names] == [False, True, True], "Spark's own are Spark's"


def test_of_two_that_start_from_copies_at_the_same_moment_one_is_refused() -> None:
    """Neither has seen the other as it looked, and both have the same epoch, each in a checkpoint of its own."""
    world = World(batches=3)
    drive(world, 1)
    mine, copied = world.files, dict(world.files)
    original = Run(world)
    claim = original.sinks[0].claim

    def after_the_copy(*given: Any) -> Mapping[str, Any]:
        world.files = copied
        Run(world).committer.start()
        world.files = mine
        return claim(*given)

    original.sinks[0].claim = after_the_copy  # type: ignore[assignment,method-assign]
    with pytest.raises(Incompatible, match="Sink 'sink0' .* there is no batch that is not here, but by another driver"):
        original.committer.start()


class ForgetfulStore(WorldStore):
    """Another driver forgets the oldest epoch, whenever somebody has just listed them."""

    def list(self, prefix: str) -> list[StoredFile]:
        found = super().list(prefix)
        if prefix.endswith("/epochs/") and len(found) > 1:
            self.delete([found[0].name])
        return found


def test_a_driver_that_is_forgotten_as_its_traces_are_looked_at_is_no_stranger() -> None:
    world = World(batches=4)
    for batches in (1, 2, 3):
        assert drive(world, batches) is None
    run = Run(world)
    run.committer._store = ForgetfulStore(world)  # type: ignore[assignment]
    run.play(3)
    world.check()


@pytest.mark.parametrize("partitions", [[0, 0], [1], [0, 2]])
def test_a_job_owes_one_result_for_each_task(partitions: list[int]) -> None:
    world = World(batches=1)
    run = Run(world)

    def job(replay: Replay | None) -> list[TaskResult]:
        for partition in range(2):
            run._task(0, partition, None, {})
        return [TaskResult(partition, 0, 0, 0) for partition in partitions]

    with pytest.raises(InternalError, match=re.escape(f"found results of partitions {partitions}")):
        run.committer.run_batch(0, job)
    assert {one.state for one in world.transactions["sink0"].values()} == {"aborted"}
    assert records(world) == []


def test_a_sink_that_gives_too_few_answers_is_told() -> None:
    run = Run(World(batches=1))
    run.sinks[0].commit = lambda scope, committables: [Outcome.DONE]  # type: ignore[method-assign]
    with pytest.raises(InternalError, match="'sink0' was asked to commit 2 committables and gave 1 answers"):
        run.play(0)


class ToldSink(WorldSink):
    """Keeps what it is told of whoever comes, and of what its newest record names."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.told: list[tuple[str, Scope, Driver | None, list[int]]] = []

    def traces(self, scope: Scope, newest: Sequence[Committable]) -> list[Trace]:
        self.told.append(("traces", scope, None, [one.partition for one in newest]))
        assert scope.claim == {}
        return super().traces(scope, newest)

    def claim(
        self, scope: Scope, driver: Driver, newest: Sequence[Committable], check: Callable[[Sequence[Trace]], None]
    ) -> Mapping[str, Any]:
        self.told.append(("claim", scope, driver, [one.partition for one in newest]))
        return super().claim(scope, driver, newest, check)


def test_a_sink_is_told_who_comes_and_what_its_newest_record_names() -> None:
    world = World(batches=3)
    drive(world, 2)
    run = Run(world)
    sink = ToldSink(world, "sink0")
    run.committer._sinks = {"sink0": sink}  # type: ignore[dict-item]
    run.committer.start()
    assert sink.told == [
        ("traces", Scope("query", "run2", 0, "sink0"), None, [0, 1]),
        ("claim", Scope("query", "run2", 2, "sink0"), Driver("run2", "host", 1, 0), [0, 1]),
    ]


def with_options(world: World, sinks: Sequence[WorldSink], **options: Any) -> Run:
    """A driver with sinks and options of the test's own."""
    run = Run(world)
    run.sinks = list(sinks)
    retries, driver = run.committer._retries, Driver(run.run_id, "host", 1, 0)
    given = CommitOptions(**{"retries": retries, "retained_batches": 3, **options})
    run.committer = Committer(WorldStore(world), "query", driver, run.sinks, given)  # type: ignore[arg-type]
    return run


class LateSink(WorldSink):
    """One whose strays are in somebody's way."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.looks: list[tuple[str, int, bool]] = []
        self.looked = threading.Event()

    def abort_late(self, scope: Scope, keep: Sequence[Committable], *, own: bool) -> int:
        self.looks.append((scope.sink, scope.epoch, own))
        self.looked.set()
        return 0


def test_strays_of_earlier_drivers_are_looked_for_until_the_query_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "FIRST_PAUSE_MS", 1.0)
    for ended_by in ("close", "not running"):
        world = World(batches=1)
        sink, running = LateSink(world, "sink0"), [True]
        run = with_options(world, [sink], is_running=lambda running=running: running[0])
        run.play(0)
        assert sink.looked.wait(120)
        if ended_by == "close":
            run.committer.close()
        running[0] = ended_by == "close"
        thread = run.committer._sweeps._thread
        assert thread is not None
        thread.join(120)
        assert not thread.is_alive()
        assert set(sink.looks) == {("sink0", 1, False)}


def test_own_strays_are_looked_for_for_a_while_after_attempts_have_failed() -> None:
    world = World(batches=9)
    sink = LateSink(world, "sink0")
    run = with_options(world, [sink], is_running=lambda: False, orphan_max_ms=60_000)

    def looks_after(batch_id: int, seconds: float) -> int:
        run.committer._retries.sleep(seconds)
        before = len(sink.looks)
        run.play(batch_id)
        return len(sink.looks) - before

    run.play(0)
    assert looks_after(1, 20) == 0, "nothing has failed"
    world.fails_next_task = True
    run.play(2)
    assert [looks_after(batch_id, 20) for batch_id in (3, 4, 5, 6)] == [1, 1, 1, 0]
    assert set(sink.looks) == {("sink0", 1, True)}


@pytest.mark.parametrize("run_anew", [False, True])
def test_where_tasks_have_copies_each_may_have_left_something(run_anew: bool) -> None:
    """Also those of a stage that Spark ran anew, which count from 0 again: they were taken for the only ones."""
    world = World(batches=2)
    sink = LateSink(world, "sink0")
    run = with_options(world, [sink], speculation=not run_anew, is_running=lambda: False)

    def copy(replay: Replay | None) -> list[TaskResult]:
        results = [run._task(0, partition, None, {}) for partition in range(2)]
        run.sinks[0].open_transaction(run.committer.scope("sink0"), 0, 0, 1)
        return [replace(one, run_anew=run_anew) for one in results]

    run.committer.run_batch(0, copy)
    assert [task.partition for task in run.committer.doubted[0]] == [0, 1]
    assert sorted(one.state for one in world.transactions["sink0"].values()) == ["aborted", "committed", "committed"]
    world.spark_state[0] = [{}]
    run.committer._retries.sleep(1)
    run.play(1)
    assert bool(sink.looks) is run_anew, "what they may open yet; under speculation each batch has swept by itself"
    assert list(run.committer.doubted) == ([0] if run_anew else [0, 1])


def test_two_records_are_kept_at_least() -> None:
    """The newest one's batch may have to run again, and the one before it is what it goes on from."""
    world = World(batches=5)
    run = with_options(world, [WorldSink(world, "sink0")], retained_batches=1)
    for batch_id in range(5):
        run.play(batch_id)
    assert records(world) == [f"{batch:012d}-0000.json" for batch in (3, 4)]


def test_tasks_that_were_tried_again_are_told_for_as_long_as_there_is_room() -> None:
    """Spark may have what the first attempts left."""
    world = World(batches=6)
    run = with_options(world, [WorldSink(world, "sink0")], retained_batches=100)
    for batch_id in range(3):
        run.play(batch_id)
    assert run.committer.doubted == {}
    recorded = run.committer._log.newest(2)
    assert recorded is not None
    assert recorded.doubted == ()
    again = replace(recorded, tasks=tuple(replace(task, attempt=1) for task in recorded.tasks))

    def note(record: CommitRecord) -> None:
        run.committer._note_doubted(replace(record, doubted=run.committer._doubted_by(record)))

    note(again)
    assert run.committer.doubted == {2: again.tasks}
    third = replace(again, batch_id=3)
    note(third)
    assert run.committer.doubted == {2: again.tasks, 3: third.tasks}
    many = tuple(replace(again.tasks[0], partition=number) for number in range(300))
    for batch_id in (4, 5):
        note(replace(again, batch_id=batch_id, tasks=many))
    assert list(run.committer.doubted) == [5]
    note(replace(again, batch_id=6, tasks=2 * many))
    assert list(run.committer.doubted) == [6], "the newest is told whatever its size"
    assert run.committer.told.recorded == (2, 3, 4, 5), "of those before, the records say it"
    note(replace(recorded, batch_id=7))
    assert run.committer.told.recorded == (2, 3, 4, 5)
    assert run.committer._doubted_by(replace(recorded, batch_id=105)) == (6,), "records are kept of 100 batches"
