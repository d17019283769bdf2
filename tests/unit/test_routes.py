"""Rows of several outputs from the slot to the sinks, without Spark between: each comes out as it went in, once."""

from __future__ import annotations

from datetime import datetime, time, timezone
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

import holdfast as hf
from holdfast.spark.output import OutputPackers, Unpacking, unpack_function
from holdfast.spark.routes import Route, plan_routes
from holdfast.spark.schemas import arrow_schema, conform, sink_schema
from holdfast.spark.side_outputs import has_all_outputs, side_by_side

AT = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
MAIN = spark.StructType(
    [
        spark.StructField("user", spark.StringType()),
        spark.StructField("number", spark.LongType(), False),
        spark.StructField("at", spark.TimestampType()),
    ]
)
LATE = spark.StructType([spark.StructField("tags", spark.ArrayType(spark.StringType()))])
BOTH = side_by_side(MAIN, {"late": LATE})


def rows(kind: spark.StructType, *values: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(values), schema=arrow_schema(kind, "test"))


def passed(monkeypatch: pytest.MonkeyPatch, *tagged: tuple[str | None, pa.RecordBatch]) -> pa.Table:
    """What comes out behind the slot."""
    monkeypatch.setattr("holdfast.spark.output.prepare_worker_process", lambda: None)
    packers = OutputPackers(3, ["late"], 1 << 20, 10_000)
    frames = [frame for one in tagged for frame in packers.add(one)]
    frames += list(packers.finish())
    blobs = [pa.record_batch({"blob": pa.array(frame["blob"], pa.binary())}) for frame in frames]
    outputs = (("main", arrow_schema(MAIN, "test")), ("late", arrow_schema(LATE, "test")))
    given = pa.Table.from_batches(list(unpack_function(Unpacking("totals", outputs))(iter(blobs))))
    given.validate(full=True)
    return given


def routed(table: pa.Table) -> dict[str | None, list[dict[str, Any]]]:
    routes = plan_routes(BOTH, [{None: hf.FileSink("/main", name="a"), hf.SideOutput("late"): hf.FileSink("/late")}])
    schema = arrow_schema(BOTH, "test")
    found: dict[str | None, list[dict[str, Any]]] = {}
    for batch in table.to_batches():
        for route in routes:
            taken = route.rows(conform(batch, schema, "test"))
            assert taken.schema == route.schema
            taken.validate(full=True)
            found.setdefault(route.output, []).extend(taken.to_pylist())
    return found


FIRST = {"user": "ada", "number": 1, "at": AT}
SECOND = {"user": None, "number": 2, "at": None}
ASIDE: list[dict[str, Any]] = [{"tags": ["x", None]}, {"tags": None}, {"tags": []}]


def test_each_output_comes_out_as_it_went_in(monkeypatch: pytest.MonkeyPatch) -> None:
    table = passed(monkeypatch, (None, rows(MAIN, FIRST)), ("late", rows(LATE, *ASIDE)), (None, rows(MAIN, SECOND)))
    assert table.schema.names == ["main", "late"]
    assert routed(table) == {"main": [FIRST, SECOND], "late": ASIDE}
    assert [row["main"] is None for row in table.to_pylist()] == [row["late"] is not None for row in table.to_pylist()]


def test_rows_whose_columns_are_all_null_are_rows_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    table = passed(monkeypatch, ("late", rows(LATE, {"tags": None}, {"tags": None})))
    assert routed(table) == {"main": [], "late": [{"tags": None}] * 2}


def test_times_come_out_as_they_went_in_whatever_the_sessions_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark hands timestamps to Python under the session's zone, also inside of structs."""
    table = passed(monkeypatch, (None, rows(MAIN, FIRST, SECOND)), ("late", rows(LATE, *ASIDE)))
    fields = [f.with_type(pa.timestamp("us", "Asia/Tokyo")) if f.name == "at" else f for f in table.field(0).type]
    moved = table.cast(pa.schema([pa.field("main", pa.struct(fields)), table.schema.field(1)]))
    assert routed(moved) == {"main": [FIRST, SECOND], "late": ASIDE}


def test_a_batch_that_was_sliced_keeps_to_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    table = passed(monkeypatch, (None, rows(MAIN, FIRST, SECOND)), ("late", rows(LATE, *ASIDE))).combine_chunks()
    assert routed(table.slice(1, 3)) == {"main": [SECOND], "late": ASIDE[:2]}


def test_a_frame_that_lost_an_output_is_not_routed() -> None:
    """select("main") leaves the late rows nowhere to go, and no sink would have said so."""
    assert has_all_outputs(BOTH)
    assert not has_all_outputs(spark.StructType(BOTH.fields[:1]))
    assert not has_all_outputs(spark.StructType([*BOTH.fields, spark.StructField("more", spark.LongType())]))
    assert not has_all_outputs(MAIN)
    with pytest.raises(hf.InvalidRequest, match="sinks are given by output, but the DataFrame has the columns main"):
        plan_routes(spark.StructType(BOTH.fields[:1]), [{None: hf.FileSink("/main")}])


def test_a_plain_frame_has_one_route() -> None:
    sink = hf.FileSink("/main")
    assert plan_routes(MAIN, [sink]) == (Route(None, arrow_schema(MAIN, "test"), (sink,)),)


@pytest.mark.skipif(not hasattr(spark, "TimeType"), reason="Spark before 4.1 has no times of day")
def test_times_of_day_go_to_sinks_in_microseconds() -> None:
    """Files with nanoseconds made their folder unreadable to Spark 4.1 and 4.2. More digits than 6 have Spark 4.3."""

    def columns(kind: Any) -> spark.StructType:
        inner = spark.StructType([spark.StructField("id", spark.LongType(), False)])
        held = [spark.StructField("at", kind, False), spark.StructField("inner", inner, False)]
        kinds = {"at": kind, "many": spark.ArrayType(spark.StructType(held), False), "map": spark.MapType(kind, kind)}
        return spark.StructType([spark.StructField(name, kind) for name, kind in kinds.items()])

    at = time(23, 59, 59, 999999)
    values: list[dict[str, Any]] = [
        {"at": at, "many": [{"at": at, "inner": {"id": 1}}], "map": [(at, None)]},
        {"at": None, "many": None, "map": None},
    ]
    for precision, unit in ((0, "us"), (6, "us"), (7, "ns"), (9, "ns")):
        kind = spark.TimeType(precision)
        schema = sink_schema(columns(kind), "test")
        assert schema == pa.schema(
            [
                pa.field("at", pa.time64(unit)),
                pa.field("many", pa.list_(pa.field("element", schema.field("many").type.value_type, False))),
                pa.field("map", pa.map_(pa.time64(unit), pa.time64(unit))),
            ]
        )
        assert schema.field("many").type.value_type.field("at").type == pa.time64(unit)
        given = rows(columns(kind), *values)
        assert given.schema.field("at").type == pa.time64("ns")
        assert conform(given, schema, "test").to_pylist() == values


def test_times_of_day_of_more_digits_than_the_column_has_are_cut() -> None:
    """Of a processor's own rows, in nanoseconds: Spark hands them on as they are."""
    given = pa.record_batch([pa.array([1_999, None], pa.time64("ns"))], names=["at"])
    found = conform(given, pa.schema([("at", pa.time64("us"))]), "test")
    assert found["at"].cast(pa.int64()).to_pylist() == [1, None]


def test_a_null_is_conformed_whatever_lies_below_it() -> None:
    """Spark puts nulls below a null. Arrow refuses to cast a struct with such to the type that it has already."""
    inner = pa.struct([pa.field("id", pa.int64(), False)])

    def given(zone: str) -> pa.Array:
        at = pa.field("at", pa.timestamp("us", zone), False)
        kind = pa.struct([at, pa.field("inner", inner, False), pa.field("many", pa.list_(inner))])
        none = pa.array([True, False])
        below = pa.StructArray.from_arrays([pa.array([None, 1])], fields=list(inner), mask=none)
        many = pa.ListArray.from_arrays(pa.array([0, 0, 2], pa.int32()), below, pa.list_(inner), mask=none)
        times = pa.array([None, AT], at.type)
        one = pa.StructArray.from_arrays([times, below, many], fields=list(kind), mask=none)
        return pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), one, pa.list_(kind), mask=none.take([1, 0]))

    schema = pa.schema([("s", given("UTC").type)])
    found = conform(pa.record_batch([given("Europe/Berlin")], names=["s"]), schema, "test")
    assert found.to_pylist() == [{"s": [None, {"at": AT, "inner": {"id": 1}, "many": [None, {"id": 1}]}]}, {"s": None}]
