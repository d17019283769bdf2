"""The program that the exactly-once harness kills: two operators, of which the first draws random numbers, into the
sinks of a world.

    python tests/faults/eos_stream.py FOLDER WORLD [--repeatable]

The first operator's tasks are of a stage before the sinks', the second's are the sinks' own: both must keep the state
that the visible output was made from. Prints a line for each committed batch.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from tests.faults.eos_worlds import EVENTS, OUTPUT, world_of
from tests.faults.supervised import supervised_session
from tests.random_numbers import RandomNumbers, RepeatableNumbers
from tests.streams import tell_batches

import holdfast as hf


class Sums(hf.BatchProcessor):
    """The sum of all numbers of the kind so far."""

    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        yield batch.append_column("total", self.total.add(batch["kind"], batch["number"]))


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("world")
    arguments.add_argument("--repeatable", action="store_true", help="each attempt at a batch draws the same numbers")
    arguments.add_argument("--master", default="local[2,4]")
    arguments.add_argument("--conf", action="append", default=[], help="setting=value")
    given = arguments.parse_args()
    spark = supervised_session(
        given.master,
        given.folder / f"spark-{os.getpid()}",  # a zombie may still have another one
        spark__holdfast__checkpoint__dir=str(given.folder / "state"),
        spark__holdfast__local__dir=str(given.folder / "local"),
        spark__holdfast__fold__deltas__max="4",
        spark__holdfast__snapshot__deltas__max="6",
        spark__sql__streaming__minBatchesToRetain="5",
        spark__sql__streaming__unsupportedOperationCheck="false",
        **dict(setting.split("=", 1) for setting in given.conf),
    )
    world = world_of(given.world, given.folder)
    processor = RepeatableNumbers() if given.repeatable else RandomNumbers()
    numbers = hf.keyed("user", processor, f"{EVENTS}, before long, number long", name="numbers")
    sums = hf.keyed("kind", Sums(), OUTPUT, name="sums")
    query = world.write(
        world.events(spark).transform(numbers).transform(sums),
        given.folder / "checkpoint",
        {"processingTime": "0 seconds"},
    )
    print("started", os.getpid(), flush=True)
    tell_batches(query)
    try:
        query.awaitTermination()
    except Exception as error:
        print("failed", type(error).__name__, " ".join(str(error).split()), flush=True)
        raise


if __name__ == "__main__":
    main()
