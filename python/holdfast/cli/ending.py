"""How a command ends that is told to, by `timeout`, cron, systemd or a terminal that closes: as by Ctrl-C, so that what
it brought to this machine goes with it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

import click

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def end_when_told(context: click.Context) -> None:
    """From here to the end of the command. Who ignores a signal, as under nohup, goes on to."""
    if threading.current_thread() is not threading.main_thread():
        return  # no signal comes to it
    for number in _SIGNALS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)
            context.call_on_close(lambda number=number: signal.signal(number, signal.SIG_DFL))


def _end(number: int, frame: FrameType | None) -> None:
    for one in _SIGNALS:  # who is in a hurry says it again
        if signal.getsignal(one) is _end:
            signal.signal(one, signal.SIG_DFL)
    # What is not yet written is given up: who was to read it may not read on, and the end would wait for it.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    sys.exit(128 + number)
