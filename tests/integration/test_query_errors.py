"""Errors of a query reach the caller as what they are: of their own class, once, in a few lines; what needs no data
before the query starts.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.processors import TOTALS, Doubles, Greatest, KilledEachTime, Mispriced, OtherName, RunningTotal, WithoutTotal
from tests.streams import FileStream

import holdfast as hf
from holdfast.spark import declared_operators
from holdfast.spark import query as query_module
from holdfast.spark_files.stale_snapshots import forget_stale_snapshots
from holdfast.storage import FileStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

EVENTS = pa.table({"user": ["a", "b", "a"], "amount": [1, 2, 3]})


class Stream:
    """Queries over one folder of files."""

    def __init__(self, files: FileStream, folder: Path) -> None:
        self.files = files
        self.out = str(folder / "out")

    def totals(self, processor: hf.BatchProcessor | None = None, key: str = "user", **options: Any) -> DataFrame:
        given = {"name": "totals", **options}
        return self.files.events().transform(hf.keyed(key, processor or RunningTotal(), TOTALS, **given))

    def noop(self, frame: DataFrame) -> hf.Query:
        """Into one of Spark's sinks; what contradicts the checkpoint is found by the workers."""
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        return hf.start(writer.option("checkpointLocation", str(self.files.checkpoint)))

    def exactly_once(self, frame: DataFrame) -> hf.Query:
        sink = hf.FileSink(self.out)
        return hf.write_exactly_once(frame, sink, checkpoint=self.files.checkpoint, trigger={"availableNow": True})


@pytest.fixture
def queries(stream: FileStream, tmp_path: Path) -> Stream:
    stream.write(EVENTS)
    return Stream(stream, tmp_path)


@pytest.fixture
def new_program(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Forgets what this process has declared, as its end would."""

    def forget() -> None:
        monkeypatch.setattr(declared_operators, "_declared", type(declared_operators._declared)())

    return forget


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"settings": {"slots": 3}}, r"slots: recorded 2, declared 3"),
    ({"key": "amount"}, r"key columns: recorded \(user: string\), declared \(amount: int64\)"),
    ({"null_keys": True}, "null keys: recorded False, declared True"),
    ({"processor": Doubles()}, "state 'total': recorded .*int64.* declared .*double"),
    ({"processor": Greatest()}, "state 'total': recorded .*sum.* declared .*max"),
    ({"processor": OtherName()}, "state 'total': recorded .*declared none"),
]


def test_what_contradicts_the_checkpoint_is_refused_before_the_query_starts(queries: Stream, new_program: Any) -> None:
    checkpoint = queries.files.checkpoint
    queries.noop(queries.totals()).awaitTermination()
    queries.files.write(EVENTS)
    for change, told in CHANGES:
        new_program()
        frame = queries.totals(**change)
        with pytest.raises(hf.Incompatible, match=told):
            hf.start(frame.writeStream.format("noop"), checkpoint=checkpoint)
        with pytest.raises(hf.Incompatible, match=told):
            queries.exactly_once(frame)
    assert queries.files.committed() == [0]
    assert not queries.files.spark.streams.active
    # A declaration that agrees may be meant as well: then nothing is refused here.
    writer = queries.totals().writeStream.format("noop").trigger(availableNow=True)
    assert hf.start(writer, checkpoint=checkpoint).awaitTermination(60) is True
    assert queries.files.committed() == [0, 1]


@pytest.mark.parametrize("given", [False, True], ids=["default", "given"])
def test_a_query_that_a_thread_starts_goes_by_the_settings_of_a_session(
    queries: Stream, spark: SparkSession, given: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A thread has no active session: Spark's snapshots of what does not count were left as they were, silently. Those
    of another session, the program's first, may be of another number of retained batches.
    """
    seen: list[tuple[int, bool]] = []

    def looked(store: FileStore, retained: int, changelogs: bool) -> list[str]:
        seen.append((retained, changelogs))
        return forget_stale_snapshots(store, retained, changelogs)

    monkeypatch.setattr(query_module, "forget_stale_snapshots", looked)
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "7")
    frame = queries.totals()
    writer = frame.writeStream.format("noop").trigger(availableNow=True)
    options: dict[str, Any] = {"session": frame.sparkSession} if given else {}
    started: list[hf.Query] = []
    thread = threading.Thread(
        target=lambda: started.append(hf.start(writer, checkpoint=queries.files.checkpoint, **options))
    )
    thread.start()
    thread.join(60)
    assert started[0].awaitTermination(60) is True
    assert seen == [(7 if given else 0, False)]
    said = [record.getMessage() for record in caplog.records if "no Spark session is active" in record.getMessage()]
    assert bool(said) is not given
    with pytest.raises(hf.InvalidRequest, match=r"start: session is 'spark'; expected a SparkSession"):
        hf.start(writer, checkpoint=queries.files.checkpoint, session="spark")  # type: ignore[arg-type]


def test_what_only_the_workers_find_is_raised_as_what_it_is(queries: Stream) -> None:
    queries.noop(queries.totals()).awaitTermination()
    queries.files.write(EVENTS)
    with pytest.raises(hf.Incompatible, match="state 'total': recorded .*sum.* declared .*max") as caught:
        queries.noop(queries.totals(Greatest())).awaitTermination()
    assert str(caught.value).startswith("operator 'totals' is not what ")
    assert len(str(caught.value).splitlines()) == 2
    assert caught.value.__suppress_context__
    assert type(caught.value.__context__).__name__ == "StreamingQueryException"
    with pytest.raises(hf.Incompatible, match="declared .*max"):
        queries.noop(queries.totals(Greatest())).processAllAvailable()


@pytest.mark.parametrize("setting", ["hideTraceback", "tracebackWithLocals"])
@pytest.mark.parametrize("way", ["noop", "exactly_once"])
def test_an_error_keeps_its_class_however_spark_tells_tracebacks(
    queries: Stream, spark: SparkSession, new_program: Any, way: str, setting: str
) -> None:
    queries.noop(queries.totals()).awaitTermination()
    queries.files.write(pa.table({"user": ["a", None], "amount": [1, 2]}))
    spark.conf.set(f"spark.sql.execution.pyspark.udf.{setting}.enabled", "true")
    with pytest.raises(hf.InvalidRequest, match=r"^key column 'user' is null at row \d+; filter") as caught:
        getattr(queries, way)(queries.totals()).awaitTermination()
    assert len(str(caught.value).splitlines()) <= 2
    assert "SQLSTATE" not in str(caught.value)
    assert type(caught.value.__context__).__name__ == "StreamingQueryException"


@pytest.mark.parametrize("way", ["noop", "exactly_once"])
def test_a_worker_that_is_killed_each_time_is_unavailable(queries: Stream, way: str) -> None:
    with pytest.raises(hf.Unavailable, match="^a Python worker of Spark's ended in the middle of a task"):
        getattr(queries, way)(queries.totals(KilledEachTime())).awaitTermination()


def test_a_query_that_was_started_by_spark(queries: Stream) -> None:
    queries.files.write(pa.table({"user": ["a", None], "amount": [1, 2]}))
    query = queries.files.start(queries.totals())
    with pytest.raises(hf.InvalidRequest, match="null") as caught:
        hf.await_termination(query)
    assert len(str(caught.value).splitlines()) <= 3
    with pytest.raises(hf.InvalidRequest, match="null"):
        hf.await_termination(query, timeout=60)


@pytest.mark.parametrize("way", ["noop", "exactly_once"])
def test_an_error_of_a_processor_is_told_once_with_the_line_that_raised_it(queries: Stream, way: str) -> None:
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException) as caught:
        getattr(queries, way)(queries.totals(Mispriced())).awaitTermination()
    told = str(caught.value)
    assert told.count("KeyError: 'what the user got wrong'") == 1
    assert 'return prices["what the user got wrong"]' in told
    assert "while Mispriced ran operator 'totals', slot " in told
    assert "holdfast/" not in told.replace(str(Path(__file__).parents[2]), "")
    assert len(told.splitlines()) <= 6, told


@pytest.mark.parametrize("way", ["noop", "exactly_once"])
def test_output_that_lacks_a_column_names_it_and_the_operator(
    queries: Stream, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "holdfast.spark"):
        with pytest.raises(
            hf.InvalidRequest, match=r"^output column 'total' is missing: .*\n.*operator 'totals', slot"
        ):
            getattr(queries, way)(queries.totals(WithoutTotal())).awaitTermination()
    assert any("STREAM_FAILED" in record.getMessage() for record in caplog.records), "all of it is in the log"


def test_a_timeout_passes(queries: Stream) -> None:
    query = hf.start(queries.totals().writeStream.format("noop"), checkpoint=queries.files.checkpoint)
    assert query.awaitTermination(0.1) is False
    query.stop()
    assert query.awaitTermination(60) is True
    with pytest.raises(hf.InvalidRequest, match="seconds above 0"):
        query.awaitTermination(0)
    with pytest.raises(hf.InvalidRequest, match="expected a DataFrame's writeStream"):
        hf.start(queries.totals())  # type: ignore[arg-type]
