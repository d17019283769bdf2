"""Tables of a base never change; but a version may be folded twice, into tables of the same names and sizes with other
bytes, since RocksDB writes into each table when and by which session it was made. Whoever holds the record of one must
not take it for that of the other: a snapshot of such a base was refused, or could not be restored.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.checkpoint_driver import SMALL, Process, SlotDriver, some_rows

from holdfast.checkpoint.base_folder import LocalBase, stored_file

FOLDED_BY_HAND = replace(SMALL, fold_deltas_max=1000, snapshot_deltas_max=1000)


def newest(process: Process, driver: SlotDriver) -> LocalBase:
    assert driver.handle is not None
    return process.state._bases.of(driver.handle)[0]


def fold(process: Process, driver: SlotDriver, parent: LocalBase | None) -> LocalBase:
    assert driver.handle is not None
    return process.state._maker.fold(parent, driver.handle)


def assert_described_as_they_are(base: LocalBase) -> None:
    found = [stored_file(os.path.join(base.files_path, file.name)) for file in base.record.files]
    described = [(file.name, file.size_bytes, file.checksum) for file in base.record.files]
    assert [(file.name, file.size_bytes, file.checksum) for file in found] == described


def test_a_version_folded_twice_is_described_by_the_record_of_its_own_fold(tmp_path: Path) -> None:
    driver = SlotDriver(tmp_path, settings=FOLDED_BY_HAND)
    one, other = driver.process(), driver.process()
    for number in range(3):
        driver.play(one, dict.fromkeys(range(50), number))
    first = fold(one, driver, None)
    assert newest(one, driver).record == first.record
    other.state._bases.discard(newest(other, driver))
    second = fold(other, driver, None)
    same_names = {file.name: file for file in first.record.files}
    tables = [file for file in second.record.files if file.name.endswith(".sst")]
    assert [same_names[file.name].size_bytes for file in tables] == [file.size_bytes for file in tables]
    assert [same_names[file.name].checksum for file in tables] != [file.checksum for file in tables]

    assert newest(one, driver).record == second.record  # and not what was read before
    for number in range(3):
        driver.play(other, dict.fromkeys(range(100, 150), number))
    for parent in (first, newest(one, driver)):  # a fold may have begun before the folder was made anew
        base = fold(one, driver, parent)
        assert_described_as_they_are(base)
        one.state._bases.discard(base)
    base = fold(one, driver, newest(one, driver))
    inherited = {file.name for file in tables} & {file.name for file in base.record.files}
    assert inherited and all(file.stored_as is None for file in base.record.files)
    assert one.state._maintenance._snapshots.upload(base, None).sequence == base.sequence
    driver.check(other)


@pytest.mark.long
def test_under_forced_folds_by_several_processes_each_record_is_that_of_its_folder(tmp_path: Path) -> None:
    driver = SlotDriver(tmp_path, settings=replace(SMALL, fold_deltas_max=1, snapshot_deltas_max=2))
    processes = [driver.process() for _ in range(3)]
    generator = random.Random(7)
    done: Counter[str] = Counter()
    for _ in range(40):
        driver.play(processes[generator.randrange(3)], some_rows(generator), rest=generator.random() < 0.5)
        arguments = [(process, driver, done) for process in processes[:2]]
        racing = [threading.Thread(target=folds_and_discards, args=one) for one in arguments]
        for thread in racing:
            thread.start()
        for thread in racing:
            thread.join()
        for process in processes:
            process.rest()
        # Who looks while a base is made anew takes it for damaged, and nobody may fold after that: one does, in peace.
        folds(processes[0], driver, processes[0].state._bases.of(driver.committed), Counter())
        for process in processes:  # none of the others has old bases to delete any more
            bases = process.state._bases.of(driver.committed)
            assert bases[0].sequence == driver.committed.sequence
            for base in bases:
                assert_described_as_they_are(base)
    assert done["folded"] > 20 and done["discarded"] > 5, f"they hardly met: {done}"
    for process in processes:
        driver.check(process)


def folds_and_discards(process: Process, driver: SlotDriver, done: Counter[str]) -> None:
    """What two processes do to one slot at the same time, beside their backgrounds: the one sure that a base is
    damaged, the other not yet aware that there is one.
    """
    bases = process.state._bases.of(driver.committed)
    if len(bases) > 1 and bases[0].sequence == driver.committed.sequence:
        process.state._bases.discard(bases.pop(0))
        done["discarded"] += 1
    folds(process, driver, bases, done)


def folds(process: Process, driver: SlotDriver, bases: list[LocalBase], done: Counter[str]) -> None:
    if bases and bases[0].sequence < driver.committed.sequence:
        process.state._maker.fold(bases[0], driver.committed)
        done["folded"] += 1
