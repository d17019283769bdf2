"""Kills an exactly-once stream with kill -9, each step × who dies, starts it again, and counts what is lost or twice.

    python -m tests.faults.eos_harness [--kills 20] [--step after_record …] [--who driver …] [--world module:Class]
                                       [--json FILE] [--folder DIR]

One stream lives through all kills of all pairs (tests.faults.kill_plan); it fails where a pair that is possible never
occurred. Its first operator draws random numbers, so that output and state of two attempts at one batch differ: each
row's ``before`` must be its user's number before, visible, the totals must be the sums of what is visible, and all
sinks must agree. Once Spark has committed a batch, all of it must be visible to readers that know nothing of Holdfast.
What is idle is cut off by the broker, and every second start finds an empty local folder, as in a fresh container.

Ctrl-C ends the kills, not the comparison. Prints a table, and what is lost or twice. Exit code 1 on any difference.
With Kafka, and beside Spark's own pattern: benchmarks/stream/exactly_once.py.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from tests.faults.eos_oracle import Differences, Oracle
from tests.faults.eos_worlds import SCHEMA, World, world_of
from tests.faults.kill_plan import RANDOM, WHO, Cell, Coverage, Pair
from tests.faults.program import FaultFile, Program, committed_batches, log_tail, until_interrupted
from tests.faults.strikes import CLUSTER, Strikes

from holdfast.fault_points import COMMIT_POINTS, SINK_POINTS, VARIABLE

#: Steps of the state's own protocol between which the output is made.
STATE_POINTS = ("mid_batch", "after_delta", "before_handle", "after_handle")
STEPS = (*STATE_POINTS, *SINK_POINTS, *COMMIT_POINTS, RANDOM)
FILES = "tests.faults.eos_worlds:FilesWorld"
KAFKA = "tests.faults.eos_kafka_world:KafkaWorld"
LATE = "tests.faults.eos_cluster_world:LateMarkersWorld"
ROLLING = "tests.faults.eos_cluster_world:RollingWorld"
#: `make nightly` takes another one each night, and says which.
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
_ROWS = 200
_USERS = 60
_KINDS = "abcdef"
_FILES_AHEAD = 6
_STEP_BATCHES = 12  # a step that is not reached in so many is missed


class Campaign:
    """One stream's life through many kills. Use as a context manager."""

    def __init__(self, folder: Path, seed: int, world: str = FILES, arguments: Sequence[str] = ()) -> None:
        self.folder = folder
        self.files_ahead = _FILES_AHEAD  #: how much input there is that no batch has had; none: the stream idles
        self.world: World = world_of(world, folder)
        self.faults = FaultFile(folder / "fault")
        self._world_name = world
        self._arguments = arguments
        self._seed = seed
        self._files = 0
        self._sequence = 0
        self._is_complete = False
        self._starts = 0
        self._looked = 0
        self._oracle = Oracle(folder / "drawn")
        self._strikes: Strikes | None = None

    def __enter__(self) -> Campaign:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.world.open()
        self._strikes = Strikes(self._start_for, self.faults, _STEP_BATCHES, self._seed, self.world.outage())
        return self

    def __exit__(self, *_: object) -> None:
        self.strikes.end()
        self.world.close()

    @property
    def strikes(self) -> Strikes:
        assert self._strikes is not None, "open it first"
        return self._strikes

    def strike(self, pair: Pair, cell: Cell) -> Differences:
        """One try at a pair; what is visible then."""
        began = time.monotonic()
        strike = self.strikes.strike(pair, starting=pair.step == "during_recover")
        if strike.kill is None:
            cell.missed += 1
        else:
            cell.kills.append(strike.kill)
        found = self.differences(complete=False)
        if strike.failure:
            cell.differences.append(strike.failure)
            found.other.append(f"{pair}: {strike.failure}")
        told = f"killed {list(strike.kill.dead)}" if strike.kill else "MISSED"
        print(f"{pair!s:30} {told} after {time.monotonic() - began:5.1f} s; {found}", flush=True)
        return found

    def finish(self) -> Differences:
        """Until all input is visible, with a row of every user and kind at last: they tell the state."""
        rows = [(self._sequence + i, self._files, f"user{i}", _KINDS[i % len(_KINDS)]) for i in range(_USERS)]
        self._write(rows)
        self._is_complete = True
        program = self.strikes.running()
        program.wait_for(lambda: program.batches > 0)
        program.wait_for(lambda: self.differences(complete=True).lost == 0)
        found = self.differences(complete=True)
        if found.lost:
            found.other.append(f"the stream did not come to its end: {program.failure or log_tail(self.folder)}")
        return found

    def start(self, *arguments: str) -> Program:
        """A run, which is struck when the fault file is armed, and is fed until the input is complete. Every second one
        finds no local copy of the state.
        """
        self._feed(-1)
        self._starts += 1
        local = self.folder / (f"local-{self._starts}" if self._starts % 2 == 0 else "local")
        return Program(
            "eos_stream.py",
            self.folder,
            self._world_name,
            "--conf",
            f"spark.holdfast.local.dir={local}",
            *self._arguments,
            *arguments,
            meanwhile=self._meanwhile,
            environment=self.faults.environment,
        )

    def _start_for(self, on_executors: bool) -> Program:
        if not on_executors:
            return self.start()
        return self.start(*CLUSTER, "--conf", f"spark.executorEnv.{VARIABLE}={self.faults.environment[VARIABLE]}")

    @contextmanager
    def program(self, *arguments: str) -> Iterator[Program]:
        """A run; killed with all it started when the block ends."""
        program = self.start(*arguments)
        try:
            yield program
        finally:
            program.end()

    def _meanwhile(self, batch: int) -> None:
        """Input for the batches to come; a look at what Spark has committed."""
        self._feed(batch)
        committed = committed_batches(self.folder)
        if committed > self._looked:
            self._looked = committed
            self._oracle.look(self.world.committed(), committed)

    def _feed(self, batch: int) -> None:
        if not self._is_complete:
            self.feed(max(batch, committed_batches(self.folder) - 1) + self.files_ahead)

    def feed(self, up_to: int) -> None:
        """Input for the batches to come: deterministic."""
        while self._files < up_to:
            draw = random.Random(self._seed * 1_000_003 + self._files)
            self._write(
                [
                    (self._sequence + i, self._files, f"user{draw.randrange(_USERS)}", draw.choice(_KINDS))
                    for i in range(_ROWS)
                ]
            )

    def _write(self, rows: list[tuple[int, int, str, str]]) -> None:
        columns = [pa.array(column, field.type) for column, field in zip(zip(*rows), SCHEMA)]
        self.world.feed(pa.table(columns, schema=SCHEMA), self._files)
        self._oracle.put(rows)
        self._files += 1
        self._sequence += len(rows)

    def differences(self, *, complete: bool) -> Differences:
        """What is visible in each sink against the input, and against itself."""
        committed = committed_batches(self.folder)
        return self._oracle.differences(self.world.committed(), committed, complete=complete)


def impossible(world: str) -> Callable[[Pair], str | None]:
    """Why pairs cannot be in a world."""

    def why(pair: Pair) -> str | None:
        if pair.who == "broker" and world in (FILES, ROLLING, LATE):
            return "files need no broker" if world == FILES else "the brokers of this world are at fault by themselves"
        if pair.who == "worker" and pair.step in COMMIT_POINTS:
            return "no task runs while the driver commits or recovers"
        return None

    return why


def run(
    folder: Path, coverage: Coverage, seed: int, world: str = FILES, arguments: Sequence[str] = ()
) -> tuple[Campaign, Differences]:
    """All pairs on one stream, and again those that were missed; and all differences."""
    with Campaign(folder, seed, world, arguments) as campaign:
        found = [campaign.strike(pair, coverage.cells[pair]) for pair in until_interrupted(coverage.left(seed))]
        end = campaign.finish()
    other = [told for differences in (*found, end) for told in differences.other]
    return campaign, Differences(end.lost, max(d.twice for d in (*found, end)), list(dict.fromkeys(other)))


def prove(folder: Path, coverage: Coverage, world: str, seed: int = SEED, arguments: Sequence[str] = ()) -> Campaign:
    """A campaign in which every pair occurred, and nothing is lost, twice or wrong."""
    campaign, found = run(folder, coverage, seed, world, arguments)
    told = f"seed {seed}, {world}\n{show(coverage, found)}"
    print(told)
    assert not found, told + "\n" + "\n".join(found.other[:20])
    assert not coverage.missing, told
    return campaign


def show(coverage: Coverage, found: Differences) -> str:
    """The table, and what was found."""
    return f"{coverage.table()}\n{found.lost} rows lost, {found.twice} rows twice, {len(found.other)} other differences"


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs is ended
    logging.basicConfig(level=logging.CRITICAL)  # a client whose broker dies has much to say
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--kills", type=int, default=1, help="kills of each pair")
    arguments.add_argument("--step", action="append", choices=STEPS, help="only these steps")
    arguments.add_argument("--who", action="append", choices=WHO, help="only these")
    arguments.add_argument("--world", default=FILES)
    arguments.add_argument("--seed", type=int, default=SEED)
    arguments.add_argument("--json", type=Path, help="the table with its evidence, into a file")
    arguments.add_argument("--folder", type=Path, help="kept when given")
    given = arguments.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="holdfast-eos-"))
    coverage = Coverage(given.step or STEPS, given.who or WHO, impossible(given.world), given.kills)
    _, found = run(folder, coverage, given.seed, given.world)
    print(show(coverage, found))
    print(*found.other[:20], sep="\n")
    if given.json:
        given.json.write_text(coverage.as_json())
    if given.folder is None and not found:
        shutil.rmtree(folder, ignore_errors=True)
    raise SystemExit(bool(found or coverage.missing))


if __name__ == "__main__":
    main()
