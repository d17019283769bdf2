"""A delta that no handle names yet is known by its own checksum."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.checkpoint_driver import SlotDriver

from holdfast.checkpoint import delta_checksum
from holdfast.checkpoint.delta_file import (
    DELTA_SCHEMA,
    DeltaIdentity,
    DeltaWriter,
    checked_identity_of,
    decode_delta,
    encode_delta,
    identity_of,
    ref_of,
)
from holdfast.checkpoint.names import attempt_version_id
from holdfast.errors import Corrupt

#: Of an operator with the name of what is looked for.
IDENTITY = DeltaIdentity(f"xxh64:{'0' * 16}", 7, f"{11:032x}", f"{10:032x}", 11, 10)
ROWS = pa.record_batch(
    [
        pa.array([3] * 50, pa.uint16()),
        pa.array([1] * 50, pa.uint16()),
        pa.array([b"key %d" % n for n in range(50)], pa.binary()),
        pa.array([b"value %d" % n for n in range(50)], pa.binary()),
    ],
    schema=DELTA_SCHEMA,
)
RUN = "0f0f0f0f-0000-4000-8000-000000000001"


@pytest.mark.parametrize("compression", ["lz4", "none"])
@pytest.mark.parametrize("pieces", [0, 1, 2])
def test_whatever_byte_is_changed_or_missing_it_is_noticed(compression: str, pieces: int) -> None:
    data = encode_delta(IDENTITY, [ROWS] * pieces, compression).to_pybytes()
    assert checked_identity_of(data, "here") == IDENTITY
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << (at % 8)
        with pytest.raises(Corrupt, match="here"):
            checked_identity_of(bytes(changed), "here")
    for length in range(0, len(data), 7):
        with pytest.raises(Corrupt, match="here"):
            checked_identity_of(data[:length], "here")


def test_a_file_on_disk_is_the_same_as_one_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "delta.arrow"
    writer = DeltaWriter(str(path), IDENTITY, "lz4")
    writer.write(ROWS)
    writer.close()
    assert path.read_bytes() == encode_delta(IDENTITY, [ROWS], "lz4").to_pybytes()


def test_a_file_of_an_earlier_release_has_none_and_is_taken() -> None:
    """Deltas of a run before the upgrade are taken over by the one after it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, IDENTITY.schema()) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(ROWS.columns, schema=IDENTITY.schema()))
    data = sink.getvalue().to_pybytes()
    assert delta_checksum.KEY.encode() not in data
    assert checked_identity_of(data, "here") == identity_of(data, "here") == IDENTITY


def test_what_a_later_release_says_beside_it_stops_no_worker_of_this_one() -> None:
    """While a cluster is upgraded, and after a way back, releases read each other's deltas: as the one before read
    those with a checksum, which it did not know.
    """
    schema = IDENTITY.schema()
    schema = schema.with_metadata({**schema.metadata, **delta_checksum.TO_COME, "holdfast.later": "x" * 40})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(ROWS.columns, schema=schema))
    data = sink.getvalue()
    delta_checksum.put_into(data)
    assert checked_identity_of(data.to_pybytes(), "here") == IDENTITY
    found = decode_delta(data.to_pybytes(), ref_of(IDENTITY, data), IDENTITY.operator, IDENTITY.slot, "here")
    assert pa.Table.from_batches(found).to_pydict() == pa.Table.from_batches([ROWS]).to_pydict()


@pytest.mark.parametrize("of_run", [False, True])
def test_no_bit_of_what_an_attempt_prepared_is_taken_over_changed(tmp_path: Path, of_run: bool) -> None:
    """It was compared with itself: a value that storage had changed became the state, and each later checksum right."""
    driver = SlotDriver(tmp_path)
    process = driver.process()
    process.open(None)
    process.state.begin(0, attempt_version_id(RUN, 3))
    process.table.add({key: 10 * key for key in range(100)})
    process.state.prepare()
    (path,) = (Path(name) for name in driver.stored("delta/*"))
    data = path.read_bytes()
    state = driver.process(local="elsewhere").state

    def adopted() -> object:
        return state.adopt_of_run(None, 0, RUN) if of_run else state.adopt(None, 0, attempt_version_id(RUN, 3))

    for at in range(0, len(data), 41):
        changed = bytearray(data)
        changed[at] ^= 1 << (at % 8)
        path.write_bytes(changed)
        with pytest.raises(Corrupt, match=path.name):
            adopted()
    path.write_bytes(data)
    assert adopted() is not None
