"""How benchmarks say their figures: one line each, `figure NAME VALUE`, with goal, verdict and spread behind it.

What is said within :func:`kept_figures` is kept too, with its series: benchmarks/records.py writes it down.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Goal:
    """At least (`at_least`) or at most this value; in the figure's own unit."""

    value: float
    at_least: bool

    def met(self, value: float) -> bool:
        """Whether a value reaches the goal."""
        return value >= self.value if self.at_least else value <= self.value

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.value:,.12g}"


def at_least(value: float) -> Goal:
    """The larger the better."""
    return Goal(value, True)


def at_most(value: float) -> Goal:
    """The smaller the better."""
    return Goal(value, False)


#: Of longer series only the summary is kept.
SAMPLES_MAX = 200
IN_TURNS = "in turns"
ONE_AFTER_THE_OTHER = "one after the other"


@dataclass(frozen=True)
class Series:
    """What was measured again and again: median, first and third quartile, and all of it where that is few."""

    median: float
    low: float
    high: float
    n: int
    samples: tuple[float, ...] | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Series:
        """The summary of at least one value."""
        samples = tuple(map(float, values)) if len(values) <= SAMPLES_MAX else None
        low, median, high = (quartile(values, which) for which in (1, 2, 3))
        return cls(float(median), float(low), float(high), len(values), samples)


@dataclass(frozen=True)
class Compared:
    """Two series that are to be divided, both of one run, and how they were measured in it."""

    ours: Sequence[float]
    theirs: Sequence[float]
    how: str


def in_turns(ours: Sequence[float], theirs: Sequence[float]) -> Compared:
    """Measured by turns in one run: a machine that gets slower on the way is slower for both."""
    return Compared(ours, theirs, IN_TURNS)


@dataclass(frozen=True)
class Measured:
    """What stands behind a figure: the series by name, the spread of the figure itself, how it was compared."""

    series: Mapping[str, Series] = field(default_factory=dict)
    spread: tuple[float, float] | None = None
    how: str | None = None

    @classmethod
    def again(cls, values: Sequence[float], how: str | None = None) -> Measured:
        """One series whose median, or a percentile of which, is the figure."""
        series = Series.of(values)
        return cls({"measured": series}, (series.low, series.high), how)

    @classmethod
    def among(cls, values: Sequence[float]) -> Measured:
        """One series of which the figure is a high percentile: quartiles are no spread of it."""
        return cls({"measured": Series.of(values)})


ONCE = Measured()


@dataclass(frozen=True)
class Figure:
    """One figure as it was said."""

    name: str
    value: float
    goal: Goal | None
    note: str
    measured: Measured


_kept: ContextVar[list[Figure] | None] = ContextVar("kept", default=None)


@contextmanager
def kept_figures() -> Iterator[list[Figure]]:
    """A list that grows by each figure that is said meanwhile."""
    figures: list[Figure] = []
    before = _kept.set(figures)
    try:
        yield figures
    finally:
        _kept.reset(before)


def figure(name: str, value: float, goal: Goal | None = None, note: str = "", measured: Measured = ONCE) -> None:
    """Prints one figure, and keeps it."""
    parts = []
    if goal is not None:
        parts.append(f"goal {goal}: {'met' if goal.met(value) else 'MISSED'}")
    if note:
        parts.append(note)
    digits = f"{value:,.0f}".replace(",", "") if abs(value) >= 1000 else f"{value:.3g}"
    print(f"figure {name} {digits}" + (f"  # {'; '.join(parts)}" if parts else ""), flush=True)
    figures = _kept.get()
    if figures is not None:
        figures.append(Figure(name, float(value), goal, note, measured))


def middle(
    name: str, values: Sequence[float], goal: Goal | None = None, note: str = "", how: str | None = None
) -> None:
    """The median of what was measured again and again."""
    figure(name, statistics.median(values), goal, note, Measured.again(values, how))


def ratio(name: str, compared: Compared, goal: Goal | None = None, note: str = "") -> float:
    """Median ÷ median of two series; the spread is that of the quartiles against each other."""
    ours, theirs = Series.of(compared.ours), Series.of(compared.theirs)
    value = ours.median / theirs.median
    low, high = ours.low / theirs.high, ours.high / theirs.low
    spread = f"between quartiles {low:.3g} to {high:.3g}, n = {ours.n} and {theirs.n}, {compared.how}"
    measured = Measured({"ours": ours, "theirs": theirs}, (low, high), compared.how)
    figure(name, value, goal, f"{spread}; {note}" if note else spread, measured)
    return value


def quartile(values: Sequence[float], which: int) -> float:
    """The first, second or third quartile."""
    return values[0] if len(values) == 1 else statistics.quantiles(values, n=4, method="inclusive")[which - 1]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that this part of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(percent * len(ordered)) // 100)))]


def spread(values: Sequence[float], unit: str = "") -> str:
    """Median and quartiles, for a note."""
    return f"{quartile(values, 2):.4g} ({quartile(values, 1):.4g} to {quartile(values, 3):.4g}){unit}"


def arguments(description: str | None, **more: object) -> argparse.ArgumentParser:
    """A parser that knows what all benchmarks take."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument(
        "--short", action="store_true", help="a small form that runs in a minute: for CI, not for figures"
    )
    parser.add_argument("--record", action="store_true", help="keep the figures in benchmarks/recorded")
    parser.add_argument("--folder", type=Path, help="where to work; by default a temporary folder, removed at the end")
    for name, default in more.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    return parser


@contextmanager
def work_folder(given: Path | None) -> Iterator[Path]:
    """A folder of the benchmark's own."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=given))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
