"""Where harnesses strike: at the wanted step, the wanted time, one process, and nobody else."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.faults.program import FaultFile

from holdfast import fault_points


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FaultFile:
    armed = FaultFile(tmp_path / "fault")
    monkeypatch.setenv(fault_points.VARIABLE, armed.environment[fault_points.VARIABLE])
    return armed


@pytest.fixture
def struck(monkeypatch: pytest.MonkeyPatch) -> list[signal.Signals]:
    found: list[signal.Signals] = []
    monkeypatch.setattr(os, "kill", lambda pid, kind: found.append(kind))
    return found


def test_nobody_is_struck_unless_something_is_wanted(faults: FaultFile, struck: list[signal.Signals]) -> None:
    fault_points.reach("mid_batch")
    faults.arm("after_delta")
    fault_points.reach("mid_batch")
    faults.disarm()
    fault_points.reach("after_delta")
    assert struck == []
    assert not faults.has_struck


def test_a_strike_comes_when_the_step_was_reached_so_often_since_it_was_wanted(
    faults: FaultFile, struck: list[signal.Signals]
) -> None:
    for kind in (signal.SIGKILL, signal.SIGSTOP):
        faults.arm("mid_batch", 2, kind)
        fault_points.reach("mid_batch")
        assert not faults.has_struck
        fault_points.reach("mid_batch")
        assert faults.has_struck
        assert struck.pop() == kind
        fault_points.reach("mid_batch")
        assert struck == []


def test_only_the_first_process_is_struck(faults: FaultFile, struck: list[signal.Signals], tmp_path: Path) -> None:
    faults.arm("mid_batch", 2)
    fault_points.reach("mid_batch")
    (tmp_path / "fault").rename(tmp_path / "fault.struck")  # another one was there first
    fault_points.reach("mid_batch")
    assert struck == []
