"""What pandas makes of numbers: doubles of integers beside a null. No state takes another number, or another key, for
it without a word.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.errors import InvalidRequest
from holdfast.testing import Harness

LARGE = 2**53 + 1


class Sums(hf.BatchProcessor):
    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        frame = batch.to_pandas()
        self.total.add_only(frame, frame["n"])


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
