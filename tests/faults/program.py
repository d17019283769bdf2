"""A program that a harness kills, and the kills: at a named step or at random, of one process or of many.

Most strikes kill only the process that reaches the step. The running program survives that: a worker's task is tried
again by Spark, and a driver's Python is started again for the same JVM (tests.faults.supervised). So a kill takes
seconds. By turns more is killed, and the program is started again, which takes a JVM's start.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tests.spark_sessions import ROOT, worker_path

from holdfast.fault_points import VARIABLE

ALONE = "alone"
_MANY = (ALONE,) * 7
#: Whom a strike kills beside the process that reaches the step, by turns.
TARGETS = (*_MANY[:3], "driver", *_MANY, "group", *_MANY, "jvm", *_MANY[:4])
SECONDS = 240.0  # for whatever must come


@dataclass
class Tally:
    """What one step's kills brought."""

    kills: int = 0
    missed: int = 0
    differences: list[str] = field(default_factory=list)


class FaultFile:
    """Where running processes find what they are to die at. See holdfast.fault_points."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._struck = path.with_name(path.name + ".struck")

    @property
    def environment(self) -> dict[str, str]:
        return {VARIABLE: str(self._path)}

    def arm(self, point: str, count: int = 1, kind: signal.Signals = signal.SIGKILL) -> None:
        """The first process to reach ``point`` for the ``count``-th time from now on is struck."""
        self._struck.unlink(missing_ok=True)
        hidden = self._path.with_name(f".{self._path.name}")
        hidden.write_text(f"{point}:{count}:{kind.name}")
        hidden.rename(self._path)

    def disarm(self) -> None:
        self._path.unlink(missing_ok=True)

    @property
    def has_struck(self) -> bool:
        """Since it was armed."""
        return self._struck.exists()


class Program:
    """One run, from start to its death; in a session of its own, by which whatever it started is found.

    Parameters
    ----------
    script
        In tests/faults; it prints ``batch <number>`` for each that is committed, ``failed <error>``, ``done``.
    meanwhile
        Called with the newest batch while something is waited for: gives the program its input.
    """

    def __init__(
        self,
        script: str,
        folder: Path,
        *arguments: str,
        meanwhile: Callable[[int], None] = lambda batch: None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._meanwhile = meanwhile
        self._log = (folder / "log.txt").open("a")
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "faults" / script), str(folder), *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": worker_path(), **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.batch = -1  #: the newest that was committed
        self.batches = 0  #: committed in this run
        self.done = False
        self.failure: str | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "batch":
                self.batch = int(rest)
                self.batches += 1
            elif word == "failed":
                self.failure = rest
            self.done = self.done or word == "done"

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_for(self, happened: Callable[[], bool], seconds: float = SECONDS) -> bool:
        """Polls until something happened; False when the program died or the time is over first."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if happened():
                return True
            self._meanwhile(self.batch)
            if not self.running:
                return happened()
            time.sleep(0.02)
        return False

    def wait_for_batches(self, count: int, seconds: float = SECONDS) -> bool:
        """Until so many more are committed."""
        wanted = self.batches + count
        return self.wait_for(lambda: self.batches >= wanted, seconds)

    def processes(self) -> list[psutil.Process]:
        """The program and all that it started, whoever is its parent now."""
        return [process for process in psutil.process_iter() if _session(process.pid) == self.pid]

    def workers(self) -> list[psutil.Process]:
        """The Python workers: children of Spark's Python daemon."""
        python = {process.pid: process for process in self.processes() if is_python_worker(process)}
        return [process for process in python.values() if _parent(process) in python]

    def kill(self, target: str) -> None:
        """kill -9: some worker; the driver's Python; the JVM, while the driver's Python goes on with what it does; the
        driver with its JVM, while workers live on for a moment; or the whole group.
        """
        everything = self.processes()
        workers = self.workers()
        victims = {
            "worker": workers[:1] if not workers else [random.choice(workers)],
            "python": [p for p in everything if _parent(p) == self.pid and not _is_java(p)],
            "jvm": [process for process in everything if _is_java(process)],
            "driver": [process for process in everything if not is_python_worker(process)],
            "group": everything,
        }[target]
        for process in victims:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def signal(self, number: signal.Signals) -> None:
        """To all its processes."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def end(self) -> None:
        """Everything dead, and the pipes closed."""
        own = self.processes()
        self.kill("group")
        self._process.wait()
        psutil.wait_procs(own, timeout=10)
        self._reader.join(5)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


def until_interrupted(steps: Sequence[str]) -> Iterator[str]:
    """The steps, one after the other; after Ctrl-C no more of them, so that the comparison at the end is still made."""
    is_interrupted = threading.Event()

    def interrupt(*_: object) -> None:
        print("interrupted: no more kills; the stream runs to its end and is compared", flush=True)
        is_interrupted.set()

    former = signal.signal(signal.SIGINT, interrupt)
    try:
        for step in steps:
            if is_interrupted.is_set():
                return
            yield step
    finally:
        signal.signal(signal.SIGINT, former)


def committed_batches(folder: Path) -> int:
    """By the log of Spark in the checkpoint of the stream that lives in this folder."""
    commits = folder / "checkpoint" / "commits"
    return max((int(path.name) + 1 for path in commits.glob("*") if path.name.isdigit()), default=0)


def log_tail(folder: Path) -> str:
    """The last that the programs of this folder had to say."""
    return (folder / "log.txt").read_text(errors="replace")[-4000:]


def command_of(process: psutil.Process) -> list[str]:
    """How it was started; empty when it has ended meanwhile."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def is_python_worker(process: psutil.Process) -> bool:
    """Or the daemon that starts them; or something that has ended meanwhile."""
    command = command_of(process)
    return not command or "pyspark.daemon" in command


def _is_java(process: psutil.Process) -> bool:
    command = command_of(process)
    return bool(command) and Path(command[0]).name == "java"


def _parent(process: psutil.Process) -> int | None:
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return None


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


@dataclass(frozen=True)
class Strike:
    """What one kill came to.

    Attributes
    ----------
    hit
        Whether there was a kill at all; a step may not be reached.
    failure
        Why the stream did not go on after one process's death; None where it did, or was not to.
    """

    target: str
    hit: bool
    failure: str | None = None


class Strikes:
    """Kills of one stream that goes on, from run to run.

    Parameters
    ----------
    start
        Starts the program, with the fault file in its environment.
    step_batches
        A step that is not reached within so many batches is missed.
    alone
        Which processes the program survives: ``worker``, and ``python`` if it is supervised.
    """

    def __init__(
        self,
        start: Callable[[], Program],
        faults: FaultFile,
        step_batches: int,
        seed: int,
        alone: Sequence[str] = ("worker",),
    ) -> None:
        self._alone = alone
        self._start = start
        self._faults = faults
        self._step_batches = step_batches
        self._random = random.Random(seed)
        self._turn = 0
        self._program: Program | None = None
        self._left: Program | None = None

    def at_step(self, step: str, *, starting: bool = False, is_rare: bool = False) -> Strike:
        """Kills at a named step. ``starting``: it is part of a start, so the driver's Python starts for it.
        ``is_rare``: not every batch comes to it, so the first process that does is killed.
        """
        target = self._next_target()
        self._faults.arm(step, 1 if starting or is_rare else self._random.randint(1, 3))
        if starting and self._program is not None:
            self._program.kill("python")
        program = self.running()
        last = program.batches + self._step_batches
        program.wait_for(lambda: self._faults.has_struck or program.batches > last, 2 * SECONDS)
        self._faults.disarm()
        return self._after_hit(program, target) if self._faults.has_struck else Strike(target, False, program.failure)

    def at_random(self) -> Strike:
        """Kills at a moment that nobody chose."""
        target = self._next_target()
        program = self.running()
        begun = program.wait_for(lambda: program.batches > 0)
        time.sleep(self._random.uniform(0.0, 3.0))
        if not begun:
            return Strike(target, False, program.failure)
        if target == ALONE:
            program.kill(self._random.choice(self._alone))
        return self._after_hit(program, target)

    def end(self) -> None:
        """All that runs is dead."""
        for program in filter(None, (self._program, self._left)):
            program.end()
        self._program = self._left = None

    def running(self) -> Program:
        """The run that goes on, or a new one."""
        if self._program is not None and not self._program.running:
            self.end()
        if self._program is None:
            self._program = self._start()
        return self._program

    def _after_hit(self, program: Program, target: str) -> Strike:
        if target == ALONE:
            went_on = program.wait_for_batches(2)
            return Strike(target, True, None if went_on else program.failure or "no batch since")
        program.kill(target)
        time.sleep(self._random.uniform(0.0, 0.3))  # what is left of the old run meets the new one
        if self._left is not None:
            self._left.end()
        self._left, self._program = program, None
        return Strike(target, True)

    def _next_target(self) -> str:
        self._turn += 1
        return TARGETS[(self._turn - 1) % len(TARGETS)]
