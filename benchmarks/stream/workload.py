"""A streaming query under measurement: a session, rows made by Spark itself, batches timed by Spark's own progress."""

from __future__ import annotations

import os
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.conditions import ProcessorTime
from benchmarks.figures import ROOT
from benchmarks.stream.rivals import AS_IT_COMES
from benchmarks.stream.scala_jar import scala_jar
from benchmarks.stream.ways import Way
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

BATCH_SECONDS_MAX = 1200


@dataclass
class Batches:
    """The batches of one query that were measured, after the warm-up."""

    rows: int
    ms: list[float] = field(default_factory=list)
    state_rows: int = 0
    state_memory_bytes: int = 0
    #: Of this process and its descendants, JVM and workers among them.
    processor_ms_a_batch: float = 0.0

    @property
    def rows_per_s(self) -> list[float]:
        """One rate a batch, from the start of the batch to its commit."""
        return [self.rows / ms * 1000 for ms in self.ms]

    @property
    def median_ms(self) -> float:
        """Of a batch."""
        return statistics.median(self.ms)


def start_session(folder: Path, *, scala: bool = False, **settings: str) -> SparkSession:
    """local[2] with two shuffle partitions, RocksDB with changelog checkpoints for Spark's own state.

    ``scala``: with the rival that is written in Scala, which is compiled where it is not there.
    """
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("holdfast benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(folder / "spark-local"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
        .config(map={**AS_IT_COMES})
        .config("spark.holdfast.checkpoint.dir", str(folder / "holdfast-state"))
        .config("spark.holdfast.local.dir", str(folder / "holdfast-local"))
    )
    if scala:
        builder = builder.config("spark.driver.extraClassPath", str(scala_jar()))
    for key, value in settings.items():
        builder = builder.config(key.replace("__", "."), value)
    return builder.getOrCreate()


def made_rows(
    spark: SparkSession, rows_a_batch: int, key: str, amount: str = "value % 100", partitions: int = 2
) -> DataFrame:
    """Rows (key, amount), exactly so many a batch; `key` and `amount` are SQL over `value`, which counts the rows."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows_a_batch)
    return source.option("numPartitions", partitions).load().selectExpr(f"{key} AS key", f"{amount} AS amount")


@contextmanager
def configured(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Settings for the queries that are started meanwhile; afterwards those of before."""
    before = {name: spark.conf.get(name, None) for name in conf}
    for name, value in conf.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)


def run(way: Way, rows: DataFrame, rows_a_batch: int, folder: Path, *, measured: int, warm_up: int) -> Batches:
    """Runs warm-up and measured batches into the sink that keeps nothing."""
    checkpoint = folder / f"checkpoint-{uuid.uuid4().hex}"
    with configured(rows.sparkSession, way.conf):
        writer = way.build(rows).writeStream.format("noop").outputMode(way.output_mode)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        return watch(query, rows_a_batch, measured=measured, warm_up=warm_up)


def watch(
    query: StreamingQuery,
    rows_a_batch: int,
    *,
    measured: int,
    warm_up: int,
    each: Callable[[], object] = lambda: None,
) -> Batches:
    """Waits until a query has run so many batches, and stops it. ``each`` is called when one was seen to have ended."""
    last, moved = -1, time.monotonic()
    start = ProcessorTime.now()
    while last + 1 < warm_up + measured:
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
        progress: Any = query.lastProgress
        if progress is not None and progress.batchId > last:
            last, moved = progress.batchId, time.monotonic()
            start = ProcessorTime.now() if last < warm_up else start
            each()
        if time.monotonic() - moved > BATCH_SECONDS_MAX:
            raise RuntimeError(f"no batch in {BATCH_SECONDS_MAX} s")
        time.sleep(0.02)
    took_s = ProcessorTime.now().ours_s - start.ours_s
    query.stop()
    batches = Batches(rows_a_batch, processor_ms_a_batch=took_s * 1000 / measured)
    for progress in query.recentProgress[warm_up : warm_up + measured]:
        if progress.numInputRows != rows_a_batch:
            raise RuntimeError(f"batch {progress.batchId}: expected {rows_a_batch} rows, found {progress.numInputRows}")
        batches.ms.append(progress.durationMs["triggerExecution"])
        for operator in progress.stateOperators:
            batches.state_rows = operator.numRowsTotal
            batches.state_memory_bytes = operator.memoryUsedBytes
    return batches
