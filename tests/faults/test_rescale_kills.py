"""kill -9 in the first batches of each new generation, 2 → 3 → 8 → 1 → … slots, every other one of which begins with a
savepoint of the one before: the rows are those of one query.
"""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.faults.file_reading import FolderReader
from tests.faults.program import FaultFile, Program, committed_batches, log_tail

import holdfast as hf
from holdfast.inspect.savepoint import Format

pytestmark = pytest.mark.spark

KILLS = int(os.environ.get("HOLDFAST_KILLS", "1"))  # of each pair
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
OF_FIRST_VERSIONS = (
    "during_restore", "during_origin", "during_snapshot", "before_manifest", "after_snapshot", "before_origin",
)  # fmt: skip
STEPS = (
    *OF_FIRST_VERSIONS, "after_open", "mid_batch", "before_delta", "after_delta", "before_handle", "after_handle",
    "before_record", "after_record", "mid_commit", "after_commit",
)  # fmt: skip
OF_DRIVER = ("before_record", "after_record", "mid_commit", "after_commit")
SHORT = [("before_origin", "group"), ("after_handle", "worker")]
SLOTS = (2, 3, 8, 1)
FILES, USERS, ROWS = 4, 60, 80


@pytest.mark.timeout(1800)
def test_kills_in_the_first_batches_of_a_generation_leave_no_difference(tmp_path: Path) -> None:
    prove(tmp_path, SHORT)


@pytest.mark.slow
@pytest.mark.timeout(36_000)
def test_kills_at_every_step_of_the_first_batches_leave_no_difference(tmp_path: Path) -> None:
    of_workers = [(step, "worker") for step in STEPS if step not in OF_DRIVER]
    prove(tmp_path, [*of_workers, *((step, "group") for step in STEPS)] * KILLS)


def prove(folder: Path, pairs: list[tuple[str, str]]) -> None:
    """A generation for each kill, and one before the first."""
    draw = random.Random(SEED)
    fault = FaultFile(folder / "fault")
    fed: list[list[tuple[str, int]]] = []
    struck: Counter[tuple[str, str]] = Counter()
    plan: list[tuple[str, str] | None] = [None, *draw.sample(pairs, len(pairs))]
    for generation, kill in enumerate(plan):
        own = folder / str(generation)
        feed(own / "source", fed, draw)
        if generation % 2 and kill is not None and kill[0] != "during_restore":  # which a savepoint has not
            earlier = folder / str(generation - 1) / "checkpoint"
            formats: tuple[Format, Format] = ("canonical", "native")
            chosen = draw.choice(formats)
            hf.Savepoint.create(checkpoint=earlier, state=folder / "state", to=own / "saved", format=chosen)
        fault.disarm()
        if kill is not None:
            if kill[0] == "during_restore":  # what the earlier generation left on this machine is lost
                for left in (folder / "local").glob("*"):
                    left.rename(folder / f"lost-{generation}-{left.name}")
            # A process may make the first version of one slot alone, and restore one.
            fault.arm(kill[0], 1 if kill[0] in OF_FIRST_VERSIONS else draw.randrange(1, 3))
        live_through(folder, generation, kill, fault)
        if kill is not None:
            struck[kill] += 1
    print(f"seed {SEED}", *(f"{step} × {who}: {count}" for (step, who), count in sorted(struck.items())), sep="\n")
    assert struck == Counter(pairs)
    found = [row for generation in range(len(plan)) for row in FolderReader(folder / str(generation) / "output").rows()]
    assert sorted((row["user"], row["amount"], row["total"]) for row in found) == expected(fed), f"seed {SEED}"


def live_through(folder: Path, generation: int, kill: tuple[str, str] | None, fault: FaultFile) -> None:
    """A generation to its end, over a kill of a worker, whose task is tried again, or of everything."""
    arguments = (str(generation), str(SLOTS[generation % len(SLOTS)]))

    def start() -> Program:
        return Program("rescale_stream.py", folder, *arguments, environment=fault.environment)

    program = start()
    try:
        if kill is not None:
            assert program.wait_for(lambda: fault.has_struck), f"{kill} was not reached: {log_tail(folder)}"
            if kill[1] == "group":
                program.end()
                program = start()
        assert program.wait_for(lambda: committed_batches(folder / str(generation)) == FILES), log_tail(folder)
    finally:
        program.end()


def feed(source: Path, fed: list[list[tuple[str, int]]], draw: random.Random) -> None:
    """The next files of a source; some have few rows, so that most slots get none."""
    source.mkdir(parents=True, exist_ok=True)
    before = len(list(source.iterdir()))
    for number in range(before, before + FILES):
        rows = [
            (f"user{draw.randrange(USERS)}", draw.randrange(1, 1000)) for _ in range(ROWS if draw.random() < 0.6 else 2)
        ]
        fed.append(rows)
        users, amounts = zip(*rows)
        path = source / f"{number:05d}.parquet"
        pq.write_table(pa.table({"user": users, "amount": pa.array(amounts, pa.int64())}), path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def expected(fed: list[list[tuple[str, int]]]) -> list[tuple[str, int, int]]:
    totals: dict[str, int] = defaultdict(int)
    found = []
    for rows in fed:
        for user, amount in rows:
            totals[user] += amount
            found.append((user, amount, totals[user]))
    return sorted(found)
