"""Exactly once, after kill -9 at every step and with two drivers on one checkpoint. The short form strikes three pairs,
one of each kind: a worker alone, everything at once, the driver's Python alone. `make nightly`, `make faults KILLS=20`
and `make bench BENCH=exactly_once` strike all.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from tests.faults import eos_spark_pattern
from tests.faults.eos_harness import FILES, KAFKA, STEPS, Campaign, impossible, prove, run, show
from tests.faults.file_reading import listed
from tests.faults.kill_plan import WHO, Coverage, Pair
from tests.faults.program import log_tail

import holdfast as hf
from holdfast.fault_points import COMMIT_POINTS

KILLS = int(os.environ.get("HOLDFAST_KILLS", "1"))
#: A task that had prepared; everything, with a record; a driver in the middle of its commit, whose JVM lives on.
SHORT = (Pair("sink_after_prepare", "worker"), Pair("after_record", "group"), Pair("mid_commit", "python"))
SPARK_PATTERN = "tests.faults.eos_spark_pattern:SparkPatternWorld"

pytestmark = pytest.mark.spark


@pytest.mark.timeout(1200)
def test_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    prove(tmp_path / "stream", Coverage.of(SHORT), KAFKA)


@pytest.mark.slow
@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("world", [KAFKA, FILES])
def test_kills_at_every_step_lose_nothing_and_repeat_nothing(tmp_path: Path, world: str) -> None:
    prove(tmp_path / "stream", Coverage(STEPS, WHO, impossible(world), KILLS), world)
    if world == FILES:  # what a stranger lists is what the manifests say
        folder = tmp_path / "stream" / "out"
        manifests = sorted(str(folder / file.name) for file in hf.FileSink.files(str(folder)))
        assert manifests == listed(folder)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_harness_finds_what_sparks_own_pattern_repeats(tmp_path: Path) -> None:
    """A harness that finds nothing here would prove nothing elsewhere."""
    pairs = (Pair("sink_after_prepare", "worker"), Pair("after_commit", "python"))
    assert {pair.step for pair in pairs} <= set(eos_spark_pattern.STEPS)
    coverage = Coverage.of(pairs)
    _, found = run(tmp_path / "stream", coverage, seed=3, world=SPARK_PATTERN)
    assert found.twice > 0, show(coverage, found)
    assert found.lost == 0, show(coverage, found)


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
