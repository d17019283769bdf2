"""Slot labels against Spark itself: its hash, and where it sends a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from holdfast.spark.labels import spark_hash, spread_labels

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_the_hash_is_sparks(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    edges = [0, 1, -1, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63)]
    values = edges + np.random.default_rng(7).integers(-(1 << 63), (1 << 63) - 1, 5_000).tolist()
    frame = spark.createDataFrame([(value,) for value in values], "value long")
    found = {row["value"]: row["hash"] for row in frame.select("value", F.hash("value").alias("hash")).collect()}
    assert {value: int(spark_hash(np.array([value], np.int64))[0]) for value in values} == found


@pytest.mark.parametrize(("slots", "partitions"), [(2, 2), (16, 16), (24, 8), (5, 12)])
def test_spark_sends_the_labels_where_they_were_meant_to_go(spark: SparkSession, slots: int, partitions: int) -> None:
    from pyspark.sql import functions as F

    frame = spark.createDataFrame([(label,) for label in spread_labels(slots, partitions)], "label long")
    sent = frame.repartition(partitions, "label").select("label", F.spark_partition_id().alias("partition")).collect()
    found = {row["label"]: row["partition"] for row in sent}
    assert [found[label] for label in spread_labels(slots, partitions)] == [slot % partitions for slot in range(slots)]
