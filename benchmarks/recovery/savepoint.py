"""savepoint: what it costs to make a savepoint, to read one, and to begin with one. No Spark.

One slot with a snapshot and deltas over it, keys of text, values of 100 random bytes. Processor time of this process,
all its threads, after a first time that fills the page cache; of a native savepoint wall time, beside an upload of what
the newest snapshot had not from the one before, by turns.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from benchmarks.figures import arguments, at_least, at_most, in_turns, middle, ratio
from benchmarks.records import recorded
from benchmarks.recovery.stored import PUTS, begun, first_versions, stored

import holdfast as hf
from holdfast.inspect.earlier import earlier_savepoint
from holdfast.storage import LocalFileStore, StorageOptions


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
    note = f"{size / 1e6:.0f} MB of Parquet"
    middle("savepoint.create_mb_per_s", made, at_least(100), note)
    middle("savepoint.read_rows_per_s", read)


def restore(folder: Path, measured: int) -> None:
    """Megabytes of Parquet a second that a slot begins with: its first version made, in storage."""
    saved = hf.Savepoint(folder / "saved-0")
    size = saved.bytes
    record = begun(earlier_savepoint(str(folder / "saved-0"), StorageOptions()), 1)
    rates: list[float] = []
    for number in range(measured + 1):
        start = time.process_time()
        first_versions(record, folder / "begun", 1)
        seconds = time.process_time() - start
        if number:
            rates.append(size / 1e6 / seconds)
        shutil.rmtree(folder / "begun")
    middle("savepoint.restore_mb_per_s", rates, at_least(100))


def native(folder: Path, measured: int) -> None:
    """Seconds of a native savepoint ÷ those of an upload of what the newest snapshot brought."""
    tables = list((folder / "state").rglob("sst/*"))
    newest = max(tables, key=lambda path: path.stat().st_mtime_ns).name.partition("-")[0]
    new = [path for path in tables if path.name.startswith(newest)]
    made: list[float] = []
    uploaded: list[float] = []
    with hf.Checkpoint(folder / "checkpoint", temporary=folder) as checkpoint:
        for number in range(measured):
            start = time.perf_counter()
            saved = hf.Savepoint.create(checkpoint=checkpoint, to=folder / f"native-{number}", format="native")
            made.append(time.perf_counter() - start)
            store = LocalFileStore(str(folder / f"uploaded-{number}"))
            start = time.perf_counter()
            for path in new:
                store.put_file(path.name, str(path))
            uploaded.append(time.perf_counter() - start)
    size = sum(path.stat().st_size for path in new)
    note = f"{saved.bytes / 1e6:.0f} MB of state, {size / 1e6:.0f} MB of them new"
    ratio("savepoint.native_create", in_turns(made, uploaded), at_most(1), note)


def main() -> None:
    parser = arguments(__doc__, rows=4_000_000, measured=7)
    given = parser.parse_args()
    if given.short:
        given.rows, given.measured = 40_000, 2
    with recorded(given) as folder:
        stored(folder, given.rows)
        create(folder, given.measured)
        restore(folder, given.measured)
        native(folder, given.measured)


if __name__ == "__main__":
    main()
