"""How a command ends that is told to, by `timeout`, cron, systemd or a terminal that closes: as by Ctrl-C, so that what
it brought to this machine goes with it.

That has to wait for a call of C, as of RocksDB, to return. Who says it a second time waits for nothing: a thread reads
the signals as they come, and ends the process. What it had brought is left to the next reader, as after a kill -9.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

import click

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_NO_SIGNAL = b"\0"


def end_when_told(context: click.Context) -> None:
    """From here to the end of the command. Who ignores a signal, as under nohup, goes on to."""
    if threading.current_thread() is not threading.main_thread():
        return  # no signal comes to it
    ours = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    if not ours:
        return
    _end_at_once_when_told_again(context)
    for number in ours:
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


def _end_at_once_when_told_again(context: click.Context) -> None:
    """Python notes each signal in a pipe as it comes, whatever its main thread does."""
    noted, note = os.pipe()
    os.set_blocking(note, False)
    before = signal.set_wakeup_fd(note, warn_on_full_buffer=False)
    waiting = threading.Thread(target=_wait_for_the_second, args=(noted,), name="holdfast-ending", daemon=True)
    waiting.start()

    def stop() -> None:
        signal.set_wakeup_fd(before)
        os.write(note, _NO_SIGNAL)
        waiting.join()
        os.close(note)
        os.close(noted)

    context.call_on_close(stop)


def _wait_for_the_second(noted: int) -> None:
    told = 0
    while (number := os.read(noted, 1)) != _NO_SIGNAL:
        told += number[0] in _SIGNALS
        if told == 2:
            os._exit(128 + number[0])
