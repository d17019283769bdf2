"""Where a read starts or ends, as the user says it: earliest, latest, offsets by partition, or timestamps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.errors import InvalidRequest
from holdfast.source.kafka.subscription import Partition

# As in Spark's JSON: an offset of -2 is the earliest, -1 the latest.
EARLIEST_OFFSET, LATEST_OFFSET = -2, -1


@dataclass(frozen=True)
class Bound:
    """One of: the same place for all partitions, an offset a partition, a timestamp for all, a timestamp a partition.

    Attributes
    ----------
    offset
        ``EARLIEST_OFFSET`` or ``LATEST_OFFSET`` for all partitions.
    offsets
        By partition; negative ones as above.
    timestamp_ms
        For all partitions: the first record at or after it.
    timestamps_ms
        By partition.
    latest_if_none
        A timestamp after the last record: the latest offset if true, else an error.
    """

    offset: int | None = None
    offsets: Mapping[Partition, int] | None = None
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[Partition, int] | None = None
    latest_if_none: bool = field(default=True)

    def timestamp_of(self, partition: Partition) -> int | None:
        """The timestamp for a partition; None when the bound is not by timestamp or leaves this partition out."""
        if self.timestamps_ms is not None:
            return self.timestamps_ms.get(partition)
        return self.timestamp_ms

    @property
    def named(self) -> Mapping[Partition, int] | None:
        """The partitions that the bound names one by one."""
        return self.offsets if self.offsets is not None else self.timestamps_ms


EARLIEST = Bound(offset=EARLIEST_OFFSET)
LATEST = Bound(offset=LATEST_OFFSET)


def parse_bound(texts: Mapping[str, str], side: str, default: Bound) -> Bound:
    """From ``<side>Timestamp``, else ``<side>OffsetsByTimestamp``, else ``<side>Offsets``: Spark's order of precedence.

    Parameters
    ----------
    texts
        Options, their names in lower case.
    side
        ``"starting"`` or ``"ending"``.
    """
    # Past the end of a topic there is nothing to end at but its end; a start there may be a mistake.
    strategy = texts.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise InvalidRequest(f"startingOffsetsByTimestampStrategy is {strategy!r}: expected error or latest")
    latest_if_none = side == "ending" or strategy == "latest"

    timestamp = texts.get(f"{side}timestamp")
    if timestamp is not None:
        if not timestamp.strip().isdigit():
            raise InvalidRequest(f"{side}Timestamp is {timestamp!r}: expected milliseconds since 1970, 0 or more")
        return Bound(timestamp_ms=int(timestamp), latest_if_none=latest_if_none)
    by_timestamp = texts.get(f"{side}offsetsbytimestamp")
    if by_timestamp is not None:
        timestamps = _by_partition(by_timestamp, f"{side}OffsetsByTimestamp", "a timestamp in ms", least=0)
        return Bound(timestamps_ms=timestamps, latest_if_none=latest_if_none)
    text = texts.get(f"{side}offsets", "").strip()
    if not text:
        return default
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    offsets = _by_partition(text, f"{side}Offsets", "an offset, -2 for earliest or -1 for latest", EARLIEST_OFFSET)
    if side == "ending" and EARLIEST_OFFSET in offsets.values():
        raise InvalidRequest("endingOffsets has -2, the earliest offset: nothing could be read. Use an offset, or -1")
    if side == "ending" or LATEST_OFFSET not in offsets.values() or default == LATEST:
        return Bound(offsets=offsets)
    raise InvalidRequest(
        "startingOffsets has -1, the latest offset: a batch read would read nothing. Use an offset, or -2"
    )


def _by_partition(text: str, option: str, value: str, least: int) -> dict[Partition, int]:
    expected = f"""expected earliest, latest or JSON such as {{"topic":{{"0":23,"1":345}}}}, each number {value}"""
    if "Timestamp" in option:
        expected = f"""expected JSON such as {{"topic":{{"0":1700000000000}}}}, each number {value}"""
    try:
        content = json.loads(text)
        numbers = {(topic, int(partition)): number for topic, by in content.items() for partition, number in by.items()}
    except (ValueError, AttributeError):
        raise InvalidRequest(f"{option} is {text}: {expected}") from None
    if not numbers or not all(type(number) is int and number >= least for number in numbers.values()):
        raise InvalidRequest(f"{option} is {text}: {expected}")
    return numbers
