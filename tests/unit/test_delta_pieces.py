"""Deltas past what one Arrow array holds: they could be built, and never stored, so that the query was stuck."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from tests.checkpoint_driver import SMALL, SlotDriver, some_rows

from holdfast._core import Store
from holdfast.checkpoint import prepared_delta


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.checkpoint.slot_context.Store", partial(Store, delta_bytes_max=200))


def pieces_of(path: str) -> list[int]:
    reader = pa.ipc.open_file(path)
    return [reader.get_batch(number).num_rows for number in range(reader.num_record_batches)]


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_a_delta_in_many_pieces_is_one_file_that_every_way_of_opening_reads(tmp_path: Path, backend: str) -> None:
    driver = SlotDriver(tmp_path, settings=replace(SMALL, backend=backend))
    process, behind = driver.process(), driver.process()
    generator = random.Random(3)
    for number in range(12):
        driver.play(process, some_rows(generator, rows=60, keys=200))
        if number % 5 == 0:
            driver.check(behind)
    assert all(len(pieces_of(path)) > 3 for path in driver.stored("delta/*"))
    driver.check(behind)
    driver.check(driver.process(local="elsewhere"))
    assert not driver.local("work-*")


@pytest.mark.usefixtures("small_pieces")
def test_a_spilled_batch_in_pieces(tmp_path: Path) -> None:
    driver = SlotDriver(tmp_path, settings=replace(SMALL, batch_memory_max_bytes=20_000))
    process = driver.process()
    generator = random.Random(5)
    for _ in range(3):
        driver.play(process, *[some_rows(generator, rows=200, keys=2000) for _ in range(4)])
        work, _ = process.state.take_work()
        assert work.spills > 1
        assert len(pieces_of(driver.stored("delta/*")[-1])) > 3 * work.spills
    driver.check(process)
    driver.check(driver.process(local="elsewhere"))


def test_one_large_value_goes_through_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_delta, "IN_MEMORY_MAX_BYTES", 100)
    driver = SlotDriver(tmp_path)
    process = driver.process()
    driver.play(process, dict.fromkeys(range(50), 1))
    assert [len(pieces_of(path)) for path in driver.stored("delta/*")] == [1]
    driver.check(driver.process(local="elsewhere"))


@pytest.mark.usefixtures("small_pieces")
def test_a_delta_that_storage_refuses_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = SlotDriver(tmp_path)
    process = driver.process()
    monkeypatch.setattr(driver.store, "put_file", refuses)
    with pytest.raises(OSError, match="no room"):
        process.run(None, 0, [dict.fromkeys(range(50), 1)])
    process.state.abort()
    assert not driver.stored("delta/*") and not driver.local("work-*")
    monkeypatch.undo()
    driver.play(process, dict.fromkeys(range(50), 1))
    driver.check(process)


def refuses(name: str, path: str) -> None:
    assert os.path.exists(path)
    raise OSError("no room")
