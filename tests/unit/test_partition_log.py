"""Records and the markers behind them, from the bytes that a broker sends."""

from __future__ import annotations

import struct

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from holdfast.errors import InvalidRequest
from holdfast.kafka.partition_log import Ending, _Endings

_CONTROL = 0x20


def data(offset: int, producer_id: int, *keys: str, transactional: bool = True, codec: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, transactional, producer_id, 0, 0, 1 << 20)
    for number, key in enumerate(keys):
        builder.append(number, 0, key.encode(), b"v", [])
    return at(offset, bytes(builder.build()))


def marker(offset: int, producer_id: int, commit: bool) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, True, producer_id, 0, -1, 1 << 20)
    builder.append(0, 0, struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0), [])
    made = bytearray(builder.build())
    attributes = struct.unpack_from(">h", made, 21)[0] | _CONTROL
    struct.pack_into(">h", made, 21, attributes)
    return at(offset, bytes(made))


def at(offset: int, batch: bytes) -> bytes:
    return struct.pack(">q", offset) + batch[8:]


def endings(*batches: bytes, start: int = 0) -> list[tuple[str, Ending]]:
    found = _Endings(lambda key: key.startswith(b"k"))
    found.take(b"".join(batches), start)
    return [(record.key.decode(), record.ending) for record in found.records]


def test_a_record_ends_with_the_next_marker_of_its_producer() -> None:
    log = (
        data(0, 7, "k0"),
        data(1, 8, "k1"),
        marker(2, 8, commit=False),
        data(3, 8, "k2"),
        data(4, -1, "k3", transactional=False),
        marker(5, 7, commit=True),
        data(6, 7, "k4", "other", "k5"),
        marker(9, 8, commit=True),
    )
    assert endings(*log) == [
        ("k0", Ending.COMMITTED),
        ("k1", Ending.ABORTED),
        ("k2", Ending.COMMITTED),
        ("k3", Ending.COMMITTED),
        ("k4", Ending.OPEN),
        ("k5", Ending.OPEN),
    ]
    assert endings(*log, start=3)[0] == ("k2", Ending.COMMITTED)


def test_markers_may_come_in_a_later_answer() -> None:
    found = _Endings(lambda key: True)
    assert found.take(data(0, 7, "k0", "k1"), 0) == 2
    assert [record.ending for record in found.records] == [Ending.OPEN] * 2
    assert found.take(marker(2, 7, commit=True), 0) == 3
    assert [(record.offset, record.ending) for record in found.records] == [
        (0, Ending.COMMITTED),
        (1, Ending.COMMITTED),
    ]


def test_the_end_of_an_answer_may_be_cut_in_the_middle_of_a_batch() -> None:
    whole, cut = data(0, 7, "k0"), data(1, 7, "k1")
    found = _Endings(lambda key: True)
    assert found.take(whole + cut[:-3], 0) == 1
    assert found.take(b"", 0) == -1


def test_what_is_compressed_is_refused_with_what_to_set() -> None:
    with pytest.raises(InvalidRequest, match=r"compression.type=uncompressed"):
        endings(data(0, 7, "k0" * 50, codec=1))
