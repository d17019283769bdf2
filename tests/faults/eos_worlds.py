"""Where the exactly-once harness reads from and writes to. Files here; another world is a class with the same methods,
given to the harness as ``--world module:Class``.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from tests.faults.eos_oracle import Visible
from tests.faults.file_reading import FolderReader
from tests.faults.strikes import Outage

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

#: What goes in, and what must come out of each row.
EVENTS = "seq long, file int, user string, kind string"
OUTPUT = f"{EVENTS}, before long, number long, batch long, total long"
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

    def write(self, output: DataFrame, checkpoint: Path, trigger: Mapping[str, Any]) -> StreamingQuery:
        """Starts the query, with the sinks."""

    def committed(self) -> list[Visible]:
        """What an independent reader sees of each sink by now; the rows of a sink only become more."""

    def outage(self) -> Outage | None:
        """The broker's, if the world has one that may go away."""


class FilesWorld:
    """Parquet in, one file a batch; two FileSinks in one record."""

    def __init__(self, folder: Path) -> None:
        self._source = folder / "source"
        self._paths = [folder / "out", folder / "copy"]
        self._readers = [FolderReader(path) for path in self._paths]

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

    def write(self, output: DataFrame, checkpoint: Path, trigger: Mapping[str, Any]) -> StreamingQuery:
        sinks = [hf.FileSink(str(self._paths[0])), hf.FileSink(str(self._paths[1]), name="copy")]
        return hf.write_exactly_once(output, *sinks, checkpoint=checkpoint, trigger=trigger)

    def committed(self) -> list[Visible]:
        return [Visible(reader.rows()) for reader in self._readers]

    def outage(self) -> None:
        """Nothing runs."""


def world_of(name: str, folder: Path) -> World:
    """The world ``module:Class``."""
    module, _, found = name.partition(":")
    made: World = getattr(importlib.import_module(module), found)(folder)
    return made
