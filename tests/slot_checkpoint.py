"""A query of one slot whose handles stand in Spark's checkpoint as Spark's default provider keeps them, without Spark.

For what looks into checkpoints and mends them: runs, copies and killed attempts leave the files that they leave.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from tests.checkpoint_driver import OPERATOR, SMALL, SlotDriver, operator_record, some_rows
from tests.faults import owned_oracle
from tests.spark_files import SparkFiles

import holdfast as hf
from holdfast.checkpoint import Runs, register_operator
from holdfast.checkpoint.names import attempt_version_id
from holdfast.storage import LocalFileStore

QUERY = "00000000-0000-4000-8000-000000000007"
PREFIX = f"{QUERY}/{OPERATOR}"
RETAINED = 3
LIMITS = replace(SMALL, fold_deltas_max=2, snapshot_deltas_max=4, retained_batches=RETAINED)
_DAY_S = 86_400


class SlotCheckpoint:
    """Spark's checkpoint in ``folder/<name>``; the state in ``folder/store``, which copies have in common."""

    def __init__(self, folder: Path, name: str = "checkpoint") -> None:
        self.folder, self.name = folder, name
        self.driver = SlotDriver(folder, settings=LIMITS)
        self.spark = SparkFiles(folder / name, QUERY)
        self.generator = random.Random(name)
        self.run_numbers, self.attempts = itertools.count(1), itertools.count()
        self.looks = itertools.count()
        register_operator(self.driver.store, operator_record(), prefix=PREFIX)
        self.start()

    def start(self, local: str = "local-a", abandoned: tuple[str, ...] = ()) -> None:
        """A new run of the query, which gives these up. Whoever looks from now on finds what is there two days old."""
        age(self.folder / "store")
        self.run_id = f"{self.name}-run-{next(self.run_numbers)}"
        runs = Runs(self.driver.store, PREFIX, "sums", self.run_id, self.run_id)
        runs.register()
        limits = replace(LIMITS, abandoned_runs=abandoned)
        self.process = self.driver.process(local=local, runs=runs, prefix=PREFIX, settings=limits)

    def attempt(self) -> tuple[object, dict[int, int]]:
        """Prepares a version, which nobody commits."""
        rows = some_rows(self.generator)
        self.process.state.admit(self.process.whole(self.driver.handle), self.driver.next_batch)
        self.process.open(self.driver.handle)
        self.process.state.begin(self.driver.next_batch, attempt_version_id(self.run_id, next(self.attempts)))
        self.process.table.add(rows)
        return self.process.state.prepare(), rows

    def batches(self, count: int) -> None:
        for _ in range(count):
            handle, rows = self.attempt()
            self.process.rest()
            committed = self.driver.commit(handle, [rows])  # type: ignore[arg-type]
            batch_id = self.driver.next_batch - 1
            self.spark.commit(batch_id, [committed.to_text()])
            for log in ("commits", "offsets"):
                (self.folder / self.name / log / str(batch_id - RETAINED)).unlink(missing_ok=True)

    def copy(self, name: str) -> SlotCheckpoint:
        """As `cp -r` of Spark's checkpoint alone."""
        shutil.copytree(self.folder / self.name, self.folder / name)
        twin = object.__new__(SlotCheckpoint)
        twin.__dict__.update(self.__dict__)
        twin.name, twin.spark = name, SparkFiles(self.folder / name, QUERY)
        twin.driver = SlotDriver(self.folder, settings=LIMITS)
        twin.driver.handle, twin.driver.next_batch = self.driver.handle, self.driver.next_batch
        twin.driver.history, twin.driver.universe = list(self.driver.history), self.driver.universe
        twin.run_numbers, twin.generator = itertools.count(1), random.Random(name)
        return twin

    def open(self) -> hf.Checkpoint:
        return hf.Checkpoint(self.folder / self.name, state=self.folder / "store", temporary=self.folder)

    def assert_right(self) -> None:
        """Each retained batch holds what it held, in all its states, by storage alone, and no file is damaged or gone
        that leads to any of them: by whatever way, as who knows nothing of Holdfast tells. So it is for the query too,
        in a process that has nothing on its machine.
        """
        retained = dict(list(enumerate(self.driver.history[1:]))[-RETAINED:])
        with self.open() as opened:
            assert [version.batch_id for version in opened.versions()] == list(retained)
            found = opened.verify()
            assert found.whole and found.readable == tuple(retained), found
            for batch_id, (_, sums) in retained.items():
                states = [self._sums(opened, state, batch_id) for state in ("values", "folded", "numbers")]
                assert states == [sums] * 3, batch_id
        handles = [handle.to_text() for handle, _ in retained.values() if handle is not None]
        gone = [name for name in owned_oracle.needed(self.slot, handles) if not (self.slot / name).exists()]
        assert len(handles) == len(retained) > 0 and not gone, gone
        process = self.driver.process(local=f"nothing-{next(self.looks)}", prefix=PREFIX)
        assert self.driver.check(process) == "restore"
        for handle, sums in retained.values():
            assert process.sums(handle, self.driver.universe) == sums

    def _sums(self, opened: hf.Checkpoint, state: str, batch_id: int) -> dict[int, int]:
        found: defaultdict[int, int] = defaultdict(int)
        rows = opened.read("sums", state, batch_id=batch_id).read_all()
        assert state == "numbers" or len(rows) == len(rows["k"].unique())
        for key, value in zip(rows["k"].to_pylist(), rows["value"].to_pylist()):
            found[key] += value
        return dict(found)

    @property
    def slot(self) -> Path:
        return self.folder / "store" / PREFIX / "slot-00000"

    def stored(self) -> dict[str, bytes]:
        """All files of the state, by name."""
        root = Path(LocalFileStore(str(self.folder / "store")).root)
        return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def age(folder: Path, days: int = 2) -> None:
    """Makes all files older than they are, in their order."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            status = path.stat()
            shift = days * _DAY_S * 1_000_000_000
            os.utime(path, ns=(status.st_atime_ns - shift, status.st_mtime_ns - shift))
