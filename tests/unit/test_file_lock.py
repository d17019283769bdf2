"""Locks on files, while a processor's own code forks: its children keep none of them."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.checkpoint import host
from holdfast.checkpoint.slot_folder import SlotFolder
from holdfast.checkpoint.unused_folders import clear_unused
from holdfast.clock import new_id

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


class Children:
    """Forked, and alive until all is over, as a server is that a processor starts."""

    def __init__(self) -> None:
        self._pids: list[int] = []
        self._ends = os.pipe()

    def fork(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of other threads: the child only waits
            pid = os.fork()
        if pid == 0:
            try:
                os.close(self._ends[1])
                os.read(self._ends[0], 1)
            finally:
                os._exit(0)
        self._pids.append(pid)

    def end(self) -> None:
        for end in self._ends:
            os.close(end)
        for pid in self._pids:
            os.waitpid(pid, 0)


@pytest.fixture
def children() -> Iterator[Children]:
    made = Children()
    yield made
    made.end()


def slot_folder(local_dir: Path, slot: int = 0) -> SlotFolder:
    return SlotFolder(str(local_dir), "s3://bucket/x", "query/op", slot, new_id)


def test_a_child_that_is_forked_during_a_fold_does_not_keep_the_next_one_off(
    tmp_path: Path, children: Children
) -> None:
    """Nothing was folded, uploaded or retained on this host, without a word, for as long as the child lived."""
    folder = slot_folder(tmp_path)
    with folder.maintenance_lock() as is_mine:
        assert is_mine
        children.fork()
        with folder.maintenance_lock() as of_another:
            assert not of_another, "the fold is not over"
    with folder.maintenance_lock() as is_mine:
        assert is_mine


def test_a_child_that_is_forked_while_unused_folders_are_cleared_does_not_keep_others_from_it(
    tmp_path: Path, children: Children
) -> None:
    folders = [slot_folder(tmp_path, slot) for slot in range(2)]
    folders[0].touch(NOW_MS - 2 * HOUR_MS)

    def forking() -> str:
        children.fork()
        return new_id()

    folders[1].touch(NOW_MS)
    assert clear_unused(str(tmp_path), NOW_MS, HOUR_MS, forking) == 1
    assert clear_unused(str(tmp_path), NOW_MS + 2 * HOUR_MS, HOUR_MS, new_id) == 1


def test_a_child_that_is_forked_while_a_folder_is_claimed_does_not_keep_others_waiting(
    tmp_path: Path, children: Children
) -> None:
    with host._alone(str(tmp_path)):
        children.fork()
    with open(tmp_path / "HOST.claim") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: somebody holds it


_KILLED = """
import os, sys, signal
from holdfast.checkpoint.slot_folder import SlotFolder
from holdfast.clock import new_id
folder = SlotFolder(sys.argv[1], "s3://bucket/x", "query/op", 0, new_id)
work = folder.new_work()
with folder.maintenance_lock():
    if os.fork() == 0:
        print("there", flush=True)
        sys.stdin.read()
        os._exit(0)
    signal.pause()
"""


@contextmanager
def killed_with_a_child(local_dir: Path) -> Iterator[None]:
    command = [sys.executable, "-c", _KILLED, str(local_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "there\n"
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        yield


@pytest.mark.long
def test_a_child_that_outlives_a_worker_that_was_killed_holds_nothing_of_its(tmp_path: Path) -> None:
    with killed_with_a_child(tmp_path):
        folder = slot_folder(tmp_path)
        with folder.maintenance_lock() as is_mine:
            assert is_mine
        assert folder.clear_abandoned() == 1


def test_a_child_that_leaves_by_its_own_way_removes_nothing_of_its_parents(tmp_path: Path) -> None:
    """One that a plain os.fork() made, and that raises SystemExit through the lines that made the folder."""
    with slot_folder(tmp_path).new_work() as work:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            try:
                work.close()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        assert os.path.isdir(work.path)
    assert not os.path.exists(work.path)
