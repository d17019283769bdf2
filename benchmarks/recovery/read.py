"""read: how fast a version of a checkpoint is read as a table, and one key of it looked up. No Spark.

One slot with a snapshot and deltas over it, keys of text, values of 100 random bytes. Processor time of this process,
all its threads, and of lookups the time by the clock; the version is on this machine already, which the first reading
sees to.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pyarrow.compute as pc
from benchmarks.figures import arguments, at_least, at_most, figure, middle
from benchmarks.records import recorded
from benchmarks.recovery.stored import PUTS, stored

import holdfast as hf


def read(folder: Path, measured: int, lookups: int) -> None:
    """Rows a second, of all columns; of the first time, which brings the version; and of single keys."""
    rates: list[float] = []
    took_ms: list[float] = []
    with hf.Checkpoint(folder / "checkpoint", temporary=folder) as checkpoint:
        start = time.process_time()
        checkpoint.read(*PUTS).read_next_batch()
        brought = time.process_time() - start
        for _ in range(measured):
            start = time.process_time()
            rows = sum(batch.num_rows for batch in checkpoint.read(*PUTS))
            rates.append(rows / (time.process_time() - start))
        keys = checkpoint.read(*PUTS, columns=["key"]).read_all()["key"]
        for row in random.Random(7).sample(range(len(keys)), lookups):
            wanted = pc.field("key") == keys[row]
            start = time.perf_counter()
            found = checkpoint.read(*PUTS, filter=wanted).read_all()
            took_ms.append((time.perf_counter() - start) * 1000)
            assert found.num_rows == 1
        size = checkpoint.versions()[-1].operators[PUTS[0]]["bytes"]
    middle("read.rows_per_s", rates, at_least(1_000_000), f"{rows:,} rows")
    figure("read.bring_s", brought, None, "the snapshot checked and linked, two deltas folded in")
    middle("read.lookup_ms", took_ms, at_most(50), f"one key of a version of {size / 1e9:.2f} GB, each another one")


def main() -> None:
    parser = arguments(__doc__, rows=4_000_000, measured=9, lookups=200)
    given = parser.parse_args()
    if given.short:
        given.rows, given.measured, given.lookups = 40_000, 2, 20
    with recorded(given) as folder:
        stored(folder, given.rows)
        read(folder, given.measured, given.lookups)


if __name__ == "__main__":
    main()
