"""The last payload of each key, 96 bytes that do not compress, kept by Holdfast, by Spark's aggregation, and by its
transformWithState in Scala.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
from benchmarks.stream.rivals import TUNED
from benchmarks.stream.ways import Way
from pyspark.sql import DataFrame, SparkSession

import holdfast as hf

ROWS = "key long, payload binary"
PAYLOAD_BYTES = 96
_PAYLOAD = "concat(unhex(sha2(CAST(value AS STRING), 512)), unhex(sha2(CAST(-value AS STRING), 256)))"


class LastPayload(hf.BatchProcessor):
    """Keeps the last payload of each key, and gives it."""

    payload = hf.ValueState(pa.binary())

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> pa.RecordBatch:
        self.payload.put(batch, batch["payload"])
        last = ~pd.Series(batch["key"].to_numpy()).duplicated(keep="last").to_numpy()
        return batch.select(["key", "payload"]).filter(pa.array(last))


def _holdfast(rows: DataFrame) -> DataFrame:
    return rows.transform(hf.keyed("key", LastPayload(), ROWS, name="payloads", output_mode="update"))


def spark_state(rows: DataFrame) -> DataFrame:
    """The state under Spark's provider: the last payload, as an aggregation keeps it."""
    return rows.groupBy("key").agg({"payload": "last"})


def scala_state(rows: DataFrame) -> DataFrame:
    """The same by transformWithState, which need not read what it replaces; the session needs scala_jar.py's jar."""
    spark: Any = rows.sparkSession
    return DataFrame(spark._jvm.holdfast.benchmarks.KeyedSums.lastPayloads(rows._jdf), spark)


_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
OURS: Mapping[str, Way] = {"holdfast": Way(_holdfast, "update", TUNED)}
#: New tables of each batch uploaded, as Flink's incremental checkpoints do it.
BY_TABLES = Way(spark_state, "update", {**TUNED, _CHANGELOG: "false"})
SPARK = Way(spark_state, "update", TUNED)
SCALA = Way(scala_state, "update", TUNED)


@dataclass(frozen=True)
class Stream:
    """Batches of so many rows: first each of the keys once, in order; then as ``afterwards`` says, SQL over `value`,
    which counts the rows.
    """

    rows: int
    keys: int
    afterwards: str

    @property
    def filling(self) -> int:
        """Batches until each key has its state."""
        return -(-self.keys // self.rows)

    def of(self, spark: SparkSession) -> DataFrame:
        """(key, payload)."""
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", self.rows)
        key = f"CASE WHEN value < {self.filling * self.rows} THEN value % {self.keys} ELSE {self.afterwards} END"
        return source.option("numPartitions", 2).load().selectExpr(f"{key} AS key", f"{_PAYLOAD} AS payload")
