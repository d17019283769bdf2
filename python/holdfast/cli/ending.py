"""How a command ends that is told to, by `timeout`, cron, systemd or a terminal that closes: as by Ctrl-C, so that what
it brought to this machine goes with it.

That has to wait for a call of C, as of RocksDB, to return. Who says it a second time waits for nothing: a thread reads
the signals as they come, and ends the process. What it had brought is left to the next reader, as after a kill -9.
Who closes a terminal says it once, though the shell tells of it and then the kernel, and systemd may send SIGHUP right
behind SIGTERM: what comes within a second of the first is no second time.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

import click

from holdfast.cli.output import give_up
from holdfast.clock import Clock, SystemClock

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_NO_SIGNAL = b"\0"
_SAME_TELLING_MS = 1000


def end_when_told(context: click.Context, clock: Clock | None = None) -> None:
    """From here to the end of the command. Who ignores a signal, as under nohup, goes on to."""
    if threading.current_thread() is not threading.main_thread():
        return  # no signal comes to it
    ours = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    if not ours:
        return
    _end_at_once_when_told_again(context, clock or SystemClock())
    for number in ours:
        signal.signal(number, _end)
        context.call_on_close(lambda number=number: signal.signal(number, signal.SIG_DFL))


def _end(number: int, frame: FrameType | None) -> None:
    for one in _SIGNALS:  # the thread hears who says it again
        if signal.getsignal(one) is _end:
            signal.signal(one, _is_ending)
    # What is not yet written is given up: who was to read it may not read on, and the end would wait for it.
    give_up(1)
    sys.exit(128 + number)


def _is_ending(number: int, frame: FrameType | None) -> None:
    """Raises nothing in the midst of what is being removed."""


def _end_at_once_when_told_again(context: click.Context, clock: Clock) -> None:
    """Python notes each signal in a pipe as it comes, whatever its main thread does."""
    noted, note = os.pipe()
    os.set_blocking(note, False)
    before = signal.set_wakeup_fd(note, warn_on_full_buffer=False)
    waiting = threading.Thread(target=_wait_for_the_second, args=(noted, clock), name="holdfast-ending", daemon=True)
    waiting.start()

    def stop() -> None:
        signal.set_wakeup_fd(before)
        os.write(note, _NO_SIGNAL)
        waiting.join()
        os.close(note)
        os.close(noted)

    context.call_on_close(stop)


def _wait_for_the_second(noted: int, clock: Clock) -> None:
    first_ms: float | None = None
    while (number := os.read(noted, 1)) != _NO_SIGNAL:
        if number[0] not in _SIGNALS:
            continue
        now_ms = clock.elapsed_ms()
        if first_ms is None:
            first_ms = now_ms
        elif now_ms - first_ms >= _SAME_TELLING_MS:
            os._exit(128 + number[0])
