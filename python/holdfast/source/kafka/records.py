"""Kafka messages as the columns of Spark's own Kafka source, in Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_NAMES = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def record_batch(messages: Sequence[Any], topic: str, partition: int, include_headers: bool) -> pa.RecordBatch:
    """Messages of one partition, in order, none of them an error."""
    count = len(messages)
    stamps = [message.timestamp() for message in messages]
    columns = [
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.value() for message in messages], pa.binary()),
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.array([message.offset() for message in messages], pa.int64()),
        # Kafka counts milliseconds, Spark microseconds.
        pa.array([stamp * 1000 for _, stamp in stamps], pa.int64()).view(_TIMESTAMP),
        # The client says 0, 1, 2 for none, creation and append; Spark -1, 0, 1.
        pa.array([kind - 1 for kind, _ in stamps], pa.int32()),
    ]
    names = list(_NAMES)
    if include_headers:
        columns.append(pa.array([_headers(message.headers()) for message in messages], _HEADERS))
        names.append("headers")
    return pa.RecordBatch.from_arrays(columns, names=names)


def _headers(headers: Sequence[tuple[str, bytes | None]] | None) -> list[dict[str, Any]] | None:
    """As Spark does: null, not an empty list, for a record without headers."""
    if not headers:
        return None
    return [{"key": key, "value": value} for key, value in headers]
