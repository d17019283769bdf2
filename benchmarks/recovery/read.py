"""read: how fast a version of a checkpoint is read as a table. No Spark.

One slot with a snapshot and deltas over it, keys of text, values of 100 random bytes. Processor time of this process,
all its threads; the version is on this machine already, which the first reading sees to.
"""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow.compute as pc
from benchmarks.figures import arguments, at_least, figure, middle
from benchmarks.records import recorded
from benchmarks.recovery.stored import PUTS, stored

import holdfast as hf


def read(folder: Path, measured: int) -> None:
    """Rows a second, of all columns; and of the first time, which brings the version."""
    rates: list[float] = []
    with hf.Checkpoint(folder / "checkpoint", temporary=folder) as checkpoint:
        start = time.process_time()
        first = checkpoint.read(*PUTS).read_next_batch()
        brought = time.process_time() - start
        for _ in range(measured):
            start = time.process_time()
            rows = sum(batch.num_rows for batch in checkpoint.read(*PUTS))
            rates.append(rows / (time.process_time() - start))
        wanted = first["key"][0].as_py()
        found = checkpoint.read(*PUTS, filter=pc.field("key") == wanted).read_all()
        assert found.num_rows == 1
    middle("read.rows_per_s", rates, at_least(1_000_000), f"{rows:,} rows")
    figure("read.bring_s", brought, None, "the snapshot checked and linked, two deltas folded in")


def main() -> None:
    parser = arguments(__doc__, rows=4_000_000, measured=9)
    given = parser.parse_args()
    if given.short:
        given.rows, given.measured = 40_000, 2
    with recorded(given) as folder:
        stored(folder, given.rows)
        read(folder, given.measured)


if __name__ == "__main__":
    main()
