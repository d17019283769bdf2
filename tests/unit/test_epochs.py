"""Epochs: who owns a checkpoint is told without a list, however long a driver slept."""

from __future__ import annotations

import pytest
from tests.faulty_file_store import FaultyFileStore

from holdfast.commit.epochs import Driver, Epochs
from holdfast.errors import Corrupt, Fenced, Unavailable
from holdfast.storage import LocalFileStore


def epochs(store, run_id="run"):
    return Epochs(store, "query", Driver(run_id, "host", 1, 0))


def test_an_owner_looks_without_a_list(tmp_path):
    """Each commit listed the epochs twice: object stores bill a list as a write."""
    store = FaultyFileStore(LocalFileStore(str(tmp_path)))
    mine = epochs(store)
    mine.claim()
    store.operations.clear()
    for _ in range(3):
        mine.check()
    assert {operation for operation, _ in store.operations} == {"get"}


@pytest.mark.parametrize("others", [1, 2, 9, 30])
def test_a_driver_that_slept_through_many_others_is_fenced(tmp_path, others):
    """The very next epoch after its own may be forgotten by then."""
    store = LocalFileStore(str(tmp_path))
    asleep = epochs(store)
    asleep.claim()
    for number in range(others):
        other = epochs(store, f"run {number}")
        other.claim()
        other.trim()
    with pytest.raises(Fenced, match=f"epoch {others + 1} "):
        asleep.check()


@pytest.mark.parametrize("kept", range(1, 4))
def test_a_driver_that_slept_is_fenced_while_the_old_ones_are_being_forgotten(tmp_path, kept):
    """Killed between two deletes: what is newer than the sleeper goes after the sleeper's own."""
    store = LocalFileStore(str(tmp_path))
    asleep = epochs(store)
    asleep.claim()
    for number in range(12):
        newest = epochs(store, f"run {number}")
        newest.claim()
    dying = FaultyFileStore(store, fail_at=[kept], only=["delete"])
    trimming = epochs(dying, "the newest")
    trimming.claim()
    with pytest.raises(Unavailable):
        trimming.trim()
    with pytest.raises(Fenced):
        asleep.check()


def test_the_last_drivers_are_remembered(tmp_path):
    """For who asks which of them was when."""
    store = LocalFileStore(str(tmp_path))
    for number in range(1, 13):
        mine = epochs(store, f"run {number}")
        mine.claim()
    mine.trim()
    assert mine.numbers() == list(range(5, 13))
    assert mine.driver_of(5) == Driver("run 5", "host", 1, 0)
    assert mine.driver_of(4) is None


def test_before_it_claims_a_driver_has_no_epoch(tmp_path):
    assert epochs(LocalFileStore(str(tmp_path))).mine == 0


def test_an_epoch_that_somebody_deleted_fences_nobody(tmp_path):
    store = LocalFileStore(str(tmp_path))
    mine = epochs(store)
    mine.claim()
    store.delete(["holdfast/query/epochs/000000000001.json"])
    mine.check()


def test_a_driver_is_fenced_by_one_of_whom_nothing_is_known(tmp_path):
    """Forgotten between the list and the look."""
    store = LocalFileStore(str(tmp_path))
    mine = epochs(store)
    mine.claim()
    epochs(store, "heir").claim()

    class Forgetful(LocalFileStore):
        def list(self, prefix):
            found = super().list(prefix)
            self.delete([one.name for one in found])
            return found

    mine._store = Forgetful(str(tmp_path))
    with pytest.raises(Fenced, match=r"epoch 2 \(of whom nothing more is known\)"):
        mine.check()


def test_a_damaged_epoch_is_told_by_its_name(tmp_path):
    store = LocalFileStore(str(tmp_path))
    mine = epochs(store)
    mine.claim()
    name = "holdfast/query/epochs/000000000001.json"
    (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(Corrupt, match=f"the epoch {name} in {store.uri} is damaged"):
        mine.driver_of(1)
