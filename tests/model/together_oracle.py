"""What a program of several inputs, states with a TTL, timers and states of no key does, in plain Python: all that is
kept is in dicts and sets, expiry takes entries out as time comes, and nothing of Holdfast is asked.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.model.together_program import KEPT, MS, READS, TIMERS, USERS, Step, at_firing, at_once

#: User, what was asked, what came.
Told = tuple[str | None, str, str]
_CLEANINGS = 8


class FailedOnPurpose(Exception):
    """A step said so."""


@dataclass(frozen=True)
class Life:
    """Of one state; ``ttl_ms`` None: for ever."""

    ttl_ms: int | None = None
    by_reads: bool = False
    until_cleaned: bool = False


@dataclass(frozen=True)
class Program:
    """What does not change while a program lives. ``limit``: timers that a vectorised processor gets at once."""

    vectorised: bool
    order: tuple[str, ...]
    late: Mapping[str, str]
    times: Mapping[str, str]
    limit: int


@dataclass(frozen=True)
class Row:
    """Of an input with keys; ``at``: its event time, in microseconds."""

    user: str
    at: int | None
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Given:
    """A batch: by input its rows; the inputs that are missing brought none. ``changes``: of the broadcast input, by
    name what a rule becomes, None: none.
    """

    rows: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    changes: Sequence[tuple[str, int | None]] = ()
    clock_ms: int = 0
    mark_ms: int = 0


@dataclass
class Output:
    """What came by rows, in order; by timers; and late rows put aside, by input."""

    by_rows: list[Told] = field(default_factory=list)
    by_timers: list[Told] = field(default_factory=list)
    aside: dict[str, list[Row]] = field(default_factory=dict)


class Oracle:
    """The slot at one version."""

    def __init__(self) -> None:
        #: (state, user, place): [value, stamp or None]. A place is a map key, the number of a list's element, or None.
        self.entries: dict[tuple[str, str, Any], list[Any]] = {}
        #: Of states with a TTL: when it began to count, and the latest time so far, of a batch or of a row.
        self.since: dict[str, int] = {}
        self.latest: dict[str, int] = {}
        self.away: set[str] = set()  # states whose TTL was taken away
        self.timers: dict[str, set[tuple[int, str, str]]] = {kind: set() for kind in TIMERS}
        self.rules: dict[str, int] = {}
        self.odd: list[int] = []
        self.ordinal = 0
        self.lives: Mapping[str, Life] = {}
        self._stamps: dict[str, int] = {}
        self._told: list[Told] = []

    def take(self, given: Given, program: Program, lives: Mapping[str, Life]) -> tuple[Oracle, Output]:
        """The version that a batch leads to, and what came out; raises FailedOnPurpose."""
        after = copy.deepcopy(self)
        return after, after._run(given, program, lives)

    def _run(self, given: Given, program: Program, lives: Mapping[str, Life]) -> Output:
        out = Output()
        until = {"event": given.mark_ms * MS or None, "processing": given.clock_ms * MS}
        has_rows = given.changes or any(given.rows.values())
        if not has_rows and not any(self._due(until, [kind]) for kind in TIMERS):
            return out  # nobody asked: the slot is not called, and its time stands still
        self.lives, self._program = lives, program
        self._expire({"event": given.mark_ms or None, "processing": given.clock_ms})
        self._told = out.by_rows
        if given.changes:
            for name, most in given.changes:
                self.rules.pop(name, None)
                if most is not None:
                    self.rules[name] = most
            self._told.append((None, "rules", repr(sorted(self.rules.items()))))
        waiting: list[Row] = []
        for name in program.order:
            if name not in given.rows:
                continue
            rows = given.rows[name]
            self._advance([row.at for row in rows if row.at is not None])
            if not program.vectorised:  # keys of the input before are called when the next one comes
                self._follow(waiting)
            late = [row for row in rows if program.late[name] != "keep" and _is_late(row, given.mark_ms)]
            waiting = [row for row in rows if row not in late]
            if late and program.late[name] == "aside":
                out.aside[name] = late
            if program.vectorised:
                self._follow(waiting)
        if not program.vectorised:
            self._follow(waiting)
        self._told = out.by_timers
        self._fire(until)
        return out

    # --- time
    def _expire(self, now: Mapping[str, int | None]) -> None:
        """What has expired is taken out here and now, and never comes back."""
        self._stamps = {}
        seen = [latest for state, latest in self.latest.items() if self._program.times[state] == "event"]
        for state in KEPT:
            life, time = self.lives[state], now[self._program.times[state]]
            if seen and life.ttl_ms is not None and self._program.times[state] == "event":
                self.latest[state] = max(*seen, self.latest.get(state, seen[0]))
            if life.ttl_ms is not None and time is not None:
                self.since.setdefault(state, time)
            if time is not None and state in {*self.since, *self.latest}:
                self.latest[state] = max(time, self.latest.get(state, time))
            if life.ttl_ms is None and state in self.latest:
                self.away.add(state)
            elif life.ttl_ms is not None and time is not None and state in self.away:
                self._come_back(state)
            if state in self.latest:
                self._stamps[state] = self.latest[state]
            if life.ttl_ms is not None and time is not None:
                reached = time - time % max(1, life.ttl_ms // _CLEANINGS) if life.until_cleaned else time
                for place, (_, stamp) in list(self.entries.items()):
                    written = self.since[state] if stamp is None else stamp
                    if place[0] == state and reached - written >= life.ttl_ms:
                        del self.entries[place]

    def _come_back(self, state: str) -> None:
        """It has a TTL again: what was written earlier counts as written now."""
        self.away.discard(state)
        for place, entry in self.entries.items():
            if place[0] == state:
                entry[1] = max(self.since[state] if entry[1] is None else entry[1], self.latest[state])

    def _advance(self, times: Sequence[int]) -> None:
        for state in KEPT:
            if times and self._program.times[state] == "event" and self.lives[state].ttl_ms is not None:
                latest = max(times) // MS
                self._stamps[state] = self.latest[state] = max(latest, self.latest.get(state, latest))

    def deadlines(self, program: Program, lives: Mapping[str, Life], time: str) -> list[int]:
        """Times, in milliseconds, at which something expires or fires."""
        found = {at // MS for kind, domain in TIMERS.items() if domain == time for at, _, _ in self.timers[kind]}
        for (state, _, _), (_, stamp) in self.entries.items():
            written, ttl = self.since.get(state) if stamp is None else stamp, lives[state].ttl_ms
            if program.times[state] == time and written is not None and ttl is not None:
                found.add(written + ttl)
                step = max(1, ttl // _CLEANINGS)
                found.add(-(-(written + ttl) // step) * step)
        return sorted(found)

    # --- rows and timers
    def _follow(self, rows: Sequence[Row]) -> None:
        if self._program.vectorised:
            self._follow_at_once([row.user for row in rows], [row.steps for row in rows])
            return
        for user in dict.fromkeys(row.user for row in rows):
            for row in rows:
                if row.user == user:
                    self._follow_alone(user, row.steps)

    def _follow_at_once(self, users: Sequence[str], scripts: Sequence[Sequence[Step]]) -> None:
        for _, _, members in at_once(scripts):
            for row, step in members:
                self._tell(users[row], step)

    def _follow_alone(self, user: str, steps: Sequence[Step]) -> None:
        for step in steps:
            self._tell(user, step)

    def _fire(self, until: Mapping[str, int | None]) -> None:
        """Vectorised declaration by declaration; of keys each as if it were alone, both times in turns."""
        if self._program.vectorised:
            self._fire_queues(until, [[kind] for kind in TIMERS], self._program.limit, USERS)
            return
        for user in USERS:
            self._fire_queues(until, [["early", "again"], ["clock"]], 1, user)

    def _fire_queues(
        self, until: Mapping[str, int | None], queues: Sequence[Sequence[str]], limit: int, users: str
    ) -> None:
        while any(self._due(until, queue, users) for queue in queues):
            for queue in queues:
                while due := self._due(until, queue, users)[:limit]:
                    for at, number, user, namespace in due:
                        self.timers[queue[number]].remove((at, user, namespace))
                        self._told.append((user, f"{queue[number]} fires", f"{at} {namespace}"))
                    scripts = [at_firing(namespace, at) for at, _, _, namespace in due]
                    self._follow_at_once([user for _, _, user, _ in due], scripts)

    def _due(
        self, until: Mapping[str, int | None], queue: Sequence[str], users: str = USERS
    ) -> list[tuple[int, int, str, str]]:
        return sorted(
            (at, number, user, namespace)
            for number, kind in enumerate(queue)
            for at, user, namespace in self.timers[kind]
            if (end := until[TIMERS[kind]]) is not None and at <= end and user in users
        )

    # --- steps
    def _tell(self, user: str, step: Step) -> None:
        state, call, *arguments = step
        if state == "fail":
            raise FailedOnPurpose
        found = (self._time if state in TIMERS else self._of_no_key if state in ("rules", "odd") else self._keep)(
            user, state, call, arguments
        )
        if call in READS:
            self._told.append((user, f"{state}.{call}", repr(found)))

    def _time(self, user: str, kind: str, call: str, arguments: list[Any]) -> Any:
        if call == "list":
            return self.timers_of(kind, user)
        at, namespace, *other = arguments
        target = other[0] if other and self._program.vectorised else user
        change: Callable[[Any], None] = self.timers[kind].add if call == "register" else self.timers[kind].discard
        change((at, target, namespace))
        return None

    def _of_no_key(self, user: str, state: str, call: str, arguments: list[Any]) -> Any:
        if state == "rules":
            return self.rules.get(arguments[0]) if call == "get" else sorted(self.rules.items())
        if call == "add":
            self.odd.append(arguments[0])
            return None
        return list(self.odd)

    def _keep(self, user: str, state: str, call: str, arguments: list[Any]) -> Any:
        if call in READS:
            return self._read(user, state, call, arguments)
        if call == "clear" or (state, call) == ("items", "update") or (state, arguments) == ("value", [None]):
            self._drop(user, state)
        if call == "remove":
            self.entries.pop((state, user, arguments[0]), None)
        elif call == "update":
            for element in arguments[0]:
                self._add(user, state, element)
        elif state == "entries" and call == "put":
            self._write(user, state, arguments[0], arguments[1])
        elif call in ("add", "put") and arguments != [None]:
            self._add(user, state, arguments[0])
        elif state == "items" and call == "add":
            self._add(user, state, None)
        return None

    def _add(self, user: str, state: str, value: Any) -> None:
        if state == "items":
            self.ordinal += 1
            self._write(user, state, self.ordinal, value)
            return
        there = (state, user, None) in self.entries
        before = self.entries[state, user, None][0] if there else None
        if state == "count":
            self._write(user, state, None, (before or 0) + 1)
        elif state == "value" or not there:
            self._write(user, state, None, value)
        else:
            self._write(user, state, None, before + value)

    def _read(self, user: str, state: str, call: str, arguments: list[Any]) -> Any:
        places = [place for place in self.entries if place[:2] == (state, user)]
        if state == "entries" and call in ("get", "contains"):
            places = [place for place in places if place[2] == arguments[0]]
        life = self.lives[state]
        if life.ttl_ms is not None and life.by_reads and state in self._stamps:
            for place in places:
                self.entries[place][1] = self._stamps[state]
        if call == "contains":
            return bool(places)
        if state == "entries" and call == "get":
            return self.entries[places[0]][0] if places else None
        return self.of(state, user)

    def _write(self, user: str, state: str, place: Any, value: Any) -> None:
        self.entries[state, user, place] = [value, self._stamps.get(state)]

    def _drop(self, user: str, state: str) -> None:
        for place in [place for place in self.entries if place[:2] == (state, user)]:
            del self.entries[place]

    # --- what is there
    def of(self, state: str, user: str) -> Any:
        """A user's: a value, a list of elements, or of pairs in the order of their keys."""
        found = sorted((place[2], entry[0]) for place, entry in self.entries.items() if place[:2] == (state, user))
        if state == "items":
            return [element for _, element in found]
        if state == "entries":
            return found
        return found[0][1] if found else 0 if state == "count" else None

    def timers_of(self, kind: str, user: str) -> list[tuple[int, str]]:
        """A user's that have not fired, in order."""
        return sorted((at, namespace) for at, other, namespace in self.timers[kind] if other == user)


def _is_late(row: Row, mark_ms: int) -> bool:
    return bool(mark_ms) and row.at is not None and row.at <= mark_ms * MS
