"""rescale: what it takes a query to begin with the state of an earlier one, with other slots. No Spark.

One slot with a snapshot and deltas over it, keys of text, values of 100 random bytes; of it three slots, of these two:
each slot's first version, made and in storage, two at once. The local disk of each begins empty. Rows are counted.
"""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.figures import arguments, at_most, figure
from benchmarks.records import recorded
from benchmarks.recovery.stored import PUTS, begun, first_versions, stored
from tests.spark_files import SparkFiles

import holdfast as hf
from holdfast.inspect.earlier import EarlierQuery
from holdfast.storage import StorageOptions
from holdfast.testing.harness import QUERY_ID

#: Slots of the generations after the first.
_SLOTS = (3, 2)
_AT_ONCE = 2


def rescale(folder: Path) -> None:
    """Seconds a gigabyte of state, of all steps together; and those of processors."""
    wall = processor = gigabytes = 0.0
    notes = []
    before, rows = folder, _rows(folder)
    for slots in _SLOTS:
        earlier = EarlierQuery(str(before / "checkpoint"), str(before / "state"), None, StorageOptions(), None)
        record = begun(earlier, slots)
        after = folder / f"of-{slots}"
        started, used = time.perf_counter(), time.process_time()
        handles = first_versions(record, after, _AT_ONCE)
        seconds, cpu = time.perf_counter() - started, time.process_time() - used
        size = sum(handle.snapshots[0].state_bytes for handle in handles) / 1e9
        wall, processor, gigabytes = wall + seconds, processor + cpu, gigabytes + size
        notes.append(f"{slots} slots: {seconds / size:.3g}")
        SparkFiles(after / "checkpoint", QUERY_ID).commit(0, [handle.to_text() for handle in handles])
        assert _rows(after) == rows
        before = after
    told = f"{rows:,} rows, {gigabytes / len(_SLOTS):.2f} GB; to {', '.join(notes)}"
    figure("rescale.seconds_per_gb", wall / gigabytes, at_most(10), told)
    figure("rescale.processor_seconds_per_gb", processor / gigabytes)


def _rows(folder: Path) -> int:
    with hf.Checkpoint(folder / "checkpoint", state=folder / "state", temporary=folder) as checkpoint:
        return sum(batch.num_rows for batch in checkpoint.read(*PUTS, columns=["key"]))


def main() -> None:
    parser = arguments(__doc__, rows=8_000_000)
    given = parser.parse_args()
    if given.short:
        given.rows = 40_000
    with recorded(given) as folder:
        stored(folder, given.rows)
        rescale(folder)


if __name__ == "__main__":
    main()
