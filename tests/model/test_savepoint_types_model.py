"""Values of every type that states keep, through a savepoint and back into a store: the same values, by the oracle of
the states' own models.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_count import examples
from tests.model.kept_values import KINDS, Kind, token
from tests.spark_files import SparkFiles

import holdfast as hf
from holdfast import savepoint
from holdfast.savepoint.entries import state_codec
from holdfast.state.python_values import python_of
from holdfast.storage import open_file_store
from holdfast.testing.harness import QUERY_ID, Harness

ROWS = pa.schema([("user", pa.string()), ("row", pa.int64())])


def _processor(kind: Kind, offers: list[Any]) -> hf.KeyedProcessor:
    """Appends what is offered, one a row, and keeps the last that is something."""

    class Keeps(hf.KeyedProcessor):
        elements = hf.ListState(kind.type)
        last = hf.MapState(pa.int64(), kind.type)

        def process(self, key: tuple[Any, ...], rows: pa.Table, ctx: hf.Context) -> None:
            for row in rows["row"].to_pylist():
                offered = offers[row]()
                self.elements.add(offered)
                self.last.put(row, offers[row]())

    return Keeps()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.type)[:60])
def test_a_type(kind: Kind) -> None:
    @settings(deadline=None, max_examples=examples(2))
    @given(st.lists(kind.offers | st.just(((lambda: None), None)), min_size=1, max_size=6))
    def there_and_back(offers: list[Any]) -> None:
        with tempfile.TemporaryDirectory(prefix="holdfast-types-", ignore_cleanup_errors=True) as folder:
            _check(Path(folder), kind, offers)

    there_and_back()


def _check(folder: Path, kind: Kind, offers: list[Any]) -> None:
    spark = SparkFiles(folder / "checkpoint", QUERY_ID)
    processor = _processor(kind, [offered for offered, _ in offers])
    with Harness(processor, "user", ROWS, "n long", name="types", folder=folder) as harness:
        harness.process([{"user": "a", "row": row} for row in range(len(offers))])
        handle = harness.snapshot().handle
        assert handle is not None
        spark.commit(0, [handle.to_text()])
    expected = [token(kept) for _, kept in offers]
    with hf.Checkpoint(folder / "checkpoint") as checkpoint:
        for state in ("elements", "last"):
            assert _values(checkpoint.read("types", state).read_all()) == expected
        saved = hf.Savepoint.create(checkpoint=checkpoint, to=folder / "saved")
    for state in ("elements", "last"):
        assert _values(saved.read("types", state).read_all()) == expected
        assert _values(_restored(saved, folder, state)) == expected


def _restored(saved: hf.Savepoint, folder: Path, name: str) -> pa.Table:
    """A state's table, as entries and decoded again."""
    operator = saved.manifest.operator("types")
    state = operator.state(name)
    codec = state_codec(state.columns, operator.key_schema, 1, operator.max_parallelism, operator.null_keys)
    decoded = []
    for batch in savepoint.read_state(open_file_store(str(folder / "saved")), operator, state, str(folder)):
        delta = savepoint.entries_of(batch, state.columns, codec, ttl_ms=None)
        rows = delta.to_pylist()
        entries = pa.record_batch(
            {
                "key": pa.array([row["key_group"].to_bytes(2, "big") + b"\x00\x01" + row["key"] for row in rows]),
                "value": delta["value"],
            }
        )
        decoded.append(pa.record_batch(codec.decode(entries)))
    return pa.Table.from_batches(decoded)


def _values(table: pa.Table) -> list[Any]:
    column = table["value"].combine_chunks()
    values = column if isinstance(column, pa.Array) else column.chunk(0)
    return [token(value) for value in python_of(values, "values")]
