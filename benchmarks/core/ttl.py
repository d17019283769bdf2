"""ttl: what a time to live costs, and whether bytes on disk come down with it. No Spark.

Cost: batches that add to totals, in two slots by turns, one of whose states has a TTL. Disk: each batch puts keys that
never come again, a twentieth of a lifetime later than the one before, ten lifetimes long, with the folds that are due.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from benchmarks.figures import arguments, at_least, at_most, figure, in_turns, ratio
from benchmarks.records import recorded
from benchmarks.slot import PAYLOAD, TOTAL, Slot, payloads

from holdfast._core import Base, BaseOptions, BaseWriter
from holdfast.checkpoint import Lifetime

TTL_MS = 3_600_000
BATCHES_A_LIFETIME = 20
LIFETIMES = 10
LIVES = Lifetime(1, "processing", TTL_MS, 1, refreshes_on_read=False)


def cost(folder: Path, rows: int, keys: int, measured: int) -> None:
    """Rows/s with a TTL against those without."""
    generator = np.random.default_rng(7)
    slots = {name: Slot(folder / name, TOTAL) for name in ("without", "with")}
    slots["with"].lifetimes = (LIVES,)
    rates: dict[str, list[float]] = {name: [] for name in slots}
    for batch in range(measured + 3):
        drawn = pa.array(generator.integers(0, keys, rows))
        for name in slots if batch % 2 else reversed(slots):
            slots[name].now_ms += TTL_MS // BATCHES_A_LIFETIME
            ms = slots[name].add(drawn, drawn)
            slots[name].settle()
            if batch >= 3:
                rates[name].append(rows / ms * 1000)
    compared = in_turns(rates["with"], rates["without"])
    ratio("ttl.cost", compared, at_least(0.9), f"{rows:,} rows over {keys:,} keys a batch")


def disk(folder: Path, keys: int) -> None:
    """Bytes of the newest base after ten lifetimes, against those of a base of what is alive."""
    generator = np.random.default_rng(7)
    slot = Slot(folder, PAYLOAD)
    slot.lifetimes = (LIVES,)

    for _ in range(BATCHES_A_LIFETIME * LIFETIMES):
        slot.now_ms += TTL_MS // BATCHES_A_LIFETIME
        fresh = pa.array(generator.integers(0, 1 << 62, keys))
        slot.put(fresh, payloads(generator, keys, 100))
        slot.settle()
    newest = max((folder / "local").glob("**/files"), key=lambda found: found.stat().st_mtime_ns)
    held = size_of(newest)
    alone = folder / "alone"
    writer = BaseWriter(None, str(alone), BaseOptions())
    oldest = slot.now_ms - TTL_MS
    rows = 0
    for entries in Base(str(newest), BaseOptions()).scan():
        found = pa.record_batch(entries)
        stamps = [int.from_bytes(value[1:9], "big") for value in found["value"].to_pylist()]
        kept = found.filter(pa.array([stamp > oldest for stamp in stamps]))
        rows += kept.num_rows
        writer.add(as_delta(kept))
    writer.finish()
    figure("ttl.disk_ratio", held / size_of(alone), at_most(1.5), f"{held:,} bytes, {rows:,} entries alive")


def as_delta(entries: pa.RecordBatch) -> pa.RecordBatch:
    """Entries of a base as a delta that makes them."""
    keys = entries["key"].to_pylist()
    columns = {
        "key_group": pa.array([int.from_bytes(key[:2], "big") for key in keys], pa.uint16()),
        "state": pa.array([int.from_bytes(key[2:4], "big") for key in keys], pa.uint16()),
        "key": pa.array([key[4:] for key in keys], pa.binary()),
        "value": entries["value"],
    }
    return pa.record_batch(columns)


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def main() -> None:
    parser = arguments(__doc__, rows=200_000, keys=200_000, measured=60, fresh=20_000)
    given = parser.parse_args()
    if given.short:
        given.rows, given.keys, given.measured, given.fresh = 20_000, 20_000, 4, 500
    with recorded(given) as folder:
        disk(Path(folder) / "disk", given.fresh)
        cost(Path(folder) / "cost", given.rows, given.keys, given.measured)


if __name__ == "__main__":
    main()
