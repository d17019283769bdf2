"""Real Spark, and a checkpoint folder that refuses, forgets its answers, or is slow while batches are committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.faults.file_reading import listed, named
from tests.faulty_file_store import FaultyFileStore
from tests.integration.test_totals import events
from tests.random_numbers import NUMBERS, RandomNumbers
from tests.streams import FileStream

import holdfast as hf
from holdfast.spark import write
from holdfast.storage import open_file_store

pytestmark = pytest.mark.spark
_WRITES = ("create_if_absent", "delete")


def start(stream: FileStream, folder: Path, **settings: str) -> Any:
    frame = stream.events().transform(hf.keyed("user", RandomNumbers(), NUMBERS, name="numbers"))
    sink = hf.FileSink(str(folder / "out"))
    return hf.write_exactly_once(
        frame, sink, checkpoint=stream.checkpoint, trigger={"availableNow": True}, settings=settings
    )


def check(folder: Path, rows: int) -> None:
    table = hf.FileSink.read(str(folder / "out"))
    assert table.num_rows == rows
    assert listed(folder / "out") == named(folder / "out")
    last: dict[str, int] = {}
    for row in table.to_pylist():
        assert row["before"] == last.get(row["user"]), row
        last[row["user"]] = row["number"]


@pytest.mark.parametrize("fail_after", [False, True])
def test_a_checkpoint_folder_that_fails_now_and_then_and_is_slow(
    stream: FileStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail_after: bool
) -> None:
    store = FaultyFileStore(
        open_file_store(str(stream.checkpoint)),
        fail_at=lambda count: count % 7 in (3, 4),
        fail_after=fail_after,
        delay_s=0.05,
    )
    monkeypatch.setattr(write, "open_checkpoint", lambda *_: store)
    stream.write(*[events(seed, rows=100) for seed in range(3)])
    start(stream, tmp_path, **{"commit.retry.backoff": "1 ms"}).awaitTermination()
    assert store.count > 20
    check(tmp_path, 300)


@pytest.mark.parametrize("fail_after", [False, True])
def test_a_query_that_gives_up_at_each_write_goes_on_when_it_is_started_again(
    stream: FileStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail_after: bool
) -> None:
    """No retries: each of the first writes of a run fails the query once."""
    stream.write(*[events(seed, rows=100) for seed in range(4)])
    failed = 0
    for failing in range(2, 7):  # the first is that of the README, before the query starts
        store = FaultyFileStore(
            open_file_store(str(stream.checkpoint)), fail_at=[failing], fail_after=fail_after, only=_WRITES
        )
        monkeypatch.setattr(write, "open_checkpoint", lambda *_, store=store: store)
        query = start(stream, tmp_path, **{"commit.retry.max": "0 ms"})
        try:
            query.awaitTermination()
        except hf.Unavailable:
            failed += 1
    monkeypatch.undo()
    assert failed >= 3
    start(stream, tmp_path).awaitTermination()
    check(tmp_path, 400)
