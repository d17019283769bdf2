"""upload: how much goes over the network for what changed. A state of 5 GB, 1 % of its keys changed a batch.

Bytes changed are the user's: 8 of the key and those of the value, for each key that changed. Values do not compress.
Peers: whole queries over a state of 1 GB: ours, and Spark's provider in both of its ways, a changelog for each batch
with snapshots by its maintenance, and new tables with each batch, as Flink's incremental checkpoints do it.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks.figures import arguments, at_most, figure
from benchmarks.records import recorded
from benchmarks.slot import PAYLOAD, Slot, payloads
from benchmarks.stream.last_payload import BY_TABLES, OURS, PAYLOAD_BYTES, SPARK, Stream
from benchmarks.stream.ways import Way
from benchmarks.stream.workload import configured, start_session, watch
from pyspark.sql import SparkSession

VALUE_BYTES = 100


def one_slot(folder: Path, state_bytes: int, cycles: int) -> None:
    """Fills the state, then measures over whole snapshot cycles."""
    # The smallest snapshot worth an upload is a setting of 64 MiB: a small form needs a smaller one.
    settings: dict[str, Any] = {"snapshot_bytes_min": 1 << 20} if state_bytes < 1e9 else {}
    slot = Slot(folder, PAYLOAD, **settings)
    generator = np.random.default_rng(7)
    stored = state_bytes // (8 + VALUE_BYTES)
    changed = max(1, stored // 100)
    for start in range(0, stored, 1_000_000):
        keys = np.arange(start, min(start + 1_000_000, stored))
        slot.put(pa.array(keys), payloads(generator, len(keys), VALUE_BYTES))
        slot.settle()
    _until_next_snapshot(slot, generator, stored, changed)
    slot.store.delta_bytes = slot.store.snapshot_bytes = 0
    started, batches = time.monotonic(), 0
    for _ in range(cycles):
        batches += _until_next_snapshot(slot, generator, stored, changed)
    changed_bytes = batches * changed * (8 + VALUE_BYTES)
    deltas, snapshots = slot.store.delta_bytes, slot.store.snapshot_bytes
    note = f"{stored:,} keys, {changed:,} changed a batch, {batches} batches, {time.monotonic() - started:.0f} s"
    figure("upload.delta_ratio", deltas / changed_bytes, at_most(1.2), note)
    cycle = f"deltas {deltas / 1e6:.0f} MB, snapshots {snapshots / 1e6:.0f} MB, {cycles} cycles"
    figure("upload.cycle_ratio", (deltas + snapshots) / changed_bytes, at_most(3), cycle)


def _until_next_snapshot(slot: Slot, generator: np.random.Generator, stored: int, changed: int) -> int:
    """Batches until a handle names a snapshot that it did not name before. Returns how many."""
    before = slot.handle.snapshots[:1] if slot.handle else ()
    batches = 0
    while slot.handle is None or slot.handle.snapshots[:1] == before:
        keys = generator.choice(stored, changed, replace=False)
        slot.put(pa.array(keys), payloads(generator, changed, VALUE_BYTES))
        slot.settle()
        batches += 1
        if batches > 1000:
            raise RuntimeError("no snapshot in 1000 batches")
    return batches


class Uploads:
    """What a query writes into its storage, by files that are watched while it runs: some go again."""

    def __init__(self, storage: Path) -> None:
        self._storage = storage
        self._sizes: dict[str, int] = {}
        self._before: dict[str, int] = {}

    def look(self) -> None:
        """Takes in what is there; each file with the largest size that it was seen to have."""
        for path in self._storage.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and path.suffix in _UPLOADED:
                    name = str(path.relative_to(self._storage))
                    self._sizes[name] = max(self._sizes.get(name, 0), path.stat().st_size)

    def begin(self) -> None:
        """What was there until now does not count."""
        self.look()
        self._before = dict(self._sizes)

    def bytes_of(self, *suffixes: str) -> int:
        """Since then, of files that are called so; of all of them, without any."""
        grown = {name: size - self._before.get(name, 0) for name, size in self._sizes.items()}
        return sum(size for name, size in grown.items() if not suffixes or name.endswith(suffixes))

    def count_of(self, suffix: str) -> int:
        """New files that are called so."""
        return sum(name.endswith(suffix) and name not in self._before for name in self._sizes)


def peers(folder: Path, state_bytes: int, batches: int) -> None:
    """Whole queries, one after the other."""
    keys = state_bytes // (8 + PAYLOAD_BYTES)
    stream = Stream(max(1, keys // 100), keys, f"pmod(xxhash64(value), {keys})")
    spark = start_session(folder, spark__sql__streaming__stateStore__maintenanceInterval="10s")
    ways = {"": OURS["holdfast"], "spark_": SPARK, "spark_by_tables_": BY_TABLES}
    for name, way in ways.items():
        found = _query(spark, folder / (name or "holdfast"), way, stream, batches)
        # Rows are drawn with replacement: so many different keys a batch, of all of them.
        different = keys * (1 - (1 - 1 / keys) ** stream.rows)
        changed_bytes = batches * different * (8 + PAYLOAD_BYTES)
        parts = ", ".join(
            f"{kind[1:]} {found.bytes_of(kind) / 1e6:.0f} MB in {found.count_of(kind)}" for kind in _UPLOADED
        )
        note = f"{keys:,} keys, {stream.rows:,} rows a batch, {batches} batches: {parts}"
        figure(f"upload.{name}query_ratio", found.bytes_of() / changed_bytes, None, note)
    spark.stop()


def _query(spark: SparkSession, folder: Path, way: Way, stream: Stream, batches: int) -> Uploads:
    """Fills, then counts what is uploaded for so many batches and for what is under way after them."""
    found = Uploads(folder)
    conf = {**way.conf, "spark.holdfast.checkpoint.dir": str(folder / "state")}
    conf.pop("spark.sql.streaming.stateStore.maintenanceInterval", None)  # of the session, and quicker
    with configured(spark, conf):
        writer = way.build(stream.of(spark)).writeStream.format("noop").outputMode(way.output_mode)
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
        ended = itertools.count(1)

        def each() -> None:
            found.begin() if next(ended) <= stream.filling else found.look()

        watch(query, stream.rows, measured=batches, warm_up=stream.filling, each=each)
        found.look()
    return found


#: Files of state: our deltas, tables of snapshots; Spark's changelogs, tables, snapshots' other files.
_UPLOADED = (".arrow", ".sst", ".changelog", ".zip")


def main() -> None:
    """One slot of 5 GB, and queries over 1 GB."""
    parser = arguments(__doc__, gigabytes=5.0, cycles=1, peer_gigabytes=1.0, batches=100)
    parser.add_argument("--only", choices=["slot", "peers"], help="one part")
    given = parser.parse_args()
    if given.short:
        given.gigabytes, given.peer_gigabytes, given.batches = 0.02, 0.02, 6
    with recorded(given) as folder:
        if given.only in (None, "slot"):
            one_slot(folder / "slot", int(given.gigabytes * 1e9), given.cycles)
        if given.only in (None, "peers"):
            peers(folder / "peers", int(given.peer_gigabytes * 1e9), given.batches)


if __name__ == "__main__":
    main()
