"""Two copies of one checkpoint write to one folder of a FileSink: the second driver starts at each look that the first
one takes at the folder. Whatever becomes of the two, no batch is of both.
"""

from __future__ import annotations

import itertools
import shutil
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.faults.file_reading import FolderReader

from holdfast.clock import SystemClock
from holdfast.commit.batch import Replay, TaskResult
from holdfast.commit.committer import CommitOptions, Committer
from holdfast.commit.epochs import Driver
from holdfast.commit.retries import Retries
from holdfast.commit.sink import SinkTask
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
def at_look(wanted: int, action: Callable[[], object]) -> Iterator[list[bool]]:
    """Runs an action in between the operations of sinks on their folder, once, before the one of that number."""
    looks, happened = itertools.count(), list[bool]()

    class Watched:
        def __init__(self, store: FileStore) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            found = getattr(self._store, name)
            if not callable(found):
                return found

            def called(*arguments: object) -> object:
                if not happened and next(looks) == wanted:
                    happened.append(True)
                    action()
                return found(*arguments)

            return called

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink_module, "open_file_store", lambda path: Watched(open_file_store(path)))
        yield happened


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


def test_two_copies_that_write_files_at_once_never_write_one_batch_together(tmp_path: Path) -> None:
    """Both published their part of one batch: rows of two different runs stood side by side."""
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
        # Whoever operates the two starts one of them until it is done; if it is told to take the other one, the other.
        for one in (mine, theirs, mine):
            for _ in range(3):
                last = one.run(3)
                assert last is None or isinstance(last, (Incompatible, Unavailable)), last
            refused += isinstance(last, Incompatible)
            if last is None:
                break
        assert last is None, "neither goes on"
        check(out, 3)
        shutil.rmtree(folder)
        if not happened:
            break
    assert look > 20 and refused > 5
