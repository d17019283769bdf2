"""Which of Spark's snapshots go before a query starts: those of no committed batch, and those of another attempt than
the one that counts; only such that nothing needs, and no other.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.repartitioned import ROCKSDB
from tests.spark_files import SparkFiles, content, lz4_stream

from holdfast.spark_files.stale_snapshots import forget_stale_snapshots
from holdfast.spark_files.state import SparkOperator, SparkState
from holdfast.storage import LocalFileStore, open_file_store

RETAINED = 100


def checkpoint(folder: Path, commits: int, *files: str) -> None:
    """With batches 0 to ``commits`` - 1."""
    for number in range(commits):
        plan(folder, number)
    for name in (*(f"commits/{number}" for number in range(commits)), "commits/metadata", *files):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def plan(folder: Path, batch_id: int, provider: str | None = None, partitions: int = 2) -> None:
    """Spark's log of a batch that begins."""
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    conf = {"spark.sql.shuffle.partitions": str(partitions)}
    if provider is not None:
        conf["spark.sql.streaming.stateStore.providerClass"] = provider
    planned = {"batchWatermarkMs": 0, "batchTimestampMs": 1_800_000_000_000, "conf": conf}
    (folder / "offsets" / str(batch_id)).write_text(f"v1\n{json.dumps(planned)}\n0")


def state_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in (folder / "state").rglob("*") if path.is_file()}


def forgotten(folder: Path) -> list[str]:
    before = state_of(folder)
    found = forget_stale_snapshots(open_file_store(str(folder)), RETAINED)
    gone = before - state_of(folder)
    assert gone >= set(found) and all(name.endswith(".crc") for name in gone - set(found))
    return found


@pytest.mark.parametrize(("snapshot", "delta"), [("snapshot", "delta"), ("zip", "changelog")])
@pytest.mark.parametrize("store", ["", "left-keyToNumValues/"])
def test_of_each_sort_with_its_checksums(tmp_path: Path, snapshot: str, delta: str, store: str) -> None:
    place = f"state/0/17/{store}"
    deltas = [f"{place}{version}.{delta}" for version in range(1, 5)]
    crcs = [f"{place}.4.{snapshot}.crc", f"{place}4.{snapshot}.crc", f"{place}.4.{delta}.crc"]
    checkpoint(tmp_path, 3, *deltas, f"{place}2.{snapshot}", f"{place}4.{snapshot}", *crcs)
    assert forgotten(tmp_path) == [f"{place}4.{snapshot}"]
    assert state_of(tmp_path) == {*deltas, f"{place}2.{snapshot}", crcs[2]}
    assert forgotten(tmp_path) == []


def test_what_is_committed_stays(tmp_path: Path) -> None:
    checkpoint(tmp_path, 4, *(f"state/0/0/{version}.delta" for version in range(1, 5)), "state/0/0/4.snapshot")
    assert forgotten(tmp_path) == []


@pytest.mark.parametrize("missing", [1, 2, 3, 4])
def test_one_that_is_needed_stays(tmp_path: Path, missing: int) -> None:
    """As where the commits are not those of this state, or cannot be seen."""
    deltas = [f"state/0/0/{version}.delta" for version in range(1, 5) if version != missing]
    checkpoint(tmp_path, 0, *deltas, "state/0/0/4.snapshot", "state/0/1/4.delta", "state/0/1/4.snapshot")
    assert forgotten(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    [
        "state/0/0/4_0b1c.zip",  # of Spark's checkpoint format 2, whose names are of one attempt
        "state/0/_metadata/4.snapshot",
        "state/0/0/4.snapshot.tmp",
        "state/0/4.snapshot",
        "other/0/0/4.snapshot",
        "state/0/0/4.sst",
    ],
)
def test_what_is_something_else_stays(tmp_path: Path, name: str) -> None:
    deltas = [f"state/0/0/{version}.{suffix}" for version in range(1, 5) for suffix in ("delta", "changelog")]
    checkpoint(tmp_path, 2, *deltas, name)
    assert forgotten(tmp_path) == [] and (tmp_path / name).exists()


def test_a_checkpoint_that_is_new(tmp_path: Path) -> None:
    assert forget_stale_snapshots(open_file_store(str(tmp_path / "none")), RETAINED) == []


@pytest.mark.parametrize("seed", range(200))
def test_every_version_that_could_be_read_can_be_read(tmp_path: Path, seed: int) -> None:
    """By Spark's own rule: the newest snapshot up to a version, and all deltas after it."""
    draw = random.Random(seed)
    commits, last = draw.randint(0, 9), draw.randint(1, 12)
    deltas = {version for version in range(1, last + 1) if draw.random() < 0.9}
    snapshots = {version for version in range(1, last + 1) if draw.random() < 0.3}

    def readable(snapshots: set[int]) -> set[int]:
        found = set()
        for version in range(1, last + 1):
            start = max((one for one in snapshots if one <= version), default=0)
            if all(one in deltas for one in range(start + 1, version + 1)):
                found.add(version)
        return found

    names = [f"state/0/0/{version}.delta" for version in deltas]
    checkpoint(tmp_path, commits, *names, *(f"state/0/0/{version}.snapshot" for version in snapshots), "state/0/0/x")
    gone = {int(Path(name).stem) for name in forgotten(tmp_path)}
    assert readable(snapshots - gone) == readable(snapshots)
    assert all(version > commits for version in gone)
    complete = set(range(1, last + 1)) == deltas
    assert not complete or gone == {version for version in snapshots if version > commits}


def handle(attempt: str) -> str:
    return f'{{"format":"holdfast.handle","version_id":"{attempt}"}}'


def query(folder: Path, batches: int, *, stale: int, first: int = 0) -> SparkFiles:
    """Two slots, of which the second has rows in batch ``stale`` - 1 alone; of version ``stale`` Spark has a snapshot
    that an attempt of that batch left which did not count. Versions up to ``first`` are gone.
    """
    files = SparkFiles(folder, "5e0c")
    for batch_id in range(batches):
        second = [handle("that counts")] if batch_id + 1 == stale else []
        files.commit(batch_id, [handle(f"of {batch_id}"), *second])
    files.write(
        f"state/0/0/{stale}.snapshot", lz4_stream(content([handle(f"of {stale - 1}"), handle("of no account")]))
    )
    for version in range(1, first + 1):
        (folder / f"state/0/0/{version}.delta").unlink()
    return files


def second_slot(folder: Path, version: int) -> str:
    """Of which attempt its handle is, as a reader of checkpoints finds it."""
    texts = SparkState(LocalFileStore(str(folder))).texts(SparkOperator(0, "applyInPandasWithState", 1), version, 1)
    return json.loads(list(texts)[1])["version_id"]


def test_of_a_committed_batch_one_of_another_attempt_goes(tmp_path: Path) -> None:
    """The task had run again, or the run before had snapshotted once more when the next one had begun."""
    query(tmp_path, 9, stale=4)
    assert forgotten(tmp_path) == ["state/0/0/4.snapshot"]
    assert forgotten(tmp_path) == []


def test_a_reader_goes_by_the_attempt_that_counts(tmp_path: Path) -> None:
    query(tmp_path, 9, stale=4)
    assert [second_slot(tmp_path, version) for version in (4, 6, 9)] == ["that counts"] * 3


def test_one_of_the_attempt_that_counts_stays(tmp_path: Path) -> None:
    """And what is before it is not read, so it does not matter."""
    files = query(tmp_path, 9, stale=4)
    files.write("state/0/0/7.snapshot", lz4_stream(content([handle("of 6"), handle("that counts")])))
    assert forgotten(tmp_path) == []


def test_those_before_one_that_goes_are_looked_at(tmp_path: Path) -> None:
    files = query(tmp_path, 9, stale=4)
    files.write("state/0/0/7.snapshot", lz4_stream(content([handle("of no account"), handle("of no account")])))
    files.write("state/0/0/2.snapshot", lz4_stream(content([handle("of 1")])))
    assert forgotten(tmp_path) == ["state/0/0/7.snapshot", "state/0/0/4.snapshot"]


def test_a_damaged_one_that_nothing_needs_goes(tmp_path: Path) -> None:
    query(tmp_path, 9, stale=4).write("state/0/0/4.snapshot", b"torn")
    assert forgotten(tmp_path) == ["state/0/0/4.snapshot"]


def test_one_of_another_attempt_that_is_needed_stays(tmp_path: Path) -> None:
    query(tmp_path, 9, stale=4, first=2)
    assert forgotten(tmp_path) == []


def test_one_that_sparks_maintenance_may_lean_on_stays(tmp_path: Path) -> None:
    """It deletes what comes before the newest snapshot that is older than what is retained."""
    query(tmp_path / "old", 118, stale=20)
    assert forgotten(tmp_path / "old") == []
    query(tmp_path / "young", 117, stale=20)
    assert forgotten(tmp_path / "young") == ["state/0/0/20.snapshot"]


def test_of_another_operator_none_is_read(tmp_path: Path) -> None:
    files = query(tmp_path, 9, stale=4)
    described = (tmp_path / "state/0/_metadata/metadata").read_text().replace("applyInPandasWithState", "dedupe")
    files.write("state/0/_metadata/metadata", described)
    assert forgotten(tmp_path) == []


def test_of_states_that_are_no_handles_none_goes(tmp_path: Path) -> None:
    """A program's own applyInPandasWithState."""
    files = query(tmp_path, 9, stale=4)
    files.write("state/0/0/4.delta", lz4_stream(content(["own"])))
    assert forgotten(tmp_path) == []


def test_where_only_spark_can_read_them_all_go_that_nothing_needs(tmp_path: Path) -> None:
    files = SparkFiles(tmp_path, "5e0c")
    for batch_id in range(9):
        files.write(f"commits/{batch_id}", "v1\n{}")
        plan(tmp_path, batch_id, ROCKSDB)
        files.write(f"state/0/0/{batch_id + 1}.changelog", "")
    for version in (2, 5, 8):
        files.write(f"state/0/0/{version}.zip", "")
    (tmp_path / "state/0/0/1.changelog").unlink()
    assert forgotten(tmp_path) == ["state/0/0/8.zip", "state/0/0/5.zip"]


def test_what_a_repartition_wrote_stays_though_a_batch_of_its_number_was_rolled_back(tmp_path: Path) -> None:
    """That batch left a changelog, of the partitions that were. Those since then lean on the snapshot."""
    files = SparkFiles(tmp_path, "5e0c")
    for batch_id in range(9):
        files.write(f"commits/{batch_id}", "v1\n{}")
        plan(tmp_path, batch_id, ROCKSDB, partitions=2 if batch_id < 5 else 3)
        files.write(f"state/0/0/{batch_id + 1}.changelog", "")
    for version in (3, 6, 8):
        files.write(f"state/0/0/{version}.zip", "")
    assert forgotten(tmp_path) == ["state/0/0/8.zip"]
    assert forgotten(tmp_path) == []


class _Busy(LocalFileStore):
    """Of a query that another driver runs: a batch is committed each time that somebody has listed the state."""

    batches = 9

    def list(self, prefix: str) -> Any:
        found = super().list(prefix)
        plan(Path(self.uri), self.batches)
        self.put(f"commits/{self.batches}", b"v1\n{}")
        self.batches += 1
        return found


def test_while_another_driver_goes_on_nothing_goes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    query(tmp_path, 9, stale=4)
    before = state_of(tmp_path)
    assert forget_stale_snapshots(_Busy(str(tmp_path)), RETAINED) == []
    assert state_of(tmp_path) == before
    assert "another driver runs it" in caplog.text


def test_a_log_of_spark_that_nobody_knows_keeps_no_query_from_its_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query(tmp_path, 9, stale=4).write("commits/8", "v7\n{}")
    assert forgotten(tmp_path) == []
    assert "version 'v7'" in caplog.text


def test_what_tasks_left_without_changelogs_stays_beside_an_older_changelog(tmp_path: Path) -> None:
    """Of an attempt that did not count, before the setting changed: Spark would read that in place of the snapshot."""
    files = SparkFiles(tmp_path, "query")
    for batch_id in range(4):
        files.write(f"commits/{batch_id}", "v1\n{}")
        plan(tmp_path, batch_id, ROCKSDB)
        files.write(f"state/0/0/{batch_id + 1}.changelog", "")
    files.write("state/0/0/4.zip", "")
    assert forget_stale_snapshots(open_file_store(str(tmp_path)), RETAINED, changelogs=False) == []
    assert forgotten(tmp_path) == ["state/0/0/4.zip"]
