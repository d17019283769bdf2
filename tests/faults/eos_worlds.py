"""Where the exactly-once harness reads from and writes to. Files here; another world is a class with the same methods,
given to the harness as ``--world module:Class``.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

import holdfast as hf
from holdfast.commit.sink import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: What goes in, and what must come out of each row.
EVENTS = "seq long, file int, user string, kind string"
OUTPUT = f"{EVENTS}, before long, number long, total long"
SCHEMA = pa.schema([("seq", "i8"), ("file", "i4"), ("user", "str"), ("kind", "str")])


class World(Protocol):
    """One folder's source and sinks. Made anew in the harness and in each run of the program."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is the campaign's; whatever outlives a run (a broker's address) is found through it."""

    def open(self) -> None:
        """In the harness, before the first run: starts what is needed."""

    def close(self) -> None:
        """In the harness, at the end."""

    def feed(self, rows: pa.Table, file: int) -> None:
        """More input, in `SCHEMA`; the rows of a user stay in order."""

    def events(self, spark: SparkSession) -> DataFrame:
        """The streaming DataFrame of `EVENTS`, of few files a batch."""

    def sinks(self) -> list[Sink]:
        """What the program writes to."""

    def committed(self) -> list[pa.Table]:
        """What an independent reader sees of each sink: the columns of `OUTPUT`."""


class FilesWorld:
    """Parquet in, one file a batch; two FileSinks in one record."""

    def __init__(self, folder: Path) -> None:
        self._source = folder / "source"
        self._paths = [str(folder / "out"), str(folder / "copy")]

    def open(self) -> None:
        self._source.mkdir(parents=True)

    def close(self) -> None:
        """Nothing runs."""

    def feed(self, rows: pa.Table, file: int) -> None:
        path = self._source / f"{file:06d}.parquet"
        hidden = path.with_name(f".{path.name}")
        pq.write_table(rows, hidden)
        os.utime(hidden, (1_700_000_000 + file,) * 2)  # Spark reads files by age
        hidden.rename(path)

    def events(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).parquet(str(self._source))

    def sinks(self) -> list[Sink]:
        return [hf.FileSink(self._paths[0]), hf.FileSink(self._paths[1], name="copy")]

    def committed(self) -> list[pa.Table]:
        return [
            hf.FileSink.read(path) if hf.FileSink.files(path) else pa.table({name: [] for name in _output_names()})
            for path in self._paths
        ]


def _output_names() -> list[str]:
    return [column.split()[0] for column in OUTPUT.split(", ")]


def world_of(name: str, folder: Path) -> World:
    """The world ``module:Class``."""
    module, _, found = name.partition(":")
    made: World = getattr(importlib.import_module(module), found)(folder)
    return made
