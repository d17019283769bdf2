"""savepoint: what it costs to make a savepoint, and to read one. No Spark.

One slot with a snapshot and deltas over it, keys of text, values of 100 random bytes. Processor time of this process,
all its threads, after a first time that fills the page cache.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from benchmarks.figures import arguments, at_least, figure, machine, spread, work_folder
from benchmarks.recovery.stored import PUTS, stored

import holdfast as hf


def create(folder: Path, measured: int) -> None:
    """Megabytes of Parquet a second, and rows a second of reading it."""
    made: list[float] = []
    read: list[float] = []
    with hf.Checkpoint(folder / "checkpoint", temporary=folder) as checkpoint:
        for number in range(measured + 1):
            start = time.process_time()
            saved = hf.Savepoint.create(checkpoint=checkpoint, to=folder / f"saved-{number}")
            seconds = time.process_time() - start
            size = sum(path.stat().st_size for path in Path(saved.path(*PUTS)).iterdir())
            start = time.process_time()
            rows = sum(batch.num_rows for batch in saved.read(*PUTS))
            if number:
                made.append(size / 1e6 / seconds)
                read.append(rows / (time.process_time() - start))
    note = f"{size / 1e6:.0f} MB of Parquet; {spread(made)}"
    figure("savepoint.create_mb_per_s", float(np.median(made)), at_least(100), note)
    figure("savepoint.read_rows_per_s", float(np.median(read)), None, spread(read))


def main() -> None:
    parser = arguments(__doc__, rows=4_000_000, measured=7)
    given = parser.parse_args()
    if given.short:
        given.rows, given.measured = 40_000, 2
    machine()
    with work_folder(given.folder) as folder:
        stored(folder, given.rows)
        create(folder, given.measured)


if __name__ == "__main__":
    main()
