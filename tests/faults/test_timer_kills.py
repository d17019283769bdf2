"""kill -9 while timers fire, of a worker and of everything: each alert once, with the state that it should have."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.faults.file_reading import listed
from tests.faults.program import FaultFile, Program, committed_batches, log_tail
from tests.silence_oracle import START, Alert, silent_users

pytestmark = pytest.mark.spark

KILLS = int(os.environ.get("HOLDFAST_KILLS", "1"))  # of each pair
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
STEPS = ("mid_timers", "before_delta", "after_delta", "before_handle", "after_handle", "before_record", "after_record")
SHORT = [("mid_timers", "worker"), ("after_record", "group")]
FILES_AHEAD, USERS, ROWS = 4, 400, 300

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
    prove(tmp_path, every * KILLS)


def prove(folder: Path, pairs: list[tuple[str, str]], *place: str, fetch: Callable[[], None] = lambda: None) -> None:
    """One stream that lives through all kills: of a worker, whose task is tried again, and of everything. ``place``: of
    the program, where that is no folder; then ``fetch`` brings the output into it.
    """
    draw = random.Random(SEED)
    source = Source(folder / "source", draw)
    fault = FaultFile(folder / "fault")
    program: Program | None = None
    struck: Counter[tuple[str, str]] = Counter()

    def start() -> Program:
        source.feed(committed_batches(folder) - 1)
        return Program("timer_stream.py", folder, *place, meanwhile=source.feed, environment=fault.environment)

    try:
        for step, who in draw.sample(pairs, len(pairs)):
            if program is None:
                program = start()
                assert program.wait_for_batches(1), log_tail(folder)
            fault.arm(step, draw.randrange(1, 4))  # of one process: a worker may see few batches
            assert program.wait_for(lambda: fault.has_struck), f"{step} was not reached: {log_tail(folder)}"
            struck[step, who] += 1
            if who == "worker":
                assert program.wait_for_batches(1), log_tail(folder)
            else:
                program.end()
                program = None
        program = program or start()
        assert program.wait_for_batches(3), log_tail(folder)
        source.ends = True
        assert program.wait_for(lambda: ends(folder, committed_batches(folder))[-1] == len(source.made))
    finally:
        if program is not None:
            program.end()
    print(f"seed {SEED}", *(f"{step} × {who}: {count}" for (step, who), count in sorted(struck.items())), sep="\n")
    assert struck == Counter(pairs)
    fetch()
    expected = silent_users(as_they_came(folder, source.made))
    assert expected
    assert found(folder / "output") == sorted(expected), f"seed {SEED}"


class Source:
    """Files of some users' events, one a batch, each later than the one before."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        folder.mkdir()
        self.made: Events = []
        self.ends = False
        self._folder = folder
        self._draw = random.Random(draw.random())

    def feed(self, batch: int) -> None:
        """Files for the batches after ``batch``."""
        while not self.ends and len(self.made) <= batch + FILES_AHEAD:
            self._write()

    def _write(self) -> None:
        number, draw = len(self.made), self._draw
        began = START + timedelta(minutes=50 * number)
        rows = [(f"user{draw.randrange(USERS)}", began + timedelta(seconds=draw.randrange(3000))) for _ in range(ROWS)]
        self.made.append(rows)
        hidden = self._folder / f".{number:05d}.parquet"
        pq.write_table(pa.Table.from_arrays([*map(pa.array, zip(*rows))], schema=EVENTS), hidden)
        os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
        hidden.rename(self._folder / f"{number:05d}.parquet")


def ends(folder: Path, batches: int) -> list[int]:
    """How many files the first batches have read, by Spark's own log."""
    logs = [folder / "checkpoint" / "offsets" / str(number) for number in range(batches)]
    return [json.loads(log.read_text().splitlines()[-1])["logOffset"] + 1 for log in logs]


def as_they_came(folder: Path, made: Events) -> Events:
    """The events of each batch. A kill between Spark's log of files and its log of offsets leaves two in the next."""
    read = ends(folder, committed_batches(folder))
    assert read[-1] == len(made)
    return [[*itertools.chain(*made[start:end])] for start, end in itertools.pairwise([0, *read])]


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
