"""The job as a child process in a session of its own: started, watched, killed whole (driver, JVM, Python workers)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


class JobSession:
    """One run of job.py. Its output goes to job.log."""

    def __init__(self, folder: Path) -> None:
        self._log = open(folder / "job.log", "ab")  # noqa: SIM115  (closed with the session)
        job = Path(__file__).with_name("job.py")
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        self._process = subprocess.Popen(
            [sys.executable, str(job), str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
            env=environment,
        )

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def kill(self) -> int:
        """SIGKILL to every process of the session. Returns how many there were."""
        killed = 0
        while members := self._members():
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
            self._process.poll()
            time.sleep(0.05)
        self._process.wait()
        self._log.close()
        return killed

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


def progress(folder: Path) -> list[dict[str, Any]]:
    """What the job told of finished batches in all its runs. A line that the kill cut short is left out."""
    with contextlib.suppress(FileNotFoundError):
        text = (folder / "progress.jsonl").read_text(encoding="utf-8")
        lines = [line for line in text.split("\n")[:-1] if line.endswith("}") and line.startswith("{")]
        return [json.loads(line) for line in lines]
    return []


def committed_batches(folder: Path) -> int:
    """How many batches Spark has committed: the files of its commit log."""
    return len([path for path in (folder / "checkpoint" / "commits").glob("*") if path.name.isdigit()])


def planned_batches(folder: Path) -> int:
    """How many batches Spark has begun: the files of its offset log."""
    return len([path for path in (folder / "checkpoint" / "offsets").glob("*") if path.name.isdigit()])


def committed_files(folder: Path) -> list[str]:
    """Output files that Spark's file sink has committed. Others, left by the batch that was killed, do not count."""
    files: dict[str, None] = {}
    for log in sorted((folder / "rows" / "_spark_metadata").glob("[0-9]*")):
        for line in log.read_text(encoding="utf-8").splitlines()[1:]:
            files[json.loads(line)["path"].removeprefix("file://")] = None
    return list(files)
