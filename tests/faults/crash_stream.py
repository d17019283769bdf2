"""The program that the crash harness kills: files in, two keyed operators with every kind of state, files out.

    python tests/faults/crash_stream.py FOLDER [--until-done]

Reads FOLDER/source one file a batch (two in the batch after a kill between Spark's log of files and its log of
offsets), writes FOLDER/output with Spark's file sink, which is exactly-once by a log of its
own. Prints a line for each committed batch. What it should have written is computed by DuckDB in crash_oracle.py.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from tests.spark_sessions import start_session
from tests.streams import tell_batches

import holdfast as hf

EVENTS = "seq long, file int, user string, kind string, amount long"
ACCOUNTS = (
    f"{EVENTS}, batch long, total long, average double, greatest long, before long, listed long, kind_before long, "
    "kinds long"
)
AUDIT = f"{ACCOUNTS}, seen long, best long, trail string"


class Accounts(hf.BatchProcessor):
    """Vectorised: what each row's user has, all kinds of state side by side."""

    total = hf.ReducingState(pa.int64(), "sum")
    average = hf.AggregatingState(pa.int64(), "avg")
    greatest = hf.ReducingState(pa.int64(), lambda a, b: max(a, b))
    last = hf.ValueState(pa.int64())
    amounts = hf.ListState(pa.int64())
    last_by_kind = hf.MapState(pa.string(), pa.int64())

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        if pc.count_distinct(batch["file"]).as_py() > 1:  # Spark orders the files of a batch by their size
            batch = batch.sort_by("seq")
        user, kind, amount = batch["user"], batch["kind"], batch["amount"]
        before = self.last.get(user)
        kind_before = self.last_by_kind.get(user, kind)
        self.last.put(user, amount)
        self.last_by_kind.put(user, kind, amount)
        self.amounts.add(user, amount)
        columns = {
            "batch": pa.repeat(pa.scalar(ctx.batch_id, pa.int64()), batch.num_rows),
            "total": self.total.add(user, amount),
            "average": self.average.add(user, amount),
            "greatest": self.greatest.add(user, amount),
            "before": before,
            "listed": pc.list_value_length(self.amounts.get(user)).cast(pa.int64()),
            "kind_before": kind_before,
            "kinds": self.last_by_kind.count(user),
        }
        for name, column in columns.items():
            batch = batch.append_column(name, column)
        yield batch


class Audit(hf.KeyedProcessor):
    """A key at a time, over the output of the first: rows of the kind, its best, and the last three amounts."""

    seen = hf.ValueState(pa.int64())
    best = hf.ReducingState(pa.int64(), "max")
    trail = hf.ListState(pa.int64())

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> pa.Table:
        seen, trail = self.seen.value() or 0, self.trail.get()
        count: list[int] = []
        best: list[int] = []
        trails: list[str] = []
        for amount in rows["amount"].to_pylist():
            seen += 1
            self.best.add(amount)
            trail = [*trail, amount][-3:]
            count.append(seen)
            best.append(self.best.get())
            trails.append(",".join(map(str, trail)))
        self.seen.update(seen)
        self.trail.update(trail)
        return (
            rows.append_column("seen", pa.array(count, pa.int64()))
            .append_column("best", pa.array(best, pa.int64()))
            .append_column("trail", pa.array(trails))
        )


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--until-done", action="store_true")
    arguments.add_argument("--master", default="local[2,4]")
    arguments.add_argument("--conf", action="append", default=[], help="setting=value")
    given = arguments.parse_args()
    spark = start_session(
        given.master,
        given.folder / "spark",
        spark__holdfast__checkpoint__dir=str(given.folder / "state"),
        spark__holdfast__local__dir=str(given.folder / "local"),
        # Small limits, so that every step of the protocol is taken every few batches.
        spark__holdfast__memory__batch__max="2 MiB",
        spark__holdfast__memory__cache__max="2 MiB",
        spark__holdfast__memory__spool__max="64 KiB",
        spark__holdfast__pack__blob__max="32 KiB",
        spark__holdfast__fold__deltas__max="2",
        spark__holdfast__snapshot__deltas__max="3",
        spark__holdfast__stray__grace="20 s",
        spark__sql__streaming__minBatchesToRetain="3",
        spark__sql__streaming__unsupportedOperationCheck="false",
        **dict(setting.split("=", 1) for setting in given.conf),
    )
    events = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).parquet(str(given.folder / "source"))
    accounts = hf.keyed("user", Accounts(), ACCOUNTS, name="accounts")
    audit = hf.keyed(["user", "kind"], Audit(), AUDIT, name="audit", settings={"slots": 3})
    query = (
        events.transform(accounts)
        .transform(audit)
        .writeStream.format("parquet")
        .option("path", str(given.folder / "output"))
        .option("checkpointLocation", str(given.folder / "checkpoint"))
        .trigger(**({"availableNow": True} if given.until_done else {"processingTime": "0 seconds"}))
        .start()
    )
    print("started", os.getpid(), flush=True)
    tell_batches(query)
    query.awaitTermination()
    handles = [
        row["handle"]
        for operator in (0, 1)
        for row in spark.read.format("statestore")
        .option("operatorId", operator)
        .load(str(given.folder / "checkpoint"))
        .select("value.groupState.handle")
        .collect()
    ]
    (given.folder / "handles.json").write_text(json.dumps(handles))
    print("done", flush=True)


if __name__ == "__main__":
    main()
