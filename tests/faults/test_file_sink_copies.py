"""Two copies of one checkpoint write to one folder of a FileSink: the second driver starts at each look that the first
one takes at the folder. Whatever becomes of the two, no batch is of both.
"""

from __future__ import annotations

import itertools
import os
import shutil
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any

import pyarrow as pa
import pytest
from tests.faults.file_reading import FolderReader

from holdfast.clock import SystemClock
from holdfast.commit.batch import Replay, TaskResult
from holdfast.commit.committer import CommitOptions, Committer
from holdfast.commit.epochs import Driver
from holdfast.commit.retries import Retries
from holdfast.commit.sink import Scope, SinkTask
from holdfast.errors import Fenced, HoldfastError, Incompatible, Unavailable
from holdfast.sink.files import FileSink
from holdfast.sink.files import sink as sink_module
from holdfast.storage import FileStore, open_file_store

PARTITIONS = 2
QUERY = str(uuid.UUID(int=7))


class Copy:
    """One checkpoint, and its drivers."""

    def __init__(self, folder: Path, out: Path, mark: str) -> None:
        self.folder, self.mark = folder, mark
        self.sink = FileSink(str(out))
        self._attempts = itertools.count()

    def copied_to(self, folder: Path, out: Path, mark: str) -> Copy:
        shutil.copytree(self.folder, folder)
        return Copy(folder, out, mark)

    @property
    def batches(self) -> int:
        """Committed by Spark."""
        return len(list((self.folder / "commits").glob("*")))

    def run(self, batches: int) -> HoldfastError | None:
        """One driver, until so many batches are committed; or what ended it."""
        driver = Driver(str(uuid.uuid4()), "localhost", 1, 0)
        options = CommitOptions(Retries(1, 1, SystemClock()))
        committer = Committer(open_file_store(str(self.folder)), QUERY, driver, [self.sink], options)
        (self.folder / "commits").mkdir(parents=True, exist_ok=True)
        try:
            for batch in range(self.batches, batches):
                committer.run_batch(batch, lambda replay, batch=batch: self._job(committer, replay, batch))  # type: ignore[misc]
                (self.folder / "commits" / str(batch)).touch()
        except HoldfastError as error:
            return error
        finally:
            committer.close()
        return None

    def _job(self, committer: Committer, replay: Replay | None, batch: int) -> list[TaskResult]:
        results = []
        for partition in range(PARTITIONS):
            number = next(self._attempts)
            if replay is not None and not replay.writes("files", partition):
                results.append(TaskResult(partition, 0, number, 1))
                continue
            writer = self.sink.open(SinkTask(committer.scope("files"), batch, partition, 0, number))
            writer.write(pa.record_batch({"batch": [batch], "partition": [partition], "by": [self.mark]}))
            prepared = writer.prepare()
            assert prepared is not None
            results.append(TaskResult(partition, 0, number, 1, {"files": prepared}))
        return results


@contextmanager
def watched(look: Callable[[str], object]) -> Iterator[None]:
    """Told of each operation of sinks on their folder, before it."""

    class Watched:
        def __init__(self, store: FileStore) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            found = getattr(self._store, name)
            if not callable(found):
                return found

            def called(*arguments: object, **named: object) -> object:
                look(name)
                return found(*arguments, **named)

            return called

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink_module, "open_file_store", lambda *given: Watched(open_file_store(*given)))
        yield


@contextmanager
def at_look(wanted: int, action: Callable[[], object]) -> Iterator[list[bool]]:
    """Runs an action in between the operations of sinks on their folder, once, before the one of that number."""
    looks, happened = itertools.count(), list[bool]()

    def look(_: str) -> None:
        if not happened and next(looks) == wanted:
            happened.append(True)
            action()

    with watched(look):
        yield happened


class Paused(Thread):
    """A driver that stands still before one of its looks at the folder, by number and operation, until it may go on."""

    def __init__(self, copy: Copy, batches: int, wanted: Callable[[int, str], bool]) -> None:
        super().__init__(daemon=True)
        self._copy, self._batches, self._wanted = copy, batches, wanted
        self._looks, self._may_go_on, self._stands = itertools.count(), Event(), Event()
        self.was_paused = False
        self.end: HoldfastError | None = None

    def run(self) -> None:
        try:
            self.end = self._copy.run(self._batches)
        finally:
            self._stands.set()

    def look(self, operation: str) -> None:
        if self._wanted(next(self._looks), operation) and not self.was_paused:
            self.was_paused = True
            self._stands.set()
            self._may_go_on.wait()

    def until_it_stands(self) -> None:
        self.start()
        self._stands.wait()

    def to_the_end(self) -> HoldfastError | None:
        self._may_go_on.set()
        self.join()
        return self.end


def look_of_thread(operation: str) -> None:
    thread = current_thread()
    if isinstance(thread, Paused):
        thread.look(operation)


def check(out: Path, batches: int) -> None:
    """Each batch is whole, or not there yet, and of one of the two."""
    by: dict[int, set[str]] = defaultdict(set)
    there: dict[int, list[int]] = defaultdict(list)
    for row in FolderReader(out).rows():
        by[row["batch"]].add(row["by"])
        there[row["batch"]].append(row["partition"])
    assert all(len(marks) == 1 for marks in by.values()), f"written by both: {dict(by)}"
    whole = list(range(PARTITIONS))
    assert {batch: sorted(found) for batch, found in there.items()} == dict.fromkeys(range(batches), whole)


def go_on(mine: Copy, theirs: Copy, batches: int) -> int:
    """Whoever operates the two starts one of them until it is done; if it is told to take the other one, the other. How
    often that was told.
    """
    refused = 0
    for one in (mine, theirs, mine):
        for _ in range(3):
            last = one.run(batches)
            assert last is None or isinstance(last, (Incompatible, Unavailable)), last
        refused += isinstance(last, Incompatible)
        if last is None:
            return refused
    raise AssertionError(f"neither goes on: {last}")


def test_two_copies_that_write_files_at_once_never_write_one_batch_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both published their part of one batch: rows of two different runs stood side by side."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    refused = 0
    for look in itertools.count():
        out, folder = tmp_path / str(look) / "out", tmp_path / str(look)
        mine = Copy(folder / "original", out, "original")
        assert mine.run(1) is None
        theirs = mine.copied_to(folder / "copy", out, "copy")
        ends: list[HoldfastError | None] = []
        with at_look(look, lambda theirs=theirs, ends=ends: ends.append(theirs.run(3))) as happened:  # type: ignore[misc]
            ends.append(mine.run(3))
        assert all(end is None or isinstance(end, (Fenced, Incompatible, Unavailable)) for end in ends), ends
        refused += go_on(mine, theirs, 4)
        check(out, 4)
        shutil.rmtree(folder)
        if not happened:
            break
    assert look > 20 and refused > 5


def start_together(folder: Path, stand: tuple[Callable[[int, str], bool], Callable[[int, str], bool]]) -> list[bool]:
    """One copy stands still at a look, then the other one at another; the first goes on to its end, then the other.
    Whether they stood.
    """
    mine = Copy(folder / "original", folder / "out", "original")
    assert mine.run(1) is None
    theirs = mine.copied_to(folder / "copy", folder / "out", "copy")
    both = Paused(theirs, 2, stand[0]), Paused(mine, 2, stand[1])
    with watched(look_of_thread):
        for one in both:
            one.until_it_stands()
        ends = [one.to_the_end() for one in both]
    go_on(mine, theirs, 4)
    check(folder / "out", 4)
    assert all(end is None or isinstance(end, (Fenced, Incompatible, Unavailable)) for end in ends), ends
    shutil.rmtree(folder)
    return [one.was_paused for one in both]


def is_taking_over(_: int, operation: str) -> bool:
    return operation == "create_if_absent"


def test_of_two_copies_that_start_together_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One took over what the other had taken over meanwhile, and was fenced by it: both were refused for ever."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    for look in itertools.count():
        first, second = start_together(tmp_path / str(look), (is_taking_over, lambda number, _, at=look: number == at))  # type: ignore[misc]
        assert first
        if not second:
            break
    assert look > 20


def test_a_driver_whose_fences_are_gone_leaves_none_over_those_of_its_successor(tmp_path: Path) -> None:
    """A third copy had deleted them and was refused. The first one's sweep fenced the second, and both were refused."""
    sink = FileSink(str(tmp_path))
    mine, theirs = (Scope(QUERY, run_id, 1, "files") for run_id in ("mine", "theirs"))
    for scope in (mine, theirs):
        for fence in tmp_path.glob("_holdfast/*/*/fences/*"):
            fence.unlink()
        sink.claim(scope, Driver(scope.run_id, "localhost", 1, 0), [], lambda traces: None)
    with pytest.raises(Fenced, match="run theirs took sink 'files'"):
        sink.recover(mine, [])
    assert {trace.run_id for trace in sink.traces(mine, [])} == {"theirs"}
    sink.recover(theirs, [])


@pytest.mark.slow
def test_of_two_copies_that_stand_still_anywhere_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    pairs = 0
    for one in itertools.count():
        for other in itertools.count():
            numbers = one, other
            stood = start_together(tmp_path / "pair", tuple(lambda number, _, at=at: number == at for at in numbers))  # type: ignore[arg-type]
            pairs += 1
            if not stood[1]:
                break
        if not stood[0]:
            break
    assert pairs > 400


def test_what_killed_drivers_left_half_written_is_cleared_by_a_later_start(tmp_path: Path) -> None:
    one = Copy(tmp_path / "checkpoint", tmp_path / "out", "one")
    assert one.run(2) is None
    folders = [tmp_path / "checkpoint" / "holdfast" / QUERY / folder for folder in ("records", "epochs")]
    for folder in folders:
        (folder / ".tmp-killed").write_bytes(b"half")
        os.utime(folder / ".tmp-killed", (0, 0))
        (folder / ".tmp-writing").write_bytes(b"half")
    assert one.run(3) is None
    left = [path.name for folder in folders for path in folder.glob(".tmp-*")]
    assert left == [".tmp-writing"] * 2, "somebody may be writing these"
