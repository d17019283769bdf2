"""A slot's output on its way to Spark: packed again, and unpacked behind the slot.

Why not hand rows to Spark as pandas: its worker takes about 1.3 µs of Python a row for padding that state rows need,
copies every column into Python objects with pandas 3, and nested types, decimals and time zones change on the way. A
packed row passes all of that as one value, and `mapInArrow` unpacks it into exactly the Arrow that the processor made.
See docs/rfcs/0003.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pandas as pd
import pyarrow as pa

from holdfast.spark import blobs
from holdfast.spark.pack import BALLAST_EVERY_BYTES, messages
from holdfast.spark.worker_process import prepare_worker_process
from holdfast.state.casts import one_batch

OUTPUT_SCHEMA = "blob binary"
_ROWS_MAX = 65536


class OutputPacker:
    """Packs the record batches of one slot and batch. Small ones are gathered, large ones split."""

    def __init__(self, slot: int, blob_max_bytes: int, arrow_rows_max: int) -> None:
        self._slot = slot
        self._blob_max_bytes = blob_max_bytes
        self._arrow_rows_max = arrow_rows_max
        self._gathered: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._sequence = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pd.DataFrame]:
        """Frames that are ready to go, if any."""
        if batch.num_rows == 0:
            return
        self._gathered.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= _ROWS_MAX or self._bytes >= self._blob_max_bytes:
            yield from self._frames()

    def finish(self) -> Iterator[pd.DataFrame]:
        """The rest."""
        if self._gathered:
            yield from self._frames()

    def _frames(self) -> Iterator[pd.DataFrame]:
        rows = one_batch(self._gathered)
        self._gathered = []
        self._rows = self._bytes = 0
        payloads = []
        for count, message in messages(rows, self._blob_max_bytes):
            payloads.append(blobs.Payload(self._slot, self._sequence, count, message))
            self._sequence += 1
        for run in blobs.arrays(payloads, f"output of slot {self._slot}"):
            ballast = [payload.message.size * self._arrow_rows_max // BALLAST_EVERY_BYTES for payload in run]
            yield pd.DataFrame({"blob": pd.Series(blobs.seal(run, ballast).to_pylist(), dtype=object)})


def unpack_function(schema: pa.Schema, operator: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow` behind the slot."""

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker_process()
        for batch in batches:
            for blob in batch.column(0).drop_null():
                yield blobs.Blob.open(blob.as_buffer(), f"output of operator {operator!r}").read(schema)

    return unpack
