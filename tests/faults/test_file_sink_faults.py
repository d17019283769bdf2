"""A FileSink whose store fails or forgets its answer at each operation in turn: tried again, it is exactly once."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.faults.file_reading import listed, named
from tests.faulty_file_store import FaultyFileStore
from tests.full_disk import files_of_at_most

from holdfast import storage
from holdfast.commit.epochs import Driver
from holdfast.commit.sink import CommitLimits, Committable, Outcome, Scope, SinkTask
from holdfast.errors import Corrupt, Incompatible, InvalidRequest, Unavailable, Undecided
from holdfast.sink.files import FileSink
from holdfast.sink.files import sink as sink_module
from holdfast.storage import FileStore, open_file_store

ATTEMPTS = itertools.count()
SCOPE = Scope("query", "run", 1, "files")


def rows(batch: int, partition: int) -> pa.RecordBatch:
    return pa.record_batch({"batch": pa.array([batch] * 3), "partition": pa.array([partition] * 3)})


def started(path: Path) -> FileSink:
    """A sink whose driver has begun."""
    sink = FileSink(str(path))
    sink.check(rows(0, 0).schema, CommitLimits(1_000, 10_000, 10))
    sink.recover(SCOPE, [])
    return sink


def attempt(sink: FileSink, batch: int, partition: int, attempt_id: int) -> Committable:
    writer = sink.open(SinkTask(SCOPE, batch, partition, 0, attempt_id))
    try:
        writer.write(rows(batch, partition))
        committable = writer.prepare()
    except BaseException:
        writer.abort()
        raise
    assert committable is not None
    return committable


def until_it_works(what):
    for _ in range(5):
        try:
            return what(next(ATTEMPTS))
        except Unavailable:
            continue
    raise AssertionError("never works")


def play(sink: FileSink) -> None:
    """Two batches of two partitions, each step tried again as Spark and the committer would."""
    until_it_works(lambda _: sink.recover(SCOPE, []))
    for batch in range(2):
        prepared = [until_it_works(lambda n, p=p, b=batch: attempt(sink, b, p, n)) for p in range(2)]
        assert until_it_works(lambda _, c=prepared: sink.commit(SCOPE, c)) == [Outcome.DONE] * 2
        until_it_works(lambda _, c=prepared: sink.recover(SCOPE, c))


@pytest.mark.parametrize("fail_after", [False, True])
def test_a_store_that_fails_at_each_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail_after: bool
) -> None:
    for failing in itertools.count(1):
        path = str(tmp_path / f"out-{failing}")
        store = FaultyFileStore(open_file_store(path), fail_at=[failing], fail_after=fail_after)
        monkeypatch.setattr(sink_module, "open_file_store", lambda *_, store=store: store)
        play(FileSink(path))
        monkeypatch.undo()
        found = sorted((row["batch"], row["partition"]) for row in FileSink.read(path).to_pylist())
        assert found == [(batch, partition) for batch in range(2) for partition in range(2) for _ in range(3)]
        assert listed(Path(path)) == named(Path(path)) and len(listed(Path(path))) == 4
        assert not [staged for staged in Path(path, "_staging").rglob("*") if staged.is_file()]
        if store.count < failing:
            assert failing > 20
            return


def test_a_reader_sees_a_batch_whole_or_not_at_all(tmp_path: Path) -> None:
    """One of two files is published, then the driver dies: a listing has one, a reader of manifests has none."""
    sink = started(tmp_path)
    prepared = [attempt(sink, 0, partition, partition) for partition in range(2)]
    store = open_file_store(str(tmp_path))
    store.copy_if_absent(prepared[0].body["staged"], prepared[0].body["published"])
    assert [path.name for path in tmp_path.glob("*.parquet")] == [prepared[0].body["published"]]
    assert FileSink.files(str(tmp_path)) == [] == named(tmp_path)
    assert sink.commit(SCOPE, prepared) == [Outcome.DONE, Outcome.DONE]
    assert FileSink.read(str(tmp_path)).num_rows == 6


def test_what_is_staged_has_no_name_that_a_reader_of_parquet_looks_for(tmp_path: Path) -> None:
    """DuckDB reads all that ends in .parquet below a folder, whatever the folders are called: rows that were not
    committed, and others twice.
    """
    sink = started(tmp_path)
    prepared = [attempt(sink, 0, partition, partition) for partition in range(2)]
    assert (tmp_path / prepared[0].body["staged"]).is_file()
    assert list(tmp_path.rglob("*.parquet")) == []
    assert sink.commit(SCOPE, prepared[:1]) == [Outcome.DONE]
    assert [path.name for path in tmp_path.rglob("*.parquet")] == [prepared[0].body["published"]]


def test_what_an_earlier_version_staged_is_committed_or_swept_under_its_name(tmp_path: Path) -> None:
    sink, newer, prepared = FileSink(str(tmp_path)), Scope("query", "newer", 2, "files"), list[Committable]()
    for partition, scope in enumerate((SCOPE, SCOPE, newer)):
        sink.recover(scope, prepared)
        writer = sink.open(SinkTask(scope, 0, partition, 0, partition))
        writer.write(rows(0, partition))
        one = writer.prepare()
        assert one is not None
        old_name = one.body["staged"].replace(".staged", ".parquet")
        os.rename(tmp_path / one.body["staged"], tmp_path / old_name)
        prepared.append(replace(one, body={**one.body, "staged": old_name}))
    assert sink.recover(SCOPE, prepared[:1]) == 1, "what a newer driver has staged is not an older one's to sweep"
    assert sink.commit(newer, prepared) == [Outcome.DONE, Outcome.LOST, Outcome.DONE]
    assert sorted(tmp_path.rglob("*.parquet")) == sorted(tmp_path / prepared[at].body["published"] for at in (0, 2))


def test_what_was_written_to_another_folder_is_not_taken_for_lost(tmp_path: Path) -> None:
    """The query died as it published, and was started with another path: the batch was written there once more, beside
    what was visible in the first. A folder that was moved with all that is in it goes on.
    """
    first, second = started(tmp_path / "first"), FileSink(str(tmp_path / "second"))
    prepared = [attempt(first, 0, partition, partition) for partition in range(2)]
    open_file_store(first.path).copy_if_absent(prepared[0].body["staged"], prepared[0].body["published"])
    with pytest.raises(Incompatible, match=rf"partition 0 of batch 0 to {first.path}, where .* not in {second.path}"):
        second.commit(SCOPE, prepared)
    assert not list((tmp_path / "second").rglob("*.parquet"))
    shutil.move(first.path, second.path)
    assert second.commit(SCOPE, prepared) == [Outcome.DONE] * 2


def test_a_file_of_any_size_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    """A task that had written some gigabytes was killed for its memory when it prepared them, in each try."""
    sink = replace(started(tmp_path), compression="none")
    writer = sink.open(SinkTask(SCOPE, 0, 0, 0, 0))
    for _ in range(32):
        writer.write(pa.record_batch({"bytes": pa.array([os.urandom(1 << 20)])}))
    tracemalloc.start()
    try:
        prepared = writer.prepare()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert prepared is not None and prepared.size_bytes > 32 << 20 and most < 8 << 20
    assert sink.commit(SCOPE, [prepared]) == [Outcome.DONE]
    assert FileSink.read(str(tmp_path)).num_rows == 32


@pytest.mark.parametrize("remote", [False, True], ids=["a folder", "elsewhere"])
def test_a_file_that_was_published_before_a_crash_is_not_in_memory_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    """The next driver read each file of the batch into its memory, to see that it is the one of the record."""
    sink = replace(started(tmp_path), compression="none")
    writer = sink.open(SinkTask(SCOPE, 0, 0, 0, 0))
    for _ in range(16):
        writer.write(pa.record_batch({"bytes": pa.array([os.urandom(1 << 20)])}))
    prepared = writer.prepare()
    assert prepared is not None
    store = FaultyFileStore(open_file_store(str(tmp_path)), remote=remote)
    store.copy_if_absent(prepared.body["staged"], prepared.body["published"])
    monkeypatch.setattr(sink_module, "open_file_store", lambda *_: store)
    tracemalloc.start()
    try:
        assert sink.commit(SCOPE, [prepared]) == [Outcome.DONE]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 << 20


def test_files_of_a_batch_get_their_names_at_once_where_the_store_is_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, with three answers for each: 600 in a row for 200 partitions."""
    sink = started(tmp_path)
    prepared = [attempt(sink, 0, partition, partition) for partition in range(20)]
    (tmp_path / prepared[7].body["staged"]).unlink()
    together = threading.Barrier(4, timeout=60)

    class Elsewhere(FaultyFileStore):
        def copy_if_absent(self, name: str, target: str, source: FileStore | None = None) -> bool | None:
            together.wait()
            return super().copy_if_absent(name, target, source)

    store = Elsewhere(open_file_store(str(tmp_path)), remote=True)
    monkeypatch.setattr(sink_module, "open_file_store", lambda *_: store)
    outcomes = sink.commit(SCOPE, prepared)
    assert outcomes == [Outcome.LOST if partition == 7 else Outcome.DONE for partition in range(20)]
    assert not FileSink.files(str(tmp_path)), "it is not whole"
    again = attempt(sink, 0, 7, 100)
    together = threading.Barrier(1)
    assert sink.commit(SCOPE, [again]) == [Outcome.DONE]
    assert [file.partition for file in FileSink.files(str(tmp_path))] == list(range(20))


def test_a_task_that_is_killed_leaves_nothing_on_the_local_disk(tmp_path: Path) -> None:
    """A stopped query, or a copy under speculation, left what it had written so far, and nobody ever deleted it."""
    local = tmp_path / "local"
    local.mkdir()
    program = (
        "import os, sys, pyarrow as pa\n"
        "from holdfast.commit.sink import Scope, SinkTask\n"
        "from holdfast.sink.files import FileSink\n"
        "sink, scope = FileSink(sys.argv[1]), Scope('query', 'run', 1, 'files')\n"
        "sink.recover(scope, [])\n"
        "writer = sink.open(SinkTask(scope, 0, 0, 0, 0))\n"
        "writer.write(pa.record_batch({'number': pa.array(range(100_000))}))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    environment = {**os.environ, "TMPDIR": str(local)}
    died = subprocess.run([sys.executable, "-c", program, str(tmp_path / "out")], env=environment, timeout=120)
    assert died.returncode == -signal.SIGKILL
    assert list(local.iterdir()) == []


def test_a_file_that_s3_would_not_copy_is_refused_before_it_stands_in_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 refused to give it its name, in each start of the query."""
    assert storage.S3_COPY_BYTES_MAX == 5 * 1024**3
    sink = started(tmp_path)
    store = FaultyFileStore(open_file_store(str(tmp_path)), remote=True)
    monkeypatch.setattr(sink_module, "open_file_store", lambda *_: store)
    monkeypatch.setattr(storage, "S3_COPY_BYTES_MAX", 100)
    assert attempt(sink, 0, 0, 0).size_bytes > 100, "a limit of S3 alone"
    store.uri = "s3://bucket/out"
    with pytest.raises(InvalidRequest, match=r"partition 1, .* bytes, and s3://bucket/out copies .* more partitions"):
        attempt(sink, 0, 1, 1)
    assert [operation for operation, _ in store.operations].count("put_file") == 1
    monkeypatch.undo()
    assert sink.commit(SCOPE, [attempt(sink, 0, 1, 2)]) == [Outcome.DONE]


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    sink = started(tmp_path)
    prepared = attempt(sink, 0, 0, 0)
    sink.commit(SCOPE, [prepared])
    published = tmp_path / prepared.body["published"]
    published.write_bytes(published.read_bytes()[:-1])
    with pytest.raises(Corrupt, match="is not what was committed"):
        FileSink.read(str(tmp_path))


def test_a_file_that_somebody_else_put_there_is_not_taken_for_ours(tmp_path: Path) -> None:
    sink = started(tmp_path)
    prepared = attempt(sink, 0, 0, 0)
    (tmp_path / prepared.body["published"]).write_bytes(b"somebody else's")
    with pytest.raises(Undecided, match="is not what the commit record says"):
        sink.commit(SCOPE, [prepared])


def test_a_copy_that_is_refused_after_a_hiccup_leaves_no_fence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had taken the folder over when the store failed, and was refused when it tried again: the fence of a driver
    that nobody knows stayed, and the original was refused for ever.
    """
    sink, copy = started(tmp_path), Scope("query", "run of the copy", 2, "files")
    store = FaultyFileStore(open_file_store(str(tmp_path)), fail_at=[1], only=["sweep"])
    monkeypatch.setattr(sink_module, "open_file_store", lambda *_: store)
    with pytest.raises(Unavailable):
        sink.claim(copy, Driver(copy.run_id, "localhost", 1, 0), [], lambda traces: None)

    def refuse(traces: object) -> None:
        raise Incompatible("the original has published a batch meanwhile")

    with pytest.raises(Incompatible):
        sink.claim(copy, Driver(copy.run_id, "localhost", 1, 0), [], refuse)
    assert not [trace for trace in sink.traces(SCOPE, []) if trace.run_id == copy.run_id]
    assert sink.commit(SCOPE, [attempt(sink, 0, 0, 0)]) == [Outcome.DONE]


def test_a_start_lists_no_more_of_the_output_than_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each start looked at each file of the folder three times, in all folders below too: partitions of another table,
    years of batches.
    """
    sink = started(tmp_path)
    sink.commit(SCOPE, [attempt(sink, 0, 0, 0)])
    store = FaultyFileStore(open_file_store(str(tmp_path)))
    monkeypatch.setattr(sink_module, "open_file_store", lambda *_: store)
    sink.claim(Scope("query", "next", 2, "files"), Driver("next", "localhost", 1, 0), [], lambda traces: None)
    listed = [folder for operation, folder in store.operations if operation == "list"]
    assert listed and all(folder.startswith("_staging/") for folder in listed)
    assert [trace.batch_id for trace in sink.traces(SCOPE, []) if trace.batch_id is not None] == [0, 0]


def test_a_start_looks_for_what_is_newer_than_the_checkpoint_only(tmp_path: Path) -> None:
    """Each start listed every file and every manifest of the query's life, twice: minutes, in a bucket."""
    sink = started(tmp_path)
    made = [attempt(sink, batch, 0, batch) for batch in range(3)]
    for one in made:
        sink.commit(SCOPE, [one])

    def newer(newest: list[Committable]) -> list[int]:
        return [trace.batch_id for trace in sink.traces(SCOPE, newest) if trace.batch_id is not None]

    assert newer([made[2]]) == []
    assert newer([made[1]]) == newer([made[0], made[1]]) == newer([]) == [2, 2], "a manifest and a file"
    for manifest in tmp_path.glob("_holdfast/*/*/batches/*2.json"):
        manifest.unlink()
    assert newer([made[1]]) == [2], "a file whose driver died before its manifest"
    for file in tmp_path.glob("*.parquet"):
        file.unlink()
    assert newer([made[1]]) == [] and newer([made[0]]) == [1], "or was moved elsewhere since"


def test_a_local_disk_that_is_full_when_the_rows_are_all_written_is_told_as_one(tmp_path: Path) -> None:
    """Most of a Parquet file is written as it is closed."""
    writer = started(tmp_path / "out").open(SinkTask(SCOPE, 0, 0, 0, 1))
    writer.write(rows(0, 0))
    with files_of_at_most(100), pytest.raises(Unavailable, match=r"partition 0, .* cannot be written: .* set TMPDIR"):
        writer.prepare()
    writer.abort()
    assert not [staged for staged in (tmp_path / "out" / "_staging").rglob("*") if staged.is_file()]
    assert not list((tmp_path / "out").rglob("*.parquet"))
