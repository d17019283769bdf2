"""Who dies at which step: the pairs of a campaign, why some of them cannot be, and the proof that each other occurred.

A pair occurred when a process stood still at the step (holdfast.fault_points), and processes that lived then were dead
by kill -9 before it went on. A pair that is possible and never occurred fails the campaign.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

#: The process that stands at the step; the driver's Python alone; its JVM alone; both; every process at once;
#: an executor (in Spark's local cluster); the broker, which comes back. Where commands die, each is a
#: column of its own.
WHO = ("worker", "python", "jvm", "driver", "group", "executor", "broker")
#: At no step: a moment that nobody chose.
RANDOM = "random"
TRIES = 3


class Pair(NamedTuple):
    """One cell of the table."""

    step: str
    who: str

    def __str__(self) -> str:
        return f"{self.step} × {self.who}"


@dataclass(frozen=True)
class Kill:
    """One that occurred.

    Attributes
    ----------
    batch
        The newest that the run had committed.
    held
        The process that stood at the step; None at random.
    dead
        The processes that were killed.
    """

    batch: int
    held: int | None
    dead: tuple[int, ...]


@dataclass
class Cell:
    """What became of one pair."""

    kills: list[Kill] = field(default_factory=list)
    missed: int = 0
    differences: list[str] = field(default_factory=list)


class Coverage:
    """The table of a campaign.

    Parameters
    ----------
    steps, who
        Rows and columns that are to be struck.
    impossible
        Says why a pair cannot be; None where it can.
    kills
        How often each pair is to occur.
    """

    def __init__(
        self, steps: Iterable[str], who: Iterable[str], impossible: Callable[[Pair], str | None], kills: int = 1
    ) -> None:
        every = [Pair(step, one) for step in steps for one in who]
        self.impossible = {pair: reason for pair in every if (reason := impossible(pair)) is not None}
        self.cells = {pair: Cell() for pair in every if pair not in self.impossible}
        self._kills = kills

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> Coverage:
        """Just these, once each."""
        made = cls((), (), lambda _: None)
        made.cells = {pair: Cell() for pair in pairs}
        return made

    def by_turns(self, first: int, turns: int = 1) -> Coverage:
        """Of this table each step ``turns`` times, with another one who dies there each time: where all pairs would
        take too long. Who is first moves on from step to step, so each of them dies somewhere; and with ``first``, so
        that as many campaigns as there are who may die strike all pairs together.
        """
        chosen: list[Pair] = []
        for number, step in enumerate(dict.fromkeys(pair.step for pair in self.cells)):
            pairs = [pair for pair in self.cells if pair.step == step]
            chosen += [pairs[(first + number + turn) % len(pairs)] for turn in range(turns)]
        made = Coverage.of(chosen)
        made.impossible = self.impossible
        return made

    def left(self, seed: int) -> Iterator[Pair]:
        """What to strike next: all pairs in a shuffled order, as often as each is to occur, then what was missed.

        Pairs of executors come last: their runs have another master.
        """
        draw = random.Random(seed)
        for _ in range(TRIES):
            due = [pair for pair, cell in self.cells.items() for _ in range(self._kills - len(cell.kills))]
            draw.shuffle(due)
            yield from sorted(due, key=lambda pair: pair.who == "executor")

    @property
    def missing(self) -> list[Pair]:
        """Pairs that are possible, and did not occur as often as they were to."""
        return [pair for pair, cell in self.cells.items() if len(cell.kills) < self._kills]

    @property
    def kills(self) -> int:
        """All that occurred."""
        return sum(len(cell.kills) for cell in self.cells.values())

    def table(self) -> str:
        """A row for each step: how often each pair occurred; - where it cannot be, with the reasons below."""
        steps = list(dict.fromkeys(pair.step for pair in (*self.cells, *self.impossible)))
        found = list(dict.fromkeys(pair.who for pair in (*self.cells, *self.impossible)))
        who = [*(one for one in WHO if one in found), *(one for one in found if one not in WHO)]
        first, width = max(20, *(len(step) + 1 for step in steps)), max(9, *(len(one) + 1 for one in who))
        lines = [f"{'step':{first}}" + "".join(f"{one:>{width}}" for one in who)]
        for step in steps:
            lines.append(f"{step:{first}}" + "".join(f"{self._told(Pair(step, one)):>{width}}" for one in who))
        missed = sum(cell.missed for cell in self.cells.values())
        lines.append(f"{self.kills} kills of {len(self.cells)} pairs; {missed} tries did not come to their step")
        for reason in dict.fromkeys(self.impossible.values()):
            cannot = ", ".join(str(pair) for pair, why in self.impossible.items() if why == reason)
            lines.append(f"- {reason}: {cannot}")
        lines += [f"NEVER OCCURRED: {pair}" for pair in self.missing]
        return "\n".join(lines)

    def _told(self, pair: Pair) -> str:
        if pair in self.impossible:
            return "-"
        return str(len(self.cells[pair].kills)) if pair in self.cells else ""

    def as_json(self) -> str:
        """The same, with the evidence of each kill."""
        pairs = [
            {"step": pair.step, "who": pair.who, "missed": cell.missed, "kills": [kill.__dict__ for kill in cell.kills]}
            for pair, cell in self.cells.items()
        ]
        cannot = [{"step": pair.step, "who": pair.who, "why": why} for pair, why in self.impossible.items()]
        return json.dumps({"pairs": pairs, "impossible": cannot, "missing": self.missing})
