"""Every snippet of the guide runs as it stands, page by page, and does what the page says.

A page's blocks run one after the other, as a reader would paste them. Given is what the page takes for granted: the
session, the reader's own DataFrames, and the processor of the first program. Only places are others: folders of a
test, and its broker. A query that would run for ever is stopped after its first batch.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.integration.kafka.kafka_world import KafkaWorld, values
from tests.kafka_reading import read_committed
from tests.processors import TOTALS, RunningTotal
from tests.repartitioned import ROCKSDB
from tests.spark_baskets import by_transform_with_state
from tests.spark_totals import by_spark
from tests.streams import FileStream, rows

import holdfast as hf
from holdfast.testing import Harness

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide"
AMOUNTS = pa.table({"user": ["ada", "bob", "bob"], "amount": [5, 4, -9]})
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
#: Pages that other tests run.
ELSEWHERE = {
    "first_program.md": "tests/tidy/test_docs.py: stands in examples/first_program.py, which tests/integration runs",
    "testing.md": "tests/unit/test_testing_guide.py",
    "checkpoints.md": "tests/unit/test_checkpoints_guide.py",
    "evolution.md": "tests/unit/test_evolution_guide.py",
}
#: Pages whose code is only compiled, and why.
COMPILED = {
    "security.md": "a cluster with certificates, a login and a file with its password; "
    "tests/integration/kafka/test_kafka_security_in_spark.py runs such a query, with the permissions of the page",
}


def blocks_of(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (GUIDE / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


class Reader:
    """Somebody who works through a page."""

    def __init__(self, spark: SparkSession, folder: Path, streams: Callable[[str], FileStream]) -> None:
        self.spark = spark
        self.folder = folder
        self.streams = streams
        self.broker = "broker:9092"  # none, unless the page's test has one

    def frame(self, name: str, *batches: pa.Table) -> DataFrame:
        """One of the reader's own DataFrames: a batch a table."""
        stream = self.streams(name)
        stream.write(*batches)
        return stream.events()

    def totals(self, *batches: pa.Table) -> DataFrame:
        """What the first program makes."""
        return self.frame("amounts", *batches).transform(hf.keyed("user", RunningTotal(), TOTALS, name="totals"))

    def reads(self, page: str, **given: Any) -> dict[str, Any]:
        """Runs all blocks of a page; gives what they leave."""
        names: dict[str, Any] = {"__name__": page.removesuffix(".md"), "spark": self.spark, **given}
        with ThreadPoolExecutor(1) as thread:
            for block in blocks_of(page):
                placed = re.sub(r'"/(?:data|tmp|backup)/', f'"{self.folder}/', block)
                placed = re.sub(r"\b(?:broker|127\.0\.0\.1):9092\b", self.broker, placed)
                at_work = thread.submit(exec, compile(placed, page, "exec"), names)
                while not at_work.done():
                    self._stop_after_a_batch(names.get("query"))
                    time.sleep(0.05)
                at_work.result()
        return names

    def writes(self, names: dict[str, Any]) -> None:
        """Waits until the page's query has written a batch, and stops it."""
        until = time.monotonic() + 120
        while names["query"].isActive and time.monotonic() < until:
            self._stop_after_a_batch(names["query"])
            time.sleep(0.05)
        assert names["query"].exception() is None
        assert names["query"].lastProgress.numInputRows > 0

    def rows_of(self, frame: DataFrame) -> list[dict[str, Any]]:
        """What a DataFrame of the page gives, over all that the sources have."""
        stream = self.streams(f"query-{time.monotonic_ns()}")
        query = stream.start(frame)
        hf.await_termination(query)
        return rows(table for _, table in sorted(stream.output.items()))

    def keeps_baskets(self) -> None:
        """A query of Spark's transformWithState, whose checkpoint the page reads."""
        stream = self.streams("baskets")
        stream.checkpoint = self.folder / "by-transform" / "checkpoint"
        row = {"shop": ["books"], "number": pa.array([1], pa.int32()), "product": ["atlas"]}
        stream.write(pa.table({**row, "size": pa.array([2], pa.int32()), "amount": [30]}))
        conf = {
            "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
            "spark.sql.streaming.noDataMicroBatches.enabled": "false",  # else it runs for ever
        }
        for name, value in conf.items():
            self.spark.conf.set(name, value)
        try:
            stream.run(by_transform_with_state)
        finally:
            for name in conf:
                self.spark.conf.unset(name)

    @staticmethod
    def _stop_after_a_batch(query: hf.Query | None) -> None:
        progress = query.lastProgress if query is not None else None
        if query is not None and progress is not None and progress.numInputRows > 0:
            query.stop()


@pytest.fixture
def reader(spark: SparkSession, tmp_path: Path, streams: Callable[[str], FileStream]) -> Reader:
    return Reader(spark, tmp_path, streams)


def test_every_page_with_code_is_run_or_says_why_not() -> None:
    pages = {page.name for page in GUIDE.glob("*.md") if blocks_of(page.name)}
    tests = {name.removeprefix("test_page_") + ".md" for name in globals() if name.startswith("test_page_")}
    assert pages == tests | ELSEWHERE.keys() | COMPILED.keys()
    assert not tests & (ELSEWHERE.keys() | COMPILED.keys())
    for page in COMPILED:
        for block in blocks_of(page):
            compile(block, page, "exec")


def test_page_command_line(reader: Reader, kafka: KafkaWorld) -> None:
    reader.broker = kafka.servers
    names = reader.reads("command_line.md")
    assert len(names["admin"].list_topics("clicks", 30).topics["clicks"].partitions) == 4
    kafka.delete_topic("clicks")


def test_page_environments(reader: Reader) -> None:
    session = reader.reads("environments.md")["spark"]
    assert session.conf.get("spark.holdfast.checkpoint.dir") == str(reader.folder / "notebook" / "state")


def test_page_errors(reader: Reader) -> None:
    left = reader.reads("errors.md", totals=reader.totals(AMOUNTS))
    assert not left["query"].isActive
    assert left["query"].exception() is None
    with Harness(left["Logged"](), "user", "user string, amount long", TOTALS) as harness:
        assert harness.process(AMOUNTS.to_pylist())["total"].to_pylist() == [5, 4, -5]


def test_page_exactly_once(reader: Reader) -> None:
    reader.reads("exactly_once.md", events=reader.frame("amounts", AMOUNTS), RunningTotal=RunningTotal)
    written = hf.FileSink.read(str(reader.folder / "totals"))
    assert sorted(zip(written["user"].to_pylist(), written["total"].to_pylist())) == [
        ("ada", 5),
        ("bob", -5),
        ("bob", 4),
    ]


def test_page_inputs(reader: Reader) -> None:
    names = reader.reads(
        "inputs.md",
        customers=reader.frame("customers", pa.table({"customer_id": [7], "customer": ["ada"]})),
        orders=reader.frame("orders", pa.table({"order_id": [1], "customer_id": [7]})),
        payments=reader.frame("payments", pa.table({"user": ["ada"] * 2, "shop": ["books"] * 2, "amount": [60, 50]})),
        rules=reader.frame("rules", pa.table({"shop": ["books"], "most": [100]})),
    )
    assert reader.rows_of(names["enriched"]) == [{"order_id": 1, "customer_id": 7, "customer": "ada"}]
    assert reader.rows_of(names["alerts"]) == [{"user": "ada", "shop": "books", "amount": 50, "spent": 110}]


def test_page_kafka_sink(reader: Reader, kafka: KafkaWorld) -> None:
    reader.broker = kafka.servers
    kafka.topic(name="totals")
    reader.writes(reader.reads("kafka_sink.md", totals=reader.totals(AMOUNTS)))
    written = [json.loads(value) for value in read_committed(kafka.servers, "totals")]
    kafka.delete_topic("totals")
    assert sorted(row["total"] for row in written) == [-5, 4, 5]


def test_page_kafka_source(reader: Reader, kafka: KafkaWorld) -> None:
    reader.broker = kafka.servers
    kafka.topic(name="clicks")
    kafka.produce("clicks", values(0, 3))
    found = reader.rows_of(reader.reads("kafka_source.md")["events"])
    kafka.delete_topic("clicks")
    assert [row["value"] for row in found] == values(0, 3)


def test_page_low_latency(reader: Reader) -> None:
    given = {"events": reader.frame("amounts", AMOUNTS), "RunningTotal": RunningTotal, "SCHEMA": TOTALS}
    reader.writes(reader.reads("low_latency.md", **given))


def test_page_metrics(reader: Reader, capsys: pytest.CaptureFixture[str]) -> None:
    reader.reads("metrics.md", events=reader.frame("amounts", AMOUNTS), checkpoint=reader.folder / "checkpoint")
    batch_id, counted, delta_bytes, refunded = capsys.readouterr().out.split()
    assert (batch_id, counted, refunded) == ("0", "3", "1")
    assert int(delta_bytes) > 0


def test_page_operators(reader: Reader) -> None:
    names = reader.reads("operators.md", events=reader.frame("amounts", AMOUNTS), RunningTotal=RunningTotal)
    again = names["totals"].select("user", "amount").transform(hf.keyed("user", RunningTotal(), TOTALS, name="again"))
    assert sorted(row["total"] for row in reader.rows_of(again)) == [-5, 4, 5], "two operators follow each other"


def test_page_rescale(reader: Reader) -> None:
    earlier = reader.totals(AMOUNTS).writeStream.format("noop").trigger(availableNow=True)
    hf.await_termination(hf.start(earlier, checkpoint=str(reader.folder / "old" / "checkpoint")))
    old = reader.folder / "old" / "checkpoint"
    hf.Savepoint.create(checkpoint=old, state=reader.folder / "state", to=reader.folder / "monday")
    by_others = reader.streams("others")
    by_others.checkpoint = reader.folder / "by-spark" / "checkpoint"
    by_others.write(AMOUNTS)
    by_others.run(by_spark)
    reader.keeps_baskets()
    given = {"RunningTotal": RunningTotal, "SCHEMA": TOTALS}
    names = reader.reads("rescale.md", events=reader.frame("later", AMOUNTS), **given)
    reader.writes(names)
    with hf.Checkpoint(reader.folder / "new" / "checkpoint", state=reader.folder / "state") as checkpoint:
        assert [operator.slots for operator in checkpoint.operators()] == [16]
        total = checkpoint.read("totals", "total").read_all().select(["user", "value"])
    assert sorted(total.to_pylist(), key=str) == [{"user": "ada", "value": 10}, {"user": "bob", "value": -10}]
    made = hf.Savepoint(reader.folder / "of-spark").read("totals", "total").read_all().select(["user", "value"])
    assert sorted(made.to_pylist(), key=str) == [{"user": "ada", "value": 5}, {"user": "bob", "value": -5}]
    assert {state: table.count() for state, table in names["tables"].items()} == dict.fromkeys(names["tables"], 1)
    assert names["tables"]["sold"].select("shop", "map_key", "value").first() == ("books", "atlas", 30)
    assert not names["changed"].plan(names["Totals"]).refused
    assert len(reader.rows_of(reader.frame("again", AMOUNTS).transform(names["operator"]))) == 3


def test_page_settings(reader: Reader) -> None:
    names = reader.reads("settings.md", RunningTotal=RunningTotal)
    frame = reader.frame("amounts", AMOUNTS)
    totals = hf.keyed("user", RunningTotal(), TOTALS, name="totals", settings=names["settings"])
    assert len(reader.rows_of(frame.transform(totals))) == 3


def test_page_side_outputs(reader: Reader, kafka: KafkaWorld) -> None:
    reader.broker = kafka.servers
    for topic in ("totals", "dead-letters"):
        kafka.topic(name=topic)
    timed = AMOUNTS.append_column("ts", pa.array([NOON] * 3))
    names = reader.reads("side_outputs.md", events=reader.frame("amounts", AMOUNTS))
    reader.writes(names)
    [letter] = read_committed(kafka.servers, "dead-letters")
    assert letter == b"below 0"
    assert len(read_committed(kafka.servers, "totals")) == 2
    for topic in ("totals", "dead-letters"):
        kafka.delete_topic(topic)
    writer = names["totals"].writeStream.foreachBatch(names["write"]).trigger(availableNow=True)
    hf.start(writer, checkpoint=reader.folder / "foreach").awaitTermination()
    assert reader.spark.read.parquet(str(reader.folder / "rejected")).count() == 1
    yesterday = AMOUNTS.append_column("ts", pa.array([NOON - timedelta(days=1)] * 3))
    late = reader.frame("timed", timed, yesterday, yesterday).transform(names["operator"])
    assert [row["late"]["user"] for row in reader.rows_of(late) if row["late"]] != []


def test_page_states(reader: Reader) -> None:
    names = reader.reads("states.md")
    seen = {"user": "ada", "at": NOON, "amount": 5}
    with Harness(names["Basket"](), "user", "user string, at timestamp, amount long",
                 "user string, at timestamp, amount long, spent long") as harness:  # fmt: skip
        assert harness.process([seen, seen])["spent"].to_pylist() == [5, 10]
    clicked = "user string, visits long, clicks long"
    with Harness(names["Sessions"](), "user", "user string, page string", clicked) as harness:
        assert harness.process([{"user": "ada", "page": "/"}])["clicks"].to_pylist() == [1]

    prices: Any = names["Prices"]

    class Mean(prices):
        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Any:
            yield batch.append_column("mean", self.mean.add(batch, batch["price"]))

    with Harness(Mean(), "shop", "shop string, price double", "shop string, price double, mean double") as harness:
        sold = [{"shop": "a", "price": price} for price in (2.0, 8.0)]
        assert harness.process(sold)["mean"].to_pylist() == pytest.approx([2.0, 4.0])
    assert {"Range", "Devices", "Judge"} <= names.keys()


def test_page_timers(reader: Reader) -> None:
    events = [pa.table({"user": [user], "ts": pa.array([NOON + timedelta(hours=hours)])})
              for user, hours in (("ada", 0), ("bob", 3), ("bob", 3.1), ("bob", 3.2))]  # fmt: skip
    alerts = reader.rows_of(reader.reads("timers.md", events=reader.frame("visits", *events))["alerts"])
    assert [row["user"] for row in alerts] == ["ada"]
    assert alerts[0]["silent_since"] == NOON
