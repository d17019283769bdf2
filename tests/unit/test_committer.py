"""What the committer refuses, retries, keeps and tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.commit_world import Run, World, WorldSink, drive

from holdfast.commit.record_log import RecordLog, record_name
from holdfast.commit.sink import Committable, Outcome, Scope
from holdfast.commit.traces import Trace
from holdfast.errors import Corrupt, Fenced, Incompatible, InvalidRequest, Unavailable, Undecided


def records(world: World) -> list[str]:
    return [name.rpartition("/")[2] for name in sorted(world.files) if "/records/" in name]


def roll_back(world: World, batches: int, keep_offsets: bool = True) -> None:
    """Spark's checkpoint goes back by some batches."""
    for batch in range(world.next_batch - batches, world.next_batch):
        del world.spark_state[batch]
        del world.files[f"commits/{batch}"]
        if not keep_offsets:
            world.files[f"offsets/{batch}"] = b"written anew"


def after_the_first_record() -> int:
    """The step at which a driver looks whether it may make visible what it has recorded."""
    world = World(batches=1)
    drive(world, 1)
    written = next(
        number for number, what in enumerate(world.log) if what.startswith("created") and "/records/" in what
    )
    looks = (n for n in range(written, len(world.log)) if world.log[n].startswith("get holdfast/query/epochs/"))
    return 1 + next(looks)


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
    assert "Roll back to batch 3" in str(end)
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


def test_a_sink_that_does_not_answer_is_asked_until_the_limit() -> None:
    world = World(batches=2)
    run = Run(world)
    asked: list[float] = []

    def commit(scope: Scope, committables: Sequence[Committable]) -> list[Outcome]:
        asked.append(run.committer._retries.clock.elapsed_ms())
        raise Unavailable("no answer")

    run.sinks[0].commit = commit  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match=r"committing batch 0 to sink 'sink0' failed 4 times .*no answer"):
        run.play(0)
    assert asked == [0, 100, 300, 700]
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


def test_lost_output_needs_the_partitions_it_had() -> None:
    clean = World(batches=1)
    drive(clean, 1)
    plan = {1 + clean.log.index("mid_commit"): "time out"}  # after the first of two is committed
    world = World(batches=2, plan=plan)
    assert isinstance(drive(world, 2), Unavailable)
    world.partitions = 3
    end = drive(world, 2)
    assert isinstance(end, Incompatible)
    assert "it has 3 partitions now, recorded are 2" in str(end)
    world.partitions = 2
    assert drive(world, 2) is None
    world.check()


def test_a_damaged_record_is_told_and_not_guessed_at() -> None:
    world = World(batches=2, plan={after_the_first_record(): "crash"})
    drive(world, 2)
    name = record_name("query", 0, 0)
    world.files[name] = world.files[name].replace(b'"attempt', b'"attempx')[:-9]
    end = drive(world, 2)
    assert isinstance(end, Corrupt)
    assert name in str(end)


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


def test_tasks_that_were_tried_again_are_told_for_as_long_as_there_is_room() -> None:
    """Spark may have what the first attempts left."""
    world = World(batches=6)
    run = Run(world)
    for batch_id in range(3):
        run.play(batch_id)
    assert run.committer.doubted == {}
    recorded = run.committer._log.newest(2)
    assert recorded is not None
    again = replace(recorded, tasks=tuple(replace(task, attempt=1) for task in recorded.tasks))
    run.committer._note_doubted(again)
    assert run.committer.doubted == {2: again.tasks}
    many = tuple(replace(again.tasks[0], partition=number) for number in range(300))
    for batch_id in (3, 4):
        run.committer._note_doubted(replace(again, batch_id=batch_id, tasks=many))
    assert list(run.committer.doubted) == [4]
