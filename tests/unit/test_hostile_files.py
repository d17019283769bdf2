"""Files whose checksums are right and whose bytes are not: Corrupt, or read as something else, but never a crash.

Checksums tell damage, not lies: what a file says of its own lengths and offsets is checked before the core reads by it.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from holdfast import rocksdb_library
from holdfast._core import BaseOptions, BaseWriter, Store
from holdfast.checkpoint.delta_file import DeltaIdentity, decode_delta, encode_delta, ref_of
from holdfast.errors import Corrupt, HoldfastError
from holdfast.spark.blobs import Blob, Payload, seal

KEYS = pa.schema([("k", pa.int64())])
IDENTITY = DeltaIdentity("sums", 0, "v1", "", 1, 0)
ROWS = pa.schema(
    [
        ("name", pa.string()),
        ("numbers", pa.list_(pa.int32())),
        ("map", pa.map_(pa.string(), pa.binary())),
        ("pair", pa.struct([("a", pa.bool_()), ("b", pa.decimal128(9, 2))])),
    ]
)


def new_store() -> Store:
    return Store(KEYS, max_parallelism=16, first_key_group=0, end_key_group=16)


def some_delta() -> pa.RecordBatch:
    store = new_store()
    store.begin(1)
    keys = pa.array(range(40))
    store.value_state(1, pa.string()).put(keys, pa.array([None if n % 5 == 0 else "x" * n for n in range(40)]))
    store.list_state(2, pa.int64()).append(keys, keys)
    return pa.record_batch(store.take_delta())


def mutated(data: bytes, generator: random.Random) -> bytes:
    """A few bytes changed, mostly to what lengths and offsets are made of."""
    changed = bytearray(data)
    for _ in range(generator.choice((1, 1, 2, 5))):
        at = generator.randrange(len(changed))
        kind = generator.randrange(4)
        if kind == 0:
            changed[at] ^= 1 << generator.randrange(8)
        elif kind == 1:
            changed[at] = generator.choice((0, 1, 127, 128, 255))
        else:
            number = generator.choice((0, 1, -1, 2**31 - 1, -(2**31), generator.randrange(2**31)))
            at = min(at & ~3, len(changed) - 4)
            changed[at : at + 4] = number.to_bytes(4, "little", signed=True)
    return bytes(changed)


def put_to_use(batches: list[pa.RecordBatch], folder: str) -> None:
    """As a restore does, and as a fold does."""
    store = new_store()
    store.value_state(1, pa.string())
    store.list_state(2, pa.int64())
    for batch in batches:
        store.apply_delta(batch, 1)
    keys = pa.array(range(40))
    pa.array(store.value_state(1, pa.string()).get(keys))
    pa.array(store.list_state(2, pa.int64()).get(keys))
    writer = BaseWriter(None, folder, BaseOptions())
    for batch in batches:
        writer.add(batch)


@pytest.mark.long
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_delta_of_lies_is_corrupt_and_no_crash(tmp_path_factory: pytest.TempPathFactory, compression: str) -> None:
    rocksdb_library.load()
    folder = tmp_path_factory.mktemp("bases")
    data = encode_delta(IDENTITY, [some_delta()], compression).to_pybytes()
    generator = random.Random(11)
    outcomes = {"read": 0, "refused": 0}
    for number in range(3000):
        lie = mutated(data, generator)
        ref = ref_of(IDENTITY, pa.py_buffer(lie))
        try:
            put_to_use(decode_delta(lie, ref, "sums", 0, "here"), str(folder / str(number)))
            outcomes["read"] += 1
        except HoldfastError:
            outcomes["refused"] += 1
    assert outcomes["refused"] > 300 and outcomes["read"] > 0, outcomes


@pytest.mark.parametrize("position", [2, 3])
@pytest.mark.parametrize("offsets", [(0, 5, 3, 8), (0, 5, 8, 2**31 - 1), (-4, 0, 4, 8), (0, 900, 901, 902)])
def test_offsets_that_leave_their_buffer_are_corrupt(position: int, offsets: tuple[int, ...]) -> None:
    delta = some_delta().slice(0, 3)
    columns = [*delta.columns]
    columns[position] = pa.array([b"x" * 5, b"x", b"x" * 2], pa.binary())
    data = encode_delta(IDENTITY, [pa.RecordBatch.from_arrays(columns, schema=delta.schema)], "none").to_pybytes()
    written, lying = (
        pa.array(numbers, pa.int32()).buffers()[1].to_pybytes()[:16] for numbers in ((0, 5, 6, 8), offsets)
    )
    assert data.count(written) == 1
    data = data.replace(written, lying)
    with pytest.raises(Corrupt):
        decode_delta(data, ref_of(IDENTITY, pa.py_buffer(data)), "sums", 0, "here")


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_delta_with_nulls_where_there_are_none_is_corrupt(position: int) -> None:
    delta = some_delta().slice(0, 3)
    columns = [*delta.columns]
    columns[position] = pa.array([None, *columns[position].to_pylist()[1:]], columns[position].type)
    data = encode_delta(IDENTITY, [pa.RecordBatch.from_arrays(columns, schema=delta.schema)], "none").to_pybytes()
    with pytest.raises(Corrupt, match="nulls"):
        decode_delta(data, ref_of(IDENTITY, pa.py_buffer(data)), "sums", 0, "here")


def test_a_blob_of_lies_is_corrupt_and_no_crash() -> None:
    rows = pa.record_batch(
        [
            pa.array(["a", None, "ccc"] * 5),
            pa.array([[1, 2], None, []] * 5, pa.list_(pa.int32())),
            pa.array([[("k", b"v")], [], None] * 5, ROWS.field("map").type),
            pa.array([{"a": True, "b": None}, None, {"a": None, "b": 1}] * 5, ROWS.field("pair").type),
        ],
        schema=ROWS,
    )
    message = rows.serialize().to_pybytes()
    generator = random.Random(12)
    refused = 0
    for _ in range(3000):
        payload = Payload(0, 0, rows.num_rows, pa.py_buffer(mutated(message, generator)))
        [sealed] = seal([payload], [0])
        blob = Blob.open(sealed.as_buffer(), "here")
        try:
            blob.read(ROWS).to_pylist()
        except Corrupt:
            refused += 1
        except UnicodeDecodeError:
            continue  # text may hold any bytes: Spark's does
        except ValueError as error:  # a decimal of too many digits, as pyarrow says it
            assert "decimal" in str(error).lower() or "precision" in str(error).lower()
    assert refused > 300
