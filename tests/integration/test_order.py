"""Rows of one key from one source partition keep their order, whatever Spark does with them on the way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.processors import NUMBERED, Arrivals, number
from tests.streams import FileStream

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark


def arrivals_of(stream: FileStream, sources: int, processor: Arrivals, settings: dict[str, Any]) -> list[pa.Table]:
    def operator(frame: DataFrame) -> DataFrame:
        numbered = frame.repartition(sources).mapInArrow(number, NUMBERED)
        keyed = hf.keyed("key", processor, f"{NUMBERED}, slot int, arrival long", name="arrivals", settings=settings)
        return numbered.transform(keyed)

    return stream.run(operator)


def assert_in_order(output: pa.Table, rows: int) -> None:
    assert len(output) == rows
    last: dict[tuple[int, int], int] = {}
    for row in sorted(output.to_pylist(), key=lambda row: (row["slot"], row["arrival"])):
        key = (row["key"], row["source"])
        assert row["number"] > last.get(key, -1), f"{row} came after row {last[key]} of its source partition"
        last[key] = row["number"]


SMALL = {"pack.memory.max": "64 KiB", "pack.blob.max": "4 KiB"}


@pytest.mark.parametrize(
    ("settings", "fails"),
    [
        ({}, False),
        ({**SMALL, "slots": 5}, False),
        ({**SMALL, "memory.spool.max": "16 KiB"}, False),
        ({**SMALL, "memory.spool.max": "16 KiB"}, True),
    ],
    ids=["as it comes", "small blobs", "spooled", "spooled and retried"],
)
def test_rows_of_a_key_keep_the_order_of_their_source(
    stream: FileStream, tmp_path: Path, settings: dict[str, Any], fails: bool
) -> None:
    rows = 60_000
    stream.write(*(pa.table({"key": [i * 7 % 50 for i in range(rows)]}) for _ in range(2)))
    processor = Arrivals(str(tmp_path / "failed") if fails else None)
    output = arrivals_of(stream, 16, processor, settings)
    assert (tmp_path / "failed").exists() == fails
    assert len(output) == 2
    for table in output:
        assert len(set(table["source"].to_pylist())) == 16
        assert_in_order(table, rows)


def test_a_replay_sees_the_same_order(stream: FileStream) -> None:
    rows = 30_000
    stream.write(*(pa.table({"key": [i * 11 % 40 for i in range(rows)]}) for _ in range(2)))

    def in_order(table: pa.Table) -> list[dict[str, Any]]:
        return sorted(table.to_pylist(), key=lambda row: (row["slot"], row["arrival"]))

    first = arrivals_of(stream, 8, Arrivals(), SMALL)
    stream.roll_back(1)
    (again,) = arrivals_of(stream, 8, Arrivals(), SMALL)
    assert in_order(again) == in_order(first[-1])
