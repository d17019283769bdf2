"""Kills of one stream that goes on from run to run: a process stands still at a step, others die, and it is shown that
they did (tests.faults.kill_plan).

Where one worker, the driver's Python, an executor or the broker dies, the running program survives it: a task is tried
again by Spark, a driver's Python is started again for the same JVM (tests.faults.supervised). Where more dies, the
program is started again, and what is left of the old run meets the new one.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import psutil
from tests.faults.kill_plan import RANDOM, Kill, Pair
from tests.faults.program import SECONDS, FaultFile, Program
from tests.spark_jvm import jvm_options

#: What a cluster of two executors in one machine takes, and how they learn of faults.
CLUSTER = (
    *("--master", "local-cluster[2,1,1024]", "--conf", "spark.executor.memory=512m"),
    *("--conf", f"spark.executor.extraJavaOptions={jvm_options()}"),
)
#: How a query ends whose processor does not repeat itself, when an executor dies with what earlier stages had shuffled.
NOT_REPEATABLE = "indeterminate output"
_RESTARTS = ("jvm", "driver", "group")


class Outage(Protocol):
    """A broker that goes away and comes back.

    Attributes
    ----------
    seconds
        For how long.
    """

    seconds: float

    def begin(self) -> Sequence[int]:
        """Takes it away. The processes that are dead, or asleep."""

    def end(self) -> None:
        """It is back, and answers."""


@dataclass(frozen=True)
class Strike:
    """What one try came to.

    Attributes
    ----------
    kill
        The evidence; None: the step was not reached.
    failure
        Why the stream did not go on, where it was to; or why it was not reached.
    is_over
        The run is dead: the next strike must start the stream again.
    """

    pair: Pair
    kill: Kill | None
    failure: str | None = None
    is_over: bool = False


class Strikes:
    """Strikes, one after the other.

    Parameters
    ----------
    start
        Starts the program, with the fault file in its environment and, if wanted, on executors.
    step_batches
        A step that is not reached within so many batches is missed.
    """

    def __init__(
        self,
        start: Callable[[bool], Program],
        faults: FaultFile,
        step_batches: int,
        seed: int,
        outage: Outage | None = None,
    ) -> None:
        self._start = start
        self._faults = faults
        self._step_batches = step_batches
        self._outage = outage
        self._random = random.Random(seed)
        self._program: Program | None = None
        self._on_executors = False
        self._left: Program | None = None

    def strike(self, pair: Pair, *, starting: bool = False, is_rare: bool = False) -> Strike:
        """One try at a pair. ``starting``: the step is part of a start, so the driver's Python starts for it.
        ``is_rare``: not every batch comes to it, so the first process that does is held.
        """
        if pair.step == RANDOM:
            program, held = self._running_for(pair.who), None
            begun = program.wait_for(lambda: program.batches > 0)
            time.sleep(self._random.uniform(0.0, 3.0))
            if not begun:
                return Strike(pair, None, program.failure)
        else:
            count = 1 if starting or is_rare else self._random.randint(1, 3)
            program, held = self._hold(pair, starting, count)
            if held is None:
                return Strike(pair, None, program.failure)
        return self._broker_out(pair, program, held) if pair.who == "broker" else self._kill(pair, program, held)

    def _hold(self, pair: Pair, starting: bool, count: int) -> tuple[Program, psutil.Process | None]:
        """The run, and its process that stands still at the step."""
        self._faults.arm(pair.step, count, signal.SIGSTOP)  # first: a start may come by the step at once
        if starting and self._program is not None:
            for process in self._program.of("python"):
                _kill(process)
        program = self._running_for(pair.who)
        last = program.batches + self._step_batches
        program.wait_for(lambda: self._faults.has_struck or program.batches > last, 2 * SECONDS)
        self._faults.disarm()
        deadline = time.monotonic() + 5
        while self._faults.has_struck and time.monotonic() < deadline:
            for process in program.processes():
                if _status(process) == psutil.STATUS_STOPPED:
                    return program, process
            time.sleep(0.01)
        if self._left is not None:  # something of the last run may have been the first to come by
            self._left.end()
            self._left = None
        return program, None

    def _kill(self, pair: Pair, program: Program, held: psutil.Process | None) -> Strike:
        if held is not None:  # what hangs before it dies gives Spark's background time
            time.sleep(self._random.choice((0.0, 2.0)))
        victims = self._victims(pair.who, program, held)
        batch = program.batch
        for process in victims:
            _kill(process)
        proven = _are_dead(victims)
        if held is not None:
            _wake(held)
        if not victims or not proven:
            return Strike(pair, None, f"nobody to kill for {pair}" if not victims else f"{victims} did not die")
        kill = Kill(batch, held.pid if held else None, tuple(process.pid for process in victims))
        if pair.who in _RESTARTS:
            time.sleep(self._random.uniform(0.0, 0.3))  # what is left of the old run meets the new one
            if self._left is not None:
                self._left.end()
            self._left, self._program = program, None
            return Strike(pair, kill, is_over=True)
        went_on = program.wait_for_batches(2)
        if not went_on and pair.who == "executor" and NOT_REPEATABLE in (program.failure or ""):
            self.end()
            return Strike(pair, kill, is_over=True)
        return Strike(pair, kill, None if went_on else program.failure or "no batch since")

    def _victims(self, who: str, program: Program, held: psutil.Process | None) -> list[psutil.Process]:
        if who == "worker" and held is not None:
            return [held]
        found = program.of(who)
        if who == "executor" and held is not None:
            found = [one for one in found if held in one.children(recursive=True)] or found
        return [self._random.choice(found)] if who in ("worker", "executor") and found else found

    def _broker_out(self, pair: Pair, program: Program, held: psutil.Process | None) -> Strike:
        assert self._outage is not None
        kill = Kill(program.batch, held.pid if held else None, tuple(self._outage.begin()))
        if held is not None:
            _wake(held)
        time.sleep(self._outage.seconds)
        self._outage.end()
        went_on = program.wait_for_batches(2)
        return Strike(pair, kill, None if went_on else program.failure or "no batch since")

    def end(self) -> None:
        """All that runs is dead."""
        for program in filter(None, (self._program, self._left)):
            program.end()
        self._program = self._left = None

    def running(self) -> Program:
        """The run that goes on, or a new one."""
        if self._program is not None and not self._program.running:
            self.end()
        if self._program is None:
            self._program = self._start(self._on_executors)
        return self._program

    def _running_for(self, who: str) -> Program:
        """The same, on executors if those are to die."""
        if (who == "executor") != self._on_executors:
            self.end()
            self._on_executors = who == "executor"
        program = self.running()
        if self._on_executors:
            program.wait_for(lambda: len(program.of("executor")) == 2)  # Spark has started another for one that died
        return program


def _kill(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.kill()


def _wake(process: psutil.Process) -> None:
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGCONT)


def _status(process: psutil.Process) -> str:
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return str(psutil.STATUS_DEAD)


def _are_dead(processes: Sequence[psutil.Process]) -> bool:
    """Whether all have died, reaped by their parents or not yet."""
    deadline = time.monotonic() + 10
    while any(_status(one) not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD) for one in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
