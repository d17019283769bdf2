"""eos: what exactly-once output to Kafka costs, against at-least-once output of the same query on the same broker.

Throughput: Spark makes rows and writes them, 100k a batch, in turns. Latency: Kafka in, Kafka out, few rows a batch, a
process beside it that produces and reads. The commit phase and the transactional ids: the committer and the sink over
10,000 batches without Spark; and the phase once more, as the committer of that query measures it.
"""

from __future__ import annotations

import logging
import statistics
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
from benchmarks.figures import (
    IN_TURNS,
    Goal,
    Measured,
    arguments,
    at_least,
    at_most,
    figure,
    in_turns,
    middle,
    percentile,
    ratio,
    spread,
)
from benchmarks.records import recorded
from benchmarks.stream.eos_probe import PARTITIONS, Pace, latencies
from benchmarks.stream.kafka_rivals import write_by_foreach_batch
from benchmarks.stream.workload import Batches, made_rows, start_session, watch
from benchmarks.turns import turns
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import holdfast as hf
from holdfast.commit.batch import Replay, TaskResult
from holdfast.commit.committer import CommitOptions, Committer, CommitTimes
from holdfast.commit.epochs import Driver
from holdfast.commit.retries import Retries
from holdfast.commit.sink import CommitLimits, SinkTask
from holdfast.kafka.transactional_ids import pattern_of
from holdfast.kafka.transactions import Transactions
from holdfast.storage import open_file_store
from holdfast.testing import KafkaBroker

Mode: TypeAlias = Literal["exactly-once", "at-least-once"]
MODES: tuple[Mode, Mode] = ("exactly-once", "at-least-once")
PLAIN = "none"  # neither transactions nor a header to tell repeats by
UNWITNESSED = "no witnesses"  # exactly-once, where nobody can tell after long what was committed
FOREACH_BATCH = "foreachBatch"  # Spark's own pattern: a producer in each task, and rows that are there twice
VALUE_BYTES = 100
TRIGGER = {"processingTime": "0 seconds"}


class CommitLog(logging.Handler):
    """The times of each commit, which the committer logs at level DEBUG."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.times: list[CommitTimes] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps what says times."""
        self.times += [one for one in record.args or () if isinstance(one, CommitTimes)]

    @classmethod
    @contextmanager
    def listening(cls) -> Iterator[CommitLog]:
        """To all committers of this process."""
        logger, log = logging.getLogger("holdfast.commit"), cls()
        before = logger.level
        logger.addHandler(log)
        logger.setLevel(logging.DEBUG)
        yield log
        logger.removeHandler(log)
        logger.setLevel(before)


def commit_phase(name: str, times: list[CommitTimes], note: str, goals: tuple[Goal | None, Goal | None]) -> None:
    """The figures of the record and the ends of the transactions together; each alone behind them."""
    ms = [one.record_ms + one.commit_ms for one in times]
    record, ends = (percentile(part, 50) for part in ([t.record_ms for t in times], [t.commit_ms for t in times]))
    note = f"{len(ms)} batches {note}, {PARTITIONS} transactions each; medians: record {record:.1f}, ends {ends:.1f}"
    for percent, goal in zip((50, 99), goals):
        figure(f"{name}_p{percent}_ms", percentile(ms, percent), goal, note, Measured.among(ms))


def new_topic(servers: str, retained_bytes: int = 64 << 20) -> str:
    """Of four partitions, that does not fill the disk: each keeps that much at least."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    config = {"retention.bytes": str(retained_bytes), "segment.bytes": str(32 << 20)}
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, PARTITIONS, 1, config=config)])[name].result(30)
    return name


def one_query(
    spark: SparkSession, servers: str, folder: Path, mode: str, rows: int, *, measured: int, warm_up: int
) -> Batches:
    """Rows that Spark makes, of a key and a value of 100 bytes, into a topic of four partitions by four tasks."""
    source = made_rows(spark, rows, "pmod(xxhash64(value), 200000)", partitions=PARTITIONS)
    frame = source.selectExpr(
        "CAST(key AS STRING) AS key", f"lpad(CAST(amount AS STRING), {VALUE_BYTES}, 'x') AS value"
    )
    topic, checkpoint = new_topic(servers), folder / f"checkpoint-{uuid.uuid4().hex}"
    query: Any
    if mode == FOREACH_BATCH:
        query = write_by_foreach_batch(frame, servers, topic, checkpoint, TRIGGER)
    else:
        how: dict[str, Any] = {"mode": MODES[0], "witness_topic": None} if mode == UNWITNESSED else {"mode": mode}
        query = hf.write_exactly_once(
            frame, hf.KafkaSink(servers, topic, **how), checkpoint=checkpoint, trigger=TRIGGER
        )
    batches = watch(query, rows, measured=measured, warm_up=warm_up)
    print(f"{rows:>9,} rows  {mode:<14} {spread(batches.rows_per_s)} rows/s, {spread(batches.ms, ' ms')}", flush=True)
    return batches


def throughput(spark: SparkSession, servers: str, folder: Path, rows: int, *, rounds: int, measured: int) -> None:
    """All modes in turns, each round the other way round; what counts of a round is its median."""

    def once(mode: str) -> float:
        found = one_query(spark, servers, folder, mode, rows, measured=measured, warm_up=max(1, measured // 3))
        return statistics.median(found.rows_per_s)

    rates = turns((*MODES, PLAIN, UNWITNESSED, FOREACH_BATCH), rounds, once)
    ours = rates[MODES[0]]
    ratio("eos.vs_alo", in_turns(ours, rates[MODES[1]]), at_least(0.85), f"{rows:,} rows a batch")
    ratio("eos.vs_foreach_batch", in_turns(ours, rates[FOREACH_BATCH]), note="an idempotent producer in each task")
    ratio("eos.vs_plain", in_turns(ours, rates[PLAIN]), at_least(0.85), "against mode none: no transaction, no header")
    ratio("eos.vs_unwitnessed", in_turns(ours, rates[UNWITNESSED]), at_least(0.95), "against witness_topic=None")
    middle("eos.rows_per_s", ours, how=IN_TURNS)


def latency(
    spark: SparkSession, servers: str, folder: Path, mode: Mode, pace: Pace
) -> tuple[list[float], list[CommitTimes]]:
    """Kafka in, Kafka out: milliseconds from due to visible, and what each batch's commit took."""
    source, target = new_topic(servers), new_topic(servers)
    frame = (
        spark.readStream.format("holdfast-kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
    )
    with CommitLog.listening() as log:
        query = hf.write_exactly_once(
            frame,
            hf.KafkaSink(servers, target, mode=mode),
            checkpoint=folder / f"checkpoint-{uuid.uuid4().hex}",
            trigger=TRIGGER,
        )
        ms = latencies(servers, source, target, pace)
        query.stop()
    _tell_batches(mode, query)
    return ms, log.times[min(10, len(log.times) // 2) :]


def _tell_batches(mode: str, query: StreamingQuery) -> None:
    """How long the second half of the batches took, and which parts of them."""
    batches: Any = [one for one in query.recentProgress if one.numInputRows]
    batches = batches[len(batches) // 2 :]
    names = ("triggerExecution", "latestOffset", "walCommit", "addBatch", "commitOffsets")
    parts = [f"{name} {spread([float(one.durationMs.get(name, 0)) for one in batches])}" for name in names]
    print(f"{mode:<14} {len(batches)} batches, ms: {', '.join(parts)}", flush=True)


def small_batches(spark: SparkSession, servers: str, folder: Path, pace: Pace) -> None:
    """With and without transactions."""
    for mode, infix in zip(MODES, ("", "_alo")):
        ms, times = latency(spark, servers, folder, mode, pace)
        note = f"{len(ms)} rows, {pace.per_s} a second, as fast as batches come"
        for percent in (50, 99):
            figure(f"eos.e2e{infix}_p{percent}_ms", percentile(ms, percent), None, note, Measured.among(ms))
        if mode == MODES[0]:
            commit_phase("eos.commit_in_query", times, "of that query", (None, None))


class Committing:
    """The committer and the sink without Spark: four writers in threads, then the commit."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._sink = hf.KafkaSink(servers, new_topic(servers))
        self._offsets = folder / "offsets"
        self._offsets.mkdir(parents=True)
        self._query_id = str(uuid.uuid4())
        self._known = Transactions({"bootstrap.servers": servers}, 60_000)
        driver = Driver("run", "localhost", 1, 0)
        options = CommitOptions(Retries(120_000, 100))
        self._committer = Committer(open_file_store(str(folder)), self._query_id, driver, [self._sink], options)
        self._threads = ThreadPoolExecutor(PARTITIONS)
        self._sink.check(pa.schema([("key", pa.string()), ("value", pa.string())]), CommitLimits(None, 120_000, 100))
        self._rows = pa.RecordBatch.from_pydict({"key": ["key"] * 10, "value": ["x" * VALUE_BYTES] * 10})

    def batch(self, number: int) -> CommitTimes:
        """One batch; what its commit took."""
        (self._offsets / str(number)).write_text(f"offsets of {number}")

        def write(partition: int) -> TaskResult:
            scope = self._committer.scope(self._sink.name)
            writer = self._sink.open(SinkTask(scope, number, partition, 0, PARTITIONS * number + partition))
            writer.write(self._rows)
            one = writer.prepare()
            assert one is not None
            return TaskResult(partition, 0, PARTITIONS * number + partition, one.rows, {self._sink.name: one})

        def job(_: Replay | None) -> list[TaskResult]:
            return list(self._threads.map(write, range(PARTITIONS)))

        self._committer.run_batch(number, job)
        return self._committer.times

    def ids(self) -> int:
        """Transactional ids of this query that the broker knows, in any state."""
        return len(self._known.listing(pattern_of(self._query_id)))


def many_batches(servers: str, folder: Path, batches: int) -> None:
    """Ids in use after 100, 1,000, … batches, and the commit phase where nothing else runs."""
    committing = Committing(servers, folder / "committing")
    seen: dict[int, int] = {}
    times: list[CommitTimes] = []
    started = time.monotonic()
    for number in range(batches):
        times.append(committing.batch(number))
        if number + 1 in (100, 1000, batches):
            seen[number + 1] = committing.ids()
    took_ms = (time.monotonic() - started) / batches * 1000
    told = ", ".join(f"{ids} after {count:,}" for count, ids in seen.items())
    figure("eos.transactional_ids", max(seen.values()), at_most(2 * PARTITIONS), f"{told} batches")
    note = f"without Spark ({took_ms:.0f} ms a batch)"
    commit_phase("eos.commit", times[10:], note, (at_most(30), at_most(150)))


def main() -> None:
    """All of it, or one part."""
    parser = arguments(__doc__, rows=100_000, rounds=6, measured=12, seconds=150, batches=10_000)
    parser.add_argument("--only", choices=["throughput", "latency", "ids"], help="one part")
    given = parser.parse_args()
    pace = Pace(given.seconds * 25, warm_up_s=60, per_s=25)
    rows, rounds, measured, batches = given.rows, given.rounds, given.measured, given.batches
    if given.short:
        rows, rounds, measured, batches, pace = 20_000, 1, 3, 120, Pace(100, warm_up_s=2, per_s=25)
    with recorded(given) as folder, KafkaBroker(folder / "broker", heap="1g") as broker:
        servers = broker.bootstrap_servers
        if given.only in (None, "ids"):
            many_batches(servers, folder, batches)
        if given.only == "ids":
            return
        spark = start_session(folder, spark__master=f"local[{PARTITIONS}]", spark__ui__showConsoleProgress="false")
        hf.register_sources(spark)
        if given.only in (None, "throughput"):
            throughput(spark, servers, folder, rows, rounds=rounds, measured=measured)
        if given.only in (None, "latency"):
            small_batches(spark, servers, folder, pace)
        spark.stop()


if __name__ == "__main__":
    main()
