"""What the program of the model of all states together does: small steps for a key, each of them one call of one state.

Rows bring the steps they ask for as text, and a timer's namespace names those it asks for when it fires. Both forms of
processors and the oracle follow the same steps, so nothing of Holdfast is in here. Times are microseconds since 1970.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

#: State, call, arguments.
Step: TypeAlias = tuple[Any, ...]

START_MS = 1_800_000_000_000
MS = 1000
USERS = "abcd"
#: States of keys that may have a TTL, and timers in the order of their declaration with the time that they go by.
KEPT = ("value", "items", "entries", "total", "log", "count")
TIMERS = {"early": "event", "clock": "processing", "again": "event"}
#: Calls that give something.
READS = {"get", "contains", "show", "list"}

#: What a timer of the namespace does when it fires. Times count from the timer's own; all that a timer sets is later
#: than itself, so that there is an end to it.
SCRIPTS: dict[str, tuple[Step, ...]] = {
    "": (),
    "adds": (("total", "add", 1), ("items", "add", 7), ("log", "add", "t"), ("entries", "put", "x", 5)),
    "again": (("again", "register", 4 * MS, "again"), ("count", "add", 1), ("count", "get")),
    "clears": (("value", "clear"), ("items", "clear"), ("total", "clear"), ("early", "delete", 0, "adds")),
    "crosses": (("clock", "register", MS, "reads"), ("again", "register", 2 * MS, "adds"), ("clock", "list")),
    "deletes": (("again", "delete", 2 * MS, "adds"), ("again", "delete", 0, "reads"), ("early", "delete", MS, "")),
    "reads": (
        *(("value", "get"), ("items", "get"), ("entries", "get", "x"), ("total", "get"), ("log", "get")),
        *(("rules", "get", "r"), ("odd", "get"), ("early", "list")),
    ),
    "turns": (("early", "register", 3 * MS, "crosses"), ("value", "put", 9), ("entries", "remove", "x")),
}


def at_firing(namespace: str, at: int) -> list[Step]:
    """The steps of a timer that fires, with times that count from 1970."""
    return [moved(step, at) for step in SCRIPTS[namespace]]


def moved(step: Step, by: int) -> Step:
    """A step with its time, if it has one, later by so much."""
    return (*step[:2], step[2] + by, *step[3:]) if step[0] in TIMERS and len(step) > 2 else step


def to_text(steps: Sequence[Step]) -> str:
    return json.dumps(steps)


def of_text(text: str) -> list[Step]:
    return [tuple(step) for step in json.loads(text)]


def at_once(scripts: Sequence[Sequence[Step]]) -> Iterator[tuple[str, str, list[tuple[int, Step]]]]:
    """How a vectorised processor follows the steps of several rows: the first of all rows, then the second, and so on;
    of these, all that are the same call at once. Gives state, call, and the rows' numbers with their steps.
    """
    for number in range(max(map(len, scripts), default=0)):
        calls: dict[tuple[str, str], list[tuple[int, Step]]] = {}
        for row, steps in enumerate(scripts):
            if number < len(steps):
                calls.setdefault(steps[number][:2], []).append((row, steps[number]))
        for (state, call), members in calls.items():
            yield state, call, members
