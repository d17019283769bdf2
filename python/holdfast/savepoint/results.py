"""What the functions of aggregating states make of what they have gathered: columns of results, for people."""

from __future__ import annotations

import importlib
import importlib.util

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.savepoint.columns import SKETCH


def result_of(accumulators: pa.Array, function: str | None) -> pa.Array:
    """What a function makes of what it gathered; nulls where only a library that is not here knows."""
    if function == "count":
        return accumulators
    if function == SKETCH:
        return _sketched(accumulators)
    of_row = dict(zip((f.name for f in accumulators.type), accumulators.flatten()))
    count = of_row["count"].cast(pa.float64())
    if function == "avg":
        return pc.if_else(pc.greater(count, 0), pc.divide(of_row["sum"], count), None)
    variance = pc.if_else(pc.greater(count, 1), pc.divide(of_row["m2"], pc.subtract(count, 1.0)), None)
    return variance if function == "variance" else pc.sqrt(variance)


def _sketched(sketches: pa.Array) -> pa.Array:
    if importlib.util.find_spec("datasketches") is None:
        return pa.nulls(len(sketches), pa.int64())
    hll = importlib.import_module("datasketches").hll_sketch
    return pa.array([round(hll.deserialize(sketch).get_estimate()) for sketch in sketches.to_pylist()], pa.int64())
