"""`format("holdfast-state")`: a state as a DataFrame is what `Checkpoint.read` gives, at any retained batch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.processors import TOTALS, RunningTotal
from tests.spark_sessions import SPARK_RELEASE
from tests.streams import FileStream

import holdfast as hf
from holdfast.errors import InvalidRequest
from holdfast.source.state.columns import table_schema
from holdfast.source.state.source import PushedStateReader, StateDataSource, StateOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

OPERATOR = "running totals"


class Query:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.folder = folder
        self.stream = FileStream(spark, folder)
        self.stream.write(*(batch_of(number) for number in range(4)))
        self.stream.run(self.apply)
        spark.dataSource.register(StateDataSource)

    def apply(self, events: DataFrame) -> DataFrame:
        settings = {"checkpoint.dir": str(self.folder / "state"), "slots": 3}
        return events.transform(hf.keyed("user", RunningTotal(), TOTALS, name=OPERATOR, settings=settings))

    def options(self, **more: Any) -> dict[str, str]:
        state = self.state
        given = {"checkpoint": str(self.stream.checkpoint), "operator": OPERATOR, "state": state, **more}
        return {name: str(value) for name, value in given.items()}

    @property
    def state(self) -> str:
        with hf.Checkpoint(self.stream.checkpoint) as checkpoint:
            return checkpoint.operators()[0].states[0].name

    def expected(self, batch_id: int | None = None) -> list[dict[str, Any]]:
        with hf.Checkpoint(self.stream.checkpoint) as checkpoint:
            return ordered(checkpoint.read(OPERATOR, self.state, batch_id=batch_id).read_all().to_pylist())


def batch_of(number: int) -> pa.Table:
    users = [f"user-{(number * 7 + at) % 40}" for at in range(25)]
    return pa.table({"user": users, "amount": pa.array([number + at for at in range(25)], pa.int64())})


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=repr)


def test_a_state_is_a_table_at_every_batch_with_a_task_a_slot(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, tmp_path)
    for more in ({}, {"batch": 0}, {"batch": 2}):
        frame = spark.read.format("holdfast-state").options(**query.options(**more)).load()
        rows = [row.asDict() for row in frame.collect()]
        assert ordered(rows) == query.expected(more.get("batch")) and rows
    assert frame.rdd.getNumPartitions() == 3
    before: Any = spark.conf.get("spark.sql.python.filterPushdown.enabled", "false")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        pushed = (
            spark.read.format("holdfast-state").options(**query.options(columns="user,value", pushdown="true")).load()
        )
        some = [row.asDict() for row in pushed.where("user = 'user-7' or value < 0").collect()]
        some += [row.asDict() for row in pushed.where("user = 'user-7' and value > 0").collect()]
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", before)
    (expected,) = [row for row in query.expected() if row["user"] == "user-7"]
    assert some == [{"user": "user-7", "value": expected["value"]}] * 2
    with pytest.raises(Exception, match="is not among the committed batches"):
        spark.read.format("holdfast-state").options(**query.options(batch=99)).load()


@pytest.mark.skipif(SPARK_RELEASE < (4, 1), reason="Spark gives filters to Python's sources from 4.1 on")
def test_what_is_pushed_is_read_by_the_task_and_the_rest_is_given_back(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import datasource as filters

    query = Query(spark, tmp_path)
    reader = PushedStateReader(StateOptions.parse(query.options()), StateDataSource(query.options()).schema())
    given = [filters.In(("user",), ("user-7", "user-8", None)), filters.GreaterThan(("value",), 0)]
    assert list(reader.pushFilters(given)) == given[1:]
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert {row["user"] for row in rows} == {"user-7", "user-8"}


def test_options_that_are_wrong_are_named() -> None:
    with pytest.raises(InvalidRequest, match="option 'operator' is missing"):
        StateOptions.parse({"checkpoint": "/x"})
    whole = {"checkpoint": "/x", "operator": "o", "state": "s"}
    with pytest.raises(InvalidRequest, match="unknown option 'version'"):
        StateOptions.parse({**whole, "version": "1"})
    with pytest.raises(InvalidRequest, match="the number of a batch, found '-1'"):
        StateOptions.parse({**whole, "batch": "-1"})


def test_types_that_spark_has_not_are_widened_or_refused_by_column() -> None:
    schema = pa.schema([("a", pa.uint16()), ("b", pa.map_(pa.string(), pa.list_(pa.timestamp("ms", "UTC"))))])
    arrow, found = table_schema(schema)
    assert found.simpleString() == "struct<a:int,b:map<string,array<timestamp>>>"
    assert arrow.field("a").type == pa.int32()
    with pytest.raises(InvalidRequest, match=r"column 'c\.d' is of type duration"):
        table_schema(pa.schema([("c", pa.struct([("d", pa.duration("s"))]))]))
