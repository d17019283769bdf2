"""What production meets and no other input has: fresh containers that run one batch each, nights in which nothing
comes, processors that catch their errors, brokers that are away, roll, answer before rows are visible, or are old.

`make nightly` runs them, ARGS="-k three_brokers" one of them; each says its seed, which SEED=… repeats.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.faults.eos_cluster_world import RollingWorld
from tests.faults.eos_harness import FILES, KAFKA, LATE, ROLLING, SEED, STEPS, Campaign, impossible, prove
from tests.faults.kill_plan import RANDOM, Coverage
from tests.faults.program import log_tail

CLUSTERS = "tests.faults.eos_cluster_world"
NAMED = tuple(step for step in STEPS if step != RANDOM)
KILLS = int(os.environ.get("HOLDFAST_KILLS", "1"))
RELEASES = ("3.0.2", "3.3.2", "3.6.2", "3.9.1", "4.0.0", "4.0.1")
RUNS = 9
IDLE_S = 15.0  # three times as long as the broker bears an idle connection

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(36_000)]


@pytest.mark.parametrize("world", [KAFKA, FILES])
def test_one_batch_a_run_each_in_a_fresh_container(tmp_path: Path, world: str) -> None:
    """As a scheduler starts it: what is new, one batch, the end; and every third container is killed on the way."""
    steps = ("sink_after_prepare", "after_record", "mid_commit")
    with Campaign(tmp_path / "stream", SEED, world) as campaign:
        campaign.files_ahead = 0
        for run in range(RUNS):
            campaign.feed(run + 1)
            local = f"spark.holdfast.local.dir={tmp_path}/container-{run}"
            with campaign.program("--available-now", "--conf", local) as program:
                if run % 3 == 1:
                    campaign.faults.arm(steps[run // 3], 1, signal.SIGSTOP)
                    assert program.wait_for(lambda: campaign.faults.has_struck), f"run {run}: {program.failure}"
                else:
                    assert program.wait_for(lambda: program.done), f"run {run}: {log_tail(campaign.folder)}"
            assert not campaign.differences(complete=run % 3 != 1), f"run {run}"
        assert not campaign.finish()


def test_a_stream_that_idles_for_longer_than_its_connections_live(tmp_path: Path) -> None:
    with Campaign(tmp_path / "stream", SEED, KAFKA) as campaign, campaign.program() as program:
        for idle in range(3):
            campaign.files_ahead = 6
            assert program.wait_for_batches(3), f"after {idle} nights: {program.failure}"
            campaign.files_ahead = 0
            program.wait_for(lambda: False, IDLE_S)
            assert program.running, program.failure
        assert not campaign.differences(complete=True)
        campaign.files_ahead = 6
        assert not campaign.finish()


@pytest.mark.parametrize("world", [KAFKA, FILES])
def test_nothing_of_an_error_that_a_processor_caught_counts(tmp_path: Path, world: str) -> None:
    coverage = Coverage(("sink_mid",), ("worker",), impossible(world))
    campaign = prove(tmp_path / "stream", coverage, world, SEED, ("--catches",))
    caught = [path.read_text() for path in (campaign.folder / "caught").iterdir()]
    assert any("the sum does not fit into int64" in text for text in caught), caught


def test_three_brokers_that_are_killed_one_after_the_other(tmp_path: Path) -> None:
    coverage = Coverage(STEPS, ("worker", "python", "driver", "group"), impossible(ROLLING)).by_turns(SEED, KILLS)
    world = prove(tmp_path / "stream", coverage, ROLLING).world
    assert isinstance(world, RollingWorld)
    assert world.killed >= len(coverage.cells) // 2, f"only {world.killed} brokers were killed"


@pytest.mark.parametrize("how", ["Dead", "Asleep"])
def test_a_broker_that_is_away_for_a_minute_at_each_step(tmp_path: Path, how: str) -> None:
    world = f"{CLUSTERS}:Broker{how}World"
    prove(tmp_path / "stream", Coverage(NAMED, ("broker",), impossible(world)), world)


def test_rows_that_become_visible_long_after_the_broker_has_answered(tmp_path: Path) -> None:
    """Whoever says done at the answer's word is found here."""
    prove(tmp_path / "stream", Coverage(("after_record", "mid_commit"), ("python",), impossible(LATE)), LATE)


@pytest.mark.parametrize("release", RELEASES)
def test_brokers_of_other_releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    """The newest is everywhere else. Each strikes every step; together they strike all pairs of these four."""
    monkeypatch.setenv("HOLDFAST_KAFKA_VERSION", release)
    coverage = Coverage(STEPS, ("worker", "python", "group", "broker"), impossible(KAFKA))
    prove(tmp_path / "stream", coverage.by_turns(RELEASES.index(release), KILLS), KAFKA)
