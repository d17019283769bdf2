"""timers: what they cost while none is due, and how fast they fire: one slot with ten million, without Spark.

Two slots with the same totals and as much state beside them that no batch touches: in one a timer for each key, far
ahead, in the other a second sum. By pairs: a batch of 100 rows in each.

Then batches in which many are due, in processor time of this process. The timers alone: they are found, handed over in
order, removed, and the delta is durable. The same with a lookup of a total for each. And that in two workers by turns,
where each first takes in what the other one fired. Last the time of the earliest, in a worker that has just opened the
slot, and in one that had it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from benchmarks.figures import (
    Measured,
    arguments,
    at_least,
    at_most,
    figure,
    in_turns,
    middle,
    percentile,
    ratio,
    spread,
)
from benchmarks.records import recorded
from benchmarks.slot import TOTAL, Slot

import holdfast as hf
from holdfast.checkpoint import FIRST_TIMERS_ID, StateRecord
from holdfast.state import Context

ROWS = 100
#: Batches in which so many timers fire as are due in one, of each kind.
ROUNDS = 6
MINUTES = 3 * ROUNDS
WHEN = StateRecord(FIRST_TIMERS_ID, "when", "timers", pa.schema([("namespace", pa.string())]), "processing")
OUTPUT = pa.schema([("key", pa.int64()), ("value", pa.int64())])
OTHER = dataclasses.replace(TOTAL, id=2, name="other")
MINUTE_US = 60_000_000


class Totals(hf.BatchProcessor):
    """A sum, and nothing else."""

    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: Context) -> None:
        self.total.add_only(batch, batch["amount"])


class TotalsAndOthers(Totals):
    """Two of them, of which the second is only there: what a slot without timers has beside its totals."""

    other = hf.ReducingState(pa.int64(), "sum")

    def __init__(self, first_minute: int) -> None:
        self.first_minute = first_minute

    def process(self, batch: pa.RecordBatch, ctx: Context) -> None:
        super().process(batch, ctx)
        if self.first_minute:
            self.other.add_only(batch, batch["amount"])


class TotalsWithTimers(Totals):
    """A sum with a timer: of row n, after n microseconds and so many minutes. It gives its key and when it was due."""

    when = hf.Timers("processing")

    def __init__(self, first_minute: int) -> None:
        self.first_minute = first_minute

    def process(self, batch: pa.RecordBatch, ctx: Context) -> None:
        super().process(batch, ctx)
        if self.first_minute:
            times = batch["key"].to_numpy() % 1_000_003 + 1 + self.first_minute * MINUTE_US
            self.when.register(batch, pa.array(times).cast(pa.timestamp("us", "UTC")))

    def on_timers(self, batch: pa.RecordBatch, ctx: Context) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([batch["key"], batch["time"].cast(pa.int64())], schema=OUTPUT)


class TotalsByTimers(TotalsWithTimers):
    """The same; a timer gives the total of its key."""

    def on_timers(self, batch: pa.RecordBatch, ctx: Context) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([batch["key"], self.total.get(batch)], schema=OUTPUT)


def run(slot: Slot, processor: hf.BatchProcessor, keys: np.ndarray, now_minutes: int = 0) -> tuple[float, float, int]:
    """Milliseconds, processor seconds and output rows of a batch in the next worker."""
    batch = pa.record_batch({"key": keys, "amount": np.ones(len(keys), np.int64)})
    parts = (batch.slice(start, 65536) for start in range(0, len(keys), 65536))
    began = time.process_time()
    ms, given = slot.process(processor, OUTPUT, now_minutes * 60_000, parts)
    return ms, time.process_time() - began, given


def fill(slot: Slot, processor: Callable[[int], hf.BatchProcessor], keys: int, due: int) -> None:
    """A key each, in batches of 250k at most; the first ``due`` of them fall due in minute 1, the next in minute 2, and
    so on, MINUTES times, the others in minute 1000.
    """
    starts = [number * due for number in range(MINUTES)]
    for first, end in zip([*starts, MINUTES * due], [*starts[1:], MINUTES * due, keys], strict=True):
        minute = 1000 if first == MINUTES * due else first // due + 1
        for start in range(first, end, 250_000):
            run(slot, processor(minute), np.arange(start, min(start + 250_000, end)))
    slot.settle()


def main() -> None:
    """10M keys and timers, of which 9M fire, half a million a batch; 200 pairs of small batches."""
    given = arguments(__doc__, keys=10_000_000, due=500_000, batches=200).parse_args()
    keys, due, batches = (200_000, 10_000, 30) if given.short else (given.keys, given.due, given.batches)
    with recorded(given) as folder:
        measure(folder, keys, due, batches)


def measure(folder: Path, keys: int, due: int, batches: int) -> None:
    """All figures."""
    plain = Slot(folder / "plain", TOTAL, OTHER, workers=2)
    timed = Slot(folder / "timed", TOTAL, WHEN, workers=2)
    fill(plain, TotalsAndOthers, keys, due)
    fill(timed, TotalsWithTimers, keys, due)
    without_mb = size_bytes(folder / "plain") / 1e6
    state = f"{keys:,} keys, each with a timer, in files; {without_mb:.0f} MB with a second sum instead"
    figure("timers.state_mb", size_bytes(folder / "timed") / 1e6, None, state)
    generator = np.random.default_rng(7)
    without: list[float] = []
    idle: list[float] = []
    for number in range(batches + 10):
        some = generator.integers(0, keys, ROWS)
        slots = [(plain, TotalsAndOthers(0), without), (timed, TotalsWithTimers(0), idle)]
        for slot, processor, series in slots[:: 1 if number % 2 else -1]:
            series.append(run(slot, processor, some)[0])
    ratio("timers.idle_cost", in_turns(idle[10:], without[10:]), at_most(1.05), f"{ROWS} rows a batch, {keys:,} timers")
    print(f"small batches: without {spread(without[10:], ' ms')}, with {spread(idle[10:], ' ms')}")

    fresh = timed.worker()
    began = time.perf_counter()
    table = fresh.open(timed.handle).timers(WHEN.id)
    opened = time.perf_counter()
    assert table.next_due() is not None
    sought = time.perf_counter()
    asked = []
    for _ in range(1000):
        start = time.perf_counter()
        table.next_due()
        asked.append((time.perf_counter() - start) * 1e6)
    figure("timers.next_due_us", percentile(asked, 50), None, "in a worker that knows it", Measured.again(asked))
    figure(
        "timers.next_due_first_ms", (sought - opened) * 1000, note=f"new worker; open {(opened - began) * 1000:.0f} ms"
    )

    note = f"{due:,} timers a batch, processor seconds"
    minutes = iter(range(2, MINUTES + 2))

    def again(processor: TotalsWithTimers) -> list[float]:
        return [fire(timed, processor, next(minutes), due) for _ in range(ROUNDS)]

    timed.stay()
    middle("timers.fired_alone_per_s", again(TotalsWithTimers(0)), None, note)
    middle("timers.fired_per_s", again(TotalsByTimers(0)), at_least(500_000), f"{note}, a lookup of a total for each")
    timed.take_turns()
    by_turns = f"{note}, a lookup for each, two workers by turns"
    middle("timers.fired_by_turns_per_s", again(TotalsByTimers(0)), None, by_turns)


def fire(slot: Slot, processor: TotalsWithTimers, now_minutes: int, due: int) -> float:
    """Timers a second of a batch in which those of one more minute are due. What it leaves to the background is done
    before the next one, and is not in it.
    """
    _, cpu_s, fired = run(slot, processor, np.array([0]), now_minutes)
    if fired != due:
        raise RuntimeError(f"minute {now_minutes}: expected {due} timers, found {fired}")
    slot.settle()
    return fired / cpu_s


def size_bytes(folder: Path) -> int:
    """Of the files of a slot's newest base; 0 where it has none, as in a small form."""
    newest = max(folder.glob("local/**/bases/*"), key=lambda path: path.name, default=folder / "none")
    return sum(path.stat().st_size for path in newest.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
