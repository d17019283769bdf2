"""What a start is told of the claim of the driver before it, where the newest batch has nothing for a sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.commit_world import Run, World, WorldSink

from holdfast.commit.batch import TaskResult
from holdfast.commit.epochs import Driver
from holdfast.commit.sink import Committable, Scope
from holdfast.commit.traces import Trace


class SinkThatRecordsItsClaim(WorldSink):
    """As KafkaSink does, whose next start reads on from there."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.told: list[Any] = []

    def traces(self, scope: Scope, newest: Sequence[Committable]) -> list[Trace]:
        self.told.append((scope.recorded, len(newest)))
        return super().traces(scope, newest)

    def claim(self, scope: Scope, driver: Driver, newest: Sequence[Committable], check: Any) -> Mapping[str, Any]:
        self.told.append((scope.recorded, len(newest)))
        return {**super().claim(scope, driver, newest, check), "recorded": {"by": scope.run_id}}


def with_a_recorded_claim(world: World, name: str = "sink0") -> tuple[Run, SinkThatRecordsItsClaim]:
    world.traces.setdefault(("query", name), [])
    world.transactions.setdefault(name, {})
    run, sink = Run(world), SinkThatRecordsItsClaim(world, name)
    run.sinks = [sink]
    run.committer._sinks = {name: sink}  # type: ignore[dict-item]
    return run, sink


@pytest.mark.parametrize("end", ["a batch without rows", "a batch that was lost, without rows now"])
def test_the_next_start_knows_of_the_claim_of_a_driver_whose_newest_batch_has_no_rows(end: str) -> None:
    """Its place was in committables only: the start read all that queries had ever left there, twice."""
    world = World(batches=9)
    first, sink = with_a_recorded_claim(world)
    first.play(0)
    assert sink.told == [({}, 0), ({}, 0)]
    if end == "a batch without rows":
        first.committer.run_batch(1, lambda replay: [TaskResult(0, 0, 0, 0)])
        expected = {"by": "run1"}
    else:
        del world.spark_state[0], world.files["commits/0"]
        for transaction in world.transactions["sink0"].values():
            transaction.state = "aborted"
        again, _ = with_a_recorded_claim(world)
        again.committer.run_batch(0, lambda replay: [TaskResult(number, 0, number, 0) for number in range(2)])
        expected = {"by": "run2"}
    second, later = with_a_recorded_claim(world)
    second.committer.start()
    assert later.told == [(expected, 0), (expected, 0)]
    renamed, other = with_a_recorded_claim(world, "sink9")
    renamed.committer.start()
    assert other.told == [({}, 0), (expected, 0), ({}, 0)], "also of a name that it had"
