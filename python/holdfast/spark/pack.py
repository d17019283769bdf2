"""The map side: gathers input batches, splits them by slot, and emits packed rows of (slot label, event time, blob).

Runs in `mapInArrow`, one `Pack` call a map task, on the task's own thread. Memory is bounded by `pack_memory_max_bytes`
(about three times: gathered, reordered, sealed), whatever the input's size. Rows of one slot keep their order: a slot's
blobs of one map task are numbered without a gap.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from holdfast import _core
from holdfast.arrow.arrays import one_batch
from holdfast.fault_points import reach
from holdfast.spark import blobs, schemas
from holdfast.spark.worker_process import prepare_worker_process

_PACKED = pa.schema([("slot", pa.int64()), ("event_time", pa.timestamp("us", "UTC")), ("blob", pa.binary())])

# Where Spark fills an Arrow batch of packed rows it counts rows, not bytes: on the way in in 4.0, on the way out in all
# releases. So blobs are followed by rows without a blob, in proportion to their size: a batch is full at about this
# many bytes. See docs/rfcs/0003.
BALLAST_EVERY_BYTES = 32 << 20

# The latest event time that a marker carries, in microseconds: 2262-04-11, where pandas' nanoseconds end. The slots are
# not given it any more, but there a watermark ends for who relies on it (docs/guide/timers.md).
_MARKED_MAX_US = 9_223_286_400_000_000


PACKED_SCHEMA = spark.StructType(
    [
        spark.StructField("slot", spark.LongType()),
        spark.StructField("event_time", spark.TimestampType()),
        spark.StructField("blob", spark.BinaryType()),
    ]
)


def for_slots(packed: DataFrame, watermarked: bool) -> DataFrame:
    """The columns of packed rows that the slots are given. The event time stays behind: pyspark has Arrow turn it into
    the session's time zone, and Spark takes zones that Arrow does not know, or has no data base of on an executor.

    Spark tells the slots the watermark where a column has the note of one, whatever the column holds: here nulls. The
    note alone holds back nothing; what delays is where the watermark was declared.
    """
    if not watermarked:
        return packed.select("slot", "blob")
    noted = packed.selectExpr("slot", "CAST(NULL AS BIGINT) AS watermark", "blob")
    return noted.withMetadata("watermark", {schemas.WATERMARK_DELAY: 0})


@dataclass(frozen=True)
class PackPlan:
    """What the map side of one input needs to know; travels in the closure.

    `labels` is asked for in the task, because only there the query is known whose operator record holds them.
    `key_columns`: where the key stands in this input, where that is not under the key's own names. `broadcast`: there
    is none, and each slot gets all rows. `wakes`: whether slots without rows are called too; asked for in the task.
    """

    operator: str
    schema: pa.Schema
    key_schema: pa.Schema
    null_keys: bool
    max_parallelism: int
    labels: Callable[[], tuple[int, ...]]
    event_time_column: str | None
    memory_max_bytes: int
    blob_max_bytes: int
    arrow_rows_max: int
    key_columns: tuple[str, ...] | None = None
    input_number: int = 0
    input_name: str | None = None
    broadcast: bool = False
    wakes: Callable[[], bool] = bool

    @property
    def where(self) -> str:
        """For errors."""
        return f"operator {self.operator!r}, input" + (f" {self.input_name!r}" if self.input_name else "")


class Pack:
    """The packing of one map task."""

    def __init__(self, plan: PackPlan, labels: tuple[int, ...], map_partition: int) -> None:
        self._plan = plan
        self._labels = pa.array(labels, pa.int64())
        self._map_partition = map_partition
        self._key_codec = _core.KeyCodec(plan.key_schema, null_keys=plan.null_keys)
        self._sequences = [0] * len(labels)
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._event_time_max_us = -1  # Spark's watermark begins at 0: what is before moves nothing

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Packed rows of all input batches, in the order of `_PACKED`."""
        for batch in batches:
            if batch.num_rows == 0:
                continue
            self._gathered.append(schemas.conform(batch, self._plan.schema, self._plan.where))
            self._gathered_bytes += batch.nbytes
            if self._gathered_bytes >= self._plan.memory_max_bytes:
                yield from self._flush()
        if self._gathered:
            yield from self._flush()
        if self._event_time_max_us >= 0:
            yield self._marker(min(self._event_time_max_us, _MARKED_MAX_US))
        if self._map_partition == 0 and self._plan.wakes():  # there is one wherever there is any
            yield wake_rows(self._labels)

    def _flush(self) -> Iterator[pa.RecordBatch]:
        rows = one_batch(self._gathered)
        self._gathered = []
        self._gathered_bytes = 0
        if self._plan.event_time_column is not None:
            latest_us = pc.max(rows.column(self._plan.event_time_column).cast(pa.int64())).as_py()
            if latest_us is not None:
                self._event_time_max_us = max(self._event_time_max_us, latest_us)
        slots, payloads = self._for_all(rows) if self._plan.broadcast else self._split(rows)
        del rows
        reach("mid_pack")
        done = 0
        # What is sealed for all slots is many times what was gathered: it leaves in parts.
        run_bytes_max = self._plan.memory_max_bytes if self._plan.broadcast else blobs.ARRAY_BYTES_MAX
        for run in blobs.arrays(payloads, self._plan.where, run_bytes_max):
            yield self._packed(slots[done : done + len(run)], run)
            done += len(run)

    def _split(self, rows: pa.RecordBatch) -> tuple[list[int], list[blobs.Payload]]:
        slot_count = len(self._labels)
        if slot_count == 1:
            # Keys are looked at all the same, so that a null key is refused here and not half-way through a slot.
            check_keys(self._key_codec, self._keys(rows), self._plan.max_parallelism)
            bounds = [0, rows.num_rows]
        else:
            order, offsets = self._key_codec.partition(self._keys(rows), self._plan.max_parallelism, slot_count)
            rows = rows.take(pa.array(order))
            bounds = pa.array(offsets).to_pylist()
        slots: list[int] = []
        payloads: list[blobs.Payload] = []
        for slot, (start, end) in enumerate(itertools.pairwise(bounds)):
            if start == end:
                continue
            for count, message in messages(rows.slice(start, end - start), self._plan.blob_max_bytes):
                place = (self._map_partition, self._sequences[slot])
                payloads.append(blobs.Payload(*place, count, message, self._plan.input_number))
                self._sequences[slot] += 1
                slots.append(slot)
        return slots, payloads

    def _for_all(self, rows: pa.RecordBatch) -> tuple[list[int], list[blobs.Payload]]:
        """Each part of the rows for each slot, so that all read the same in the same order."""
        slots: list[int] = []
        payloads: list[blobs.Payload] = []
        for count, message in messages(rows, self._plan.blob_max_bytes):
            for slot, sequence in enumerate(self._sequences):
                payloads.append(blobs.Payload(self._map_partition, sequence, count, message, self._plan.input_number))
                slots.append(slot)
            self._sequences = [sequence + 1 for sequence in self._sequences]
        return slots, payloads

    def _keys(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return keys_of(rows, self._plan.key_columns, self._plan.key_schema)

    def _packed(self, slots: list[int], payloads: Sequence[blobs.Payload]) -> pa.RecordBatch:
        ballast = [payload.message.size * self._plan.arrow_rows_max // BALLAST_EVERY_BYTES for payload in payloads]
        sealed = blobs.seal(payloads, ballast)
        labels = self._labels.take(pa.array(np.repeat(slots, np.array(ballast) + 1)))
        return pa.RecordBatch.from_arrays(
            [labels, pa.nulls(len(labels), _PACKED.field(1).type), sealed], schema=_PACKED
        )

    def _marker(self, event_time_us: int) -> pa.RecordBatch:
        """The row that carries the watermark: blobs carry none, because Spark drops whole rows that are behind it."""
        return pa.RecordBatch.from_arrays(
            [
                self._labels.slice(0, 1),
                pa.array([event_time_us], pa.int64()).cast(_PACKED.field(1).type),
                pa.array([None], pa.binary()),
            ],
            schema=_PACKED,
        )


def keys_of(rows: pa.RecordBatch, key_columns: Sequence[str] | None, key_schema: pa.Schema) -> pa.RecordBatch:
    """The keys of an input's rows, which stand in ``key_columns``, or under their own names. They are cast: where Spark
    knows that a field has no nulls, its type is another one to Arrow.
    """
    columns = [rows.column(name) for name in key_columns or key_schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=key_schema)


def check_keys(codec: _core.KeyCodec, keys: pa.RecordBatch, max_parallelism: int) -> None:
    """Raises InvalidRequest where no slot takes these keys: one is null, and null is no key."""
    codec.key_groups(keys, max_parallelism)


def wake_rows(labels: pa.Array) -> pa.RecordBatch:
    """Packed rows that do nothing but have Spark call each slot."""
    nulls = (pa.nulls(len(labels), field.type) for field in (_PACKED.field(1), _PACKED.field(2)))
    return pa.RecordBatch.from_arrays([labels, *nulls], schema=_PACKED)


def messages(rows: pa.RecordBatch, max_bytes: int) -> Iterator[tuple[int, pa.Buffer]]:
    """(rows, IPC message) of consecutive parts, none larger than the limit unless a single row is."""
    parts = max(1, math.ceil(rows.nbytes / (max_bytes * 7 // 8)))  # the message has a header and padding too
    step = max(1, math.ceil(rows.num_rows / parts))
    for start in range(0, rows.num_rows, step):
        part = rows.slice(start, step)
        message = part.serialize()
        if message.size > max_bytes and part.num_rows > 1:
            half = part.num_rows // 2
            yield from messages(part.slice(0, half), max_bytes)
            yield from messages(part.slice(half), max_bytes)
        else:
            yield part.num_rows, message


def pack_function(plan: PackPlan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker_process()
        task = TaskContext.get()
        assert task is not None, "pack runs in Spark tasks only"
        return Pack(plan, plan.labels(), task.partitionId()).run(batches)

    return pack
