"""A processor that has every kind of state, and a plain dictionary that does the same: what readers are compared with.

Spark's workers import this module.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa

import holdfast as hf

ROWS = pa.schema(
    [
        ("user", pa.string()),
        ("place", pa.int32()),
        ("does", pa.string()),
        ("n", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),  # that event time goes by
    ]
)
RULES = pa.schema([("name", pa.string()), ("n", pa.int64())])
OUTPUT = "user string, n long"
PAIR = pa.struct([("n", pa.int64()), ("text", pa.string())])
POINT = pa.struct([("x", pa.int64()), ("y", pa.string())])
NOON = datetime(2027, 6, 1, 12, tzinfo=timezone.utc)
TTL_MS = 10_000


class Extent(hf.AggregateFunction[dict[str, int]]):
    """From the least to the greatest."""

    def create(self) -> dict[str, int]:
        return {"least": 1 << 40, "most": -(1 << 40)}

    def add(self, accumulator: dict[str, int], value: int) -> dict[str, int]:
        return {"least": min(accumulator["least"], value), "most": max(accumulator["most"], value)}

    def merge(self, a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
        return {"least": min(a["least"], b["least"]), "most": max(a["most"], b["most"])}

    def result(self, accumulator: dict[str, int]) -> int:
        return accumulator["most"] - accumulator["least"]


class KeepsAll(hf.KeyedProcessor):
    """Does what its rows say."""

    pair = hf.ValueState(PAIR)
    numbers = hf.ListState(pa.int64())
    points = hf.MapState(POINT, pa.float64())
    total = hf.ReducingState(pa.int64(), "sum")
    longest = hf.ReducingState(pa.int64(), lambda a, b: max(a, b))
    tally = hf.AggregatingState(pa.int64(), "count")
    mean = hf.AggregatingState(pa.int64(), "avg")
    spread = hf.AggregatingState(pa.int64(), "stddev")
    extent = hf.AggregatingState(
        pa.int64(), Extent, pa.struct([("least", pa.int64()), ("most", pa.int64())]), pa.int64()
    )
    recent = hf.ValueState(pa.int64(), ttl=TTL_MS)
    recents = hf.ListState(pa.string(), ttl=TTL_MS)
    alarms = hf.Timers("event")
    rules = hf.BroadcastState(pa.string(), pa.int64())
    buffer = hf.OperatorState(pa.int64(), redistribution="split")

    def process_rules(self, rows: pa.Table, ctx: hf.Context) -> None:
        for row in rows.to_pylist():
            if row["n"] is None:
                self.rules.remove(row["name"])
            else:
                self.rules.put(row["name"], row["n"])

    def process_rows(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[dict[str, Any]]:
        for row in rows.to_pylist():
            self.do(row["does"], row["n"])
        yield {"user": str(key[0]), "n": len(rows)}

    def do(self, does: str, n: int | None) -> None:
        if does == "clear":
            for state in (self.pair, self.numbers, self.points, self.total, self.mean, self.spread, self.recent):
                state.clear()
        elif does == "list":
            self.numbers.add(n)
        elif does == "buffer":
            self.buffer.add(n)
        elif n is None:
            return
        elif does == "pair":
            self.pair.update({"n": n, "text": None if n % 3 == 0 else f"text {n}"})
        elif does == "put":
            self.points.put({"x": n % 5, "y": "y" * (n % 3)}, math.nan if n % 7 == 0 else n / 2)
        elif does == "remove":
            self.points.remove({"x": n % 5, "y": "y" * (n % 3)})
        elif does == "fold":
            for fold in (self.total, self.longest, self.tally, self.mean, self.spread, self.extent):
                fold.add(n)
        elif does == "recent":
            self.recent.update(n)
            self.recents.add(str(n))
        elif does == "alarm":
            self.alarms.register(NOON + timedelta(seconds=n), f"namespace {n % 2}")

    def on_timer(self, key: tuple[Any, ...], time: datetime, namespace: str, ctx: hf.Context) -> None:
        pass


DOES = ("pair", "list", "put", "remove", "fold", "recent", "alarm", "buffer", "clear")


class Kept:
    """The same, kept in dictionaries."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[Any, ...], dict[str, Any]] = defaultdict(dict)
        self.rules: dict[str, int] = {}
        self.buffer: list[int | None] = []

    def take(self, rows: list[dict[str, Any]], rules: list[dict[str, Any]], now_ms: int) -> None:
        """A batch."""
        for rule in rules:
            if rule["n"] is None:
                self.rules.pop(rule["name"], None)
            else:
                self.rules[rule["name"]] = rule["n"]
        for key in dict.fromkeys((row["user"], row["place"]) for row in rows):
            for row in rows:
                if (row["user"], row["place"]) == key:
                    self._do(self.by_key[key], row["does"], row["n"], now_ms)

    def _do(self, kept: dict[str, Any], does: str, n: int | None, now_ms: int) -> None:
        if does == "clear":
            for state in ("pair", "numbers", "points", "total", "mean", "recent"):
                kept.pop(state, None)
        elif does == "list":
            kept.setdefault("numbers", []).append(n)
        elif does == "buffer":
            self.buffer.append(n)
        elif n is None:
            return
        elif does == "pair":
            kept["pair"] = {"n": n, "text": None if n % 3 == 0 else f"text {n}"}
        elif does == "put":
            kept.setdefault("points", {})[n % 5, "y" * (n % 3)] = math.nan if n % 7 == 0 else n / 2
        elif does == "remove":
            kept.get("points", {}).pop((n % 5, "y" * (n % 3)), None)
        elif does == "fold":
            for state in ("total", "all", "mean"):
                kept.setdefault(state, []).append(n)
        elif does == "recent":
            kept["recent"] = (n, now_ms)
            kept.setdefault("recents", []).append((str(n), now_ms))
        elif does == "alarm":
            kept.setdefault("alarms", set()).add((NOON + timedelta(seconds=n), f"namespace {n % 2}"))

    def rows_of(self, state: str, now_ms: int) -> list[tuple[Any, ...]]:
        """What a reader finds of a state after a batch at this time, sorted: (user, place, …) as its columns are."""
        if state == "rules":
            return sorted(self.rules.items())
        if state == "buffer":
            return [(0, at, n) for at, n in enumerate(self.buffer)]
        found = [(*key, *row) for key, kept in self.by_key.items() for row in _rows(kept, state, now_ms)]
        return sorted(found, key=repr)


def _rows(kept: dict[str, Any], state: str, now_ms: int) -> list[tuple[Any, ...]]:
    folded = kept.get("total" if state == "total" else "mean" if state in ("mean", "spread") else "all", [])
    if state == "pair":
        return [(kept["pair"],)] if "pair" in kept else []
    if state == "numbers":
        return list(enumerate(kept.get("numbers", [])))
    if state == "points":
        return [({"x": x, "y": y}, value) for (x, y), value in kept.get("points", {}).items()]
    if state == "alarms":
        return list(kept.get("alarms", ()))
    if state in ("recent", "recents"):
        values = [kept["recent"]] if state == "recent" and "recent" in kept else kept.get("recents", [])
        values = values if state == "recents" or "recent" in kept else []
        alive = [(value, at + TTL_MS) for value, at in values if at + TTL_MS > now_ms]
        return [(*place, value, _instant(at)) for place, (value, at) in zip(_places(state, alive), alive)]
    if not folded:
        return []
    if state == "extent":
        return [({"least": min(folded), "most": max(folded)},)]
    return [(_fold(state, folded),)]


def _places(state: str, values: list[Any]) -> list[tuple[int, ...]]:
    return [(at,) for at in range(len(values))] if state == "recents" else [() for _ in values]


def _fold(state: str, values: list[int]) -> Any:
    if state in ("total", "longest", "tally"):
        folds: dict[str, Callable[[list[int]], int]] = {"total": sum, "longest": max, "tally": len}
        return folds[state](values)
    mean = sum(values) / len(values)
    if state == "mean":
        return mean
    if len(values) < 2:
        return None
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _instant(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms)


#: By state: the columns of a reader that the dictionary knows.
COLUMNS: dict[str, list[str]] = {
    "pair": ["user", "place", "value"],
    "numbers": ["user", "place", "position", "value"],
    "points": ["user", "place", "map_key", "value"],
    "total": ["user", "place", "value"],
    "longest": ["user", "place", "value"],
    "tally": ["user", "place", "value"],
    "mean": ["user", "place", "value"],
    "spread": ["user", "place", "value"],
    "extent": ["user", "place", "accumulator"],
    "recent": ["user", "place", "value", "expiry"],
    "recents": ["user", "place", "position", "value", "expiry"],
    "alarms": ["user", "place", "time", "namespace"],
    "rules": ["map_key", "value"],
    "buffer": ["slot", "position", "value"],
}


def found_rows(table: pa.Table, state: str) -> list[tuple[Any, ...]]:
    """A table as :meth:`Kept.rows_of` gives it."""
    rows = [tuple(row[name] for name in COLUMNS[state]) for row in table.select(COLUMNS[state]).to_pylist()]
    return rows if state == "buffer" else sorted(rows, key=repr)


def same(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> bool:
    """Floats within rounding, NaN like NaN."""
    return len(found) == len(expected) and all(
        len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b)) for a, b in zip(found, expected)
    )


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return bool(a == b)
