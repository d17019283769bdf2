"""A program that a harness kills, the processes that it is made of, and the file by which one is struck at a step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil
from tests.spark_sessions import ROOT, worker_path

from holdfast.fault_points import VARIABLE

_T = TypeVar("_T")
SECONDS = 240.0  # for whatever must come


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

    def of(self, who: str) -> list[psutil.Process]:
        """Whom a strike kills (tests.faults.kill_plan): workers; the driver's Python under its supervisor; the JVM;
        all that is neither worker nor daemon; executors; or everything.
        """
        everything = self.processes()
        return {
            "worker": lambda: self.workers(),
            "python": lambda: [p for p in everything if _parent(p) == self.pid and not _is_java(p)],
            "jvm": lambda: [p for p in everything if _is_java(p) and not _is_executor(p)],
            "driver": lambda: [p for p in everything if not is_python_worker(p)],
            "group": lambda: everything,
            "executor": lambda: [p for p in everything if _is_executor(p)],
        }[who]()

    def signal(self, number: signal.Signals) -> None:
        """To all its processes."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def end(self) -> None:
        """Everything dead, and the pipes closed."""
        own = self.processes()
        for process in own:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        psutil.wait_procs(own, timeout=10)
        self._reader.join(5)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


def until_interrupted(steps: Iterable[_T]) -> Iterator[_T]:
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
    return not command or "pyspark.daemon" in command or "tests.warm_workers" in command


def _is_java(process: psutil.Process) -> bool:
    command = command_of(process)
    return bool(command) and Path(command[0]).name == "java"


def _is_executor(process: psutil.Process) -> bool:
    return "CoarseGrainedExecutorBackend" in " ".join(command_of(process))


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
