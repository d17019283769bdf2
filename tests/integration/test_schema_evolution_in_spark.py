"""Queries that go on with other states than before: restarts, readers, savepoints, restores, rollbacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.by_key import by_key
from tests.streams import FileStream

import holdfast as hf
from holdfast.spark import declared_operators
from holdfast.state import declared_states

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark

Streams = Callable[[str], FileStream]
EVENTS = "user string, amount long"


def program(**states: Any) -> hf.BatchProcessor:
    """Adds each amount to each of its states."""

    def process(self: Any, batch: pa.RecordBatch, ctx: Any) -> pa.RecordBatch:
        for name, declared in declared_states(self):
            state = getattr(self, name)
            (state.add if isinstance(declared, hf.ListState) else state.add_only)(batch["user"], batch["amount"])
        return batch

    made: hf.BatchProcessor = type("Program", (hf.BatchProcessor,), {**states, "process": process})()
    return made


def total() -> Any:
    return hf.ReducingState(pa.int64(), "sum")


def keyed(processor: Any, slots: int = 2, **options: Any) -> Callable[[DataFrame], DataFrame]:
    settings = {"slots": slots, "maxParallelism": 16, "fold.deltas.max": 2, "snapshot.deltas.max": 3}
    return hf.keyed("user", processor, EVENTS, name="totals", settings=settings, **options)


def batch_of(number: int) -> pa.Table:
    users = [f"user-{(number * 5 + at) % 12}" for at in range(20)]
    return pa.table({"user": users, "amount": pa.array([number + at for at in range(20)], pa.int64())})


def expected(first: int, end: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for number in range(first, end):
        for row in batch_of(number).to_pylist():
            found[row["user"]] += row["amount"]
    return found


def read(stream: FileStream, state: str, **options: Any) -> dict[str, int]:
    with hf.Checkpoint(stream.checkpoint, state=state_of(stream)) as checkpoint:
        table = checkpoint.read("totals", state, **options).read_all()
    found: Counter[str] = Counter()
    for user, value in zip(table["user"].to_pylist(), table["value"].to_pylist()):
        found[user] += value
    return found


def state_of(stream: FileStream) -> str:
    folder = stream.spark.conf.get("spark.holdfast.checkpoint.dir")
    assert folder is not None
    return folder


def test_a_query_goes_on_with_other_states_and_readers_know_them(streams: Streams, tmp_path: Path) -> None:
    stream = streams("evolving")
    programs = [
        program(total=total()),
        program(total=total(), items=hf.ListState(pa.int64()), extra=total()),
        program(sum=hf.renamed_from("total", total()), items=hf.ListState(pa.int64()), extra=hf.DroppedState()),
        program(items=hf.ListState(pa.int64()), sum=total()),
    ]
    for number, one in enumerate(programs):
        stream.write(*(batch_of(3 * number + at) for at in range(3)))
        assert len(stream.run(keyed(one))) == 3
    assert read(stream, "sum") == expected(0, 12)
    assert read(stream, "items") == expected(3, 12)
    assert read(stream, "sum", batch_id=4) == expected(0, 5), "under the name that it has now"
    with hf.Checkpoint(stream.checkpoint, state=state_of(stream)) as checkpoint:
        assert not checkpoint.verify().damaged
        assert [state.name for state in checkpoint.operators()[0].states] == ["items", "sum"]
        with pytest.raises(hf.InvalidRequest, match="extra"):
            checkpoint.read("totals", "extra")
    hf.Savepoint.create(checkpoint=stream.checkpoint, to=tmp_path / "savepoint", state=state_of(stream))
    table = hf.Savepoint(tmp_path / "savepoint").read("totals", "sum").read_all()
    assert by_key(table) == expected(0, 12)


def test_the_driver_refuses_what_a_restart_would_lose_and_says_what_to_write(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = streams("mistyped")
    stream.write(batch_of(0))
    stream.run(keyed(program(total=total())))
    monkeypatch.setattr(declared_operators, "_declared", {})  # as in a new program
    writer = stream.events().transform(keyed(program(totl=total()))).writeStream.format("noop")
    with pytest.raises(hf.Incompatible, match=r"state 'total': .*hf.renamed_from\('total', …\).*hf.DroppedState"):
        hf.start(writer, checkpoint=stream.checkpoint)


def profiles(kind: pa.DataType, fields: Callable[[int], dict[str, Any]]) -> hf.BatchProcessor:
    """Puts a struct for each row."""

    def process(self: Any, batch: pa.RecordBatch, ctx: Any) -> pa.RecordBatch:
        self.seen.put(batch["user"], pa.array([fields(amount) for amount in batch["amount"].to_pylist()]))
        return batch

    made: hf.BatchProcessor = type("Program", (hf.BatchProcessor,), {"seen": hf.ValueState(kind), "process": process})()
    return made


def test_values_of_earlier_types_are_read_by_queries_readers_savepoints_and_restores(
    streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = streams("values")
    before = pa.struct([("n", pa.int32()), ("comment", pa.string())])
    stream.write(*(pa.table({"user": [f"user-{n}"], "amount": [n]}) for n in range(4)))
    stream.run(keyed(profiles(before, lambda n: {"n": n, "comment": "x"})))
    after = pa.struct(
        [
            hf.with_default(pa.field("kind", pa.string(), False), "old"),
            hf.renamed_from("n", pa.field("number", pa.int64())),
            hf.dropped_field("comment"),
        ]
    )
    stream.write(pa.table({"user": ["user-4"], "amount": [4]}))
    stream.run(keyed(profiles(after, lambda n: {"kind": "new", "number": n})))
    expected: dict[str, dict[str, Any]] = {
        f"user-{n}": {"kind": "old" if n < 4 else "new", "number": n} for n in range(5)
    }
    with hf.Checkpoint(stream.checkpoint, state=state_of(stream)) as checkpoint:
        table = checkpoint.read("totals", "seen").read_all()
        assert by_key(table) == expected
        earlier = checkpoint.read("totals", "seen", batch_id=3).read_all()
        assert by_key(earlier) == {user: value for user, value in expected.items() if user != "user-4"}
        assert not checkpoint.verify().damaged
    hf.Savepoint.create(checkpoint=stream.checkpoint, to=tmp_path / "savepoint", state=state_of(stream))
    saved = hf.Savepoint(tmp_path / "savepoint").read("totals", "seen").read_all()
    assert by_key(saved) == expected
    expected["user-5"] = {"number": 5, "kind": None, "more": 1}
    last = pa.struct([("number", pa.int64()), ("kind", pa.string()), ("more", pa.int8())])
    origins = {"versions": hf.Restore(stream.checkpoint), "saved": hf.Restore(savepoint=tmp_path / "savepoint")}
    for name, restore in origins.items():
        new = streams(name)
        new.write(pa.table({"user": ["user-5"], "amount": [5]}))
        new.run(keyed(profiles(last, lambda n: {"number": n, "kind": None, "more": 1}), 3, restore=restore))
        with hf.Checkpoint(new.checkpoint, state=state_of(new)) as checkpoint:
            table = checkpoint.read("totals", "seen").read_all()
        found = by_key(table)
        assert found == {user: {"more": None, **value} for user, value in expected.items()}
    monkeypatch.setattr(declared_operators, "_declared", {})  # as in a new program
    wrong = profiles(pa.struct([("number", pa.int16())]), lambda n: {"number": n})
    writer = stream.events().transform(keyed(wrong)).writeStream.format("noop")
    with pytest.raises(hf.Incompatible, match="(?s)field 'number': .*declared int16.*field 'kind': .*dropped_field"):
        hf.start(writer, checkpoint=stream.checkpoint)


def test_a_batch_that_runs_again_in_a_new_program_counts_once(streams: Streams) -> None:
    stream = streams("rolled-back")
    stream.write(*(batch_of(number) for number in range(3)))
    stream.run(keyed(program(total=total(), extra=total())))
    stream.roll_back(1)
    stream.run(keyed(program(total=total(), extra=hf.DroppedState(), more=total())))
    assert read(stream, "total") == expected(0, 3)
    assert read(stream, "more") == expected(2, 3)


def few(number: int) -> pa.Table:
    """A batch of users of whom some never come again."""
    users = [f"user-{number + at % 4}" for at in range(8)]
    return pa.table({"user": users, "amount": pa.array(range(8), pa.int64())})


def tallies(kind: pa.DataType, fields: Callable[[int], dict[str, Any]]) -> hf.KeyedProcessor:
    """Counts rows in the field n of a struct; gives each row with the count after it."""

    def process(self: Any, key: Any, rows: pa.Table, ctx: Any) -> Any:
        held = self.tally.value()
        for row in rows.to_pylist():
            count = 1 if held is None else held["n"] + 1
            held = {**fields(ctx.batch_id), "n": count}
            yield {**row, "count": count}
        self.tally.update(held)

    made: hf.KeyedProcessor = type(
        "Program", (hf.KeyedProcessor,), {"tally": hf.ValueState(kind), "process": process}
    )()
    return made


def test_batches_that_are_visible_are_taken_over_by_programs_of_other_types(streams: Streams, tmp_path: Path) -> None:
    """Killed after the commit record, and started again with a changed program, twice: nothing is counted again."""
    stream, out = streams("taken-over"), str(tmp_path / "out")
    programs = [
        tallies(pa.struct([("n", pa.int8()), ("by", pa.string())]), lambda at: {"by": f"batch {at}"}),
        tallies(
            pa.struct([("at", pa.int64()), ("n", pa.int32()), hf.renamed_from("by", pa.field("who", pa.string()))]),
            lambda at: {"at": at, "who": f"batch {at}"},
        ),
        tallies(
            pa.struct([("n", pa.int64()), ("who", pa.string()), hf.dropped_field("at"), ("last", pa.int8())]),
            lambda at: {"who": f"batch {at}", "last": 1},
        ),
    ]
    settings = {"slots": 2, "maxParallelism": 16, "fold.deltas.max": 2}
    for number, one in enumerate(programs):
        stream.write(*(few(2 * number + at) for at in range(2)))
        frame = stream.events().transform(
            hf.keyed("user", one, f"{EVENTS}, count long", name="totals", settings=settings)
        )
        query = hf.write_exactly_once(
            frame, hf.FileSink(out), checkpoint=stream.checkpoint, trigger={"availableNow": True}
        )
        query.awaitTermination()
        if number < 2:
            for batch_id in range(2 * number, 2 * number + 2)[-1 - number :]:
                (stream.checkpoint / "commits" / str(batch_id)).unlink()
                (stream.checkpoint / "commits" / f".{batch_id}.crc").unlink(missing_ok=True)
    rows = hf.FileSink.read(out).to_pylist()
    given = Counter(row["user"] for number in range(6) for row in few(number).to_pylist())
    assert sorted((row["user"], row["count"]) for row in rows) == sorted(
        (user, count + 1) for user, times in given.items() for count in range(times)
    )
    with hf.Checkpoint(stream.checkpoint, state=state_of(stream)) as checkpoint:
        assert checkpoint.verify().whole
        held = checkpoint.read("totals", "tally").read_all()
    met = {row["user"]: number for number in range(6) for row in few(number).to_pylist()}
    assert {row["user"]: row["value"] for row in held.to_pylist()} == {
        user: {"n": times, "who": f"batch {met[user]}", "last": 1 if met[user] > 3 else None}
        for user, times in given.items()
    }


def test_a_restore_takes_states_over_as_a_restart_would(streams: Streams) -> None:
    old, new = streams("old"), streams("new")
    old.write(*(batch_of(number) for number in range(3)))
    old.run(keyed(program(total=total(), extra=total())))
    changed = {"sum": hf.renamed_from("total", total()), "extra": hf.DroppedState(), "more": total()}
    new.write(*(batch_of(number) for number in range(3, 5)))
    restore = hf.Restore(old.checkpoint)
    with pytest.raises(hf.Incompatible, match="state 'more': recorded none, declared reducing.*added=…"):
        new.run(keyed(program(**changed), 3, restore=restore))
    new.run(keyed(program(**changed), 3, restore=restore.operator(added=["more"])))
    new.write(batch_of(5))
    new.run(keyed(program(sum=total(), more=total(), late=total()), 3))
    assert read(new, "sum") == expected(0, 6)
    assert read(new, "more") == expected(3, 6)
    assert read(new, "late") == expected(5, 6), "nothing of what was dropped has its id"
    old.write(batch_of(3))
    old.run(keyed(program(total=total(), extra=total())))
    assert read(old, "extra") == expected(0, 4), "the earlier query has what the new one dropped"
