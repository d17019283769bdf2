"""A DataFrame of Spark as Arrow batches, partition by partition, in the order of its rows.

Spark's own stream does the same, but not in 4.0, and in later releases not of what has a timestamp anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa


def of_spark(frame: Any) -> pa.RecordBatchReader:
    """Its rows; timestamps are in UTC, whatever the session's time zone."""
    schema = frame.limit(0).toArrow().schema

    # On an executor, each batch as one value. Within this function, so that it is sent as it is, and not by the name of
    # a module: who writes a savepoint may have Holdfast on the driver alone.
    def packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            bytes_of = pa.BufferOutputStream()
            with pa.ipc.new_stream(bytes_of, batch.schema) as stream:
                stream.write_batch(batch)
            yield pa.record_batch({"batch": pa.array([bytes_of.getvalue().to_pybytes()], pa.binary())})

    def unpacked() -> Iterator[pa.RecordBatch]:
        for row in frame.mapInArrow(packed, "batch binary").toLocalIterator():
            with pa.ipc.open_stream(row["batch"]) as stream:
                yield from stream.read_all().cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, unpacked())
