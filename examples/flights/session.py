"""A program as a child process in a session of its own: started, watched, killed whole (driver, JVM, workers)."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

JOB_SECONDS_MAX = 600


class Session:
    """One run of a program of this folder.

    Parameters
    ----------
    log
        Where its output goes, after what is there.
    program, arguments
        A file beside this one, and its command line.
    environment
        Over this process's own.
    """

    def __init__(self, log: Path, program: str, *arguments: str | Path, **environment: str) -> None:
        self._log = open(log, "ab")  # noqa: SIM115  (closed with the session)
        # Python workers import what a job's processors are defined in.
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "PYTHONPATH": path}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name(program)), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
            env={**os.environ, **python, **environment},
        )

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def end(self, within_s: float) -> int | None:
        """Closes its standard input, which programs that wait for it take for their end. Gives the exit code."""
        self._close_input()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
        return self.exit_code

    def kill(self) -> int:
        """SIGKILL to every process of the session. Returns how many there were. Harmless when repeated."""
        killed = 0
        if self._log.closed:
            return killed  # its process id may be another's by now
        while members := self._members():
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
            self._process.poll()
            time.sleep(0.05)
        self._process.wait()
        self._close_input()
        self._log.close()
        return killed

    def _close_input(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            if self._process.stdin is not None:
                self._process.stdin.close()

    def _members(self) -> list[int]:
        """Live processes of the session. Spark's Python workers have process groups of their own, not sessions."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                    if int(session) == self._process.pid and state != "Z":
                        found.append(int(entry.name))
        return found


def check_running(job: Session, folder: Path, began: float, ends_with: int = 0) -> None:
    """Ends the demo when the job has ended otherwise than with this exit code, or hangs."""
    code = job.exit_code
    if code not in (None, ends_with):
        tail = (folder / "job.log").read_text(encoding="utf-8", errors="replace").splitlines()[-40:]
        raise SystemExit("\n".join([*tail, f"the job ended with exit code {code}; all of its log: {folder}/job.log"]))
    if time.monotonic() - began > JOB_SECONDS_MAX:
        raise SystemExit(f"the job has not finished in {JOB_SECONDS_MAX} s; its log: {folder}/job.log")


def clear(folder: Path, names: Sequence[str]) -> None:
    """Makes the folder, without these of an earlier run."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def progress(folder: Path, name: str = "progress.jsonl") -> list[dict[str, Any]]:
    """What the job told of finished batches in all its runs. A line that the kill cut short is left out."""
    with contextlib.suppress(FileNotFoundError):
        text = (folder / name).read_text(encoding="utf-8")
        lines = [line for line in text.split("\n")[:-1] if line.endswith("}") and line.startswith("{")]
        return [json.loads(line) for line in lines]
    return []


def committed_batches(folder: Path) -> int:
    """How many batches Spark has committed: the files of its commit log."""
    return len([path for path in (folder / "checkpoint" / "commits").glob("*") if path.name.isdigit()])


def planned_batches(folder: Path) -> int:
    """How many batches Spark has begun: the files of its offset log."""
    return len([path for path in (folder / "checkpoint" / "offsets").glob("*") if path.name.isdigit()])


def committed_rows(folder: Path) -> int:
    """How many rows of Kafka the committed batches have read: the offsets at which the newest of them ends."""
    newest = committed_batches(folder) - 1
    if newest < 0:
        return 0
    text = (folder / "checkpoint" / "offsets" / str(newest)).read_text(encoding="utf-8")
    ends = json.loads(text.splitlines()[-1])["offsets"]
    return sum(end for partitions in ends.values() for end in partitions.values())


def committed_files(folder: Path) -> list[str]:
    """Output files that Spark's file sink has committed. Others, left by the batch that was killed, do not count."""
    files: dict[str, None] = {}
    for log in sorted((folder / "rows" / "_spark_metadata").glob("[0-9]*")):
        for line in log.read_text(encoding="utf-8").splitlines()[1:]:
            files[json.loads(line)["path"].removeprefix("file://")] = None
    return list(files)
