"""upload: how much goes over the network for what changed. A state of 5 GB, 1 % of its keys changed a batch.

Bytes changed are the user's: 8 of the key and those of the value, for each key that changed. Values do not compress.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks.figures import arguments, at_most, figure
from benchmarks.records import recorded
from benchmarks.slot import PAYLOAD, Slot, payloads

VALUE_BYTES = 100


def main() -> None:
    """Fills the state, then measures over whole snapshot cycles."""
    parser = arguments(__doc__, gigabytes=5.0, cycles=1)
    given = parser.parse_args()
    state_bytes = int((0.02 if given.short else given.gigabytes) * 1e9)
    # The smallest snapshot worth an upload is a setting of 64 MiB: a small form needs a smaller one.
    settings: dict[str, Any] = {"snapshot_bytes_min": 1 << 20} if state_bytes < 1e9 else {}
    with recorded(given) as folder:
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
        for _ in range(given.cycles):
            batches += _until_next_snapshot(slot, generator, stored, changed)
        changed_bytes = batches * changed * (8 + VALUE_BYTES)
        deltas, snapshots = slot.store.delta_bytes, slot.store.snapshot_bytes
        note = f"{stored:,} keys, {changed:,} changed a batch, {batches} batches, {time.monotonic() - started:.0f} s"
        figure("upload.delta_ratio", deltas / changed_bytes, at_most(1.2), note)
        cycle = f"deltas {deltas / 1e6:.0f} MB, snapshots {snapshots / 1e6:.0f} MB, {given.cycles} cycles"
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


if __name__ == "__main__":
    main()
