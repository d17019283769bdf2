"""Whether rows stay in the task that read them, by Spark's own plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from holdfast.spark.operators_within import rows_stay

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


STAY: dict[str, Callable[[DataFrame], DataFrame]] = {
    "as it is": lambda df: df,
    "columns and conditions": lambda df: df.where("value % 2 = 0").selectExpr("value + 1 AS value", "timestamp"),
    "several of one": lambda df: df.selectExpr("explode(array(value, 1)) AS value"),
    "a watermark": lambda df: df.withWatermark("timestamp", "1 minute"),
    "a union": lambda df: df.union(df.where("value = 7")),
    "mapInArrow": lambda df: df.mapInArrow(unchanged, df.schema),
    "mapInPandas": lambda df: df.mapInPandas(unchanged, df.schema),
    "words of others": lambda df: df.selectExpr("'Repartition' AS `Aggregate`", "'Join' AS `GlobalLimit`"),
}
MAY_MOVE: dict[str, Callable[[DataFrame], DataFrame]] = {
    "by turns": lambda df: df.repartition(3),
    "by columns": lambda df: df.repartition(3, "value"),
    "by range": lambda df: df.repartitionByRange(3, "value"),
    "as Spark likes": lambda df: df.hint("rebalance"),
    "put together": lambda df: df.coalesce(1),
    "below others": lambda df: df.repartition(3).where("value > 1").mapInArrow(unchanged, df.schema),
    "in one side": lambda df: df.union(df.repartition(3)),
    "the other side": lambda df: df.repartition(3).union(df),
    "each once": lambda df: df.dropDuplicates(["value"]),
    "counted": lambda df: df.groupBy("value").count().select("value"),
    "a few": lambda df: df.limit(3),
    "joined": lambda df: df.join(df.sparkSession.range(3).withColumnRenamed("id", "value"), "value"),
}


@pytest.fixture
def numbers(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load()


@pytest.mark.parametrize("name", STAY)
def test_rows_stay_where_nothing_is_shuffled(numbers: DataFrame, name: str) -> None:
    assert rows_stay(STAY[name](numbers))


@pytest.mark.parametrize("name", MAY_MOVE)
def test_rows_may_move_behind_anything_else(numbers: DataFrame, name: str) -> None:
    assert not rows_stay(MAY_MOVE[name](numbers))


def test_rows_may_move_where_no_plan_is_shown(numbers: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.errors import AnalysisException

    def forbidden(frame: DataFrame, name: str) -> None:
        raise AnalysisException(f"no view {name} of {frame}")

    monkeypatch.setattr(type(numbers), "createGlobalTempView", forbidden)
    assert not rows_stay(numbers)
