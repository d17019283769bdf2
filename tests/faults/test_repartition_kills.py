"""kill -9 while Spark repartitions a checkpoint, and in the first batches after it, 2 → 4 → 3 → 2 → … partitions: the
rows are those of a query that was never repartitioned.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest
from tests.faults.file_reading import FolderReader
from tests.faults.program import FaultFile, Program, committed_batches, log_tail
from tests.faults.test_rescale_kills import FILES, expected, feed
from tests.repartitioned import needs_repartitioning

pytestmark = [pytest.mark.spark, needs_repartitioning]

KILLS = int(os.environ.get("HOLDFAST_KILLS", "1"))  # of each pair
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
REPARTITION = "repartition"  #: once Spark has planned it, and before it is committed: no step of Holdfast's
OF_DRIVER = ("before_record", "after_record", "mid_commit", "after_commit")
STEPS = ("after_open", "mid_batch", "before_delta", "after_delta", "before_handle", "after_handle", *OF_DRIVER)
SHORT = [(REPARTITION, "group"), ("after_handle", "worker"), ("after_record", "group")]
PARTITIONS = (2, 4, 3)
SECONDS = 240.0


@pytest.mark.timeout(1800)
def test_kills_around_a_repartition_leave_no_difference(tmp_path: Path) -> None:
    prove(tmp_path, SHORT)


@pytest.mark.slow
@pytest.mark.timeout(36_000)
def test_kills_at_every_step_around_a_repartition_leave_no_difference(tmp_path: Path) -> None:
    of_workers = [(step, "worker") for step in STEPS if step not in OF_DRIVER]
    prove(tmp_path, [(REPARTITION, "group"), *of_workers, *((step, "group") for step in STEPS)] * KILLS)


def prove(folder: Path, pairs: list[tuple[str, str]]) -> None:
    """A repartition for each kill."""
    draw = random.Random(SEED)
    fault = FaultFile(folder / "fault")
    fed: list[list[tuple[str, int]]] = []
    struck: Counter[tuple[str, str]] = Counter()
    waiting: list[tuple[str, str] | None] = [None, *draw.sample(pairs, len(pairs))]
    number = missed = 0
    while waiting:
        kill = waiting.pop(0)
        feed(folder / "source", fed, draw)
        fault.disarm()
        if kill is not None and kill[0] != REPARTITION:
            fault.arm(kill[0], draw.randrange(1, 3))
        if live_through(folder, number, kill, fault) and kill is not None:
            struck[kill] += 1
        elif kill is not None:
            missed += 1
            assert missed < 5, f"{kill} was missed again and again"
            waiting.append(kill)
        number += 1
    print(f"seed {SEED}", *(f"{step} × {who}: {count}" for (step, who), count in sorted(struck.items())), sep="\n")
    assert struck == Counter(pairs)
    found = FolderReader(folder / "output").rows()
    assert sorted((row["user"], row["amount"], row["total"]) for row in found) == expected(fed), f"seed {SEED}"


def live_through(folder: Path, number: int, kill: tuple[str, str] | None, fault: FaultFile) -> bool:
    """A repartition and the batches after it, over a kill of a worker, whose task is tried again, or of everything.
    Whether what was to be struck was.
    """
    before = committed_batches(folder)
    partitions = str(PARTITIONS[number % len(PARTITIONS)])

    def start() -> Program:
        return Program("repartition_stream.py", folder, partitions, environment=fault.environment)

    program, struck = start(), True
    try:
        if kill is not None:
            if kill[0] == REPARTITION:
                assert program.wait_for((folder / "checkpoint" / "offsets" / str(before)).exists), log_tail(folder)
            else:
                assert program.wait_for(lambda: fault.has_struck), f"{kill} was not reached: {log_tail(folder)}"
            if kill[1] == "group":
                program.end()
                struck = kill[0] != REPARTITION or committed_batches(folder) == before
                program = start()
        wanted = before + FILES + (number > 0)
        assert program.wait_for(lambda: committed_batches(folder) == wanted, SECONDS), log_tail(folder)
        return struck
    finally:
        program.end()
