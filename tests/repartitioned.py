"""Spark repartitions a stateful query's own state: from 4.2 on, by its RocksDB provider, under a private name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark_sessions import SPARK_RELEASE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: For `spark.sql.streaming.stateStore.providerClass`.
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
needs_repartitioning = pytest.mark.skipif(SPARK_RELEASE < (4, 2), reason="Spark repartitions state from 4.2 on")


def repartition(spark: SparkSession, checkpoint: Path, partitions: int, **options: Any) -> None:
    """Of a query that is stopped; Spark does it in a batch of its own."""
    found: Any = spark
    found._streamingCheckpointManager.repartition(str(checkpoint), partitions, **options)
