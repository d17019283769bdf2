"""Sinks that were renamed, removed, or are of another kind: what they wrote counts, and what they have open ends."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.commit_world import Run, World, WorldSink, WorldStore, after_the_first_record, drive, the_record

from holdfast.commit.former_sinks import end_former_sinks, recorded_sinks
from holdfast.commit.record import CommitRecord, SinkRecord
from holdfast.commit.record_log import RecordLog, record_name
from holdfast.commit.sink import Committable, Scope
from holdfast.commit.traces import Trace
from holdfast.errors import Incompatible, Unavailable


def with_sink(world: World, name: str, kind: type[WorldSink] = WorldSink) -> Run:
    """A driver that has this sink, and no others."""
    for there in (world.transactions, world.witnesses):
        there.setdefault(name, {})  # type: ignore[attr-defined]
    world.visible.setdefault(name, [])
    run = Run(world)
    run.sinks = [kind(world, name)]
    run.committer._sinks = {name: run.sinks[0]}  # type: ignore[dict-item]
    return run


class AnotherKind(WorldSink):
    """Nobody's other side is this one's."""

    kind = "another"

    def traces(self, scope: Scope, newest: Sequence[Committable]) -> list[Trace]:
        assert scope.sink == self.name
        return super().traces(scope, newest)

    def abort_former(self, scope: Scope, names: Collection[str], newest: Sequence[Committable]) -> int:
        assert list(names) == [self.name]
        return 0


def interrupted() -> World:
    """Killed after its tasks have prepared, before the record."""
    clean = World(batches=1)
    drive(clean, 1)
    world = World(batches=2, plan={1 + clean.log.index(f"create {record_name('query', 0, 0)}"): "crash"})
    drive(world, 1)
    assert {one.state for one in world.transactions["sink0"].values()} == {"prepared"}
    return world


def test_what_an_interrupted_batch_left_open_is_aborted_under_a_new_name() -> None:
    """It stayed open until the transaction timeout, and so long readers saw nothing of the new sink's either."""
    world = interrupted()
    with_sink(world, "new").play(0)
    assert {one.state for one in world.transactions["sink0"].values()} == {"aborted"}
    assert {one.state for one in world.transactions["new"].values()} == {"committed"}


def test_what_a_former_sink_has_in_a_record_is_not_aborted() -> None:
    """The start is refused before, as without the sink nobody can commit it."""
    world = World(batches=2, plan={after_the_first_record(): "crash"})
    drive(world, 1)
    with pytest.raises(Incompatible, match="output of sink 'sink0', of kind 'world', that may not be visible yet"):
        with_sink(world, "new").play(0)
    assert {one.state for one in world.transactions["sink0"].values()} == {"prepared"}
    assert drive(world, 2) is None
    world.visible.pop("new")
    world.check()


def test_former_sinks_that_cannot_be_looked_at_stop_no_query(caplog: pytest.LogCaptureFixture) -> None:
    class Away(WorldSink):
        def abort_former(self, scope: Scope, names: Collection[str], newest: Sequence[Committable]) -> int:
            raise Unavailable("away")

    world = World(batches=1)
    with_sink(world, "sink0", Away).play(0)
    (told,) = [one.getMessage() for one in caplog.records]
    assert told.endswith(
        "under other names than 'sink0' may have open stays so until a time limit, and readers wait for it: away"
    )


@pytest.mark.parametrize(("kind", "says_so"), [("kafka", True), ("files", False)])
def test_the_last_kafka_sink_leaves_nobody_to_ask_and_that_is_told(
    kind: str, says_so: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(batches=1)
    drive(world, 1)
    record = the_record(world, 0)
    renamed = replace(record, sinks={"old": SinkRecord(kind, record.sinks["sink0"].committables)})
    sinks: list[Any] = [AnotherKind(world, "sink0")]
    end_former_sinks(sinks, lambda name: Scope("query", "run", 2, name), renamed)
    told = [one.getMessage() for one in caplog.records]
    assert bool(told) is says_so
    assert all("`holdfast transactions abort --query query --sink old`" in one for one in told)


def test_a_copy_of_the_checkpoint_under_another_name_writes_nothing_twice() -> None:
    """It looked for its own name only, found nothing, and wrote each batch since the copy once more."""
    world = World(batches=4)
    drive(world, 1)
    files, spark_state = dict(world.files), dict(world.spark_state)
    drive(world, 4)
    world.files, world.spark_state = files, spark_state
    with pytest.raises(Incompatible, match="Sink 'sink0' was written on without the checkpoint"):
        with_sink(world, "new").play(1)
    assert world.transactions["new"] == {} and world.traces["query", "new"] == []
    assert len(world.visible["sink0"]) == 4 * world.partitions


def test_who_renames_a_sink_and_has_its_newest_checkpoint_goes_on() -> None:
    world = World(batches=4)
    drive(world, 2)
    with_sink(world, "new").play(2)
    with_sink(world, "third", AnotherKind).play(3)
    assert [len(world.visible[name]) for name in ("sink0", "new", "third")] == [4, 2, 2]


class Reading(RecordLog):
    """Counts what it reads, and finds one record damaged."""

    def __init__(self, world: World, damaged: int = -1) -> None:
        super().__init__(WorldStore(world), "query")  # type: ignore[arg-type]
        self.asked: list[int] = []
        if damaged >= 0:
            world.files[record_name("query", damaged, 0)] = b"{}"
        self.load()

    def newest(self, batch_id: int) -> CommitRecord | None:
        self.asked.append(batch_id)
        return super().newest(batch_id)


def records_of(drivers: Sequence[tuple[str, int]]) -> World:
    """A checkpoint with the records of drivers, each with a sink of its own and so many batches."""
    world = World(batches=1)
    drive(world, 1)
    record = the_record(world, 0)
    batches = [(epoch, name) for epoch, (name, count) in enumerate(drivers, 1) for _ in range(count)]
    for batch_id, (epoch, name) in enumerate(batches):
        one = replace(record, batch_id=batch_id, epoch=epoch, sinks={name: record.sinks["sink0"]})
        world.files[record_name("query", batch_id, 0)] = one.to_text().encode()
    return world


def test_each_name_in_the_records_is_found_and_few_records_are_read() -> None:
    log = Reading(records_of([("a", 40), ("b", 1), ("c", 30), ("a", 29)]))
    assert sorted(recorded_sinks(log)) == ["a", "b", "c"]
    assert len(log.asked) < 25
    log = Reading(records_of([("a", 100)]))
    assert (list(recorded_sinks(log)), sorted(log.asked)) == (["a"], [0, 99])
    assert recorded_sinks(Reading(World())) == {}


@pytest.mark.parametrize("damaged", [0, 4, 5])
def test_an_old_record_that_is_damaged_or_gone_names_nothing(damaged: int) -> None:
    log = Reading(records_of([("a", 4), ("b", 4)]), damaged)
    assert sorted(recorded_sinks(log)) == ["a", "b"]
