"""The runs of an operator: they register once, in order, and only the newest may go on."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial

import pytest

from holdfast.checkpoint import Runs
from holdfast.checkpoint.names import run_digits
from holdfast.errors import Fenced, InvalidRequest
from holdfast.sealed import seal
from holdfast.storage import LocalFileStore, run_parallel

A, B = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"


@pytest.fixture
def store(tmp_path):
    return LocalFileStore(str(tmp_path))


def runs_of(store, run_id, instance=None):
    return Runs(store, "query/totals", "totals", run_id, instance or f"of {run_id}")


def test_runs_register_once_in_the_order_in_which_they_come(store):
    for run_id in (B, A):
        for _ in range(2):
            runs_of(store, run_id).register()
    assert [file.name for file in store.list("")] == [
        f"query/totals/runs/000000000001-{B}.json",
        f"query/totals/runs/000000000002-{A}.json",
    ]


def test_two_operators_of_one_name_in_one_run_are_refused(store):
    runs_of(store, A, "first").register()
    with pytest.raises(InvalidRequest, match="two operators of one query are both named 'totals'"):
        runs_of(store, A, "second").register()
    runs_of(store, A, "first").register()


def test_all_processes_of_a_run_may_register_at_once(store):
    run_parallel([lambda: runs_of(store, A).register() for _ in range(12)], 12)
    runs_of(store, A).register()
    assert len(store.list("query/totals/runs/")) == 1


def test_an_older_run_is_fenced_by_a_newer_one_and_stays_so(store):
    older, newer = runs_of(store, A), runs_of(store, B)
    older.register()
    older.check_newest()
    newer.register()
    newer.check_newest()
    for _ in range(2):
        with pytest.raises(Fenced, match=rf"run {B} began after this one, {A}"):
            older.check_newest()
    with pytest.raises(Fenced, match=B):
        runs_of(store, A).register()


@pytest.mark.parametrize("first, second", [(A, B), (B, A)])
def test_of_two_that_register_at_the_same_moment_the_later_goes_on(store, monkeypatch, first, second):
    """Both took one number, and the larger name counted as newer: a task that outlived its query fenced the next."""
    older, newer = runs_of(store, first), runs_of(store, second)
    listed: list[object] = []

    def looks_early():  # the second has looked, and the first registers before it creates its own
        found = Runs._list(newer)
        if not listed:
            listed.append(found)
            older.register()
        return found

    monkeypatch.setattr(newer, "_list", looks_early)
    newer.register()
    newer.check_newest()
    runs_of(store, second).register()
    with pytest.raises(Fenced, match=rf"run {second} began after this one, {first}"):
        older.check_newest()
    numbers = [(run.number, run.run_id) for run in Runs._list(newer)]
    assert sorted(numbers) == sorted([(1, first), (1, second), (2, second)])


def test_many_that_register_at_once_agree_on_one_newest(store):
    names = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(6)]

    def goes_on(run_id):
        try:
            runs_of(store, run_id).check_newest()
        except Fenced:
            return False
        return True

    def registers(run_id):
        with suppress(Fenced):
            runs_of(store, run_id).register()

    for _ in range(10):
        run_parallel([partial(registers, name) for name in names], len(names))
        assert sum(map(goes_on, names)) == 1
        store.delete([file.name for file in store.list("query/totals/runs/")])


def test_a_run_that_has_two_numbers_is_not_the_one_after_itself(store):
    made = runs_of(store, A)
    made.register(5)
    text = store.get(f"query/totals/runs/000000000001-{A}.json")
    store.put(f"query/totals/runs/000000000002-{A}.json", text)
    made.register(5)
    later = runs_of(store, B)
    later.register(6)
    assert later.ran_again(run_digits(A), 6) and not later.ran_again(run_digits(A), 5)


def test_a_run_whose_name_the_program_hides_in_some_batches_does_not_fence_itself(store):
    named, hidden = runs_of(store, A, "i"), runs_of(store, Runs.of_instance("i"), "i")
    named.register()
    hidden.register()
    named.check_newest()
    hidden.check_newest()
    assert named.own_digits & hidden.own_digits


def test_files_of_runs_do_not_grow_for_ever(store, monkeypatch):
    monkeypatch.setattr("holdfast.checkpoint.runs._KEPT", 30)
    for i in range(35):
        runs_of(store, f"{i:032x}").register()
    assert len(store.list("query/totals/runs/")) == 30
    with pytest.raises(Fenced):
        forgotten = runs_of(store, f"{3:032x}")
        forgotten.check_newest()


def test_runs_that_an_earlier_version_registered_are_older_than_all(store, tmp_path):
    store.put(f"query/totals/runs/{B}.json", b"whatever an earlier version wrote")
    runs = runs_of(store, A)
    runs.register()
    runs.check_newest()
    assert runs.registered_ms == int(
        os.stat(tmp_path / "query" / "totals" / "runs" / f"000000000001-{A}.json").st_mtime * 1000
    )


def test_a_run_that_spark_hides_in_some_batches_knows_its_other_name(store):
    """Retention took the query's own versions for another timeline's, and fenced it."""
    told, hidden = runs_of(store, A, "mine"), runs_of(store, Runs.of_instance("mine"), "mine")
    told.register()
    hidden.register()
    assert told.own_digits == hidden.own_digits
    stranger = runs_of(store, B)
    stranger.register()
    assert stranger.own_digits.isdisjoint(told.own_digits)


def test_a_program_that_starts_its_dataframe_again_has_two_runs(store):
    """One instance, which `hf.keyed` made, under two names of Spark's."""
    first, again = runs_of(store, A, "i"), runs_of(store, B, "i")
    first.register(5)
    again.register(5)
    assert again.ran_again(run_digits(A), 5)


def test_a_run_is_told_by_its_next_whether_a_batch_ran_again(store):
    """Not by the same run's other name, nor where the document of the next does not say, or is damaged."""
    made, hidden = runs_of(store, Runs.of_instance("i"), "i"), runs_of(store, A, "i")
    made.register(5)
    hidden.register(5)
    digits = run_digits(made.run_id)
    assert not hidden.ran_again(digits, 5)
    later = runs_of(store, B)
    later.register(5)
    assert later.ran_again(digits, 5) and not later.ran_again(digits, 6) and not later.ran_again(digits, 4)
    assert not later.ran_again(run_digits(B), 5) and not later.ran_again("f" * 16, 5)
    name = f"query/totals/runs/000000000003-{B}.json"
    for text in (seal("holdfast.run", 1, {"operator": "totals", "instance": "j"}).encode(), b"torn"):
        store.delete([name])
        store.put(name, text)
        assert not later.ran_again(digits, 5)
