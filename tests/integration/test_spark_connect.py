"""Spark Connect: keyed operators run there and go on after a restart; the calls that cannot are told so."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark_sessions import run_module

pytestmark = pytest.mark.spark


def test_a_keyed_operator_runs_on_spark_connect_and_what_needs_the_driver_is_refused(tmp_path: Path) -> None:
    told = run_module("tests.integration.connect_client", str(tmp_path), timeout_s=500).stdout.splitlines()
    assert told[0] == "rows True wrong 0"
    calls = ["start", "await_termination", "metrics", "write_exactly_once"]
    assert [line.split(":")[0] for line in told[1:]] == [f"refused {call}" for call in calls]
    assert all("found one of Spark Connect" in line and "docs/guide/environments.md" in line for line in told[1:])
