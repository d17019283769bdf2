"""Test equipment: places where a crash harness kills this process, as a kill -9 would.

``HOLDFAST_FAULT_FILE=<path>`` names a file that may come and go while processes run. While it says ``during_fold:2``,
the first process to reach ``during_fold`` twice from then on dies there; with ``during_fold:2:SIGSTOP`` it falls asleep
instead, until somebody wakes it: a zombie. Just before, it renames the file to ``<path>.struck``: so only one process
is struck, and the harness knows. Without the variable a call costs one look-up in a dictionary; with it, one stat.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass

VARIABLE = "HOLDFAST_FAULT_FILE"
POINTS = (
    "after_open", "during_restore", "during_spill", "before_delta", "after_delta", "during_fold", "after_fold",
    "during_snapshot", "before_manifest", "after_snapshot", "during_retention",
)  # fmt: skip
#: Of the first version of a slot whose generation has an origin.
ORIGIN_POINTS = ("during_origin", "before_origin")
#: Of exactly-once output: in a sink's task, and on the driver.
SINK_POINTS = ("sink_open", "sink_mid", "sink_before_prepare", "sink_after_prepare")
COMMIT_POINTS = ("before_record", "after_record", "mid_commit", "after_commit", "during_recover")


@dataclass
class _Fault:
    """What the file says, and how often this process has been there since it says so."""

    file: tuple[int, int]
    point: str
    count: int
    signal: signal.Signals
    reached: int = 0


_armed: _Fault | None = None
_counting = threading.Lock()  # a point may be reached in several threads


def reach(point: str) -> None:
    """Says that ``point`` was reached; does not return when the harness wants a crash here."""
    path = os.environ.get(VARIABLE)
    if path:
        _strike(path, point)


def _strike(path: str, point: str) -> None:
    try:
        fault = _fault_of(path)
        if fault.point != point:
            return
        with _counting:
            fault.reached += 1
            reached = fault.reached
        if reached != fault.count:
            return
        os.rename(path, path + ".struck")
    except FileNotFoundError:  # nothing is wanted, or another process was the first
        return
    os.kill(os.getpid(), fault.signal)


def _fault_of(path: str) -> _Fault:
    global _armed
    found = os.stat(path)
    file = (found.st_mtime_ns, found.st_ino)
    if _armed is None or _armed.file != file:
        with open(path) as text:
            name, count, *kind = text.read().split(":")
        _armed = _Fault(file, name, int(count), signal.Signals[kind[0] if kind else "SIGKILL"])
    return _armed
