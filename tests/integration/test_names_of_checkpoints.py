"""A checkpoint in a folder of an odd name: what Holdfast calls it is the folder that Spark writes to."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.processors import TOTALS, RunningTotal
from tests.streams import FileStream

import holdfast as hf
from holdfast.spark import declared_operators

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

EVENTS = pa.table({"user": ["a", "b", "a"], "amount": [1, 2, 3]})
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
#: What a URI has a meaning for, and what Hadoop has in patterns of names.
ODD = "a%20b c#1?x:y[z]{0}*ä"


class Program:
    """A query whose checkpoint and state are in one folder."""

    def __init__(self, stream: FileStream, place: Path) -> None:
        self.stream, self.place = stream, place

    def frame(self, restore: hf.Restore | None = None) -> DataFrame:
        settings = {"checkpoint.dir": str(self.place / "state"), "slots": 1}
        keyed = hf.keyed("user", RunningTotal(), TOTALS, name="totals", settings=settings, restore=restore)
        return self.stream.events().transform(keyed)

    def run(self, spark: SparkSession, checkpoint: str, restore: hf.Restore | None = None) -> None:
        writer = self.frame(restore).writeStream.format("noop").trigger(availableNow=True)
        hf.start(writer, checkpoint=checkpoint, session=spark).awaitTermination()

    def run_exactly_once(self, checkpoint: str) -> None:
        out = hf.FileSink(str(self.place / "out"))
        hf.write_exactly_once(
            self.frame(), out, checkpoint=checkpoint, trigger={"availableNow": True}
        ).awaitTermination()


def committed(checkpoint: Path) -> list[str]:
    return sorted(name for name in os.listdir(checkpoint / "commits") if name.isdigit())


def totals(checkpoint: str | Path, **options: Any) -> dict[str, int]:
    with hf.Checkpoint(checkpoint, **options) as opened:
        rows = opened.read("totals", "total").read_all().to_pylist()
    return {row["user"]: row["value"] for row in rows}


def test_a_checkpoint_in_a_folder_of_an_odd_name_goes_on_in_that_folder(
    stream: FileStream,
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Those of other tests in this process may have had stores that are gone: each start looks there, and warns.
    monkeypatch.setattr(declared_operators, "_declared", type(declared_operators._declared)())
    caplog.set_level(logging.WARNING, "holdfast")
    place = tmp_path / "places" / ODD
    program = Program(stream, place)
    stream.write(EVENTS)
    for start in (lambda name: program.run(spark, name), program.run_exactly_once):
        with pytest.raises(hf.InvalidRequest, match="'%20' in it, which Spark does not decode"):
            start(f"file://{tmp_path}/places/a%20b")
    program.run(spark, str(place / "checkpoint"))
    program.run_exactly_once(str(place / "once"))
    stream.write(EVENTS)
    program.run(spark, os.path.relpath(place / "checkpoint"))
    program.run_exactly_once(os.path.relpath(place / "once"))
    program.run(spark, str(place / "next"), hf.Restore(place / "checkpoint"))
    assert caplog.messages == []
    assert os.listdir(tmp_path / "places") == [ODD]
    assert sorted(os.listdir(place)) == ["checkpoint", "next", "once", "out", "state"]
    for name in ("checkpoint", "once"):
        assert committed(place / name) == ["0", "1"]
        assert totals(place / name, state=place / "state") == {"a": 8, "b": 4}
    assert totals(place / "next", state=place / "state") == {"a": 16, "b": 8}


def test_state_that_only_spark_reads_is_told_to_be_read_by_another_name(
    stream: FileStream, spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's reader escapes the name, and looks into another folder."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    place = tmp_path / "a b"
    stream.write(EVENTS)
    Program(stream, place).run(spark, str(place / "checkpoint"))
    other = tmp_path / "a%20b"
    for _ in range(2):
        with pytest.raises(hf.Corrupt, match=f"looks for file:{other}/checkpoint, since it escapes"):
            totals(place / "checkpoint", state=place / "state", spark=spark)
        other.mkdir(exist_ok=True)
    (other / "checkpoint").mkdir()
    with pytest.raises(hf.Corrupt, match="a symbolic link to it$"):
        totals(place / "checkpoint", state=place / "state", spark=spark)
    (tmp_path / "link").symlink_to(place)
    assert totals(tmp_path / "link" / "checkpoint", state=place / "state", spark=spark) == {"a": 4, "b": 2}
