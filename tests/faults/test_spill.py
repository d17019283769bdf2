"""A batch that outgrows its memory: the same state, one delta, a base of the new version, and nothing when it fails."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace

import pytest
from tests.checkpoint_driver import SMALL, VALUES, SlotDriver
from tests.faulty_file_store import FaultyFileStore

from holdfast.checkpoint import BatchTime, CheckpointSettings, Host, Lifetime
from holdfast.errors import Unavailable
from holdfast.storage import LocalFileStore

TIGHT = replace(SMALL, batch_memory_max_bytes=300_000)
OTHER_HOST = Host("host-b", "machine-b", "boot-b")


def parts(seed: int, count: int = 4, rows: int = 2_000, keys: int = 20_000) -> list[dict[int, int]]:
    generator = random.Random(seed)
    return [{generator.randrange(keys): generator.randrange(1_000) for _ in range(rows)} for _ in range(count)]


@pytest.fixture
def driver(tmp_path):
    return SlotDriver(tmp_path, settings=TIGHT)


def test_a_batch_that_spills_is_the_same_batch(driver):
    process = driver.process()
    for seed in range(2):
        driver.play(process, *parts(seed))
        assert process.state.memory_bytes < 10 * TIGHT.batch_memory_max_bytes
        assert driver.check(process) == "equal"
        driver.play(process, {1: 1})
    assert driver.check(driver.process()) == "local_base"
    assert driver.check(driver.process(OTHER_HOST, "local-b")) == "restore"
    assert driver.local("work-*") == []


def test_a_spilled_batch_leaves_one_delta_of_several_pieces_and_a_base(driver):
    process = driver.process()
    driver.play(process, {1: 1}, rest=False)
    handle = driver.play(process, *parts(1), rest=False)
    assert len(driver.stored("delta/*")) == 2
    assert [path.rpartition("/")[2] for path in driver.local("bases/*")] == [f"{2:012d}-{handle.version_id}"]


def test_earlier_batches_that_no_base_holds_yet_go_into_the_private_base(driver):
    process = driver.process()
    for i in range(3):
        driver.play(process, {i: i, 7: 1}, rest=False)
    driver.play(process, *parts(2))
    assert driver.check(process)
    assert driver.check(driver.process()) == "local_base"


def test_a_spilled_delta_knows_the_event_times_of_all_rows(driver):
    """It is begun before the last rows have come; who takes the version over goes on from what it says."""
    process, rows = driver.process(), parts(1)
    table = process.open(None)
    stamps = process.state.begin(0, "0" * 32, [Lifetime(VALUES, "event", 1_000, 1, False)], BatchTime(0, None))
    for event_ms, part in enumerate(rows, 5_000):
        stamps.advance(event_ms)
        table.add(part)
        process.state.spill_if_needed()
    assert driver.local("work-*")
    prepared = process.state.prepare()
    assert [(state.latest_ms, state.counts) for state in prepared.expiry] == [(5_000 + len(rows) - 1, False)]
    other = driver.process(OTHER_HOST, "local-b")
    adopted = other.state.adopt(None, 0, "0" * 32)
    assert adopted is not None
    assert (adopted.expiry, adopted.deltas) == (prepared.expiry, prepared.deltas)
    assert other.sums(adopted, range(20_000)) == process.sums(prepared, range(20_000)) != {}


def test_a_spilled_batch_that_is_aborted_leaves_nothing(driver):
    process = driver.process()
    driver.play(process, *parts(1))
    process.open(driver.handle)
    process.state.begin(driver.next_batch)
    for part in parts(2):
        process.table.add(part)
        process.state.spill_if_needed()
    assert driver.local("work-*")
    process.state.abort()
    assert driver.local("work-*") == []
    assert driver.check(process) == "local_base"


def test_a_spilled_delta_that_storage_refuses_leaves_nothing(tmp_path):
    store = FaultyFileStore(LocalFileStore(str(tmp_path / "store")), only=["put_file"])
    driver = SlotDriver(tmp_path, settings=TIGHT, store=store)
    process = driver.process()
    driver.play(process, *parts(1))
    store.fail_at = lambda _: True
    with pytest.raises(Unavailable):
        process.run(driver.handle, driver.next_batch, parts(2))
    process.state.abort()
    store.fail_at = ()
    assert driver.check(process) == "local_base"
    driver.play(process, *parts(2))
    assert driver.check(driver.process(OTHER_HOST, "local-b")) == "restore"


def test_what_was_only_read_is_forgotten_rather_than_spilled(driver):
    process = driver.process()
    driver.play(process, dict.fromkeys(range(20000), 1))
    driver.play_some(process, 5)
    process.state.release_memory()
    process.open(driver.handle)
    process.state.begin(driver.next_batch)
    for first in range(0, 20_000, 2_000):
        process.table.read(range(first, first + 2_000))
        process.state.spill_if_needed()
        assert process.state.memory_bytes < 4 * TIGHT.batch_memory_max_bytes
    assert driver.local("work-*") == []
    process.state.abort()


def test_a_complete_store_never_spills(tmp_path):
    driver = SlotDriver(tmp_path, settings=replace(TIGHT, backend="hashmap"))
    process = driver.process()
    driver.play(process, *parts(1), rest=False)
    assert driver.local("bases/*") == []
    assert driver.check(process) == "equal"


def test_limits_may_change_at_a_restart(tmp_path):
    driver = SlotDriver(tmp_path, settings=TIGHT)
    driver.play(driver.process(), *parts(1))
    driver.settings = CheckpointSettings()
    driver.play(driver.process(), *parts(2))
    driver.settings = replace(TIGHT, backend="hashmap", delta_compression="zstd")
    driver.play(driver.process(), *parts(3))
    driver.settings = replace(TIGHT, delta_compression="none", rocksdb_compression="zstd")
    driver.play(driver.process(), *parts(4))
    assert driver.check(driver.process(OTHER_HOST, "local-b"))


def test_a_batch_spills_right_after_the_local_folder_was_cleared(tmp_path):
    """It was spilled over nothing: all of the state that was not in the newest deltas was lost, for good."""
    driver = SlotDriver(tmp_path, settings=replace(SMALL, batch_memory_max_bytes=64 << 10))
    process = driver.process()
    driver.play_some(process, 40)
    assert driver.committed.start > 0
    shutil.rmtree(tmp_path / "local-a")  # as who clears unused folders does, or whoever takes it for temporary
    driver.play(process, *(dict.fromkeys(range(first, first + 2000), 1) for first in range(1000, 9000, 2000)))
    driver.check(process)
    driver.check(driver.process())
