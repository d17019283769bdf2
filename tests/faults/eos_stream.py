"""The program that the exactly-once harness kills: two operators, of which the first draws random numbers, into the
sinks of a world.

    python tests/faults/eos_stream.py FOLDER WORLD [--repeatable] [--available-now] [--catches]

The first operator's tasks are of a stage before the sinks', the second's are the sinks' own: both must keep the state
that the visible output was made from. Prints a line for each committed batch.

Each number that is drawn is written down in FOLDER/drawn before the row goes on, so that one that nobody drew is known.
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


class WrittenDown(RandomNumbers):
    """Leaves a line for each number, in a file of its process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        for rows in super().process(batch, ctx):
            lines = zip(rows["seq"].to_pylist(), rows["number"].to_pylist())
            # One write, unbuffered: a kill leaves all of it, or a part and rows that went no further.
            with (self._folder / f"{os.getpid()}.txt").open("ab", buffering=0) as file:
                file.write("".join(f"{seq} {number}\n" for seq, number in lines).encode())
            yield rows


class RepeatableWrittenDown(WrittenDown, RepeatableNumbers):
    """The same, of numbers that another attempt draws again."""


class Sums(hf.BatchProcessor):
    """The sum of all numbers of the kind so far."""

    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        rows = batch.append_column("batch", pa.repeat(pa.scalar(ctx.batch_id, pa.int64()), batch.num_rows))
        yield rows.append_column("total", self.total.add(batch["kind"], batch["number"]))


class CatchingSums(Sums):
    """Catches an error in the middle of an operation and goes on, as users do: once for each of some batches. Nothing
    of that attempt may count.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        caught = self._folder / f"{ctx.batch_id}.txt"
        if ctx.batch_id % 3 == 1 and not caught.exists():
            kind = batch["kind"][0].as_py()
            caught.touch()
            try:
                self.total.add_only(pa.array([kind] * 4), pa.array([1, 2, 2**63 - 1, 3]))
            except hf.HoldfastError as error:  # the third row does not fit
                caught.write_text(f"{error}")
        yield from super().process(batch, ctx)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("world")
    arguments.add_argument("--repeatable", action="store_true", help="each attempt at a batch draws the same numbers")
    arguments.add_argument("--available-now", action="store_true", help="until all that is there is done")
    arguments.add_argument("--catches", action="store_true", help="a processor that catches its errors")
    arguments.add_argument("--master", default="local[2,4]")
    arguments.add_argument("--conf", action="append", default=[], help="setting=value")
    given = arguments.parse_args()
    spark = supervised_session(
        given.master,
        given.folder / f"spark-{os.getpid()}",  # a zombie may still have another one
        spark__holdfast__checkpoint__dir=str(given.folder / "state"),
        spark__holdfast__fold__deltas__max="4",
        spark__holdfast__snapshot__deltas__max="6",
        spark__sql__streaming__minBatchesToRetain="5",
        spark__sql__streaming__unsupportedOperationCheck="false",
        # Spark snapshots its own state in the background, also of batches that are never committed.
        spark__sql__streaming__stateStore__maintenanceInterval="500ms",
        spark__sql__streaming__stateStore__minDeltasForSnapshot="1",
        **{"spark__holdfast__local__dir": str(given.folder / "local"), **dict(s.split("=", 1) for s in given.conf)},
    )
    world = world_of(given.world, given.folder)
    drawn, caught = given.folder / "drawn", given.folder / "caught"
    for folder in (drawn, caught):
        folder.mkdir(exist_ok=True)
    processor = RepeatableWrittenDown(drawn) if given.repeatable else WrittenDown(drawn)
    numbers = hf.keyed("user", processor, f"{EVENTS}, before long, number long", name="numbers")
    sums = hf.keyed("kind", CatchingSums(caught) if given.catches else Sums(), OUTPUT, name="sums")
    query = world.write(
        world.events(spark).transform(numbers).transform(sums),
        given.folder / "checkpoint",
        {"availableNow": True} if given.available_now else {"processingTime": "0 seconds"},
    )
    print("started", os.getpid(), flush=True)
    tell_batches(query)
    try:
        query.awaitTermination()
    except Exception as error:
        print("failed", type(error).__name__, " ".join(str(error).split()), flush=True)
        raise
    print("done", flush=True)


if __name__ == "__main__":
    main()
