"""What every sink owes, whichever it is: holdfast.commit.sink says it in words.

A sink that joins brings a `Bench`: how to make it, and how to read what is visible from outside.
"""

from __future__ import annotations

import datetime as dt
import json
import pickle
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from tests.faults.file_reading import FolderReader, listed, named
from tests.kafka_reading import read_committed

from holdfast.commit.epochs import Driver
from holdfast.commit.sink import CommitLimits, Committable, Outcome, Scope, Sink, SinkTask, SinkWriter
from holdfast.errors import Fenced, Incompatible, InvalidRequest
from holdfast.sink.files import FileSink
from holdfast.sink.files import writer as writer_module
from holdfast.sink.kafka import KafkaSink
from holdfast.testing import KafkaBroker

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64())])
LIMITS = CommitLimits(trigger_ms=1_000, retry_max_ms=10_000, retry_backoff_ms=10)
QUERY = "0f0f0f0f-0000-4000-8000-000000000000"


class Bench(Protocol):
    """A sink under test."""

    def make(self) -> Sink:
        """The sink, anew: as another process would have it."""

    def visible(self) -> list[int]:
        """The values that a reader sees, sorted."""


class FileBench:
    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.path = str(request.getfixturevalue("tmp_path") / "out")

    def make(self) -> Sink:
        return FileSink(self.path)

    def visible(self) -> list[int]:
        """In whole batches, by the sink's own reader; and a stranger, who lists the folder, sees nothing else."""
        folder, files = Path(self.path), FileSink.files(self.path)
        assert listed(folder) == named(folder)
        found = sorted(FileSink.read(self.path)["value"].to_pylist()) if files else []
        if len(files) == len(listed(folder)):  # else a batch is not whole yet
            assert sorted(row["value"] for row in FolderReader(folder).rows()) == found
        return found


class KafkaBench:
    def __init__(self, request: pytest.FixtureRequest) -> None:
        broker: KafkaBroker = request.getfixturevalue("broker")
        self.servers = broker.bootstrap_servers
        self.topic = request.getfixturevalue("kafka").topic(partitions=2)

    def make(self) -> Sink:
        return KafkaSink(self.servers, self.topic, name=f"to-{self.topic}")

    def visible(self) -> list[int]:
        return sorted(int(value) for value in read_committed(self.servers, self.topic))


BENCHES: dict[str, Callable[[pytest.FixtureRequest], Bench]] = {"files": FileBench, "kafka": KafkaBench}


@pytest.fixture(params=["files", pytest.param("kafka", marks=pytest.mark.spark)])  # a broker is a JVM too
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = BENCHES[request.param](request)
    made.make().check(SCHEMA, LIMITS)
    yield made


class Anybody:
    """Claims of the sinks that a test has made, one for each epoch: a driver takes a sink over before all else."""

    def __init__(self) -> None:
        self.claims: dict[tuple[str, int], Mapping[str, Any]] = {}

    def scope(self, sink: Sink, epoch: int) -> Scope:
        scope = Scope(QUERY, f"run-{epoch}", epoch, sink.name)
        if (sink.name, epoch) not in self.claims:
            driver = Driver(scope.run_id, "host", 1, 0)
            # What is open stays: these tests prepare before they claim the next epoch.
            self.claims[sink.name, epoch] = sink.claim(scope, driver, tuple(self.kept), lambda traces: None)
        return replace(scope, claim=self.claims[sink.name, epoch])

    kept: list[Committable] = []


_drivers = Anybody()


@pytest.fixture(autouse=True)
def _new_drivers() -> None:
    _drivers.claims.clear()
    _drivers.kept.clear()


def scope(sink: Sink, epoch: int = 1) -> Scope:
    return _drivers.scope(sink, epoch)


def opened(
    sink: Sink, values: list[int], batch: int = 0, partition: int = 0, epoch: int = 1, attempt: int = 0
) -> SinkWriter:
    writer = sink.open(SinkTask(scope(sink, epoch), batch, partition, attempt, 100 * partition + attempt))
    for value in values:
        writer.write(rows([value]))
    return writer


def rows(values: list[int]) -> pa.RecordBatch:
    return pa.record_batch([pa.array([f"k{v}" for v in values]), pa.array(values, pa.int64())], schema=SCHEMA)


def prepared(bench: Bench, values: list[int], **task: int) -> Committable:
    found = opened(bench.make(), values, **task).prepare()
    assert found is not None
    _drivers.kept.append(found)
    return found


def test_it_is_a_sink(bench: Bench) -> None:
    sink = bench.make()
    assert isinstance(sink, Sink)
    assert isinstance(sink.open(SinkTask(scope(sink), 0, 0, 0, 0)), SinkWriter)
    again = pickle.loads(pickle.dumps(sink))
    assert (again.name, again.kind) == (sink.name, sink.kind)


def test_what_is_prepared_is_not_visible_until_it_is_committed(bench: Bench) -> None:
    one, two = prepared(bench, [1, 2], partition=0), prepared(bench, [3], partition=2)
    assert (one.rows, two.rows, one.partition, two.partition) == (2, 1, 0, 2)
    assert bench.visible() == []
    sink = bench.make()
    assert sink.commit(scope(sink), [one, two]) == [Outcome.DONE, Outcome.DONE]
    assert bench.visible() == [1, 2, 3]


def test_a_commit_may_be_repeated_by_anybody(bench: Bench) -> None:
    one, two = prepared(bench, [1], partition=0), prepared(bench, [2], partition=1)
    for epoch in (1, 1, 2):
        sink = bench.make()
        assert sink.commit(scope(sink, epoch), [one, two]) == [Outcome.DONE, Outcome.DONE]
    assert bench.visible() == [1, 2]


def test_an_abort_is_for_ever_and_may_be_repeated(bench: Bench) -> None:
    one = prepared(bench, [1])
    sink = bench.make()
    for _ in range(2):
        sink.abort(scope(sink), [one])
    assert sink.commit(scope(sink), [one]) == [Outcome.LOST]
    assert bench.visible() == []


def test_an_abort_after_the_commit_changes_nothing(bench: Bench) -> None:
    one = prepared(bench, [1])
    sink = bench.make()
    sink.commit(scope(sink), [one])
    sink.abort(scope(sink), [one])
    assert bench.visible() == [1]
    assert sink.commit(scope(sink), [one]) == [Outcome.DONE]


def test_nothing_written_is_nothing_to_commit(bench: Bench) -> None:
    sink = bench.make()
    assert opened(sink, []).prepare() is None
    writer = opened(sink, [], partition=1)
    writer.write(rows([]))
    assert writer.prepare() is None
    assert list(sink.commit(scope(sink), [])) == []


def test_a_writer_that_gives_up_leaves_nothing_visible(bench: Bench) -> None:
    writer = opened(bench.make(), [1])
    writer.abort()
    writer.abort()
    sink = bench.make()
    sink.recover(scope(sink), [])
    assert bench.visible() == []


def test_recovery_aborts_strays_and_keeps_what_it_is_told_to(bench: Bench) -> None:
    kept, stray = prepared(bench, [1], partition=0), prepared(bench, [2], partition=1)
    sink = bench.make()
    assert sink.recover(scope(sink, 2), [kept]) == 1
    assert sink.recover(scope(sink, 2), [kept]) == 0
    assert sink.commit(scope(sink, 2), [kept, stray]) == [Outcome.DONE, Outcome.LOST]
    assert bench.visible() in ([1], []), "a reader of whole batches may wait for the rest"


def test_what_was_lost_is_written_again(bench: Bench) -> None:
    kept, stray = prepared(bench, [1], partition=0), prepared(bench, [2], partition=1)
    sink = bench.make()
    sink.recover(scope(sink, 2), [kept])
    assert sink.commit(scope(sink, 2), [kept, stray]) == [Outcome.DONE, Outcome.LOST]
    again = prepared(bench, [2], partition=1, epoch=2)
    for _ in range(2):
        assert sink.commit(scope(sink, 2), [again]) == [Outcome.DONE]
    assert bench.visible() == [1, 2]


def test_a_writer_that_was_swept_away_makes_nothing_visible(bench: Bench) -> None:
    writer = opened(bench.make(), [1])
    sink = bench.make()
    sink.recover(scope(sink, 2), [])
    try:
        writer.write(rows([2]))
        late = writer.prepare()
    except Fenced:
        late = None
    assert late is None or sink.commit(scope(sink), [late]) == [Outcome.LOST]
    writer.abort()
    assert bench.visible() == []


def test_recovery_leaves_a_newer_driver_alone(bench: Bench) -> None:
    sink = bench.make()
    older = scope(sink, 1)
    newer = prepared(bench, [1], epoch=2)
    sink.recover(older, [])
    assert sink.commit(scope(sink, 2), [newer]) == [Outcome.DONE]
    assert bench.visible() == [1]


def test_a_process_that_dies_after_it_prepared_can_be_committed_by_another(bench: Bench, tmp_path: Path) -> None:
    sink = bench.make()
    given, found = tmp_path / "given", tmp_path / "found"
    given.write_bytes(pickle.dumps((sink, SinkTask(scope(sink), 0, 0, 0, 0), rows([1, 2]))))
    worker = Path(__file__).with_name("prepare_and_die.py")
    died = subprocess.run([sys.executable, str(worker), str(given), str(found)], timeout=120)
    assert died.returncode == -signal.SIGKILL
    committable = Committable(**json.loads(found.read_text()))
    _drivers.kept.append(committable)
    assert bench.visible() == []
    assert sink.commit(scope(sink, 2), [committable]) == [Outcome.DONE]
    assert bench.visible() == [1, 2]


def test_traces_show_who_wrote_and_change_nothing(bench: Bench) -> None:
    sink = bench.make()
    nobody = Scope(QUERY, "run-0", 0, sink.name)
    assert list(sink.traces(nobody, [])) == []
    one, two = prepared(bench, [1], batch=7), prepared(bench, [2], batch=8, partition=1)
    assert not any(trace.batch_id is not None for trace in sink.traces(nobody, [])), "nothing is visible yet"
    assert sink.commit(scope(sink), [one]) == [Outcome.DONE]
    sink.recover(scope(sink), [two])
    for _ in range(2):
        found = sink.traces(nobody, [])
        assert max(trace.batch_id for trace in found if trace.batch_id is not None) == 7
        assert {trace.epoch for trace in found if trace.epoch is not None} == {1}
        assert {trace.run_id for trace in found} <= {"run-1", None}
    assert sink.commit(scope(sink), [two]) == [Outcome.DONE], "a look aborts nothing"
    assert list(sink.traces(Scope(QUERY, "run-0", 0, "other"), [])) == []
    assert list(sink.traces(Scope(QUERY.replace("0f0f", "1f1f"), "run-0", 0, sink.name), [])) == []


def test_a_driver_that_must_not_be_leaves_no_trace(bench: Bench) -> None:
    sink = bench.make()
    one = prepared(bench, [1])
    assert sink.commit(scope(sink), [one]) == [Outcome.DONE]
    copy = Scope(QUERY, "copy", 1, sink.name)
    before = list(sink.traces(copy, []))

    def refuse(traces: object) -> None:
        raise Incompatible("a copy")

    with pytest.raises(Incompatible, match="a copy"):
        sink.claim(copy, Driver("copy", "host", 2, 0), [], refuse)
    assert list(sink.traces(copy, [])) == before


def test_what_was_committed_is_done_whoever_takes_its_name_over(bench: Bench) -> None:
    """RFC 4's last limit: a late task under the name of what is visible, swept by a driver that dies at once."""
    one = prepared(bench, [1], batch=2)
    sink = bench.make()
    assert sink.commit(scope(sink), [one]) == [Outcome.DONE]
    for epoch in (1, 2, 3):
        try:
            late = opened(bench.make(), [7], batch=4).prepare()
        except Fenced:
            late = None
        sink.recover(scope(sink, epoch), [one])
        assert sink.commit(scope(sink, epoch), [one]) == [Outcome.DONE]
        assert late is None or sink.commit(scope(sink, epoch), [late]) == [Outcome.LOST]
    assert bench.visible() == [1]


def test_attempts_at_one_partition_do_not_meet(bench: Bench) -> None:
    first, second = prepared(bench, [1], attempt=0), prepared(bench, [1], attempt=1)
    sink = bench.make()
    assert sink.commit(scope(sink), [second]) == [Outcome.DONE]
    sink.recover(scope(sink), [second])
    assert bench.visible() == [1]
    del first


def test_batches_follow_each_other(bench: Bench) -> None:
    sink = bench.make()
    for batch in range(5):
        one = prepared(bench, [batch], batch=batch)
        assert sink.commit(scope(sink), [one]) == [Outcome.DONE]
    assert bench.visible() == [0, 1, 2, 3, 4]


def test_two_queries_and_two_sinks_share_a_place(tmp_path: Path) -> None:
    """Files: Kafka's names are tried by its own tests."""
    path = str(tmp_path / "out")
    values = iter(range(100))
    for query in ("a", "b"):
        for name in ("one", "two"):
            sink = FileSink(path, name=name)
            here = Scope(query, "run", 1, name)
            sink.claim(here, Driver("run", "host", 1, 0), [], lambda traces: None)
            writer = sink.open(SinkTask(here, 0, 0, 0, 0))
            writer.write(rows([next(values)]))
            committable = writer.prepare()
            assert committable is not None
            assert sink.recover(Scope(query, "run", 1, "other"), []) == 0
            assert sink.commit(here, [committable]) == [Outcome.DONE]
    assert sorted(FileSink.read(path)["value"].to_pylist()) == [0, 1, 2, 3]


def test_a_schema_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be written as Parquet"):
        FileSink(str(tmp_path)).check(pa.schema([("x", pa.month_day_nano_interval())]), LIMITS)


def test_times_of_day_that_earlier_versions_wrote_are_read_with_those_of_today(tmp_path: Path) -> None:
    sink, found = FileSink(str(tmp_path)), []
    for batch, unit in enumerate(("ns", "us", "us")):
        time = pa.time64(unit)  # type: ignore[arg-type]
        kind = pa.struct([pa.field("at", time, nullable=False), pa.field("many", pa.list_(time))])
        at = [None, {"at": dt.time(batch, 0, 0, 1), "many": [dt.time(1), None]}]
        writer = opened(sink, [], batch=batch)
        writer.write(pa.record_batch([pa.array(at, kind), pa.array([dt.time(2), None], time)], names=["s", "at"]))
        committable = writer.prepare()
        assert committable is not None
        assert sink.commit(scope(sink), [committable]) == [Outcome.DONE]
        found += [{"s": row, "at": other} for row, other in zip(at, [dt.time(2), None])]
    table = FileSink.read(str(tmp_path))
    assert table.schema.field("at").type == pa.time64("ns")
    assert table.to_pylist() == found


def test_a_task_that_does_not_see_the_drivers_folder_is_told(tmp_path: Path) -> None:
    """A local disk of each machine: each batch was lost at the other side, and so was what was written again."""
    sink, of_executor = FileSink(str(tmp_path / "driver")), FileSink(str(tmp_path / "executor"))
    task = SinkTask(scope(sink), 0, 0, 0, 0)
    told = f"{tmp_path}/executor on host {socket.gethostname()} is not the folder that the driver has .* in a bucket"
    with pytest.raises(InvalidRequest, match=told):
        of_executor.open(task)
    shutil.copytree(tmp_path / "driver", tmp_path / "executor")
    of_executor.open(task)
    with pytest.raises(InvalidRequest, match=told):
        of_executor.open(SinkTask(scope(sink, 2), 0, 0, 0, 0))


def test_a_list_that_is_late_is_not_taken_for_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS gives what it listed some seconds ago; the driver of the next start is elsewhere."""
    sink = FileSink(str(tmp_path))
    tasks = [SinkTask(scope(sink, epoch), 0, 0, 0, epoch) for epoch in (1, 2)]
    monkeypatch.setattr(writer_module, "newest_fence", lambda *_: (1, 2))
    writer = sink.open(tasks[1])
    writer.write(rows([1]))
    committable = writer.prepare()
    assert committable is not None
    assert sink.commit(tasks[1].scope, [committable]) == [Outcome.DONE]


def test_a_folder_of_sparks_own_sink_is_refused(tmp_path: Path) -> None:
    """spark.read.parquet showed what that sink had written, and never a row of this one."""
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    (log / "0").write_text("v1")
    told = f"has written to {tmp_path}, and left .* Give another folder, or move _spark_metadata away"
    with pytest.raises(InvalidRequest, match=told):
        FileSink(str(tmp_path)).check(SCHEMA, LIMITS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_spark_metadata"]
    log.rename(tmp_path.parent / "moved")
    FileSink(str(tmp_path)).check(SCHEMA, LIMITS)


def test_a_struct_that_is_null_is_written_whatever_its_type_says_of_what_it_holds(tmp_path: Path) -> None:
    """Parquet's writer took the nulls below it for nulls of its field, which Spark says is never null: a query with
    named_struct, from_avro or a literal in a struct was stuck for ever.
    """
    kind = pa.struct([pa.field("id", pa.int64(), nullable=False)])
    schema = pa.schema([("one", kind), ("many", pa.list_(kind))])
    ids = pa.StructArray.from_arrays([pa.array([1, None, 3])], fields=list(kind), mask=pa.array([False, True, False]))
    many = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), ids, pa.list_(kind))
    sink = FileSink(str(tmp_path))
    sink.check(schema, LIMITS)
    writer = opened(sink, [])
    writer.write(pa.record_batch([ids, many], schema=schema))
    committable = writer.prepare()
    assert committable is not None
    assert sink.commit(scope(sink), [committable]) == [Outcome.DONE]
    found = FileSink.read(str(tmp_path))
    assert found.schema == schema
    assert found["one"].to_pylist() == [{"id": 1}, None, {"id": 3}]
    assert found["many"].to_pylist() == [[{"id": 1}, None], [], [{"id": 3}]]
    of_its_own = pa.StructArray.from_arrays([pa.array([None], pa.int64())], fields=list(kind))
    wrong = opened(sink, [], batch=1)
    with pytest.raises(InvalidRequest, match="'id' is declared non-nullable but contains nulls"):
        wrong.write(pa.record_batch([of_its_own], ["one"]))
    wrong.abort()
