"""Rows of a batch that runs again, by hand of a model that knows each: of a query without operators, nothing becomes
visible twice that the check lets pass, and what only lost rows passes.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_count import examples
from tests.unit.test_repeats import repeated

from holdfast.errors import Incompatible

TASKS = 4


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[int], list[int], set[int], set[int]]:
    """Of each row its task then and now; which are gone; which tasks were lost, not all."""
    was = draw(st.lists(st.integers(0, TASKS - 1), min_size=1, max_size=12))
    now = [draw(st.one_of(st.just(task), st.integers(0, TASKS - 1))) for task in was]
    gone = draw(st.sets(st.integers(0, len(was) - 1), max_size=4))
    lost = draw(st.sets(st.integers(0, TASKS - 1), min_size=1, max_size=TASKS - 1))
    return was, now, gone, lost


def passes(was: list[int], now: list[int], gone: set[int], lost: set[int], keeps_tasks: bool) -> bool:
    before, after = Counter(was), Counter(task for row, task in enumerate(now) if row not in gone)
    counts = [[found[task] for task in range(TASKS)] for found in (before, after)]
    try:
        repeated(counts[0], counts[1], {"sink": lost}, keeps_tasks=keeps_tasks)
    except Incompatible:
        return False
    return True


@settings(max_examples=examples(300))
@given(batches())
def test_rows_that_are_only_gone_stop_nothing_where_tasks_are_kept(
    batch: tuple[list[int], list[int], set[int], set[int]],
) -> None:
    was, _, gone, lost = batch
    assert passes(was, was, gone, lost, keeps_tasks=True)
    is_done_smaller = any(was[row] not in lost for row in gone)
    assert passes(was, was, gone, lost, keeps_tasks=False) is not is_done_smaller


@settings(max_examples=examples(300))
@given(batches(), st.booleans())
def test_rows_that_only_moved_never_pass_into_what_is_written_again(
    batch: tuple[list[int], list[int], set[int], set[int]], keeps_tasks: bool
) -> None:
    """But for as many that moved the other way: no count tells those."""
    was, now, _, lost = batch
    into = sum(old not in lost and new in lost for old, new in zip(was, now))
    out = sum(old in lost and new not in lost for old, new in zip(was, now))
    assert into == out or not passes(was, now, set(), lost, keeps_tasks)


@settings(max_examples=examples(300))
@given(batches())
def test_a_source_that_may_split_anew_loses_no_row_of_what_is_done(
    batch: tuple[list[int], list[int], set[int], set[int]],
) -> None:
    """Where it passes, each task that is done has as many rows as it had, whatever moved and is gone."""
    was, now, gone, lost = batch
    if passes(was, now, gone, lost, keeps_tasks=False):
        after = Counter(task for row, task in enumerate(now) if row not in gone)
        assert all(after[task] == Counter(was)[task] for task in range(TASKS) if task not in lost)
