"""A checkpoint whose values were written by programs of three types: whatever reads, compares, checks, tidies, mends,
saves or edits it has them as the newest type has them.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.checkpoint_driver import flip
from tests.evolving_queries import OPERATOR, Query

import holdfast as hf
from holdfast.cli import main
from holdfast.source.state.source import StateDataSource, StateReader

DAY_S = 86_400
FIRST = pa.struct([pa.field("a", pa.int32(), False), ("b", pa.string()), ("in", pa.struct([("c", pa.int8())]))])
SECOND = pa.struct(
    [
        hf.with_default(pa.field("kind", pa.string(), False), "old"),
        hf.renamed_from("a", pa.field("n", pa.int64(), False)),
        ("b", pa.string()),
        ("in", pa.struct([("c", pa.int32()), ("d", pa.int8())])),
    ]
)
THIRD = pa.struct(
    [
        hf.renamed_from("n", pa.field("number", pa.int64())),
        hf.dropped_field("b"),
        ("in", pa.struct([hf.dropped_field("c"), ("d", pa.int16()), ("e", pa.list_(pa.int8()))])),
        ("kind", pa.string()),
    ]
)
PLAIN = pa.struct(
    [
        ("number", pa.int64()),
        ("in", pa.struct([("d", pa.int16()), ("e", pa.list_(pa.int8()))])),
        ("kind", pa.string()),
    ]
)
#: What is written, by the number of the program; and what the newest type has then.
GIVEN: dict[int, Any] = {
    1: {"a": 1, "b": "x", "in": {"c": 1}},
    2: {"kind": "new", "n": 1 << 40, "b": None, "in": None},
    3: {"number": None, "in": {"d": 300, "e": [1]}, "kind": None},
}
READ: dict[int, Any] = {
    1: {"number": 1, "in": {"d": None, "e": None}, "kind": "old"},
    2: {"number": 1 << 40, "in": None, "kind": "new"},
    3: GIVEN[3],
}


class Gathered:
    """Keeps what came last."""

    def create(self) -> Any:
        return None

    def add(self, accumulator: Any, program: int) -> Any:
        return GIVEN[program]

    def merge(self, a: Any, b: Any) -> Any:
        return b

    def result(self, accumulator: Any) -> Any:
        return accumulator


def process(self: Any, key: Any, rows: Any, ctx: Any) -> None:
    for n in rows["n"].to_pylist():
        self.held.update(GIVEN[n])
        self.many.add(GIVEN[n])
        (self.by if hasattr(self, "by") else self.later).put(n, GIVEN[n])
        self.folded.add(n)
        self.gathered.add(n)
        self.buffer.add(GIVEN[n])


def program(number: int) -> Any:
    kind = (FIRST, SECOND, THIRD)[number - 1]
    by = hf.MapState(pa.int64(), kind)
    result = (FIRST, pa.struct([(one.name, one.type) for one in (FIRST if number == 1 else PLAIN)]), PLAIN)[number - 1]
    if number == 2:
        result = pa.struct(
            [("kind", pa.string()), ("n", pa.int64()), ("b", pa.string()), ("in", SECOND.field("in").type)]
        )
    lines: dict[str, Any] = {
        "held": hf.ValueState(kind, ttl="9000 d"),
        "many": hf.ListState(kind),
        "folded": hf.ReducingState((pa.int8(), pa.int32(), pa.int64())[number - 1], "sum"),
        "gathered": hf.AggregatingState(pa.int64(), Gathered, kind, result),
        "buffer": hf.OperatorState(kind, redistribution="union"),
        "unseen": hf.DroppedState() if number == 3 else hf.ListState(pa.int64()),
        **({"by": by} if number == 1 else {"later": hf.renamed_from("by", by)}),
    }
    return type("Program", (hf.KeyedProcessor,), {**lines, "process": process})()


@pytest.fixture
def query(tmp_path: Path) -> Iterator[Query]:
    """Batch 0 to 5: two of each program; a user of each, and "all", which every program meets."""
    query = Query(tmp_path / "query", program(1), settings={"fold.deltas.max": 2, "snapshot.deltas.max": 3})
    for number, user in ((1, "ada"), (2, "bob"), (3, "cyd")):
        if number > 1:
            query.harness.restart(program(number))
        query.batch(user, n=number)
        query.batch("all", n=number)
    yield query
    query.harness.close()


def opened(query: Query) -> hf.Checkpoint:
    return hf.Checkpoint(query.folder / "checkpoint", state=query.folder / "state")


def by_user(table: pa.Table, column: str = "value") -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in table.to_pylist():
        found.setdefault(row["user"], []).append(row[column])
    return found


NEWEST = {"ada": [READ[1]], "bob": [READ[2]], "cyd": [READ[3]], "all": [READ[3]]}
ALL = {"ada": [READ[1]], "bob": [READ[2]], "cyd": [READ[3]], "all": [READ[1], READ[2], READ[3]]}


def assert_right(read: Any) -> None:
    """``read``: a table of a state."""
    assert by_user(read("held")) == NEWEST == by_user(read("gathered"), "accumulator")
    assert by_user(read("many")) == ALL == by_user(read("later"))
    assert by_user(read("folded")) == {"ada": [1], "bob": [2], "cyd": [3], "all": [6]}
    assert read("folded").schema.field("value").type == pa.int64()
    assert sorted(read("buffer")["value"].to_pylist(), key=repr) == sorted([*READ.values()] * 2, key=repr)
    for state in ("held", "many", "later", "buffer", "gathered"):
        kind = read(state).schema.field("accumulator" if state == "gathered" else "value").type
        assert kind.equals(PLAIN, check_metadata=True), "numbers of fields are nobody's but the record's"


def test_every_state_is_read_as_the_newest_type_has_it_at_every_batch(query: Query) -> None:
    with opened(query) as checkpoint:
        assert_right(lambda state: checkpoint.read(OPERATOR, state).read_all())
        for batch_id, expected in ((0, {"ada": [1]}), (1, {"ada": [1], "all": [1]}), (3, {"all": [1, 2]})):
            table = checkpoint.read(OPERATOR, "many", batch_id=batch_id).read_all()
            assert by_user(table).items() >= {user: [READ[n] for n in ns] for user, ns in expected.items()}.items()
        with pytest.raises(hf.InvalidRequest, match="unseen"):
            checkpoint.read(OPERATOR, "unseen")
        told = {state.name: state.types for state in checkpoint.operators()[0].states}
        assert told["held"] == {"value": str(PLAIN)}


def test_a_difference_tells_what_changed_and_nothing_of_types(query: Query) -> None:
    with opened(query) as checkpoint:
        rows = checkpoint.diff(OPERATOR, "held", 1, 5).read_all().to_pylist()
        found = {row["user"]: (row["change"], row["old_value"], row["value"]) for row in rows}
        assert found == {
            "bob": ("added", None, READ[2]),
            "cyd": ("added", None, READ[3]),
            "all": ("changed", READ[1], READ[3]),
        }
        assert checkpoint.diff(OPERATOR, "many", 0, 1).read_all()["user"].to_pylist() == ["all"]


def test_a_value_that_is_written_again_as_it_was_is_no_difference(tmp_path: Path) -> None:
    """Its bytes are others: another program wrote them."""
    query = Query(tmp_path / "query", program(2))
    query.batch("ada", n=2)
    query.harness.restart(program(3))
    GIVEN[4] = READ[2]
    query.batch("ada", n=4)
    with opened(query) as checkpoint:
        assert checkpoint.diff(OPERATOR, "held", 0, 1).read_all().num_rows == 0
        assert checkpoint.diff(OPERATOR, "many", 0, 1).read_all().num_rows == 1
    query.harness.close()


def test_gc_verify_and_repair_leave_it_as_it_is(query: Query) -> None:
    query.harness.kill()  # a copy of the folder is made below: nothing may be uploaded meanwhile
    state = query.folder / "state"
    for path in state.rglob("*"):
        os.utime(path, (time.time() - 2 * DAY_S,) * 2)
    with opened(query) as checkpoint:
        checkpoint.gc(apply=True)
    shutil.copytree(state, query.folder / "backup")
    files = [path for folder in ("delta", "sst", "snapshot") for path in sorted(state.rglob(f"{folder}/*"))]
    assert files
    for path in files:
        flip(str(path))
    with opened(query) as checkpoint:
        assert not checkpoint.verify().whole
        assert checkpoint.repair(apply=True, backup=query.folder / "backup").verification.whole
        assert_right(lambda state: checkpoint.read(OPERATOR, state).read_all())
    query.harness.kill(lose_local_copies=True)
    assert query.harness.state("held", "ada") == READ[1] and query.harness.state("many", "all") == ALL["all"]


@pytest.mark.parametrize("what", ["damaged", "missing", "a gap"])
def test_a_log_of_states_that_is_not_whole_is_told_by_all_that_read(query: Query, what: str) -> None:
    """Values of three types would be read as those of one."""
    newest, first = sorted((query.folder / "state").rglob("states/*.json"), reverse=True)
    if what == "damaged":
        flip(str(newest))
    else:
        (newest if what == "missing" else first).unlink()
    with opened(query) as checkpoint:
        found = checkpoint.verify()
        if what == "missing":  # as if the third program never came: what it wrote is refused, and not misread
            with pytest.raises((hf.Corrupt, hf.Incompatible), match="schema version 3"):
                checkpoint.read(OPERATOR, "held").read_all()
            return
        assert not found.whole
        with pytest.raises(hf.Corrupt, match="states"):
            checkpoint.read(OPERATOR, "held").read_all()


def test_a_savepoint_has_the_newest_type_and_can_be_edited_and_begun_with(query: Query, tmp_path: Path) -> None:
    saved = hf.Savepoint(query.saved())
    assert saved.verify() == ()
    assert_right(lambda state: saved.read(OPERATOR, state).read_all())
    rows = saved.read(OPERATOR, "held").read_all().to_pylist()
    table = pa.Table.from_pylist([{**row, "value": READ[2]} for row in rows], saved.read(OPERATOR, "held").schema)
    hf.Savepoint.write(tmp_path / "edited", hf.OperatorTables(OPERATOR, {"held": table}), base=query.folder / "saved")
    for origin, expected in (
        (query.folder / "saved", NEWEST["ada"][0]),
        (tmp_path / "edited", READ[2]),
        (query, READ[1]),
    ):
        new = Query(tmp_path / f"new-{len(os.listdir(tmp_path))}", program(3), origin)
        assert new.harness.state("held", "ada") == expected
        assert new.harness.state("many", "all") == ALL["all"]
        new.harness.close()


def test_the_program_before_is_refused_with_a_savepoint_of_the_one_after(query: Query, tmp_path: Path) -> None:
    """What was dropped would be empty, and what was widened does not fit."""
    saved = query.saved()
    with pytest.raises(hf.Incompatible) as told:
        Query(tmp_path / "back", program(1), saved)
    for part in ("field 'a': recorded none, declared int32 not null", "field 'number': recorded int64, declared none"):
        assert part in str(told.value)


def test_commands(query: Query) -> None:
    checkpoint, state = str(query.folder / "checkpoint"), ["--state", str(query.folder / "state")]

    def run(*arguments: str) -> list[str]:
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, (arguments, done.output)
        return done.output.splitlines()

    read = [json.loads(line) for line in run("checkpoints", "read", checkpoint, OPERATOR, "held", *state, "--json")]
    assert {row["user"]: [row["value"]] for row in read} == NEWEST
    at = ["--batch", "1", "--where", "user=ada"]
    (row,) = (
        json.loads(one) for one in run("checkpoints", "read", checkpoint, OPERATOR, "many", *at, *state, "--json")
    )
    assert row["value"] == READ[1]
    changes = [
        json.loads(line) for line in run("checkpoints", "diff", checkpoint, OPERATOR, "later", "1", *state, "--json")
    ]
    assert sorted((row["user"], row["change"]) for row in changes) == [
        ("all", "added"),
        ("all", "added"),
        ("bob", "added"),
        ("cyd", "added"),
    ]
    assert json.loads("\n".join(run("checkpoints", "verify", checkpoint, *state, "--json")))["whole"]
    shown = "\n".join(run("checkpoints", "show", checkpoint, *state))
    assert "number: int64" in shown and "holdfast." not in shown
    target = str(query.folder / "by-command")
    run("savepoint", "create", "--checkpoint", checkpoint, "--to", target, *state)
    assert run("savepoint", "verify", target) == ["all is whole"]
    rows = [json.loads(line) for line in run("savepoint", "read", target, OPERATOR, "gathered", "--json")]
    assert {row["user"]: [row["accumulator"]] for row in rows} == NEWEST


def test_the_data_source_gives_a_state_as_the_newest_type_has_it(query: Query) -> None:
    """Its reader, as a task of Spark calls it."""

    def read(state: str) -> pa.Table:
        options = {"checkpoint": str(query.folder / "checkpoint"), "operator": OPERATOR, "state": state}
        source = StateDataSource({**options, "folder": str(query.folder / "state")})
        reader = source.reader(source.schema())
        assert isinstance(reader, StateReader)
        return pa.Table.from_batches([batch for part in reader.partitions() for batch in reader.read(part)])

    assert by_user(read("held")) == NEWEST
    assert by_user(read("many")) == ALL
    assert by_user(read("folded"))["all"] == [6]


def test_what_spark_planned_to_read_before_the_types_changed_is_refused_and_never_read_in_other_places(
    tmp_path: Path,
) -> None:
    """Spark takes fields of structs by their places, and these change."""
    query = Query(tmp_path / "query", program(2))
    query.batch("ada", n=2)
    options = {"checkpoint": str(query.folder / "checkpoint"), "operator": OPERATOR, "state": "held"}
    source = StateDataSource({**options, "folder": str(query.folder / "state")})
    loaded = source.schema()
    reader = source.reader(loaded)
    (part,) = reader.partitions()
    query.harness.restart(program(3))
    query.batch("ada", n=3)
    with pytest.raises(hf.Incompatible, match="a new program has changed its types since Spark planned to read it"):
        list(reader.read(part))
    with pytest.raises(hf.InvalidRequest, match="or load it anew where a new program has changed"):
        source.reader(loaded)
    query.harness.close()
