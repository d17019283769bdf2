"""The README's program as it stands: run, killed with kill -9, run again. The totals go on, and every one is exact.
The enrichment of orders likewise, in each of its outputs; alerts, sessions, rows without their repeats,
orders at their rate and payments against rules that change, compared with DuckDB.
And the demo through Kafka, of which a month is enough.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import psutil
import pytest
from tests.spark_sessions import worker_path

import holdfast as hf

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROGRAM = EXAMPLES / "first_program.py"
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


_NIGHTLY = ("silent_users", "sessions", "once", "rates", "fraud")


@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("program", "size"),
    [
        ("silent_users", ("--files", "8")),
        *(pytest.param(name, (), marks=pytest.mark.slow) for name in _NIGHTLY),
    ],
)
def test_what_comes_out_through_a_kill_is_duckdbs(tmp_path: Path, program: str, size: tuple[str, ...]) -> None:
    command = [sys.executable, str(EXAMPLES / f"{program}.py"), str(tmp_path / program), *size]
    environment = {**os.environ, "PYTHONPATH": worker_path(), "PYSPARK_PYTHON": sys.executable}
    told = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    assert told.returncode == 0, told.stdout + told.stderr[-3000:]
    assert "killed after batch" in told.stdout
    assert re.search(r"^\d{3,} [a-z]+, 0 differences$", told.stdout, re.MULTILINE), told.stdout


def _kill_after(folder: Path, batch: int) -> None:
    """Runs the program of two inputs until Spark has committed a batch, and kills all of it."""
    program = folder / "enrichment.py"
    text = (EXAMPLES / "enrichment.py").read_text(encoding="utf-8")
    program.write_text(text.replace("/tmp/enrichment", str(folder)), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": worker_path(), "PYSPARK_PYTHON": sys.executable}
    log = folder / f"until-{batch}.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(program)], stdout=output, stderr=output, env=environment, start_new_session=True
        )
        try:
            until = time.monotonic() + 500
            while not (folder / "spark" / "commits" / str(batch)).exists():
                assert process.poll() is None, log.read_text(encoding="utf-8")[-3000:]
                assert time.monotonic() < until, log.read_text(encoding="utf-8")[-3000:]
                time.sleep(0.1)
            time.sleep(0.7)  # into the next batch
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _order_of(number: int) -> tuple[str, tuple[object, ...]]:
    """The output that an order belongs to, and its row there, from how the example makes them."""
    batch, customer, amount = number // 1000, number % 120, number % 7
    at = datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(minutes=batch, hours=-1 if number % 50 == 0 else 0)
    if batch > 0 and number % 50 == 0:
        return "late", (number, customer, amount, at)
    newest = (10 * (batch + 1) - 1 - customer) // 100  # customers' rows of this batch come before its orders
    if customer >= 100 or newest < 0:
        return "unknown", (number, customer, amount, at)
    return "orders", (number, customer, amount, f"name {newest}")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_the_enrichment_of_orders_survives_kills_in_all_its_outputs(tmp_path: Path) -> None:
    for batch in (2, 6, 11):
        _kill_after(tmp_path, batch)
    found = {
        name: sorted(tuple(row.values()) for row in hf.FileSink.read(str(tmp_path / name)).to_pylist())
        for name in ("orders", "late", "unknown")
    }
    numbers = sorted(row[0] for rows in found.values() for row in rows)
    assert len(numbers) >= 12_000
    assert numbers == list(range(len(numbers))), "an order is lost, or there twice"
    wanted: dict[str, list[tuple[object, ...]]] = {"orders": [], "late": [], "unknown": []}
    for number in numbers:
        name, row = _order_of(number)
        wanted[name].append(row)
    assert all(wanted.values())
    assert found == wanted


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_the_demo_through_kafka_loses_nothing_and_ends_all_that_it_began(tmp_path: Path) -> None:
    output, temporary = tmp_path / "output", tmp_path / "temporary"  # the broker's data are in the latter
    temporary.mkdir()
    demo = [sys.executable, str(EXAMPLES / "flights" / "kafka_demo.py"), "--output", str(output), "--days", "30"]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    told = subprocess.run(demo, capture_output=True, text=True, timeout=900, env=environment)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "lost 0, twice 0, of no flight 0" in told.stdout
    report = (output / "report.md").read_text(encoding="utf-8")
    assert "No figure differs." in report
    assert "Transactions that were open at the end: 0." in report
    assert not _processes_with(str(tmp_path))


def _processes_with(text: str) -> list[str]:
    """Command lines of processes that name this text."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            line = " ".join(process.cmdline())
            if text in line:
                found.append(line)
    return found
