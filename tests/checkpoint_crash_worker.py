"""A process for the crash tests: plays batches of one slot and commits them, until all are done or it is killed.

``python -m tests.checkpoint_crash_worker <folder> <local folder> <batches> <spills>``. What Spark would keep (the
committed handle) is in ``<folder>/committed``, written in one step. Started again, it goes on from there.
"""

from __future__ import annotations

import os
import random
import sys
from dataclasses import replace

from tests.checkpoint_driver import HOST, SMALL, SlotDriver, some_rows

from holdfast.checkpoint import CheckpointSettings, StoredHandle
from holdfast.clock import SystemClock


def settings(spills: bool) -> CheckpointSettings:
    return replace(SMALL, batch_memory_max_bytes=100_000) if spills else SMALL


def rows_of(batch: int, spills: bool) -> list[dict[int, int]]:
    generator = random.Random(batch)
    if spills and batch % 4 == 3:
        return [some_rows(generator, rows=1_000, keys=5_000) for _ in range(3)]
    return [some_rows(generator)]


def load(folder: str, spills: bool) -> SlotDriver:
    """The driver as Spark would start it again."""
    driver = SlotDriver(folder, settings=settings(spills), clock=SystemClock())
    path = os.path.join(folder, "committed")
    if os.path.exists(path):
        with open(path) as file:
            stored = StoredHandle.from_text(file.read())
        handle = driver.process(HOST, "of-the-driver").state.whole(stored)
        for batch in range(handle.batch_id + 1):
            driver.commit(handle, rows_of(batch, spills))
    for part in rows_of(driver.next_batch, spills):  # of who was killed in it
        driver.universe.update(part)
    return driver


def main(folder: str, local: str, batches: int, spills: bool) -> None:
    driver = load(folder, spills)
    process = driver.process(HOST, local)
    while driver.next_batch < batches:
        parts = rows_of(driver.next_batch, spills)
        handle = process.run(driver.handle, driver.next_batch, parts)
        process.rest()
        path = os.path.join(folder, "committed")
        with open(path + ".new", "w") as file:
            file.write(handle.to_text())
        os.replace(path + ".new", path)
        driver.commit(handle, parts)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "spills")
