"""What pandas makes of numbers: doubles of integers beside a null, and one NaN for a number that is none and for a
missing value. No state takes another number, or another key, for it without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.unit.state_bench import bind

import holdfast as hf
from holdfast.errors import InvalidRequest
from holdfast.testing import Harness

NAN, LARGE = float("nan"), 2**53 + 1


class Sums(hf.BatchProcessor):
    total = hf.ReducingState(pa.int64(), "sum")
    last = hf.ValueState(pa.float64())
    counts = hf.MapState(pa.float64(), pa.int64())

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        frame = batch.to_pandas()
        self.total.add_only(frame, frame["n"])


def of_arrow(values: list[float]) -> Any:
    """Of the type that has a null beside NaN, as ``to_pandas(types_mapper=pd.ArrowDtype)`` gives it."""
    return pa.table({"x": values}).to_pandas(types_mapper=pd.ArrowDtype)["x"]


def of_type(kind: str) -> Harness:
    return Harness(Sums(), "k", f"k {kind}, n long", "k string", null_keys=True)


def test_an_integer_key_that_pandas_rounds_beside_a_null_is_refused() -> None:
    """The state of another key was changed."""
    with of_type("long") as harness:
        with pytest.raises(InvalidRequest, match="key column 'k': .*a float from 9007199254740992 on may not be"):
            harness.process([{"k": LARGE, "n": 1}, {"k": None, "n": 10}])
    with of_type("long") as harness:
        harness.process([{"k": 2**53 - 1, "n": 1}, {"k": None, "n": 10}])
        harness.process([{"k": LARGE, "n": 5}])
        assert [harness.state("total", key) for key in (2**53 - 1, None, LARGE)] == [1, 10, 5]


@pytest.mark.parametrize("keys", [[NAN], [None], [NAN, None, 1.0]])
def test_a_nan_of_pandas_in_a_key_column_of_doubles_is_refused(keys: list[float | None]) -> None:
    """It was the key null, whichever it was meant to be."""
    rows = [{"k": key, "n": 1} for key in keys]
    with of_type("double") as harness:
        with pytest.raises(InvalidRequest, match="key column 'k': found NaN.*give the batch.*types_mapper=pd"):
            harness.process(rows)
    with of_type("string") as harness:
        harness.process([{"k": "a", "n": 1}, {"k": None, "n": 10}])
        assert harness.state("total", None) == 10


DOUBLES = pa.schema([("k", pa.float64())])
FORMS: dict[str, Callable[[list[Any]], Any]] = {
    "series": lambda values: pd.Series(values, dtype="float64"),
    "single": lambda values: pd.Series(values, dtype="float32"),
    "index": lambda values: pd.Index(values, dtype="float64"),
    "array": lambda values: pd.arrays.NumpyExtensionArray(np.array(values, "float64")),
    "objects": lambda values: pd.Series(values, dtype=object),
    "frame": lambda values: pd.DataFrame({"k": values}, dtype="float64"),
    "list": lambda values: [pd.Series(values, dtype="float64")],
}


@pytest.mark.parametrize("form", FORMS)
def test_whatever_of_pandas_it_is_in(form: str) -> None:
    processor = Sums()
    with bind(processor, DOUBLES, keys=DOUBLES):
        processor.total.add_only(FORMS[form]([1.0, 2.5]), 1)
        assert processor.total.get([1.0, 2.5, 3.0]).to_pylist() == [1, 1, None]
        with pytest.raises(InvalidRequest, match="key column 'k': found NaN"):
            processor.total.get(FORMS[form]([1.0, NAN]))
        if form not in ("frame", "list"):
            with pytest.raises(InvalidRequest, match="state 'counts', map keys: found NaN"):
                processor.counts.get([1.0, 1.0], FORMS[form]([1.0, NAN]))


def test_nan_is_a_key_where_it_is_no_word_for_null() -> None:
    """In Arrow, numpy, lists, and in the columns of pandas that have a null beside it."""
    processor = Sums()
    keys = [NAN, 1.0]
    masked = pd.Series(pd.arrays.FloatingArray(np.array(keys), np.array([False, False])))
    with bind(processor, DOUBLES, keys=DOUBLES):
        for given in (keys, pa.array(keys), np.array(keys), of_arrow(keys), masked):
            processor.total.add_only(given, 1)
            processor.counts.put(given, given, 1)
        assert processor.total.get(keys).to_pylist() == [5, 5]
        assert processor.counts.contains(keys, keys).to_pylist() == [True, True]


def test_a_nan_of_pandas_among_values_is_null() -> None:
    """A Series cannot tell the two apart: it clears. Every other form keeps NaN."""
    processor = Sums()
    with bind(processor, DOUBLES, keys=DOUBLES):
        for given, kept in (
            (pd.Series([NAN]), None),
            (pd.Series([NAN], dtype=object), None),
            (pa.array([NAN]), NAN),
            (np.array([NAN]), NAN),
            ([NAN], NAN),
            (of_arrow([NAN]), NAN),
        ):
            processor.last.put([1.0], 7.0)
            processor.last.put([1.0], given)
            assert repr(processor.last.get([1.0]).to_pylist()) == repr([kept])


class Shifted(hf.KeyedProcessor):
    rows = "pandas"

    def process(self, key: tuple[Any, ...], rows: pd.DataFrame, ctx: hf.Context) -> pd.DataFrame:
        return pd.DataFrame({"k": key[0], "before": rows["n"].shift(1)})


def test_an_integer_that_pandas_rounds_is_in_no_output_column() -> None:
    with Harness(Shifted(), "k", "k string, n long", "k string, before long") as harness:
        found = harness.process([{"k": "a", "n": 2**53 - 1}, {"k": "a", "n": 2}])
        assert found["before"].to_pylist() == [None, 2**53 - 1]
    with Harness(Shifted(), "k", "k string, n long", "k string, before long") as harness:
        with pytest.raises(InvalidRequest, match="output column 'before'.*give integers: 9007199254740992"):
            harness.process([{"k": "a", "n": LARGE}, {"k": "a", "n": 2}])
