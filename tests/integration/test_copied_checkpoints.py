"""Copies of Spark's checkpoint, with real queries: neither copy becomes Corrupt, and the second is refused or apart."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.integration.copied_query import KEYED, SETTINGS
from tests.integration.test_totals import assert_totals, events
from tests.spark_sessions import ROOT, worker_path
from tests.streams import FileStream

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def operator(**settings: object) -> object:
    return hf.keyed("user", settings={**SETTINGS, **settings}, **KEYED)  # type: ignore[arg-type]


def copy_of(stream: FileStream, folder: Path) -> FileStream:
    shutil.copytree(stream.checkpoint, folder)
    return FileStream.over(stream.spark, stream.source.parent, folder)


def failure(stream: FileStream, transform: object) -> str:
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException) as caught:
        stream.run(transform)  # type: ignore[arg-type]
    return re.sub(r"\s+", " ", str(caught.value))


def snapshots(state: Path) -> set[Path]:
    """What is stored of them: a few batches are enough for one of each slot."""
    found = {path for path in state.rglob("*") if path.parent.name == "sst"}
    assert found
    return found


def test_an_older_copy_of_the_checkpoint_is_refused_and_the_original_goes_on(
    stream: FileStream, tmp_path: Path
) -> None:
    batches = [events(seed, rows=20) for seed in range(24)]
    stream.write(*batches[:8])
    stream.run(operator())  # type: ignore[arg-type]
    copy, of_the_copy = copy_of(stream, tmp_path / "copy"), snapshots(tmp_path / "state")
    stream.write(*batches[8:16])
    assert_totals(stream.run(operator()), batches[:16], after=8)  # type: ignore[arg-type]
    for _ in range(2):
        said = failure(copy, operator())
        assert re.search(
            r"Incompatible: operator 'totals', slot \d: .*at batch 7 .*taken on to batch 15.*abandonedRuns=", said
        )
    stream.write(*batches[16:])
    assert_totals(stream.run(operator()), batches, after=16)  # type: ignore[arg-type]
    assert of_the_copy - snapshots(tmp_path / "state"), "it is too old by now for its files to be there"
    assert "Incompatible" in failure(copy, operator()), "what it is told has not changed"


def test_a_copy_of_checkpoint_and_state_is_a_fork(stream: FileStream, spark: SparkSession, tmp_path: Path) -> None:
    batches = [events(seed, rows=20) for seed in range(24)]
    stream.write(*batches[:8])
    stream.run(operator())  # type: ignore[arg-type]
    fork = copy_of(stream, tmp_path / "copy")
    of_both = snapshots(tmp_path / "state")
    shutil.copytree(tmp_path / "state", tmp_path / "state of the copy")
    elsewhere = operator(**{"checkpoint.dir": str(tmp_path / "state of the copy")})
    stream.write(*batches[8:16])
    assert_totals(stream.run(operator()), batches[:16], after=8)  # type: ignore[arg-type]
    stream.write(*batches[16:])
    assert_totals(fork.run(elsewhere), batches, after=8)  # type: ignore[arg-type]
    assert_totals(stream.run(operator()), batches, after=16)  # type: ignore[arg-type]
    assert of_both - snapshots(tmp_path / "state"), "the original has deleted what it needed no more"


def test_two_copies_of_a_checkpoint_at_work_at_once(stream: FileStream, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    batches = [events(seed, rows=20) for seed in range(30)]
    stream.write(*batches[:12])
    stream.run(operator())  # type: ignore[arg-type]
    copy = copy_of(stream, tmp_path / "copy")
    stream.write(*batches[12:])
    arguments = [str(tmp_path), str(tmp_path / "state"), str(copy.checkpoint)]
    other = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.copied_query", *arguments],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": worker_path()}, cwd=ROOT,
    )  # fmt: skip
    assert other.stdout is not None
    try:
        said = next(line for line in other.stdout if line.startswith("started"))
        query = stream.start(stream.events().transform(operator()), processingTime="0 seconds")  # type: ignore[arg-type]
        deadline = time.monotonic() + 200
        while (query.isActive or other.poll() is None) and time.monotonic() < deadline:
            batches.append(events(len(batches), rows=20))  # there is always one more batch for both
            stream.write(batches[-1])
            time.sleep(0.5)
        with pytest.raises(StreamingQueryException) as caught:
            query.awaitTermination(1)
        theirs = "".join(other.stdout)
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    mine = re.sub(r"\s+", " ", str(caught.value))
    assert re.search(r"Fenced|Incompatible", mine) and "Corrupt" not in mine, mine
    assert "Corrupt" not in theirs and re.search(r"Fenced|Incompatible", theirs), (said, theirs)
    # Whichever is meant goes on, and has lost nothing.
    committed = stream.committed()[-1] + 1
    again = stream.run(operator(abandonedRuns=said.split()[1]))  # type: ignore[arg-type]
    assert len(again) == len(batches) - committed
    assert_totals(again, batches, after=committed)


def test_the_run_is_sparks_own_whatever_group_the_program_gives_its_jobs(stream: FileStream, tmp_path: Path) -> None:
    """A job group that is a UUID was taken for the run: the same in every start of a program, versions met."""
    rows: list[pa.Table] = []

    def keep(batch: object, batch_id: int) -> None:
        if batch_id % 2:
            batch.sparkSession.sparkContext.setJobGroup("11111111-1111-4111-8111-111111111111", "mine")  # type: ignore[attr-defined]
        rows.append(batch.toArrow())  # type: ignore[attr-defined]

    batches = [events(seed, rows=20) for seed in range(12)]
    stream.write(*batches)
    frame = stream.events().transform(operator())  # type: ignore[arg-type]
    query = (
        frame.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(stream.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert_totals(rows, batches)
    names = sorted(path.name for path in (tmp_path / "state").glob("*/totals/runs/*"))
    assert len(names) == 2, names
    assert names[0] == f"000000000001-{query.runId}.json"
    assert names[1].startswith("000000000002-instance-")


def test_a_batch_whose_action_runs_in_a_plain_thread_says_what_to_do(stream: FileStream) -> None:
    import threading

    from pyspark.errors import StreamingQueryException

    said: list[str] = []

    def in_a_thread(batch: object, batch_id: int) -> None:
        def act() -> None:
            try:
                batch.toArrow()  # type: ignore[attr-defined]
            except Exception as error:
                said.append(str(error))

        thread = threading.Thread(target=act)
        thread.start()
        thread.join()
        raise RuntimeError("the batch was not written")

    stream.write(events(0, rows=20))
    frame = stream.events().transform(operator())  # type: ignore[arg-type]
    query = (
        frame.writeStream.foreachBatch(in_a_thread)
        .option("checkpointLocation", str(stream.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException):
        query.awaitTermination()
    assert "InvalidRequest" in said[0] and "InheritableThread" in said[0], said
