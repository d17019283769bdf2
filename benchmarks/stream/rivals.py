"""The rivals of the running sum: each way that Spark has of keeping it, each with the settings that suit it best.

A way gives one row for each key that changed and batch; tests/integration/test_rivals.py says that all agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from benchmarks.stream.ways import TOTALS, Way
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from holdfast.spark.labels import spread_labels

T = TypeVar("T")
_STORE = "spark.sql.streaming.stateStore"
_ROCKSDB = f"{_STORE}.rocksdb"
PROVIDERS = "org.apache.spark.sql.execution.streaming.state"
PARTITIONS = 2

#: Changelog checkpoints and the rest as it comes.
AS_IT_COMES = {
    f"{_STORE}.providerClass": f"{PROVIDERS}.RocksDBStateStoreProvider",
    f"{_ROCKSDB}.changelogCheckpointing.enabled": "true",
}
#: No read before each write to count rows; a cache that holds the state; uploads in the background, once a minute.
TUNED = {
    **AS_IT_COMES,
    f"{_ROCKSDB}.trackTotalNumberOfRows": "false",
    f"{_ROCKSDB}.blockCacheSizeMB": "512",
    f"{_ROCKSDB}.writeBufferSizeMB": "64",
    f"{_ROCKSDB}.compactOnCommit": "false",
    f"{_STORE}.maintenanceInterval": "60s",
}
IN_MEMORY = {f"{_STORE}.providerClass": f"{PROVIDERS}.HDFSBackedStateStoreProvider"}


def spark_sql(rows: DataFrame) -> DataFrame:
    """Spark's own aggregation; nothing goes to Python."""
    return rows.groupBy("key").agg({"amount": "sum"}).withColumnRenamed("sum(amount)", "total")


def apply_by_key(rows: DataFrame) -> DataFrame:
    """What PySpark's users write: one group a key."""
    return rows.groupBy("key").applyInPandasWithState(_add, TOTALS, "total long", "update", "NoTimeout")


def _add(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    total = state.get[0] if state.exists else 0
    for frame in frames:
        total += int(frame["amount"].sum())
    state.update((total,))
    yield pd.DataFrame({"key": [key[0]], "total": [total]})


def apply_by_partition(rows: DataFrame) -> DataFrame:
    """What those write who have measured it: one group a partition, in its state a dict of all its keys, as bytes.

    Groups are numbered so that each has a partition of its own.
    """
    labels = ", ".join(f"{label}L" for label in spread_labels(PARTITIONS, PARTITIONS))
    grouped = rows.selectExpr("*", f"array({labels})[pmod(hash(key), {PARTITIONS})] AS part").groupBy("part")
    return grouped.applyInPandasWithState(_add_all, TOTALS, "keys binary, totals binary", "update", "NoTimeout")


def _add_all(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    sums: dict[int, int] = {}
    if state.exists:
        keys, totals = (np.frombuffer(data, np.int64).tolist() for data in state.get)
        sums = dict(zip(keys, totals))
    added = pd.concat(frames).groupby("key", sort=False)["amount"].sum()
    changed = added.index.tolist()
    for one, amount in zip(changed, added.tolist()):
        sums[one] = sums.get(one, 0) + amount
    state.update((np.fromiter(sums, np.int64).tobytes(), np.fromiter(sums.values(), np.int64).tobytes()))
    yield pd.DataFrame({"key": changed, "total": [sums[one] for one in changed]})


class SumOfFrames(StatefulProcessor):
    """For transformWithStateInPandas."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        total = (self._total.get() or (0,))[0]
        for frame in rows:
            total += int(frame["amount"].sum())
        self._total.update((total,))
        yield pd.DataFrame({"key": [key[0]], "total": [total]})

    def close(self) -> None:
        pass


class SumOfRows(SumOfFrames):
    """For transformWithState."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        total = (self._total.get() or (0,))[0]
        for row in rows:
            total += row.amount
        self._total.update((total,))
        yield Row(key=key[0], total=total)


def transform_with_state_in_pandas(rows: DataFrame) -> DataFrame:
    """Spark 4's own operator for Python, with frames."""
    return rows.groupBy("key").transformWithStateInPandas(SumOfFrames(), TOTALS, "Update", "None")


def transform_with_state(rows: DataFrame) -> DataFrame:
    """The same with rows."""
    return rows.groupBy("key").transformWithState(SumOfRows(), TOTALS, "Update", "None")


def scala_transform_with_state(rows: DataFrame) -> DataFrame:
    """The same in Scala; the session needs benchmarks/stream/scala_jar.py's jar on the driver's class path."""
    spark: Any = rows.sparkSession
    return DataFrame(spark._jvm.holdfast.benchmarks.KeyedSums.totals(rows._jdf), spark)


def _update(build: Any, conf: dict[str, str]) -> Way:
    return Way(build, "update", conf)


#: Those that bring a million rows through in seconds.
FAST = {
    "Spark SQL, RocksDB as it comes": _update(spark_sql, AS_IT_COMES),
    "Spark SQL, RocksDB tuned": _update(spark_sql, TUNED),
    "Spark SQL, in memory": _update(spark_sql, IN_MEMORY),
    "applyInPandasWithState, a dict a partition": _update(apply_by_partition, IN_MEMORY),
    "transformWithState, Scala": _update(scala_transform_with_state, TUNED),
}
#: Those that call Python once a key: up to minutes a batch.
SLOW = {
    "transformWithState, rows": _update(transform_with_state, TUNED),
    "applyInPandasWithState": _update(apply_by_key, IN_MEMORY),
    "transformWithStateInPandas": _update(transform_with_state_in_pandas, TUNED),
}
RIVALS = {**FAST, **SLOW}

#: What each is called in the names of figures: by_slug.
SLUGS = {
    "Spark SQL, RocksDB as it comes": "spark_sql",
    "Spark SQL, RocksDB tuned": "spark_sql_tuned",
    "Spark SQL, in memory": "spark_sql_in_memory",
    "applyInPandasWithState, a dict a partition": "apply_by_partition",
    "transformWithState, Scala": "scala_transform_with_state",
    "transformWithState, rows": "transform_with_state",
    "applyInPandasWithState": "apply_in_pandas",
    "transformWithStateInPandas": "transform_with_state_in_pandas",
}


def by_slug(found: Mapping[str, T]) -> dict[str, T]:
    """What was found of the rivals, as figures name them; of others, nothing."""
    return {SLUGS[name]: one for name, one in found.items() if name in SLUGS}
