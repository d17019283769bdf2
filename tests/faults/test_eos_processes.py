"""Exactly once, whatever becomes of processes: executors that die, a machine that hangs and wakes up when another has
taken over, tasks that Spark runs twice at a time. The long forms; kills at each step are in test_eos_kills.py.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import psutil
import pytest
from tests.faults.eos_harness import FILES, KAFKA, Campaign
from tests.faults.eos_kafka_world import KafkaWorld
from tests.faults.program import log_tail
from tests.faults.standalone_cluster import StandaloneCluster
from tests.faults.strikes import CLUSTER

from holdfast.fault_points import SINK_POINTS, VARIABLE

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("repeatable", [True, False])
@pytest.mark.parametrize("world", [FILES, KAFKA])
def test_an_executor_that_dies(tmp_path: Path, world: str, repeatable: bool) -> None:
    """With a task that had prepared, and with what its earlier stages had shuffled. Its slots move to the other one.

    Tasks of earlier stages run again. If they give other rows than before, and a task of the last stage has taken the
    former ones, Spark ends the query, and the next start goes on.
    """
    with Campaign(tmp_path / "stream", seed=13, world=world) as campaign:
        fault = f"spark.executorEnv.{VARIABLE}={campaign.faults.environment[VARIABLE]}"
        with campaign.program(*CLUSTER, "--conf", fault, *(["--repeatable"] if repeatable else [])) as program:
            for kills in range(2):
                assert program.wait_for_batches(2), f"after {kills} executors: {program.failure}"
                assert program.wait_for(lambda: len(program.of("executor")) == 2)  # Spark has started another
                campaign.faults.arm("sink_after_prepare", 1, signal.SIGSTOP)
                assert program.wait_for(lambda: campaign.faults.has_struck)
                asleep = [p for p in program.workers() if p.status() == psutil.STATUS_STOPPED]
                assert len(asleep) == 1
                owner = next(p for p in program.of("executor") if asleep[0] in p.children(recursive=True))
                owner.kill()
                if not program.wait_for_batches(2):
                    assert not repeatable and "indeterminate output" in str(program.failure), program.failure
                    break
        assert not campaign.finish()


@pytest.mark.parametrize("step", ["after_delta", "sink_before_prepare", "sink_after_prepare"])
def test_a_machine_that_hangs_in_a_task_and_wakes_up_after_another_committed(tmp_path: Path, step: str) -> None:
    """All its processes sleep; the new driver aborts what they had open and runs the batch; then their tasks go on."""
    with Campaign(tmp_path / "stream", seed=12, world=KAFKA) as campaign, campaign.program() as old:
        assert old.wait_for_batches(2), old.failure
        campaign.faults.arm(step, 1, signal.SIGSTOP)
        assert old.wait_for(lambda: campaign.faults.has_struck)
        old.signal(signal.SIGSTOP)
        with campaign.program() as new:
            assert new.wait_for_batches(2), new.failure
            old.signal(signal.SIGCONT)
            assert old.wait_for(lambda: not old.running), log_tail(campaign.folder)
            assert "Fenced" in str(old.failure) or "CONCURRENT" in str(old.failure).upper(), old.failure
            assert new.wait_for_batches(2), new.failure
        assert not campaign.finish()


def test_a_sink_task_that_wakes_up_after_its_speculative_copy_committed(tmp_path: Path) -> None:
    """Spark starts a copy of a task that takes long on another host, and takes what comes first.

    Not at sink_open: RFC 4's limits say what a task does that wakes up before its transaction was opened.
    """
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.minTaskRuntime": "0ms",
        "spark.locality.wait": "0",
        # The task that lost is told to end; the worker that runs it is asleep, and is woken before it is killed.
        "spark.python.task.killTimeout": "20s",
    }
    with (
        Campaign(tmp_path / "stream", seed=14, world=KAFKA) as campaign,
        StandaloneCluster(tmp_path / "hosts") as hosts,
    ):
        conf = {**speculation, f"spark.executorEnv.{VARIABLE}": campaign.faults.environment[VARIABLE]}
        arguments = [part for setting in conf.items() for part in ("--conf", "=".join(setting))]
        with campaign.program("--master", hosts.master, *arguments) as program:
            for step in SINK_POINTS[1:]:
                assert program.wait_for_batches(2), f"before {step}: {program.failure}"
                campaign.faults.arm(step, 1, signal.SIGSTOP)
                assert program.wait_for(lambda: campaign.faults.has_struck)
                (asleep,) = hosts.stopped_workers()
                assert program.wait_for_batches(2), program.failure
                assert asleep.status() == psutil.STATUS_STOPPED
                asleep.send_signal(signal.SIGCONT)
                time.sleep(0.5)
        assert not campaign.finish()


def test_a_broker_that_dies_under_spark_and_comes_back(tmp_path: Path) -> None:
    """While whoever reached the step holds still, and everybody else goes on."""
    with Campaign(tmp_path / "stream", seed=15, world=KAFKA) as campaign:
        world = campaign.world
        assert isinstance(world, KafkaWorld)
        with campaign.program() as program:
            for step in ("sink_mid", "sink_after_prepare", "after_record", "mid_commit"):
                assert program.wait_for_batches(2), f"before {step}: {program.failure}"
                campaign.faults.arm(step, 1, signal.SIGSTOP)
                assert program.wait_for(lambda: campaign.faults.has_struck)
                world.broker.kill()
                program.signal(signal.SIGCONT)
                time.sleep(0.5)
                world.broker.start()
            assert program.wait_for_batches(2), program.failure
        assert not campaign.finish()
