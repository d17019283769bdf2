"""What does not answer is not asked again for a query that was stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.commit_world import Run, World, drive

from holdfast.commit.committer import CommitOptions, Committer
from holdfast.commit.epochs import Driver
from holdfast.commit.sink import Committable, Outcome, Scope
from holdfast.errors import Unavailable


@pytest.mark.parametrize("after_ms", [0, 12_000, 13_400])
def test_a_sink_that_does_not_answer_is_not_asked_again_once_the_query_is_stopped(after_ms: int) -> None:
    """Spark waits for the thread of a query that is stopped: Ctrl-C took as long as the limit, two minutes, and each
    call that did not answer had as much.
    """
    world = World(batches=2)
    run = Run(world)
    clock = run.committer._retries.clock
    stops_ms = clock.elapsed_ms() + after_ms
    retries = replace(run.committer._retries, max_ms=120_000, backoff_ms=10_000)
    options = CommitOptions(retries, 3, is_running=lambda: clock.elapsed_ms() < stops_ms)
    driver = Driver(run.run_id, "host", 1, 0)
    run.committer = Committer(run.committer._store, "query", driver, run.sinks, options)  # type: ignore[arg-type]
    asked: list[float] = []

    def commit(scope: Scope, committables: Sequence[Committable]) -> list[Outcome]:
        asked.append(clock.elapsed_ms())
        raise Unavailable("no answer")

    run.sinks[0].commit = commit  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match=r"committing batch 0 .* not tried again: the query was stopped.*no answer"):
        run.play(0)
    assert len(asked) == (2 if after_ms else 1)
    assert stops_ms <= clock.elapsed_ms() < stops_ms + 500
    assert drive(world, 2) is None
    world.check()
