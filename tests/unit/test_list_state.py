"""List states, vectorised and per key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_count import examples
from tests.unit.state_bench import USER, bind, make_store, purchases, run

import holdfast as hf
from holdfast.errors import InvalidRequest
from holdfast.state import BatchListState


class Clicks(hf.BatchProcessor):
    clicks = hf.ListState(pa.int64())


@pytest.fixture
def clicks() -> Iterator[BatchListState]:
    processor = Clicks()
    with bind(processor, USER):
        yield processor.clicks


def test_rows_are_appended_in_order(clicks: BatchListState) -> None:
    clicks.add(["ada", "bob", "ada"], [1, 2, 3])
    clicks.add(["ada"], [4])
    found = clicks.get(["ada", "eve", "bob"])
    assert found.to_pylist() == [[1, 3, 4], [], [2]]
    assert found.type == pa.list_(pa.int64())


def test_null_elements_are_elements(clicks: BatchListState) -> None:
    clicks.add(["ada", "ada"], [None, 1])
    assert clicks.get(["ada"]).to_pylist() == [[None, 1]]


def test_one_element_for_all_rows(clicks: BatchListState) -> None:
    clicks.add(["ada", "bob"], 7)
    assert clicks.get(["ada", "bob"]).to_pylist() == [[7], [7]]


@pytest.mark.parametrize(
    "lists",
    [
        [[1, 2], None, [], [3]],
        pa.array([[1, 2], None, [], [3]]),
        pa.array([[1, 2], None, [], [3]], pa.large_list(pa.int32())),
        pa.chunked_array([pa.array([[1, 2], None]), pa.array([[], [3]], pa.list_(pa.int64()))]),
        pa.array([[9], [1, 2], None, [], [3]]).slice(1),
        pd.Series([[1, 2], None, [], [3]]),
    ],
    ids=lambda lists: str(type(lists).__name__),
)
def test_lists_are_appended_row_by_row(clicks: BatchListState, lists: Any) -> None:
    clicks.add_all(["ada", "bob", "ada", "ada"], lists)
    assert clicks.get(["ada", "bob"]).to_pylist() == [[1, 2, 3], []]


def test_a_null_list_over_elements_has_none(clicks: BatchListState) -> None:
    """Arrow allows offsets that span elements below a null; they were counted, and given to other keys."""
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), pa.array([1, 2, 3]), mask=pa.array([True, False]))
    clicks.add_all(["ada", "bob"], lists)
    assert clicks.get(["ada", "bob"]).to_pylist() == [[], [3]]
    clicks.update(["ada", "bob"], lists)
    assert clicks.get(["ada", "bob"]).to_pylist() == [[], [3]]


def test_update_replaces(clicks: BatchListState) -> None:
    clicks.add(["ada", "bob", "eve"], [1, 2, 3])
    clicks.update(["ada", "bob"], [[7, 8], []])
    assert clicks.get(["ada", "bob", "eve"]).to_pylist() == [[7, 8], [], [3]]


def test_update_takes_the_last_row_of_a_key(clicks: BatchListState) -> None:
    clicks.update(["ada", "bob", "ada", "bob"], [[1], [2], [3], None])
    assert clicks.get(["ada", "bob"]).to_pylist() == [[3], []]


def test_clear_forgets(clicks: BatchListState) -> None:
    clicks.add(["ada", "bob"], [1, 2])
    clicks.clear(["ada"])
    clicks.add(["ada"], [3])
    assert clicks.get(["ada", "bob"]).to_pylist() == [[3], [2]]


def test_wrong_elements_are_named(clicks: BatchListState) -> None:
    with pytest.raises(InvalidRequest, match=r"state 'clicks', elements: expected int64, found 'x'"):
        clicks.add(["ada"], ["x"])
    with pytest.raises(InvalidRequest, match=r"state 'clicks', lists: expected list<item: int64>, found list<item: st"):
        clicks.add_all(["ada"], pa.array([["x"]]))
    with pytest.raises(InvalidRequest, match="1 keys but 2 lists"):
        clicks.update(["ada"], [[1], [2]])


ELEMENT = pa.struct([("at", pa.int64()), ("tags", pa.list_(pa.string()))])


class Journal(hf.KeyedProcessor):
    """Adds by both calls and reads in between."""

    entries = hf.ListState(ELEMENT)

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
        before = self.entries.get()
        entry = {"at": len(before), "tags": ["a"]}
        self.entries.add(entry)
        entry["tags"].append("later")  # type: ignore[attr-defined]
        self.entries.add_all([{"at": len(before) + 1, "tags": None}])
        self.entries.get()[0]["tags"].append("changed")
        assert [e["at"] for e in self.entries] == list(range(len(before) + 2))
        assert all(e["tags"] in (["a"], None) for e in self.entries.get())


def test_a_key_reads_what_it_added() -> None:
    store = make_store()
    for _ in range(3):
        run(Journal(), [purchases(["ada", "bob"], [0, 0])], USER, store)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 9)),
        st.tuples(st.just("add_all"), st.lists(st.integers(0, 9), max_size=3)),
        st.tuples(st.just("update"), st.lists(st.integers(0, 9), max_size=3)),
        st.tuples(st.just("clear"), st.none()),
        st.tuples(st.just("get"), st.none()),
    ),
    max_size=6,
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), STEPS), min_size=1, max_size=4), min_size=1, max_size=4))
def test_any_steps_of_any_keys_are_those_of_python_lists(batches: list[list[tuple[str, Any]]]) -> None:
    model: dict[str, list[int]] = {}

    class Steps(hf.KeyedProcessor):
        state = hf.ListState(pa.int64())

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            mine = model.setdefault(key[0], [])
            for number in rows["amount"].to_pylist():
                for call, argument in steps[number]:
                    if call == "get":
                        assert self.state.get() == mine
                    elif argument is None:
                        self.state.clear()
                        mine.clear()
                    else:
                        getattr(self.state, call)(argument)
                        if call == "update":
                            mine.clear()
                        mine.extend([argument] if call == "add" else argument)

    store = make_store()
    for batch in batches:
        steps = [step for _, step in batch]
        run(Steps(), [purchases([key for key, _ in batch], list(range(len(batch))))], USER, store)
    check = Steps()
    steps = [[("get", None)]]
    run(check, [purchases(list("abc"), [0, 0, 0])], USER, store)


@pytest.mark.parametrize("null", [None, pd.NA, pa.scalar(None, pa.list_(pa.int64()))], ids=repr)
def test_update_with_null_clears_in_both_forms(null: Any) -> None:
    """Key by key it was refused, and the batch lost, though the guide says that null clears."""

    class ByKey(hf.KeyedProcessor):
        clicks = hf.ListState(pa.int64())
        slot = hf.OperatorState(pa.int64(), redistribution="split")

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[dict[str, Any]]:
            self.clicks.add(1)
            self.clicks.update(null)
            assert self.clicks.get() == []
            self.clicks.add(2)
            self.slot.add(1)
            self.slot.update(null)
            self.slot.add(2)
            yield {"user": f"{self.clicks.get()} {self.slot.get()}"}

    class Vectorised(hf.BatchProcessor):
        clicks = hf.ListState(pa.int64())
        slot = hf.OperatorState(pa.int64(), redistribution="split")

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[dict[str, Any]]:
            self.clicks.add(batch, 1)
            self.clicks.update(batch, null)
            self.clicks.add(batch, 2)
            self.slot.add(1)
            self.slot.update(null)
            self.slot.add(2)
            yield {"user": f"{self.clicks.get(batch).to_pylist()[0]} {self.slot.get().to_pylist()}"}

    processors: list[hf.Processor] = [ByKey(), Vectorised()]
    for processor in processors:
        assert run(processor, [purchases(["ada"], [1])], USER) == [{"user": "[2] [2]"}]
