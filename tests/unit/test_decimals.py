"""Decimals and floats that meet in a processor: what is kept and given equals what Python makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.testing import Harness

CENTS = [number / 100 for number in range(1, 2000)]


class Best(hf.KeyedProcessor):
    best = hf.ValueState(pa.decimal128(38, 18))

    def process(self, key: hf.Key, rows: Any, context: hf.Context) -> Iterator[Any]:
        for number in rows["x"].to_pylist():
            self.best.update(number)
            yield key[0], self.best.value()


class BestOfArrays(hf.BatchProcessor):
    best = hf.ValueState(pa.decimal128(38, 18))

    def process(self, batch: pa.RecordBatch, context: hf.Context) -> Iterator[Any]:
        for at in range(batch.num_rows):
            row = batch.slice(at, 1)
            self.best.put(row, row["x"])
            yield pa.table({"u": row["u"], "best": self.best.get(row)})


class AsTheyAre(hf.BatchProcessor):
    def process(self, batch: pa.RecordBatch, context: hf.Context) -> Iterator[Any]:
        yield pa.table({"u": batch["u"], "best": batch["x"]})


@pytest.mark.parametrize(
    ("processor", "single"),
    [(Best, False), (BestOfArrays, False), (AsTheyAre, False), (BestOfArrays, True), (AsTheyAre, True)],
)
def test_cents_in_doubles_are_cents_in_decimals(processor: type[Any], single: bool) -> None:
    kind, numbers = ("float", np.array(CENTS, np.float32)) if single else ("double", np.array(CENTS))
    with Harness(processor(), "u", f"u string, x {kind}", "u string, best decimal(38, 18)") as harness:
        rows = pa.table({"u": pa.array(["a"] * len(numbers)), "x": numbers})
        assert harness.process(rows)["best"].to_pylist() == [Decimal(repr(number)) for number in CENTS]


class Largest(hf.KeyedProcessor):
    best = hf.ReducingState(pa.float64(), "max")
    seen = hf.MapState(pa.float64(), pa.int64())

    def process(self, key: hf.Key, rows: Any, context: hf.Context) -> Iterator[Any]:
        for number in rows["x"].to_pylist():
            self.best.add(number)
            self.seen.put(number, 1)
            self.seen.put(float(number), 2)
            yield key[0], self.best.get()
        assert list(self.seen.keys()) == list(CENTS)


class LargestOfArrays(hf.BatchProcessor):
    best = hf.ReducingState(pa.float64(), "max")

    def process(self, batch: pa.RecordBatch, context: hf.Context) -> Iterator[Any]:
        yield pa.table({"u": batch["u"], "best": self.best.add(batch, batch["x"])})


@pytest.mark.parametrize("processor", [Largest, LargestOfArrays, AsTheyAre])
def test_cents_in_decimals_are_the_nearest_doubles(processor: type[Any]) -> None:
    with Harness(processor(), "u", "u string, x decimal(10, 2)", "u string, best double") as harness:
        column = pa.array([Decimal(repr(number)) for number in CENTS], pa.decimal128(10, 2))
        found = harness.process(pa.table({"u": pa.array(["a"] * len(column)), "x": column}))
        assert found["best"].to_pylist() == CENTS
