"""Kills one process when its owner dies: ``python -I -S watchdog.py <owner pid> <child pid>``. For Linux.

A broker must not outlive the test run that started it, not even one that was killed with SIGKILL. PR_SET_PDEATHSIG
would fire when the starting *thread* ends, and a pipe stays open in forked children, so this small process watches
both by pidfd. Standard library only.
"""

from __future__ import annotations

import os
import select
import signal
import sys


def watch(owner_pid: int, child_pid: int) -> None:
    """Return once the child is gone; kill it when the owner goes first."""
    # A Ctrl-C in the terminal goes to the whole foreground group; the owner decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        child = os.pidfd_open(child_pid)
    except ProcessLookupError:
        return
    try:
        owner = os.pidfd_open(owner_pid)
    except ProcessLookupError:
        signal.pidfd_send_signal(child, signal.SIGKILL)
        return
    poll = select.poll()
    poll.register(owner, select.POLLIN)
    poll.register(child, select.POLLIN)
    ended = {fd for fd, _ in poll.poll()}
    if owner in ended and child not in ended:
        signal.pidfd_send_signal(child, signal.SIGKILL)


if __name__ == "__main__":
    watch(int(sys.argv[1]), int(sys.argv[2]))
