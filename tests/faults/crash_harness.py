"""Kills a stream with kill -9 at named steps and at random moments, starts it again, and compares what it wrote and
what it holds.

    python -m tests.faults.crash_harness --kills 20 [--step after_delta …] [--folder DIR] [--seed N]

One stream lives through all kills of all steps. After each death of a driver the committed output is compared with
DuckDB's over the input so far; in the end all output and all state is. Prints what it does, and a table: step, kills,
differences. Ctrl-C ends the kills, not the comparison. Exit code 1 on any difference.

A named step kills the Python worker that reaches it (holdfast.fault_points). Most times that is all, and the stream
must go on; by turns the JVM dies with it, or with the driver's Python, while other workers live on for a moment, or
every process at once (tests.faults.program).
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
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tests.faults.crash_oracle import committed_files, output_differences, state_differences
from tests.faults.program import (
    ALONE,
    SECONDS,
    FaultFile,
    Program,
    Strike,
    Strikes,
    Tally,
    committed_batches,
    log_tail,
    until_interrupted,
)

STEPS = (
    "mid_pack", "after_open", "mid_batch", "during_spill", "before_delta", "after_delta", "before_handle",
    "after_handle", "during_fold", "after_fold", "during_snapshot", "before_manifest", "after_snapshot",
    "during_retention", "during_restore", "random",
)  # fmt: skip
#: Done in the background, every few batches.
RARE = (
    "during_fold", "after_fold", "during_snapshot", "before_manifest", "after_snapshot", "during_retention",
)  # fmt: skip
SHORT = ("after_delta", "during_spill", "before_handle", "random")
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
        self.tally: dict[str, Tally] = {}
        (folder / "source").mkdir(parents=True)
        faults = FaultFile(folder / "fault")
        self._strikes = Strikes(lambda: self._program(environment=faults.environment), faults, _STEP_BATCHES, seed)

    def strike(self, step: str) -> None:
        """One kill at a step; a comparison, where the next strike must start the stream again."""
        tally = self.tally.setdefault(step, Tally())
        began = time.monotonic()
        strike = self._strike(step)
        tally.kills += strike.hit
        tally.missed += not strike.hit
        found = [strike.failure] if strike.failure else []
        if strike.target != ALONE:
            found += output_differences(self.folder, complete=False)
        tally.differences += found
        reached = len(committed_files(self.folder / "output"))
        print(
            f"{step:17} {strike.target:7} {'killed' if strike.hit else 'MISSED'} after "
            f"{time.monotonic() - began:5.1f} s; {reached} files of output committed, {len(found)} differences",
            flush=True,
        )

    def _strike(self, step: str) -> Strike:
        if step == "random":
            return self._strikes.at_random()
        if step == "during_restore":
            self._strikes.end()
            shutil.rmtree(self.folder / "local", ignore_errors=True)
        return self._strikes.at_step(step, starting=step == "during_restore", is_rare=step in RARE)

    def finish(self, *arguments: str, meanwhile: Callable[[Program], None] = lambda program: None) -> list[str]:
        """Runs the stream to the end of its input; all differences of output and state.

        ``meanwhile`` is called once the stream runs.
        """
        self._strikes.end()
        program = self._program("--until-done", *arguments)
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

    def _program(self, *arguments: str, environment: dict[str, str] | None = None) -> Program:
        feed = _no_more if arguments else self.write_ahead
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


def run(folder: Path, steps: tuple[str, ...], kills: int, seed: int) -> dict[str, Tally]:
    """All kills of all steps on one stream, in a shuffled order; the last comparison stands under 'at the end'."""
    campaign = Campaign(folder, seed)
    order = [step for step in steps for _ in range(kills)]
    random.Random(seed).shuffle(order)
    order.sort(key=lambda step: step == "during_restore")  # there must be something to restore
    try:
        for step in until_interrupted(order):
            campaign.strike(step)
        campaign.tally["at the end"] = Tally(differences=campaign.finish())
    finally:
        campaign.end()
    return campaign.tally


def show(tally: dict[str, Tally]) -> str:
    """The table."""
    lines = [f"{'step':17} {'kills':>6} {'missed':>7} {'differences':>12}"]
    for step, found in tally.items():
        lines.append(f"{step:17} {found.kills:6} {found.missed:7} {len(found.differences):12}")
    return "\n".join(lines)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs is ended
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--kills", type=int, default=1, help="kills at each step")
    arguments.add_argument("--step", action="append", choices=STEPS, help="only these steps")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--folder", type=Path, help="kept when given")
    given = arguments.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="holdfast-crashes-"))
    tally = run(folder, tuple(given.step or STEPS), given.kills, given.seed)
    print(show(tally))
    differences = [found for step in tally.values() for found in step.differences]
    print(*differences[:20], sep="\n")
    if given.folder is None and not differences:
        shutil.rmtree(folder, ignore_errors=True)
    raise SystemExit(bool(differences))


if __name__ == "__main__":
    main()
