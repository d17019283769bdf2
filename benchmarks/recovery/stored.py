"""A query's checkpoint without Spark: one slot, a snapshot and two deltas over it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from benchmarks.slot import payloads
from tests.spark_files import SparkFiles

import holdfast as hf
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
