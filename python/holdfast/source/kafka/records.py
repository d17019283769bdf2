"""Kafka messages as the columns of Spark's own Kafka source, in Arrow.

A column at a time: a message costs a call for each column that it differs in, made by ``map`` from C to C, and no other
Python object than its key and value.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import length_hint
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.errors import Corrupt

_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_TIMESTAMP = pa.timestamp("us", tz="UTC")
# Kafka counts milliseconds, Spark microseconds: later ones, and those as long before 1970, have none.
_STAMP_MS_MAX = (2**63 - 1) // 1000
_NAMES = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def record_batch(messages: Sequence[Any], topic: str, partition: int, include_headers: bool) -> pa.RecordBatch:
    """Messages of one partition, in order, at least one, none of them an error.

    Raises
    ------
    Corrupt
        A record has what its column cannot hold.
    """
    count = len(messages)
    message = type(messages[0])
    stamps = np.fromiter(chain.from_iterable(map(message.timestamp, messages)), np.int64, 2 * count)
    columns = [
        pa.array(list(map(message.key, messages)), pa.binary()),
        pa.array(list(map(message.value, messages)), pa.binary()),
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        _offsets(messages),
        pa.array(_micros(stamps[1::2], messages, topic, partition)).view(_TIMESTAMP),
        # The client says 0, 1, 2 for none, creation and append; Spark -1, 0, 1.
        pa.array((stamps[0::2] - 1).astype(np.int32)),
    ]
    names = list(_NAMES)
    if include_headers:
        columns.append(pa.array(_all_headers(messages, topic, partition), _HEADERS))
        names.append("headers")
    return pa.RecordBatch.from_arrays(columns, names=names)


def _offsets(messages: Sequence[Any]) -> pa.Array:
    """Offsets rise: where the last is as far from the first as there are messages, none is left out between."""
    count, first, last = len(messages), messages[0].offset(), messages[-1].offset()
    if last - first == count - 1:
        return pa.array(np.arange(first, last + 1, dtype=np.int64))
    return pa.array(np.fromiter(map(type(messages[0]).offset, messages), np.int64, count))


def _micros(stamps_ms: Any, messages: Sequence[Any], topic: str, partition: int) -> Any:
    if stamps_ms.max() > _STAMP_MS_MAX or stamps_ms.min() < -_STAMP_MS_MAX:
        at = int(np.flatnonzero((stamps_ms > _STAMP_MS_MAX) | (stamps_ms < -_STAMP_MS_MAX))[0])
        raise Corrupt(
            f"{topic}-{partition}: the record at offset {messages[at].offset()} has the timestamp {stamps_ms[at]} ms,"
            f" and Spark's end at {_STAMP_MS_MAX} ms: its producer counted in another unit than Kafka's milliseconds."
            " Mend the producer, or let the topic have the broker's own times (message.timestamp.type=LogAppendTime)."
            " What is there already cannot be read: start after it, with startingOffsets and a new checkpoint"
        )
    return stamps_ms * 1000


def _all_headers(messages: Sequence[Any], topic: str, partition: int) -> list[list[dict[str, Any]] | None]:
    left = iter(messages)
    try:
        return list(map(_headers, map(type(messages[0]).headers, left)))
    except (SystemError, UnicodeDecodeError):
        # The client's word for a name that is not UTF-8. The same message asked once more may end the process: it then
        # has a list with holes.
        record = messages[len(messages) - length_hint(left) - 1]
        raise Corrupt(
            f"{topic}-{partition}: the record at offset {record.offset()} has a header whose name is not UTF-8, and"
            " names of headers are text. Read without includeHeaders, or mend its producer and start after it, with"
            " startingOffsets and a new checkpoint"
        ) from None


def _headers(headers: Sequence[tuple[str, bytes | None]] | None) -> list[dict[str, Any]] | None:
    """As Spark does: null, not an empty list, for a record without headers."""
    if not headers:
        return None
    return [{"key": key, "value": value} for key, value in headers]
