"""Columns whose chunks have each a dictionary of its own, which Arrow does not put together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from tests.unit.state_bench import bind, make_context, purchases

import holdfast as hf
from holdfast.errors import InvalidRequest
from holdfast.state import outputs
from holdfast.state.arrays import to_array
from holdfast.state.outputs import OutputRows
from holdfast.state.python_values import python_of
from holdfast.testing import Harness

OUT = pa.schema([("user", pa.string()), ("tag", pa.string())])
COUNT = 70  # so that the words of two keys are more than indices of 8 bits tell apart


def words(lead: str) -> list[str]:
    return [f"{lead}-{number}" for number in range(COUNT)]


def categories(lead: str) -> pa.DictionaryArray:
    """As pandas' categories come to Arrow."""
    return pa.array(pd.Series(words(lead)).astype("category"))


def with_null(lead: str) -> pa.DictionaryArray:
    """Null is one of its words."""
    return pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array([lead, None]))


class ByKey(hf.KeyedProcessor):
    form = "table"

    def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> Iterator[Any]:
        table = pa.table({"tag": categories(key[0]), "user": [key[0]] * COUNT})
        yield table if self.form == "table" else table.to_batches()[0]


@pytest.mark.parametrize("form", ["table", "batch"])
def test_several_keys_may_yield_dictionaries(form: str) -> None:
    """Right with one key; with two the query died, and died again whenever it was started."""
    processor, context, users = ByKey(), make_context(), ["ada", "bob", "cyd"]
    processor.form = form
    with bind(processor, OUT) as bound:
        produced = [*bound.process(purchases(users, [1, 2, 3]), context), *bound.finish(context)]
    found = [row for _, rows in produced for row in rows.to_pylist()]
    assert found == [{"user": user, "tag": word} for user in users for word in words(user)]


@pytest.mark.parametrize("make", [categories, with_null])
def test_chunks_of_a_table_may_have_dictionaries_of_their_own(make: Any) -> None:
    parts = [pa.table({"user": ["x"] * len(make(lead)), "tag": make(lead)}) for lead in "ab"]
    given = OutputRows(OUT)
    given.add(pa.concat_tables(parts))
    given.add(parts)
    [found] = given.drain()
    assert found["tag"].to_pylist() == [word for lead in "abab" for word in make(lead).to_pylist()]


def test_output_of_dictionaries_that_no_one_array_holds_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def limited(column: Any, *arguments: Any) -> pa.Array:
        if len(column) > COUNT // 2:
            raise InvalidRequest("overflow")
        return to_array(column, *arguments)

    monkeypatch.setattr(outputs, "to_array", limited)
    monkeypatch.setattr(outputs, "UNDIVIDED_BYTES", 10)
    given = OutputRows(OUT)
    given.add(pa.concat_tables([pa.table({"user": words(lead), "tag": categories(lead)}) for lead in "ab"]))
    found = given.drain()
    assert [word for rows in found for word in rows["tag"].to_pylist()] == words("a") + words("b")


def in_lists(lead: str) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, COUNT - 1, COUNT], pa.int32()), categories(lead))


def in_structs(lead: str) -> pa.Array:
    lists = in_lists(lead)
    return pa.StructArray.from_arrays([lists, pa.array([b"a" * 16, None], pa.uuid())], ["words", "id"])


def in_maps(lead: str) -> pa.Array:
    return pa.MapArray.from_arrays(pa.array([0, 1, COUNT], pa.int32()), pa.array(words("key")), categories(lead))


def in_runs(lead: str) -> pa.Array:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, COUNT], pa.int32()), pa.array([lead, "end"]))
    return pa.StructArray.from_arrays([runs, categories(lead)], ["run", "word"])


@pytest.mark.parametrize(
    ("make", "type"),
    [
        (categories, pa.string()),
        (in_lists, pa.list_(pa.string())),
        (in_structs, pa.struct([("words", pa.list_(pa.string())), ("id", pa.uuid())])),
        (in_maps, pa.map_(pa.string(), pa.string())),
        (in_runs, pa.struct([("run", pa.string()), ("word", pa.string())])),
    ],
)
def test_values_in_chunks_of_nested_dictionaries(make: Any, type: pa.DataType) -> None:
    """Arrow's own error came through, though all of these are taken where they are one chunk."""
    x, y = make("x"), make("y")

    class Keeps(hf.BatchProcessor):
        value = hf.ValueState(type)

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            self.value.put(batch, pa.chunked_array([x, y]))
            together = self.value.get(batch)
            self.value.put(batch[: len(x)], x)
            self.value.put(batch[len(x) :], y)
            assert together.equals(self.value.get(batch))
            assert not together.null_count

    with bind(Keeps(), OUT) as bound:
        count = len(x) + len(y)
        list(bound.process(purchases([str(number) for number in range(count)], [0] * count), make_context()))


def test_keys_in_chunks_of_nested_dictionaries() -> None:
    key = pa.struct([("word", pa.string()), ("number", pa.int64())])
    found: list[Any] = []

    def keys(lead: str) -> pa.Array:
        return pa.StructArray.from_arrays([categories(lead), pa.array(range(COUNT), pa.int64())], ["word", "number"])

    class Counts(hf.BatchProcessor):
        count = hf.ReducingState(pa.int64(), "sum")

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            several = pa.chunked_array([keys("x"), keys("y"), keys("x")])
            for given in (several, pa.table({"user": several})):
                found.append(self.count.add(given, 1).to_pylist())

    with bind(Counts(), OUT, keys=pa.schema([("user", key)])) as bound:
        list(bound.process(pa.record_batch({"user": pa.array([{"word": "", "number": 0}], key)}), make_context()))
    assert found == [[1] * COUNT * 2 + [2] * COUNT, [3] * COUNT + [2] * COUNT + [4] * COUNT]


@pytest.mark.long
def test_chunks_that_no_one_array_holds_are_refused_by_their_state() -> None:
    many = pa.ListArray.from_arrays(pa.array([0, (1 << 31) - 1], pa.int32()), pa.nulls((1 << 31) - 1))

    class Keeps(hf.BatchProcessor):
        value = hf.ValueState(pa.list_(pa.int64()))

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            self.value.put(batch, pa.chunked_array([many, many]))

    with pytest.raises(InvalidRequest, match="state 'value', values: expected values that one array holds"):
        with bind(Keeps(), OUT) as bound:
            list(bound.process(purchases(["a", "b"], [1, 2]), make_context()))


def test_a_fold_of_ones_own_is_not_given_times_cut_short() -> None:
    """Of the words of a dictionary the nanoseconds were cut off, and nobody was told."""
    times = pa.array([1000, 1], pa.int64()).cast(pa.time64("ns")).dictionary_encode()

    class Folds(hf.BatchProcessor):
        latest = hf.ReducingState(pa.time64("ns"), lambda one, other: other)

        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
            self.latest.add_only(batch, times[: len(batch)])

    with bind(Folds(), OUT) as bound:
        list(bound.process(purchases(["a"], [1]), make_context()))
    with pytest.raises(InvalidRequest, match="state 'latest', values: a value of .* has no Python value"):
        with bind(Folds(), OUT) as bound:
            list(bound.process(purchases(["a", "b"], [1, 2]), make_context()))
    with pytest.raises(InvalidRequest, match="lists: a value of .* has no Python value"):
        python_of(pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), times), "lists")


def test_a_harness_takes_a_table_of_several_dictionaries() -> None:
    class Numbers(hf.BatchProcessor):
        def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> Iterator[Any]:
            yield pa.table({"user": batch["user"], "tag": [str(batch.num_rows)] * batch.num_rows})

    table = pa.concat_tables([pa.table({"user": categories(lead)}) for lead in "ab"])
    with Harness(Numbers(), "user", "user string", "user string, tag string") as harness:
        found = harness.process(table)
    assert sorted(found["user"].to_pylist()) == sorted(words("a") + words("b"))
    assert set(found["tag"].to_pylist()) == {str(2 * COUNT)}
