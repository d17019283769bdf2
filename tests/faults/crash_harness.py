"""Kills a stream with kill -9, each step × who dies, starts it again, and compares what it wrote and what it holds.

    python -m tests.faults.crash_harness [--kills 20] [--step after_delta …] [--who driver …] [--json FILE]
                                         [--folder DIR] [--seed N]

One stream lives through all kills of all pairs (tests.faults.kill_plan); it fails where a pair that is possible never
occurred. After each death of a run the committed output is compared with DuckDB's over the input so far; in the end all
output and all state is. Ctrl-C ends the kills, not the comparison. Exit code 1 on any difference.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tests.faults.crash_oracle import committed_files, output_differences, state_differences
from tests.faults.kill_plan import RANDOM, WHO, Cell, Coverage, Pair
from tests.faults.program import SECONDS, FaultFile, Program, committed_batches, log_tail, until_interrupted
from tests.faults.strikes import CLUSTER, Strikes

from holdfast.fault_points import VARIABLE

STEPS = (
    "mid_pack", "after_open", "mid_batch", "during_spill", "before_delta", "after_delta", "before_handle",
    "after_handle", "during_fold", "after_fold", "during_snapshot", "before_manifest", "after_snapshot",
    "during_retention", "during_restore", RANDOM,
)  # fmt: skip
#: Done in the background, every few batches.
RARE = (
    "during_fold", "after_fold", "during_snapshot", "before_manifest", "after_snapshot", "during_retention",
)  # fmt: skip
#: What `make test` tries.
SHORT = (Pair("after_delta", "worker"), Pair("before_handle", "driver"), Pair(RANDOM, "worker"))
_ROWS = (10_000, 2_000, 2_000, 2_000)  # of files by turns: only the large ones outgrow the memory of a batch
_USERS = 20_000  # so many that their lists stay short, or every batch would outgrow it in the end and none be folded
_FILES_AHEAD = 8
_SCHEMA = pa.schema([("seq", "i8"), ("file", "i4"), ("user", "str"), ("kind", "str"), ("amount", "i8")])
_STEP_BATCHES = 25  # a step that is not reached in so many is missed


class Campaign:
    """One stream's life through many kills."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self._seed = seed
        self._files = 0
        self._sequence = 0
        (folder / "source").mkdir(parents=True)
        self._faults = FaultFile(folder / "fault")
        self._strikes = Strikes(self._start, self._faults, _STEP_BATCHES, seed)

    def strike(self, pair: Pair, cell: Cell) -> None:
        """One try at a pair; a comparison, where the next strike must start the stream again."""
        began = time.monotonic()
        if pair.step == "during_restore":
            self._strikes.end()
            shutil.rmtree(self.folder / "local", ignore_errors=True)
        strike = self._strikes.strike(pair, is_rare=pair.step in (*RARE, "during_restore"))
        if strike.kill is None:
            cell.missed += 1
        else:
            cell.kills.append(strike.kill)
        found = [strike.failure] if strike.failure else []
        if strike.is_over:
            found += output_differences(self.folder, complete=False)
        cell.differences += found
        reached = len(committed_files(self.folder / "output"))
        print(
            f"{pair!s:30} {f'killed {list(strike.kill.dead)}' if strike.kill else 'MISSED'} after "
            f"{time.monotonic() - began:5.1f} s; {reached} files of output committed, {len(found)} differences",
            flush=True,
        )

    def _start(self, on_executors: bool) -> Program:
        environment = self._faults.environment
        cluster = (*CLUSTER, "--conf", f"spark.executorEnv.{VARIABLE}={environment[VARIABLE]}") if on_executors else ()
        return self._program(*cluster, environment=environment, feed=self.write_ahead)

    def finish(self, *arguments: str, meanwhile: Callable[[Program], None] = lambda program: None) -> list[str]:
        """Runs the stream to the end of its input; all differences of output and state.

        ``meanwhile`` is called once the stream runs.
        """
        self._strikes.end()
        program = self._program("--until-done", *arguments, feed=_no_more)
        try:
            meanwhile(program)
            finished = program.wait_for(lambda: program.done, 10 * SECONDS)
        finally:
            program.end()
        if not finished:
            return [f"the stream did not come to its end: {log_tail(self.folder)}"]
        return [*output_differences(self.folder, complete=True), *state_differences(self.folder)]

    def end(self) -> None:
        """Nothing runs any more."""
        self._strikes.end()

    def _program(
        self, *arguments: str, feed: Callable[[int], None], environment: dict[str, str] | None = None
    ) -> Program:
        feed(committed_batches(self.folder) - 1)
        return Program("crash_stream.py", self.folder, *arguments, meanwhile=feed, environment=environment)

    def write_ahead(self, batch: int) -> None:
        """Input for the batches to come: deterministic, each file visible at once and whole."""
        while self._files <= batch + _FILES_AHEAD:
            draw = random.Random(self._seed * 1_000_003 + self._files)
            count = _ROWS[self._files % len(_ROWS)]
            rows = {
                "seq": list(range(self._sequence, self._sequence + count)),
                "file": [self._files] * count,
                "user": [f"user{draw.randrange(_USERS)}" for _ in range(count)],
                "kind": [draw.choice("abcd") for _ in range(count)],
                "amount": [draw.randrange(-1000, 1000) for _ in range(count)],
            }
            path = self.folder / "source" / f"{self._files:06d}.parquet"
            hidden = path.with_name(f".{path.name}")
            pq.write_table(pa.table(rows, schema=_SCHEMA), hidden)
            os.utime(hidden, (1_700_000_000 + self._files,) * 2)  # Spark reads files by age
            hidden.rename(path)
            self._files += 1
            self._sequence += count


def _no_more(batch: int) -> None:
    """The input is complete."""


def impossible(pair: Pair) -> str | None:
    """Why a pair cannot be."""
    if pair.who == "broker":
        return "files need no broker"
    if pair.who == "python":
        return "the JVM of this stream ends with its driver's Python, as under driver"
    return None


def run(folder: Path, coverage: Coverage, seed: int) -> list[str]:
    """All pairs on one stream, and again those that were missed; all differences."""
    campaign = Campaign(folder, seed)
    try:
        for pair in until_interrupted(_in_order(coverage, seed)):
            campaign.strike(pair, coverage.cells[pair])
        end = campaign.finish()
    finally:
        campaign.end()
    found = [f"{pair}: {told}" for pair, cell in coverage.cells.items() for told in cell.differences]
    return [*found, *(f"at the end: {told}" for told in end)]


def _in_order(coverage: Coverage, seed: int) -> Iterator[Pair]:
    """What restores comes last: there must be something to restore."""
    for is_restore in (False, True):
        yield from (pair for pair in coverage.left(seed) if (pair.step == "during_restore") == is_restore)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs is ended
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--kills", type=int, default=1, help="kills of each pair")
    arguments.add_argument("--step", action="append", choices=STEPS, help="only these steps")
    arguments.add_argument("--who", action="append", choices=WHO, help="only these")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--json", type=Path, help="the table with its evidence, into a file")
    arguments.add_argument("--folder", type=Path, help="kept when given")
    given = arguments.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="holdfast-crashes-"))
    coverage = Coverage(given.step or STEPS, given.who or WHO, impossible, given.kills)
    differences = run(folder, coverage, given.seed)
    print(coverage.table())
    print(f"{len(differences)} differences", *differences[:20], sep="\n")
    if given.json:
        given.json.write_text(coverage.as_json())
    if given.folder is None and not differences:
        shutil.rmtree(folder, ignore_errors=True)
    raise SystemExit(bool(differences or coverage.missing))


if __name__ == "__main__":
    main()
