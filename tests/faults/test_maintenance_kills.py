"""kill -9 of what a user does with checkpoints and savepoints, each command a process of its own, at every change of
files that it makes: what it was made of stays whole, half of a savepoint is none, and run again it comes to its end.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.faults.command_process import END
from tests.faults.kill_plan import RANDOM, Coverage, Kill, Pair
from tests.faults.maintenance import OPERATOR, Command, Past, commands
from tests.faults.stored_state import read_each
from tests.spark_sessions import ROOT

KILLS = int(os.environ.get("HOLDFAST_KILLS", "20"))  # of each pair, in the long form
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
_MANIFEST = ("write: document", "name: savepoint.json", "drop: document")
# A table is written where it stays: under its temporary name it looks like any document.
_TABLES = ("write: work", "make folder", "name: table", *_MANIFEST)
_SNAPSHOT = ("write: sst", "name: sst", "drop: sst", "write: snapshot", "name: snapshot", "drop: snapshot")
_FIRST_VERSIONS = (
    "make folder", "write: document", "name: operator.json", "drop: document", "name: takeover", "write: work",
    *_SNAPSHOT, "name: origin.json",
)  # fmt: skip
#: What each command changes, step by step: each kind of file under its temporary name, under its own, gone.
STEPS: dict[str, tuple[str, ...]] = {
    "create": _TABLES,
    "create native": ("write: work", "make folder", "link: delta", "link: snapshot", "link: sst", *_MANIFEST),
    "convert": _TABLES,
    "to native": ("write: work", "make folder", *_SNAPSHOT, *_MANIFEST),
    "dispose": (
        "link: disposed.json", "delete: savepoint.json", "delete: table", "delete: disposed.json", "remove folder",
    ),
    "dispose native": (
        "link: disposed.json", "delete: savepoint.json", "delete: delta", "delete: snapshot", "delete: sst",
        "delete: disposed.json", "remove folder",
    ),
    "restore": _FIRST_VERSIONS,
    "restore native": _FIRST_VERSIONS,
    "rescale": _FIRST_VERSIONS,
    "gc": (
        "write: work", "write: document", "name: gc-time", "drop: document", "delete: gc-time", "delete: delta",
        "delete: snapshot", "delete: sst",
    ),
    "repair": (
        "write: work", "make folder", "link: damaged", "delete: snapshot", *_SNAPSHOT, "delete: delta", "write: delta",
        "name: delta", "drop: delta",
    ),
}  # fmt: skip
SHORT = (
    Pair("name: table", "create"), Pair("name: savepoint.json", "create"), Pair("drop: document", "create"),
    Pair("link: sst", "create native"), Pair("name: savepoint.json", "create native"),
    Pair("name: table", "convert"), Pair("name: snapshot", "to native"),
    Pair("delete: savepoint.json", "dispose"), Pair("delete: table", "dispose"),
    Pair("delete: sst", "dispose native"), Pair("delete: disposed.json", "dispose native"),
    Pair("name: operator.json", "restore"), Pair("name: origin.json", "restore"),
    Pair("name: snapshot", "restore native"), Pair("name: origin.json", "rescale"),
    Pair("delete: delta", "gc"), Pair("delete: sst", "gc"),
    Pair("delete: delta", "repair"), Pair("name: sst", "repair"), Pair("link: damaged", "repair"),
)  # fmt: skip


class Commands:
    """Where processes of commands come from (tests.faults.command_process)."""

    def __init__(self, folder: Path) -> None:
        self._log = (folder / "commands.txt").open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.command_process"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def live(
        self, folder: Path, command: list[str], step: str | None = None, count: int = 0, after_s: float | None = None
    ) -> dict[str, Any]:
        """A process, to its end or its death."""
        assert self._process.stdin is not None and self._process.stdout is not None
        request = {
            "folder": str(folder), "command": command, "step": step, "count": count, "after_s": after_s,
            "struck": str(folder.with_suffix(".struck")), "output": str(folder.with_suffix(".txt")),
        }  # fmt: skip
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answered: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answered

    def run(self, folder: Path, command: list[str]) -> tuple[int, str]:
        """To its end: its exit code, and what it said."""
        said = folder.with_suffix(".txt")
        said.unlink(missing_ok=True)
        found = self.live(folder, command)
        return found["exit"], said.read_text()

    def end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(120)
        self._process.stdout.close()
        self._log.close()


class Campaign:
    """Kills, one after the other, and what was found wrong."""

    def __init__(self, folder: Path, processes: Commands) -> None:
        self.folder, self.processes = folder, processes
        (folder / "past").mkdir()
        self.past = Past.made(folder / "past")
        self.commands = {command.name: command for command in commands(self.past)}
        self.draw = random.Random(SEED)
        self.steps: dict[str, dict[str, int]] = {}  #: of each command that nobody kills, how often it comes to each
        self.seconds: dict[str, float] = {}
        self.tries = 0

    def learn(self, command: Command) -> None:
        """Runs it whole."""
        folder = self._new()
        given, began = command.prepare(folder), time.monotonic()
        code, said = self.processes.run(folder, given)
        self.seconds[command.name] = time.monotonic() - began
        assert code == 0, f"{command.name}: {said}"
        assert command.ended(folder) == []
        self.steps[command.name] = json.loads(folder.with_suffix(".struck.steps").read_text())

    def strike(self, pair: Pair, coverage: Coverage) -> None:
        """One try, its evidence, and what is wrong after it."""
        command, cell, folder = self.commands[pair.who], coverage.cells[pair], self._new()
        given = command.prepare(folder)
        if pair.step == RANDOM:
            soon_s = self.draw.uniform(0, self.seconds[pair.who] / 2)  # nobody learned it on a machine at rest
            found = self.processes.live(folder, given, after_s=soon_s)
        else:
            count = self.draw.randint(1, self.steps[pair.who][pair.step])
            found = self.processes.live(folder, given, pair.step, count)
            struck = folder.with_suffix(".struck")
            assert found["stood"] == struck.exists() and (not found["stood"] or struck.read_text() == pair.step)
        if not found["killed"] or (pair.step != RANDOM and not found["stood"]):
            cell.missed += 1
            return
        cell.kills.append(Kill(self.past.newest, found["pid"] if found["stood"] else None, (found["pid"],)))
        wrong = command.killed(folder, self.processes.run)
        wrong += command.again(folder, given, self.processes.run)
        wrong += command.ended(folder) if not wrong else []
        cell.differences += [f"{pair}, in {folder}: {one}" for one in wrong]
        if not wrong and not command.read_later:
            shutil.rmtree(folder)

    def read(self) -> list[str]:
        """The rows that only RocksDB knows, of all tries since the last time."""
        found = []
        for command in self.commands.values():
            for stored, states in zip(command.read_later, read_each(command.read_later)):
                if states != self.past.expected:
                    found.append(f"{command.name}, in {stored.store}: other rows than {OPERATOR} had")
            for stored in command.read_later:
                shutil.rmtree(self.folder / stored.store.relative_to(self.folder).parts[0], ignore_errors=True)
            command.read_later.clear()
        return found

    def prove(self, coverage: Coverage) -> None:
        differences = []
        for number, pair in enumerate(coverage.left(SEED)):
            self.strike(pair, coverage)
            if number % 200 == 199:
                differences += self.read()
        differences += self.read()
        print(f"seed {SEED}", coverage.table(), sep="\n")
        differences += [one for cell in coverage.cells.values() for one in cell.differences]
        assert differences == []
        assert coverage.missing == []

    def _new(self) -> Path:
        self.tries += 1
        folder = self.folder / f"try-{self.tries}"
        folder.mkdir()
        return folder


@contextmanager
def campaign(folder: Path) -> Iterator[Campaign]:
    processes = Commands(folder)
    try:
        yield Campaign(folder, processes)
    finally:
        processes.end()


def all_pairs(kills: int) -> Coverage:
    every = dict.fromkeys(step for steps in STEPS.values() for step in steps)

    def impossible(pair: Pair) -> str | None:
        return None if pair.step in (*STEPS[pair.who], END, RANDOM) else "the command does no such thing"

    return Coverage([*every, END, RANDOM], STEPS, impossible, kills)


def test_maintenance_that_is_killed_loses_nothing_and_leaves_no_half(tmp_path: Path) -> None:
    with campaign(tmp_path) as found:
        for name in dict.fromkeys(pair.who for pair in SHORT):
            found.learn(found.commands[name])
            assert set(found.steps[name]) == {*STEPS[name], END}, f"{name} has other steps than the table says"
        found.prove(Coverage.of(SHORT))


@pytest.mark.slow
@pytest.mark.timeout(36_000)
def test_maintenance_that_is_killed_at_every_step_loses_nothing_and_leaves_no_half(tmp_path: Path) -> None:
    with campaign(tmp_path) as found:
        for command in found.commands.values():
            found.learn(command)
        assert {name: set(steps) for name, steps in found.steps.items()} == {
            name: {*steps, END} for name, steps in STEPS.items()
        }
        found.prove(all_pairs(KILLS))
