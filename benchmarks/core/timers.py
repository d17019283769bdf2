"""timers: what they cost while none is due, and how fast they fire: one slot with ten million, without Spark.

Two slots with the same totals, one of them with a timer for each key, far ahead. By pairs: a batch of 100 rows in each.
Then a batch in which many are due, in processor time of this process; and the time of the earliest, in a worker that
has just opened the slot, and in one that had it.
"""

from __future__ import annotations

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
#: Batches in which so many timers fire as are due in one.
ROUNDS = 5
WHEN = StateRecord(FIRST_TIMERS_ID, "when", "timers", pa.schema([("namespace", pa.string())]), "processing")
OUTPUT = pa.schema([("key", pa.int64()), ("total", pa.int64())])
MINUTE_US = 60_000_000


class Totals(hf.BatchProcessor):
    """A sum, and nothing else."""

    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: Context) -> None:
        self.total.add_only(batch, batch["amount"])


class TotalsWithTimers(Totals):
    """The same with a timer, which gives the total: of row n, after n microseconds and so many minutes."""

    when = hf.Timers("processing")

    def __init__(self, first_minute: int) -> None:
        self.first_minute = first_minute

    def process(self, batch: pa.RecordBatch, ctx: Context) -> None:
        super().process(batch, ctx)
        if self.first_minute:
            times = batch["key"].to_numpy() % 1_000_003 + 1 + self.first_minute * MINUTE_US
            self.when.register(batch, pa.array(times).cast(pa.timestamp("us", "UTC")))

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
    so on, ROUNDS times, the others in minute 1000.
    """
    starts = [number * due for number in range(ROUNDS)]
    for first, end in zip([*starts, ROUNDS * due], [*starts[1:], ROUNDS * due, keys], strict=True):
        minute = 1000 if first == ROUNDS * due else first // due + 1
        for start in range(first, end, 250_000):
            run(slot, processor(minute), np.arange(start, min(start + 250_000, end)))
    slot.settle()


def main() -> None:
    """10M keys and timers, of which 5M fire, a million a batch; 200 pairs of small batches."""
    given = arguments(__doc__, keys=10_000_000, due=1_000_000, batches=200).parse_args()
    keys, due, batches = (200_000, 30_000, 30) if given.short else (given.keys, given.due, given.batches)
    with recorded(given) as folder:
        measure(folder, keys, due, batches)


def measure(folder: Path, keys: int, due: int, batches: int) -> None:
    """All figures."""
    plain, timed = Slot(folder / "plain", TOTAL, workers=2), Slot(folder / "timed", TOTAL, WHEN, workers=2)
    fill(plain, lambda minute: Totals(), keys, due)
    fill(timed, TotalsWithTimers, keys, due)
    state = f"{keys:,} keys, each with a timer, in files"
    figure("timers.state_mb", size_bytes(folder / "timed") / 1e6, None, state)
    generator = np.random.default_rng(7)
    without: list[float] = []
    idle: list[float] = []
    for number in range(batches + 10):
        some = generator.integers(0, keys, ROWS)
        slots = [(plain, Totals(), without), (timed, TotalsWithTimers(0), idle)]
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

    per_s = []
    for number in range(ROUNDS):
        _, cpu_s, fired = run(timed, TotalsWithTimers(0), np.array([0]), now_minutes=number + 2)
        if fired != due:
            raise RuntimeError(f"round {number}: expected {due} timers, found {fired}")
        per_s.append(fired / cpu_s)
        timed.settle()
    middle("timers.fired_per_s", per_s, at_least(500_000), f"{due:,} timers a batch, processor seconds")


def size_bytes(folder: Path) -> int:
    """Of the files of a slot's newest base; 0 where it has none, as in a small form."""
    newest = max(folder.glob("local/**/bases/*"), key=lambda path: path.name, default=folder / "none")
    return sum(path.stat().st_size for path in newest.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
