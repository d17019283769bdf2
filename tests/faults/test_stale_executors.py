"""An executor keeps Spark's state of an attempt that did not count; the batch that runs there next goes on from the one
that did.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from tests.integration.test_exactly_once import check_chains
from tests.spark_sessions import run_module

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_state_goes_on_from_the_attempt_whose_output_is_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_PLAIN_SPARK", "1")
    done = run_module("tests.faults.stale_executor_stream", str(tmp_path), timeout_s=500)
    rows = pa.Table.from_pylist(json.loads(done.stdout.splitlines()[-1]))
    assert rows.num_rows == 9 * 12
    check_chains(rows)
