"""A process for each command, which stands still at a change of files that was chosen, and is killed there.

``python -m tests.faults.command_process``: reads requests, a line of JSON each, and answers with a line. It has loaded
what commands need, and forks for each, so that thousands of kills take minutes. What a command changes in its folder is
seen by Python's own audit events, just before it happens: nothing of Holdfast is wrapped, and no step can be forgotten.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

#: In the folder: what nobody reads once the process is dead; and Spark's part, which is none of ours.
WORK, SPARKS = ("tmp", "local"), "next"
#: After the last change, before the process ends.
END = "end"
_FOLDERS = ("delta", "snapshot", "sst", "damaged", "states", "runs", "claims")


class Watch:
    """Counts the steps of this process; stands still at the one that is wanted."""

    def __init__(self, folder: str, step: str | None, count: int, struck: str) -> None:
        self._folder, self._step, self._count, self._struck = folder + "/", step, count, struck
        self._lock = threading.Lock()
        self.steps: Counter[str] = Counter()

    def see(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit event: the change has not been made yet."""
        step = step_of(event, arguments, self._folder)
        if step is not None:
            self.reach(step)

    def reach(self, step: str) -> None:
        with self._lock:
            self.steps[step] += 1
            wanted = step == self._step and self.steps[step] == self._count
        if wanted:
            self._step = None
            with open(self._struck, "w") as file:
                file.write(step)
            os.kill(os.getpid(), signal.SIGSTOP)
            while True:  # nobody wakes it: it dies here
                time.sleep(60)


def step_of(event: str, arguments: tuple[Any, ...], folder: str) -> str | None:
    """What is about to change in the folder, by verb and sort of file; None: nothing does."""
    if event == "open":
        path, _, flags = arguments
        return _told("write", path, folder) if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) else None
    if event == "os.link":
        source, target = arguments[:2]
        return _told("name" if _is_temporary(source) else "link", target, folder)
    verbs = {"os.remove": "delete", "os.rmdir": "remove folder", "os.mkdir": "make folder", "os.rename": "rename"}
    if event not in verbs:
        return None
    if event == "os.remove" and _is_temporary(arguments[0]):
        return _told("drop", arguments[0], folder)
    return _told(verbs[event], arguments[-1] if event == "os.rename" else arguments[0], folder)


def _told(verb: str, path: Any, folder: str) -> str | None:
    if not isinstance(path, str) or not os.path.abspath(path).startswith(folder):
        return None
    parts = os.path.abspath(path)[len(folder) :].split("/")
    if parts[0] == SPARKS:
        return None
    if parts[0] in WORK:
        return f"{verb}: work" if verb == "write" else None
    if "folder" in verb:
        return verb
    return f"{verb}: {_sort(parts)}"


def _sort(parts: list[str]) -> str:
    name, parent = parts[-1], parts[-2] if len(parts) > 1 else ""
    if parent in _FOLDERS:
        return parent
    if "operators" in parts:
        return "table"
    if _is_temporary(name):
        return "document"
    for begin in ("takeover", "gc-time"):
        if name.startswith(begin):
            return begin
    return name


def _is_temporary(path: Any) -> bool:
    return os.path.basename(str(path)).startswith(".tmp-")


def live(request: dict[str, Any]) -> None:
    """In the process of the command, to its end."""
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    tempfile.tempdir = os.path.join(request["folder"], "tmp")
    os.makedirs(tempfile.tempdir, exist_ok=True)
    random.seed()
    watch = Watch(request["folder"], request["step"], request["count"], request["struck"])
    sys.addaudithook(watch.see)
    code = 1
    try:
        code = _run(*request["command"])
    except BaseException:
        import traceback

        traceback.print_exc()
    watch.reach(END)
    with open(request["struck"] + ".steps", "w") as file:
        json.dump(watch.steps, file)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(program: str, *arguments: str) -> int:
    from tests.faults import begin_slots

    from holdfast.cli import main

    programs: dict[str, Callable[..., Any]] = {"holdfast": lambda *given: main(given), "begin": begin_slots.main}
    try:
        programs[program](*arguments)
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else 1
    return 0


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Runs a command; kills it where it stands still, or after ``after_s``. How it ended."""
    child = os.fork()
    if not child:
        live(request)
    if request["after_s"] is not None:
        time.sleep(request["after_s"])
        os.kill(child, signal.SIGKILL)  # it is no zombie before it is waited for
    _, status = os.waitpid(child, os.WUNTRACED)
    stood = os.WIFSTOPPED(status)
    if stood:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return {
        "pid": child,
        "stood": stood,
        "killed": killed,
        "exit": None if killed else os.waitstatus_to_exitcode(status),
    }


def main() -> None:
    # Loaded once, by which no thread starts: who forks has one only.
    import pyarrow.parquet  # noqa: F401
    from tests.faults import begin_slots  # noqa: F401

    import holdfast.cli  # noqa: F401
    from holdfast import rocksdb_library
    from holdfast.checkpoint import from_savepoint  # noqa: F401

    rocksdb_library.load()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
