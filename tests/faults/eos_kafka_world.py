"""Kafka in, Kafka out and files out, in one record; a real broker, in a process that outlives the program's runs."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow as pa
from tests.faults.eos_worlds import EVENTS, OUTPUT, Visible, read_files
from tests.faults.kafka_reader import TopicReader
from tests.faults.program import committed_batches
from tests.integration.kafka import kafka_world

import holdfast as hf
from holdfast.testing import KafkaBroker
from holdfast.testing.kafka_broker import read_running
from holdfast.testing.kafka_feed import Record, TransactionalFeed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_COLUMNS = tuple(column.split()[0] for column in OUTPUT.split(", "))
#: What a run of the program may take in a batch, and into how many tasks it cuts that; a file makes some 250 offsets.
_LIMITS = (190, 257, 300, 450)
_TASKS = (1, 4, 7)
#: Tombstones of one key come between the rows, whose keys are their own: all of them but the last are compacted away.
_COMPACTED = {"cleanup.policy": "compact", "segment.ms": "2000", "min.cleanable.dirty.ratio": "0.01"}
_TOMBSTONE_KEY = b"gone"
#: In aborted transactions: a row that is not of the input.
_ABORTED = json.dumps({"seq": -1, "file": -1, "user": "user0", "kind": "a"}).encode()
_SMALL_TRANSACTIONS = 12  # of a file; the rest of its rows come in one
_IN_PARTITIONS = 3
_OUT_PARTITIONS = 2


class KafkaWorld:
    """In come the rows of a user by one partition, in transactions, in a topic that is compacted. Out go two topics,
    each keyed, and a copy in files.
    """

    #: Output topics, and the column that each is keyed by.
    topics: Mapping[str, str] = {"by-kind": "kind", "by-user": "user"}

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = folder / "kafka"
        self._files = str(folder / "out")
        self._broker: KafkaBroker | None = None
        self._kafka: kafka_world.KafkaWorld | None = None
        self._input: TransactionalFeed | None = None
        self._readers: dict[str, TopicReader] = {}

    def open(self) -> None:
        self._broker = KafkaBroker(self._data, settings=self.broker_settings()).start()
        self._kafka = kafka_world.KafkaWorld(self._broker)
        self._kafka.topic(_IN_PARTITIONS, "events", **_COMPACTED)
        servers = self._broker.bootstrap_servers
        self._input = TransactionalFeed(
            servers, "events", "feed-of-events", decoy=_ABORTED, small_max=_SMALL_TRANSACTIONS
        )
        for topic in self.topics:
            self._kafka.topic(_OUT_PARTITIONS, topic)
            self._readers[topic] = TopicReader(self._broker.bootstrap_servers, topic)

    def broker_settings(self) -> dict[str, str]:
        """Lines for server.properties: what is to be compacted is compacted soon."""
        return {"log.cleaner.backoff.ms": "500", "log.initial.task.delay.ms": "500"}

    def close(self) -> None:
        if self._broker is not None:
            self._broker.close()

    @property
    def broker(self) -> KafkaBroker:
        """In the harness."""
        assert self._broker is not None, "open it first"
        return self._broker

    def feed(self, rows: pa.Table, file: int) -> None:
        assert self._input is not None, "open it first"
        records = [
            Record(json.dumps(row).encode(), str(row["seq"]).encode(), crc32(row["user"].encode()) % _IN_PARTITIONS)
            for row in rows.to_pylist()
        ]
        buried = [Record(None, _TOMBSTONE_KEY, partition) for partition in range(_IN_PARTITIONS)]
        self._input.send([*records, *buried])

    def events(self, spark: SparkSession) -> DataFrame:
        from pyspark.sql import functions as f

        hf.register_sources(spark)
        draw = random.Random(committed_batches(self._folder))  # other limits in each run
        records = (
            spark.readStream.format("holdfast-kafka")
            .option("kafka.bootstrap.servers", self._servers())
            .option("subscribe", "events")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", draw.choice(_LIMITS))
            .option("minPartitions", draw.choice(_TASKS))
            .load()
        )
        events = records.where("value IS NOT NULL")
        return events.select(f.from_json(f.col("value").cast("string"), EVENTS).alias("event")).select("event.*")

    def write(self, output: DataFrame, checkpoint: Path, trigger: Mapping[str, Any]) -> StreamingQuery:
        sinks = [
            hf.KafkaSink(self._servers(), topic, key=key, value=_COLUMNS, name=topic)
            for topic, key in self.topics.items()
        ]
        files = hf.FileSink(self._files)
        return hf.write_exactly_once(output, *sinks, files, checkpoint=checkpoint, trigger=trigger)

    def committed(self) -> list[Visible]:
        return [*self.seen_in_topics(), Visible(read_files(self._files))]

    def seen_in_topics(self) -> list[Visible]:
        """A batch's transactions end one by one, so a reader may see some of them."""
        found = []
        for topic, key in self.topics.items():
            records = self._readers[topic].records()
            rows = [json.loads(value) for _, _, _, value in records]
            assert all(key_ == row[key] for (_, _, key_, _), row in zip(records, rows)), f"{topic}: keys of other rows"
            found.append(Visible(rows, key, whole_batches=False))
        return found

    def _servers(self) -> str:
        running = read_running(self._data)
        assert running is not None, "no broker runs"
        return str(running["bootstrap_servers"])
