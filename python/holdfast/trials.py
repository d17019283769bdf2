"""Trials: another program is run, for a moment, to see whether it does what it must."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping

TRIAL_S_MAX = 120


def run_trial(command: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a trial; one that hangs is killed, and reads as ended by SIGKILL.

    Raises
    ------
    OSError
        The program cannot be started.
    """
    try:
        return subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, errors="replace", timeout=TRIAL_S_MAX
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, -signal.SIGKILL, "", f"no answer within {TRIAL_S_MAX} s")


def last_line(text: str) -> str:
    """Of what a program said; empty when it said nothing."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
