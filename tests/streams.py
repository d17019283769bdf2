"""Streams whose batches a test writes itself:
a folder of Parquet files, one file a batch, each run until all are read.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.types import StructType

Transform = Callable[["DataFrame"], "DataFrame"]


class FileStream:
    """A source folder, a checkpoint, and the output of each batch as the sink was last given it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.source = folder / "source"
        self.checkpoint = folder / "checkpoint"
        self.output: dict[int, pa.Table] = {}
        self._files = 0
        self._schema: StructType | None = None
        os.makedirs(self.source)

    @classmethod
    def over(cls, spark: SparkSession, folder: Path, checkpoint: Path) -> FileStream:
        """The stream of another's source folder, from a checkpoint of its own."""
        stream = cls.__new__(cls)
        stream.spark, stream.source, stream.checkpoint = spark, folder / "source", checkpoint
        stream.output, stream._files, stream._schema = {}, 0, None
        return stream

    def write(self, *batches: pa.Table, row_group_rows: int | None = None) -> None:
        """The batches to come, in this order."""
        for batch in batches:
            path = self.source / f"{self._files:06d}.parquet"
            hidden = self.source / f".{path.name}"
            pq.write_table(batch, hidden, row_group_size=row_group_rows)
            os.utime(hidden, (1_700_000_000 + self._files, 1_700_000_000 + self._files))  # Spark reads files by age
            os.rename(hidden, path)
            self._files += 1

    def events(self, files_a_batch: int = 1) -> DataFrame:
        """The streaming DataFrame; the schema is that of the first file, which one of Spark's jobs reads, once."""
        if self._schema is None:
            self._schema = self.spark.read.parquet(str(self.source)).schema
        source = self.spark.readStream.schema(self._schema).option("maxFilesPerTrigger", files_a_batch)
        return source.parquet(str(self.source))

    def start(self, frame: DataFrame, output_mode: str = "append", **trigger: Any) -> StreamingQuery:
        """Starts a query that keeps each batch's output, by default until all files are read."""

        def keep(batch: DataFrame, batch_id: int) -> None:
            self.output[batch_id] = batch.toArrow()

        return (
            frame.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self.checkpoint))
            .outputMode(output_mode)
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )

    def run(self, transform: Transform, *, files_a_batch: int = 1, output_mode: str = "append") -> list[pa.Table]:
        """Runs until all files are read; gives the output of the batches of this run, in order."""
        before = set(self.output)
        query = self.start(self.events(files_a_batch).transform(transform), output_mode)
        query.awaitTermination()
        return [table for batch_id, table in sorted(self.output.items()) if batch_id not in before]

    def committed(self) -> list[int]:
        """Batches that Spark has committed."""
        return sorted(int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdigit())

    def roll_back(self, batches: int) -> None:
        """Takes back Spark's newest commits; the oldest of those batches runs again with the offsets it had."""
        taken = self.committed()[-batches:]
        for log, batch_ids in (("commits", taken), ("offsets", taken[1:])):
            for batch_id in batch_ids:
                (self.checkpoint / log / str(batch_id)).unlink()
                (self.checkpoint / log / f".{batch_id}.crc").unlink(missing_ok=True)
        for batch_id in taken:
            self.output.pop(batch_id, None)

    def start_anew(self) -> None:
        """Forgets Spark's checkpoint, and with it the query."""
        shutil.rmtree(self.checkpoint)
        self.output.clear()


def tell_batches(query: StreamingQuery) -> None:
    """Prints a line for each batch that ``query`` commits, until it ends: what the crash harnesses read."""
    told = -1
    while query.isActive:
        progress = query.lastProgress
        if progress is not None and progress.batchId > told:
            told = progress.batchId
            print("batch", told, flush=True)
        time.sleep(0.05)


def rows(tables: Iterable[pa.Table]) -> list[dict[str, Any]]:
    """All rows in their order."""
    return pa.concat_tables(tables).to_pylist()
