"""A slot's output on its way to Spark: packed again, and unpacked behind the slot.

Why not hand rows to Spark as pandas: its worker takes about 1.3 µs of Python a row for padding that state rows need,
copies every column into Python objects with pandas 3, and nested types, decimals and time zones change on the way.
A packed row passes all of that as one value, and `mapInArrow` unpacks it into exactly the Arrow that the processor
made (docs/rfcs/0003).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa

from holdfast.arrow.arrays import copied, one_batch
from holdfast.errors import Corrupt
from holdfast.spark import blobs
from holdfast.spark.pack import BALLAST_EVERY_BYTES, messages
from holdfast.spark.slot_metrics import METRICS_COLUMN, SlotMetrics
from holdfast.spark.worker_process import prepare_worker_process
from holdfast.state import TaggedRows

#: `metrics`: null but in the last row of a slot, which has no blob.
OUTPUT_SCHEMA = f"blob binary, {METRICS_COLUMN} string"
_ROWS_MAX = 65536


class OutputPacker:
    """Packs the record batches of one output of one slot and batch. Small ones are gathered, as copies: a slice would
    keep alive what it was cut from. Large ones are split.

    ``number``: of the output, 0 being the main one.
    """

    def __init__(self, slot: int, blob_max_bytes: int, arrow_rows_max: int, number: int = 0) -> None:
        self._slot = slot
        self._number = number
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
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= _ROWS_MAX or self._bytes >= self._blob_max_bytes:
            self._gathered.append(batch)
            yield from self._frames()
        else:
            self._gathered.append(copied(batch))

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
            payloads.append(blobs.Payload(self._slot, self._sequence, count, message, self._number))
            self._sequence += 1
        for run in blobs.arrays(payloads, f"output of slot {self._slot}"):
            ballast = [payload.message.size * self._arrow_rows_max // BALLAST_EVERY_BYTES for payload in run]
            sealed = pd.Series(blobs.seal(run, ballast).to_pylist(), dtype=object)
            yield pd.DataFrame({"blob": sealed, METRICS_COLUMN: None})


class OutputPackers:
    """One for each output of a slot and batch: the main one, and the side outputs in their order."""

    def __init__(self, slot: int, sides: Sequence[str], blob_max_bytes: int, arrow_rows_max: int) -> None:
        numbered = enumerate([None, *sides])
        self._by_output = {
            output: OutputPacker(slot, blob_max_bytes, arrow_rows_max, number) for number, output in numbered
        }

    def add(self, tagged: TaggedRows) -> Iterator[pd.DataFrame]:
        """Frames that are ready to go, if any."""
        output, rows = tagged
        yield from self._by_output[output].add(rows)

    def finish(self) -> Iterator[pd.DataFrame]:
        """The rest."""
        for packer in self._by_output.values():
            yield from packer.finish()


def metrics_frame(metrics: SlotMetrics) -> pd.DataFrame:
    """A slot's last row, which is for the driver."""
    return pd.DataFrame({"blob": [None], METRICS_COLUMN: [metrics.to_text()]}, dtype=object)


@dataclass(frozen=True)
class Unpacking:
    """How the packed rows of an operator are read. Travels in the closure.

    Attributes
    ----------
    outputs
        Name and schema of each; a blob says by its number which it is for.
    """

    operator: str
    outputs: tuple[tuple[str, pa.Schema], ...]

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of each blob, with the number of their output.

        Raises
        ------
        Corrupt
            A blob is damaged, or is for an output that is not there.
        """
        where = f"output of operator {self.operator!r}"
        for batch in batches:
            for data in batch.column(0).drop_null():
                blob = blobs.Blob.open(data.as_buffer(), where)
                if blob.channel >= len(self.outputs):
                    raise Corrupt(f"{where}: a packed row is for output {blob.channel}, there are {len(self.outputs)}")
                yield blob.channel, blob.read(self.outputs[blob.channel][1])


def unpack_function(unpacking: Unpacking) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow` behind the slot.

    Of one output, its rows. Of several, rows that have a struct column for each by its name, of which one is not null.
    """

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker_process()
        outputs = unpacking.outputs
        for number, rows in unpacking.rows(batches):
            yield rows if len(outputs) == 1 else _side_by_side(rows, number, outputs)

    return unpack


def _side_by_side(rows: pa.RecordBatch, number: int, outputs: Sequence[tuple[str, pa.Schema]]) -> pa.RecordBatch:
    columns = [
        pa.StructArray.from_arrays(rows.columns, fields=list(schema))
        if at == number
        else pa.nulls(rows.num_rows, pa.struct(schema))
        for at, (_, schema) in enumerate(outputs)
    ]
    return pa.RecordBatch.from_arrays(columns, names=[name for name, _ in outputs])
