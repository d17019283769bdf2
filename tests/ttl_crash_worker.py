"""A process for the crash tests: plays batches of one slot whose states all have a TTL, and commits them, until all are
done or it is killed. In each batch it compares all states with what a list of the batches says.

``python -m tests.ttl_crash_worker <folder> <local folder> <batches>``. What Spark would keep (the committed handle) is
in ``<folder>/committed``, written in one step. Started again, it goes on from there.
"""

from __future__ import annotations

import os
import random
import sys

import pyarrow as pa
from tests.checkpoint_driver import FOLDED, HOST, NUMBERS, VALUES, SlotDriver

from holdfast._core import Store
from holdfast.checkpoint import BatchTime, Lifetime, StoredHandle
from holdfast.clock import SystemClock

START_MS = 1_700_000_000_000
TTL_MS = 1_000
LIFETIMES = [Lifetime(state, "processing", TTL_MS, 1, refreshes_on_read=False) for state in (VALUES, FOLDED, NUMBERS)]
KEYS = 300


def time_of(batch: int) -> int:
    """A batch each 100 ms, by a clock that is sometimes set back."""
    return START_MS + 100 * batch - (350 if batch % 17 == 16 else 0)


def keys_of(batch: int) -> list[int]:
    return random.Random(batch).sample(range(KEYS), 25)


def expected(batch: int) -> tuple[dict[int, int], dict[int, int], dict[int, list[int]]]:
    """Values, sums and lists as batch ``batch`` begins."""
    cutoff, stamp = 0, 0
    values: dict[int, tuple[int, int]] = {}
    sums: dict[int, tuple[int, int]] = {}
    lists: dict[int, list[tuple[int, int]]] = {}
    for number in range(batch + 1):
        cutoff = max(cutoff, time_of(number) - TTL_MS)
        values = {key: entry for key, entry in values.items() if entry[1] > cutoff}
        sums = {key: entry for key, entry in sums.items() if entry[1] > cutoff}
        lists = {key: [entry for entry in entries if entry[1] > cutoff] for key, entries in lists.items()}
        stamp = max(stamp, time_of(number))
        for key in keys_of(number) if number < batch else ():
            values[key] = (number, stamp)
            sums[key] = (sums.get(key, (0, 0))[0] + 1, stamp)
            lists.setdefault(key, []).append((number, stamp))
    return (
        {key: entry[0] for key, entry in values.items()},
        {key: entry[0] for key, entry in sums.items()},
        {key: [entry[0] for entry in entries] for key, entries in lists.items() if entries},
    )


def compare(store: Store, batch: int) -> None:
    """All states of a store in its batch ``batch``, before it writes."""
    rows = pa.array(range(KEYS), pa.int64())
    values = pa.array(store.value_state(VALUES, pa.int64()).get(rows)).to_pylist()
    sums = pa.array(store.reducing_state(FOLDED, pa.int64(), "sum").get(rows)).to_pylist()
    lists = pa.array(store.list_state(NUMBERS, pa.int64()).get(rows)).to_pylist()
    found = (
        {key: value for key, value in enumerate(values) if value is not None},
        {key: value for key, value in enumerate(sums) if value is not None},
        {key: value for key, value in enumerate(lists) if value},
    )
    assert found == expected(batch), f"batch {batch}"


def committed(folder: str) -> StoredHandle | None:
    path = os.path.join(folder, "committed")
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return StoredHandle.from_text(file.read())


def main(folder: str, local: str, batches: int) -> None:
    driver = SlotDriver(folder, clock=SystemClock())
    process = driver.process(HOST, local)
    stored = committed(folder)
    handle = process.state.whole(stored) if stored is not None else None
    while (batch := handle.batch_id + 1 if handle else 0) < batches:
        store = process.state.open(handle)
        process.state.begin(batch, None, LIFETIMES, BatchTime(time_of(batch)))
        compare(store, batch)
        rows = pa.array(keys_of(batch), pa.int64())
        store.value_state(VALUES, pa.int64()).put(rows, pa.array([batch] * len(rows), pa.int64()))
        store.reducing_state(FOLDED, pa.int64(), "sum").add_only(rows, pa.array([1] * len(rows), pa.int64()))
        store.list_state(NUMBERS, pa.int64()).append(rows, pa.array([batch] * len(rows), pa.int64()))
        handle = process.state.prepare()
        process.rest()
        path = os.path.join(folder, "committed")
        with open(path + ".new", "w") as file:
            file.write(handle.to_text())
        os.replace(path + ".new", path)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
