"""The judges, judged: what a wrong Holdfast would show, and that they say so."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.checkpoint_driver import SlotDriver
from tests.faults import crash_oracle
from tests.faults.eos_oracle import Differences, Oracle, Visible
from tests.faults.file_reading import FolderReader
from tests.faults.kill_plan import Coverage, Kill, Pair
from tests.faults.stored_state import read_states

INPUT = [(0, 0, "ann", "a"), (1, 0, "bob", "a"), (2, 1, "ann", "a")]


def right() -> list[dict[str, Any]]:
    """What three rows of two batches should have become."""
    numbers, befores, totals, batches = (5, 7, 11), (None, None, 5), (5, 12, 23), (0, 0, 1)
    made = zip(INPUT, befores, numbers, totals, batches)
    return [
        {"seq": seq, "file": file, "user": user, "kind": kind, "before": b, "number": n, "total": t, "batch": batch}
        for (seq, file, user, kind), b, n, t, batch in made
    ]


@pytest.fixture
def oracle(tmp_path: Path) -> Oracle:
    (tmp_path / "1.txt").write_text("0 5\n1 7\n2 11\n2 1")  # the last line was cut off by a kill
    made = Oracle(tmp_path)
    made.put(INPUT)
    return made


def judged(oracle: Oracle, *sinks: list[dict[str, Any]], key: str | None = "kind") -> Differences:
    return oracle.differences([Visible(rows, key) for rows in sinks], 2, complete=True)


def test_what_is_right_is_right(oracle: Oracle) -> None:
    assert not judged(oracle, right(), right())


def test_a_row_that_is_missing_is_lost(oracle: Oracle) -> None:
    assert judged(oracle, right(), right()[:2]).lost == 1


def test_a_row_that_stands_there_again_is_twice(oracle: Oracle) -> None:
    assert judged(oracle, [*right(), right()[2]]).twice == 1


def test_a_row_of_an_aborted_transaction_of_the_input_is_not_of_the_input(oracle: Oracle) -> None:
    stray = {**right()[2], "seq": 99}
    assert "is not of the input: None" in judged(oracle, [*right(), stray]).other[0]


def test_a_number_that_nobody_drew_is_known(oracle: Oracle) -> None:
    """Even where everything else fits: the last row of a user, in a sink without an order."""
    rows = right()
    rows[2] = {**rows[2], "number": 12, "total": 24}
    assert ["drawn by nobody" in told for told in judged(oracle, rows, key=None).other] == [True]


def test_a_number_of_which_a_line_was_cut_off_was_not_drawn(oracle: Oracle) -> None:
    rows = right()
    rows[2] = {**rows[2], "number": 1, "total": 13}
    assert any("drawn by nobody" in told for told in judged(oracle, rows, key=None).other)


def test_sinks_that_show_two_runs_of_a_batch_disagree(oracle: Oracle, tmp_path: Path) -> None:
    (tmp_path / "2.txt").write_text("2 13\n")
    rows = right()
    rows[2] = {**rows[2], "number": 13, "total": 25}
    assert any("sink 1 shows" in told for told in judged(oracle, right(), rows).other)


def test_done_said_too_early_is_seen(oracle: Oracle) -> None:
    """The rows come later, and at the end all is well."""
    rows = right()[:2]
    seen = [Visible(rows, "kind")]
    oracle.look(seen, 2)  # Spark had committed both batches
    rows.append(right()[2])
    found = oracle.differences(seen, 2, complete=True)
    assert (found.lost, found.twice) == (0, 0)
    assert ["done was said too early" in told for told in found.other] == [True]


def test_rows_that_come_before_their_batch_is_committed_are_in_time(oracle: Oracle) -> None:
    rows: list[dict[str, Any]] = []
    seen = [Visible(rows, "kind")]
    for count, committed in ((2, 0), (2, 1), (3, 1), (3, 2)):
        rows += right()[len(rows) : count]
        oracle.look(seen, committed)
    assert not oracle.differences(seen, 2, complete=True)


def test_a_state_that_dropped_one_update_breaks_the_chain(oracle: Oracle) -> None:
    rows = right()
    rows[2] = {**rows[2], "before": None}
    assert any("ann: 2 visible rows, a chain of 1" in told for told in judged(oracle, rows, key=None).other)


def test_a_total_that_misses_a_number_is_wrong(oracle: Oracle) -> None:
    rows = right()
    rows[2] = {**rows[2], "total": 16}
    assert any("the state has 16, the visible numbers make 23" in told for told in judged(oracle, rows, key=None).other)


def test_rows_that_changed_places_are_out_of_order(oracle: Oracle) -> None:
    assert any("comes after row 2" in told for told in judged(oracle, right()[::-1]).other)


def test_a_stranger_lists_what_is_committed_and_nothing_else(tmp_path: Path) -> None:
    reader = FolderReader(tmp_path)
    assert reader.rows() == []
    for name in ("_staging/q/s/a.parquet", "_hidden.parquet", "a.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"x": [1]}), tmp_path / name)
    assert reader.rows() == [{"x": 1}]
    pq.write_table(pa.table({"x": [2]}), tmp_path / "b.parquet")
    assert reader.rows() == [{"x": 1}, {"x": 2}]
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(AssertionError, match="committed files are gone"):
        reader.rows()


def test_all_that_is_stored_is_read_and_what_a_later_delta_took_away_is_not(tmp_path: Path) -> None:
    """By hand as docs/formats says: a value, a list, a map and an average of the key ``u``; then changes."""
    slot = tmp_path / "query" / "sums" / "slot-00000"
    (slot / "delta").mkdir(parents=True)
    kinds = ("value", "list", "map", "aggregating")
    states = [{"id": number, "name": kind, "kind": kind} for number, kind in enumerate(kinds, 1)]
    (slot.parent / "operator.json").write_text(json.dumps({"states": states, "key_columns": {"user": "string"}}))
    u, one, two = b"u\0\1", b"\1" + (1).to_bytes(8, "little"), b"\1" + (2).to_bytes(8, "little")
    average = struct.pack("<BBdq", 1, 0, 9.0, 2)
    first, second = (5 << 32).to_bytes(8, "big"), (6 << 32).to_bytes(8, "big")
    deltas: dict[str, list[tuple[int, bytes, bytes | None]]] = {
        "1-a": [(1, u, one), (2, u + first, one), (3, u + b"k\0\1", one), (3, u + b"l\0\1", one), (4, u, average)],
        "2-b": [(1, u, two), (2, u + second, two), (3, u + b"l\0\1", None), (1, b"stray\0\1", one)],
    }
    for name, rows in deltas.items():
        sequence, version = name.split("-")
        columns = {
            "state": [row[0] for row in rows],
            "key": [row[1] for row in rows],
            "value": [row[2] for row in rows],
        }
        table = pa.table(columns, schema=pa.schema([("state", "u2"), ("key", "binary"), ("value", "binary")]))
        with pa.ipc.new_file(str(slot / f"delta/{int(sequence):012d}-{version}.arrow"), table.schema) as writer:
            writer.write_table(table)
    handle = {
        "operator": "sums",
        "slot": 0,
        "version": 3,
        "snapshots": [],
        "deltas": [[1, "a", 0, ""], [2, "b", 0, ""]],
    }
    assert read_states(tmp_path, [json.dumps(handle)]) == {
        "sums": {
            "value": {("u",): 2, ("stray",): 1},
            "list": {("u",): [1, 2]},
            "map": {("u",): {"k": 1}},
            "aggregating": {("u",): 4.5},
        }
    }


#: Of three rows of two files and batches, what crash_stream.py makes of each.
_FOUND = {
    "seq": [0, 1, 2], "file": [0, 0, 1], "user": ["ann", "bob", "ann"], "kind": ["a", "a", "b"], "amount": [5, 7, 11],
    "batch": [0, 0, 1], "total": [5, 7, 16], "average": [5.0, 7.0, 8.0], "greatest": [5, 7, 11],
    "before": [None, None, 5], "listed": [1, 1, 2], "kind_before": pa.nulls(3, pa.int64()), "kinds": [1, 1, 2],
    "seen": [1, 1, 1], "best": [5, 7, 11], "trail": ["5", "7", "11"],
}  # fmt: skip


def of_the_crash_stream(folder: Path, **changed: Any) -> list[str]:
    """How its output, with these columns changed, differs from what it should be."""
    found = pa.table({**_FOUND, **changed})
    for name in ("source", "output/_spark_metadata"):
        (folder / name).mkdir(parents=True)
    for file in (0, 1):
        rows = pa.table(_FOUND).filter(pc.field("file") == file)
        pq.write_table(rows.select(["seq", "file", "user", "kind", "amount"]), folder / f"source/{file}.parquet")
    pq.write_table(found, folder / "output/part.parquet")
    entry = json.dumps({"path": (folder / "output/part.parquet").as_uri(), "action": "add"})
    (folder / "output/_spark_metadata/0").write_text(f"v1\n{entry}\n")
    return crash_oracle.output_differences(folder, complete=True)


def test_what_the_crash_stream_should_have_written_is_right(tmp_path: Path) -> None:
    assert of_the_crash_stream(tmp_path) == []


@pytest.mark.parametrize("column", sorted(_FOUND.keys() - {"seq", "file", "batch"}))
def test_a_column_of_which_a_value_is_missing_or_another_is_seen(tmp_path: Path, column: str) -> None:
    """An average that was NULL was compared with nothing."""
    kept = pa.table(_FOUND)[column]
    missing = pa.array([None, *kept.to_pylist()[1:]], kept.type)
    there = "x" if kept.type == pa.string() else 99
    other = pa.array([*kept.to_pylist()[:2], there], kept.type)
    rows = [(0, missing)] if kept[0].is_valid else []
    for seq, values in [*rows, (2, other)]:
        [told] = of_the_crash_stream(tmp_path / str(seq), **{column: values})
        assert told.startswith(f"row {seq}: expected")


def test_a_key_that_only_an_attempt_wrote_that_was_not_committed_is_looked_for(tmp_path: Path) -> None:
    """As if the slot had opened that attempt's version for the committed one, which has nothing of this key."""
    driver = SlotDriver(tmp_path)
    process = driver.process()
    driver.play(process, {1: 5})
    stray = process.run(driver.handle, driver.next_batch, [{77: 3}])
    driver.check(process)
    driver.handle = stray
    with pytest.raises(AssertionError):
        driver.check(process)


def test_a_pair_that_was_missed_is_tried_again_and_fails_in_the_end() -> None:
    coverage = Coverage(("one", "two"), ("worker", "group"), lambda pair: "no" if pair == ("two", "worker") else None)
    tried = []
    for pair in coverage.left(seed=3):
        tried.append(pair)
        if pair != Pair("one", "group"):
            coverage.cells[pair].kills.append(Kill(4, 77, (77,)))
    assert sorted(tried) == [Pair("one", "group")] * 3 + [Pair("one", "worker"), Pair("two", "group")]
    assert coverage.missing == [Pair("one", "group")]
    assert "NEVER OCCURRED: one × group" in coverage.table()
    assert "- no: two × worker" in coverage.table()
    assert '"dead": [77]' in coverage.as_json()


def test_campaigns_by_turns_strike_each_step_and_together_all_pairs() -> None:
    steps, who = ("first", "second", "third", "fourth", "fifth"), ("worker", "python", "group")

    def one_cannot_be(pair: Pair) -> str | None:
        return "not there" if pair == Pair("second", "worker") else None

    def night(first: int, turns: int = 1) -> Coverage:
        return Coverage(steps, who, one_cannot_be).by_turns(first, turns)

    assert [pair.step for pair in night(0).missing] == list(steps)
    assert {pair.who for pair in night(0).missing} == set(who)
    together = {pair for first in range(len(who)) for pair in night(first).missing}
    assert together == set(Coverage(steps, who, one_cannot_be).missing) == set(night(0, turns=5).missing)
