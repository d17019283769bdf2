"""What is wrong is told at once and clearly: what was expected, what was found, and what to do."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.processors import Doubles, Greatest, OtherName, RunningTotal
from tests.spark_sessions import lose_local_folder
from tests.streams import FileStream, Transform

import holdfast as hf
from holdfast.checkpoint import OperatorRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

EVENTS = pa.table({"user": ["a", "b", "a"], "amount": [1, 2, 3], "region": ["eu", "us", "eu"]})
WITH_REGION = "user string, amount long, region string, total long"


def totals(key: Any = "user", processor: hf.BatchProcessor | None = None, **options: Any) -> Transform:
    return hf.keyed(key, processor or RunningTotal(), WITH_REGION, **{"name": "totals", **options})


def failure(stream: FileStream, transform: Transform) -> str:
    """What the query says when it fails, without the stack traces' line breaks."""
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException) as caught:
        stream.run(transform)
    return re.sub(r"\s+", " ", str(caught.value))


CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "slots": ({"settings": {"slots": 3}}, r"Incompatible: .*slots: recorded 2, declared 3 .*rescale"),
    "max parallelism": (
        {"settings": {"maxParallelism": 128}},
        r"Incompatible: .*max parallelism: recorded 4096, declared 128 .*recorded declaration",
    ),
    "key": (
        {"key": "region"},
        r"Incompatible: .*key columns: recorded \(user: string\), declared \(region: string\)",
    ),
    "null keys": ({"null_keys": True}, r"Incompatible: .*null keys: recorded False, declared True"),
    "state type": ({"processor": Doubles()}, r"Incompatible: .*state 'total': recorded .*int64.* declared .*double"),
    "state function": ({"processor": Greatest()}, r"Incompatible: .*state 'total': recorded .*sum.* declared .*max"),
    "another name": ({"processor": OtherName()}, r"Incompatible: .*state 'total': recorded .*declared none"),
}


def test_what_contradicts_the_checkpoint_is_refused(stream: FileStream) -> None:
    stream.write(EVENTS)
    stream.run(totals())
    stream.write(EVENTS)
    said = {what: failure(stream, totals(**changed)) for what, (changed, _) in CONTRADICTIONS.items()}
    wrong = {what for what, (_, expected) in CONTRADICTIONS.items() if not re.search(expected, said[what])}
    assert not wrong, {what: said[what] for what in wrong}
    # And nothing was harmed by the attempts.
    (output,) = stream.run(totals())
    assert sorted(output["total"].to_pylist()) == [4, 5, 8]


@pytest.mark.parametrize("older", [False, True], ids=["now", "recorded-before"])
def test_a_key_that_spark_knows_more_of_is_the_same_key(stream: FileStream, tmp_path: Path, older: bool) -> None:
    """Whether a field of it may be null follows from the rest of the plan: no restart could go on from there."""
    schema = "user struct<user string, region string>, amount long, total long"
    operator = hf.keyed("user", RunningTotal(), schema, name="totals", null_keys=True)
    without = EVENTS.set_column(2, "region", pa.nulls(3, pa.string()))

    def totals_by(key: str, events: pa.Table) -> list[int]:
        stream.write(events)
        (output,) = stream.run(lambda frame: frame.selectExpr(f"{key} AS user", "amount").transform(operator))
        return sorted(output["total"].to_pylist())

    filled = "struct(user, coalesce(region, '?') AS region)"
    assert totals_by(filled, EVENTS) == [1, 2, 4]
    if older:
        [path] = tmp_path.glob("state/**/operator.json")
        record = OperatorRecord.from_json(path.read_bytes())
        kind = pa.struct([pa.field("user", pa.string()), pa.field("region", pa.string(), False)])
        path.write_text(replace(record, key_schema=pa.schema([("user", kind)])).to_json())
    assert totals_by("struct(user, region)", EVENTS) == [4, 5, 8]
    assert totals_by(filled, EVENTS) == [6, 9, 12]
    assert totals_by("struct(user, region)", without) == [1, 2, 4]


def test_other_shuffle_partitions_are_no_contradiction(stream: FileStream, spark: SparkSession) -> None:
    stream.write(EVENTS)
    stream.run(totals())
    stream.write(EVENTS)
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    (output,) = stream.run(totals())
    assert sorted(output["total"].to_pylist()) == [4, 5, 8]


def test_two_operators_of_one_name(stream: FileStream, spark: SparkSession) -> None:
    stream.write(EVENTS)
    spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")

    def twice(frame: DataFrame) -> DataFrame:
        return frame.transform(totals()).drop("total").transform(totals())

    assert re.search(r"InvalidRequest: two operators of one query are both named 'totals'", failure(stream, twice))


def test_an_operator_that_stands_twice_in_a_query_is_refused_before_it_starts(
    stream: FileStream, spark: SparkSession, tmp_path: Path
) -> None:
    stream.write(EVENTS)
    spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
    frame = stream.events().transform(totals(name="two words"))
    twice = frame.where("amount > 1").union(frame.where("amount < 2"))
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(hf.InvalidRequest, match="write_exactly_once: operator 'two words' stands twice in the query"):
        hf.write_exactly_once(twice, hf.FileSink(str(tmp_path / "out")), checkpoint=checkpoint)
    assert not spark.catalog.listTables()
    assert not checkpoint.exists()
    beside = frame.union(stream.events().transform(totals(name="another")))
    sink = hf.FileSink(str(tmp_path / "out"))
    hf.write_exactly_once(beside, sink, checkpoint=checkpoint, trigger={"availableNow": True}).awaitTermination()
    assert hf.FileSink.read(str(tmp_path / "out")).num_rows == 2 * EVENTS.num_rows


def test_operators_that_changed_places_are_refused(stream: FileStream, spark: SparkSession) -> None:
    """Spark gives each what it has of the other, under labels of which the other has none: as if there were nothing."""
    spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")

    def both(*names: str) -> Transform:
        slots = {"first": 2, "second": 5}

        def apply(frame: DataFrame) -> DataFrame:
            a, b = (frame.transform(totals(name=name, settings={"slots": slots[name]})) for name in names)
            return a.union(b)

        return apply

    stream.write(EVENTS)
    stream.run(both("first", "second"))
    stream.write(EVENTS)
    said = failure(stream, both("second", "first"))
    assert re.search(r"Incompatible: operator '(first|second)', slot \d: Spark's state has no version", said), said
    (output,) = stream.run(both("first", "second"))
    assert sorted(output["total"].to_pylist()) == [4, 4, 5, 5, 8, 8]


def test_a_handle_whose_files_are_gone(stream: FileStream, tmp_path: Path) -> None:
    stream.write(EVENTS)
    stream.run(totals(settings={"memory.cache.max": 0}))  # so that no worker still has the state in memory
    lose_local_folder(tmp_path)
    for delta in (tmp_path / "state").rglob("delta/*"):
        delta.unlink()
    stream.write(EVENTS)
    said = failure(stream, totals(settings={"memory.cache.max": 0}))
    assert re.search(r"Corrupt: .*totals.*slot \d", said), said


def test_a_null_key(stream: FileStream) -> None:
    stream.write(pa.table({"user": ["a", None], "amount": [1, 2], "region": ["eu", "eu"]}))
    assert re.search(r"InvalidRequest: .*null", failure(stream, totals()))


def test_an_error_of_the_processor_names_slot_and_batch(stream: FileStream) -> None:
    class Failing(RunningTotal):
        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
            raise KeyError("what the user got wrong")

    stream.write(EVENTS)
    said = failure(stream, totals(processor=Failing()))
    assert "what the user got wrong" in said
    assert re.search(r"Failing ran operator 'totals', slot \d of 2, batch 0", said)


def test_state_outside_a_call() -> None:
    with pytest.raises(hf.InvalidRequest, match="used outside a call"):
        _ = RunningTotal().total.add


def test_no_checkpoint_folder(stream: FileStream, spark: SparkSession) -> None:
    stream.write(EVENTS)
    spark.conf.unset("spark.holdfast.checkpoint.dir")
    with pytest.raises(hf.InvalidRequest, match=r"nowhere to keep its state: set spark\.holdfast\.checkpoint\.dir"):
        stream.run(totals())


@pytest.mark.parametrize(
    "folder",
    ["s3://key:secret@bucket/x", "s3a:bucket/x", "dbfs:/x", "dbfs:x", "hdfs:/x", "hdfs://a@b", "~/x", "$HOME/x", " /x"],
)
def test_a_place_that_cannot_keep_state_is_refused_at_the_call(stream: FileStream, folder: str) -> None:
    stream.write(EVENTS)
    for setting in ("checkpoint.dir", "local.dir"):
        with pytest.raises(hf.InvalidRequest, match=rf"operator 'totals': spark\.holdfast\.{setting}: .*expected"):
            totals(settings={setting: folder})
    with pytest.raises(hf.InvalidRequest, match="FileSink: path: .*expected"):
        hf.FileSink(folder)
    with pytest.raises(hf.InvalidRequest, match="expected"):
        hf.write_exactly_once(stream.events(), hf.FileSink("out"), checkpoint=folder)
    if ":" not in folder:  # other schemes are Spark's to know
        with pytest.raises(hf.InvalidRequest, match="expected"):
            hf.start(stream.events().writeStream.format("noop"), checkpoint=folder)
    assert not stream.spark.streams.active


def test_an_unknown_setting(stream: FileStream, spark: SparkSession) -> None:
    stream.write(EVENTS)
    spark.conf.set("spark.holdfast.checkpoint.dri", "/tmp")
    try:
        with pytest.raises(hf.InvalidRequest, match=r"nearest is 'spark\.holdfast\.checkpoint\.dir'"):
            stream.run(totals())
    finally:
        spark.conf.unset("spark.holdfast.checkpoint.dri")


def test_a_dataframe_that_does_not_stream(stream: FileStream, spark: SparkSession) -> None:
    stream.write(EVENTS)
    with pytest.raises(hf.InvalidRequest, match="'totals': the DataFrame does not stream"):
        spark.read.parquet(str(stream.source)).transform(totals())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"name": ""}, "name is ''"),
        ({"name": " totals"}, "expected a printable name"),
        ({"name": "t" * 129}, "at most 128"),
        ({"name": "é" * 43}, "takes 258 characters as the name of a folder.*at most 255"),
        ({"name": None}, "name is None"),
        ({"output_mode": "complete"}, "output_mode is 'complete'"),
        ({"watermark": "ts"}, "watermark is 'ts'"),
        ({"processor": RunningTotal}, r"a class needs its \(\)"),
        ({"settings": {"snapshot.pause.min": "later"}}, r"snapshot\.pause\.min in settings=: .*not a duration"),
        ({"settings": {"slots": 65, "maxParallelism": 64}}, "65 slots need at least as many key groups"),
    ],
)
def test_a_wrong_call(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(hf.InvalidRequest, match=expected):
        totals(**options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"key": "usr"}, "key column 'usr' is not in the input, which has user, amount, region"),
        ({"key": []}, "key must be a column name"),
        ({"key": ["user", "user"]}, "'user' stands more than once"),
        ({"key": "tags"}, "'tags' has or holds type list.*cannot be a key"),
        ({"watermark": ("when", "1 minute")}, "watermark column 'when' is not in the input"),
        ({"watermark": ("amount", "1 minute")}, "'amount' is int64; expected a timestamp"),
        ({"watermark": ("at", "1 minute")}, r"'at' is a timestamp without a zone \(timestamp_ntz\); cast it: events"),
        ({"settings": {"slots": 4097}}, "4097 slots need at least as many key groups"),
    ],
)
def test_a_call_that_does_not_fit_the_input(stream: FileStream, options: dict[str, Any], expected: str) -> None:
    events = EVENTS.append_column("tags", pa.array([["x"], [], None]))
    stream.write(events.append_column("at", pa.array([None] * len(events), pa.timestamp("us"))))
    with pytest.raises(hf.InvalidRequest, match=expected):
        stream.run(totals(**options))


@pytest.mark.parametrize("key", ["user", "struct(user, amount)"])
def test_a_key_of_a_collation_is_refused_since_it_would_be_other_keys_than_sparks(stream: FileStream, key: str) -> None:
    stream.write(EVENTS)
    collated = stream.events().selectExpr("user collate UTF8_LCASE AS user", "amount", "region")
    with pytest.raises(hf.InvalidRequest, match=r"'key' has or holds type string collate UTF8_LCASE"):
        collated.selectExpr("*", f"{key} AS key").transform(totals("key"))


def test_a_column_of_a_collation_that_is_no_key(stream: FileStream) -> None:
    stream.write(EVENTS)
    binary = "user collate UTF8_LCASE collate UTF8_BINARY AS user"
    collated = stream.events().selectExpr(binary, "amount", "region collate UNICODE AS region")
    query = stream.start(collated.transform(totals()))
    query.awaitTermination()
    assert pa.concat_tables(stream.output.values()).num_rows == EVENTS.num_rows


def test_an_output_schema_that_is_none(stream: FileStream) -> None:
    stream.write(EVENTS)
    with pytest.raises(hf.InvalidRequest, match="is not a schema"):
        stream.run(hf.keyed("user", RunningTotal(), "user strin, total", name="totals"))


@pytest.mark.parametrize("rows", [1_000_000, 2_147_483_647])
def test_a_limit_of_arrow_rows_that_is_none(stream: FileStream, spark: SparkSession, rows: int) -> None:
    """Packed rows are padded with rows in proportion to the limit: a blob of 1 MiB with 64 million of them."""
    stream.write(EVENTS)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows))
    with pytest.raises(hf.InvalidRequest, match=f"maxRecordsPerBatch is {rows}; .*at most 100000.* 10000, its default"):
        stream.run(totals())


def test_no_limit_of_arrow_rows(stream: FileStream, spark: SparkSession) -> None:
    stream.write(EVENTS)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "0")
    with pytest.raises(hf.InvalidRequest, match="no limit"):
        stream.run(totals())
