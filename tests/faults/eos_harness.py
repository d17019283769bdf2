"""Kills an exactly-once stream with kill -9 at named steps, starts it again, and counts what is lost or twice.

    python -m tests.faults.eos_harness --kills 20 [--step after_record …] [--world module:Class] [--folder DIR]

One stream lives through all kills of all steps. Its first operator draws random numbers, so that output and state of
two attempts at one batch differ: each row's ``before`` must be its user's number before, visible, and the totals must
be the sums of what is visible. Ctrl-C ends the kills, not the comparison. Prints a table, and what is lost or twice.
Exit code 1 on any difference. With Kafka, and beside Spark's own pattern: benchmarks/stream/exactly_once.py.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.faults.eos_worlds import SCHEMA, Visible, World, world_of
from tests.faults.program import (
    ALONE,
    FaultFile,
    Program,
    Strike,
    Strikes,
    Tally,
    committed_batches,
    log_tail,
    until_interrupted,
)

from holdfast.fault_points import COMMIT_POINTS, SINK_POINTS

#: Steps of the state's own protocol between which the output is made.
STATE_POINTS = ("mid_batch", "after_delta", "before_handle", "after_handle")
STEPS = (*STATE_POINTS, *SINK_POINTS, *COMMIT_POINTS, "random")
FILES = "tests.faults.eos_worlds:FilesWorld"
KAFKA = "tests.faults.eos_kafka_world:KafkaWorld"
Rows = list[dict[str, Any]]
_ROWS = 200
_USERS = 60
_KINDS = "abcdef"
_FILES_AHEAD = 6
_STEP_BATCHES = 12  # a step that is not reached in so many is missed


@dataclass
class Differences:
    """What is visible against what should be."""

    lost: int = 0
    twice: int = 0
    other: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.lost or self.twice or self.other)

    def __str__(self) -> str:
        return f"lost {self.lost}, twice {self.twice}, other differences {len(self.other)}"


class Campaign:
    """One stream's life through many kills. Use as a context manager."""

    def __init__(self, folder: Path, seed: int, world: str = FILES) -> None:
        self.folder = folder
        self.world: World = world_of(world, folder)
        self.tally: dict[str, Tally] = {}
        self.faults = FaultFile(folder / "fault")
        self._world_name = world
        self._seed = seed
        self._files = 0
        self._sequence = 0
        self._is_complete = False
        self._input: dict[int, list[object]] = {}
        self._strikes = Strikes(self.start, self.faults, _STEP_BATCHES, seed, alone=("worker", "python"))

    def __enter__(self) -> Campaign:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.world.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._strikes.end()
        self.world.close()

    def strike(self, step: str) -> Differences:
        """One kill at a step; what is visible then, where the next strike must start the stream again."""
        tally = self.tally.setdefault(step, Tally())
        began = time.monotonic()
        strike = self._strike(step)
        tally.kills += strike.hit
        tally.missed += not strike.hit
        tally.differences += [strike.failure] if strike.failure else []
        found = self.differences(complete=False) if strike.target != ALONE else Differences()
        found.other += [f"{step}: {told}" for told in tally.differences]
        killed = "killed" if strike.hit else "MISSED"
        print(f"{step:20} {strike.target:7} {killed} after {time.monotonic() - began:5.1f} s; {found}", flush=True)
        return found

    def _strike(self, step: str) -> Strike:
        if step == "random":
            return self._strikes.at_random()
        return self._strikes.at_step(step, starting=step == "during_recover")

    def finish(self) -> Differences:
        """Until all input is visible, with a row of every user and kind at last: they tell the state."""
        rows = [(self._sequence + i, self._files, f"user{i}", _KINDS[i % len(_KINDS)]) for i in range(_USERS)]
        self._write(rows)
        self._is_complete = True
        program = self._strikes.running()
        program.wait_for(lambda: program.batches > 0)
        program.wait_for(lambda: self.differences(complete=True).lost == 0)
        found = self.differences(complete=True)
        if found.lost:
            found.other.append(f"the stream did not come to its end: {program.failure or log_tail(self.folder)}")
        return found

    def start(self, *arguments: str) -> Program:
        """A run, which is struck when the fault file is armed, and is fed until the input is complete."""
        self._feed(-1)
        return Program(
            "eos_stream.py",
            self.folder,
            self._world_name,
            *arguments,
            meanwhile=self._feed,
            environment=self.faults.environment,
        )

    @contextmanager
    def program(self, *arguments: str) -> Iterator[Program]:
        """A run; killed with all it started when the block ends."""
        program = self.start(*arguments)
        try:
            yield program
        finally:
            program.end()

    def _feed(self, batch: int) -> None:
        """Input for the batches to come."""
        if not self._is_complete:
            self.feed(max(batch, committed_batches(self.folder) - 1) + _FILES_AHEAD)

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
        self._input.update((seq, rest) for seq, *rest in rows)
        self._files += 1
        self._sequence += len(rows)

    def differences(self, *, complete: bool) -> Differences:
        """What is visible in each sink against the input, and against itself."""
        found = Differences()
        for index, seen in enumerate(self.world.committed()):
            counts = Counter(row["seq"] for row in seen.rows)
            found.twice += sum(count - 1 for count in counts.values())
            told = [*self._changed(seen.rows), *_out_of_order(seen)]
            if complete:
                found.lost += self._sequence - len(counts)
                told += _wrong_totals(seen.rows)
            if complete or seen.whole_batches:
                told += _broken_chains(seen.rows)
            found.other += [f"sink {index}: {each}" for each in told]
        return found

    def _changed(self, rows: Rows) -> Iterator[str]:
        """Visible rows that are not what went in."""
        for row in rows:
            if self._input.get(row["seq"]) != [row["file"], row["user"], row["kind"]]:
                yield f"{row} is not of the input: {self._input.get(row['seq'])}"


def _out_of_order(seen: Visible) -> Iterator[str]:
    """Rows of a key that do not follow on the one before. Rows of a kind are processed one after the other, so their
    totals add up in the order of the sink; those of a user within it come in the order of the input.
    """
    total: dict[Any, int] = defaultdict(int)
    last: dict[Any, int] = {}
    for row in seen.rows if seen.key else ():
        if seen.key == "kind":
            total[row["kind"]] += row["number"]
            if total[row["kind"]] != row["total"]:
                yield f"{row}: the numbers of its kind before it and its own make {total[row['kind']]}"
                total[row["kind"]] = row["total"]
        place = (row["user"], row["kind"])
        if last.get(place, -1) >= row["seq"]:
            yield f"{row} comes after row {last[place]} of its user"
        last[place] = row["seq"]


def _broken_chains(rows: Rows) -> Iterator[str]:
    """Users whose visible rows do not make one chain, each row's ``before`` being the number of the one before it.

    By the links and not by ``seq``: after a crash Spark's file source may put two files into one batch, in any order.
    """
    by_user: dict[str, Rows] = defaultdict(list)
    for row in rows:
        by_user[row["user"]].append(row)
    for user, mine in by_user.items():
        after = {row["before"]: row for row in mine}
        length, row = 0, after.get(None)
        while row is not None and length <= len(mine):
            length, row = length + 1, after.get(row["number"])
        if length != len(mine):
            strays = [row["seq"] for row in mine if row["before"] not in {None, *(other["number"] for other in mine)}]
            yield f"{user}: {len(mine)} visible rows, a chain of {length}; the state had what nobody sees at {strays}"


def _wrong_totals(rows: Rows) -> Iterator[str]:
    """Kinds whose total is not the sum of their visible numbers."""
    for kind in sorted({row["kind"] for row in rows}):
        mine = [row for row in rows if row["kind"] == kind]
        found, wanted = max(row["total"] for row in mine), sum(row["number"] for row in mine)
        if found != wanted:
            yield f"kind {kind}: the state has {found}, the visible numbers make {wanted}"


def run(
    folder: Path, steps: tuple[str, ...], kills: int, seed: int, world: str = FILES
) -> tuple[Campaign, Differences]:
    """All kills of all steps on one stream, in a shuffled order where there are many; and all differences."""
    order = [step for step in steps for _ in range(kills)]
    if kills > 1:
        random.Random(seed).shuffle(order)
    with Campaign(folder, seed, world) as campaign:
        found = [campaign.strike(step) for step in until_interrupted(order)]
        end = campaign.finish()
    other = [told for differences in (*found, end) for told in differences.other]
    return campaign, Differences(end.lost, max(d.twice for d in (*found, end)), other)


def show(campaign: Campaign, found: Differences) -> str:
    """The table, and what was found."""
    lines = [f"{'step':20} {'kills':>6} {'missed':>7}"]
    lines += [f"{step:20} {tally.kills:6} {tally.missed:7}" for step, tally in campaign.tally.items()]
    lines.append(f"{found.lost} rows lost, {found.twice} rows twice, {len(found.other)} other differences")
    return "\n".join(lines)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs is ended
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--kills", type=int, default=1, help="kills at each step")
    arguments.add_argument("--step", action="append", choices=STEPS, help="only these steps")
    arguments.add_argument("--world", default=FILES)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--folder", type=Path, help="kept when given")
    given = arguments.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="holdfast-eos-"))
    campaign, found = run(folder, tuple(given.step or STEPS), given.kills, given.seed, given.world)
    print(show(campaign, found))
    print(*found.other[:20], sep="\n")
    if given.folder is None and not found:
        shutil.rmtree(folder, ignore_errors=True)
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
