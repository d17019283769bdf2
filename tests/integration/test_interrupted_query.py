"""What a user sees on the terminal who presses Ctrl-C, or whose JVM dies, while the program waits for a query."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark_sessions import run_module

pytestmark = pytest.mark.spark


def test_ctrl_c_and_a_driver_that_dies_are_told_in_a_few_lines(tmp_path: Path) -> None:
    """In a process of its own, since both end it; what counts is what a user sees on the terminal."""
    told = run_module("tests.integration.interrupted_query", str(tmp_path), timeout_s=300)
    assert told.stdout.splitlines() == [*2 * ["interrupted", "active False", "failed None"], *7 * ["Unavailable True"]]
    lines = told.stderr.splitlines()
    assert not [line for line in lines if "Traceback" in line or "ERROR" in line or "hit a bug" in line], told.stderr
