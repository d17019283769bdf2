"""Processors that count by themselves. Spark's workers import this module."""

from __future__ import annotations

import os
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.processors import RunningTotal

import holdfast as hf


class Counting(RunningTotal):
    """A running total that counts by itself."""

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
        ctx.counters.add("amount", sum(batch["amount"].to_pylist()))
        yield from super().process(batch, ctx)


class KilledOnce(Counting):
    """Its worker process is killed in the first attempt at a batch, once a slot is done with its rows."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def close(self) -> None:
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


class LeavingTraces(Counting):
    """Each run of each slot leaves a file."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def close(self) -> None:
        os.close(tempfile.mkstemp(dir=self.folder)[0])


class LosesShuffleFiles(RunningTotal):
    """The first slot that is done takes all shuffle files with it, as a disk that is lost does."""

    def __init__(self, spark_local_dir: str, marker: str) -> None:
        self.spark_local_dir = spark_local_dir
        self.marker = marker

    def close(self) -> None:
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        for path in Path(self.spark_local_dir).rglob("shuffle_*.data"):
            with suppress(FileNotFoundError):
                path.unlink()
