"""Checkpoints that are read, and savepoints of them, against plain dictionaries: any rows, at every retained version.

Every kind of state; a base under most of them, deltas over it; keys of two columns of which one may be null.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_count import examples
from tests.kept_states import COLUMNS, DOES, OUTPUT, ROWS, RULES, KeepsAll, Kept, found_rows, same
from tests.spark_files import SparkFiles

import holdfast as hf
from holdfast.testing.harness import QUERY_ID, Harness

_ROW = st.fixed_dictionaries(
    {
        "user": st.sampled_from(["ada", "bob", "", "z\x00z", "é"]),
        "place": st.sampled_from([None, 0, -7, 1 << 30]),
        "does": st.sampled_from(DOES),
        "n": st.one_of(st.none(), st.integers(-40, 40)),
    }
)
_RULE = st.fixed_dictionaries({"name": st.sampled_from(["a", "b", "c"]), "n": st.one_of(st.none(), st.integers(0, 9))})
_BATCH = st.tuples(st.lists(_ROW, min_size=1, max_size=12), st.lists(_RULE, max_size=3), st.integers(0, 7000))


@settings(deadline=None, max_examples=examples(8))
@given(batches=st.lists(_BATCH, min_size=1, max_size=7), fold=st.integers(1, 4), snapshot=st.integers(0, 6))
def test_every_state_at_every_version(batches: list[Any], fold: int, snapshot: int) -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-reading-", ignore_cleanup_errors=True) as folder:
        _run(Path(folder), batches, fold, snapshot)


def _run(folder: Path, batches: list[Any], fold: int, snapshot: int) -> None:
    kept, expected = Kept(), []
    spark = SparkFiles(folder / "checkpoint", QUERY_ID)
    limits = {"fold.deltas.max": fold, "snapshot.deltas.max": fold, "snapshot.bytes.min": 1}
    with Harness(
        KeepsAll(),
        {"rows": ["user", "place"]},
        {"rows": ROWS, "rules": hf.broadcast(RULES)},
        OUTPUT,
        null_keys=True,
        event_time={"rows": "at"},
        settings=limits,
        folder=folder,
    ) as harness:
        for batch_id, (rows, rules, moves_ms) in enumerate(batches):
            harness.advance(moves_ms)
            harness.process(rows=pa.Table.from_pylist(rows, ROWS), rules=pa.Table.from_pylist(rules, RULES))
            handle = harness.snapshot().handle
            assert handle is not None
            spark.commit(batch_id, [handle.to_text()], snapshot=batch_id == snapshot)
            kept.take(rows, rules, harness.timestamp_ms)
            expected.append({state: kept.rows_of(state, harness.timestamp_ms) for state in COLUMNS})
    with hf.Checkpoint(folder / "checkpoint") as checkpoint:
        for batch_id in reversed(range(len(batches))):
            for state, rows_expected in expected[batch_id].items():
                table = checkpoint.read("under-test", state, batch_id=batch_id).read_all()
                assert same(found_rows(table, state), rows_expected), (batch_id, state)
                if "user" in table.column_names and table.num_rows:
                    _check_lookup(checkpoint, state, batch_id, table)
        _check_differences(checkpoint, len(batches) // 3, len(batches) - 1)
        assert checkpoint.verify().whole
        _check_savepoint(checkpoint, folder, expected, len(batches) // 2)


def _check_lookup(checkpoint: hf.Checkpoint, state: str, batch_id: int, table: pa.Table) -> None:
    """One key, that of the row in the middle, as all rows have it."""
    row = table.slice(table.num_rows // 2, 1).to_pylist()[0]
    place = pc.field("place").is_null() if row["place"] is None else pc.field("place") == row["place"]
    wanted = (pc.field("user") == row["user"]) & place
    found = checkpoint.read("under-test", state, batch_id=batch_id, filter=wanted).read_all()
    assert repr(found.to_pylist()) == repr(table.filter(wanted).to_pylist()), state


def _check_differences(checkpoint: hf.Checkpoint, old: int, new: int) -> None:
    """The rows that differ, by dictionaries over what is read at both."""
    for state in COLUMNS:
        before, after = (_by_name(checkpoint.read("under-test", state, batch_id=at).read_all()) for at in (old, new))
        found = {
            (row["change"], _name(row)): [repr(row[column]) for column in ("value", "accumulator") if column in row]
            for row in checkpoint.diff("under-test", state, old, new).read_all().to_pylist()
        }
        expected = {("added", name): row for name, row in after.items() if name not in before}
        expected |= {("removed", name): row for name, row in before.items() if name not in after}
        expected |= {("changed", name): row for name, row in after.items() if before.get(name, row) != row}
        assert found == {key: row[:-1] for key, row in expected.items()}, state


def _name(row: dict[str, Any]) -> str:
    naming = ("user", "place", "slot", "position", "map_key", "time", "namespace")
    return repr([row[column] for column in naming if column in row])


def _by_name(table: pa.Table) -> dict[str, list[str]]:
    compared = [column for column in ("value", "accumulator", "expiry") if column in table.column_names]
    return {
        _name(row): [*(repr(row[column]) for column in compared if column != "expiry"), repr(row.get("expiry"))]
        for row in table.to_pylist()
    }


def _check_savepoint(checkpoint: hf.Checkpoint, folder: Path, expected: list[Any], batch_id: int) -> None:
    saved = hf.Savepoint.create(checkpoint=checkpoint, to=folder / "saved", batch_id=batch_id)
    assert saved.operators == {"under-test": tuple(sorted(COLUMNS))}
    assert saved.verify() == ()
    for state, rows_expected in expected[batch_id].items():
        table = saved.read("under-test", state).read_all()
        assert same(found_rows(table, state), rows_expected), state
        direct = checkpoint.read("under-test", state, batch_id=batch_id).read_all()
        assert table.schema == direct.schema, state
        assert repr(table.to_pylist()) == repr(direct.to_pylist()), state  # repr: a NaN is no other NaN's equal
