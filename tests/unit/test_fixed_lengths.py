"""Lists of a fixed size in tables that people give: Parquet and most libraries have them as lists of any length."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.first_versions import begun, first_versions, slots_of

import holdfast as hf
from holdfast import savepoint
from holdfast._core import xxh64_file
from holdfast.checkpoint.continued import NOTHING_SAID, continued
from holdfast.errors import Corrupt, Incompatible, InvalidRequest
from holdfast.inspect.earlier import earlier_savepoint
from holdfast.sealed import seal
from holdfast.storage import StorageOptions

VECTOR = pa.list_(pa.float32(), 3)
FREE = pa.list_(pa.float32())


class First(hf.AggregateFunction[list[float]]):
    def create(self) -> list[float]:
        return [0.0, 0.0, 0.0]

    def add(self, accumulator: list[float], value: Any) -> list[float]:
        return accumulator

    def result(self, accumulator: list[float]) -> Any:
        return accumulator[0]


class Sized(hf.KeyedProcessor):
    vector = hf.ValueState(VECTOR)
    places = hf.ListState(pa.struct([("n", pa.int64()), ("at", VECTOR)]))
    named = hf.MapState(pa.string(), pa.map_(pa.string(), VECTOR))
    pairs = hf.ValueState(pa.list_(pa.list_(pa.int64()), 2))
    strict = hf.ValueState(pa.list_(pa.field("item", pa.int64(), nullable=False), 2))
    most = hf.ReducingState(VECTOR, lambda one, other: one)
    joined = hf.AggregatingState(pa.float32(), First, accumulator=VECTOR, result=pa.float32())
    rules = hf.BroadcastState(pa.string(), VECTOR)
    optional = hf.MapState(pa.int64(), VECTOR)
    buffer = hf.OperatorState(pa.large_list(VECTOR), redistribution="split")
    code = hf.ValueState(pa.list_(pa.binary(4)))

    def process(self, key: Any, rows: pa.Table, ctx: hf.Context) -> None: ...


def written(folder: Path, tables: dict[str, Any]) -> hf.Savepoint:
    made = hf.Savepoint.write(folder, hf.OperatorTables("sized", tables, processor=Sized, key="user string"))
    assert isinstance(made, hf.Savepoint)
    return made


def users(count: int, **columns: Any) -> pa.Table:
    return pa.table({"user": [f"u{n}" for n in range(count)], **columns})


PLACE = pa.struct([("at", FREE), ("n", pa.int64())])
NAMED = pa.map_(pa.string(), FREE)
GOOD = [1.0, None, 3.0]
_WRONG: list[tuple[str, pa.Table, str]] = [
    ("vector", users(3, value=pa.array([GOOD, GOOD, [1.0, 2.0]], FREE)), "row 2: .*3 elements.*'value'.* of 2"),
    ("vector", users(2, value=pa.array([GOOD, GOOD + [4.0]], FREE)), "row 1: .*3 elements.* of 4"),
    ("vector", users(1, value=pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))), "row 0: .* of 2"),
    ("vector", users(1, value=pa.array([[]], pa.large_list(pa.float64()))), "row 0: .* of 0"),
    ("vector", users(4, value=pa.array([[], [], GOOD, []], FREE)).slice(2), "row 1: .* of 0"),
    (
        "places",
        users(2, value=pa.array([{"n": 1, "at": GOOD}, {"n": 1, "at": [2.0]}], PLACE)),
        r"row 1: .*'value\.at'.* of 1",
    ),
    (
        "named",
        users(3, map_key=["x"] * 3, value=pa.array([[("a", GOOD)], None, [("a", GOOD), ("b", [1.0])]], NAMED)),
        r"row 2: .*'value\{\}'.* of 1",
    ),
    ("pairs", users(2, value=[[[1], []], [[1, 2]]]), "row 1: .*2 elements.* of 1"),
    ("strict", users(2, value=[[1, 2], [1, None]]), "null"),
    ("most", users(1, value=[[1.0]]), "row 0: .* of 1"),
    ("joined", users(1, accumulator=[[1.0]]), "row 0: .*'accumulator'.* of 1"),
    ("rules", pa.table({"map_key": ["x", "y"], "value": [GOOD, [1.0]]}), "row 1: .* of 1"),
    ("buffer", pa.table({"value": [[GOOD], [], [GOOD, GOOD, [1.0]]]}), r"row 2: .*'value\[\]'.* of 1"),
    ("code", users(1, value=[[b"1234", b"123"]]), "fixed_size_binary"),
    ("code", users(1, value=pa.array([[b"12345"]], pa.list_(pa.binary(5)))), "fixed_size_binary"),
]


@pytest.mark.parametrize(("state", "table", "says"), _WRONG, ids=itertools.count())
def test_a_list_of_another_length_is_refused_and_nothing_is_left(
    tmp_path: Path, state: str, table: pa.Table, says: str
) -> None:
    """A processor read two numbers where three were declared, and could not write them back: each try of the batch
    failed alike.
    """
    with pytest.raises(InvalidRequest, match=f"state {state!r} of operator 'sized'.*{says}"):
        written(tmp_path / "made", {"vector": users(1, value=[GOOD]), state: table})
    assert not [*(tmp_path / "made").rglob("*.*")]


# What lies below a null has no length.
BELOW = pa.StructArray.from_arrays(
    [pa.array([[1.0], GOOD, [1.0], None], FREE), pa.array([1, 2, 3, 4])],
    fields=list(PLACE),
    mask=pa.array([False, False, True, False]),
)
HIDDEN = pa.ListArray.from_arrays(
    pa.array([0, 3, 5, 8], pa.int32()), pa.array([1.0, 2, 3, 9, 9, 4, 5, 6]), mask=pa.array([False, True, False])
)
_RIGHT: list[tuple[str, pa.Table, list[Any]]] = [
    ("vector", users(2, value=pa.array([[1.0], GOOD, [4, 5, 6]], FREE).slice(1)), [GOOD, [4, 5, 6]]),
    ("places", users(3, value=BELOW.slice(1)), [{"n": 2, "at": GOOD}, None, {"n": 4, "at": None}]),
    ("buffer", pa.table({"value": pa.array([[GOOD, None], None, []], pa.list_(FREE))}), [[GOOD, None], None, []]),
    ("optional", users(3, map_key=[1, 1, 1], value=HIDDEN), [[1, 2, 3], None, [4, 5, 6]]),
    (
        "named",
        users(3, map_key=["x"] * 3, value=pa.array([[("a", [1.0])], [("a", GOOD), ("b", None)], None, []], NAMED)[1:]),
        [[("a", GOOD), ("b", None)], None, []],
    ),
    ("pairs", users(1, value=[[[1, 2, 3], None]]), [[[1, 2, 3], None]]),
    ("code", users(1, value=[[b"1234", None]]), [[b"1234", None]]),
]


@pytest.mark.parametrize(("state", "table", "expected"), _RIGHT, ids=itertools.count())
def test_lists_of_the_right_length_are_kept_and_nulls_with_them(
    tmp_path: Path, state: str, table: pa.Table, expected: list[Any]
) -> None:
    made = written(tmp_path / "made", {state: table})
    with first_versions(begun(tmp_path / "made", "sized", 1), tmp_path) as checkpoint:
        for rows in (made, checkpoint):
            found = rows.read("sized", state).read_all()
            order = [name for name in ("user", "position") if name in found.column_names]
            found = found.sort_by([(name, "ascending") for name in order]) if order else found
            assert found["value"].to_pylist() == expected


def edited(folder: Path, state: str, table: pa.Table) -> None:
    """The rows of a state by somebody's hand, with a manifest that vouches for them."""
    path = folder / f"operators/sized/{state}/slot-00000.parquet"
    pq.write_table(table, path)
    checksum, size_bytes = xxh64_file(str(path))
    document = json.loads((folder / savepoint.MANIFEST).read_bytes())
    (of_state,) = [one for one in document["operators"][0]["states"] if one["name"] == state]
    of_state["files"][0][4:] = [size_bytes, f"{checksum:016x}"]
    fields = {name: value for name, value in document.items() if name not in ("checksum", "format", "version")}
    (folder / savepoint.MANIFEST).write_text(seal("holdfast.savepoint", 1, fields))


def test_a_list_of_another_length_in_parquet_that_was_edited_is_refused_at_the_restore(tmp_path: Path) -> None:
    made = written(tmp_path / "made", {"vector": users(2, value=[GOOD, GOOD])})
    rows = made.read("sized", "vector").read_all()
    edited(tmp_path / "made", "vector", rows.set_column(1, "value", pa.array([GOOD, [1.0]], FREE)))
    (slot,) = slots_of(begun(tmp_path / "made", "sized", 1), tmp_path)
    with pytest.raises(Corrupt, match=r"state 'vector': row 1: expected lists of 3 elements .*found one of 1"):
        slot.first_version()
    with pytest.raises(Corrupt, match="row 1: expected lists of 3 elements"):
        hf.Savepoint(tmp_path / "made").convert(tmp_path / "native")


@pytest.mark.parametrize(("length", "is_taken"), [(3, True), (2, False), (4, False), (None, True)])
def test_a_state_whose_length_was_changed_does_not_begin_with_a_savepoint(
    tmp_path: Path, length: int | None, is_taken: bool
) -> None:
    written(tmp_path / "made", {"vector": users(1, value=[GOOD])})
    recorded, origin = earlier_savepoint(str(tmp_path / "made"), StorageOptions()).operator("sized", "here", None)
    kind = FREE if length is None else pa.list_(pa.float32(), length)
    states = [
        replace(state, schema=pa.schema([("value", kind)])) if state.name == "vector" else state
        for state in recorded.states
    ]
    declared = replace(recorded, slots=1, labels=(0,), inputs=(), states=tuple(states))
    if is_taken:
        assert continued(recorded, declared, origin, NOTHING_SAID).states[0].id == recorded.states[0].id
    else:
        with pytest.raises(Incompatible, match=r"state 'vector': recorded .*\[3\], declared .*"):
            continued(recorded, declared, origin, NOTHING_SAID)
