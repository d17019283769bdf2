"""Mutants: one small change at a time in a room of the package, to see whether a test notices. `make mutants`.

mutmut says what is changed. Nothing is written into the tree: the tests are collected once, each mutant is put into a
fork of that process, which runs the tests that come through the changed function, the quickest first, until one fails.
Of the tests, those that name the room and start no JVM. What runs in processes of its own (subprocess, Spark) has no
mutant: other tests hold it, or none. Owner: the main thread.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pickle
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import libcst as cst
import pytest
from mutmut.mutation.file_mutation import create_mutations

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "holdfast"
_FOLDERS = ("unit", "contract", "model", "golden")
#: A mutant that never ends is killed after ten times what its tests took, and this.
_GRACE_S = 60.0
#: How a fork ends that could not try its mutant.
_NOT_TRIED = 97
#: A function, by file and qualified name.
Place = tuple[str, str]


@dataclass(frozen=True)
class Mutant:
    """One change of one function. ``source``: that function's, in its class, without its decorators."""

    place: Place
    source: str
    diff: str


@dataclass
class Running:
    """A fork that tries a mutant. ``killer``: the pipe by which it names the test that failed."""

    mutant: Mutant
    limit_s: float
    killer: int
    folder: str


def mutants_of(path: Path, only: str = "") -> Iterator[Mutant]:
    """All that mutmut makes of a file's functions, or of those whose name matches."""
    module, mutations, _, _ = create_mutations(str(path), path.read_text())
    owners = {
        inner: outer.name.value
        for outer in module.body
        if isinstance(outer, cst.ClassDef) and isinstance(outer.body, cst.IndentedBlock)
        for inner in outer.body.body
    }
    for one in mutations:
        function = one.contained_by_top_level_function
        if not isinstance(function, cst.FunctionDef):
            continue
        owner = owners.get(function)
        name = function.name.value if owner is None else f"{owner}.{function.name.value}"
        if not re.search(only, name):
            continue
        changed = function.deep_replace(one.original_node, one.mutated_node)
        assert isinstance(changed, cst.FunctionDef)
        before, after = _source(function, owner), _source(changed, owner)
        lines = [*unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")][2:]
        yield Mutant((str(path), name), after, "\n".join(line for line in lines if not line.startswith("@@")))


def _source(function: cst.FunctionDef, owner: str | None) -> str:
    body: list[Any] = [function.with_changes(decorators=[], leading_lines=[], lines_after_decorators=[])]
    if owner is not None:
        body = [cst.ClassDef(cst.Name(owner), cst.IndentedBlock(body))]
    return "from __future__ import annotations\n" + cst.Module(body).code


def functions_at(places: set[Place]) -> dict[Place, list[FunctionType]]:
    """The functions of this process that were made at each place."""
    found: dict[Place, list[FunctionType]] = {place: [] for place in places}
    for one in gc.get_objects():
        if type(one) is FunctionType and (one.__code__.co_filename, one.__qualname__) in found:
            found[one.__code__.co_filename, one.__qualname__].append(one)
    return found


def put_in(mutant: Mutant, functions: Sequence[FunctionType]) -> None:
    """Gives each of the functions the mutant's body and defaults, whoever holds it."""
    path, name = mutant.place
    owner, _, short = name.rpartition(".")
    for function in functions:
        space = dict(function.__globals__)
        exec(compile(mutant.source, path, "exec"), space)
        changed = vars(space[owner])[short] if owner else space[short]
        changed = changed if isinstance(changed, FunctionType) else changed.__func__
        function.__code__ = changed.__code__
        function.__defaults__, function.__kwdefaults__ = changed.__defaults__, changed.__kwdefaults__


class Campaign:
    """A plugin of pytest's that tries mutants where the tests would run."""

    def __init__(self, mutants: Sequence[Mutant], jobs: int, out: Path) -> None:
        self._mutants = mutants
        self._jobs = jobs
        self._out = out
        self._places = {one.place for one in mutants}
        self._killer = -1  # in a fork that tries a mutant
        self.verdicts: Counter[str] = Counter()

    @staticmethod
    def pytest_configure() -> None:
        """After conftest.py, whose profile is another, and before the tests are loaded."""
        from hypothesis import HealthCheck, Phase, settings  # pytest wants to import it first

        phases = [Phase.explicit, Phase.generate]  # what fails need not be small
        checks = list(HealthCheck)
        settings.register_profile(
            "mutants", database=None, deadline=None, derandomize=True, phases=phases, suppress_health_check=checks
        )
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._killer >= 0:
            os.write(self._killer, report.nodeid.encode())
            os._exit(1)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of pytest's own."""
        if session.testsfailed:
            raise session.Failed("tests cannot be loaded")
        functions = functions_at(self._places)
        gc.freeze()  # forks share it
        durations_s, tests = self._first_run(session, functions)
        queue = list(self._mutants)[::-1]
        running: dict[int, Running] = {}
        while queue or running:
            while queue and len(running) < self._jobs:
                mutant = queue.pop()
                items = sorted(tests[mutant.place], key=lambda one: durations_s[one.nodeid])
                if not items:
                    self._tell(mutant, "no test", "")
                    continue
                limit_s = time.monotonic() + _GRACE_S + 10 * sum(durations_s[one.nodeid] for one in items)
                reader, writer = os.pipe()
                one = Running(mutant, limit_s, reader, tempfile.mkdtemp(prefix="mutant-"))
                pid = os.fork()
                if pid == 0:
                    self._killer = writer
                    self._try(session, items, one, functions[mutant.place])
                os.close(writer)
                running[pid] = one
            for pid in list(running):
                self._look(pid, running)
            time.sleep(0.02)
        return True

    def _first_run(
        self, session: pytest.Session, functions: dict[Place, list[FunctionType]]
    ) -> tuple[dict[str, float], dict[Place, list[pytest.Item]]]:
        """How long each test takes, and which come through each function. In a fork, so that nothing stays behind."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(_watched(session, functions), pipe)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            durations_s, seen, failed = pickle.load(pipe)
        os.waitpid(pid, 0)
        for nodeid in failed:
            _say(f"left out, since it fails without a mutant: {nodeid}")
        tests: dict[Place, list[pytest.Item]] = defaultdict(list)
        for item in session.items:
            for place in seen.get(item.nodeid, ()) if item.nodeid not in failed else ():
                tests[place].append(item)
        _say(f"{len(durations_s)} tests, {sum(durations_s.values()):.0f} s; {len(self._mutants)} mutants")
        return durations_s, tests

    def _try(
        self, session: pytest.Session, items: list[pytest.Item], one: Running, functions: Sequence[FunctionType]
    ) -> None:
        try:
            os.setpgid(0, 0)
            session.config.pluginmanager.unregister(name="terminalreporter")
            session.config._tmp_path_factory._basetemp = Path(one.folder)  # type: ignore[attr-defined]
            put_in(one.mutant, functions)
            for item, after in zip(items, [*items[1:], None]):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            os._exit(0)
        except BaseException as error:
            os.write(self._killer, repr(error).encode())
            os._exit(_NOT_TRIED)

    def _look(self, pid: int, running: dict[int, Running]) -> None:
        one = running[pid]
        done, status = os.waitpid(pid, os.WNOHANG)
        if not done:
            if time.monotonic() < one.limit_s:
                return
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        told = os.read(one.killer, 4096).decode()
        if done and os.waitstatus_to_exitcode(status) == _NOT_TRIED:
            raise RuntimeError(f"a mutant of {one.mutant.place[1]} could not be tried: {told}\n{one.mutant.diff}")
        verdict = "killed by time" if not done else "survived" if status == 0 else "killed"
        self._tell(one.mutant, verdict, told)
        os.close(one.killer)
        shutil.rmtree(one.folder, ignore_errors=True)
        del running[pid]

    def _tell(self, mutant: Mutant, verdict: str, killer: str) -> None:
        self.verdicts[verdict] += 1
        path, name = mutant.place
        told = {"file": str(Path(path).relative_to(ROOT)), "function": name, "verdict": verdict}
        with self._out.open("a") as out:
            out.write(json.dumps({**told, "by": killer, "diff": mutant.diff}) + "\n")
        if verdict in ("survived", "no test"):
            _say(f"\n{told['file']} {name}: {verdict}\n{mutant.diff}")


def _watched(
    session: pytest.Session, functions: dict[Place, list[FunctionType]]
) -> tuple[dict[str, float], dict[str, set[Place]], set[str]]:
    """Runs all tests: their durations, which of the functions each came through, and those that failed."""
    places = {id(one.__code__): place for place, made in functions.items() for one in made}
    session.config.pluginmanager.unregister(name="terminalreporter")
    durations_s: dict[str, float] = defaultdict(float)
    seen: dict[str, set[Place]] = defaultdict(set)
    failed: set[str] = set()
    current = ""

    def called(frame: FrameType, _: str, __: object) -> None:
        place = places.get(id(frame.f_code))
        if place is not None:
            seen[current].add(place)

    class Watch:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            durations_s[report.nodeid] += report.duration
            if report.failed:
                failed.add(report.nodeid)

    session.config.pluginmanager.register(Watch())
    for item, after in zip(session.items, [*session.items[1:], None]):
        current = item.nodeid
        threading.settrace(called)
        sys.settrace(called)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
    return dict(durations_s), dict(seen), failed


def _say(text: str) -> None:
    print(text, file=sys.__stdout__, flush=True)


def tests_of(room: str) -> list[str]:
    """Files of tests that name the room, or something of tests/ that does."""
    names_it = re.compile(rf"holdfast\.{room}\b")
    named = [one.stem for one in (ROOT / "tests").glob("*.py") if names_it.search(one.read_text())]
    wanted = re.compile("|".join([names_it.pattern, *(rf"tests\.{one}\b" for one in named)]))
    found = (path for folder in _FOLDERS for path in sorted((ROOT / "tests" / folder).glob("test_*.py")))
    return [str(path.relative_to(ROOT)) for path in found if wanted.search(path.read_text())]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", help="a room, or one file of it: commit, commit/record.py")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="functions whose name matches")
    parser.add_argument("--again", type=Path, help="only what survived there: an --out of before")
    parser.add_argument("--tests", nargs="+", help="files of tests; without, all that name the room")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "mutants.jsonl", help="one line a mutant")
    chosen = parser.parse_args()
    part = PACKAGE / chosen.part
    files = sorted(part.glob("*.py")) if part.is_dir() else [part]
    mutants = [one for file in files for one in mutants_of(file, chosen.only)]
    if chosen.again:
        told = map(json.loads, chosen.again.read_text().splitlines())
        left = {(one["function"], one["diff"]) for one in told if one["verdict"] in ("survived", "no test")}
        mutants = [one for one in mutants if (one.place[1], one.diff) in left]
    chosen.out.parent.mkdir(exist_ok=True)
    chosen.out.write_text("")
    campaign = Campaign(mutants, chosen.jobs, chosen.out)
    arguments = ["-q", "-p", "no:benchmark", "-p", "no:xdist", "-m", "not slow and not spark"]
    tests = chosen.tests or tests_of(chosen.part.partition("/")[0])
    ended = pytest.main([*arguments, *tests], plugins=[campaign])
    _say(f"{len(mutants)} mutants: {dict(campaign.verdicts)}; each in {chosen.out}")
    return 0 if ended in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) else 1


if __name__ == "__main__":
    sys.exit(main())
