"""kill -9 while timers fire, of a worker and of everything: each alert once, with the state that it should have."""

from __future__ import annotations

import itertools
import json
import os
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.faults.file_reading import listed
from tests.faults.program import SECONDS, FaultFile, Program, log_tail
from tests.silence_oracle import START, Alert, silent_users

pytestmark = pytest.mark.spark

KILLS = int(os.environ.get("HOLDFAST_KILLS", "1"))  # of each pair
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
STEPS = ("mid_timers", "before_delta", "after_delta", "before_handle", "after_handle", "before_record", "after_record")
SHORT = [("mid_timers", "worker"), ("after_record", "group")]
FILES, USERS, ROWS = 8, 400, 300

EVENTS = pa.schema([("user", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
Events = list[list[tuple[str, datetime]]]
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@pytest.mark.timeout(1800)
def test_kills_while_timers_fire_leave_no_difference(tmp_path: Path) -> None:
    prove(tmp_path, SHORT)


@pytest.mark.slow
@pytest.mark.timeout(36_000)
def test_kills_at_every_step_while_timers_fire_leave_no_difference(tmp_path: Path) -> None:
    of_workers = [(step, "worker") for step in STEPS if not step.endswith("_record")]
    every = [*of_workers, *((step, "group") for step in STEPS)]
    prove(tmp_path, [pair for pair in every for _ in range(KILLS)])


def prove(folder: Path, pairs: list[tuple[str, str]]) -> None:
    """One stream a pair, killed in a batch by turns; then to its end."""
    for number, (step, who) in enumerate(pairs):
        one = folder / f"{number:03d}-{step}-{who}"
        batches = write_source(one / "source", SEED * 1_000 + number)
        kill_once(one, step, who, random.Random(SEED * 1_000 + number).randrange(2, 8))
        program = Program("timer_stream.py", one)
        try:
            assert program.wait_for(lambda program=program: program.done, 10 * SECONDS), log_tail(one)
        finally:
            program.end()
        expected = silent_users(as_they_came(one, batches))
        assert found(one / "output") == sorted(expected), f"{step}, {who}, seed {SEED}"


def kill_once(folder: Path, step: str, who: str, count: int) -> None:
    """Starts the stream, has a process die at its ``count``-th time at a step, and everything with it for "group"."""
    fault = FaultFile(folder / "fault")
    program = Program("timer_stream.py", folder, environment=fault.environment)
    try:
        assert program.wait_for_batches(1), log_tail(folder)
        fault.arm(step, 1 + count % 3)  # of one process: there are few batches
        assert program.wait_for(lambda: fault.has_struck), f"{step} was not reached: {log_tail(folder)}"
        if who == "worker":  # its task is tried again
            program.wait_for_batches(1)
    finally:
        program.end()


def write_source(folder: Path, seed: int) -> Events:
    """Batches of some users' events, each batch later than the one before."""
    folder.mkdir(parents=True)
    draw = random.Random(seed)
    made: Events = []
    for number in range(FILES):
        began = START + timedelta(minutes=50 * number)
        rows = [(f"user{draw.randrange(USERS)}", began + timedelta(seconds=draw.randrange(3000))) for _ in range(ROWS)]
        made.append(rows)
        path = folder / f"{number:03d}.parquet"
        pq.write_table(pa.Table.from_arrays([*map(pa.array, zip(*rows))], schema=EVENTS), path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return made


def as_they_came(folder: Path, made: Events) -> Events:
    """The events of each batch. A kill between Spark's log of files and its log of offsets leaves two in the next."""
    offsets = sorted((folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    assert [path.name for path in offsets] == [str(number) for number in range(len(offsets))]
    ends = [json.loads(path.read_text().splitlines()[-1])["logOffset"] + 1 for path in offsets]
    assert ends[-1] == len(made)
    return [[*itertools.chain(*made[start:end])] for start, end in itertools.pairwise([0, *ends])]


def found(output: Path) -> list[Alert]:
    """All visible alerts."""
    files = listed(output)
    if not files:
        return []
    with duckdb.connect() as db:
        columns = "user, batch, events, epoch_us(silent_since), epoch_us(time)"
        rows = db.execute(f"SELECT {columns} FROM read_parquet(?)", [files]).fetchall()
    return sorted((*row, _at(since), _at(time)) for *row, since, time in rows)


def _at(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)
