"""A command that is told to end by a signal ends, whatever it is at."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from holdfast.cli.ending import end_when_told

# A call of C, which would take many minutes.
AT_WORK = """
import hashlib, click
from holdfast.cli.ending import end_when_told

@click.command()
@click.pass_context
def main(context):
    end_when_told(context)
    print("at work", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", (1 << 31) - 1)

main()
"""


def hear_hang_ups() -> None:
    """In a child, before its program: the tests' own process may have been started under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def at_work() -> Iterator[subprocess.Popen[bytes]]:
    """A process in the midst of its call."""
    command = [sys.executable, "-c", AT_WORK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=hear_hang_ups) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"at work\n"
        begun = processor_ticks(process.pid)
        until(lambda: processor_ticks(process.pid) > begun + 10)
        yield process
        process.kill()


def processor_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


def is_pending(pid: int, number: int) -> bool:
    """Whether no thread of it has had the signal yet: another of the same number would be one with it."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(mask >> number - 1 & 1 for mask in masks)


def until(reached: Callable[[], bool]) -> None:
    while not reached():
        time.sleep(0.01)


@pytest.mark.long
@pytest.mark.parametrize(
    ("first", "second"), [(signal.SIGTERM, signal.SIGTERM), (signal.SIGHUP, signal.SIGTERM)], ids=["same", "other"]
)
def test_a_command_in_a_long_call_ends_when_it_is_told_again(
    at_work: subprocess.Popen[bytes], first: signal.Signals, second: signal.Signals
) -> None:
    """It went on until the call returned, however often it was told."""
    at_work.send_signal(first)
    until(lambda: not is_pending(at_work.pid, first))
    at_work.send_signal(second)
    assert at_work.wait(60) == 128 + second


@pytest.mark.long
def test_a_command_in_a_long_call_does_not_end_by_other_signals(at_work: subprocess.Popen[bytes]) -> None:
    for _ in range(3):
        at_work.send_signal(signal.SIGINT)
        until(lambda: not is_pending(at_work.pid, signal.SIGINT))
    at_work.send_signal(signal.SIGTERM)
    until(lambda: not is_pending(at_work.pid, signal.SIGTERM))
    begun = processor_ticks(at_work.pid)
    until(lambda: at_work.poll() is not None or processor_ticks(at_work.pid) > begun + 10)
    assert at_work.poll() is None, "told once: the call may yet return"


def test_a_command_that_is_done_leaves_signals_threads_and_files_as_they_were() -> None:
    def now() -> tuple[object, ...]:
        handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
        wakeup = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(wakeup)
        return handlers, wakeup, threading.active_count(), len(os.listdir("/proc/self/fd"))

    before = now()
    with click.Context(click.Command("once")) as context:
        end_when_told(context)
        assert now() != before
    assert now() == before
