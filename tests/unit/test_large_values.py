"""One value has up to 1 GiB: more is refused at the call, and what is allowed goes all the way: delta, fold, restore.

These take some GiB of memory each, so that they run at night.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.checkpoint_driver import KEY_SCHEMA, SlotDriver

from holdfast import _core
from holdfast.checkpoint import Host
from holdfast.errors import InvalidRequest

pytestmark = pytest.mark.slow

MIB = 1 << 20
VALUES, ENTRIES, ELEMENTS = 91, 92, 93
BYTES = pa.schema([("k", pa.binary())])
ONE = pa.array([b"a"])


def zeros(size: int) -> pa.Array:
    """One value of zeros, which take no memory before they are written."""
    offsets = pa.py_buffer(pa.array([0, size], pa.int64()).buffers()[1])
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, pa.py_buffer(mmap.mmap(-1, size))])


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("value", lambda store, large: store.value_state(1, pa.binary()).put(ONE, large)),
        ("value", lambda store, large: store.reducing_state(1, pa.binary(), "max").add(ONE, large)),
        ("element", lambda store, large: store.list_state(1, pa.binary()).append(ONE, large)),
        ("map value", lambda store, large: store.map_state(1, pa.binary(), pa.binary()).put(ONE, ONE, large)),
        ("map key", lambda store, large: store.map_state(1, pa.binary(), pa.binary()).put(ONE, large, ONE)),
        ("key", lambda store, large: store.value_state(1, pa.binary()).put(large, ONE)),
    ],
    ids=["value", "reducing", "element", "map value", "map key", "key"],
)
def test_a_value_past_one_gib_is_refused_at_the_call(what: str, call: Callable[[Any, pa.Array], object]) -> None:
    store = _core.Store(BYTES, max_parallelism=1, first_key_group=0, end_key_group=1)
    store.begin(1)
    with pytest.raises(InvalidRequest, match=rf"row 0: the {what} has \d+ bytes encoded, at most 1073741824 are"):
        call(store, zeros(1025 * MIB))


@pytest.mark.parametrize("beside_null", [False, True])
def test_what_is_encoded_for_a_version_is_as_large_as_what_is_read_at_most(beside_null: bool) -> None:
    """Beside a null, a value was encoded that had one byte more, and no reader took the version that it was in."""
    length_bytes, header_bytes, rows = 5, 1, 1 + beside_null
    codec = _core.StateCodec(
        BYTES, state_id=1, kind="map", max_parallelism=1, map_key=pa.schema([("m", pa.int64())]), value=pa.binary()
    )
    keys = pa.record_batch([pa.array([b"a"] * rows)], BYTES).to_struct_array()

    def encode(size: int) -> pa.RecordBatch:
        _, offsets, content = zeros(size).buffers()
        if beside_null:
            offsets = pa.array([0, size, size], pa.int64()).buffers()[1]
        values = pa.Array.from_buffers(pa.large_binary(), rows, [pa.py_buffer(b"\x01"), offsets, content])
        return pa.record_batch(codec.encode(keys=keys, suffixes=pa.array(range(rows)), values=values))

    most = 1024 * MIB - length_bytes - header_bytes
    with pytest.raises(InvalidRequest, match="row 0: the value has 1073741825 bytes encoded, at most 1073741824 are"):
        encode(most + 1)
    store = _core.Store(BYTES, max_parallelism=1, first_key_group=0, end_key_group=1)
    store.apply_delta(encode(most), 1)
    found = pa.array(store.map_state(1, pa.int64(), pa.binary()).count(ONE))
    assert found.to_pylist() == [rows]


def test_a_result_past_what_an_array_holds_is_refused_and_half_of_it_is_given() -> None:
    store = _core.Store(BYTES, max_parallelism=1, first_key_group=0, end_key_group=1)
    store.begin(1)
    values = store.value_state(1, pa.binary())
    values.put(ONE, zeros(MIB))
    with pytest.raises(InvalidRequest, match="holds at most 2147483647 bytes.*ask for fewer rows at a time"):
        values.get(pa.array([b"a"] * 2100))
    assert pa.array(values.get(pa.array([b"a"] * 1000))).nbytes > 1000 * MIB
    store.check()


def test_large_values_map_keys_and_elements_go_through_delta_fold_and_restore(tmp_path: Path) -> None:
    driver = SlotDriver(tmp_path)
    process = driver.process()
    store = process.state.open(driver.handle)
    process.state.begin(0)
    key = pa.array([1], KEY_SCHEMA.types[0])
    store.value_state(VALUES, pa.binary()).put(key, zeros(300 * MIB))
    store.map_state(ENTRIES, pa.binary(), pa.int64()).put(key, zeros(40 * MIB), pa.array([7]))
    store.list_state(ELEMENTS, pa.binary()).append(key, zeros(100 * MIB))
    del store
    driver.handle = process.state.prepare()
    driver.next_batch = 1
    for number in range(9):
        driver.play(process, {number: number})
        process.rest()
    assert driver.handle.snapshots
    process.state.release_memory()
    other = driver.process(Host("host-b", "machine-b", "boot-b"), "local-b")
    store = other.state.open(driver.handle)
    assert other.state.recovery is not None and other.state.recovery.way == "restore"
    assert pa.array(store.value_state(VALUES, pa.binary()).get(key))[0].as_buffer().size == 300 * MIB
    entries = store.map_state(ENTRIES, pa.binary(), pa.int64())
    assert pa.array(entries.get(key, zeros(40 * MIB))).to_pylist() == [7]
    elements = pa.array(store.list_state(ELEMENTS, pa.binary()).get(key))
    assert elements.values[0].as_buffer().size == 100 * MIB
