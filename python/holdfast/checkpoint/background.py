"""The thread that folds, uploads and tidies up: one a process, one job at a time, the newest job of each slot only.

It outlives whatever a job does: without it nothing would be folded, uploaded or deleted any more,
and nobody would know.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress

_STOP_S = 5.0
_LOGGER = logging.getLogger("holdfast.checkpoint")


class Background:
    """Jobs by key: a job that has not begun is replaced by a newer one of its key. A job that raises is over."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[Hashable, Callable[[], None]] = OrderedDict()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._running = False
        self._stopped = False

    def submit(self, key: Hashable, job: Callable[[], None]) -> None:
        with self._changed:
            if self._stopped:
                return
            self._jobs[key] = job
            if self._thread is None or not self._thread.is_alive():
                self._start()
            self._changed.notify_all()

    def drain(self, timeout_s: float | None = None) -> bool:
        """Waits until nothing is left to do; False when that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs and not self._running, timeout_s)

    def stop(self) -> None:
        """Drops what has not begun, and gives what has a moment to end.
        The next process clears what was cut short.
        """
        with self._changed:
            self._stopped = True
            self._jobs.clear()
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_STOP_S)

    def _start(self) -> None:
        """A batch does not fail for want of the thread: the next job tries again, what is late is done in a batch."""
        thread = threading.Thread(target=self._run, name="holdfast-background", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no thread to give
            _LOGGER.warning("the background thread could not be started: %s; the next batch tries again", error)
            return
        self._thread = thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._running = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._jobs or self._stopped)
                if self._stopped:
                    return
                job = self._jobs.popitem(last=False)[1]  # not its key: a slot's state, which may be closed by now
                self._running = True
            try:
                job()
            except BaseException:  # SystemExit too: what ends a job must not end all later ones
                with suppress(Exception):  # a log that cannot be written is no reason either
                    _LOGGER.exception("a job of the background failed; the thread goes on")
            del job  # lets go of the slot's state before it waits


_process: Background | None = None
_lock = threading.Lock()


def process_background() -> Background:
    """The one of this process."""
    global _process
    with _lock:
        if _process is None:
            _process = Background()
            atexit.register(_process.stop)
        return _process


def _forget() -> None:
    """After a fork the child has no threads: it starts anew. Its end would wait for a lock of theirs for ever."""
    global _process, _lock
    if _process is not None:
        atexit.unregister(_process.stop)
    _process = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget)
