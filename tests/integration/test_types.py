"""Values come through the pipe as they are: every type that Spark has and Arrow keeps, nested, null, at its edges."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import types as spark_types
from tests.processors import Passing, RunningTotalOfAnyKey
from tests.streams import FileStream

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
UTC = timezone.utc

COLUMNS = {
    "k": ("long", pa.int64(), [1, 2, 3, 4]),
    "bool": ("boolean", pa.bool_(), [True, False, None, True]),
    "byte": ("tinyint", pa.int8(), [-128, 127, None, 0]),
    "short": ("smallint", pa.int16(), [-32768, 32767, None, 0]),
    "int": ("int", pa.int32(), [-(1 << 31), (1 << 31) - 1, None, 0]),
    "long": ("long", pa.int64(), [-(1 << 63), (1 << 63) - 1, None, (1 << 53) + 1]),
    "float": ("float", pa.float32(), [1.5, float("inf"), None, -0.0]),
    "double": ("double", pa.float64(), [0.1, float("-inf"), None, 5e-324]),
    "small decimal": (
        "decimal(5,2)",
        pa.decimal128(5, 2),
        [Decimal("123.45"), Decimal("-0.01"), None, Decimal("0.00")],
    ),
    "large decimal": (
        "decimal(38,18)",
        pa.decimal128(38, 18),
        [Decimal("12345678901234567890.123456789012345678"), Decimal("-0.000000000000000001"), None, Decimal(0)],
    ),
    "string": ("string", pa.string(), ["", "Σ😀\0", None, "x" * 5000]),
    "binary": ("binary", pa.binary(), [b"", b"\x00\xff", None, bytes(range(256))]),
    "date": ("date", pa.date32(), [date(1969, 12, 31), date(9999, 12, 31), None, date(1, 1, 1)]),
    "timestamp": (
        "timestamp",
        pa.timestamp("us", "UTC"),
        [
            datetime(2026, 3, 29, 1, 30, 0, 1, UTC),  # does not exist on clocks in Berlin
            datetime(2026, 10, 25, 0, 30, tzinfo=UTC),  # exists twice there
            None,
            datetime(1900, 1, 1, tzinfo=UTC),
        ],
    ),
    "local timestamp": (
        "timestamp_ntz",
        pa.timestamp("us"),
        [datetime(2026, 3, 29, 2, 30), datetime(1900, 1, 1), None, datetime(9999, 12, 31, 23, 59, 59, 999999)],
    ),
    "interval": (
        "interval day to second",
        pa.duration("us"),
        [timedelta(days=-1, microseconds=1), timedelta(0), None, timedelta(days=9999)],
    ),
    "list": ("array<int>", pa.list_(pa.int32()), [[1, None, 3], [], None, [4]]),
    "lists": ("array<array<string>>", pa.list_(pa.list_(pa.string())), [[["a"], None, []], [], None, [[None]]]),
    "map": ("map<string,long>", pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)], [], None, [("", 0)]]),
    "struct": (
        "struct<a: int, b: array<struct<c: timestamp, d: decimal(10,3)>>>",
        pa.struct(
            [
                ("a", pa.int32()),
                ("b", pa.list_(pa.struct([("c", pa.timestamp("us", "UTC")), ("d", pa.decimal128(10, 3))]))),
            ]
        ),
        [
            {"a": 1, "b": [{"c": datetime(2026, 1, 1, tzinfo=UTC), "d": Decimal("1.500")}, None]},
            {"a": None, "b": []},
            None,
            {"a": 4, "b": None},
        ],
    ),
}


def spark_schema() -> str:
    return ", ".join(f"`{name}` {ddl}" for name, (ddl, _, _) in COLUMNS.items())


def arrow_table() -> pa.Table:
    return pa.table({name: pa.array(values, kind) for name, (_, kind, values) in COLUMNS.items()})


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Europe/Berlin"])
def test_every_type_comes_through(stream: FileStream, spark: SparkSession, zone: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    spark.createDataFrame(arrow_table(), spark_schema()).coalesce(1).write.parquet(str(stream.source), mode="append")
    (output,) = stream.run(hf.keyed("k", Passing(), spark_schema(), name="pass"))
    assert output.num_rows == 4
    found = output.sort_by("k")
    for name, (_, kind, values) in COLUMNS.items():
        assert found[name].cast(kind).to_pylist() == values, name
    assert str(found["double"].to_pylist()) == str(COLUMNS["double"][2])


@pytest.mark.skipif(not hasattr(spark_types, "TimeType"), reason="Spark before 4.1 has no times of day")
@pytest.mark.parametrize("precision", [0, 3, 6])
def test_times_of_day_come_through_and_are_kept(stream: FileStream, spark: SparkSession, precision: int) -> None:
    spark.conf.set("spark.sql.timeType.enabled", "true")
    spark.createDataFrame([], "k long")  # makes it the active session, by whose settings Spark checks plans

    class Latest(hf.KeyedProcessor):
        """The latest time of day of each key, and a note of it as an entry of a map."""

        latest = hf.ValueState(pa.time64("ns"))
        notes = hf.MapState(pa.time64("us"), pa.int64())

        def process(self, key: tuple[int], rows: pa.Table, ctx: hf.Context) -> Iterator[dict[str, object]]:
            for row in rows.to_pylist():
                if row["at"] is not None:
                    before = self.latest.value()
                    self.latest.update(max(row["at"], before or row["at"]))
                    self.notes[row["at"]] = len(self.notes.keys())
                yield {"k": key[0], "at": row["at"], "latest": self.latest.value(), "notes": len(self.notes.keys())}

    stream.write(pa.table({"k": [1, 1, 2]}), pa.table({"k": [1, 2, 2]}))
    times = f"cast(elt(k, '23:59:59.999999', '00:00:00') AS time({precision}))"
    rows = stream.events().selectExpr("k", f"nullif({times}, time'00:00:00') AS at")
    schema = f"k long, at time({precision}), latest time(6), notes long"
    query = stream.start(rows.transform(hf.keyed("k", Latest(), schema, name="latest")))
    query.awaitTermination()
    last = time(23, 59, 59, {0: 0, 3: 999000, 6: 999999}[precision])
    found = pa.concat_tables(stream.output.values()).sort_by("k").to_pylist()
    assert [row["k"] for row in found] == [1, 1, 1, 2, 2, 2]
    assert all(row == {"k": 1, "at": last, "latest": last, "notes": 1} for row in found[:3])
    assert all(row == {"k": 2, "at": None, "latest": None, "notes": 0} for row in found[3:])


def test_large_arrow_types_are_understood(stream: FileStream, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    stream.write(pa.table({"k": ["a", "b", None], "v": [b"1", None, b"3"]}))
    operator = hf.keyed("k", Passing(), "k string, v binary", name="pass", null_keys=True)
    (output,) = stream.run(operator)
    assert sorted(map(repr, output.to_pylist())) == sorted(
        map(repr, [{"k": "a", "v": b"1"}, {"k": "b", "v": None}, {"k": None, "v": b"3"}])
    )


@pytest.mark.parametrize("kind", ["boolean", "tinyint", "smallint", "int", "long", "float", "double", "decimal(9,4)"])
def test_numbers_as_keys(stream: FileStream, spark: SparkSession, kind: str) -> None:
    for first in (0, 100):
        frame = spark.range(first, first + 100).selectExpr(f"cast(id % 5 - 2 as {kind}) AS k", "id AS v")
        frame.coalesce(1).write.parquet(str(stream.source), mode="append")
    output = stream.run(hf.keyed("k", RunningTotalOfAnyKey(), f"k {kind}, v long, total long", name="totals"))
    assert len(output) == 2
    totals: dict[int, int] = {}
    expected = []
    for v in range(200):
        key = bool(v % 5 - 2) if kind == "boolean" else v % 5 - 2
        totals[key] = totals.get(key, 0) + v
        expected.append({"k": key, "v": v, "total": totals[key]})
    found = pa.concat_tables(output).sort_by("v")
    assert found.to_pylist() == expected
    assert type(found["k"][0].as_py()) is {"bo": bool, "fl": float, "do": float, "de": Decimal}.get(kind[:2], int)


def test_columns_of_any_name_come_through_exactly_once(stream: FileStream, tmp_path: Path) -> None:
    """PySpark takes a name with a dot for a field of a struct, and backticks for quotes."""
    table = pa.table({"user.id": [1, 2], "c`d": ["a", "b"], "slot": [3, 4], "blob": [5, 6], "_0": [7, 8]})
    stream.write(table)
    schema = "`user.id` long, `c``d` string, slot long, blob long, _0 long"
    out = stream.events().transform(hf.keyed("user.id", Passing(), schema, name="passing"))
    path = str(tmp_path / "exactly-once")
    trigger = {"availableNow": True}
    hf.write_exactly_once(out, hf.FileSink(path), checkpoint=stream.checkpoint, trigger=trigger).awaitTermination()
    rows = hf.FileSink.read(path).sort_by("user.id")
    assert rows.select(table.column_names).equals(table)


def test_columns_that_differ_in_case_alone_come_through_exactly_once(stream: FileStream, tmp_path: Path) -> None:
    """To Spark a name that it is asked for is either of them."""
    table = pa.table({"id": [1, 2], "ID": [3, 4], "é": ["a", "b"], "É": ["c", "d"]})
    stream.write(table.rename_columns(["a", "b", "c", "d"]))
    events = stream.events().toDF(*table.column_names)
    out = events.transform(hf.keyed("ID", Passing(), "id long, ID long, `é` string, `É` string", name="passing"))
    path = str(tmp_path / "exactly-once")
    trigger = {"availableNow": True}
    for frame, name in ((out, "behind"), (events, "alone")):
        checkpoint = stream.checkpoint / name
        sink = hf.FileSink(f"{path}-{name}")
        hf.write_exactly_once(frame, sink, checkpoint=checkpoint, trigger=trigger).awaitTermination()
        rows = hf.FileSink.read(f"{path}-{name}").sort_by("id")
        assert rows.select(table.column_names).equals(table)


def test_an_unsupported_type_is_named(stream: FileStream, spark: SparkSession) -> None:
    stream.write(pa.table({"k": ["a"]}))
    frame = stream.events().selectExpr("k", "interval '1' year AS age")
    with pytest.raises(hf.InvalidRequest, match="'pass', input, column 'age': type interval year is not supported"):
        frame.transform(hf.keyed("k", Passing(), "k string", name="pass"))


def test_long_rows(stream: FileStream) -> None:
    rows = [{"k": i % 3, "v": bytes([i]) * (i * 400_000)} for i in range(8)]
    stream.write(pa.Table.from_pylist(rows))
    operator = hf.keyed("k", Passing(), "k long, v binary", name="pass", settings={"pack.blob.max": "64 KiB"})
    (output,) = stream.run(operator)
    assert sorted(output.to_pylist(), key=lambda row: len(row["v"])) == rows
