"""A query's checkpoint without Spark: one slot, a snapshot and two deltas over it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from benchmarks.slot import payloads
from tests.first_versions import slots_of
from tests.spark_files import SparkFiles

import holdfast as hf
from holdfast.checkpoint import (
    Handle,
    OperatorRecord,
    SlotState,
)
from holdfast.checkpoint.continued import continued
from holdfast.inspect.earlier import Earlier
from holdfast.testing.harness import QUERY_ID, Harness

ROWS = pa.schema([("key", pa.string()), ("payload", pa.binary())])
#: Operator and state.
PUTS = ("puts", "payload")
BATCHES = 8


class Puts(hf.BatchProcessor):
    """Keeps the last payload of each key."""

    payload = hf.ValueState(pa.binary())

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.payload.put(batch, batch["payload"])


def stored(folder: Path, rows: int) -> None:
    """Makes ``checkpoint`` and ``state`` in the folder, of about as many keys."""
    generator = np.random.default_rng(7)
    spark = SparkFiles(folder / "checkpoint", QUERY_ID)
    settings = {"snapshot.deltas.max": 3, "fold.deltas.max": 1, "snapshot.bytes.min": 1}
    with Harness(Puts(), "key", ROWS, "n long", name=PUTS[0], folder=folder, settings=settings) as harness:
        for batch_id in range(BATCHES):
            keys = pa.array(generator.integers(0, 1 << 60, rows // BATCHES)).cast(pa.string())
            harness.process(pa.table({"key": keys, "payload": payloads(generator, len(keys), 100)}))
            handle = harness.snapshot().handle
            assert handle is not None
            spark.commit(batch_id, [handle.to_text()])


def begun(earlier: Earlier, slots: int) -> OperatorRecord:
    """The record of the operator in a query that begins with an earlier one's state, or with a savepoint."""
    recorded, origin = earlier.operator(PUTS[0], "here", None)
    return continued(recorded, replace(recorded, slots=slots, labels=tuple(range(slots))), origin)


def first_versions(record: OperatorRecord, folder: Path, threads: int) -> list[Handle]:
    """What the slots of a new query do in its first batch, as many at once: in ``folder``, with an empty local disk."""

    def first(state: SlotState) -> Handle:
        handle = state.first_version()
        assert handle is not None
        return handle

    with ThreadPoolExecutor(threads) as workers:
        return list(workers.map(first, slots_of(record, folder, QUERY_ID)))
