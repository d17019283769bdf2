"""Test equipment: places where the crash harness kills this process, as a kill -9 would.

``HOLDFAST_FAULT_POINT=during_fold:2`` kills the process when it reaches ``during_fold`` for the second time. With
``HOLDFAST_FAULT_MARKER=<path>``, a file that is made just before, only the first process to get there dies. With
``HOLDFAST_FAULT_SIGNAL=SIGSTOP`` it falls asleep instead, until somebody wakes it: a zombie.
Without the first variable a call costs one dictionary look-up and does nothing.
"""

from __future__ import annotations

import os
import signal

POINTS = (
    "after_open", "during_restore", "during_spill", "before_delta", "after_delta", "during_fold", "after_fold",
    "during_snapshot", "before_manifest", "after_snapshot", "during_retention",
)  # fmt: skip
#: Of exactly-once output: in a sink's task, and on the driver.
SINK_POINTS = ("sink_open", "sink_mid", "sink_before_prepare", "sink_after_prepare")
COMMIT_POINTS = ("before_record", "after_record", "mid_commit", "after_commit", "during_recover")
_reached: dict[str, int] = {}


def reach(point: str) -> None:
    """Says that ``point`` was reached; does not return when the harness wants a crash here."""
    wanted = os.environ.get("HOLDFAST_FAULT_POINT")
    if not wanted:
        return
    name, _, count = wanted.partition(":")
    if name != point:
        return
    _reached[point] = _reached.get(point, 0) + 1
    if _reached[point] == int(count or 1) and _first():
        os.kill(os.getpid(), signal.Signals[os.environ.get("HOLDFAST_FAULT_SIGNAL", "SIGKILL")])


def _first() -> bool:
    marker = os.environ.get("HOLDFAST_FAULT_MARKER")
    if not marker:
        return True
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True
