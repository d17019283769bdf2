"""Operators that begin with the state of an earlier query, whose first batches have no rows for them: Spark then runs
no task that could take the state over.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.integration.test_rescale import expected, some, totals
from tests.streams import FileStream

import holdfast as hf
from holdfast.inspect.savepoint import Format

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Streams = Callable[[str], FileStream]


@pytest.fixture(autouse=True)
def several_operators(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")


class Pair:
    """A query over two streams of files, of which the second has none at first."""

    def __init__(self, streams: Streams, name: str) -> None:
        self.first, self.second = streams(f"{name}-first"), streams(f"{name}-second")

    @property
    def checkpoint(self) -> Path:
        return self.first.checkpoint

    def events(self) -> tuple[DataFrame, DataFrame]:
        first = self.first.events()
        reader = self.first.spark.readStream.schema(first.schema).option("maxFilesPerTrigger", 1)
        return first, reader.parquet(str(self.second.source))

    def run(self, frame: DataFrame, start: str = "hf") -> list[pa.Table]:
        """Until all files are read; gives the output of each batch."""
        found: list[pa.Table] = []
        writer = (
            frame.writeStream.foreachBatch(lambda batch, batch_id: found.append(batch.toArrow()))
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
        )
        query = hf.start(writer, checkpoint=self.checkpoint) if start == "hf" else writer.start()
        hf.await_termination(query)
        return found


def test_restore_may_be_left_out_once_the_query_has_started(streams: Streams, tmp_path: Path) -> None:
    """Its first batch had no rows for the operator, and left no word of what that begins with: it began with nothing,
    without a word.
    """
    batches = some(22, 4)
    old, new = streams("old"), Pair(streams, "new")
    old.write(*batches[:2])
    old.run(totals(2))
    new.first.write(batches[2])
    for options in ({"restore": hf.Restore(old.checkpoint)}, {}):
        beside, events = new.events()
        frame = beside.selectExpr("user", "amount", "0L AS total").union(events.transform(totals(3, **options)))
        query = hf.write_exactly_once(
            frame, hf.FileSink(str(tmp_path / "out")), checkpoint=new.checkpoint, trigger={"availableNow": True}
        )
        query.awaitTermination()
        if options:
            new.second.write(batches[3])
    rows = [tuple(row) for row in new.first.spark.read.parquet(str(tmp_path / "out")).collect() if row["total"]]
    assert sorted(rows) == [row for row in expected([*batches[:2], batches[3]])[2] if row[2]]


@pytest.mark.parametrize("start", ["hf", "spark"])
def test_a_savepoint_leaves_out_no_operator_that_has_not_begun(streams: Streams, tmp_path: Path, start: str) -> None:
    """What comes after it would begin without the operator's state."""
    batches = some(23, 4)
    old, new, next_one = Pair(streams, "old"), Pair(streams, "new"), Pair(streams, "next")

    def both(pair: Pair, slots: int, restore: hf.Restore | None = None) -> DataFrame:
        a, b = pair.events()
        one = a.transform(totals(slots, name="a", restore=restore))
        return one.union(b.transform(totals(slots, name="b", restore=restore)))

    for stream in (old.first, old.second, new.first):
        stream.write(batches[0])
    old.run(both(old, 2))
    new.run(both(new, 3, hf.Restore(old.checkpoint)), start)
    source: dict[str, Any] = {"checkpoint": new.checkpoint, "state": tmp_path / "state"}
    formats: tuple[Format, ...] = ("canonical", "native")
    for format in formats:
        with pytest.raises(hf.Incompatible, match="'b' .*begins with .*until a batch with rows of it is committed"):
            hf.Savepoint.create(**source, to=tmp_path / format, format=format)
    next_one.first.write(batches[1])
    with pytest.raises(hf.Incompatible, match="'b' .*begins with .*until a batch with rows of it is committed"):
        both(next_one, 2, hf.Restore(new.checkpoint))
    new.second.write(batches[1])
    new.run(both(new, 3, hf.Restore(old.checkpoint)), start)
    saved = hf.Savepoint.create(**source, to=tmp_path / "whole")
    assert [operator.name for operator in saved.manifest.operators] == ["a", "b"]
    assert hf.Restore(new.checkpoint, state_dir=tmp_path / "state").operators() == ("a", "b")
