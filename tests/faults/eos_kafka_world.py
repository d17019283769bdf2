"""Kafka in, Kafka out and files out, in one record; a real broker, in a process that outlives the program's runs."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow as pa
from confluent_kafka.admin import NewTopic
from tests.faults.eos_oracle import Visible
from tests.faults.eos_worlds import EVENTS, OUTPUT
from tests.faults.file_reading import FolderReader
from tests.faults.kafka_reader import TopicReader
from tests.faults.program import committed_batches
from tests.faults.strikes import Outage
from tests.integration.kafka import kafka_world
from tests.kafka_reading import unstable

import holdfast as hf
from holdfast.testing import KafkaBroker, KafkaCluster
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

    #: Of every topic.
    replication = 1

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = FolderReader(folder / "out")
        self._rows: dict[str, list[dict[str, Any]]] = {topic: [] for topic in self.topics}
        self._brokers: KafkaBroker | KafkaCluster | None = None
        self._kafka: kafka_world.KafkaWorld | None = None
        self._input: TransactionalFeed | None = None
        self._readers: dict[str, TopicReader] = {}

    def open(self) -> None:
        self._brokers = self.start_brokers()
        (self._folder / "servers").write_text(self._brokers.bootstrap_servers)
        self._kafka = kafka_world.KafkaWorld(self._brokers)
        self.create_topic("events", _IN_PARTITIONS, _COMPACTED)
        self._input = TransactionalFeed(
            self._servers(), "events", "feed-of-events", decoy=_ABORTED, small_max=_SMALL_TRANSACTIONS
        )
        for topic in self.topics:
            self.create_topic(topic, _OUT_PARTITIONS)
            self._readers[topic] = TopicReader(self._brokers.bootstrap_servers, topic)

    def start_brokers(self) -> KafkaBroker | KafkaCluster:
        """What the campaign runs against."""
        return KafkaBroker(self._folder / "kafka", settings=self.broker_settings()).start()

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] = MappingProxyType({})) -> None:
        """And waits until it can be used."""
        assert self._kafka is not None
        wanted = NewTopic(name, partitions, self.replication, config={"retention.ms": "-1", **config})
        self._kafka.admin.create_topics([wanted])[name].result(120)
        kafka_world.eventually(lambda: not unstable(self._servers(), name))

    def broker_settings(self) -> dict[str, str]:
        """Lines for server.properties. What idles is cut off, and what is to be compacted is, as in the long nights of
        a production cluster, only sooner.
        """
        return {
            "connections.max.idle.ms": "5000",
            "log.cleaner.backoff.ms": "500",
            "log.initial.task.delay.ms": "500",
        }

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        if self._brokers is not None:
            self._brokers.close()

    @property
    def broker(self) -> KafkaBroker:
        """In the harness."""
        assert isinstance(self._brokers, KafkaBroker), "open it first"
        return self._brokers

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
        files = hf.FileSink(str(self._folder / "out"))
        return hf.write_exactly_once(output, *sinks, files, checkpoint=checkpoint, trigger=trigger)

    def committed(self) -> list[Visible]:
        return [*self.seen_in_topics(), Visible(self._files.rows())]

    def seen_in_topics(self) -> list[Visible]:
        """A batch's transactions end one by one, so a reader may see some of them."""
        for topic, key in self.topics.items():
            rows = self._rows[topic]
            for _, _, key_, value in self._readers[topic].records()[len(rows) :]:
                rows.append(json.loads(value))
                assert key_ == rows[-1][key], f"{topic}: the key {key_} of another row: {rows[-1]}"
        return [Visible(self._rows[topic], key) for topic, key in self.topics.items()]

    def outage(self) -> Outage | None:
        """kill -9, and back again soon."""
        return BrokerOut(self.broker, 0.5, asleep=False)

    def _servers(self) -> str:
        return (self._folder / "servers").read_text()


class BrokerOut:
    """A broker that is dead, or asleep, for a while: clients of one that sleeps get no answer and no reset."""

    def __init__(self, broker: KafkaBroker, seconds: float, *, asleep: bool) -> None:
        self.seconds = seconds
        self._broker = broker
        self._asleep = asleep

    def begin(self) -> list[int]:
        gone = self._broker.pid
        if self._asleep:
            os.kill(gone, signal.SIGSTOP)
        else:
            self._broker.kill()
        return [gone]

    def end(self) -> None:
        if self._asleep:
            os.kill(self._broker.pid, signal.SIGCONT)
        else:
            self._broker.start()
