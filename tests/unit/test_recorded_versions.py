"""Spark's file has the version of an attempt that does not count, as its task was the last to commit Spark's store: who
reads the checkpoint gets what the visible output was made from, as the query itself does when it starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from tests.checkpoint_driver import flip
from tests.slot_checkpoint import PREFIX, QUERY, SlotCheckpoint, age

import holdfast as hf
from holdfast.checkpoint import Handle, VersionsOrigin
from holdfast.checkpoint.names import attempt_version_id, delta_name
from holdfast.commit.batch import TaskResult
from holdfast.commit.committer import CommitOptions, Committer
from holdfast.commit.epochs import Driver
from holdfast.commit.record_log import record_name
from holdfast.commit.retries import Retries
from holdfast.errors import Corrupt, Unavailable
from holdfast.inspect.committed import Committed
from holdfast.inspect.earlier import EarlierQuery
from holdfast.storage import LocalFileStore, StorageOptions

BEFORE = 3


class Query:
    """A query of one slot, with copies of its tasks. In batch 3 two attempts end: the one that is recorded adds 1, the
    one that Spark has a million.
    """

    def __init__(self, folder: Path, *, speculation: bool = True, is_of_the_sink: bool = True) -> None:
        self.slot = SlotCheckpoint(folder)
        self.checkpoint = LocalFileStore(str(folder / self.slot.name))
        driver = Driver(self.slot.run_id, "host", 1, 0)
        options = CommitOptions(Retries(1000, 10), speculation=speculation)
        self.run = Committer(self.checkpoint, QUERY, driver, [], options)
        self.sink_task = None if is_of_the_sink else 500
        for _ in range(BEFORE):
            handle, rows = self.slot.attempt()
            assert isinstance(handle, Handle)
            self.slot.process.rest()
            self.batch(handle, handle)
            self.slot.driver.commit(handle, [rows])
        self.counts, self.other = self.attempt(100, 1), self.attempt(101, 1_000_000)
        self.batch(self.counts, self.other)
        handle, value = (self.counts, 1) if is_of_the_sink else (self.other, 1_000_000)
        self.slot.driver.commit(handle, [{1: value}])

    def attempt(self, task: int, value: int) -> Handle:
        driver = self.slot.driver
        process = driver.process(local=f"executor-{task}", prefix=PREFIX)
        process.open(driver.handle)
        process.state.begin(driver.next_batch, attempt_version_id(self.slot.run_id, task))
        process.table.add({1: value})
        return process.state.prepare()

    def batch(self, recorded: Handle, in_spark: Handle) -> None:
        batch_id = self.slot.driver.next_batch
        task = self.sink_task or int(recorded.version_id[16:], 16)
        self.slot.spark.plan(batch_id)
        self.run.run_batch(batch_id, lambda _: [TaskResult(0, 0, task, 1)])
        self.slot.spark.commit(batch_id, [in_spark.to_text()])

    def quiet_batch(self) -> None:
        batch_id = self.slot.driver.next_batch
        self.slot.spark.plan(batch_id)
        self.run.run_batch(batch_id, lambda _: [TaskResult(0, 0, 200 + batch_id, 0)])
        self.slot.spark.commit(batch_id, [])
        self.slot.driver.next_batch += 1

    def delta(self, handle: Handle) -> Path:
        return self.slot.slot / delta_name(handle.sequence, handle.version_id)


def sums(read: hf.Checkpoint | hf.Savepoint) -> dict[int, int]:
    rows = read.read("sums", "folded").read_all()
    return dict(zip(rows["k"].to_pylist(), rows["value"].to_pylist()))


def origin(query: Query) -> VersionsOrigin:
    folder = query.slot.folder
    earlier = EarlierQuery(str(folder / query.slot.name), str(folder / "store"), None, StorageOptions(), None)
    found = earlier.operator("sums", "restore", None)[1]
    assert isinstance(found, VersionsOrigin)
    return found


def savepoint(query: Query, format: Literal["canonical", "native"]) -> hf.Savepoint:
    folder = query.slot.folder
    return hf.Savepoint.create(
        checkpoint=folder / query.slot.name,
        to=folder / f"savepoint-{format}",
        state=folder / "store",
        format=format,
    )


@pytest.fixture
def query(tmp_path: Path) -> Iterator[Query]:
    yield Query(tmp_path)


@pytest.mark.parametrize("quiet", [0, 2])
def test_readers_take_the_version_that_the_visible_output_was_made_from(query: Query, quiet: int) -> None:
    """Tables, savepoints of both formats and ``restore=`` took the one of the attempt whose output nobody saw."""
    for _ in range(quiet):
        query.quiet_batch()
    expected = query.slot.driver.oracle
    with query.slot.open() as opened:
        assert sums(opened) == expected
        assert opened.at().handles["sums"][0] == query.counts.stored()
        assert opened.diff("sums", "folded", BEFORE - 1, BEFORE).read_all()["k"].to_pylist() == [1]
        assert opened.verify().whole
    assert sums(savepoint(query, "canonical")) == expected
    assert sums(savepoint(query, "native")) == expected
    assert origin(query).handles == (query.counts.stored(),)


def test_the_newest_batch_counts_as_recorded_whatever_its_record_says_of_attempts(tmp_path: Path) -> None:
    """An executor that outlived its driver wrote last: nothing tells of it, and a start is told of that batch."""
    query = Query(tmp_path, speculation=False)
    with query.slot.open() as opened:
        assert sums(opened) == query.slot.driver.oracle


def test_where_spark_itself_reads_its_state_the_same_version_counts(query: Query) -> None:
    state = LocalFileStore(str(query.slot.folder / "store"))
    conf = {"spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.RocksDBStateStoreProvider"}
    query.slot.spark.commit(BEFORE, [], conf=conf)
    committed = Committed(query.checkpoint, lambda batch, operator: [query.other.to_text()], tuple, lambda: state)
    found = committed.at(None)
    assert found.handles == {"sums": {0: query.counts.stored()}}
    assert found.passed_over == {"sums": {0: query.other.stored()}}


def test_a_version_that_counts_and_is_gone_is_told_and_not_replaced_by_the_other(query: Query) -> None:
    query.delta(query.counts).unlink()
    expected = r"the visible output was made from is not there: expected delta/000000000004-<version>\.arrow.*backup"
    with query.slot.open() as opened:
        with pytest.raises(Corrupt, match=expected):
            opened.read("sums", "folded")
        assert opened.read("sums", "folded", batch_id=BEFORE - 1).read_all().num_rows
        assert list(opened.verify().lost) == [BEFORE]
    with pytest.raises(Corrupt, match=expected):
        savepoint(query, "native")
    with pytest.raises(Corrupt, match=expected):
        origin(query)


def test_a_version_that_counts_and_is_damaged_is_told(query: Query) -> None:
    flip(str(query.delta(query.counts)))
    with query.slot.open() as opened, pytest.raises(Corrupt, match=query.counts.version_id):
        opened.read("sums", "folded")


def test_no_bit_of_a_version_that_counts_is_changed_unnoticed(query: Query) -> None:
    """No handle has its checksum: it was compared with itself."""
    path = query.delta(query.counts)
    data = path.read_bytes()
    for position in range(0, len(data), 97):
        flip(str(path), position, position % 8)
        with query.slot.open() as opened:
            with pytest.raises(Corrupt, match=query.counts.version_id):
                opened.read("sums", "folded")
            assert list(opened.verify().lost) == [BEFORE]
        path.write_bytes(data)
    with query.slot.open() as opened:
        assert opened.verify().whole


def test_where_both_are_gone_it_is_said_as_of_any_file_that_is_missing(query: Query) -> None:
    """Retention takes both at once, where Spark retains more batches than Holdfast."""
    for handle in (query.counts, query.other):
        query.delta(handle).unlink()
    with query.slot.open() as opened, pytest.raises((Corrupt, Unavailable), match=r"delta .* is missing"):
        opened.read("sums", "folded").read_all()


def test_of_an_operator_before_a_shuffle_what_spark_has_counts(tmp_path: Path) -> None:
    """Records name tasks of the sink's stage, and no others."""
    query = Query(tmp_path, is_of_the_sink=False)
    with query.slot.open() as opened:
        assert sums(opened) == query.slot.driver.oracle
        assert opened.verify().whole
    assert origin(query).handles == (query.other.stored(),)


def test_a_batch_whose_record_is_kept_no_longer_is_as_spark_has_it(query: Query) -> None:
    """As the query goes on from it, then."""
    query.quiet_batch()
    query.checkpoint.delete([record_name(QUERY, BEFORE, 0)])
    assert origin(query).handles == (query.other.stored(),)


def test_gc_leaves_both_versions_for_a_query_that_goes_on_later(query: Query) -> None:
    """From which one it goes on, how long the slot is quiet decides."""
    age(query.slot.folder / "store")
    with query.slot.open() as opened:
        opened.gc(apply=True)
    assert query.delta(query.counts).exists()
    assert query.delta(query.other).exists()
    with query.slot.open() as opened:
        assert sums(opened) == query.slot.driver.oracle


def test_a_version_on_another_line_is_refused(query: Query) -> None:
    """State and checkpoint are of two backups."""
    stranger = replace(query.other, parent_id="f" * 32).stored()
    assert stranger.newest is not None
    query.slot.spark.commit(BEFORE, [stranger.to_text()])
    with query.slot.open() as opened, pytest.raises(hf.Incompatible, match="restore both from one backup"):
        opened.at()
