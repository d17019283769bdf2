"""The parts by themselves, under pytest-benchmark: for finding out which one got slower, not for figures to publish.

Run with `make bench-parts`, compare with `--benchmark-compare`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.slot import TOTAL, Slot
from pytest_benchmark.fixture import BenchmarkFixture

from holdfast import _core
from holdfast.spark import blobs

ROWS = 65_536
DISTINCT = 8_192
STRUCT = pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
KEYS = pa.schema([("key", pa.int64())])


@pytest.fixture
def keys() -> pa.Array:
    return pa.array(np.random.default_rng(7).integers(0, DISTINCT, ROWS))


@pytest.fixture
def values() -> pa.Array:
    numbers = np.arange(ROWS)
    texts = pa.array([f"text {number % 1000}" for number in range(ROWS)])
    return pa.StructArray.from_arrays([pa.array(numbers), texts, pa.array(numbers * 0.5)], fields=list(STRUCT))


def _table() -> tuple[_core.Store, _core.ReducingTable]:
    store = _core.Store(KEYS, max_parallelism=4096, first_key_group=0, end_key_group=4096)
    table = store.reducing_state(1, pa.int64(), "sum")
    store.begin(1)
    return store, table


def test_key_encode(benchmark: BenchmarkFixture, keys: pa.Array) -> None:
    codec = _core.KeyCodec(KEYS)
    assert len(benchmark(codec.encode, keys)) == ROWS


def test_key_partition(benchmark: BenchmarkFixture, keys: pa.Array) -> None:
    codec = _core.KeyCodec(KEYS)
    order, _ = benchmark(codec.partition, keys, 4096, 8)
    assert len(order) == ROWS


def test_row_encode(benchmark: BenchmarkFixture, values: pa.Array) -> None:
    codec = _core.RowCodec(STRUCT)
    assert len(benchmark(codec.encode, values)) == ROWS


def test_row_decode(benchmark: BenchmarkFixture, values: pa.Array) -> None:
    codec = _core.RowCodec(STRUCT)
    rows = pa.array(codec.encode(values))
    assert len(benchmark(codec.decode, rows)) == ROWS


def test_reducing_add(benchmark: BenchmarkFixture, keys: pa.Array) -> None:
    _, table = _table()
    assert len(benchmark(table.add, keys, keys)) == ROWS


def test_reducing_add_only(benchmark: BenchmarkFixture, keys: pa.Array) -> None:
    _, table = _table()
    benchmark(table.add_only, keys, keys)


def test_take_delta(benchmark: BenchmarkFixture, keys: pa.Array) -> None:
    def changed() -> tuple[tuple[_core.Store], dict[str, object]]:
        store, table = _table()
        table.add_only(keys, keys)
        return (store,), {}

    delta = benchmark.pedantic(lambda store: store.take_delta(), setup=changed, rounds=20)
    assert len(delta) == len(keys.unique())


def test_apply_delta(benchmark: BenchmarkFixture, keys: pa.Array) -> None:
    store, table = _table()
    table.add_only(keys, keys)
    delta = pa.record_batch(store.take_delta())

    def behind() -> tuple[tuple[_core.Store], dict[str, object]]:
        other = _core.Store(KEYS, max_parallelism=4096, first_key_group=0, end_key_group=4096)
        return (other,), {}

    benchmark.pedantic(lambda other: other.apply_delta(delta, 1), setup=behind, rounds=20)


def test_blob_seal_and_open(benchmark: BenchmarkFixture, keys: pa.Array) -> None:
    batch = pa.record_batch({"key": keys, "amount": keys})
    payload = blobs.Payload(0, 0, ROWS, batch.serialize())

    def through() -> Any:
        sealed = blobs.seal([payload], [0])
        return blobs.Blob.open(sealed[0].as_buffer(), "benchmark").read(batch.schema).num_rows

    assert benchmark(through) == ROWS


def test_slot_catch_up(benchmark: BenchmarkFixture, tmp_path: Path, keys: pa.Array) -> None:
    """A worker that another worker's batch has left behind opens at the new handle."""
    slot = Slot(tmp_path, TOTAL)
    slot.add(keys, keys)
    first = slot.handle
    slot.add(keys, keys)

    def behind() -> tuple[tuple[object], dict[str, object]]:
        state = slot.worker()
        state.open(first)
        return (state,), {}

    benchmark.pedantic(lambda state: state.open(slot.handle), setup=behind, rounds=10)
