"""The background thread: one job at a time, the newest of each key, and an end that does not wait for ever."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from functools import partial
from pathlib import Path

import pytest

from holdfast.checkpoint import background as background_module
from holdfast.checkpoint.background import Background, process_background


def test_jobs_run_one_at_a_time_and_the_newest_of_a_key_replaces_those_that_wait():
    background, gate = Background(), threading.Event()
    done: list[tuple[str, int]] = []

    def pass_the_gate() -> None:
        gate.wait()

    background.submit("gate", pass_the_gate)
    for i in range(10):
        background.submit("a", partial(done.append, ("a", i)))
        background.submit("b", partial(done.append, ("b", i)))
    assert not background.drain(0.05)
    gate.set()
    assert background.drain(120)
    assert done == [("a", 9), ("b", 9)]


def test_a_job_may_ask_for_another():
    background = Background()
    done = []
    background.submit("a", lambda: background.submit("a", lambda: done.append(1)))
    assert background.drain(120)
    assert done == [1]


@pytest.mark.parametrize("error", [OSError("disk"), MemoryError(), SystemExit(1), KeyboardInterrupt(), ValueError()])
def test_a_job_that_raises_does_not_end_the_thread(error, monkeypatch, caplog):
    background = Background()
    if isinstance(error, ValueError):  # the log itself fails, as on a closed stream
        monkeypatch.setattr(background_module._LOGGER, "exception", lambda *_: 1 / 0)

    def fail():
        raise error

    done = []
    background.submit("a", fail)
    assert background.drain(120)
    background.submit("b", lambda: done.append(1))
    assert background.drain(120)
    assert done == [1]
    assert isinstance(error, ValueError) or "the thread goes on" in caplog.text


def test_a_thread_that_cannot_be_started_costs_no_batch(monkeypatch, caplog):
    background, start, done = Background(), threading.Thread.start, []

    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    background.submit("a", lambda: done.append("a"))
    assert "could not be started" in caplog.text
    monkeypatch.setattr(threading.Thread, "start", start)
    background.submit("b", lambda: done.append("b"))
    assert background.drain(120)
    assert done == ["a", "b"]


def test_an_idle_thread_keeps_nothing_of_its_last_job():
    """It kept the job's key, a slot's state with all its open files, until the next job of any slot."""

    class State:
        pass

    background, state = Background(), State()
    gone = weakref.ref(state)
    background.submit(state, partial(getattr, state, "__class__"))
    del state
    assert background.drain(120)
    gc.collect()
    assert gone() is None


def test_nothing_begins_after_the_end():
    background = Background()
    begun, gate, done = threading.Event(), threading.Event(), []

    def pass_the_gate() -> None:
        begun.set()
        gate.wait()
        done.append("gate")

    background.submit("gate", pass_the_gate)
    assert begun.wait(120)
    background.submit("later", lambda: done.append("later"))
    threading.Timer(0.1, gate.set).start()
    background.stop()
    background.submit("much later", lambda: done.append("much later"))
    time.sleep(0.05)
    assert done == ["gate"]


def test_a_forked_process_starts_its_own():
    """As Spark's worker daemon does."""
    background = process_background()
    done = []
    background.submit("a", lambda: done.append(1))
    assert background.drain(120)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        own = process_background()

        def tell() -> None:
            os.write(write, b"done")

        own.submit("a", tell)
        drained = own.drain(120)
        os._exit(0 if drained and own is not background else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(read, 4) == b"done"
    os.close(read)
    os.close(write)


_ENDS_AT_WORK = """
import sys, threading, time
from holdfast import _core

begun = threading.Event()

def hash_again_and_again():
    while True:
        begun.set()
        _core.xxh64_file(sys.argv[1])

threading.Thread(target=hash_again_and_again, daemon=True).start()
begun.wait()
time.sleep(0.2)
"""


@pytest.mark.long
def test_a_process_that_ends_while_the_core_is_at_work_in_the_background_ends_well(tmp_path: Path) -> None:
    """A fold took longer than one waits for it: "terminate called without an active exception", and exit code 134, of a
    program that had done all that it should.
    """
    path = tmp_path / "large"
    path.write_bytes(bytes(64 << 20))  # some milliseconds without the interpreter's lock, and none with it
    ended = subprocess.run(
        [sys.executable, "-c", _ENDS_AT_WORK, str(path)], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


_FORKS_AT_WORK = """
import os, signal, sys, threading
from holdfast.checkpoint.background import process_background

background, held = process_background(), threading.Event()

def hold():
    with background._changed:  # as for a moment with each job
        held.set()
        threading.Event().wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)
"""


@pytest.mark.long
def test_a_child_that_is_forked_while_the_background_is_at_work_comes_to_its_end() -> None:
    """It waited for a lock of a thread that it does not have, for ever."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _FORKS_AT_WORK]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (told.stdout, told.stderr) == ("3\n", "")
