"""Messages made into Arrow: what no column can hold is an error that names the record."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import ClassVar

import pytest
from tests.partition_log import Message

from holdfast.errors import Corrupt
from holdfast.source.kafka.records import record_batch


class Stamped(Message):
    """Each by its own time."""

    def __init__(self, offset: int, stamp: tuple[int, int]) -> None:
        super().__init__(offset, b"v")
        self._stamp = stamp

    def timestamp(self) -> tuple[int, int]:
        return self._stamp


@pytest.mark.parametrize("stamp", [1_700_000_000_123_000_000, 2**63 // 1000 + 1, -(2**63) // 1000 - 1, -(2**63)])
def test_a_time_that_no_timestamp_of_sparks_can_hold_is_an_error(stamp: int) -> None:
    """Nanoseconds for Kafka's milliseconds, as some producers stamp: other times came out, without a word."""
    messages = [Stamped(7, (1, 1_700_000_000_123)), Stamped(9, (1, stamp))]
    with pytest.raises(Corrupt, match=rf"t-0: the record at offset 9 has the timestamp {stamp} ms.*startingOffsets"):
        record_batch(messages, "t", 0, include_headers=False)


def test_the_latest_and_the_earliest_time_that_it_can_hold() -> None:
    ends = [2**63 // 1000, -(2**63 // 1000)]
    batch = record_batch([Stamped(at, (1, stamp)) for at, stamp in enumerate(ends)], "t", 0, include_headers=False)
    assert batch["timestamp"].cast("int64").to_pylist() == [1000 * stamp for stamp in ends]
    none = record_batch([Stamped(0, (0, -1))], "t", 0, include_headers=False).to_pylist()[0]
    assert (none["timestampType"], none["timestamp"]) == (-1, datetime(1969, 12, 31, 23, 59, 59, 999_000, timezone.utc))


class Headed(Message):
    """The second of them by a name that is no text, of which the client says so once."""

    asked: ClassVar[list[int]] = []

    def headers(self) -> list[tuple[str, bytes]] | None:
        Headed.asked.append(self.offset())
        if self.offset() == 8:
            raise SystemError("returned a result with an exception set")
        return [("a", b"1")]


def test_a_header_whose_name_is_no_text_is_looked_at_once() -> None:
    """Asked again, the client hands over a list with holes, and the process ends."""
    messages = [Headed(at, b"v") for at in (7, 8, 9)]
    with pytest.raises(Corrupt, match="t-0: the record at offset 8 has a header .* without includeHeaders"):
        record_batch(messages, "t", 0, include_headers=True)
    assert Headed.asked == [7, 8]
    assert record_batch(messages, "t", 0, include_headers=False).num_rows == 3
