"""A bare store under a processor: what the tests of states share. No base, no files, no Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from holdfast import _core
from holdfast.spark.keyed import state_records
from holdfast.state import BoundProcessor, Context, Processor

Backend: TypeAlias = Literal["rocksdb", "hashmap"]
MAX_PARALLELISM = 16
USER = pa.schema([pa.field("user", pa.string())])
USER_SHOP = pa.schema([pa.field("user", pa.string()), pa.field("shop", pa.int32())])


def make_store(key_schema: pa.Schema = USER) -> _core.Store:
    """A store of all key groups, in its first batch."""
    store = _core.Store(key_schema, max_parallelism=MAX_PARALLELISM, first_key_group=0, end_key_group=MAX_PARALLELISM)
    store.begin(1)
    return store


def reopened(store: _core.Store, key_schema: pa.Schema = USER) -> _core.Store:
    """Another store that has the batch of this one from its delta, in its next batch."""
    other = _core.Store(key_schema, max_parallelism=MAX_PARALLELISM, first_key_group=0, end_key_group=MAX_PARALLELISM)
    other.apply_delta(store.take_delta(), 1)
    other.begin(2)
    return other


def make_context(batch_id: int = 1, **others: Any) -> Context:
    given: dict[str, Any] = {
        "query_id": "q-1",
        "operator": "totals",
        "timestamp_ms": 1_700_000_000_123,
        "slot": 0,
        "slots": 4,
    }
    return Context(**{**given, "batch_id": batch_id, **others})


def bind(
    processor: Processor, output: pa.Schema, store: _core.Store | None = None, keys: pa.Schema = USER, **limits: Any
) -> BoundProcessor:
    """The processor at work on a store, each state with the id that it would be recorded under."""
    states = [(recorded.name, recorded.id) for recorded in state_records(processor)]
    return BoundProcessor(processor, store or make_store(keys), keys, states, output, **limits)


def run(
    processor: Processor,
    batches: Iterable[pa.RecordBatch],
    output: pa.Schema,
    store: _core.Store | None = None,
    keys: pa.Schema = USER,
    **limits: Any,
) -> list[dict[str, Any]]:
    """Output rows of one batch of a slot."""
    ctx = make_context()
    rows: list[dict[str, Any]] = []
    with bind(processor, output, store, keys, **limits) as bound:
        for batch in batches:
            for _, out in bound.process(batch, ctx):
                rows += out.to_pylist()
        for _, out in bound.finish(ctx):
            rows += out.to_pylist()
    return rows


def purchases(users: list[str], amounts: list[int | None], type: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.record_batch({"user": pa.array(users, pa.string()), "amount": pa.array(amounts, type or pa.int64())})


def users_error(caught: BaseException) -> tuple[BaseException | None, str]:
    """What a processor raised, and the note of where that was: Python 3.10 has no notes, so there it is the cause."""
    if sys.version_info < (3, 11):
        return caught.__cause__, str(caught)
    [note] = caught.__notes__
    return caught, note
