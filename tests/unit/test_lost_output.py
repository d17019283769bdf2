"""Output that was recorded, and lost before it was visible: what is written again, by whom, and what that needs."""

from __future__ import annotations

import pytest
from tests.commit_world import Run, World, WorldStore, after_the_first_record, drive, records, the_record

from holdfast.commit.batch import Replay, TaskResult
from holdfast.commit.record_log import record_name
from holdfast.errors import Corrupt, Fenced, Incompatible, Unavailable


def lost_in_part() -> int:
    """The step at which the first of two partitions is visible and the second may be lost."""
    clean = World(batches=1)
    drive(clean, 1)
    return 1 + clean.log.index("mid_commit")


def test_lost_output_needs_the_partitions_it_had() -> None:
    plan = {lost_in_part(): "time out"}
    world = World(batches=2, plan=plan)
    assert isinstance(drive(world, 2), Unavailable)
    world.partitions = 3
    end = drive(world, 2)
    assert isinstance(end, Incompatible)
    assert "it has 3 partitions now, recorded are 2" in str(end)
    assert "(spark.sql.adaptive.streaming.stateless.enabled)" in str(end)
    assert "slots, minPartitions of another source than holdfast-kafka)" in str(end), "which keeps its own in the batch"
    world.partitions = 2
    assert drive(world, 2) is None
    world.check()


def test_lost_output_needs_a_source_that_repeats_itself() -> None:
    world = World(batches=2, plan={lost_in_part(): "time out"})
    drive(world, 2)
    run = Run(world)

    def other_rows(replay: Replay | None) -> list[TaskResult]:
        return [TaskResult(0, 0, 0, 5), run._task(0, 1, replay, {})]

    with pytest.raises(
        Incompatible, match=r"partitions \[1\] were lost, but partition 0 has 5 rows now, recorded are 1"
    ):
        run.committer.run_batch(0, other_rows)
    assert drive(world, 2) is None
    world.check()


def test_output_that_was_lost_in_part_is_written_again_and_told(caplog: pytest.LogCaptureFixture) -> None:
    world = World(batches=2, plan={lost_in_part(): "time out"})
    assert isinstance(drive(world, 2), Unavailable)
    first = the_record(world, 0)
    assert drive(world, 2) is None
    assert "batch 0: partitions [1] were lost and are written again" in caplog.messages
    second = the_record(world, 0)
    assert (first.run_id, first.epoch, first.state_run_id) == ("run1", 1, "run1")
    assert (second.run_id, second.epoch, second.state_run_id) == ("run2", 2, "run1")
    assert (second.revision, second.offsets) == (1, first.offsets)
    assert second.sinks["sink0"].done == (0,), "nobody is asked about that again"
    assert [task.run_id for task in second.tasks] == ["run1", "run2"]
    world.check()


def test_output_that_was_lost_twice_is_written_again_twice() -> None:
    plan = {lost_in_part(): "time out"}
    world = World(batches=2, plan=plan)
    drive(world, 2)
    drive(world, 2)
    written = world.log.index(f"created {record_name('query', 0, 1)}")
    looks = next(n for n in range(written, len(world.log)) if world.log[n].startswith("get holdfast/query/epochs/"))
    world = World(batches=2, plan={**plan, 1 + looks: "time out"})
    for _ in range(2):
        end = drive(world, 2)
        assert isinstance(end, Unavailable) and "partitions [1] of sink 'sink0'" in str(end)
    assert drive(world, 2) is None
    assert [task.run_id for task in the_record(world, 0).tasks] == ["run1", "run3"]
    world.check()


def test_output_that_was_lost_whole_is_written_anew_and_told(caplog: pytest.LogCaptureFixture) -> None:
    world = World(batches=2, plan={after_the_first_record(): "time out"})
    end = drive(world, 2)
    assert isinstance(end, Unavailable) and "partitions [0, 1] of sink 'sink0'" in str(end)
    assert drive(world, 2) is None
    assert "batch 0: all that its record names was lost; it runs anew" in caplog.messages
    assert [name for name in records(world) if "0-000" in name[:16]] == [f"{0:012d}-0000.json", f"{0:012d}-0001.json"]
    assert (the_record(world, 0).state_run_id, the_record(world, 0).run_id) == ("run2", "run2")
    world.check()


def test_a_sink_that_joins_takes_nothing_of_a_batch_that_runs_again() -> None:
    world = World()
    drive(world, 1)
    replay = Replay(the_record(world, 0), {"sink0": frozenset({1})})
    assert [replay.writes("sink0", partition) for partition in range(2)] == [False, True]
    assert not replay.writes("joined", 1)


def test_who_is_overtaken_as_a_sink_joins_is_fenced() -> None:
    """What is recorded has nothing of that sink."""
    world = World(batches=2, sinks=2, plan={lost_in_part(): "time out"})
    first = Run(world)
    first.committer._sinks = {"sink0": first.sinks[0]}  # type: ignore[dict-item]
    first.sinks = first.sinks[:1]
    with pytest.raises(Unavailable, match=r"partitions \[1\] of sink 'sink0'"):
        first.play(0)
    second = Run(world)

    def job(replay: Replay | None) -> list[TaskResult]:
        Run(world).committer.start()
        return [second._task(0, partition, replay, {}) for partition in range(2)]

    with pytest.raises(Fenced):
        second.committer.run_batch(0, job)


def test_a_record_is_written_once_more_before_what_it_names_is_made_visible() -> None:
    """Whoever wrote it may have been killed before it was durable: a power cut would take it, and not the output."""
    world = World(batches=2, plan={after_the_first_record(): "crash"})
    drive(world, 2)
    before = len(world.log)
    Run(world).committer.start()
    steps = world.log[before:]
    assert steps.index(f"create {record_name('query', 0, 0)}") < steps.index("commit")


def test_a_damaged_record_is_told_and_not_guessed_at() -> None:
    world = World(batches=2, plan={after_the_first_record(): "crash"})
    drive(world, 2)
    name = record_name("query", 0, 0)
    world.files[name] = world.files[name].replace(b'"attempt', b'"attempx')[:-9]
    end = drive(world, 2)
    assert isinstance(end, Corrupt)
    assert name in str(end)


def open_in(world: World) -> list[str]:
    return [one.name for one in world.transactions["sink0"].values() if one.state in ("open", "prepared")]


def test_a_replay_that_is_refused_leaves_nothing_open() -> None:
    """What it had prepared stayed so until the transaction timeout, and readers waited for it."""
    world = World(batches=2, plan={lost_in_part(): "time out"})
    drive(world, 2)
    run = Run(world)

    def other_rows(replay: Replay | None) -> list[TaskResult]:
        return [TaskResult(0, 0, 0, 5), run._task(0, 1, replay, {})]

    with pytest.raises(Incompatible, match="partition 0 has 5 rows now"):
        run.committer.run_batch(0, other_rows)
    assert open_in(world) == []
    assert drive(world, 2) is None
    world.check()


@pytest.mark.parametrize("lost", [False, True])
def test_a_batch_whose_offsets_cannot_be_read_leaves_nothing_open(lost: bool) -> None:
    """The same, for a batch that runs for the first time and for one of which some output was lost."""
    world = World(batches=2, plan={lost_in_part(): "time out"} if lost else {})
    drive(world, 2 if lost else 1)
    run, batch_id = Run(world), world.next_batch
    world.files.setdefault(f"offsets/{batch_id}", b"offsets of %d" % batch_id)

    def job(replay: Replay | None) -> list[TaskResult]:
        results = [run._task(batch_id, partition, replay, {}) for partition in range(2)]
        run.sinks[0].open_transaction(run.committer.scope("sink0"), batch_id, 1, 1)  # of an attempt that failed
        run.committer._retries.sleep(1)
        run.committer._store.get = away  # type: ignore[method-assign]
        return results

    def away(name: str) -> bytes | None:
        if name.startswith("offsets/") or is_away:
            raise Unavailable("away")
        return WorldStore(world).get(name)

    for is_away in (True, False):  # all of storage: then what failed attempts left is the next start's to abort
        with pytest.raises(Unavailable, match="away"):
            run.committer.run_batch(batch_id, job)
        assert len(open_in(world)) == is_away
        run = Run(world)
    assert drive(world, 2) is None
    world.check()
