"""Kills a stream with kill -9 at named steps and at random moments, starts it again, and compares what it wrote and
what it holds.

    python -m tests.faults.crash_harness --kills 20 [--step after_delta …] [--folder DIR] [--seed N]

One stream lives through all kills of all steps. After each kill the committed output is compared with DuckDB's over the
input so far; in the end all output and all state is. Prints what it does, and a table: step, kills, differences. Exit
code 1 on any difference.

A named step kills the Python worker that reaches it (holdfast.fault_points). In turn, that is all; or the
driver and its JVM are killed with it, while other workers live on for a moment; or every process at once.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from tests.faults.crash_oracle import committed_files, output_differences, state_differences
from tests.spark_sessions import ROOT, worker_path

STEPS = (
    "mid_pack", "after_open", "mid_batch", "during_spill", "before_delta", "after_delta", "before_handle",
    "after_handle", "during_fold", "after_fold", "during_snapshot", "before_manifest", "after_snapshot",
    "during_retention", "during_restore", "random",
)  # fmt: skip
SHORT = ("after_delta", "during_spill", "before_handle", "random")
TARGETS = ("worker", "driver", "group")
_ROWS = (6_000, 2_000, 2_000)  # of files by turns: only the large ones outgrow the memory of a batch
_USERS = 3_000
_FILES_AHEAD = 8
_SCHEMA = pa.schema([("seq", "i8"), ("file", "i4"), ("user", "str"), ("kind", "str"), ("amount", "i8")])
_STEP_BATCHES = 25  # a step that is not reached in so many is missed
_STEP_SECONDS = 600.0
_BATCH_SECONDS = 240.0


@dataclass
class Tally:
    """What one step's kills brought."""

    kills: int = 0
    missed: int = 0
    differences: list[str] = field(default_factory=list)


class Stream:
    """One run of the program, from start to its death."""

    def __init__(self, folder: Path, feed: Callable[[int], None], *arguments: str, **environment: str) -> None:
        self._feed = feed
        self._log = (folder / "log.txt").open("a")
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "faults" / "crash_stream.py"), str(folder), *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": worker_path(), **environment},
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.batch = -1
        self.done = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("batch "):
                self.batch = int(line.split()[1])
            self.done = self.done or line.strip() == "done"

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_for(self, happened: Callable[[], bool], seconds: float) -> bool:
        """Polls until something happened; False when the program died or the time is over first."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if happened():
                return True
            self._feed(self.batch)
            if not self.running:
                return False
            time.sleep(0.02)
        return False

    def processes(self) -> list[psutil.Process]:
        """The program and all that it started, Python workers included."""
        try:
            program = psutil.Process(self._process.pid)
            return [program, *program.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def workers(self) -> list[psutil.Process]:
        """The Python workers: children of Spark's Python daemon."""
        python = {process.pid: process for process in self.processes() if _is_python_worker(process)}
        return [process for process in python.values() if _parent(process) in python]

    def kill(self, target: str) -> None:
        """kill -9, all victims at once."""
        everything = self.processes()
        workers = [process.pid for process in self.workers()]
        victims = {
            "worker": workers[:1] if not workers else [random.choice(workers)],
            "driver": [process.pid for process in everything if not _is_python_worker(process)],
            "group": [process.pid for process in everything],
        }[target]
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def end(self) -> None:
        """Everything dead, and the pipes closed."""
        left = self.processes()
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self._process.wait()
        psutil.wait_procs(left, timeout=10)
        self._reader.join(5)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


def command_of(process: psutil.Process) -> list[str]:
    """How it was started; empty when it has ended meanwhile."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _is_python_worker(process: psutil.Process) -> bool:
    command = command_of(process)
    return not command or "pyspark.daemon" in command


def _parent(process: psutil.Process) -> int | None:
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return None


class Campaign:
    """One stream's life through many kills."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self._random = random.Random(seed)
        self._seed = seed
        self._files = 0
        self._sequence = 0
        self._targets = 0
        self.tally: dict[str, Tally] = {}
        (folder / "source").mkdir(parents=True)

    def strike(self, step: str) -> None:
        """One kill at a step, a restart, and a comparison."""
        tally = self.tally.setdefault(step, Tally())
        target = TARGETS[self._targets % len(TARGETS)]
        self._targets += 1
        self.write_ahead(self._committed_batches() - 1)
        began = time.monotonic()
        hit = self._strike_at_random(target) if step == "random" else self._strike_at_step(step, target)
        tally.kills += hit
        tally.missed += not hit
        found = output_differences(self.folder, complete=False)
        tally.differences += found
        reached = len(committed_files(self.folder / "output"))
        print(
            f"{step:17} {target:7} {'killed' if hit else 'MISSED'} after {time.monotonic() - began:5.1f} s; "
            f"{reached} files of output committed, {len(found)} differences",
            flush=True,
        )

    def finish(self, *arguments: str, meanwhile: Callable[[Stream], None] = lambda stream: None) -> list[str]:
        """Runs the stream to the end of its input; all differences of output and state.

        ``meanwhile`` is called once the stream runs.
        """
        with self._stream("--until-done", *arguments) as stream:
            meanwhile(stream)
            finished = stream.wait_for(lambda: stream.done, 10 * _BATCH_SECONDS)
        if not finished:
            return [f"the stream did not come to its end: {self._log_tail()}"]
        return [*output_differences(self.folder, complete=True), *state_differences(self.folder)]

    def _strike_at_step(self, step: str, target: str) -> bool:
        if step == "during_restore":
            shutil.rmtree(self.folder / "local", ignore_errors=True)
        marker = self.folder / "struck"
        marker.unlink(missing_ok=True)
        point = {"HOLDFAST_FAULT_POINT": f"{step}:{self._random.randint(1, 3)}", "HOLDFAST_FAULT_MARKER": str(marker)}
        if step == "during_restore":
            point["HOLDFAST_FAULT_POINT"] = "during_restore:1"
        with self._stream(**point) as stream:
            last = self._committed_batches() + _STEP_BATCHES
            stream.wait_for(lambda: marker.exists() or stream.batch > last, _STEP_SECONDS)
            hit = marker.exists()
            self._after_hit(stream, target, hit)
        return hit

    def _strike_at_random(self, target: str) -> bool:
        with self._stream() as stream:
            begun = stream.wait_for(lambda: stream.batch >= 0, _BATCH_SECONDS)
            time.sleep(self._random.uniform(0.0, 3.0))
            hit = begun and (target != "worker" or bool(stream.workers()))
            if target == "worker":
                stream.kill("worker")
            self._after_hit(stream, target, hit)
        return hit

    def _after_hit(self, stream: Stream, target: str, hit: bool) -> None:
        if hit and target == "worker":  # Spark runs the task again; let it commit a batch or two
            batch = stream.batch
            stream.wait_for(lambda: stream.batch > batch + 1, _BATCH_SECONDS)
        elif target == "driver":
            stream.kill("driver")
            time.sleep(self._random.uniform(0.0, 0.3))  # what is left of the old run meets the new one
        else:
            stream.kill("group")

    @contextmanager
    def _stream(self, *arguments: str, **environment: str) -> Iterator[Stream]:
        feed = _no_more if arguments else self.write_ahead
        stream = Stream(self.folder, feed, *arguments, **environment)
        try:
            yield stream
        finally:
            stream.end()

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

    def _committed_batches(self) -> int:
        commits = self.folder / "checkpoint" / "commits"
        return (
            max((int(p.name) + 1 for p in commits.glob("*") if p.name.isdigit()), default=0) if commits.exists() else 0
        )

    def _log_tail(self) -> str:
        return (self.folder / "log.txt").read_text(errors="replace")[-4000:]


def _no_more(batch: int) -> None:
    """The input is complete."""


def run(folder: Path, steps: tuple[str, ...], kills: int, seed: int) -> dict[str, Tally]:
    """All kills of all steps on one stream, in a shuffled order; the last comparison stands under 'at the end'."""
    campaign = Campaign(folder, seed)
    order = [step for step in steps for _ in range(kills)]
    random.Random(seed).shuffle(order)
    order.sort(key=lambda step: step == "during_restore")  # there must be something to restore
    for step in order:
        campaign.strike(step)
    campaign.tally["at the end"] = Tally(differences=campaign.finish())
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
