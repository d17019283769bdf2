"""A batch of which a part was lost runs again, and the source does not give what it gave: compaction or retention took
rows, or rows are in other tasks. What is visible must not come twice; what is only gone must not stop a query.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.commit_world import Run, World, drive, the_record
from tests.unit.test_lost_output import lost_in_part, open_in

from holdfast.commit.batch import Replay, TaskResult
from holdfast.commit.repeats import Repeating, check_repeats, keeps_its_tasks
from holdfast.errors import Incompatible

KAFKA = '{"format": 1, "source": "5f", "offsets": {"clicks": {"0": 17}}, "split": {"minPartitions": 2}}'
SPARKS = '{"clicks":{"0":17}}'


def offsets(*sources: str, version: str = "v1") -> bytes:
    return "\n".join([version, json.dumps({"batchTimestampMs": 1}), *sources]).encode()


def lost_after(log: bytes, *, has_slots: bool = False) -> World:
    """A world in which the second task of batch 0 is lost, of tasks with one row each."""
    world = World(batches=2, plan={lost_in_part(): "time out"}, has_slots=has_slots)
    world.files["offsets/0"] = log
    drive(world, 2)
    return world


def run_with(world: World, done_rows: int, lost_rows: int = 1) -> None:
    run = Run(world)

    def job(replay: Replay | None) -> list[TaskResult]:
        return [TaskResult(0, 0, 0, done_rows), replace(run._task(0, 1, replay, {}), rows=lost_rows)]

    run.committer.run_batch(0, job)


@pytest.mark.parametrize("log", [offsets(KAFKA), offsets(KAFKA, "-"), offsets(f"0:{KAFKA}", version="v2")])
def test_a_row_that_compaction_took_does_not_stop_the_query_for_ever(
    log: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    world = lost_after(log)
    with caplog.at_level(logging.WARNING, "holdfast.commit"):
        run_with(world, done_rows=0)
    assert (
        "batch 0: partition 0 has 0 rows now, recorded are 1: compaction or retention took rows of the input since "
        "then. What is visible stays"
    ) in caplog.messages
    assert the_record(world, 0).revision == 1
    assert sorted(row[:2] for row in world.visible["sink0"]) == [(0, 0), (0, 1)]
    assert open_in(world) == []


@pytest.mark.parametrize("log", [offsets(SPARKS), offsets(KAFKA, SPARKS), b"offsets of 0", offsets()])
def test_a_source_that_may_have_split_its_rows_anew_is_refused_and_a_way_on_told(log: bytes) -> None:
    """By counts, a loss beside a move looks like a loss."""
    world = lost_after(log)
    with pytest.raises(Incompatible, match=r"partition 0 has 0 rows now, recorded are 1: .*`holdfast fork world`"):
        run_with(world, done_rows=0)
    assert open_in(world) == []
    run_with(world, done_rows=1)
    assert the_record(world, 0).revision == 1


def test_behind_a_shuffle_a_row_that_is_gone_may_have_moved_others() -> None:
    world = lost_after(offsets(KAFKA))
    world.rows_stay = False
    with pytest.raises(Incompatible, match="partition 0 has 0 rows now, recorded are 1: .*operators and shuffles"):
        run_with(world, done_rows=0)


def test_rows_that_moved_to_a_task_that_is_written_again_are_refused_also_where_none_stayed() -> None:
    """The exemption of tasks without rows is for slots that took over their version: it let these be written twice."""
    world = lost_after(offsets(KAFKA))
    said = "partition 0 has 0 rows now, recorded are 1, partition 1 has 2 rows now, recorded are 1: the source or the"
    with pytest.raises(Incompatible, match=said):
        run_with(world, done_rows=0, lost_rows=2)
    assert open_in(world) == []


def test_slots_that_took_over_their_version_give_no_rows_and_the_others_as_many_as_they_like() -> None:
    world = lost_after(offsets(SPARKS), has_slots=True)
    run_with(world, done_rows=0, lost_rows=2)
    assert the_record(world, 0).revision == 1


def repeated(was: Sequence[int], now: Sequence[int], lost: dict[str, set[int]], **known: bool) -> None:
    """Of a query whose source keeps its tasks, unless it is said otherwise."""
    world = World(batches=1, partitions=len(was))
    drive(world, 1)
    record = the_record(world, 0)
    record = replace(record, tasks=tuple(replace(task, rows=rows) for task, rows in zip(record.tasks, was)))
    query = Repeating("world", known.get("slots_take_over", False), lambda: known.get("keeps_tasks", True))
    results = [TaskResult(partition, 0, 0, rows) for partition, rows in enumerate(now)]
    check_repeats(Replay(record, {name: frozenset(of) for name, of in lost.items()}), results, query)


@pytest.mark.parametrize(
    ("now", "refused"),
    [
        ((3, 3, 3), False),
        ((2, 3, 3), False),  # compacted
        ((2, 3, 1), False),
        ((0, 1, 0), False),  # retention
        ((3, 3, 1), False),
        ((4, 3, 2), True),  # moved away from what was lost: it would be missing
        ((4, 2, 3), True),  # between tasks that are done
        ((2, 3, 4), True),  # moved to what is written again: it would be there twice
        ((0, 3, 6), True),
        ((2, 2, 4), True),
    ],
)
def test_counts_of_a_query_without_operators(now: tuple[int, ...], refused: bool) -> None:
    if not refused:
        repeated((3, 3, 3), now, {"sink": {2}})
        return
    with pytest.raises(Incompatible, match="does not repeat itself"):
        repeated((3, 3, 3), now, {"sink": {2}})


def test_what_one_sink_has_and_another_lost_counts_for_the_one() -> None:
    """A row that moves between two tasks of which each sink lost another one is there twice in one, and missing in the
    other: nobody looked at the counts.
    """
    lost = {"one": {0}, "other": {1}}
    repeated((3, 3), (3, 3), lost)
    repeated((3, 3), (2, 3), lost)
    with pytest.raises(Incompatible, match="partition 1 has 4 rows now, recorded are 3"):
        repeated((3, 3), (2, 4), lost)
    repeated((3, 3), (2, 4), lost, slots_take_over=True)  # a processor need not repeat itself


def test_operators_before_a_shuffle_may_move_rows_whatever_the_source_says() -> None:
    repeated((3, 3), (0, 5), {"sink": {1}}, slots_take_over=True)
    with pytest.raises(Incompatible, match="partition 0 has 2 rows now.*queries without operators"):
        repeated((3, 3), (2, 3), {"sink": {1}}, slots_take_over=True)
    with pytest.raises(Incompatible, match="partition 0 has 4 rows now"):
        repeated((3, 3), (4, 3), {"sink": {1}}, slots_take_over=True)


@pytest.mark.parametrize(
    ("offset", "keeps"),
    [
        (None, True),
        (KAFKA, True),
        ('{"format": 1, "offsets": {"clicks": {"0": 17}}}', False),  # an earlier Holdfast planned it
        ('{"format": {"0": 1}, "split": {"0": 1}}', False),  # topics of these names, in Spark's source
        (SPARKS, False),
        ('{"logOffset":3}', False),
        ("[1]", False),
        ("3", False),
        ("files", False),
    ],
)
def test_which_sources_keep_their_tasks(offset: str | None, keeps: bool) -> None:
    assert keeps_its_tasks(offset) is keeps
