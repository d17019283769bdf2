"""Ways that are measured in turns, and one of them held against all others: each, and the best of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from types import MappingProxyType
from typing import TypeVar

from benchmarks.figures import Goal, in_turns, ratio

Found = TypeVar("Found")


def turns(ways: Sequence[str], rounds: int, once: Callable[[str], Found]) -> dict[str, list[Found]]:
    """What each way gave in each round. Every other round goes backwards, so that none always follows the same."""
    found: dict[str, list[Found]] = {way: [] for way in ways}
    for number in range(rounds):
        for way in ways[::-1] if number % 2 else ways:
            found[way].append(once(way))
    return found


def best_of(rivals: Mapping[str, Sequence[float]], faster: Callable[..., str]) -> str:
    """Which has the best median; ``faster`` as :func:`against` takes it."""
    return faster(rivals, key=lambda rival: median(rivals[rival]))


def against(
    prefix: str,
    ours: Sequence[float],
    rivals: Mapping[str, Sequence[float]],
    *,
    faster: Callable[..., str],
    best: Goal,
    goals: Mapping[str, Goal] = MappingProxyType({}),
) -> None:
    """A figure `<prefix>_<rival>` against each, and `<prefix>_best` against the best.

    Parameters
    ----------
    rivals
        By the end of the figure's name: one value a round.
    faster
        `max` where values are rates, `min` where they are times.
    best, goals
        Of the figure against the best, and of those against single rivals.
    """
    for rival, theirs in rivals.items():
        ratio(f"{prefix}_{rival}", in_turns(ours, theirs), goals.get(rival))
    of_all = best_of(rivals, faster)
    ratio(f"{prefix}_best", in_turns(ours, rivals[of_all]), best, f"the best of {len(rivals)}: {of_all}")
