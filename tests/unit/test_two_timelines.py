"""Two copies of one query, over hundreds of batches with little retention: what the batches that either retains need
stays, whoever tidies up, and goes once nobody needs it.

Over one state folder both stop once they see each other, and nothing goes until one is given up. With a copy of the
state folder too, both go on.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.slot_checkpoint import LIMITS, RETAINED, SlotCheckpoint, age

from holdfast.errors import Fenced, Incompatible

BATCHES = 200


def assert_bounded(query: SlotCheckpoint) -> None:
    """What is left is what so few retained batches need."""
    deltas = list((query.slot / "delta").iterdir())
    assert len(deltas) <= 4 * LIMITS.snapshot_deltas_max + RETAINED + 1, len(deltas)


@pytest.mark.long
def test_two_that_share_a_state_folder_lose_nothing_until_one_is_given_up(tmp_path: Path) -> None:
    query = SlotCheckpoint(tmp_path)
    query.batches(23)
    copy = query.copy("copied")
    original = query.process
    copy.start("local-copy")
    copy.batches(2)
    query.process = original
    begun = query.driver.next_batch
    for side in (query, copy):
        with pytest.raises(Fenced):
            side.batches(BATCHES)
        side.process.rest()
    assert query.driver.next_batch > begun  # so that both have what the other has not
    for number in range(10):  # as a supervisor starts them, again and again
        for side in (query, copy):
            side.start(f"local-{side.name}-{number % 2}")
            with pytest.raises((Fenced, Incompatible)):
                side.batches(BATCHES)
            side.process.rest()
    age(tmp_path / "store")
    for side in (query, copy):
        side.assert_right()
        with side.open() as opened:
            assert opened.gc(apply=True).files == ()
        side.assert_right()
    given_up = tuple(f"{query.name}-run-{number}" for number in range(1, 12))
    copy.start("local-copy", given_up)
    copy.batches(BATCHES)
    copy.assert_right()
    age(tmp_path / "store")
    with copy.open() as opened:
        found = opened.gc(apply=True, abandoned_runs=given_up)
    assert not found.kept
    copy.assert_right()
    assert_bounded(copy)


@pytest.mark.long
def test_two_that_have_a_state_folder_each_go_on_for_long_side_by_side(tmp_path: Path) -> None:
    query = SlotCheckpoint(tmp_path / "a")
    query.batches(23)
    shutil.copytree(tmp_path / "a" / "store", tmp_path / "b" / "store")
    shutil.copytree(tmp_path / "a" / query.name, tmp_path / "b" / query.name)
    fork = SlotCheckpoint(tmp_path / "b")
    fork.driver.handle, fork.driver.next_batch = query.driver.handle, query.driver.next_batch
    fork.driver.history, fork.driver.universe = list(query.driver.history), query.driver.universe
    for turn in range(4):
        for side in (query, fork):
            side.generator.seed(f"{side.folder.name} {turn}")
            side.batches(BATCHES // 4)
        query.assert_right()
        fork.assert_right()
    assert query.driver.history[-1] != fork.driver.history[-1]
    for side in (query, fork):
        age(side.folder / "store")
        with side.open() as opened:
            assert not opened.gc(apply=True).kept
        side.assert_right()
        assert_bounded(side)
