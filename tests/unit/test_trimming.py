"""What a worker keeps between batches. Above its limit a worker of backend hashmap let go of whole slots after each
batch, and read them back before the next, silently.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from tests.checkpoint_driver import SMALL, Process, SlotDriver

from holdfast.checkpoint import OperatorRecord
from holdfast.errors import Fenced
from holdfast.settings import Settings
from holdfast.spark import worker
from holdfast.spark.plan import OperatorPlan


@pytest.fixture(autouse=True)
def own_states(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker, "_slot_states", worker._slot_states.__class__())
    monkeypatch.setattr(worker, "_warned_bytes", 0)
    yield


def slots(tmp_path: Path, backend: str, count: int) -> list[tuple[SlotDriver, Process]]:
    found = []
    for slot in range(count):
        driver = SlotDriver(tmp_path / str(slot), settings=replace(SMALL, backend=backend), slots=1)
        found.append((driver, driver.process()))
    return found


def keep(slot: int, process: Process) -> None:
    key = ("local", "operator", slot)
    worker._slot_states.pop(key, None)
    worker._slot_states[key] = ("run", process.state)


def run(slots: list[tuple[SlotDriver, Process]], at: list[int]) -> None:
    for slot in at:
        driver, process = slots[slot]
        driver.play(process, dict.fromkeys(range(2000), 1))
        keep(slot, process)
        worker.trim_slot_states(1)


def operator_of_run(folder: str, run: int) -> worker.LiveOperator:
    key = pa.schema([("user", pa.string())])
    declared = OperatorRecord("totals", 64, 1, (0,), key, null_keys=False, states=())
    plan = OperatorPlan(declared, True, f"instance-{run}", folder, Settings(), key, key, None, False, 1000)
    return worker.operator(plan, worker.BatchIdentity("query", f"run-{run}", 0, 0, 0, 0, None))


def test_hashmap_reads_no_slot_twice_however_small_the_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    several = slots(tmp_path, "hashmap", 3)
    with caplog.at_level(logging.WARNING, "holdfast"):
        for _ in range(6):
            run(several, [0, 1, 2])
    ways = [process.state.recovery.way for _, process in several if process.state.recovery is not None]
    assert ways == ["equal"] * 3
    warnings = [record.getMessage() for record in caplog.records if "memory.cache.max" in record.getMessage()]
    assert 1 <= len(warnings) <= 3 and "backend hashmap keeps all of its state in memory" in warnings[0]


def test_hashmap_lets_go_of_slots_that_went_elsewhere(tmp_path: Path) -> None:
    several = slots(tmp_path, "hashmap", 3)
    run(several, [0, 1, 2])
    run(several, [1, 2] * worker._BATCHES_AT_WORK)
    assert [key[2] for key in worker._slot_states] == [1, 2]
    several[0][0].check(several[0][1])


def test_rocksdb_keeps_to_its_limit(tmp_path: Path) -> None:
    several = slots(tmp_path, "rocksdb", 2)
    run(several, [0, 1])
    assert not worker._slot_states
    run(several, [0, 1])


def test_a_worker_that_is_used_by_run_after_run_forgets_the_oldest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It kept the operators of each run for as long as it lived."""
    monkeypatch.setattr(worker, "_operators", worker._operators.__class__())
    monkeypatch.setattr(worker, "_OPERATORS_MAX", 3)
    operator = partial(operator_of_run, str(tmp_path))
    lives = [operator(run) for run in range(3)]
    assert [operator(run) for run in (1, 2, 0)] == [lives[1], lives[2], lives[0]]
    operator(3)
    assert [live.runs.run_id for live in worker._operators.values()] == ["run-2", "run-0", "run-3"]
    # One that was forgotten is compared, and registered, as in a new process: newer runs have come since.
    with pytest.raises(Fenced, match="run run-3 began after this one, run-1"):
        operator(1)
