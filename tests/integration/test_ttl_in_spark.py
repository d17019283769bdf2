"""Time to live in queries: by the batches' timestamps, by the watermark, through restarts and replays."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.processors import BriefAndLong, RecentByBatch, RecentByKey
from tests.streams import FileStream

import holdfast as hf
from holdfast.errors import InvalidRequest
from holdfast.spark import declared_operators

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

OUTPUT = "user string, n long"
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def rows(minute: float, *users: str) -> pa.Table:
    at = NOON + timedelta(minutes=minute)
    return pa.table({"user": list(users), "at": pa.array([at] * len(users), pa.timestamp("us", "UTC"))})


def counts(tables: list[pa.Table]) -> list[dict[str, int]]:
    return [{row["user"]: row["n"] for row in table.to_pylist()} for table in tables]


@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
@pytest.mark.parametrize("processor", [RecentByBatch, RecentByKey], ids=["batch", "key"])
def test_by_event_time(spark: SparkSession, tmp_path: Path, processor: Any, backend: str) -> None:
    settings = {"checkpoint.dir": str(tmp_path / "state"), "state.backend": backend, "slots": 2}
    apply = hf.keyed("user", processor(), OUTPUT, name="seen", watermark=("at", "0 seconds"), settings=settings)
    stream = FileStream(spark, tmp_path)
    # The watermark of a batch is the latest time of those before it.
    stream.write(rows(0, "a", "b"), rows(5, "a"), rows(10.5, "c"))
    assert counts(stream.run(apply)) == [{"a": 1, "b": 1}, {"a": 2}, {"c": 1}]
    stream.write(rows(10.6, "a", "b", "c"))
    # The list's element of minute 0 went by itself.
    last = {"a": 3 if processor is RecentByBatch else 2, "b": 1, "c": 2}
    assert counts(stream.run(apply)) == [last]
    stream.roll_back(1)
    assert counts(stream.run(apply)) == [last]
    # A batch that spans more event time than the TTL does not lose what it wrote itself.
    stream.write(pa.concat_tables([rows(20, "late"), rows(300, "late")]), rows(301, "late"))
    assert counts(stream.run(apply))[-1] == {"late": 3}


def test_by_the_batches_timestamps(spark: SparkSession, tmp_path: Path) -> None:
    apply = hf.keyed("user", BriefAndLong(), OUTPUT, name="brief", settings={"checkpoint.dir": str(tmp_path / "state")})
    stream = FileStream(spark, tmp_path)
    stream.write(rows(0, "a"), rows(0, "a"), rows(0, "a"))
    assert counts(stream.run(apply)) == [{"a": 11}, {"a": 21}, {"a": 31}]


def test_event_time_without_a_watermark_is_refused_on_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    stream = FileStream(spark, tmp_path)
    stream.write(rows(0, "a"))
    apply = hf.keyed("user", RecentByKey(), OUTPUT, name="seen", settings={"checkpoint.dir": str(tmp_path / "state")})
    with pytest.raises(InvalidRequest, match="'seen' goes by event time, and no input has a watermark"):
        stream.events().transform(apply)


def counting(ttl: str) -> hf.BatchProcessor:
    class Counting(hf.BatchProcessor):
        seen = hf.AggregatingState(pa.string(), "count", ttl=ttl)

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
            yield {"user": batch["user"].to_pylist()[0], "n": self.seen.add(batch, "x").to_pylist()[0]}

    return Counting()


class Unwritable(hf.FileSink):
    def check(self, *given: Any) -> None:
        raise InvalidRequest("nothing can be written there")


def test_a_start_that_is_refused_notes_no_ttl(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers and savepoints of the query that still runs went by the refused program's."""
    settings = {"checkpoint.dir": str(tmp_path / "state")}

    def events(ttl: str) -> Any:
        apply = hf.keyed("user", counting(ttl), OUTPUT, name="counting", settings=settings)
        return stream.events().transform(apply)

    def notes() -> list[str]:
        return sorted(path.name for path in (tmp_path / "state").rglob("ttls/*.json"))

    stream = FileStream(spark, tmp_path)
    stream.write(rows(0, "a"))
    running = stream.start(events("7 d"), processingTime="1 second")
    try:
        running.processAllAvailable()
        assert notes() == ["00001.json"]
        monkeypatch.setattr(declared_operators, "_declared", {})  # as in a program of its own
        short = events("1 h")
        with pytest.raises(InvalidRequest, match="nothing can be written there"):
            hf.write_exactly_once(short, Unwritable(str(tmp_path / "out")), checkpoint=stream.checkpoint)
        spark.conf.set("spark.sql.streaming.stopActiveRunOnRestart", "false")
        with pytest.raises(Exception, match=r"(?i)already active|concurrent"):
            hf.start(short.writeStream.format("noop"), checkpoint=stream.checkpoint, session=spark)
        assert notes() == ["00001.json"]
    finally:
        spark.conf.unset("spark.sql.streaming.stopActiveRunOnRestart")
        running.stop()
    query = hf.start(short.writeStream.format("noop"), checkpoint=stream.checkpoint, session=spark)
    query.stop()
    assert notes() == ["00001.json", "00002.json"]
