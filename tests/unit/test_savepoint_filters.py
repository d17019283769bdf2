"""Filters on a canonical savepoint give the rows for which they are true, as on a checkpoint: Parquet leaves out row
groups by their least and largest values, which say nothing of NaN.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.first_versions import begun, first_versions

import holdfast as hf

NAN = float("nan")
DEEP = pa.struct([("one", pa.float32()), ("many", pa.list_(pa.float32()))])


class Floats(hf.KeyedProcessor):
    value = hf.ValueState(pa.float64())
    narrow = hf.ListState(pa.float32())
    shares = hf.MapState(pa.float64(), pa.int64())
    deep = hf.ListState(DEEP)
    mean = hf.AggregatingState(pa.int64(), "avg")
    rules = hf.BroadcastState(pa.float64(), pa.int64())

    def process(self, key: Any, rows: Any, ctx: hf.Context) -> None: ...


class Whole(hf.KeyedProcessor):
    number = hf.ListState(pa.int64())

    def process(self, key: Any, rows: Any, ctx: hf.Context) -> None: ...


def made(folder: Path, processor: type, key: str, tables: dict[str, pa.Table], slots: int = 1) -> list[Any]:
    """The same rows three times: a canonical savepoint, a native one, a checkpoint."""
    saved = hf.Savepoint.write(folder / "made", hf.OperatorTables("of floats", tables, processor=processor, key=key))
    checkpoint = first_versions(begun(folder / "made", "of floats", slots), folder)
    return [saved, saved.convert(folder / "native"), checkpoint]


#: Of a row group each: what Parquet tells of it is that all is 1.0, or 0.0, or nothing.
_GROUPS = ([1.0, NAN], [0.0, NAN], [-0.0, NAN], [NAN])


@pytest.fixture(scope="module", params=_GROUPS, ids=str)
def floats(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> list[Any]:
    values = request.param
    keys, count = list(map(abs, values)), len(values)  # as keys, both zeros are one
    many = [{"one": value, "many": [value]} for value in values]
    tables = {
        "value": pa.table({"user": keys, "value": values}),
        "narrow": pa.table({"user": [1.0] * (count + 1), "value": pa.array([*values, None], pa.float32())}),
        "shares": pa.table({"user": [1.0] * count, "map_key": keys, "value": range(count)}),
        "deep": pa.table({"user": [1.0] * count, "value": many}),
        "mean": pa.table({"user": keys, "accumulator": [{"sum": value, "count": 1} for value in values]}),
        "rules": pa.table({"map_key": keys, "value": range(count)}),
    }
    return made(tmp_path_factory.mktemp("floats"), Floats, "user double", tables)


_PLACES: list[tuple[str, pc.Expression, pa.DataType]] = [
    ("value", pc.field("value"), pa.float64()),
    ("value", pc.field("user"), pa.float64()),
    ("narrow", pc.field("value"), pa.float32()),
    ("shares", pc.field("map_key"), pa.float64()),
    ("deep", pc.field("value", "one"), pa.float32()),
    ("deep", pc.list_element(pc.field("value", "many"), 0), pa.float32()),
    ("mean", pc.field("accumulator", "sum"), pa.float64()),
    ("mean", pc.field("value"), pa.float64()),
    ("rules", pc.field("map_key"), pa.float64()),
]


@pytest.mark.parametrize(("state", "field", "kind"), _PLACES, ids=itertools.count())
def test_a_filter_gives_rows_with_nan(floats: list[Any], state: str, field: pc.Expression, kind: pa.DataType) -> None:
    """They were left out by `value != 1.0` and `is_nan(value)`, where all other values of a row group were 1.0."""
    one, zero, below = (pa.scalar(value, kind) for value in (1.0, 0.0, -0.0))
    whole = floats[0].read("of floats", state).read_all()
    for condition in (
        field != one,
        ~(field <= one),
        ~(field == one),
        (field > one) | (field != zero),
        pc.is_nan(field),
        field.is_null(nan_is_null=True),
        field == below,
        field < zero,
        field.isin(pa.array([NAN], kind)),
        ~field.isin(pa.array([0.0, 1.0], kind)),
    ):
        expected = rows_of(whole.filter(condition))
        for rows in floats:
            found = rows.read("of floats", state, filter=condition).read_all()
            assert rows_of(found) == expected, (condition, type(rows).__name__)
    (name, *_) = whole.column_names
    some = floats[0].read("of floats", state, filter=field != one, columns=[name]).read_all()
    assert rows_of(some) == rows_of(whole.filter(field != one).select([name]))


def test_nan_is_neither_null_nor_equal(floats: list[Any]) -> None:
    values = floats[0].read("of floats", "narrow").read_all()["value"].to_pylist()
    number = pc.field("value")
    for wanted, count in (
        (pc.is_nan(number), 1),
        (number.is_null(), 1),
        (~(number == 1.0), len(values) - 1 - values.count(1.0)),
        (number == 0.0, values.count(0.0)),
    ):
        assert len(floats[0].read("of floats", "narrow", filter=wanted).read_all()) == count, wanted


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))  # NaN like NaN


def test_filters_on_columns_without_floats_know_null_from_other_rows(tmp_path: Path) -> None:
    """Parquet is asked for these: what it leaves out has no row for which they are true."""
    values = [1, None, 1, None]
    number = pc.field("value")
    conditions = [
        number != 1,
        ~(number <= 1),
        (number != 1) | number.is_null(),
        number.is_null(),
        ~number.is_null(),
        number.is_valid(),
        ~number.isin([1]),
        number.isin([1]),
    ]
    table = pa.table({"user": ["a"] * 4, "value": values})
    for number_of_rows, count in ((2, [0, 0, 1, 1, 1, 1, 1, 1]), (1, [0, 0, 0, 0, 1, 1, 0, 1])):
        part = table.slice(0, number_of_rows)
        for rows in made(tmp_path / str(number_of_rows), Whole, "user string", {"number": part}):
            found = [len(rows.read("of floats", "number", filter=one).read_all()) for one in conditions]
            assert found == count, type(rows).__name__
