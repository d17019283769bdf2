"""approx_count_distinct: HyperLogLog of the Apache DataSketches library.

Stored are the sketch's own compact bytes (``hll_sketch.serialize_compact``, see
https://datasketches.apache.org/docs/HLL), about 2 KiB a key at most and a few bytes while few values were seen; any
release of DataSketches in any language reads them. Up to some dozens of distinct values the count is exact in
practice; beyond, its relative standard error is at most 1.04 / sqrt(4096) = 1.6 %.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as is_type

from holdfast import _core
from holdfast.arrow.arrays import decoded
from holdfast.errors import InvalidRequest, Unavailable
from holdfast.state.casts import storage_type

LG_K = 12  # 4,096 registers


class SketchFold:
    """A :class:`~holdfast.state.folds.Fold` whose accumulators are sketches and whose stored values are their bytes."""

    def __init__(self, type: pa.DataType) -> None:
        library = load_library()
        self.input_type = storage_type(type)
        self.stored = pa.binary()
        self.result_type = pa.int64()
        self._hll = library.hll_sketch
        self._compact = library.tgt_hll_type.HLL_4
        # Integers are sketched as they are; all else by the hash of its encoded key, so that any type that can be a
        # key can be counted, and so that empty text counts (DataSketches ignores it).
        self._codec = None if is_type.is_integer(type) and type != pa.uint64() else counting_codec(type)

    def inputs(self, values: pa.Array) -> list[Any]:
        values = decoded(values)
        if self._codec is None:
            found: list[Any] = values.to_pylist()
            return found
        present = values.drop_null()
        unsigned = [_core.xxh64(key) for key in pa.array(self._codec.encode(present)).to_pylist()]
        # The sketch takes signed integers of 64 bits.
        hashes = iter(np.array(unsigned, np.uint64).view(np.int64).tolist())
        return [next(hashes) if valid else None for valid in values.is_valid().to_pylist()]

    def load(self, stored: Any) -> Any:
        return self._hll.deserialize(stored)

    def dump(self, accumulator: Any) -> Any:
        return accumulator.serialize_compact()

    def add(self, accumulator: Any, value: Any) -> Any:
        if accumulator is None:
            accumulator = self._hll(LG_K, self._compact)
        accumulator.update(value)
        return accumulator

    def result(self, accumulator: Any) -> Any:
        return None if accumulator is None else round(accumulator.get_estimate())


def load_library() -> Any:
    """DataSketches, or an error that names the extra to install."""
    try:
        return importlib.import_module("datasketches")
    except ImportError as error:
        raise Unavailable(
            f"AggregatingState(…, 'approx_count_distinct') needs the package datasketches ({error})."
            " Install it on the driver and on all executors: pip install 'holdfast-spark[sketch]'"
        ) from error


def counting_codec(type: pa.DataType) -> _core.KeyCodec:
    """The codec whose bytes tell values apart; InvalidRequest for types that cannot be keys."""
    try:
        return _core.KeyCodec(pa.schema([pa.field("value", type)]))
    except InvalidRequest as error:
        raise InvalidRequest(f"approx_count_distinct cannot count {type}: {error}") from None
