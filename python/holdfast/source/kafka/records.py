"""Kafka messages as the columns of Spark's own Kafka source, in Arrow.

A column at a time: a message costs a call for each column that it differs in, made by ``map`` from C to C, and no other
Python object than its key and value.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_NAMES = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def record_batch(messages: Sequence[Any], topic: str, partition: int, include_headers: bool) -> pa.RecordBatch:
    """Messages of one partition, in order, at least one, none of them an error."""
    count = len(messages)
    message = type(messages[0])
    stamps = np.fromiter(chain.from_iterable(map(message.timestamp, messages)), np.int64, 2 * count)
    columns = [
        pa.array(list(map(message.key, messages)), pa.binary()),
        pa.array(list(map(message.value, messages)), pa.binary()),
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        _offsets(messages),
        # Kafka counts milliseconds, Spark microseconds.
        pa.array(stamps[1::2] * 1000).view(_TIMESTAMP),
        # The client says 0, 1, 2 for none, creation and append; Spark -1, 0, 1.
        pa.array((stamps[0::2] - 1).astype(np.int32)),
    ]
    names = list(_NAMES)
    if include_headers:
        columns.append(pa.array(list(map(_headers, map(message.headers, messages))), _HEADERS))
        names.append("headers")
    return pa.RecordBatch.from_arrays(columns, names=names)


def _offsets(messages: Sequence[Any]) -> pa.Array:
    """Offsets rise: where the last is as far from the first as there are messages, none is left out between."""
    count, first, last = len(messages), messages[0].offset(), messages[-1].offset()
    if last - first == count - 1:
        return pa.array(np.arange(first, last + 1, dtype=np.int64))
    return pa.array(np.fromiter(map(type(messages[0]).offset, messages), np.int64, count))


def _headers(headers: Sequence[tuple[str, bytes | None]] | None) -> list[dict[str, Any]] | None:
    """As Spark does: null, not an empty list, for a record without headers."""
    if not headers:
        return None
    return [{"key": key, "value": value} for key, value in headers]
