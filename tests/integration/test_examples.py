"""The README's program as it stands: run, killed with kill -9, run again. The totals go on, and every one is exact."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.spark_sessions import worker_path

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "first_program.py"
_ROW = re.compile(r"^\|(user-\d)\|\s*(\d+)\|\s*(\d+)\|$", re.MULTILINE)
_BATCH = re.compile(r"^Batch: (\d+)$", re.MULTILINE)


def _run_until(folder: Path, batch: int) -> str:
    """Runs the program until it has printed a batch, kills all of it, and gives what it printed."""
    program = folder / "program.py"
    program.write_text(PROGRAM.read_text(encoding="utf-8").replace("/tmp/first-program", str(folder)), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": worker_path(), "PYSPARK_PYTHON": sys.executable}
    log = folder / f"until-{batch}.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(program)], stdout=output, stderr=output, env=environment, start_new_session=True
        )
        try:
            until = time.monotonic() + 500
            while not any(int(found) >= batch for found in _BATCH.findall(log.read_text(encoding="utf-8"))):
                assert process.poll() is None, log.read_text(encoding="utf-8")[-3000:]
                assert time.monotonic() < until, log.read_text(encoding="utf-8")[-3000:]
                time.sleep(0.1)
            time.sleep(0.5)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return log.read_text(encoding="utf-8")


def _exact(user: str, amount: int) -> int:
    """The sum of the amounts up to this one that belong to the user: rows count up, the last digit is the user."""
    first = int(user.removeprefix("user-"))
    return sum(range(first, amount + 1, 10))


@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_the_first_program_survives_a_kill(tmp_path: Path) -> None:
    first = _run_until(tmp_path, 2)
    last = max(int(batch) for batch in _BATCH.findall(first))
    second = _run_until(tmp_path, last + 2)
    assert min(int(batch) for batch in _BATCH.findall(second)) in (last, last + 1), "it began anew"
    rows = _ROW.findall(first + second)
    assert rows
    wrong = [row for row in rows if _exact(row[0], int(row[1])) != int(row[2])]
    assert not wrong
