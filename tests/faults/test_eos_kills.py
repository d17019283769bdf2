"""Exactly once, after kill -9 at every step and with two drivers on one checkpoint. The short form; `make faults
KILLS=20` and `make bench BENCH=exactly_once` are the long ones.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from tests.faults import eos_spark_pattern
from tests.faults.eos_harness import FILES, KAFKA, STEPS, Campaign, run, show
from tests.faults.program import log_tail

from holdfast.fault_points import COMMIT_POINTS

KILLS = int(os.environ.get("HOLDFAST_KILLS", "1"))
#: A task that had prepared; a driver with a record; one in the middle of its commit. All of them alone.
SHORT = ("sink_after_prepare", "after_record", "mid_commit")
SPARK_PATTERN = "tests.faults.eos_spark_pattern:SparkPatternWorld"

pytestmark = pytest.mark.spark


@pytest.mark.timeout(1200)
def test_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    strike(tmp_path, SHORT, KAFKA, kills=1)


@pytest.mark.slow
@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("world", [KAFKA, FILES])
def test_kills_at_every_step_lose_nothing_and_repeat_nothing(tmp_path: Path, world: str) -> None:
    strike(tmp_path, STEPS, world, KILLS if world == KAFKA else min(KILLS, 5))


def strike(folder: Path, steps: tuple[str, ...], world: str, kills: int) -> None:
    campaign, found = run(folder / "stream", steps, kills, seed=kills, world=world)
    print(show(campaign, found))
    assert not found, show(campaign, found) + "\n" + "\n".join(found.other[:20])
    assert not [step for step, tally in campaign.tally.items() if tally.missed], show(campaign, found)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_harness_finds_what_sparks_own_pattern_repeats(tmp_path: Path) -> None:
    """A harness that finds nothing here would prove nothing elsewhere."""
    steps = ("sink_after_prepare", "after_commit")
    assert set(steps) <= set(eos_spark_pattern.STEPS)
    campaign, found = run(tmp_path / "stream", steps, kills=1, seed=3, world=SPARK_PATTERN)
    assert found.twice > 0, show(campaign, found)
    assert found.lost == 0, show(campaign, found)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("step", [step for step in COMMIT_POINTS if step != "during_recover"])
def test_a_driver_that_wakes_up_after_another_took_over_is_fenced(tmp_path: Path, step: str) -> None:
    """The old driver falls asleep at a step of its commit; the new one goes on; the old one wakes up."""
    with Campaign(tmp_path / "stream", seed=11) as campaign:
        campaign.faults.arm(step, 2, signal.SIGSTOP)
        with campaign.program() as old:
            assert old.wait_for(lambda: campaign.faults.has_struck)
            time.sleep(0.5)
            with campaign.program() as new:
                assert new.wait_for(lambda: new.batch >= 3 or not new.running), log_tail(campaign.folder)
                # What the old one recorded after the new one had looked is finished by the start after this.
                assert new.running or "Unavailable" in (new.failure or ""), new.failure
                old.signal(signal.SIGCONT)
                assert old.wait_for(lambda: old.failure is not None), log_tail(campaign.folder)
        # Fenced by Holdfast; or, past its commit, by Spark's own commit log.
        assert "Fenced" in str(old.failure) or "CONCURRENT" in str(old.failure).upper(), old.failure
        assert not campaign.differences(complete=False)
        assert not campaign.finish()
