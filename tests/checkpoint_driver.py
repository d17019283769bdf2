"""Plays batches against SlotState and against a dictionary, and compares them.

A `SlotDriver` is one Spark: it holds the committed handle of one slot, and any number of processes (`Process`),
each with a SlotState of its own on one of the hosts, may run its next batch.
"""

from __future__ import annotations

import glob
import os
import random
import time
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from holdfast import rocksdb_library
from holdfast._core import Store
from holdfast.checkpoint import (
    Background,
    CheckpointSettings,
    Handle,
    Host,
    OperatorRecord,
    SlotState,
    StateRecord,
    StoredHandle,
)
from holdfast.checkpoint.names import slot_prefix
from holdfast.clock import new_id
from holdfast.storage import FileStore, LocalFileStore

KEY_SCHEMA = pa.schema([("k", pa.int64())])
VALUES, FOLDED, NUMBERS = 1, 2, 3
OPERATOR = "sums"
PREFIX = "query/sums"
HOST = Host("host-a", "machine-a", "boot-a")

# Small limits, so that a few batches meet every path.
SMALL = CheckpointSettings(
    fold_deltas_max=4, snapshot_deltas_max=8, retained_batches=3, stray_grace_ms=3_600_000, transfer_threads=2
)


class FakeClock:
    """Moves when told. Starts now, since the times of stored files are the file system's."""

    def __init__(self) -> None:
        self.ms = time.time_ns() // 1_000_000
        #: Of the wall clock against the one that never goes back.
        self.shift_ms = 0

    def now_ms(self) -> int:
        return self.ms + self.shift_ms

    def elapsed_ms(self) -> float:
        return float(self.ms)


def operator_record(slots: int = 1, name: str = OPERATOR) -> OperatorRecord:
    return OperatorRecord(
        name=name,
        max_parallelism=16,
        slots=slots,
        labels=tuple(range(slots)),
        key_schema=KEY_SCHEMA,
        null_keys=False,
        states=(
            StateRecord(VALUES, "values", "value", pa.schema([("value", pa.int64())])),
            StateRecord(FOLDED, "folded", "reducing", pa.schema([("value", pa.int64())]), "sum"),
            StateRecord(NUMBERS, "numbers", "list", pa.schema([("element", pa.int64())])),
        ),
    )


def through_text(handle: Handle) -> Handle:
    """As it comes back from Spark's state, where the deltas before are known."""
    return StoredHandle.from_text(handle.to_text()).whole(handle.deltas[:-1])


class Process:
    """One Python worker: a SlotState and its background thread."""

    def __init__(self, driver: SlotDriver, host: Host, local_dir: str, **overrides: Any) -> None:
        rocksdb_library.load()
        self._driver = driver
        self.background = Background()
        weakref.finalize(self, self.background.stop)  # its thread would outlive the test, and hold files open
        given: dict[str, Any] = {
            "record": driver.record,
            "slot": driver.slot,
            "file_store": driver.store,
            "prefix": PREFIX,
            "local_dir": local_dir,
            "settings": driver.settings,
            "clock": driver.clock,
            "ids": driver.ids,
            "host": host,
            "background": self.background,
        }
        self.state = SlotState(**{**given, **overrides})

    def whole(self, handle: Handle | None) -> Handle | None:
        """As a task has it, which is given no more than its text."""
        return self.state.whole(handle.stored()) if handle is not None else None

    def open(self, handle: Handle | None) -> Sums:
        store = self.state.open(self.whole(handle))
        self.table = Sums(store, self._driver.universe)
        return self.table

    def run(self, handle: Handle | None, batch_id: int, parts: Iterable[Mapping[int, int]]) -> Handle:
        """An attempt at a batch; each part is an input batch."""
        self.open(handle)
        self.state.begin(batch_id)
        for part in parts:
            self.table.add(part)
            self.state.spill_if_needed()
        return self.state.prepare()

    def rest(self) -> None:
        """Waits for the background."""
        assert self.background.drain(240)

    def sums(self, handle: Handle | None, keys: Iterable[int]) -> dict[int, int]:
        keys = sorted(keys)
        self.open(handle)
        found = self.table.read(keys)
        return {key: value for key, value in zip(keys, found) if value is not None}


class SlotDriver:
    """Spark's side of one slot, with the dictionary that says what is right."""

    def __init__(
        self,
        folder: Any,
        *,
        settings: CheckpointSettings = SMALL,
        store: FileStore | None = None,
        slots: int = 1,
        slot: int = 0,
        name: str = OPERATOR,
        clock: Any = None,
        ids: Any = new_id,
    ) -> None:
        self.folder = str(folder)
        self.store = store or LocalFileStore(os.path.join(self.folder, "store"))
        self.settings = settings
        self.record = operator_record(slots, name)
        self.slot = slot
        self.clock = clock or FakeClock()
        self.ids = ids
        self.handle: Handle | None = None
        self.history: list[tuple[Handle | None, dict[int, int]]] = [(None, {})]
        #: Every key that any attempt has written, whether it was committed or not.
        self.universe: set[int] = set(range(-1, 3))
        self.next_batch = 0

    @property
    def oracle(self) -> dict[int, int]:
        return self.history[-1][1]

    @property
    def committed(self) -> Handle:
        """The handle of the last batch: there is one."""
        assert self.handle is not None
        return self.handle

    def process(self, host: Host = HOST, local: str = "local-a", **overrides: Any) -> Process:
        return Process(self, host, os.path.join(self.folder, local), **overrides)

    def play(self, process: Process, *parts: Mapping[int, int], rest: bool = True) -> Handle:
        """Runs a batch in ``process`` and commits it. The handle goes through its text, as in Spark."""
        handle = process.run(self.handle, self.next_batch, parts)
        if rest:
            process.rest()
        return self.commit(handle, parts)

    def commit(self, handle: Handle, parts: Iterable[Mapping[int, int]]) -> Handle:
        sums = dict(self.oracle)
        for part in parts:
            self.universe.update(part)  # an attempt in another operating system process has told nobody
            for key, value in part.items():
                sums[key] = sums.get(key, 0) + value
        self.handle = through_text(handle)
        self.history.append((self.handle, sums))
        self.next_batch += 1
        return self.handle

    def play_some(self, process: Process, batches: int, seed: int = 0, **options: Any) -> None:
        generator = random.Random(seed)
        for _ in range(batches):
            self.play(process, some_rows(generator), **options)

    def roll_back(self, batches: int) -> None:
        """Spark's checkpoint goes back: what came after never happened."""
        del self.history[len(self.history) - batches :]
        self.handle = self.history[-1][0]
        self.next_batch -= batches

    def check(self, process: Process) -> str:
        """Opens the committed version in ``process``, compares all of it, and says which way it was opened."""
        assert process.sums(self.handle, self.universe) == self.oracle
        assert process.state.recovery is not None
        return process.state.recovery.way

    def pass_time(self, ms: int) -> None:
        """By the clock of the machine, and by that of the storage, whose files are older then."""
        self.clock.ms += ms
        for path in glob.glob(os.path.join(self.folder, "store", "**", "*"), recursive=True):
            if os.path.isfile(path):
                status = os.stat(path)
                os.utime(path, ns=(status.st_atime_ns - ms * 1_000_000, status.st_mtime_ns - ms * 1_000_000))

    # --- files, for damage
    def stored(self, pattern: str) -> list[str]:
        return sorted(glob.glob(os.path.join(self.folder, "store", slot_prefix(PREFIX, self.slot), pattern)))

    def local(self, pattern: str, local: str = "local-a") -> list[str]:
        return sorted(glob.glob(os.path.join(self.folder, local, "*", slot_prefix(PREFIX, self.slot), pattern)))


def some_rows(generator: random.Random, rows: int = 20, keys: int = 60) -> dict[int, int]:
    return {generator.randrange(keys): generator.randrange(-1000, 1000) for _ in range(rows)}


def flip(path: str, position: int | None = None, bit: int = 0) -> None:
    """Flips one bit of a file, in place."""
    with open(path, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        position = size // 2 if position is None else position % size
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ (1 << bit)]))


def tear(path: str, length: int) -> None:
    os.truncate(path, length)


class Sums:
    """Sums by key, kept three times, in states that read and write in different ways: they must always agree.

    A ValueTable reads what is there before it writes; a ReducingTable folds blindly; a ListTable keeps every number.
    ``universe`` gets each key before it is written: what an attempt leaves that is never committed is looked for too.
    """

    def __init__(self, store: Store, universe: set[int]) -> None:
        self._universe = universe
        self.values = store.value_state(VALUES, pa.int64())
        self._folded = store.reducing_state(FOLDED, pa.int64(), "sum")
        self._numbers = store.list_state(NUMBERS, pa.int64())

    def read(self, keys: Iterable[int]) -> list[int | None]:
        wanted = pa.array(list(keys), pa.int64())
        found: list[int | None] = pa.array(self.values.get(wanted)).to_pylist()
        assert pa.array(self._folded.get(wanted)).to_pylist() == found
        lists = pa.array(self._numbers.get(wanted)).to_pylist()
        assert [sum(numbers) if numbers else None for numbers in lists] == found
        return found

    def add(self, part: Mapping[int, int]) -> None:
        self._universe.update(part)
        keys, numbers = pa.array(list(part), pa.int64()), pa.array(list(part.values()), pa.int64())
        old = pa.array(self.values.get(keys)).to_pylist()
        self.values.put(keys, pa.array([(o or 0) + n for o, n in zip(old, part.values())], pa.int64()))
        self._folded.add_only(keys, numbers)
        self._numbers.append(keys, numbers)
