"""Time to live in queries: by the batches' timestamps, by the watermark, through restarts and replays."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.streams import FileStream

import holdfast as hf
from holdfast.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

OUTPUT = "user string, n long"
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def rows(minute: float, *users: str) -> pa.Table:
    at = NOON + timedelta(minutes=minute)
    return pa.table({"user": list(users), "at": pa.array([at] * len(users), pa.timestamp("us", "UTC"))})


class ByBatch(hf.BatchProcessor):
    seen = hf.AggregatingState(pa.string(), "count", ttl=hf.TTL("10 min", time="event"))

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
        yield pa.record_batch({"user": batch["user"], "n": self.seen.add(batch, batch["user"])})


class ByKey(hf.KeyedProcessor):
    seen = hf.ListState(pa.int64(), ttl=hf.TTL("10 min", time="event"))

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Any:
        self.seen.add_all([ctx.batch_id] * rows.num_rows)
        yield {"user": key[0], "n": len(self.seen.get())}


class Brief(hf.BatchProcessor):
    brief = hf.AggregatingState(pa.string(), "count", ttl="1 ms")
    long = hf.AggregatingState(pa.string(), "count", ttl="1 d")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
        n = [10 * a + b for a, b in zip(self.long.add(batch, "x").to_pylist(), self.brief.add(batch, "x").to_pylist())]
        yield {"user": batch["user"].to_pylist()[0], "n": n[0]}


def counts(tables: list[pa.Table]) -> list[dict[str, int]]:
    return [{row["user"]: row["n"] for row in table.to_pylist()} for table in tables]


@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
@pytest.mark.parametrize("processor", [ByBatch, ByKey], ids=["batch", "key"])
def test_by_event_time(spark: SparkSession, tmp_path: Path, processor: Any, backend: str) -> None:
    settings = {"checkpoint.dir": str(tmp_path / "state"), "state.backend": backend, "slots": 2}
    apply = hf.keyed("user", processor(), OUTPUT, name="seen", watermark=("at", "0 seconds"), settings=settings)
    stream = FileStream(spark, tmp_path)
    # The watermark of a batch is the latest time of those before it.
    stream.write(rows(0, "a", "b"), rows(5, "a"), rows(10.5, "c"))
    assert counts(stream.run(apply)) == [{"a": 1, "b": 1}, {"a": 2}, {"c": 1}]
    stream.write(rows(10.6, "a", "b", "c"))
    last = {"a": 3 if processor is ByBatch else 2, "b": 1, "c": 2}  # the list's element of minute 0 went by itself
    assert counts(stream.run(apply)) == [last]
    stream.roll_back(1)
    assert counts(stream.run(apply)) == [last]
    # A batch that spans more event time than the TTL does not lose what it wrote itself.
    stream.write(pa.concat_tables([rows(20, "late"), rows(300, "late")]), rows(301, "late"))
    assert counts(stream.run(apply))[-1] == {"late": 3}


def test_by_the_batches_timestamps(spark: SparkSession, tmp_path: Path) -> None:
    apply = hf.keyed("user", Brief(), OUTPUT, name="brief", settings={"checkpoint.dir": str(tmp_path / "state")})
    stream = FileStream(spark, tmp_path)
    stream.write(rows(0, "a"), rows(0, "a"), rows(0, "a"))
    assert counts(stream.run(apply)) == [{"a": 11}, {"a": 21}, {"a": 31}]


def test_event_time_without_a_watermark_is_refused_on_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    stream = FileStream(spark, tmp_path)
    stream.write(rows(0, "a"))
    apply = hf.keyed("user", ByKey(), OUTPUT, name="seen", settings={"checkpoint.dir": str(tmp_path / "state")})
    with pytest.raises(InvalidRequest, match="'seen' goes by event time, and the DataFrame has no watermark"):
        stream.events().transform(apply)
