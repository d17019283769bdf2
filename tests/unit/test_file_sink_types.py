"""A FileSink's rows read back, where columns have changed their types between two starts of a query."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.commit.sink import Outcome, Scope, SinkTask
from holdfast.errors import Incompatible
from holdfast.sink.files import FileSink
from holdfast.sink.files.alike import common

SCOPE = Scope("query", "run", 1, "files")


def written(folder: Path, *batches: pa.RecordBatch) -> str:
    sink = FileSink(str(folder))
    sink.recover(SCOPE, [])
    for batch_id, batch in enumerate(batches):
        writer = sink.open(SinkTask(SCOPE, batch_id, 0, 0, batch_id))
        writer.write(batch)
        committable = writer.prepare()
        assert committable is not None
        assert sink.commit(SCOPE, [committable]) == [Outcome.DONE]
    return str(folder)


def struct(**kinds: pa.DataType) -> pa.DataType:
    return pa.struct(list(kinds.items()))


DAY = dt.datetime(2026, 3, 1, 12, tzinfo=dt.timezone.utc)
OLD = struct(n=pa.int32(), many=pa.list_(pa.float32()), by=pa.map_(pa.string(), pa.decimal128(4, 1)))
NEW = struct(n=pa.int64(), many=pa.list_(pa.float64()), by=pa.map_(pa.string(), pa.decimal128(5, 3)))


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ((7, pa.int32()), (1 << 40, pa.int64()), pa.int64()),
        ((1 << 40, pa.int64()), (7, pa.int8()), pa.int64()),
        ((0.5, pa.float32()), (0.1, pa.float64()), pa.float64()),
        ((Decimal("99.5"), pa.decimal128(3, 1)), (Decimal("1.25"), pa.decimal128(3, 2)), pa.decimal128(4, 2)),
        (("a", pa.string()), ("b", pa.large_string()), pa.large_string()),
        (
            (DAY, pa.timestamp("us", "Europe/Berlin")),
            (DAY, pa.timestamp("us", "Asia/Tokyo")),
            pa.timestamp("us", "UTC"),
        ),
        (
            ({"n": 1, "many": [0.5, None], "by": [("a", Decimal("999.5"))]}, OLD),
            ({"n": 1 << 40, "many": [0.1], "by": [("b", Decimal("99.125"))]}, NEW),
            struct(n=pa.int64(), many=pa.list_(pa.float64()), by=pa.map_(pa.string(), pa.decimal128(6, 3))),
        ),
    ],
    ids=["wider", "narrower", "float", "decimal", "large", "zone", "nested"],
)
def test_a_column_whose_type_has_changed_has_the_type_of_all_its_values(
    before: tuple[Any, pa.DataType], after: tuple[Any, pa.DataType], kind: pa.DataType, tmp_path: Path
) -> None:
    """It was a bare TypeError of pyarrow, for good."""
    columns = [pa.array([value, None], of_type) for value, of_type in (before, after)]
    found = FileSink.read(written(tmp_path, *[pa.record_batch([one], names=["x"]) for one in columns]))
    assert found.schema.field("x").type == kind
    assert found["x"].to_pylist() == [before[0], None, after[0], None]


def test_columns_that_came_later_are_null_before_and_others_may_have_changed_beside_them(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        pa.record_batch({"x": pa.array([1], pa.int32())}),
        pa.record_batch({"y": pa.array(["b"]), "x": pa.array([2], pa.int64())}),
        pa.record_batch({"x": pa.array([3], pa.int16()), "y": pa.array(["c"])}),
    )
    assert FileSink.read(path).to_pylist() == [{"x": 1, "y": None}, {"x": 2, "y": "b"}, {"x": 3, "y": "c"}]


def test_a_column_of_which_no_type_holds_all_values_is_told_with_a_file_of_each_type(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        pa.record_batch({"x": pa.array([1], pa.int32())}),
        pa.record_batch({"x": pa.array([2], pa.int64())}),
        pa.record_batch({"x": pa.array([0.5])}),
    )
    first, _, third = [re.escape(file.name) for file in FileSink.files(path)]
    told = (
        f"column 'x' in {re.escape(path)} has changed its type: int32 in {first}, double in {third}, .*FileSink.files"
    )
    with pytest.raises(Incompatible, match=told):
        FileSink.read(path)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.int64(), pa.float64()),
        (pa.int32(), pa.float64()),
        (pa.int32(), pa.decimal128(10, 0)),
        (pa.int32(), pa.string()),
        (pa.decimal128(38, 0), pa.decimal128(38, 1)),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("s", "UTC"), pa.timestamp("ns", "Asia/Tokyo")),
        (pa.date32(), pa.timestamp("us")),
        (struct(a=pa.int32()), struct(a=pa.int32(), b=pa.int32())),
        (struct(a=pa.int32()), struct(a=pa.string())),
        (pa.list_(pa.int32()), pa.int32()),
        (pa.map_(pa.string(), pa.int32()), pa.list_(pa.int32())),
    ],
    ids=str,
)
def test_nothing_is_rounded_nor_made_up(one: pa.DataType, other: pa.DataType) -> None:
    assert common(one, other) is None and common(other, one) is None


def test_a_type_that_allows_nulls_is_wider_than_one_that_does_not() -> None:
    never, ever = (pa.struct([pa.field("a", pa.int32(), nullable=allowed)]) for allowed in (False, True))
    assert common(never, ever) == common(ever, never) == ever
    assert common(pa.null(), never) == common(never, pa.null()) == never
    fixed = pa.list_(pa.int32(), 2)
    assert common(fixed, pa.list_(pa.int64(), 2)) == pa.list_(pa.int64(), 2)
    assert common(fixed, pa.list_(pa.int64(), 3)) == common(fixed, pa.list_(pa.int64())) == pa.list_(pa.int64())
