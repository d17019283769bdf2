"""Files torn at every length, bits flipped, files swapped: found and named, or not needed; never a wrong state."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.checkpoint_driver import SMALL, Process, SlotDriver, flip

from holdfast._core import TimerTable
from holdfast.checkpoint import FIRST_TIMERS_ID, Host, StateRecord
from holdfast.checkpoint.base_folder import BaseRecord
from holdfast.checkpoint.delta_file import decode_delta
from holdfast.checkpoint.snapshot import Manifest
from holdfast.errors import Corrupt, Incompatible

OTHER_HOST = Host("host-b", "machine-b", "boot-b")


@contextmanager
def damaged(path: str) -> Iterator[None]:
    """Whatever happens to the file, it is whole again afterwards."""
    with open(path, "rb") as file:
        content = file.read()
    try:
        yield
    finally:
        if os.path.isdir(os.path.dirname(path)):
            with open(path, "wb") as file:
                file.write(content)


def every_damage(data: bytes, step: int = 1) -> Iterator[bytes]:
    for length in range(0, len(data), step):
        yield data[:length]
    for position in range(0, len(data), step):
        yield data[:position] + bytes([data[position] ^ (1 << position % 8)]) + data[position + 1 :]
    yield data + b"\0"
    yield data[::-1]


def test_a_delta_torn_or_flipped_anywhere_is_found(tmp_path):
    driver = SlotDriver(tmp_path)
    driver.play(driver.process(), {1: 1, 2: 2})
    ref = driver.committed.deltas[0]
    with open(driver.stored("delta/*")[0], "rb") as file:
        data = file.read()
    assert decode_delta(data, ref, "sums", 0, "file")[0].num_rows == 2 * 3  # two keys in each of three states
    for wrong in every_damage(data):
        with pytest.raises(Corrupt, match=r"file .*slot 0, version 1 .*damaged"):
            decode_delta(wrong, ref, "sums", 0, "file")


@pytest.mark.parametrize("kind", ["manifest", "base"])
def test_a_record_torn_or_flipped_anywhere_is_found(tmp_path, kind):
    driver = SlotDriver(tmp_path)
    driver.play_some(driver.process(), 12)
    path = driver.stored("snapshot/*")[0] if kind == "manifest" else driver.local("bases/*/BASE.json")[0]
    read = Manifest.from_text if kind == "manifest" else BaseRecord.from_text
    with open(path, "rb") as file:
        data = file.read()
    assert read(data, "it").sequence > 0
    for wrong in every_damage(data):
        with pytest.raises((Corrupt, Incompatible), match="it "):
            read(wrong, "it")


@pytest.mark.parametrize("step", [37, pytest.param(3, marks=pytest.mark.slow)])
def test_whatever_file_in_storage_is_damaged_the_state_is_right_or_the_file_is_named(tmp_path, step):
    driver = SlotDriver(tmp_path)
    driver.play_some(driver.process(), 21)
    generator = random.Random(step)
    ways: dict[str, int] = {}
    for path in driver.stored("*/*"):
        size = os.path.getsize(path)
        for i in range(max(3, size // step // 40)):
            with damaged(path):
                if i % 3 == 2:
                    os.truncate(path, generator.randrange(size))
                else:
                    flip(path, generator.randrange(size), generator.randrange(8))
                shutil.rmtree(os.path.join(driver.folder, "local-b"), ignore_errors=True)
                try:
                    way = driver.check(driver.process(OTHER_HOST, "local-b"))
                except Corrupt as error:
                    assert os.path.basename(path) in str(error) and "slot 0" in str(error)
                    way = "refused"
            ways[way] = ways.get(way, 0) + 1
    assert set(ways) == {"restore", "fallback", "refused"}, ways


@pytest.mark.parametrize("positions", [10, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_whatever_file_on_this_machine_is_damaged_the_state_is_right(tmp_path, positions, backend):
    driver = SlotDriver(tmp_path, settings=replace(SMALL, backend=backend))
    driver.play_some(driver.process(), 21)
    keep = os.path.join(driver.folder, "keep")
    shutil.copytree(os.path.join(driver.folder, "local-a"), keep)
    relative = [os.path.relpath(path, os.path.join(driver.folder, "local-a")) for path in driver.local("bases/*/**")]
    relative += [os.path.relpath(p, os.path.join(driver.folder, "local-a")) for p in driver.local("bases/*/files/*")]
    ways: dict[str, int] = {}
    for name in [name for name in relative if os.path.isfile(os.path.join(keep, name))]:
        size = os.path.getsize(os.path.join(keep, name))
        for position in range(0, size, max(1, size // positions)):
            shutil.rmtree(os.path.join(driver.folder, "local-b"), ignore_errors=True)
            shutil.copytree(keep, os.path.join(driver.folder, "local-b"))
            path = os.path.join(driver.folder, "local-b", name)
            if position % 2:
                os.truncate(path, position)
            else:
                flip(path, position, position % 8)
            way = check_with_retries(driver)
            ways[way] = ways.get(way, 0) + 1
    assert "local_base" in ways and set(ways) <= {"local_base", "restore"}, ways


@pytest.mark.parametrize("positions", [20, pytest.param(400, marks=pytest.mark.slow)])
def test_timers_of_a_damaged_base_on_this_machine_all_fire_whatever_was_set_since(tmp_path, positions):
    driver = SlotDriver(tmp_path)
    due = StateRecord(FIRST_TIMERS_ID, "due", "timers", pa.schema([("namespace", pa.string())]), "processing")
    driver.record = replace(driver.record, states=(*driver.record.states, due))
    process = driver.process()
    expected: list[int] = []
    for times in (range(i, 2000, 4) for i in range(4)):  # and then a fold
        begun_timers(driver, process).register(*columns([7] * len(times), times))  # many blocks of one key group
        expected += times
        handle = process.state.prepare()
        process.rest()
        driver.commit(handle, [])
    (path,) = driver.local("bases/*/files/*.sst")
    size = os.path.getsize(path)
    refused = 0
    for position in range(0, size, size // positions):
        shutil.rmtree(os.path.join(driver.folder, "local-b"), ignore_errors=True)
        shutil.copytree(os.path.join(driver.folder, "local-a"), os.path.join(driver.folder, "local-b"))
        flip(path.replace("local-a", "local-b"), position, position % 8)
        other = driver.process(local="local-b")
        try:
            fired = fire_all(driver, other)
        except Corrupt as error:  # Spark runs the task again
            refused += 1
            other.state.abort(error)
            fired = fire_all(driver, other)
        assert fired == sorted(expected), f"byte {position} of {size}"
    assert refused > positions // 2


def begun_timers(driver: SlotDriver, process: Process) -> TimerTable:
    """In a batch that has begun."""
    store = process.state.open(process.whole(driver.handle))
    process.state.begin(driver.next_batch)
    return store.timers(FIRST_TIMERS_ID)


def columns(keys: Sequence[int], times: Sequence[int]) -> tuple[pa.Array, pa.Array, pa.Array]:
    return pa.array(keys, pa.int64()), pa.array(times, pa.int64()), pa.array([""] * len(keys), pa.string())


def fire_all(driver: SlotDriver, process: Process) -> list[int]:
    """The times that fire, in a batch that first sets a later timer."""
    timers = begun_timers(driver, process)
    timers.register(*columns([7], [1_000_000]))
    return pa.array(timers.take_due(999_999, 10_000)).field("time").to_pylist()


def check_with_retries(driver: SlotDriver) -> str:
    process = driver.process(local="local-b")
    for _ in range(3):
        try:
            return driver.check(process)
        except Corrupt as error:  # found while the batch read; Spark runs the task again
            process.state.abort(error)
    raise AssertionError("the slot did not come back in four attempts")


# --- swapped ---------------------------------------------------------------------------------------------------------


def two_slots(folder: str) -> list[SlotDriver]:
    """The same keys for both would be of one slot only, so each gets those of its own key groups."""
    from tests.checkpoint_driver import KEY_SCHEMA

    from holdfast._core import KeyCodec

    groups = pa.array(KeyCodec(KEY_SCHEMA).key_groups(pa.array(range(200), pa.int64()), 16)).to_pylist()
    drivers = [SlotDriver(folder, slots=2, slot=slot) for slot in (0, 1)]
    for slot, driver in enumerate(drivers):
        driver.universe = {key for key in range(200) if (groups[key] >= 8) == bool(slot)}
        process = driver.process()
        for i in range(21):
            driver.play(process, {key: i for key in driver.universe if (key + i) % 4 == 0})
    return drivers


def swap(a: str, b: str) -> None:
    os.rename(a, a + ".swap")
    os.rename(b, a)
    os.rename(a + ".swap", b)


def test_files_swapped_between_slots_are_found(tmp_path):
    first, second = two_slots(str(tmp_path))
    for kind in ("delta", "snapshot", "sst"):
        ours, theirs = first.stored(f"{kind}/*"), second.stored(f"{kind}/*")
        for a, b in zip(ours, theirs):
            swap(a, b)
        for driver in (first, second):
            shutil.rmtree(os.path.join(driver.folder, "local-b"), ignore_errors=True)
            with pytest.raises(Corrupt, match=f"slot {driver.slot}"):
                driver.check(driver.process(OTHER_HOST, "local-b"))
        for a, b in zip(ours, theirs):
            swap(a, b)
    shutil.rmtree(os.path.join(first.folder, "local-b"))
    assert first.check(first.process(OTHER_HOST, "local-b")) == "restore"


def test_a_slot_whose_whole_folder_is_anothers_is_found(tmp_path):
    first, second = two_slots(str(tmp_path))
    swap(os.path.dirname(first.stored("delta")[0]), os.path.dirname(second.stored("delta")[0]))
    with pytest.raises(Corrupt, match="missing"):
        first.check(first.process(OTHER_HOST, "local-b"))


def test_local_bases_swapped_between_slots_are_not_used(tmp_path):
    first, second = two_slots(str(tmp_path))
    for a, b in zip(first.local("bases/*"), second.local("bases/*")):
        theirs = b + "/BASE.json"
        shutil.copy(theirs, a + "/BASE.json")
    assert first.check(first.process()) == "restore"
    for a, b in zip(first.local("bases/*"), second.local("bases/*")):
        swap(a + "/files", b + "/files")
    assert first.check(first.process()) == "restore"


def test_deltas_swapped_within_a_slot_are_found(tmp_path):
    driver = SlotDriver(tmp_path)
    driver.play_some(driver.process(), 6)
    a, b = driver.stored("delta/*")[2:4]
    swap(a, b)
    with pytest.raises(Corrupt, match="damaged"):
        driver.check(driver.process(OTHER_HOST, "local-b"))
