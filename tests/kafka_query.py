"""A query from nowhere into Kafka, without Spark: committer, sink and tasks in this process, against a real broker.

It plays Spark: it numbers the batches, tries a failed task again, and starts the next run from the batch that it has
not committed. What happens at a step is on order: a broker that dies, a driver that is gone, a long pause. Each attempt
at a task writes a mark of its own beside its rows, so that a reader can tell whole attempts from parts.
"""

from __future__ import annotations

import copy
import itertools
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kafka_reading import read_messages, wait_until_stable

from holdfast.clock import Clock, SystemClock
from holdfast.commit import committer as committer_module
from holdfast.commit.batch import Replay, TaskResult
from holdfast.commit.committer import CommitOptions, Committer
from holdfast.commit.epochs import Driver
from holdfast.commit.record import CommitRecord
from holdfast.commit.record_log import RecordLog
from holdfast.commit.retries import Retries
from holdfast.commit.sink import CommitLimits, Committable, Scope, SinkTask, SinkWriter
from holdfast.errors import Fenced, HoldfastError, Unavailable
from holdfast.kafka.open_ends import look_into
from holdfast.kafka.transactional_ids import WITNESS_TOPIC, pattern_of
from holdfast.kafka.transactions import Transactions
from holdfast.sink.kafka import KafkaSink
from holdfast.sink.kafka import sink as sink_module
from holdfast.storage import FileStore, open_file_store

ROWS = 5
LIMITS = CommitLimits(trigger_ms=None, retry_max_ms=60_000, retry_backoff_ms=20)
TASK_FAILURES_MAX = 4  # Spark's own default
#: The steps of a batch, in their order: of its tasks, each partition by itself, and of the driver.
TASK_STEPS = ("before_open", "sink_mid", "sink_after_prepare")
DRIVER_STEPS = ("before_record", "after_record", "mid_commit", "after_commit")
#: What a run begins with: it finishes a record, looks for strays, and aborts them.
RECOVERY_STEPS = ("before_end", "before_listing", "before_fence", "during_recover")

_here = threading.local()


class Crash(BaseException):
    """The driver is gone, and its tasks with it."""


class TaskFailed(Exception):
    """Spark gives the job up."""


@dataclass
class KafkaQuery:
    """All that outlives a driver, and what is to happen to the next one.

    Attributes
    ----------
    store
        The checkpoint folder, as the driver sees it.
    committed
        Batches that Spark has committed.
    """

    servers: str
    topic: str
    folder: Path
    batches: int = 4
    partitions: int = 2
    options: dict[str, object] = field(default_factory=dict)
    witness_topic: str | None = WITNESS_TOPIC
    retry_max_ms: int = 60_000
    stays_up: bool = False  # when all batches are committed
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self.query_id = str(uuid.uuid4())
        self.store: FileStore = open_file_store(str(self.folder))
        self.sink = KafkaSink(
            self.servers, self.topic, partition_column="to", witness_topic=self.witness_topic, options=self.options
        )
        self.committed = 0
        self.batch = -1
        self.ends: list[BaseException | None] = []
        self.committer: Committer | None = None
        self._strikes: dict[tuple[str, int], Callable[[], object]] = {}
        self._task_attempts = itertools.count()

    def strike(self, step: str, action: Callable[[], object], batch: int = 1) -> None:
        """What happens when a batch first reaches a step."""
        self._strikes[step, batch] = action

    def reach(self, step: str) -> None:
        """At a step."""
        action = self._strikes.pop((step, self.batch), None)
        if action is not None:
            action()

    def crash(self) -> None:
        """kill -9 of the driver, and of its tasks: nobody sweeps up after them."""
        assert self.committer is not None
        self.committer._sinks.clear()
        raise Crash

    @property
    def scope(self) -> Scope:
        """This run's."""
        assert self.committer is not None
        return self.committer.scope(self.sink.name)

    def heir(self) -> KafkaQuery:
        """The same query on another machine that does not know of this driver."""
        other = copy.copy(self)
        other.ends, other._strikes = [], {}
        return other

    def start(self) -> BaseException | None:
        """One run of the driver, until all batches are committed; or what ended it."""
        before, _here.query = getattr(_here, "query", None), self
        retries = Retries(self.retry_max_ms, 20, self.clock)
        driver = Driver(str(uuid.uuid4()), "localhost", 1, self.clock.now_ms())
        committer = Committer(self.store, self.query_id, driver, [self.sink], CommitOptions(retries))
        self.committer = committer
        end: BaseException | None = None
        try:
            self.sink.check(self.rows(SinkTask(Scope("", "", 0, ""), 0, 0, 0, 0)).schema, LIMITS)
            while self.committed < self.batches:
                self._play(committer, self.committed)
        except (Crash, TaskFailed, HoldfastError) as error:
            end = error
        _here.query = before
        if not self.stays_up:
            committer.close()
        self.ends.append(end)
        return end

    def run_to_the_end(self, starts: int = 5) -> None:
        """Starts drivers until all is committed, as whoever operates the query would."""
        while (end := self.start()) is not None:
            assert isinstance(end, (Crash, TaskFailed, Unavailable)), repr(end)
            assert len(self.ends) < starts, self.ends

    def _play(self, committer: Committer, batch: int) -> None:
        self.batch = batch
        offsets, commits = self.folder / "offsets", self.folder / "commits"
        for folder in (offsets, commits):
            folder.mkdir(parents=True, exist_ok=True)
        (offsets / str(batch)).write_text(f"offsets of {batch}")

        def job(replay: Replay | None) -> list[TaskResult]:
            return [self._task(committer, replay, partition) for partition in range(self.partitions)]

        committer.run_batch(batch, job)
        if (commits / str(batch)).exists():
            raise Fenced("Spark sees that another driver has committed the batch")
        (commits / str(batch)).write_text("v1")
        self.committed = batch + 1

    def _task(self, committer: Committer, replay: Replay | None, partition: int) -> TaskResult:
        failures: list[Exception] = []
        for attempt in range(TASK_FAILURES_MAX):
            number = next(self._task_attempts)
            if replay is not None and not replay.writes(self.sink.name, partition):
                return TaskResult(partition, attempt, number, ROWS)
            task = SinkTask(committer.scope(self.sink.name), self.batch, partition, attempt, number)
            try:
                return TaskResult(partition, attempt, number, ROWS, {self.sink.name: self.write(task)})
            except Exception as error:
                failures.append(error)
                time.sleep(0.05)
        raise TaskFailed(failures)

    def write(self, task: SinkTask) -> Committable:
        """One attempt at a task."""
        self.reach("before_open")
        writer = self.sink.open(task)
        try:
            writer.write(self.rows(task))
            self.reach("sink_mid")
            prepared = writer.prepare()
        except Exception:
            writer.abort()
            raise
        self.reach("sink_after_prepare")
        assert prepared is not None
        return prepared

    def open(self, task: SinkTask) -> SinkWriter:
        """A writer with the rows of a task handed over."""
        writer = self.sink.open(task)
        writer.write(self.rows(task))
        return writer

    def rows(self, task: SinkTask) -> pa.RecordBatch:
        """The rows of a task, with the mark of this attempt."""
        mark = f"{task.scope.run_id}:{task.attempt}:{task.task_attempt_id}"
        values = [f"{task.batch_id} {task.partition} {index} {mark}" for index in range(ROWS)]
        return pa.RecordBatch.from_pydict(
            {"key": [None] * ROWS, "value": values, "to": [task.partition] * ROWS},
            schema=pa.schema([("key", pa.string()), ("value", pa.string()), ("to", pa.int32())]),
        )

    def records(self) -> list[CommitRecord]:
        """The newest revision of each batch's record."""
        log = RecordLog(open_file_store(str(self.folder)), self.query_id)
        log.load()
        return [record for batch in log.batches if (record := log.newest(batch)) is not None]

    def wait_until_aborted(self) -> None:
        """As long as a transaction is open in the topic: the broker ends it after its time."""
        wait_until_stable(self.servers, self.topic, within_s=120.0)

    def check(self) -> None:
        """A read_committed reader sees each row once, in order, and whole attempts only: those of the records. And all
        that was to happen has happened.
        """
        assert not self._strikes, f"nothing reached {sorted(self._strikes)}"
        messages = read_messages(self.servers, self.topic)  # all is committed, so nothing is waited for
        found = [(message.partition(), message.value().decode().split()) for message in messages]
        rows = [(partition, *map(int, told[:3])) for partition, told in found]
        wanted = [
            (partition, batch, partition, index)
            for partition in range(self.partitions)
            for batch in range(self.batches)
            for index in range(ROWS)
        ]
        assert rows == wanted, (Counter(rows) - Counter(wanted) or Counter(wanted) - Counter(rows), self.open_ends())
        marks = {(int(told[0]), partition): told[3] for partition, told in found}
        # Of each batch the newest revision, as docs/formats/commit_record.md says, without the code that wrote it. What
        # was torn while it was written has another name.
        files = sorted((self.folder / "holdfast" / self.query_id / "records").glob("[0-9]*.json"))
        newest = {path.name.split("-")[0]: json.loads(path.read_bytes()) for path in files}
        recorded = {
            (record["batch_id"], partition): f"{run_id}:{attempt}:{number}"
            for record in newest.values()
            for partition, run_id, attempt, number, _ in record["tasks"]
        }
        assert marks == recorded
        assert len(found) == ROWS * len({(told[0], partition, told[3]) for partition, told in found})
        self.check_nothing_is_open()

    def open_ends(self) -> list[object]:
        """What readers wait for: of the partitions' leaders, and of the coordinators."""
        known = Transactions({"bootstrap.servers": self.servers}, 30_000)

        async def ask() -> list[object]:
            return [*(await look_into(known.wire, await known.wire.leaders_of([self.topic]))).open_ends]

        names = [name for name, _ in known.listing(pattern_of(self.query_id))]
        return [*known.wire.call("tell", 30_000, ask), *known.describe(names)]

    def check_nothing_is_open(self) -> None:
        """No transaction is left that would stall readers: those that were aborted may still wait for their markers."""
        wait_until_stable(self.servers, self.topic)


def listen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product's own fault points call the query whose thread it is; so does each talk to the coordinators."""
    for module in (committer_module, sink_module):
        monkeypatch.setattr(module, "reach", _reach)
    for method in ("listing", "fence", "end"):
        monkeypatch.setattr(Transactions, method, _after_reach(f"before_{method}", getattr(Transactions, method)))


def _reach(step: str) -> None:
    query = getattr(_here, "query", None)
    if query is not None:
        query.reach(step)


def _after_reach(step: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def called(*arguments: Any, **named: Any) -> Any:
        _reach(step)
        return method(*arguments, **named)

    return called


def side_by_side(*actions: Callable[[], None]) -> None:
    """All of them at once; the first failure is raised when all have ended."""
    with ThreadPoolExecutor(len(actions)) as threads:
        running = [threads.submit(action) for action in actions]
    for one in running:
        one.result()


def crashes(ends: Sequence[BaseException | None]) -> int:
    """How many runs ended by a crash."""
    return sum(isinstance(end, Crash) for end in ends)
