"""load: how long a row takes from Kafka through a running sum into Kafka, at 25, 50, 75 and 90 % of what goes through.

An open loop (load_probe.py). Capacity is what Holdfast brings through from a topic that is full. Then each way gets the
same rows a second, a part of that; all by the same source, the same sink and the same transactions. What is read at the
other end are probes: the sums of all other keys stop before the sink, so that the sink is not what is measured.
"""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.figures import (
    ONE_AFTER_THE_OTHER,
    Measured,
    Series,
    arguments,
    at_most,
    figure,
    percentile,
)
from benchmarks.records import recorded
from benchmarks.stream.eos import new_topic
from benchmarks.stream.eos_probe import PARTITIONS
from benchmarks.stream.load_probe import ROWS_A_MESSAGE, Load, Seen, fill, under_load
from benchmarks.stream.rivals import FAST, SLUGS
from benchmarks.stream.ways import OURS, Way
from benchmarks.stream.workload import configured, start_session
from pyspark.sql import DataFrame, SparkSession

import holdfast as hf
from holdfast.testing import KafkaBroker

PARTS = (25, 50, 75, 90)
PERCENTS = {"p50": 50.0, "p99": 99.0, "p999": 99.9}
RIVALS = ("Spark SQL, RocksDB tuned", "Spark SQL, in memory")
WAYS: Mapping[str, Way] = {"holdfast": OURS["holdfast"], **{name: FAST[name] for name in RIVALS}}


class Queries:
    """From topic to topic, by each way."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path, given: argparse.Namespace) -> None:
        self._spark, self._servers, self._folder, self._given = spark, servers, folder, given

    def capacity(self) -> float:
        """Rows a second that Holdfast brings through, of a topic that was full before."""
        given, source = self._given, new_topic(self._servers, 4 << 30)
        fill(self._servers, source, given.rows * given.batches, given.keys)
        with configured(self._spark, WAYS["holdfast"].conf):
            query = self._start("holdfast", source, new_topic(self._servers), given.rows // ROWS_A_MESSAGE)
            query.processAllAvailable()
            query.stop()
        batches: list[Any] = [one for one in query.recentProgress if one.numInputRows]
        batches = batches[len(batches) // 3 :]
        messages = sum(one.numInputRows for one in batches)
        return messages * ROWS_A_MESSAGE / sum(one.durationMs["triggerExecution"] for one in batches) * 1000

    def latency(self, way: str, load: Load) -> Seen:
        """One query, from its start until all was seen."""
        source, target = new_topic(self._servers, 4 << 30), new_topic(self._servers)
        with configured(self._spark, WAYS[way].conf):
            query = self._start(way, source, target, None)
            seen = under_load(self._servers, source, target, load)
            query.stop()
        told = ", ".join(f"{name} {percentile(seen.ms, percent):,.0f}" for name, percent in PERCENTS.items())
        batches = [one.durationMs["triggerExecution"] for one in query.recentProgress if one.numInputRows]
        late = f"the producer at most {seen.producer_late_ms:.0f} ms late"
        print(f"{load.rows_per_s:>9,} rows/s  {way:<26} ms: {told}; {len(batches)} batches; {late}", flush=True)
        return seen

    def _start(self, way: str, source: str, target: str, messages_a_batch: int | None) -> Any:
        reader = (
            self._spark.readStream.format("holdfast-kafka")
            .option("kafka.bootstrap.servers", self._servers)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
        )
        if messages_a_batch is not None:
            reader = reader.option("maxOffsetsPerTrigger", messages_a_batch)
        return hf.write_exactly_once(
            _probes(WAYS[way].build(_rows(reader.load()))),
            hf.KafkaSink(self._servers, target, key=None),
            checkpoint=self._folder / f"checkpoint-{uuid.uuid4().hex}",
            trigger={"processingTime": "0 seconds"},
            output_mode=WAYS[way].output_mode,
        )


def _rows(messages: DataFrame) -> DataFrame:
    """(key long, amount long), which stand in a message one after the other, big-endian."""
    each = messages.selectExpr("value", "explode(sequence(0, length(value) DIV 16 - 1)) AS at")
    number = "CAST(conv(hex(substring(value, at * 16 + {}, 8)), 16, -10) AS LONG)"
    return each.selectExpr(f"{number.format(1)} AS key", f"{number.format(9)} AS amount")


def _probes(totals: DataFrame) -> DataFrame:
    return totals.filter("key < 0").selectExpr("CAST(concat(key, ' ', total) AS BINARY) AS value")


def measure(queries: Queries, given: argparse.Namespace) -> None:
    """Capacity first, then its parts, each with all ways."""
    capacity = queries.capacity()
    figure("load.capacity_rows_per_s", capacity, note=f"batches of {given.rows:,} rows out of a full topic")
    for part in PARTS[1:2] if given.short else PARTS:
        load = Load(int(capacity * part / 100), given.keys, given.warm_up, given.seconds)
        found = {way: queries.latency(way, load).ms for way in WAYS}
        ours = found["holdfast"]
        note = f"{load.rows_per_s:,} rows/s, {len(ours)} probes"
        for name, percent in PERCENTS.items():
            figure(f"load.{part}.{name}_ms", percentile(ours, percent), None, note, Measured.among(ours))
            for rival in RIVALS:
                theirs = percentile(found[rival], percent)
                goal = at_most(1) if name == "p99" else None
                both = {"ours": Series.of(ours), "theirs": Series.of(found[rival])}
                figure(
                    f"load.{part}.{name}_vs_{SLUGS[rival]}",
                    percentile(ours, percent) / theirs,
                    goal,
                    f"{theirs:,.0f} ms there",
                    Measured(both, how=ONE_AFTER_THE_OTHER),
                )


def main() -> None:
    """All parts of the capacity."""
    parser = arguments(__doc__, rows=500_000, keys=200_000, batches=12, warm_up=20.0, seconds=60.0)
    given = parser.parse_args()
    if given.short:
        given.rows, given.keys, given.batches, given.warm_up, given.seconds = 20_000, 2_000, 4, 4.0, 4.0
    with recorded(given) as folder, KafkaBroker(folder / "broker", heap="1g") as broker:
        spark = start_session(folder, spark__master=f"local[{PARTITIONS}]")
        hf.register_sources(spark)
        measure(Queries(spark, broker.bootstrap_servers, folder, given), given)
        spark.stop()


if __name__ == "__main__":
    main()
