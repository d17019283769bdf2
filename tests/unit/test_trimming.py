"""What a worker keeps between batches. Above its limit a worker of backend hashmap let go of whole slots after each
batch, and read them back before the next, silently.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.checkpoint_driver import SMALL, Process, SlotDriver

import holdfast as hf
from holdfast.checkpoint import OperatorRecord
from holdfast.errors import Fenced
from holdfast.sealed import unseal
from holdfast.settings import Settings
from holdfast.spark import slots as slot_side
from holdfast.spark import worker
from holdfast.spark.plan import InputPlan, OperatorPlan
from holdfast.testing import Harness
from holdfast.testing.harness import QUERY_ID, STARTED_MS


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
    run: Any = "run"
    worker._slot_states[key] = (run, process.state)


def run(slots: list[tuple[SlotDriver, Process]], at: list[int]) -> None:
    for slot in at:
        driver, process = slots[slot]
        driver.play(process, dict.fromkeys(range(2000), 1))
        keep(slot, process)
        worker.trim_slot_states(1)


def operator_of_run(folder: str, run: int) -> worker.LiveOperator:
    key = pa.schema([("user", pa.string())])
    declared = OperatorRecord("totals", 64, 1, (0,), key, null_keys=False, states=())
    plan = OperatorPlan(declared, True, f"instance-{run}", folder, Settings(), (), key, (), 1000)
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


def open_files(driver: SlotDriver) -> list[str]:
    """Those of its local bases that this process has open or mapped."""
    opened = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    found = [os.readlink(path) for path in opened if os.path.islink(path)]
    found += Path("/proc/self/maps").read_text().splitlines()
    return [path for path in found if f"{driver.folder}/local-a/" in path and "/files/" in path]


@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_slots_that_were_not_used_for_long_are_let_go_of_whatever_room_there_is(tmp_path: Path, backend: str) -> None:
    """Open files and maps of queries that had ended, and of slots that had moved, stayed for as long as the worker."""
    several = slots(tmp_path, backend, 3)
    for slot, (driver, process) in enumerate(several):
        driver.play_some(process, 6)
        driver.check(process)
        keep(slot, process)
        del process.table
        assert bool(open_files(driver)) == (backend == "rocksdb")
    for passed_ms, left in ((worker._UNUSED_MS, [0, 1, 2]), (1, [1, 2])):
        several[0][0].clock.ms += passed_ms
        worker.trim_slot_states(1 << 30)
        assert [key[2] for key in worker._slot_states] == left
    assert not open_files(several[0][0]) and several[0][1].state.memory_bytes == 0
    several[1][1].state.begin(6)
    several[1][0].clock.ms += 2 * worker._UNUSED_MS
    several[2][0].clock.ms += 2 * worker._UNUSED_MS
    worker.trim_slot_states(1 << 30)
    assert [key[2] for key in worker._slot_states] == [1], "a batch is at hand"
    several[1][1].state.prepare()
    worker.trim_slot_states(1 << 30)
    assert [key[2] for key in worker._slot_states] == [1], "it has just ended"
    for driver, process in several[::2]:
        driver.check(process)


class Patient(hf.BatchProcessor):
    """Keeps all rows, and has a timer that is not due."""

    rows = hf.ListState(pa.string())
    due = hf.Timers("processing")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.rows.add(batch, batch["user"])
        self.due.register(batch, [ctx.timestamp + timedelta(days=1)] * batch.num_rows)

    def on_timers(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        raise AssertionError("no timer is due")


class HeldBySpark:
    """Spark's state of one slot's group, in a batch without rows."""

    exists = True

    def __init__(self, handle: str) -> None:
        self.get = (handle,)

    def update(self, value: tuple[str]) -> None:
        raise AssertionError("a batch in which nothing is due makes no version")

    def getCurrentProcessingTimeMs(self) -> int:
        return STARTED_MS + 1000


def test_a_slot_that_a_tick_wakes_for_nothing_is_kept_within_the_limit_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After a restart of an idle query each tick opened all its slots, and a worker kept all it had opened."""
    with Harness(Patient(), "user", "user string", "user string", folder=tmp_path) as harness:
        harness.process([{"user": f"user-{number}"} for number in range(2000)])
        handle, record = harness.snapshot().handle, harness._record
    assert handle is not None
    limit = 1 << 14
    schema = pa.schema([("user", pa.string())])
    given = Settings.from_mapping({}, {"memory.cache.max": str(limit), "local.dir": str(tmp_path / "worker")})
    inputs = (InputPlan(hf.state.Input(None, ("user",)), schema, ("user",), None, None),)
    plan = OperatorPlan(record, True, "instance", str(tmp_path / "state"), given, inputs, schema, (), 1000)
    identity = worker.BatchIdentity(QUERY_ID, "run", 1, 0, 0, 0, None)
    monkeypatch.setattr(worker.BatchIdentity, "of_task", lambda: identity)
    held: Any = HeldBySpark(handle.to_text())
    assert list(slot_side._run_slot(plan, Patient(), 0, iter([]), held)) == []
    assert sum(state.memory_bytes for _, state in worker._slot_states.values()) <= limit


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


def test_a_run_is_registered_with_the_batch_at_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A later run tells by it which batch was not committed."""
    monkeypatch.setattr(worker, "_operators", worker._operators.__class__())
    live = operator_of_run(str(tmp_path), 0)
    [file] = live.file_store.list(f"{live.prefix}/runs/")
    text = live.file_store.get(file.name)
    assert text is not None and unseal(text, "holdfast.run", 1, file.name)["first_batch"] == 0
