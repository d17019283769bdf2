"""Commit records: one that contradicts itself is neither written nor believed, and what a person decides is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.faulty_file_store import FaultyFileStore

from holdfast.commit.record import FORMAT, VERSION, CommitRecord, SinkRecord, TaskRecord
from holdfast.commit.record_log import RecordLog, newest_record, record_name
from holdfast.commit.sink import Committable, Outcome
from holdfast.errors import Corrupt, InternalError, InvalidRequest
from holdfast.sealed import seal, unseal
from holdfast.storage import LocalFileStore


def sink(*partitions: int, done: tuple[int, ...] = (), lost: tuple[int, ...] = ()) -> SinkRecord:
    return SinkRecord("kafka", tuple(Committable(one, 0, 1, 1, {}) for one in partitions), done, lost)


def record(**changes: Any) -> CommitRecord:
    tasks = tuple(TaskRecord(partition, "run", 0, partition, 1) for partition in range(3))
    sinks = {"a": sink(0, 2), "b": sink(1)}
    return replace(CommitRecord("query", "run", 1, 7, 0, "", 3, "run", tasks, sinks), **changes)


BROKEN = {
    "a task twice": record(tasks=record().tasks[:2] + record().tasks[1:2]),
    "tasks in no order": record(tasks=record().tasks[::-1]),
    "a task too few": record(partitions=4),
    "committables in no order": record(sinks={"a": sink(2, 0)}),
    "a committable twice": record(sinks={"a": sink(1, 1)}),
    "a partition that there is not": record(sinks={"a": sink(0, 3)}),
    "a partition below 0": record(sinks={"a": sink(-1, 0)}),
    "done where nothing was written": record(sinks={"a": sink(0, done=(1,))}),
    "lost where nothing was written": record(sinks={"a": sink(0, lost=(1,))}),
    "done and lost": record(sinks={"a": sink(0, done=(0,), lost=(0,))}),
    "in the second sink": record(sinks={"a": sink(0), "b": sink(3)}),
    "doubt of a later batch": record(doubted=(3, 8)),
    "doubted twice": record(doubted=(3, 3)),
    "doubt in no order": record(doubted=(5, 3)),
    "doubt below 0": record(doubted=(-1, 3)),
}


@pytest.fixture
def store(tmp_path: Any) -> LocalFileStore:
    return LocalFileStore(str(tmp_path))


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_record_that_contradicts_itself_is_neither_written_nor_believed(
    broken: CommitRecord, store: LocalFileStore
) -> None:
    with pytest.raises(InternalError, match="the record made for batch 7 contradicts itself: "):
        RecordLog(store, "query").create(broken)
    assert store.list("") == []
    with pytest.raises(Corrupt, match="here contradicts itself: "):
        CommitRecord.from_text(broken.to_text(), "here")


def test_a_sealed_record_that_lacks_something_is_told() -> None:
    fields = unseal(record().to_text(), FORMAT, VERSION, "here")
    del fields["tasks"]
    with pytest.raises(Corrupt, match="here lacks what a commit record has: KeyError"):
        CommitRecord.from_text(seal(FORMAT, VERSION, fields), "here")


def test_a_record_is_read_by_earlier_releases_unless_batches_are_doubted() -> None:
    """These read version 1 alone, and know no such field."""
    assert json.loads(record().to_text())["version"] == 1
    assert "doubted" not in json.loads(record().to_text())
    assert json.loads(record(doubted=(2, 3, 4, 7)).to_text())["version"] == 2
    assert json.loads(record(doubted=(2, 3, 4, 7)).to_text())["doubted"] == [[2, 4], [7, 7]]


@pytest.mark.parametrize("rows", [[[5, 3]], [[0, 10**18]], [[0, 7], [0, 7]], [[1]], [["a", "b"]], 3])
def test_doubted_batches_that_are_none_are_told_before_room_is_made_for_them(rows: Any) -> None:
    fields = unseal(record(doubted=(7,)).to_text(), FORMAT, VERSION, "here")
    with pytest.raises(Corrupt, match="here lacks what a commit record has"):
        CommitRecord.from_text(seal(FORMAT, VERSION, {**fields, "doubted": rows}), "here")


def test_a_record_of_many_tasks_or_doubted_batches_is_refused_before_room_is_made_for_them(
    store: LocalFileStore,
) -> None:
    """What a record says of itself bounded the one, and nothing the other."""
    fields = unseal(record(doubted=(7,)).to_text(), FORMAT, VERSION, "here")
    for changed, said in (
        ({"partitions": 10**12}, "contradicts itself: it has one task for each of 1000000000000 partitions"),
        ({"batch_id": 10**12, "doubted": [[0, 10**12]]}, "belongs elsewhere: it is of batch 1000000000000"),
    ):
        store.delete([record_name("query", 7, 0)])
        store.put(record_name("query", 7, 0), seal(FORMAT, VERSION, {**fields, **changed}).encode())
        with pytest.raises(Corrupt, match=said):
            newest_record(store, "query", 7)


def removed(store: LocalFileStore) -> None:
    store.delete([record_name("query", 7, 0)])


def moved(store: LocalFileStore) -> None:
    removed(store)
    store.put(record_name("query", 7, 0), record(batch_id=6, query_id="other").to_text().encode())


@pytest.mark.parametrize(
    ("happens", "said"),
    [(removed, "was listed in .* and is missing now"), (moved, "belongs elsewhere: .* batch 6, revision 0, .* other")],
)
def test_a_record_that_is_not_where_it_should_be_is_told(
    happens: Callable[[LocalFileStore], None], said: str, store: LocalFileStore
) -> None:
    RecordLog(store, "query").create(record())
    log = RecordLog(store, "query")
    log.load()
    happens(store)
    with pytest.raises(Corrupt, match=f"{record_name('query', 7, 0)} .*{said}"):
        log.newest(7)


def test_what_was_written_or_read_is_not_read_again(store: LocalFileStore) -> None:
    """Object stores bill each request."""
    counting = FaultyFileStore(store)
    writing, reading = RecordLog(counting, "query"), RecordLog(counting, "query")
    writing.create(record())
    reading.load()
    reading.newest(7)
    counting.operations.clear()
    assert writing.newest(7) == reading.newest(7) == record()
    assert counting.operations == []


def test_what_a_person_decides_is_the_next_revision_and_all_else_stays() -> None:
    first = record(sinks={"a": sink(0, 1, 2, done=(1,)), "b": sink(1)})
    second = first.decided("a", {2: Outcome.DONE, 0: Outcome.LOST})
    assert second == replace(first, revision=1, sinks={**first.sinks, "a": sink(0, 1, 2, done=(1, 2), lost=(0,))})
    assert second.decided("a", {2: Outcome.DONE}).sinks == second.sinks, "what is known may be said again"
    for partition, outcome in ((0, Outcome.DONE), (1, Outcome.LOST)):
        with pytest.raises(InvalidRequest, match=f"{partition} cannot be said to be .*the opposite is recorded"):
            second.decided("a", {partition: outcome})
    with pytest.raises(InvalidRequest, match="batch 7 has no sink 'c'; it has a, b"):
        first.decided("c", {0: Outcome.DONE})


def test_the_newest_revision_is_found_by_name_alone(store: LocalFileStore) -> None:
    """In a batch nothing of a checkpoint is listed."""
    log = RecordLog(store, "query")
    assert newest_record(store, "query", 7) is None
    for revision in range(3):
        made = log.create(record(revision=revision))
        assert newest_record(store, "query", 7) == made
    assert newest_record(store, "query", 6) is None
