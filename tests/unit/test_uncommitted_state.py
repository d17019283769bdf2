"""Which of Spark's snapshots go before a query starts: those of no committed batch that nothing needs, and no other."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from holdfast.spark.uncommitted_state import forget_uncommitted_snapshots
from holdfast.storage import open_file_store


def checkpoint(folder: Path, commits: int, *files: str) -> None:
    """With batches 0 to ``commits`` - 1."""
    for name in (*(f"commits/{number}" for number in range(commits)), "commits/metadata", "offsets/0", *files):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def state_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in (folder / "state").rglob("*") if path.is_file()}


def forgotten(folder: Path) -> list[str]:
    before = state_of(folder)
    found = forget_uncommitted_snapshots(open_file_store(str(folder)))
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
    assert forget_uncommitted_snapshots(open_file_store(str(tmp_path / "none"))) == []


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
