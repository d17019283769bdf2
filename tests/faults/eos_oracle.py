"""What an exactly-once stream must have shown, against what readers saw of it at each look. Knows only what went in,
what the program's processors wrote down when they drew a number, and Spark's own log of commits; nothing of Holdfast.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]
#: What two sinks must agree on: they were written by one run of the batch.
_OF_THE_RUN = ("batch", "before", "number", "total")


@dataclass(frozen=True)
class Visible:
    """What a reader sees of one sink.

    Attributes
    ----------
    rows
        In the sink's order, if it has one.
    key
        The column by which it has one; None: rows may come in any order.
    """

    rows: Rows
    key: str | None = None


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


class Oracle:
    """What went in, and what was seen at each look. Rows of a sink only ever become more: a look takes the new ones."""

    def __init__(self, drawn: Path) -> None:
        self._input: dict[int, list[object]] = {}
        self._drawn = _Drawn(drawn)
        self._seen: list[set[int]] = []  # by sink
        self._taken: list[int] = []  # rows of each sink that earlier looks took
        self._committed = 0  # batches that Spark had committed before the last look
        self._found = Differences()

    def put(self, rows: Sequence[tuple[int, int, str, str]]) -> None:
        """Rows that go in."""
        self._input.update((seq, rest) for seq, *rest in rows)

    def look(self, sinks: Sequence[Visible], committed: int) -> None:
        """Takes what has become visible: each row for itself.

        ``committed``: how many batches Spark had committed before the look. All of those must be visible to it.
        """
        self._drawn.read()
        for index, seen in enumerate(sinks):
            if index == len(self._seen):
                self._seen.append(set())
                self._taken.append(0)
            for row in seen.rows[self._taken[index] :]:
                self._found.twice += row["seq"] in self._seen[index]
                self._seen[index].add(row["seq"])
                self._found.other += [f"sink {index}: {row}{wrong}" for wrong in self._wrong(row)]
            self._taken[index] = len(seen.rows)
        self._committed = committed

    def _wrong(self, row: dict[str, Any]) -> Iterator[str]:
        wanted = self._input.get(row["seq"])
        if wanted != [row["file"], row["user"], row["kind"]]:
            yield f" is not of the input: {wanted}"
        elif row["number"] not in self._drawn.of_row[row["seq"]]:
            yield f": its number was drawn by nobody; drawn for it: {self._drawn.of_row[row['seq']]}"
        if row["batch"] < self._committed:
            yield f" was not visible when Spark had committed {self._committed} batches: done was said too early"

    def differences(self, sinks: Sequence[Visible], committed: int, *, complete: bool) -> Differences:
        """A look, and all that there is against itself: the order, the state, one sink against the other.

        ``complete``: all that went in must be visible.
        """
        self.look(sinks, committed)
        found = Differences(0, self._found.twice, [*self._found.other, *disagreeing(sinks)])
        for index, seen in enumerate(sinks):
            whole = seen.rows if complete else [row for row in seen.rows if row["batch"] < committed]
            told = [*out_of_order(seen), *broken_chains(whole)]
            if complete:
                found.lost += len(self._input.keys() - self._seen[index])
                told += wrong_totals(seen.rows)
            found.other += [f"sink {index}: {each}" for each in told]
        return found


class _Drawn:
    """The numbers that were drawn for each row, by the files that the processors leave. A kill may cut a line off."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[Path, int] = {}
        self.of_row: defaultdict[int, set[int]] = defaultdict(set)

    def read(self) -> None:
        """What has come since."""
        for path in self._folder.glob("*.txt"):
            with path.open("rb") as file:
                file.seek(self._places.get(path, 0))
                whole = file.read().rpartition(b"\n")[0]
            self._places[path] = self._places.get(path, 0) + (len(whole) + 1 if whole else 0)
            for line in whole.splitlines():
                seq, number = map(int, line.split())
                self.of_row[seq].add(number)


def disagreeing(sinks: Sequence[Visible]) -> Iterator[str]:
    """Rows that two sinks show with the numbers of two runs."""
    first: dict[int, tuple[int, dict[str, Any]]] = {}
    for index, seen in enumerate(sinks):
        for row in seen.rows:
            other, same = first.setdefault(row["seq"], (index, row))
            if any(row[name] != same[name] for name in _OF_THE_RUN):
                yield f"sink {index} shows {row}, sink {other} {same}"


def out_of_order(seen: Visible) -> Iterator[str]:
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


def broken_chains(rows: Rows) -> Iterator[str]:
    """Users whose rows, of whole batches, do not make one chain: each ``before`` is the number of the row before.

    By the links and not by ``seq``: after a crash Spark's file source may put two files into one batch, in any order.
    """
    by_user: dict[str, Rows] = defaultdict(list)
    for row in rows:
        by_user[row["user"]].append(row)
    for user, mine in by_user.items():
        after = {row["before"]: row for row in mine}
        length, link = 0, after.get(None)
        while link is not None and length <= len(mine):
            length, link = length + 1, after.get(link["number"])
        if length != len(mine):
            strays = [row["seq"] for row in mine if row["before"] not in {None, *(other["number"] for other in mine)}]
            yield f"{user}: {len(mine)} visible rows, a chain of {length}; the state had what nobody sees at {strays}"


def wrong_totals(rows: Rows) -> Iterator[str]:
    """Kinds whose total is not the sum of their visible numbers."""
    for kind in sorted({row["kind"] for row in rows}):
        mine = [row for row in rows if row["kind"] == kind]
        found, wanted = max(row["total"] for row in mine), sum(row["number"] for row in mine)
        if found != wanted:
            yield f"kind {kind}: the state has {found}, the visible numbers make {wanted}"
