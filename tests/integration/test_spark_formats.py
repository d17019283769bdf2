"""Formats that newer releases of Spark write where a setting says so: names of sources, and of state files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.integration.test_exactly_once import Output
from tests.processors import TOTALS, RunningTotal
from tests.repartitioned import ROCKSDB
from tests.spark_sessions import SPARK_RELEASE
from tests.streams import FileStream
from tests.timer_processors import ALERTS, SilentUsers

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
_SOURCE_NAMES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


def test_state_files_with_names_of_their_attempts_are_read_by_a_session_that_knows_nothing_of_them(
    stream: FileStream, spark: SparkSession, tmp_path: Path
) -> None:
    plain = spark.newSession()  # as the command line's
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
    output = Output(stream, tmp_path)
    for amount in (1, 10):
        stream.write(pa.table({"user": ["ada", "bob"], "amount": [amount, amount]}))
        output.run(output.totals())
    assert list(stream.checkpoint.rglob("state/0/0/2_*.changelog"))
    with hf.Checkpoint(stream.checkpoint, state=tmp_path / "state", spark=plain) as opened:
        rows = opened.read("totals", "total", batch_id=0).read_all()
        assert sorted(rows["value"].to_pylist()) == [1, 1]
        assert sorted(opened.read("totals", "total").read_all()["value"].to_pylist()) == [11, 11]


@pytest.mark.skipif(SPARK_RELEASE < (4, 2), reason="sources have names from Spark 4.2 on")
def test_a_session_that_wants_names_of_all_sources(stream: FileStream, spark: SparkSession, tmp_path: Path) -> None:
    """Of ticks too, which the program does not see."""
    stream.write(pa.table({"user": ["ada", "bob"], "amount": [1, 2]}))
    schema = spark.read.parquet(str(stream.source)).schema
    spark.conf.set(_SOURCE_NAMES, "true")
    events = spark.readStream.name("people").schema(schema).parquet(str(stream.source))
    output = Output(stream, tmp_path)
    output.run(events.transform(hf.keyed("user", RunningTotal(), TOTALS, name="totals")))
    assert (stream.checkpoint / "offsets/0").read_text().startswith("v2\n")
    plan = hf.Restore(stream.checkpoint, state_dir=tmp_path / "state").plan()
    assert [str(source)[0] for source in plan.sources] == ["{"]
    silent = hf.keyed("user", SilentUsers(), ALERTS, name="silent", watermark=("ts", "0 seconds"), ticks="1 second")
    timed = events.selectExpr("user", "current_timestamp() AS ts").transform(silent)
    checkpoint = tmp_path / "timed"
    hf.start(timed.writeStream.format("noop").trigger(availableNow=True), checkpoint=checkpoint).awaitTermination()
    assert "holdfast_ticks_" in (checkpoint / "offsets/0").read_text()
