"""Memory cgroups: a process and all that it starts, JVM and workers among them, with so much memory for all together.

The limit is the kernel's: what it counts is anonymous memory and the page cache of the files that they touch; the cache
is given up first, and where that is not enough the kernel kills. Version 1 and 2 of the interface.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.control_group import ControlGroup, new_group


@dataclass
class Ran:
    """How a command went: its exit code and output, the peak of its anonymous memory, whether the kernel killed."""

    code: int
    said: str
    anonymous_peak_bytes: int
    killed: bool


def run_within(command: Sequence[str], cwd: Path, limit_bytes: int | None) -> Ran:
    """Runs a command to its end with so much memory; None: with all that the machine has.

    Raises
    ------
    SystemExit
        No memory cgroup can be made here.
    """
    with _group() as group:
        if limit_bytes is not None:
            group.limit(limit_bytes)
        # The shell enters the group and becomes the command, so that nothing of it is ever outside.
        entering = ["/bin/sh", "-c", 'echo $$ >"$0" && exec "$@"', str(group.processes), *command]
        # Into a file: a JVM that outlives its program holds a pipe open for ever.
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8") as said,
            subprocess.Popen(entering, cwd=cwd, stdout=said, start_new_session=True) as child,
        ):
            peak = _Peak(group)
            child.wait()
            said.seek(0)
            return Ran(child.returncode, said.read(), peak.stop(), group.kills() > 0)


class _Group(ControlGroup):
    """One with a limit on memory, whose peak is watched."""

    def limit(self, limit_bytes: int) -> None:
        """Swap is not for going beyond it."""
        (self.path / ("memory.max" if self.second else "memory.limit_in_bytes")).write_text(f"{limit_bytes}")
        with contextlib.suppress(OSError):  # a kernel that counts no swap has no such file
            if self.second:
                (self.path / "memory.swap.max").write_text("0")
            else:
                (self.path / "memory.memsw.limit_in_bytes").write_text(f"{limit_bytes}")

    def anonymous_bytes(self) -> int:
        return self._read("memory.stat", "anon" if self.second else "total_rss")

    def kills(self) -> int:
        return self._read("memory.events" if self.second else "memory.oom_control", "oom_kill")

    def _read(self, file: str, name: str) -> int:
        for line in (self.path / file).read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
        return 0


@contextlib.contextmanager
def _group() -> Iterator[_Group]:
    try:
        group = _Group(*new_group("memory", f"holdfast-bench-{uuid.uuid4().hex[:8]}", within_own=False))
    except OSError as error:
        raise SystemExit(
            f"expected to be able to make a memory cgroup, found {error}: run this as root, or where that "
            "folder may be written"
        ) from error
    try:
        yield group
    finally:
        _end(group)


def _end(group: _Group) -> None:
    """What is still alive in it is killed; a group is gone when its last process is."""
    for _ in range(200):
        with contextlib.suppress(FileNotFoundError):
            for process in group.processes.read_text(encoding="utf-8").split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), 9)
        with contextlib.suppress(OSError):
            group.path.rmdir()
            return
        time.sleep(0.05)
    raise RuntimeError(f"{group.path} has processes that cannot be killed")


class _Peak:
    """Looks at a group 20 times a second."""

    def __init__(self, group: _Group) -> None:
        self._group, self._bytes = group, 0
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._enough.wait(0.05):
            self._bytes = max(self._bytes, self._group.anonymous_bytes())

    def stop(self) -> int:
        """The peak."""
        self._enough.set()
        self._thread.join()
        return self._bytes
