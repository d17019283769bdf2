"""A slot against a dictionary: any order of batches, failures, other processes and hosts, roll backs, lost local disks.

Storage keeps what it took, so the state must always come back; only that it may take another attempt, where storage
failed or a file of the machine was damaged. No attempt fails for nothing.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.checkpoint_driver import HOST, SMALL, Process, SlotDriver, flip, some_rows
from tests.example_count import examples
from tests.faulty_file_store import FaultyFileStore

from holdfast.checkpoint import Handle, Host
from holdfast.errors import Corrupt, HoldfastError, Unavailable
from holdfast.storage import LocalFileStore

HOSTS = {"local-a": HOST, "local-b": Host("host-b", "machine-b", "boot-b")}
PROCESSES = 4  # two on each host
HOUR_MS = 3_600_000

numbers = st.integers(0, 1_000_000)
processes = st.integers(0, PROCESSES - 1)


class SlotModel(RuleBasedStateMachine):
    backend = "rocksdb"
    remote = False

    @initialize()
    def start(self):
        self.folder = tempfile.mkdtemp(prefix="holdfast-model-")
        self.faults = FaultyFileStore(LocalFileStore(os.path.join(self.folder, "store")), remote=self.remote)
        limits = replace(SMALL, backend=self.backend, fold_deltas_max=2, snapshot_deltas_max=3, retained_batches=2)
        self.driver = SlotDriver(self.folder, settings=limits, store=self.faults)
        self.processes: list[Process | None] = [None] * PROCESSES
        self.rolled_back_to = 0
        self.damaged: set[str] = set()  # by folder of a host

    def teardown(self):
        if hasattr(self, "folder"):
            self.faults.fail_at = ()
            for number in range(PROCESSES):
                self.check(number)
            shutil.rmtree(self.folder, ignore_errors=True)

    def process(self, number: int) -> Process:
        found = self.processes[number]
        if found is None:
            local = sorted(HOSTS)[number % 2]
            found = self.processes[number] = self.driver.process(HOSTS[local], local)
        return found

    def abort(self, number: int, error: Corrupt | Unavailable, failures: int) -> None:
        """An attempt of a process has failed, and for a reason: storage has since it began, when it had failed so
        often, or a file of its machine is damaged.
        """
        assert self.faults.failures > failures or sorted(HOSTS)[number % 2] in self.damaged, repr(error)
        self.process(number).state.abort(error)

    @rule(number=processes, seed=numbers)
    def batch(self, number, seed):
        """A batch as Spark runs it: a task that fails is run again, by any process."""
        rows = [some_rows(random.Random(seed), rows=5, keys=30)]
        for attempt in range(4):
            one, failures = (number + attempt) % PROCESSES, self.faults.failures
            process = self.process(one)
            try:
                handle = process.run(self.driver.handle, self.driver.next_batch, rows)
                break
            except (Corrupt, Unavailable) as error:
                self.abort(one, error, failures)
                self.faults.fail_at = ()
        else:
            raise AssertionError("four attempts failed")
        process.rest()
        self.driver.commit(handle, rows)

    @rule(number=processes, seed=numbers, count=st.integers(1, 3))
    def attempts_that_are_not_committed(self, number, seed, count):
        """A zombie runs on, on versions that nobody else knows."""
        process = self.process(number)
        handle: Handle | None = self.driver.handle
        failures = self.faults.failures
        try:
            for i in range(count):
                rows = some_rows(random.Random(seed + i), rows=5, keys=30)
                handle = process.run(handle, self.driver.next_batch + i, [rows])
                process.rest()
        except (Corrupt, Unavailable) as error:
            self.abort(number, error, failures)

    @rule(number=processes)
    def batch_that_fails(self, number):
        process, failures = self.process(number), self.faults.failures
        try:
            process.open(self.driver.handle)
            process.state.begin(self.driver.next_batch)
            process.table.add({1: 1_000_000, 2: 1})
        except (Corrupt, Unavailable) as error:
            self.abort(number, error, failures)
        process.state.abort()

    @rule(number=processes)
    def check(self, number):
        for _ in range(4):
            process, failures = self.process(number), self.faults.failures
            try:
                self.driver.check(process)
                return
            except (Corrupt, Unavailable) as error:
                self.abort(number, error, failures)
                self.faults.fail_at = ()
        raise AssertionError("the slot did not open in four attempts")

    @rule(number=processes)
    def process_ends(self, number):
        self.processes[number] = None

    @rule(number=processes)
    def memory_is_released(self, number):
        self.process(number).state.release_memory()

    @rule(hours=st.integers(1, 3))
    def time_passes(self, hours):
        self.driver.clock.ms += hours * HOUR_MS

    @precondition(lambda self: len(self.driver.history) > 1 + self.rolled_back_to)
    @rule(data=st.data())
    def roll_back(self, data):
        most = min(self.driver.settings.retained_batches, len(self.driver.history) - 1 - self.rolled_back_to)
        back = data.draw(st.integers(1, most))
        self.driver.roll_back(back)
        # What was retained when those batches ran, not what they would have left; what is gone does not come back.
        oldest = len(self.driver.history) - 1 - (self.driver.settings.retained_batches - back)
        self.rolled_back_to = max(self.rolled_back_to, oldest)

    @rule(operation=st.integers(1, 4), after=st.booleans())
    def storage_will_fail(self, operation, after):
        self.faults.count = 0
        self.faults.fail_after = after
        self.faults.fail_at = (operation,)

    @rule(host=st.sampled_from(sorted(HOSTS)))
    def local_disk_is_lost(self, host):
        shutil.rmtree(os.path.join(self.folder, host), ignore_errors=True)
        self.damaged.discard(host)
        for number in range(PROCESSES):
            if sorted(HOSTS)[number % 2] == host:
                self.processes[number] = None

    @rule(host=st.sampled_from(sorted(HOSTS)), seed=numbers)
    def a_local_file_is_damaged(self, host, seed):
        generator = random.Random(seed)
        files = [path for path in self.driver.local("*/*/**", host) if os.path.isfile(path)]
        files += self.driver.local("bases/*/files/*", host)
        if not files:
            return
        self.damaged.add(host)
        path = generator.choice(sorted(files))
        size = os.path.getsize(path)
        if size and generator.random() < 0.7:
            flip(path, generator.randrange(size), generator.randrange(8))
        elif generator.random() < 0.5:
            os.truncate(path, generator.randrange(size + 1))
        else:
            os.unlink(path)


class HashmapModel(SlotModel):
    backend = "hashmap"


class RemoteModel(SlotModel):
    remote = True


for model in (SlotModel, HashmapModel, RemoteModel):
    model.TestCase.settings = settings(max_examples=examples(15), stateful_step_count=30)
TestSlot = SlotModel.TestCase
TestHashmap = HashmapModel.TestCase
TestRemote = RemoteModel.TestCase


@pytest.mark.long
@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_processes_that_run_at_once_while_the_background_works(tmp_path, backend):
    """Nobody waits for anybody: four processes run the same batches in threads, one of each is committed."""
    limits = replace(SMALL, backend=backend, fold_deltas_max=2, snapshot_deltas_max=4)
    driver = SlotDriver(tmp_path, settings=limits)
    names = ["local-a", "local-a", "local-b", "local-b"]
    workers = [driver.process(HOSTS[name], name) for name in names]
    generator = random.Random(backend)
    for _ in range(60):
        rows = some_rows(generator)
        results: list[Handle | HoldfastError] = []

        def attempt(worker: Process, rows=rows, results=results) -> None:
            try:
                results.append(worker.run(driver.handle, driver.next_batch, [rows]))
            except HoldfastError as error:
                worker.state.abort(error)
                results.append(error)

        threads = [threading.Thread(target=attempt, args=(worker,)) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        handles = [result for result in results if isinstance(result, Handle)]
        assert len(handles) == len(workers), results
        driver.commit(generator.choice(handles), [rows])
    for worker in workers:
        worker.rest()
        assert driver.check(worker)
    assert len(driver.committed.snapshots) == 2
