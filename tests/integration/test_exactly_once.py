"""Output that is visible exactly once, with real Spark and real files: restarts, rollbacks, retries, refusals."""

from __future__ import annotations

import json
import os
import signal
from contextlib import contextmanager
from datetime import time
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark_types
from pyspark.sql.streaming.listener import StreamingQueryListener
from tests.faults.file_reading import listed, named
from tests.integration.test_totals import events, expected
from tests.lossy_sink import LossyFileSink
from tests.processors import TOTALS, FailingOnce, RunningTotal
from tests.random_numbers import NUMBERS, RandomNumbers
from tests.silent_sink import SilentFileSink
from tests.spark_sessions import run_module
from tests.streams import FileStream

import holdfast as hf
from holdfast.checkpoint import Runs
from holdfast.commit.record import CommitRecord
from holdfast.sealed import unseal
from holdfast.spark import write
from holdfast.spark.registration import register_runs
from holdfast.spark.sessions import fixed_tasks
from holdfast.storage import LocalFileStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark


class Output:
    """A stream whose output goes to files, exactly once."""

    def __init__(self, stream: FileStream, folder: Path) -> None:
        self.stream = stream
        self.path = str(folder / "out")

    def start(self, frame: DataFrame, *sinks: Any, **options: Any) -> StreamingQuery:
        given = {"checkpoint": self.stream.checkpoint, "trigger": {"availableNow": True}, **options}
        return hf.write_exactly_once(frame, *(sinks or (hf.FileSink(self.path),)), **given)

    def run(self, frame: DataFrame, *sinks: Any, **options: Any) -> None:
        self.start(frame, *sinks, **options).awaitTermination()

    def totals(self, **options: Any) -> DataFrame:
        return self.stream.events().transform(hf.keyed("user", RunningTotal(), TOTALS, name="totals", **options))

    def rows(self) -> pa.Table:
        """In whole batches. Who lists the folder has no file beside those that the manifests name."""
        assert listed(Path(self.path)) == named(Path(self.path))
        return hf.FileSink.read(self.path)

    def staged(self) -> list[Path]:
        return [path for path in Path(self.path, "_staging").rglob("*") if path.is_file()]

    def records(self) -> list[CommitRecord]:
        folder = next((self.stream.checkpoint / "holdfast").glob("*/records"))
        return [CommitRecord.from_text(path.read_bytes(), str(path)) for path in sorted(folder.iterdir())]


@pytest.fixture
def output(stream: FileStream, tmp_path: Path) -> Output:
    return Output(stream, tmp_path)


def flat(batches: list[pa.Table]) -> list[tuple[str, int, int]]:
    return sorted((user, *pair) for batch in expected(batches) for user, pairs in batch.items() for pair in pairs)


def found(table: pa.Table) -> list[tuple[str, int, int]]:
    return sorted((row["user"], row["amount"], row["total"]) for row in table.to_pylist())


def test_batches_and_restarts(output: Output) -> None:
    batches = [events(seed) for seed in range(4)]
    output.stream.write(*batches[:2])
    output.run(output.totals())
    assert found(output.rows()) == flat(batches[:2])
    output.stream.write(*batches[2:])
    output.run(output.totals())
    assert found(output.rows()) == flat(batches)
    assert [record.batch_id for record in output.records()] == [0, 1, 2, 3]
    assert [record.epoch for record in output.records()] == [1, 1, 2, 2]
    assert not output.staged()


def test_the_sinks_tasks_unpack_what_an_operator_gives(output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    """And where anything is done to it on the way, a Python run of its own does: the same rows."""
    batches = [events(7)]
    output.stream.write(*batches)
    query = output.start(output.totals())
    query.awaitTermination()
    query.explain()
    plan = capsys.readouterr().out
    assert "MapInArrow pack(" in plan
    assert "MapInArrow unpack(" not in plan
    assert found(output.rows()) == flat(batches)


def test_what_is_changed_behind_an_operator_is_written_as_changed(output: Output) -> None:
    batches = [events(7)]
    output.stream.write(*batches)
    output.run(output.totals().selectExpr("upper(user) AS user", "amount", "total + 1 AS total"))
    assert found(output.rows()) == sorted((user.upper(), amount, total + 1) for user, amount, total in flat(batches))


def test_a_stateless_query_and_several_sinks(output: Output, spark: SparkSession, tmp_path: Path) -> None:
    batches = [events(seed) for seed in range(2)]
    output.stream.write(*batches)
    sinks = [hf.FileSink(str(tmp_path / name), name=name) for name in ("one", "two")]
    output.run(output.stream.events().selectExpr("user", "amount * 2 AS twice"), *sinks)
    wanted = sorted((row["user"], 2 * row["amount"]) for batch in batches for row in batch.to_pylist())
    for sink in sinks:
        rows = hf.FileSink.read(sink.path).to_pylist()
        assert sorted((row["user"], row["twice"]) for row in rows) == wanted
        plain = spark.read.parquet(sink.path)  # a listing that knows nothing of manifests
        assert sorted((row["user"], row["twice"]) for row in plain.collect()) == wanted
    assert [sorted(record.sinks) for record in output.records()] == [["one", "two"]] * 2


def test_empty_batches_and_empty_partitions(output: Output) -> None:
    batches = [events(0), events(1, rows=0), events(2, rows=1)]
    output.stream.write(*batches)
    output.run(output.totals())
    assert found(output.rows()) == flat(batches)
    records = output.records()
    assert [sum(task.rows for task in record.tasks) for record in records] == [500, 0, 1]
    assert records[2].partitions == 2
    assert [len(record.sinks["files"].committables) for record in records] == [2, 0, 1]


@pytest.mark.parametrize("rolled_back", [1, 2])
def test_a_replay_of_what_is_visible_takes_over_its_state(output: Output, rolled_back: int) -> None:
    """Random numbers: what the replay would have computed differs; what is visible and what is kept must not."""
    batches = [events(seed) for seed in range(4)]
    output.stream.write(*batches[:2])
    frame = output.stream.events().transform(hf.keyed("user", RandomNumbers(), NUMBERS, name="numbers"))
    output.run(frame)
    before = output.rows()
    commits = output.stream.checkpoint / "commits"
    for batch in range(2 - rolled_back, 2):
        (commits / str(batch)).unlink()
        (commits / f".{batch}.crc").unlink(missing_ok=True)
    output.stream.write(*batches[2:])
    output.run(output.stream.events().transform(hf.keyed("user", RandomNumbers(), NUMBERS, name="numbers")))
    after = output.rows()
    assert after.slice(0, before.num_rows).equals(before)
    assert after.num_rows == 2000
    check_chains(after)


@pytest.mark.parametrize("lost", [(0,), (1,), (0, 1)])
def test_what_the_other_side_lost_is_written_again_from_the_same_state(output: Output, lost: tuple[int, ...]) -> None:
    """Tasks whose output is visible take over their state; those whose output is lost make both anew."""
    batches = [events(seed) for seed in range(4)]
    output.stream.write(*batches)
    sink = LossyFileSink(output.path, batch_id=1, partitions=lost)

    def frame() -> DataFrame:
        return output.stream.events().transform(hf.keyed("user", RandomNumbers(), NUMBERS, name="numbers"))

    told = rf"this was lost .* partitions \[{', '.join(map(str, lost))}\] of sink 'files'"
    with pytest.raises(hf.Unavailable, match=told):
        output.run(frame(), sink)
    assert output.rows().num_rows == 500, "of batch 1 a reader of whole batches sees nothing yet"
    output.run(frame(), sink)
    assert output.rows().num_rows == 2000
    check_chains(output.rows())
    revisions = {record.batch_id: record.revision for record in output.records()}
    assert revisions == {0: 0, 1: 1, 2: 0, 3: 0}
    again = next(record for record in output.records() if record.revision == 1)
    assert again.sinks["files"].done == tuple(p for p in (0, 1) if p not in lost and len(lost) == 1)


def test_lost_output_is_written_again_under_a_changed_number_of_partitions_only_if_all_is_lost(
    output: Output, spark: SparkSession
) -> None:
    output.stream.write(*[events(seed) for seed in range(3)])
    sink = LossyFileSink(output.path, batch_id=1, partitions=(1,))
    with pytest.raises(hf.Unavailable):
        output.run(output.stream.events().repartition(2, "user"), sink)
    with pytest.raises(hf.Incompatible, match="it has 3 partitions now, recorded are 2"):
        output.run(output.stream.events().repartition(3, "user"), sink)
    output.run(output.stream.events().repartition(2, "user"), sink)
    assert output.rows().num_rows == 1500


ADAPTIVE = "spark.sql.adaptive.streaming.stateless.enabled"


@pytest.mark.parametrize("own", [None, "true", "false"])
def test_a_shuffle_has_as_many_tasks_in_a_replay_whatever_runs_it(
    output: Output, spark: SparkSession, own: str | None
) -> None:
    """Spark's adaptive execution chose their number by cores and sizes: with other cores no start wrote again what was
    lost.
    """
    output.stream.write(*[events(seed) for seed in range(2)])
    spark.conf.set("spark.sql.shuffle.partitions", "8")
    spark.conf.set("spark.sql.adaptive.coalescePartitions.minPartitionSize", "1b")
    if own is not None:
        spark.conf.set(ADAPTIVE, own)
    cores = "spark.sql.adaptive.coalescePartitions.minPartitionNum"  # by default as many as there are cores
    sink = LossyFileSink(output.path, batch_id=0, partitions=(1,))
    spark.conf.set(cores, "2")
    with pytest.raises(hf.Unavailable):
        output.run(output.stream.events().repartition("user"), sink)
    spark.conf.set(cores, "6")
    output.run(output.stream.events().repartition("user"), sink)
    assert output.rows().num_rows == 1000
    assert [record.partitions for record in output.records() if record.revision == 0] == [8, 8]
    assert spark.conf.get(ADAPTIVE, None) == own, "the session keeps its own"


class StartingAnother(StreamingQueryListener):
    """Starts a query when one starts that has a name."""

    def __init__(self, start: Callable[[], StreamingQuery]) -> None:
        self.start = start
        self.started: list[StreamingQuery] = []

    def onQueryStarted(self, event: Any) -> None:
        if event.name is not None:
            self.started.append(self.start())

    def onQueryProgress(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass


def test_a_listener_may_start_a_query_when_another_one_starts(
    output: Output, spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's start() waits for listeners. Both starts waited for ever."""
    output.stream.write(events(0))
    second = hf.FileSink(str(tmp_path / "second"))
    listener = StartingAnother(
        lambda: output.start(output.stream.events(), second, checkpoint=tmp_path / "second-checkpoint")
    )
    spark.streams.addListener(listener)
    try:
        start = Thread(target=lambda: output.run(output.stream.events(), query_name="first"), daemon=True)
        start.start()
        start.join(120)
        assert not start.is_alive()
        (started,) = listener.started
        started.awaitTermination()
    finally:
        spark.streams.removeListener(listener)
    assert output.rows().num_rows == hf.FileSink.read(str(tmp_path / "second")).num_rows == 500
    assert spark.conf.get("holdfast.starting", None) is None


def check_chains(rows: pa.Table) -> None:
    """Each row's ``before`` is the number that the user's previous row has: so state is what was written."""
    last: dict[str, int | None] = {}
    for row in rows.to_pylist():
        assert row["before"] == last.get(row["user"]), row
        last[row["user"]] = row["number"]


def test_a_task_that_fails_and_is_tried_again(output: Output, tmp_path: Path) -> None:
    batches = [events(seed) for seed in range(3)]
    output.stream.write(*batches)
    failing = FailingOnce(1, str(tmp_path / "failed"))
    output.run(output.stream.events().transform(hf.keyed("user", failing, TOTALS, name="totals")))
    assert (tmp_path / "failed").exists()
    assert found(output.rows()) == flat(batches)
    assert max(task.attempt for record in output.records() for task in record.tasks) == 1
    assert not output.staged()


def test_a_rollback_with_other_offsets_is_refused(output: Output) -> None:
    batches = [events(seed) for seed in range(3)]
    output.stream.write(*batches)
    output.run(output.totals())
    before = output.rows()
    output.stream.roll_back(2)  # takes the newer batch's offsets too, so that Spark writes them anew
    with pytest.raises(hf.Incompatible, match="batch 2 runs again with other offsets"):
        output.run(output.totals())
    assert output.rows().equals(before)


def test_records_go_with_sparks_checkpoints(output: Output, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "2")
    output.stream.write(*[events(seed, rows=10) for seed in range(6)])
    output.run(output.totals())
    assert [record.batch_id for record in output.records()] == [4, 5]
    assert output.rows().num_rows == 60


def test_types_come_through(output: Output, spark: SparkSession) -> None:
    output.stream.write(events(0, rows=5))
    output.run(
        output.stream.events().selectExpr(
            "timestamp'2024-03-01 12:00:00.000001' AS at", "CAST(1.5 AS DECIMAL(9, 2)) AS price",
            "array(named_struct('a', amount)) AS nested", "map(user, amount) AS m", "date'2024-03-01' AS day",
        )
    )  # fmt: skip
    rows = output.rows()
    assert rows.schema.field("at").type == pa.timestamp("us", "UTC")
    first = rows.to_pylist()[0]
    assert first["at"].microsecond == 1
    assert str(first["price"]) == "1.50"
    assert list(first["nested"][0]) == ["a"]


def test_a_struct_that_is_null_comes_through_though_its_fields_are_never_null(
    output: Output, spark: SparkSession
) -> None:
    """The first batch with one failed in each try."""
    output.stream.write(pa.table({"amount": range(6)}))
    output.run(
        output.stream.events().selectExpr(
            "amount", "if(amount % 2 = 0, named_struct('a', 1), null) AS s",
            "array(if(amount % 3 = 0, named_struct('b', named_struct('c', 'x')), null)) AS many",
        )
    )  # fmt: skip
    for rows in (output.rows().to_pylist(), spark.read.parquet(output.path).toArrow().to_pylist()):
        found = {row["amount"]: (row["s"], row["many"]) for row in rows}
        assert found == {
            amount: (None if amount % 2 else {"a": 1}, [None if amount % 3 else {"b": {"c": "x"}}])
            for amount in range(6)
        }


@pytest.mark.skipif(not hasattr(spark_types, "TimeType"), reason="Spark before 4.1 has no times of day")
def test_times_of_day_are_in_files_as_all_sparks_read_them(output: Output, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.timeType.enabled", "true")
    spark.createDataFrame([], "k long")  # makes it the active session, by whose settings Spark checks plans
    output.stream.write(pa.table({"amount": [0, 1]}))
    at = "if(amount = 0, time'23:59:59.999999', null)"
    many = f"array(named_struct('at', {at}, 'n', 1), null) AS many"
    output.run(output.stream.events().selectExpr(f"{at} AS at", many))
    last = time(23, 59, 59, 999999)
    wanted = [{"at": when, "many": [{"at": when, "n": 1}, None]} for when in (last, None)]
    assert sorted(output.rows().to_pylist(), key=str, reverse=True) == sorted(wanted, key=str, reverse=True)
    assert output.rows().schema.field("at").type == pa.time64("us")
    assert output.rows().schema.field("many").type.value_type.field("at").type == pa.time64("us")
    read = spark.read.parquet(output.path)
    assert read.schema["at"].dataType.simpleString() == "time(6)"
    assert sorted(row["at"] for row in read.collect() if row["at"]) == [last]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sinks": []}, "no sink is given"),
        ({"sinks": ["files"]}, "is no sink"),
        ({"trigger": {"continuous": "1 second"}}, "exactly-once output needs batches"),
        ({"output_mode": "sometimes"}, "output_mode is 'sometimes'"),
        ({"settings": {"commit.retry.maks": "1 s"}}, r"nearest is 'spark\.holdfast\.commit\.retry\.max'"),
        ({"checkpoint": ""}, "empty text"),
    ],
)
def test_a_wrong_call_is_told(output: Output, change: dict[str, Any], message: str) -> None:
    output.stream.write(events(0))
    given = {"sinks": [hf.FileSink(output.path)], "checkpoint": output.stream.checkpoint, **change}
    sinks = given.pop("sinks")
    with pytest.raises(hf.InvalidRequest, match=message):
        hf.write_exactly_once(output.stream.events(), *sinks, **given)


def test_two_sinks_of_one_name_and_a_frame_that_stands_still(output: Output, spark: SparkSession) -> None:
    output.stream.write(events(0))
    sink = hf.FileSink(output.path)
    with pytest.raises(hf.InvalidRequest, match="two sinks are named 'files'"):
        hf.write_exactly_once(output.stream.events(), sink, sink, checkpoint=output.stream.checkpoint)
    with pytest.raises(hf.InvalidRequest, match="does not stream"):
        hf.write_exactly_once(spark.range(1), sink, checkpoint=output.stream.checkpoint)


def test_what_is_stored_is_text_that_people_can_read(output: Output) -> None:
    output.stream.write(events(0))
    output.run(output.totals())
    stored = (output.stream.checkpoint / "holdfast").glob("*/*/*.json")
    assert {json.loads(path.read_text())["format"] for path in stored} == {"holdfast.commit", "holdfast.epoch"}


def test_a_query_that_is_stopped_in_a_batch_ends_quietly(tmp_path: Path) -> None:
    """In a process of its own: what counts is what the JVM writes to its standard error."""
    told = run_module("tests.integration.stopped_query", str(tmp_path), timeout_s=300)
    assert told.stdout.strip() == "ended quietly None"
    assert "StackOverflowError" not in told.stderr
    assert "stream execution thread" not in told.stderr


def test_a_query_that_is_stopped_while_its_sink_does_not_answer_has_not_failed(output: Output) -> None:
    """It was asked for two minutes more, for which Ctrl-C had to wait, and then the query had failed."""
    batches = [events(7)]
    output.stream.write(*batches)
    query = output.start(output.totals(), SilentFileSink(output.path))
    assert SilentFileSink.asked.wait(240)
    query.stop()
    assert not query.isActive
    assert query.exception() is None
    query.awaitTermination()
    output.run(output.totals())
    assert found(output.rows()) == flat(batches)


@pytest.mark.parametrize("where", ["register_beginning", "fixed_tasks"])
def test_ctrl_c_before_the_caller_has_the_query_stops_it(
    output: Output, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """It ran on without anybody who could stop it, and held the checkpoint."""
    batches = [events(7)]
    output.stream.write(*batches)

    def press() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    @contextmanager
    def pressed(session: SparkSession) -> Iterator[None]:
        with fixed_tasks(session):
            yield
            press()

    with monkeypatch.context() as patched:
        patched.setattr(write, where, pressed if where == "fixed_tasks" else lambda *_: press())
        with pytest.raises(KeyboardInterrupt):
            output.start(output.totals(), trigger={"processingTime": "1 second"})
    assert not spark.streams.active
    output.run(output.totals())
    assert found(output.rows()) == flat(batches)


def test_tasks_of_a_stage_that_runs_anew_count_as_tried_again(tmp_path: Path) -> None:
    """Their attempts count from 0 again, and each was taken for the only one."""
    told = json.loads(run_module("tests.integration.lost_shuffle_query", str(tmp_path), "1", timeout_s=300).stdout)
    assert told["lost"]
    assert [partition for partition, _ in told["doubted"]] == list(range(6))
    assert 0 in {attempt for _, attempt in told["doubted"]}


def test_the_folders_of_a_new_operator_are_made_by_its_tasks(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors run as another user than the driver, where YARN runs them: they could not write into its folders."""
    output.stream.write(events(0))
    seen: list[list[Path]] = []

    def looks(query_id: str, run_id: str, batch_id: int, operators: frozenset[str]) -> None:
        register_runs(query_id, run_id, batch_id, operators)
        seen.append([path for path in output.stream.checkpoint.parent.rglob("totals") if "state" in path.parts])

    monkeypatch.setattr(write, "register_runs", looks)
    output.run(output.totals())
    assert seen == [[]]
    assert found(output.rows()) == flat([events(0)])


def test_a_task_that_outlives_its_query_is_no_newer_run(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped while its first Python worker was still starting, it registered after its successor, and fenced that."""
    batches = [events(seed) for seed in range(4)]
    output.stream.write(batches[0])
    output.run(output.totals())
    output.stream.write(batches[1])
    names: list[tuple[str, str]] = []

    def stops_here(query_id: str, run_id: str, batch_id: int, operators: frozenset[str]) -> None:
        register_runs(query_id, run_id, batch_id, operators)
        if not names:
            names.append((query_id, run_id))
            raise hf.Unavailable("stopped before its first task")

    monkeypatch.setattr(write, "register_runs", stops_here)
    with pytest.raises(hf.Unavailable, match="stopped before its first task"):
        output.run(output.totals())
    output.run(output.totals())
    (query_id, run_id), folder = names[0], output.stream.checkpoint.parent
    state = next(path.parent for path in folder.rglob("runs") if path.parent.name == "totals")
    files = sorted(path.name for path in (state / "runs").iterdir())
    assert len(files) == 3 and files[1] == f"000000000002-{run_id}.json"
    instance = unseal((state / "runs" / files[1]).read_bytes(), "holdfast.run", 1, "here")["instance"]
    late = Runs(LocalFileStore(str(state.parent.parent)), f"{query_id}/totals", "totals", run_id, instance)
    with pytest.raises(hf.Fenced):
        late.register(1)
    output.stream.write(*batches[2:])
    output.run(output.totals())
    assert found(output.rows()) == flat(batches)
