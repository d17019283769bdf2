"""A program as a user writes one, which catches nothing and ends as its first argument says."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
from pyspark.sql import SparkSession

import holdfast as hf

WAY, FOLDER = sys.argv[1], Path(sys.argv[2])


class Total(hf.BatchProcessor):
    """Tells that it is at work, and then takes its time."""

    total = hf.ReducingState(pa.int64(), "sum")

    def __init__(self, way: str, marker: str) -> None:
        self.way = way
        self.marker = marker

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
        if self.way == "mistake":
            yield batch.append_column("total", self.total.add(batch, amounts))  # type: ignore[name-defined]  # noqa: F821
        Path(self.marker).write_text(str(os.getpid()), encoding="utf-8")
        time.sleep(60)
        yield batch.append_column("total", self.total.add(batch, batch["amount"]))


def press_ctrl_c(marker: Path) -> None:
    """As a terminal does: every process of the program's group is told."""
    os.killpg(os.getpgrp(), signal.SIGINT)


def kill_jvm(marker: Path) -> None:
    for child in psutil.Process().children():
        if child.name() == "java":
            child.kill()


def kill_worker(marker: Path) -> None:
    os.kill(int(marker.read_text(encoding="utf-8")), signal.SIGKILL)


WAYS: dict[str, Callable[[Path], None]] = {"ctrl-c": press_ctrl_c, "jvm": kill_jvm, "worker": kill_worker}


def once_at_work(act: Callable[[Path], None], marker: Path) -> None:
    """In a thread: waits until the processor has begun."""

    def wait() -> None:
        while not marker.exists() or not marker.read_text(encoding="utf-8"):
            time.sleep(0.05)
        time.sleep(1)
        act(marker)
        print("acted", flush=True)

    threading.Thread(target=wait, daemon=True).start()


spark = (
    SparkSession.builder.master("local[2]")
    .config(map=hf.terminal_log(FOLDER / "all of it.log"))
    .config("spark.sql.shuffle.partitions", 2)
    .config("spark.holdfast.checkpoint.dir", str(FOLDER / "state"))
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
marker = FOLDER / "at-work"
if WAY in WAYS:
    once_at_work(WAYS[WAY], marker)
events = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
events = events.selectExpr("concat('user-', value % 10) AS user", "value AS amount")
totals = events.transform(hf.keyed("user", Total(WAY, str(marker)), "user string, amount long, total long", name="t"))
if WAY == "exactly-once":
    once_at_work(press_ctrl_c, marker)
    query = hf.write_exactly_once(totals, hf.FileSink(str(FOLDER / "files")), checkpoint=FOLDER / "checkpoint")
else:
    query = hf.start(totals.writeStream.format("noop"), checkpoint=FOLDER / "checkpoint")
query.awaitTermination()
