"""Checkpoints of real queries, read without Spark: what Spark's own reader has, under each provider, while they run."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from tests.by_key import by_key
from tests.processors import TOTALS, CountsByKey, RunningTotal
from tests.streams import FileStream

import holdfast as hf
from holdfast.inspect.committed import Committed
from holdfast.spark.state_reader import state_texts
from holdfast.spark_files.logs import CommittedBatch
from holdfast.storage import open_file_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
USERS = 40


def batch_of(number: int) -> pa.Table:
    users = [f"user-{(number * 7 + at) % USERS}" for at in range(25)]
    return pa.table({"user": users, "amount": pa.array([number + at for at in range(25)], pa.int64())})


def expected(batches: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for number in range(batches):
        for row in batch_of(number).to_pylist():
            found[row["user"]] += row["amount"]
    return found


def totals(rows: Any) -> dict[str, int]:
    return by_key(rows.read_all())


class Query:
    """Two operators, of other numbers of slots, over one stream."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.folder = folder
        self.stream = FileStream(spark, folder)

    def apply(self, events: DataFrame) -> DataFrame:
        settings = {"checkpoint.dir": str(self.folder / "state"), "fold.deltas.max": 2, "snapshot.deltas.max": 3}
        settings |= {"snapshot.bytes.min": 1}
        first = events.transform(
            hf.keyed("user", RunningTotal(), TOTALS, name="running totals", settings={**settings, "slots": 3})
        )
        return first.select("user", "amount").transform(
            hf.keyed("user", CountsByKey(), TOTALS, name="counts", settings={**settings, "slots": 2})
        )

    def run(self, batches: int) -> None:
        self.stream.write(*(batch_of(number) for number in range(self.stream._files, batches)))
        self.stream.run(self.apply)

    def open(self, spark: SparkSession | None = None) -> hf.Checkpoint:
        return hf.Checkpoint(self.stream.checkpoint, spark=spark)


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Any:
    check = "spark.sql.streaming.unsupportedOperationCheck"
    before: Any = spark.conf.get(check, "true")
    spark.conf.set(check, "false")
    yield Query(spark, tmp_path)
    spark.conf.set(check, before)


def test_the_handles_are_those_that_spark_reads(query: Query, spark: SparkSession) -> None:
    query.run(12)  # past Spark's tenth delta, after which its state has a snapshot
    query.run(13)
    committed = Committed(open_file_store(str(query.stream.checkpoint)), None)
    assert committed.batches() == list(range(13))
    for batch_id in (0, 5, 12):
        found = committed.at(batch_id).handles
        assert {operator: len(slots) for operator, slots in found.items()} == {"running totals": 3, "counts": 2}
        texts = {handle.to_text() for slots in found.values() for handle in slots.values()}
        batch = CommittedBatch(batch_id, 0, None, (), {})
        told = [state_texts(spark, str(query.stream.checkpoint), batch, operator) for operator in (0, 1)]
        assert {text for one in told for text in one} == texts
    with query.open() as checkpoint:
        for batch_id in (0, 5, 12):
            assert totals(checkpoint.read("running totals", "total", batch_id=batch_id)) == expected(batch_id + 1)
        seen = checkpoint.read("counts", "seen").read_all()
        assert sum(seen["value"].to_pylist()) == 13 * 25
        assert checkpoint.verify().whole


def test_with_sparks_rocksdb_provider_spark_reads(query: Query, spark: SparkSession) -> None:
    before: Any = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, ROCKSDB)
    try:
        query.run(4)
        with query.open(spark) as checkpoint:
            for batch_id in (1, 3):
                assert totals(checkpoint.read("running totals", "total", batch_id=batch_id)) == expected(batch_id + 1)
    finally:
        spark.conf.set(PROVIDER, before)


@pytest.mark.parametrize("missing", [("1/1", "1/_metadata"), ("1",), ("0/1",), ("0/_metadata",)], ids=",".join)
def test_a_copy_that_was_cut_off_is_no_less_refused_where_spark_reads(
    query: Query, spark: SparkSession, missing: tuple[str, ...]
) -> None:
    before: Any = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, ROCKSDB)
    try:
        query.run(3)
        for name in missing:
            shutil.rmtree(query.stream.checkpoint / "state" / name)
        with query.open(spark) as checkpoint, pytest.raises(Exception) as refused:
            checkpoint.read("running totals", "total").read_all()
        assert isinstance(refused.value, hf.Corrupt), refused.value
    finally:
        spark.conf.set(PROVIDER, before)


def test_while_the_query_runs(query: Query, tmp_path: Path) -> None:
    query.run(1)
    query.stream.write(*(batch_of(number) for number in range(1, 15)))
    running = query.stream.start(query.stream.events().transform(query.apply))
    saved = 0
    while running.isActive:
        with query.open() as checkpoint:
            newest = checkpoint.versions()[-1].batch_id
            assert totals(checkpoint.read("running totals", "total", batch_id=newest)) == expected(newest + 1)
            savepoint = hf.Savepoint.create(checkpoint=checkpoint, to=tmp_path / f"saved-{saved}")
            batch_id = savepoint.manifest.batch_id
            assert batch_id is not None and batch_id >= newest
            assert totals(savepoint.read("running totals", "total")) == expected(batch_id + 1)
            assert sum(savepoint.read("counts", "seen").read_all()["value"].to_pylist()) == (batch_id + 1) * 25
            saved += 1
    running.awaitTermination()
    assert saved > 1
    with query.open() as checkpoint:
        assert totals(checkpoint.read("running totals", "total")) == expected(15)
        assert checkpoint.verify().whole


def test_pandas_duckdb_and_spark_read_a_savepoint_in_one_line(
    query: Query, spark: SparkSession, tmp_path: Path
) -> None:
    query.run(3)
    saved = hf.Savepoint.create(checkpoint=query.stream.checkpoint, to=tmp_path / "saved")
    folder = saved.path("running totals", "total")
    by_pandas = pd.read_parquet(folder)
    selected: Any = duckdb.sql(f"SELECT * FROM '{folder}/*.parquet'")
    by_duckdb = selected.arrow().read_all()
    by_spark = spark.read.parquet(folder).toArrow()
    for table in (pa.Table.from_pandas(by_pandas), by_duckdb, by_spark):
        assert by_key(table) == expected(3)
    assert len(list(Path(folder).iterdir())) == 3
    assert len(saved.manifest.sources) == 1
    assert saved.manifest.sources[0] is not None and "logOffset" in saved.manifest.sources[0]
