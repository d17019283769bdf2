"""How benchmarks say their figures: one line each, `figure NAME VALUE`, with goal, verdict and spread behind it."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
        return f"{'≥' if self.at_least else '≤'} {self.value:g}"


def at_least(value: float) -> Goal:
    """The larger the better."""
    return Goal(value, True)


def at_most(value: float) -> Goal:
    """The smaller the better."""
    return Goal(value, False)


def figure(name: str, value: float, goal: Goal | None = None, note: str = "") -> None:
    """Prints one figure."""
    parts = []
    if goal is not None:
        parts.append(f"goal {goal}: {'met' if goal.met(value) else 'MISSED'}")
    if note:
        parts.append(note)
    digits = f"{value:,.0f}".replace(",", "") if abs(value) >= 1000 else f"{value:.3g}"
    print(f"figure {name} {digits}" + (f"  # {'; '.join(parts)}" if parts else ""), flush=True)


def ratio(name: str, ours: Sequence[float], theirs: Sequence[float], goal: Goal | None = None, note: str = "") -> float:
    """Median ÷ median of two series; the spread is that of the quartiles against each other."""
    value = statistics.median(ours) / statistics.median(theirs)
    low, high = quartile(ours, 1) / quartile(theirs, 3), quartile(ours, 3) / quartile(theirs, 1)
    spread = f"between quartiles {low:.3g} to {high:.3g}, n = {len(ours)} and {len(theirs)}"
    figure(name, value, goal, f"{spread}; {note}" if note else spread)
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


def machine() -> None:
    """Prints what the figures were measured on."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    print(
        f"# {os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    if os.getloadavg()[0] > 0.5 * (os.cpu_count() or 1):
        print("# other work is running on this machine: these are no figures to keep", file=sys.stderr)
