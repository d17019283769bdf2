"""Entries of one state at one version of a slot as rows of its table: real types, positions, results, expiry.

The columns are those of savepoints (docs/formats/savepoint.md). Owner: one thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast import _core
from holdfast.checkpoint.as_of import AsOf, expiry_of
from holdfast.checkpoint.expiry import NOT_BEGUN
from holdfast.checkpoint.handle import NamedVersion
from holdfast.checkpoint.operator_record import OperatorRecord
from holdfast.checkpoint.saved_operator import columns_of
from holdfast.checkpoint.state_record import StateRecord
from holdfast.checkpoint.value_schemas import core_schemas
from holdfast.savepoint.columns import as_type
from holdfast.savepoint.entries import rows_of, state_codec
from holdfast.savepoint.results import result_of


class StateRows:
    """Turns the entries of one state in one slot, given in key order, into rows.

    Parameters
    ----------
    ttl_ms
        What expiry is told by; None: rows have none.
    as_of
        The batch as of whose end the version is read; None: the version's own.
    """

    def __init__(
        self, record: OperatorRecord, state: StateRecord, handle: NamedVersion, ttl_ms: int | None, as_of: AsOf | None
    ) -> None:
        self.columns = columns_of(record, state)
        self._state = state
        self._slot = handle.slot
        self._codec = state_codec(
            self.columns, record.key_schema, state.id, record.max_parallelism, record.null_keys, core_schemas(state)
        )
        expiry = expiry_of(handle, as_of)
        self._expiry = next((one for one in expiry if one.state_id == state.id), None)
        self._ttl_ms = ttl_ms
        key = self.columns.key
        self._keys = _core.KeyCodec(record.key_schema, null_keys=record.null_keys) if len(key) else None
        self._last: tuple[bytes | None, int] | None = None  # of a list: the key of its last element, and its position

    def rows(self, entries: pa.RecordBatch) -> pa.RecordBatch:
        """The rows among a batch of entries; those that are expired are not among them."""
        expiry = self._expiry if self._expiry is not None and self._expiry.counts else None
        decoded = pa.record_batch(
            self._codec.decode(
                entries,
                cutoff_ms=expiry.cutoff_ms if expiry else None,
                since_ms=expiry.since_ms if expiry else None,
            )
        )
        decoded, since_ms = self._from_floor(decoded)
        rows = rows_of(decoded, self.columns, ttl_ms=self._ttl_ms, since_ms=since_ms, slot=self._slot)
        names = self.columns.names
        if "position" in names and rows.num_rows:
            rows = _with(rows, names["position"], self._positions(decoded))
        if "accumulator" in names and "value" in names:
            gathered = rows.column(names["accumulator"])
            rows = _with(rows, names["value"], result_of(gathered, self._state.function))
        schema = self.columns.schema
        return pa.RecordBatch.from_arrays([as_type(rows.column(f.name), f.type) for f in schema], schema=schema)

    def _from_floor(self, decoded: pa.RecordBatch) -> tuple[pa.RecordBatch, int | None]:
        """With the stamps that count, and that of entries without one; None: when they expire is not known yet."""
        expiry = self._expiry
        if expiry is None or expiry.floor_ms is None:
            return decoded, expiry.since_ms if expiry is not None and expiry.counts else None
        stamps = decoded.column("stamp")
        if expiry.floor_ms == NOT_BEGUN:
            return _with(decoded, "stamp", pa.nulls(len(stamps), stamps.type)), None
        stamps = pc.max_element_wise(stamps, pa.scalar(expiry.floor_ms, stamps.type), skip_nulls=False)
        return _with(decoded, "stamp", stamps), max(expiry.since_ms, expiry.floor_ms)

    def _positions(self, decoded: pa.RecordBatch) -> pa.Array:
        """Places in lists, which may go on from the batch before."""
        numbers = np.arange(len(decoded), dtype=np.int64)
        begins = decoded.column("begins").to_numpy(zero_copy_only=False)
        positions = numbers - np.maximum.accumulate(np.where(begins, numbers, 0))
        first, last = self._encoded(decoded, 0), self._encoded(decoded, len(decoded) - 1)
        if self._last is not None and self._last[0] == first:
            later = np.flatnonzero(begins[1:])
            positions[: later[0] + 1 if len(later) else len(positions)] += self._last[1] + 1
        self._last = (last, int(positions[-1]))
        return pa.array(positions)

    def _encoded(self, decoded: pa.RecordBatch, row: int) -> bytes | None:
        if self._keys is None:
            return None
        one = decoded.column("key").slice(row, 1)
        # Not by from_struct_array: before pyarrow 21 its columns forget that they are a part.
        key = pa.RecordBatch.from_arrays(one.flatten(), schema=pa.schema(list(one.type)))
        found: bytes = pa.array(self._keys.encode(key))[0].as_py()
        return found


def state_rows(rows: StateRows, entries: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows among batches of entries, without empty batches."""
    for batch in entries:
        found = rows.rows(batch)
        if found.num_rows:
            yield found


def _with(rows: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    number = rows.schema.get_field_index(name)
    columns = [column if at == number else old for at, old in enumerate(rows.columns)]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)
