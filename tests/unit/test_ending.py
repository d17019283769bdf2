"""A command that is told to end by a signal ends, whatever it is at."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import sys
import termios
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


# Told by itself, and again in the midst of what it does then, by a clock that says so much has passed.
TOLD_TWICE = """
import os, signal, sys, click
from pathlib import Path
from holdfast.cli.ending import end_when_told

class At:
    ms = 0.0

    def elapsed_ms(self):
        Path(sys.argv[3]).open("a").write("asked ")
        return self.ms

def asked(times):
    while not Path(sys.argv[3]).exists() or Path(sys.argv[3]).read_text().split().count("asked") < times:
        pass

@click.command()
@click.pass_context
def main(context):
    at = At()
    end_when_told(context, at)
    try:
        os.kill(os.getpid(), signal.SIGHUP)
        signal.pause()
    finally:
        asked(1)
        at.ms = float(sys.argv[1])
        os.kill(os.getpid(), int(sys.argv[2]))
        asked(2)
        while at.ms >= 1000:
            signal.pause()
        Path(sys.argv[3]).write_text("cleaned")

main([])
"""

# What a command brings to this machine, until its terminal closes.
IN_A_TERMINAL = """
import os, signal, sys, click
from pathlib import Path
from holdfast.cli.ending import end_when_told
from holdfast.inspect.own_folder import OwnFolder

@click.command()
@click.pass_context
def main(context):
    end_when_told(context)
    with OwnFolder(sys.argv[1]) as own:
        for number in range(1000):
            Path(own.path, f"{number}").touch()
        Path(sys.argv[2]).write_text(f"{os.getpid()}\\n")
        signal.pause()

main([])
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

    def is_told() -> bool:  # until it is no more taken for the same telling
        at_work.send_signal(second)
        return at_work.poll() is not None

    until(is_told)
    assert at_work.wait(60) == 128 + second


@pytest.mark.parametrize("second", [signal.SIGHUP, signal.SIGTERM])
@pytest.mark.parametrize(("after_ms", "cleaned"), [(999, True), (1000, False)])
def test_what_tells_twice_within_a_second_tells_once(
    second: signal.Signals, after_ms: int, cleaned: bool, tmp_path: Path
) -> None:
    """A terminal that closes: the shell's signal, then the kernel's, which killed the cleaning."""
    told = tmp_path / "told"
    command = [sys.executable, "-c", TOLD_TWICE, str(after_ms), str(int(second)), str(told)]
    ended = subprocess.run(command, preexec_fn=hear_hang_ups, timeout=60)
    assert ended.returncode == 128 + (signal.SIGHUP if cleaned else second)
    assert (told.read_text() == "cleaned") == cleaned


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash, whose terminal closes")
def test_a_command_whose_terminal_closes_leaves_nothing(tmp_path: Path) -> None:
    place, ready = tmp_path / "place", tmp_path / "ready"
    place.mkdir()
    (tmp_path / "program.py").write_text(IN_A_TERMINAL)

    def in_the_terminal() -> None:
        hear_hang_ups()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    ours, theirs = os.openpty()
    shell = ["bash", "--norc", "--noprofile", "-i"]
    with subprocess.Popen(
        shell, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, preexec_fn=in_the_terminal
    ):
        os.close(theirs)
        os.write(ours, shlex.join([sys.executable, str(tmp_path / "program.py"), str(place), str(ready)]).encode())
        os.write(ours, b"\n")
        until(lambda: ready.exists() and ready.read_text().endswith("\n"))
        assert len(list(place.iterdir())) == 1
        os.close(ours)
    until(lambda: has_ended(int(ready.read_text())))
    assert not list(place.iterdir())


def has_ended(pid: int) -> bool:
    """Nobody may be there to wait for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


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
