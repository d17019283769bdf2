"""Records and the markers behind them, from the bytes that a broker sends."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c
from tests.offline_wire import OfflineWire

from holdfast.errors import Corrupt, InvalidRequest, Unavailable
from holdfast.kafka.partition_log import Ending, PartitionLog, _Endings

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
    struct.pack_into(">I", made, 17, calc_crc32c(memoryview(made)[21:]))
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


class Answering(OfflineWire):
    """Gives out what is asked for in order: records and how far they go; the last one again and again. ``ends``: where
    the log ends, by the same rule, for who asks that alone; by default where the records do that were given out last.
    An error's code in their place is negative.
    """

    def __init__(self, *answers: tuple[bytes, int], ends: Iterable[int] = ()) -> None:
        super().__init__()
        self.answers = list(answers)
        self.ends = list(ends)
        self.asked: list[int] = []
        self.asked_ends = 0

    async def leaders_of(
        self, topics: Iterable[str], node: int | None = None, *, must_see: bool = False
    ) -> dict[tuple[str, int], int]:
        return {(topic, 0): 1 for topic in topics}

    async def know(self, node: int) -> None:
        assert node == 1

    async def send(self, request: Any, node: int) -> Any:
        if isinstance(request, ListOffsetsRequest):
            return self._end(request)
        [topic] = request.topics
        self.asked.append(topic.partitions[0].fetch_offset)
        records, end = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.ends = self.ends or [end]
        found = SimpleNamespace(error_code=0, records=records, high_watermark=end, log_start_offset=0)
        return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=[found])])

    def _end(self, request: Any) -> Any:
        """Of what all replicas have, whether its transaction has ended or not."""
        assert request.isolation_level == 0 and request.topics[0].partitions[0].timestamp == -1
        self.asked_ends += 1
        end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        found = SimpleNamespace(error_code=max(0, -end), offset=end)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[found])])


def read(wire: Answering, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Ending]]:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    part = PartitionLog(wire, "witnesses", 0, patience_ms=1000).read(0, lambda key: True)
    assert part is not None
    return [(record.key.decode(), record.ending) for record in part.records]


def test_what_a_new_leader_does_not_give_out_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was taken for what the cleaner had taken: a witness behind it was overlooked, and its rows written twice."""
    first, second = data(0, 7, "k0", "k1"), data(2, 7, "k2") + marker(3, 7, commit=True)
    wire = Answering((first, 4), (b"", 1), (b"", 2), (second, 4))
    assert read(wire, monkeypatch) == [(f"k{number}", Ending.COMMITTED) for number in range(3)]
    assert wire.asked == [0, 2, 2, 2]


def test_what_the_cleaner_has_taken_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Answering((data(0, 7, "k0") + marker(1, 7, commit=True), 9), (b"", 9))
    assert read(wire, monkeypatch) == [("k0", Ending.COMMITTED)]
    assert wire.asked == [0, 2]


def test_a_leader_that_never_gives_out_what_was_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="up to 1, and the one before it did up to 4"):
        read(Answering((data(0, 7, "k0"), 4), (b"", 1)), monkeypatch)


@pytest.mark.parametrize("ends", [(5,), (3, 3, 5), (-6, -78, 7)], ids=["at once", "after a while", "of a new leader"])
def test_what_was_appended_while_the_broker_answered_is_no_damage(
    ends: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker notes how far all replicas are, and then reads up to where they are by that time: an answer in which an
    append came between had records above its end, and the start of the query was stopped by Corrupt.
    """
    first = data(0, 7, "k0", "k1") + marker(2, 7, commit=True)
    wire = Answering((first + data(3, 8, "k2") + marker(4, 8, commit=True), 3), ends=ends)
    assert read(wire, monkeypatch) == [(f"k{number}", Ending.COMMITTED) for number in range(3)]
    assert (wire.asked, wire.asked_ends) == ([0], len(ends)), "each record once"


def test_an_answer_within_its_end_costs_no_question_more(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Answering((data(0, 7, "k0") + marker(1, 7, commit=True), 2))
    assert read(wire, monkeypatch) == [("k0", Ending.COMMITTED)]
    assert wire.asked_ends == 0


def test_what_lies_behind_the_end_of_the_log_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch's place is in no checksum: where it says that it lies is compared with where the log ends."""
    moved = data(0, 7, "k0", "k1") + data(6, 7, "k2")
    with pytest.raises(Corrupt, match="it says that it ends at 7, and the log at 4"):
        read(Answering((moved, 3), ends=(3, 4)), monkeypatch)


def test_where_nobody_says_where_the_log_ends_it_is_not_told_for_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="say where witnesses-0 ends.*NOT_LEADER_OR_FOLLOWER"):
        read(Answering((data(0, 7, "k0"), 0), ends=(-6,)), monkeypatch)


def test_no_bit_that_a_disk_turns_makes_another_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers send what lies on their disks, and no checksum was looked at: a commit's marker was an abort's, and what
    readers had seen was written once more.
    """
    whole = data(0, 7, "k0", "k1") + marker(2, 7, commit=True) + data(3, 8, "k2") + marker(4, 8, commit=False)
    as_written = read(Answering((whole, 5)), monkeypatch)
    assert as_written == [("k0", Ending.COMMITTED), ("k1", Ending.COMMITTED), ("k2", Ending.ABORTED)]
    epoch_of_leader = {at + byte for at in starts_of(whole) for byte in range(12, 16)}  # in no checksum, and not read
    told = 0
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            found = read(OnDisk(whole, bytes(damaged), 5), monkeypatch)
        except Corrupt as error:
            told += 1
            assert "witnesses-0: a batch at offset " in str(error) and "kafka-leader-election.sh" in str(error)
        else:
            assert found == as_written and bit // 8 in epoch_of_leader, bit
    assert told == 8 * (len(whole) - len(epoch_of_leader))


class OnDisk(Answering):
    """Gives out a log's bytes from the batch on that has the offset which is asked for, whatever its disk has made of
    them.
    """

    def __init__(self, whole: bytes, on_disk: bytes, end: int) -> None:
        super().__init__((b"", end))
        self._starts = {int(struct.unpack_from(">q", whole, at)[0]): at for at in starts_of(whole)}
        self._on_disk, self._log_end = on_disk, end

    async def send(self, request: Any, node: int) -> Any:
        if not isinstance(request, ListOffsetsRequest):
            [topic] = request.topics
            start = max(offset for offset in self._starts if offset <= topic.partitions[0].fetch_offset)
            self.answers = [(self._on_disk[self._starts[start] :], self._log_end)]
        return await super().send(request, node)


def starts_of(log: bytes) -> list[int]:
    """Where each batch begins in the bytes of a log."""
    found = [0]
    while found[-1] < len(log):
        found.append(found[-1] + 12 + int(struct.unpack_from(">i", log, found[-1] + 8)[0]))
    return found[:-1]
