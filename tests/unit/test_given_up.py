"""A batch that has a commit record, and that Spark gave up as it repartitioned its state: seen by Spark's logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.commit_world import Run, World

from holdfast.commit.given_up import check_not_given_up
from holdfast.errors import Incompatible
from holdfast.storage import LocalFileStore


def checkpoint(folder: Path, *planned: tuple[int, int]) -> LocalFileStore:
    """Of each batch its time and its partitions."""
    (folder / "offsets").mkdir()
    for batch_id, (timestamp_ms, partitions) in enumerate(planned):
        said = {"batchTimestampMs": timestamp_ms, "conf": {"spark.sql.shuffle.partitions": str(partitions)}}
        (folder / "offsets" / str(batch_id)).write_text(f"v1\n{json.dumps(said)}\n-")
    return LocalFileStore(str(folder))


def test_batches_that_went_on_are_no_reason(tmp_path: Path) -> None:
    store = checkpoint(tmp_path, (100, 2), (200, 2), (300, 2), (300, 3), (400, 3), (400, 2), (500, 2))
    for batch_id in (0, 1, 2, 4, 6, 7):  # 3 and 5 are Spark's repartitions
        check_not_given_up(store, batch_id)


def test_one_that_was_not_committed(tmp_path: Path) -> None:
    store = checkpoint(tmp_path, (100, 2), (200, 2), (100, 3))
    with pytest.raises(
        Incompatible, match=r"batch 1 is visible.*commits/1 and later, offsets/2 and later, each 3\.zip below"
    ):
        check_not_given_up(store, 1)


def test_one_that_was_rolled_back_and_whose_number_is_a_repartitions(tmp_path: Path) -> None:
    store = checkpoint(tmp_path, (100, 2), (200, 2), (200, 3), (400, 3))
    with pytest.raises(
        Incompatible, match="batch 2 is visible.*was rolled back, and its state repartitioned.*`holdfast fork"
    ):
        check_not_given_up(store, 2)


@pytest.mark.parametrize("said", ["", "v1", "v1\n{}", "v1\n[]\n-", "v1\nno JSON", 'v1\n{"batchTimestampMs": 1}'])
def test_what_spark_does_not_say_is_no_reason(tmp_path: Path, said: str) -> None:
    store = checkpoint(tmp_path, (100, 2), (200, 2), (100, 3))
    for batch_id in (1, 2):
        (tmp_path / "offsets" / str(batch_id)).write_text(said)
        check_not_given_up(store, 1)


def test_a_start_after_a_batch_was_given_up_changes_nothing(tmp_path: Path) -> None:
    world = World(batches=2)
    Run(world).committer.run_batch(0, lambda replay: [])
    checkpoint(tmp_path, (200, 2), (100, 3))
    for name in ("offsets/0", "offsets/1"):
        world.files[name] = (tmp_path / name).read_bytes()
    before, owners = dict(world.files), dict(world.owners)
    with pytest.raises(Incompatible, match="Spark has given that batch up"):
        Run(world).committer.start()
    assert (world.files, world.owners) == (before, owners)
