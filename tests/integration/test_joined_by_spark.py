"""A query that joins two streams by Spark itself: that state has stores of other names than an operator's of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.functions import col
from tests.by_key import by_key
from tests.processors import TOTALS, RunningTotal
from tests.repartitioned import ROCKSDB
from tests.streams import FileStream

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


@pytest.mark.parametrize("provider", [IN_MEMORY, ROCKSDB], ids=["default", "rocksdb"])
def test_a_query_with_a_join_of_sparks_starts_again(
    spark: SparkSession, streams: Callable[[str], FileStream], tmp_path: Path, provider: str
) -> None:
    """And reads its state: each start looks through Spark's state for the operators that are ours."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    prices, sold = streams("prices"), streams("sold")
    prices.write(pa.table({"user": ["ada", "bob"], "amount": [5, 7]}))
    checkpoint, written = tmp_path / "checkpoint", tmp_path / "written"
    for count in (1, 10, 100):
        sold.write(pa.table({"user": ["ada", "bob"], "amount": [count, count]}))
        bought = sold.events().selectExpr("user AS buyer", "amount AS count")
        spent = prices.events().join(bought, col("user") == col("buyer")).selectExpr("user", "amount * count AS amount")
        totals = spent.transform(hf.keyed("user", RunningTotal(), TOTALS, name="totals"))
        sink = hf.FileSink(str(written))
        query = hf.write_exactly_once(totals, sink, checkpoint=checkpoint, trigger={"availableNow": True})
        query.awaitTermination()
    state = spark.conf.get("spark.holdfast.checkpoint.dir")
    with hf.Checkpoint(checkpoint, state=state, spark=spark) as opened:
        total = opened.read("totals", "total").read_all()
    found = hf.FileSink.read(str(written)).select(["user", "total"]).to_pylist()
    assert sorted((row["user"], row["total"]) for row in found) == [
        ("ada", 5), ("ada", 55), ("ada", 555), ("bob", 7), ("bob", 77), ("bob", 777),
    ]  # fmt: skip
    assert by_key(total) == {"ada": 555, "bob": 777}
