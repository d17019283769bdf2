"""What stands on the terminal of somebody whose program fails or is interrupted: real programs, that catch nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark_sessions import ROOT, worker_path

pytestmark = pytest.mark.spark

#: Six are Spark's before it begins, some ten are Python's traceback. It was five hundred and more.
_LINES_MAX = 40


def _terminal_of(way: str, folder: Path) -> tuple[int, list[str]]:
    """The exit code of the program, and the lines that it left on the terminal."""
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.terminal_query", way, str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": worker_path(), "PYSPARK_PYTHON": sys.executable},
        cwd=ROOT,
        start_new_session=True,  # a process group of its own, which Ctrl-C reaches
    )
    try:
        _, told = program.communicate(timeout=500)
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
    return program.returncode, told.splitlines()


def _few(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert len(lines) <= _LINES_MAX, text
    assert not [line for line in lines if line.startswith(("\tat ", "Caused by")) or "hit a bug" in line], text


def test_a_mistake_in_a_processor_is_told_once_and_spark_keeps_to_a_line_an_event(tmp_path: Path) -> None:
    code, lines = _terminal_of("mistake", tmp_path)
    assert code == 1
    _few(lines)
    assert [line for line in lines if "NameError" in line] == ["NameError: name 'amounts' is not defined"]
    # Spark's JVM and Python's workers write there too, now and then between these lines, as many as they will.
    told = lines.index("NameError: name 'amounts' is not defined")
    assert any("self.total.add(batch, amounts)" in line for line in lines[:told]), "\n".join(lines)
    assert any(line.startswith("while Total ran operator 't', slot ") for line in lines[told + 1 :]), "\n".join(lines)
    log = (tmp_path / "all of it.log").read_text(encoding="utf-8")
    assert "\n\tat org.apache.spark." in log
    assert "NameError" in log


@pytest.mark.parametrize("way", ["exactly-once", pytest.param("ctrl-c", marks=pytest.mark.slow)])
def test_ctrl_c_as_a_terminal_sends_it_to_all_processes_ends_quietly(tmp_path: Path, way: str) -> None:
    code, lines = _terminal_of(way, tmp_path)
    assert code == -signal.SIGINT
    _few(lines)
    assert "KeyboardInterrupt" in lines
    assert not [line for line in lines if "terminated with error" in line], "the query was stopped, it did not fail"


@pytest.mark.parametrize("way", ["worker", pytest.param("jvm", marks=pytest.mark.slow)])
def test_a_process_that_is_killed_is_unavailable_and_no_bug_of_sparks(tmp_path: Path, way: str) -> None:
    code, lines = _terminal_of(way, tmp_path)
    assert code == 1
    _few(lines)
    told = [line for line in lines if line.startswith("holdfast.errors.Unavailable: ")]
    assert len(told) == 1
    assert {"worker": "a Python worker of Spark's ended", "jvm": "Spark's driver is gone"}[way] in told[0]
    assert "Start the program again" in told[0]
