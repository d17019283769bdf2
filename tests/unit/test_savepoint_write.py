"""Savepoints of tables: rows in any order become those of a savepoint; what is wrong is refused, and leaves nothing."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.by_key import by_key
from tests.first_versions import begun, first_versions
from tests.kept_states import DOES, OUTPUT, ROWS, RULES, KeepsAll
from tests.spark_files import SparkFiles

import holdfast as hf
from holdfast import savepoint
from holdfast.errors import InvalidRequest
from holdfast.savepoint import sorted_rows
from holdfast.savepoint.manifest import table_folder
from holdfast.testing.harness import QUERY_ID, Harness

OPERATOR = "under-test"
KEY = pa.schema([("user", pa.string()), ("place", pa.int64())])
NOON = datetime(2027, 6, 1, 12, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> hf.Savepoint:
    """Of a query with something in every state."""
    path: Path = tmp_path_factory.mktemp("earlier")
    spark = SparkFiles(path / "checkpoint", QUERY_ID)
    inputs = {"rows": ROWS, "rules": hf.broadcast(RULES)}
    key = {"rows": ["user", "place"]}
    with Harness(
        KeepsAll(), key, inputs, OUTPUT, name=OPERATOR, null_keys=True, event_time={"rows": "at"}, folder=path
    ) as harness:
        does = [name for name in DOES if name not in ("clear", "remove")]
        rows = [{"user": f"u{n % 9}", "place": n % 3 or None, "does": name, "n": n} for n in range(60) for name in does]
        harness.advance(1000)
        rules = [{"name": f"rule {n}", "n": n} for n in range(3)]
        harness.process(rows=pa.Table.from_pylist(rows, ROWS), rules=pa.Table.from_pylist(rules, RULES))
        handle = harness.snapshot().handle
        assert handle is not None
        spark.commit(0, [handle.to_text()], watermark_ms=77)
    return hf.Savepoint.create(checkpoint=path / "checkpoint", to=path / "saved")


def tables_of(found: hf.Savepoint, operator: str = OPERATOR) -> dict[str, pa.Table]:
    return {state: found.read(operator, state).read_all() for state in found.operators[operator]}


def shuffled(table: pa.Table, seed: int) -> pa.Table:
    order = list(range(len(table)))
    random.Random(seed).shuffle(order)
    return table.take(pa.array(order, pa.int64()))


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    return one.schema.equals(other.schema) and repr(one.to_pylist()) == repr(other.to_pylist())  # NaN like NaN


def begun_with(folder: Path, saved: hf.Savepoint, slots: int, operator: str = OPERATOR) -> hf.Checkpoint:
    return first_versions(begun(Path(saved._store.uri), operator, slots), folder)


@pytest.mark.parametrize("run_bytes", [64 << 20, 2000, 1])
def test_rows_in_any_order_become_the_same_savepoint(
    saved: hf.Savepoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_bytes: int
) -> None:
    """In one run, in several, in one for each batch: rows are those of `create`, in their order, results too."""
    monkeypatch.setattr(sorted_rows, "RUN_BYTES", run_bytes)
    monkeypatch.setattr(sorted_rows, "_PIECE_BYTES", min(run_bytes, sorted_rows._PIECE_BYTES))
    before = tables_of(saved)
    pieces = {name: shuffled(table, 7) for name, table in before.items()}
    given = {
        name: pa.Table.from_batches(
            [part for at in range(0, len(table), 5) for part in table[at : at + 5].to_batches()]
        )
        for name, table in pieces.items()
    }
    made = hf.Savepoint.write(tmp_path / "made", hf.OperatorTables(OPERATOR, given), base=saved)
    assert made.verify() == ()
    after = tables_of(made)
    assert after.keys() == before.keys()
    for name, table in before.items():
        assert table.num_rows > 0 and same_rows(after[name], table), name
    of, was = made.manifest, saved.manifest
    assert (of.query_id, of.batch_id, of.watermark_ms, of.sources) == (QUERY_ID, 0, 77, was.sources)
    assert of.operator(OPERATOR).state("recent").ttl == was.operator(OPERATOR).state("recent").ttl is not None


class Nested(hf.KeyedProcessor):
    """Structs within structs, lists and maps."""

    _INNER = pa.struct([("when", pa.duration("ms")), ("share", pa.float32())])
    plan = hf.ValueState(
        pa.struct([("one", _INNER), ("many", pa.list_(_INNER)), ("named", pa.map_(pa.string(), _INNER))])
    )

    def process(self, key: Any, rows: Any, ctx: hf.Context) -> Any:
        return None


def test_fields_of_structs_are_known_by_their_names_at_any_depth(tmp_path: Path) -> None:
    """Spark's users and pandas have them in an order of their own, and pyarrow before 19 sorts what it infers."""
    inner = {"share": 0.5, "when": timedelta(seconds=1)}
    values = [
        {"many": [inner, None], "named": [("a", inner), ("b", None)], "one": None},
        {"many": None, "named": None, "one": {"share": None, "when": None}},
        {"many": [], "named": [], "one": inner},
    ]
    turned = pa.struct([("share", pa.float64()), ("when", pa.duration("ms"))])
    given_type = pa.struct([("named", pa.map_(pa.string(), turned)), ("many", pa.list_(turned)), ("one", turned)])
    given = pa.table({"user": ["a", "b", "c"], "value": pa.array(values, given_type)})
    operator = hf.OperatorTables("op", {"plan": given}, processor=Nested(), key=pa.schema([("user", pa.string())]))
    made = hf.Savepoint.write(tmp_path / "made", operator)
    rows = made.read("op", "plan").read_all()
    assert rows.schema.field("value").type.field(0).name == "one"
    assert by_key(rows) == dict(zip("abc", values))
    too_large = pa.array([{"one": {"when": None, "share": 1e300}, "many": None, "named": None}], given_type)
    wrong = replace(operator, tables={"plan": pa.table({"user": ["a"], "value": too_large})})
    with pytest.raises(InvalidRequest, match="too large for float: 1e"):
        hf.Savepoint.write(tmp_path / "wrong", wrong)


def test_states_without_a_table_are_as_they_were(saved: hf.Savepoint, tmp_path: Path) -> None:
    total = saved.read(OPERATOR, "total").read_all()
    doubled = total.set_column(
        total.schema.get_field_index("value"), "value", pa.array([2 * v for v in total["value"].to_pylist()])
    )
    edit = hf.OperatorTables(
        OPERATOR,
        {
            "total": doubled,
            "pair": total.slice(0, 0)
            .select(["user", "place"])
            .append_column(
                "value", pa.nulls(0, saved.manifest.operator(OPERATOR).state("pair").columns.schema.field("value").type)
            ),
        },
    )
    made = hf.Savepoint.write(tmp_path / "made", edit, base=saved)
    before, after = tables_of(saved), tables_of(made)
    assert after["total"]["value"].to_pylist() == [2 * value for value in before["total"]["value"].to_pylist()]
    assert len(after["pair"]) == 0 < len(before["pair"])
    for name in before.keys() - {"total", "pair"}:
        assert same_rows(before[name], after[name])
    with begun_with(tmp_path, made, 3) as checkpoint:
        found = checkpoint.read(OPERATOR, "total").read_all()
        assert sorted(found["value"].to_pylist()) == sorted(doubled["value"].to_pylist())


class Kept(hf.KeyedProcessor):
    latest = hf.ValueState(pa.string(), ttl="1 h")
    seen = hf.ValueState(pa.int64(), ttl=hf.TTL("1 h", time="event"))
    words = hf.ListState(pa.string())
    marks = hf.MapState(pa.date64(), pa.decimal128(9, 2))
    mean = hf.AggregatingState(pa.int64(), "avg")
    distinct = hf.AggregatingState(pa.string(), "approx_count_distinct")
    alarms = hf.Timers("event")
    rules = hf.BroadcastState(pa.string(), pa.int64())
    buffer = hf.OperatorState(pa.int64(), redistribution="split")

    def process(self, key: Any, rows: pa.Table, ctx: hf.Context) -> None: ...


def written(folder: Path, tables: dict[str, Any], **options: Any) -> hf.Savepoint:
    options = {"processor": Kept, "key": "user string, place bigint", **options}
    made = hf.Savepoint.write(folder, hf.OperatorTables("kept", tables, **options))
    assert isinstance(made, hf.Savepoint)
    return made


def users(count: int) -> dict[str, list[Any]]:
    return {"user": [f"u{n}" for n in range(count)], "place": list(range(count))}


@pytest.mark.parametrize("slots", [1, 5])
def test_a_query_begins_with_what_it_never_had(tmp_path: Path, slots: int) -> None:
    earlier = datetime.now(timezone.utc)
    marks = {datetime(2026, 1, day + 1).date(): f"{day}.25" for day in range(5)}
    tables = {
        "latest": pa.table({**users(100), "value": [f"v{n}" for n in range(100)]}),
        "seen": pa.table({**users(3), "value": [1, 2, 3], "expiry": [NOON, NOON + timedelta(hours=1), NOON]}),
        # In the order of the rows, of several keys by turns.
        "words": pa.table({"user": ["b", "a"] * 50, "place": [1] * 100, "value": [f"w{n}" for n in range(100)]}),
        "marks": pa.table({"user": ["a"] * 5, "place": [1] * 5, "map_key": list(marks), "value": list(marks.values())}),
        "mean": pa.table({**users(2), "accumulator": [{"sum": 6.0, "count": 4}, {"sum": 1.0, "count": 1}]}),
        "alarms": pa.table({**users(2), "time": [NOON, NOON + timedelta(seconds=1)]}),
        "rules": pa.table({"map_key": ["x", "y"], "value": [1, None]}),
        "buffer": pa.table({"value": [5, 6, 7], "slot": [0, 0, 4]}),
    }
    tables["marks"] = tables["marks"].set_column(3, "value", tables["marks"]["value"].cast(pa.decimal128(5, 2)))
    made = written(tmp_path / "made", tables)
    assert (made.manifest.query_id, made.manifest.batch_id, made.manifest.sources) == (None, None, ())
    assert made.manifest.operator("kept").max_parallelism == 4096
    assert made.manifest.operator("kept").slots == 5, "a row is of slot 4"
    ttl = made.manifest.operator("kept").state("latest").ttl
    assert ttl is not None and ttl.latest_ms >= int(earlier.timestamp() * 1000)
    of_events = made.manifest.operator("kept").state("seen").ttl
    assert of_events is not None and of_events.latest_ms == int((NOON - timedelta(hours=1)).timestamp() * 1000)
    assert made.read("kept", "mean").read_all()["value"].to_pylist() in ([1.5, 1.0], [1.0, 1.5])
    with begun_with(tmp_path, made, slots, "kept") as checkpoint:

        def rows(state: str, *columns: str) -> list[tuple[Any, ...]]:
            found = checkpoint.read("kept", state).read_all().select(list(columns)).to_pylist()
            return sorted((tuple(row.values()) for row in found), key=repr)

        assert rows("latest", "user", "place", "value") == sorted((f"u{n}", n, f"v{n}") for n in range(100))
        assert rows("seen", "user", "expiry")[1] == ("u1", NOON + timedelta(hours=1))
        words = checkpoint.read("kept", "words").read_all().to_pylist()
        for user, first in (("b", 0), ("a", 1)):
            found = [(row["position"], row["value"]) for row in words if row["user"] == user]
            assert found == [(at, f"w{first + 2 * at}") for at in range(50)]
        assert [str(row[1]) for row in rows("marks", "map_key", "value")] == list(marks.values())
        assert rows("alarms", "user", "time", "namespace") == [
            ("u0", NOON, ""),
            ("u1", NOON + timedelta(seconds=1), ""),
        ]
        assert rows("rules", "map_key", "value") == [("x", 1), ("y", None)]
        assert sorted(value for (value,) in rows("buffer", "value")) == [5, 6, 7]
        assert rows("distinct", "user") == []


def of_pandas(table: pa.Table, folder: Path) -> Any:
    return table.to_pandas()


def of_dataset(table: pa.Table, folder: Path) -> Any:
    (folder / "given").mkdir()
    pq.write_table(table, folder / "given" / "part.parquet")
    return ds.dataset(folder / "given")


def of_duckdb(table: pa.Table, folder: Path) -> Any:
    return duckdb.from_arrow(table).order("place DESC")


def of_polars(table: pa.Table, folder: Path) -> Any:
    return polars.from_arrow(table)


def of_reader(table: pa.Table, folder: Path) -> Any:
    return table.to_reader(max_chunksize=7)


@pytest.mark.parametrize("given", [of_pandas, of_dataset, of_duckdb, of_polars, of_reader])
def test_tables_come_from_whatever_has_them(tmp_path: Path, given: Callable[[pa.Table, Path], Any]) -> None:
    table = pa.table({**users(50), "value": [f"v{n}" for n in range(50)]})
    made = written(tmp_path / "made", {"latest": given(table, tmp_path)})
    found = made.read("kept", "latest", columns=["user", "place", "value"]).read_all()
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, table.to_pylist()))


class Numbers(hf.KeyedProcessor):
    total = hf.ValueState(pa.float64())
    weights = hf.ListState(pa.float64())
    shares = hf.ValueState(pa.list_(pa.float64()))
    small = hf.MapState(pa.int64(), pa.float32())
    pairs = hf.ValueState(pa.struct([("id", pa.int64()), ("at", pa.list_(pa.int64()))]))
    spread = hf.AggregatingState(pa.float64(), "variance")
    rates = hf.BroadcastState(pa.string(), pa.float64())

    def process(self, key: Any, rows: pa.Table, ctx: hf.Context) -> None: ...


NAN, ID = float("nan"), [{"id": 7.0, "at": [1.0, 2.0**53]}]
_CHANGED: list[tuple[str, str, dict[str, Any]]] = [
    ("total", "column 'value' has NaN, which pandas has for a missing value too", {"user": [1], "value": [NAN]}),
    ("weights", "column 'value' has NaN", {"user": [1, 1], "value": [NAN, 1.0]}),
    ("shares", "column 'value' has NaN", {"user": [1, 1], "value": [[1.0, NAN], [2.0]]}),
    ("rates", "column 'value' has NaN", {"map_key": ["a"], "value": [NAN]}),
    ("total", "plain columns", {"user": [1, "x"], "value": [1.0, 2.0]}),
    ("total", "column 'user'.*a float from 9007199254740992 on may not be", {"user": [1e18, 1.0], "value": [1.0, 2.0]}),
    ("pairs", "column 'value'.*give integers: 9007199254740992", {"user": [1], "value": ID}),
    ("small", "column 'value'.*too large for float: 1e\\+300", {"user": [1], "map_key": [1], "value": [1e300]}),
]


@pytest.mark.parametrize(("state", "says", "columns"), _CHANGED, ids=itertools.count())
def test_what_pandas_or_a_cast_would_change_without_a_word_is_refused(
    tmp_path: Path, state: str, says: str, columns: dict[str, Any]
) -> None:
    """A NaN that becomes a null, an identifier that was rounded to a float, a number that becomes infinite."""
    with pytest.raises(InvalidRequest, match=says):
        written(tmp_path / "made", {state: pd.DataFrame(columns)}, processor=Numbers, key="user bigint")


def test_nan_and_null_stay_what_they_are_where_it_is_said_which_is_which(tmp_path: Path) -> None:
    given = pa.table({"user": [1, 1, 1], "value": [NAN, None, 1.0]})
    frame = given.to_pandas(types_mapper=pd.ArrowDtype)
    for name, table in (("arrow", given), ("pandas", frame)):
        made = written(tmp_path / name, {"weights": table}, processor=Numbers, key="user bigint")
        assert repr(made.read("kept", "weights").read_all()["value"].to_pylist()) == "[nan, None, 1.0]"


def test_bytes_that_pandas_has_as_numpy_s_go_on_after_a_nul(tmp_path: Path) -> None:
    """Arrow takes such a column's values up to the first NUL: two users became one."""

    class Kept(hf.KeyedProcessor):
        last = hf.ValueState(pa.binary())

        def process(self, key: Any, rows: pa.Table, ctx: hf.Context) -> None: ...

    digests = [b"a\0b", b"a\0c"]
    frame = pd.DataFrame({"place": [1, 2]})
    for name in ("user", "value"):
        frame[name] = pd.Series(np.array(digests))
    assert frame["user"].dtype.kind == "S"
    made = written(tmp_path / "made", {"last": frame}, processor=Kept, key="user binary, place bigint")
    assert made.read("kept", "last").read_all().select(["user", "value"]).to_pydict() == {
        "user": digests,
        "value": digests,
    }


def test_what_pandas_made_of_a_result_does_not_matter(tmp_path: Path) -> None:
    """The variance of one row is null, and NaN in pandas; it is made anew of the accumulator."""
    given = pa.table({"user": [1], "accumulator": [{"count": 1, "mean": 1.0, "m2": 0.0}]})
    first = written(tmp_path / "first", {"spread": given}, processor=Numbers, key="user bigint")
    frame = first.read("kept", "spread").read_all().to_pandas().astype({"value": float})
    assert frame["value"].isna().all()
    again = written(tmp_path / "again", {"spread": frame}, processor=Numbers, key="user bigint")
    assert same_rows(again.read("kept", "spread").read_all(), first.read("kept", "spread").read_all())


def test_a_reader_that_was_read_before_loses_no_rows(tmp_path: Path) -> None:
    """By somebody who looked at it, for another state, or by a write that was refused half-way."""
    table = pa.table({"user": [1, 2], "value": [1.0, 2.0]})
    key = {"processor": Numbers, "key": "user bigint"}
    looked_at, twice, again = table.to_reader(), table.to_reader(), table.to_reader()
    assert len(looked_at.read_all()) == 2
    with pytest.raises(InvalidRequest, match="the RecordBatchReader has no rows, as one has that was read before"):
        written(tmp_path / "made", {"total": looked_at}, **key)
    with pytest.raises(InvalidRequest, match="a RecordBatchReader that was given before"):
        written(tmp_path / "made", {"total": twice, "weights": twice}, **key)
    wrong = pa.table({"user": [1.5], "value": [1.0]})
    with pytest.raises(InvalidRequest, match="truncated"):
        written(tmp_path / "made", {"total": again, "weights": wrong}, **key)
    with pytest.raises(InvalidRequest, match="a RecordBatchReader that was given before"):
        written(tmp_path / "made", {"total": again}, **key)
    made = written(tmp_path / "made", {"total": table.to_reader(), "weights": table.slice(0, 0)}, **key)
    assert len(made.read("kept", "total").read_all()) == 2


ONE = {"user": ["a"], "place": [1]}
TWO = {"user": ["a", "a"], "place": [1, 1]}
NOT_UTF8 = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff", b"\xff"]).buffers())
_REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("latest", ONE, "lacks the column 'value': expected user, place, value, and perhaps expiry, key_group"),
    ("latest", {**ONE, "value": ["x"], "expire": [NOON]}, "does not know the column 'expire'"),
    ("latest", {**ONE, "value": [7]}, "column 'value' is int64; expected string"),
    ("latest", {"user": ["a"], "place": ["1"], "value": ["x"]}, "column 'place' is string; expected int64"),
    ("latest", {"user": ["a"], "place": [1.5], "value": ["x"]}, "column 'place', within rows 0 to 0: .*truncated"),
    ("latest", {"user": ["a"], "place": [None], "value": ["x"]}, "counting from row 0: .*null"),
    ("latest", {**ONE, "value": [None]}, "row 0: the value is null"),
    ("latest", {**TWO, "value": ["x", "y"]}, "expected each entry once, found two rows of user 'a', place 1"),
    ("latest", {**TWO, "user": NOT_UTF8, "value": ["x", "y"]}, "two rows of user of string without a Python value"),
    ("latest", {**ONE, "value": ["x"], "key_group": [5]}, "row 0: expected key_group .* found 5; leave the column out"),
    ("latest", {**ONE, "value": ["x"], "key_group": [None]}, "row 0: expected key_group .* found None"),
    ("latest", {**ONE, "value": ["x"], "expiry": [NOON.replace(tzinfo=None)]}, "column 'expiry' is timestamp.*UTC"),
    ("latest", {**ONE, "value": ["x"], "expiry": [NOON + timedelta(microseconds=1)]}, "column 'expiry'.*lose data"),
    ("latest", {**ONE, "value": ["x"], "expiry": pa.array([-(1 << 63) + 5], pa.timestamp("ms", "UTC"))}, "overflow"),
    ("words", {**ONE, "value": ["x"], "expiry": [NOON]}, "a row has expiry, and the state has no TTL"),
    ("seen", {**ONE, "value": [1]}, "a row has no expiry: in event time nobody else knows how old it is"),
    ("words", {**TWO, "position": [0, 2], "value": ["x", "y"]}, "without gaps, found .* position 2, where position 1"),
    ("words", {**ONE, "position": [1], "value": ["x"]}, "found .* position 1, where position 0 was next"),
    ("words", {**TWO, "position": [0, 0], "value": ["x", "y"]}, "two rows of user 'a', place 1, position 0"),
    ("words", {**ONE, "position": [-1], "value": ["x"]}, "positions in lists: expected 0 to"),
    ("marks", {**ONE, "map_key": pa.nulls(1), "value": pa.nulls(1)}, "null"),
    ("mean", {**ONE, "accumulator": [{"sum": 6.0}]}, "column 'accumulator' is struct<sum: double>; expected"),
    ("mean", {**ONE, "accumulator": [{"sum": None, "count": 1}]}, "null"),
    ("distinct", {**ONE, "accumulator": [b"no sketch"]}, "an accumulator is no sketch"),
    ("alarms", {**TWO, "time": [NOON, NOON]}, "two rows of user 'a', place 1, time .*, namespace ''"),
    ("alarms", {**ONE, "time": pa.nulls(1)}, "the time is null"),
    ("rules", {"map_key": ["x", "x"], "value": [1, 2]}, "two rows of map_key 'x'"),
    ("rules", {**ONE, "map_key": ["x"], "value": [1]}, "does not know the column 'user'"),
    ("buffer", {"value": [1], "slot": [4096]}, "a row is of slot 4095|slot 4096"),
    ("buffer", {"value": [1], "slot": [-1]}, "column 'slot'"),
    ("buffer", {"value": [1, 2], "slot": [0, None]}, "expected a slot in each row, found null"),
]


@pytest.mark.parametrize(("state", "columns", "says"), _REFUSED, ids=itertools.count())
def test_a_row_that_no_state_could_have_is_refused_and_nothing_is_left(
    tmp_path: Path, state: str, columns: dict[str, Any], says: str
) -> None:
    good = pa.table({**users(5), "value": [f"v{n}" for n in range(5)]})
    tables = {"latest": good, state: pa.table(columns)}
    with pytest.raises(InvalidRequest, match=says):
        written(tmp_path / "made", tables)
    assert not list((tmp_path / "made").rglob("*.*")) if (tmp_path / "made").exists() else True
    assert written(tmp_path / "made", {"latest": good}).verify() == ()


def test_what_is_said_wrongly_of_an_operator_is_refused(saved: hf.Savepoint, tmp_path: Path) -> None:
    table = pa.table({**ONE, "value": ["x"]})
    one = hf.OperatorTables("kept", {"latest": table}, processor=Kept, key=KEY)
    buffer = pa.table({"value": [1], "slot": [1]})
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ([hf.OperatorTables("kept", {"latest": table})], {}, "not in base: expected processor= and key="),
        ([one, one], {}, "each operator once"),
        ([replace(one, tables={"other": table})], {}, "has no state 'other'; it has alarms, buffer"),
        ([replace(one, tables={"latest": 7})], {}, "expected a table of Arrow, pandas, .* found 7"),
        ([replace(one, key=pa.schema([]))], {}, "expected a pyarrow.Schema or DDL"),
        ([replace(one, key=pa.schema([("a", pa.string()), ("a", pa.string())]))], {}, "each key column once"),
        ([replace(one, key=pa.schema([("a", pa.list_(pa.string()))]))], {}, "key"),
        ([replace(one, name="")], {}, "expected a printable name for the operator"),
        ([replace(one, max_parallelism=0)], {}, "max_parallelism is 0; expected 1 to 32768"),
        ([hf.OperatorTables(OPERATOR, {}, processor=KeepsAll)], {"base": saved}, "is in base, which says its "),
        ([hf.OperatorTables(OPERATOR, {"buffer": buffer})], {"base": saved}, "slots below 1"),
    ]  # fmt: skip
    for operators, options, says in cases:
        with pytest.raises(InvalidRequest, match=says):
            hf.Savepoint.write(tmp_path / "made", *operators, **options)
    hf.Savepoint.write(tmp_path / "made", one)
    with pytest.raises(InvalidRequest, match="holds a savepoint already"):
        hf.Savepoint.write(tmp_path / "made", one)


def test_operators_of_a_base_stay_beside_a_new_one(saved: hf.Savepoint, tmp_path: Path) -> None:
    one = hf.OperatorTables("kept", {"latest": pa.table({**ONE, "value": ["x"]})}, processor=Kept(), key=KEY)
    made = hf.Savepoint.write(tmp_path / "made", one, base=saved._store.uri)
    assert set(made.operators) == {"kept", OPERATOR}
    assert made.manifest.operator(OPERATOR) == saved.manifest.operator(OPERATOR)
    assert hf.Restore(savepoint=tmp_path / "made").plan(Kept, name="kept").refused == ()


def test_what_a_killed_attempt_left_is_no_savepoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    table = pa.table({**ONE, "value": ["x"]})
    with monkeypatch.context() as patched:
        patched.setattr(savepoint, "write_manifest", killed)
        with pytest.raises(KeyboardInterrupt):
            written(tmp_path / "made", {"latest": table})
    assert list((tmp_path / "made").rglob("*.parquet"))
    with pytest.raises(InvalidRequest, match="holds no savepoint"):
        hf.Savepoint(tmp_path / "made")
    with pytest.raises(InvalidRequest, match="what a killed attempt left|What a killed attempt left"):
        written(tmp_path / "made", {"latest": table})


LONG = "сумма_всех_покупок_клиента_за_последние_тридцать_календарных_дней"


class LongNames(hf.BatchProcessor):
    """Python takes them, and so do checkpoints, which know states by numbers."""

    сумма_всех_покупок_клиента_за_последние_тридцать_календарных_дней = hf.ReducingState(pa.int64(), "sum")
    сумма_всех_покупок_клиента_за_последние_тридцать_календарных_лет = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        raise AssertionError("no batch")


@pytest.mark.parametrize(("letters", "is_cut"), [(41, False), (42, False), (43, True)])
def test_names_that_a_file_system_takes_are_the_folders_own(letters: int, is_cut: bool) -> None:
    """Savepoints have them since version 1."""
    state = "п" * letters
    assert (table_folder("totals", state) == f"operators/totals/{quote(state)}") is not is_cut


def test_states_with_names_that_are_too_long_for_a_folder(tmp_path: Path) -> None:
    states = {LONG: pa.table({"user": ["a"], "value": [1]}), f"{LONG[:-4]}лет": pa.table({"user": ["a"], "value": [2]})}
    tables = hf.OperatorTables("totals", states, processor=LongNames, key="user string")
    made = hf.Savepoint.write(tmp_path / "saved", tables)
    for opened in (made, hf.Savepoint(tmp_path / "saved"), made.convert(tmp_path / "native")):
        assert not opened.verify()
        found = {state: opened.read("totals", state).read_all()["value"].to_pylist() for state in states}
        assert list(found.values()) == [[1], [2]]
    back = hf.Savepoint(tmp_path / "native").convert(tmp_path / "back")
    assert back.read("totals", LONG).read_all()["value"].to_pylist() == [1]
    assert not hf.Savepoint.dispose(tmp_path / "back", apply=True).others
    assert not (tmp_path / "back").exists()
