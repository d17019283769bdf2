"""A TTL that no time can be added to: refused, and what earlier releases wrote with one is read and restored."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.first_versions import QUERY, begun, slots_of
from tests.spark_files import SparkFiles

import holdfast as hf
from holdfast.errors import InvalidRequest
from holdfast.savepoint.columns import EXPIRY
from holdfast.source.state.source import StateDataSource
from holdfast.state import ttl
from holdfast.testing.harness import QUERY_ID, Harness

OPERATOR = "under-test"
ROWS = pa.schema([("expiry", pa.string()), ("at", pa.timestamp("ms", "UTC")), ("v", pa.int64())])
HOUR_MS, YEAR_MS = 3_600_000, 31_556_952_000
ENDLESS, LONG, SHORT = sys.maxsize, 400_000 * YEAR_MS, HOUR_MS


def made(folder: Path, ttl_ms: int, at: Any = None) -> int:
    """A query with two keys, and one of them written once more; its key column has the name of a column of tables. The
    time of its last batch.
    """

    class Last(hf.BatchProcessor):
        seen = hf.ValueState(pa.int64(), ttl=hf.TTL(ttl_ms))
        at = hf.ListState(pa.timestamp("ms", "UTC"))

        def process(self, batch: hf.Batch, ctx: hf.Context) -> Iterator[pa.RecordBatch]:
            self.seen.put(batch, batch["v"])
            self.at.add(batch, batch["at"])
            yield pa.record_batch([batch["v"]], names=["v"])

    spark = SparkFiles(folder / "checkpoint", QUERY_ID)
    output = pa.schema([("v", pa.int64())])
    with Harness(Last(), "expiry", ROWS, output, name=OPERATOR, folder=folder) as harness:
        for batch_id, names in enumerate((["a", "b"], ["b"])):
            harness.advance(1000)
            rows = [{"expiry": name, "at": at or datetime(2027, 1, 1, tzinfo=timezone.utc), "v": 1} for name in names]
            harness.process(pa.Table.from_pylist(rows, ROWS))
            handle = harness.snapshot().handle
            assert handle is not None
            spark.commit(batch_id, [handle.to_text()], timestamp_ms=harness.timestamp_ms)
        return harness.timestamp_ms


@pytest.fixture
def an_earlier_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """It took any TTL."""
    monkeypatch.setattr(ttl, "_DURATION_MAX_MS", sys.maxsize)


def in_spark(folder: Path, state: str, **options: str) -> pa.Table:
    given = {"checkpoint": str(folder / "checkpoint"), "operator": OPERATOR, "state": state, **options}
    reader: Any = (source := StateDataSource(given)).reader(source.schema())
    return pa.Table.from_batches([batch for part in reader.partitions() for batch in reader.read(part)])


def test_it_is_refused() -> None:
    for endless in (ENDLESS, (1 << 62) + 1, "106000000000 d"):
        with pytest.raises(InvalidRequest, match="expected at most 4611686018427387904 ms, .*needs no ttl="):
            hf.TTL(endless)
    assert hf.TTL(1 << 62).duration_ms == 1 << 62


@pytest.mark.parametrize("ttl_ms", [ENDLESS, LONG])
@pytest.mark.usefixtures("an_earlier_release")
def test_a_savepoint_of_one_is_restored_with_a_shorter_one(tmp_path: Path, ttl_ms: int) -> None:
    """It said that all was written in 1970, and with an hour to live all was gone."""
    latest_ms = made(tmp_path / "query", ttl_ms)
    saved = hf.Savepoint.create(checkpoint=tmp_path / "query" / "checkpoint", to=tmp_path / "saved")
    table = saved.read(OPERATOR, "seen").read_all()
    if ttl_ms == ENDLESS:
        assert table["expiry_"].null_count == 2
        ages = {"a": 0, "b": 0}  # not known any more: as if all was written last
    else:
        assert table["expiry_"].cast(pa.int64()).to_pylist() == [latest_ms - 1000 + ttl_ms, latest_ms + ttl_ms]
        ages = {"a": 1000, "b": 0}
    assert expiries_with(SHORT, tmp_path) == {name: latest_ms - age + SHORT for name, age in ages.items()}


@pytest.mark.usefixtures("an_earlier_release")
def test_a_savepoint_of_one_that_an_earlier_release_made_is_too(tmp_path: Path) -> None:
    """There the rows expire at the end of time."""
    latest_ms = made(tmp_path / "query", ENDLESS)
    base = hf.Savepoint.create(checkpoint=tmp_path / "query" / "checkpoint", to=tmp_path / "base")
    table = base.read(OPERATOR, "seen").read_all()
    ends = pa.array([sys.maxsize] * len(table)).cast(EXPIRY)
    table = table.set_column(table.column_names.index("expiry_"), "expiry_", ends)
    hf.Savepoint.write(tmp_path / "saved", hf.OperatorTables(OPERATOR, {"seen": table}), base=base)
    assert expiries_with(SHORT, tmp_path) == dict.fromkeys("ab", latest_ms + SHORT)


def expiries_with(ttl_ms: int, folder: Path) -> dict[str, int]:
    """When the rows of a query go that begins with the savepoint and another TTL."""
    (state,) = slots_of(begun(folder / "saved", OPERATOR, 1), folder)
    first = state.first_version()
    assert first is not None
    first = replace(first, expiry=tuple(replace(one, ttl_ms=ttl_ms) for one in first.expiry))
    SparkFiles(folder / "next", QUERY).commit(0, [first.to_text()], timestamp_ms=0)
    with hf.Checkpoint(folder / "next", state=folder / "state") as checkpoint:
        table = checkpoint.read(OPERATOR, "seen").read_all()
    return dict(zip(table["expiry"].to_pylist(), table["expiry_"].cast(pa.int64()).to_pylist()))


@pytest.mark.parametrize("ttl_ms", [ENDLESS, LONG])
@pytest.mark.usefixtures("an_earlier_release")
def test_spark_reads_a_state_whose_rows_go_after_all_times_that_it_has(tmp_path: Path, ttl_ms: int) -> None:
    """Spark's times end in the year 294247."""
    made(tmp_path, ttl_ms)
    found = in_spark(tmp_path, "seen")
    assert found["expiry"].to_pylist() == ["a", "b"]
    assert found["expiry_"].null_count == 2
    made_short = tmp_path / "short"
    made(made_short, SHORT)
    with hf.Checkpoint(made_short / "checkpoint") as checkpoint:
        expected = checkpoint.read(OPERATOR, "seen").read_all()["expiry_"]
    assert expected.null_count == 0
    assert in_spark(made_short, "seen")["expiry_"].cast(EXPIRY) == expected


def test_a_time_that_spark_has_not_is_told_by_column(tmp_path: Path) -> None:
    made(tmp_path, SHORT, at=sys.maxsize)
    with pytest.raises(InvalidRequest, match=r"column 'value' has a value of type timestamp\[ms, tz=UTC\] that Spark"):
        in_spark(tmp_path, "at")
    assert in_spark(tmp_path, "at", columns="expiry,position").num_rows == 3
