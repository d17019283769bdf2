"""An operator that begins with a savepoint: what each slot takes over, what is refused, what a dry run says."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.first_versions import QUERY, first_versions, registered_slots, slots_of
from tests.first_versions import begun as begun_with
from tests.kept_states import DOES, OUTPUT, ROWS, RULES, KeepsAll
from tests.spark_files import SparkFiles

import holdfast as hf
from holdfast.checkpoint import (
    OperatorRecord,
    SavepointOrigin,
    VersionsOrigin,
    operator_prefix,
    register_operator,
)
from holdfast.checkpoint.continued import continued
from holdfast.checkpoint.evolution import StateChanges
from holdfast.checkpoint.generation import begin_together
from holdfast.cli import main
from holdfast.errors import Corrupt, Incompatible, InvalidRequest
from holdfast.inspect.earlier import EarlierQuery, earlier_savepoint
from holdfast.sealed import seal, unseal
from holdfast.storage import StorageOptions, open_file_store
from holdfast.testing.harness import QUERY_ID, Harness

OPERATOR = "under-test"
KAFKA = json.dumps({"events": {"0": 17}})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A query with something in every state, after two batches, and a savepoint of each."""
    path: Path = tmp_path_factory.mktemp("earlier")
    spark = SparkFiles(path / "checkpoint", QUERY_ID)
    inputs = {"rows": ROWS, "rules": hf.broadcast(RULES)}
    key = {"rows": ["user", "place"]}
    with Harness(
        KeepsAll(), key, inputs, OUTPUT, name=OPERATOR, null_keys=True, event_time={"rows": "at"}, folder=path
    ) as harness:
        does = [name for name in DOES if name not in ("clear", "remove")]
        rows = [{"user": f"u{n % 9}", "place": n % 3 or None, "does": name, "n": n} for n in range(40) for name in does]
        for batch_id in range(2):
            harness.advance(1000)
            rules = [{"name": f"rule {n}", "n": n + batch_id} for n in range(3)]
            harness.process(rows=pa.Table.from_pylist(rows, ROWS), rules=pa.Table.from_pylist(rules, RULES))
            handle = harness.snapshot().handle
            assert handle is not None
            spark.commit(batch_id, [handle.to_text()], watermark_ms=77)
            hf.Savepoint.create(checkpoint=path / "checkpoint", to=path / f"saved-{batch_id}")
    return path


@pytest.fixture
def saved(folder: Path, tmp_path: Path) -> Path:
    """The newest savepoint, to be damaged."""
    shutil.copytree(folder / "saved-1", tmp_path / "saved")
    return tmp_path / "saved"


def said(dropped: Sequence[str] = (), renamed: Mapping[str, str] | None = None, added: Sequence[str] = ()):
    """As `hf.Restore.operator` is told it."""
    names = tuple((now, before) for before, now in (renamed or {}).items())
    return StateChanges(tuple(dropped), names, added=tuple(added))


def begun(saved: Path, slots: int, changes: StateChanges | None = None) -> OperatorRecord:
    return begun_with(saved, OPERATOR, slots, changes)


def rows_of(table: pa.Table, *, places: bool = True) -> list[str]:
    """``places``: slots and positions among them, which are others where an operator state was dealt out."""
    left = [name for name in table.column_names if places or name not in ("slot", "position")]
    return sorted(map(repr, table.select(left).to_pylist()))


@pytest.mark.parametrize("slots", [1, 3, 16])
def test_every_state_is_that_of_the_savepoint_whatever_the_slots(
    saved: Path, folder: Path, tmp_path: Path, slots: int
) -> None:
    with first_versions(begun(saved, slots), tmp_path) as checkpoint:
        shutil.rmtree(saved)  # nothing of it is needed any more
        assert checkpoint.verify().whole
        again = hf.Savepoint.create(checkpoint=checkpoint, to=tmp_path / "again")
    before = hf.Savepoint(folder / "saved-1")
    for state in before.operators[OPERATOR]:
        table = before.read(OPERATOR, state).read_all()
        in_place = "slot" not in table.column_names
        assert table.num_rows > 0
        assert rows_of(again.read(OPERATOR, state).read_all(), places=in_place) == rows_of(table, places=in_place), (
            state
        )
    ttl = again.manifest.operator(OPERATOR).state("recent").ttl
    assert ttl == before.manifest.operator(OPERATOR).state("recent").ttl is not None


def test_a_slot_reads_the_files_of_its_own_key_groups_only(saved: Path, tmp_path: Path) -> None:
    with first_versions(begun(saved, 4), tmp_path) as checkpoint:
        of_four = hf.Savepoint.create(checkpoint=checkpoint, to=tmp_path / "of-four")
    shutil.rmtree(tmp_path / "state")
    kept = begun(tmp_path / "of-four", 2, None)
    assert of_four.verify() == ()
    for path in (tmp_path / "of-four").glob("operators/*/*/slot-0000[23].parquet"):
        path.unlink()
    first, second = slots_of(kept, tmp_path)
    assert first.first_version() is not None
    with pytest.raises(Corrupt, match=r"slot 1: its first version cannot .*slot-0000[23].parquet is missing"):
        second.first_version()


def test_states_are_dropped_renamed_and_added(saved: Path, folder: Path, tmp_path: Path) -> None:
    earlier = earlier_savepoint(str(saved), StorageOptions())
    recorded, origin = earlier.operator(OPERATOR, "here", None)
    changes = said(["pair", "buffer"], {"total": "sum"}, ["pair", "fresh"])
    by_name = {state.name: state for state in recorded.states}
    states = [state for state in recorded.states if state.name not in ("pair", "buffer", "total")]
    states += [replace(by_name["total"], name="sum"), replace(by_name["recent"], name="fresh")]
    states += [replace(by_name["pair"], kind="list", schema=by_name["numbers"].schema)]
    made = continued(recorded, replace(recorded, states=tuple(states)), origin, changes)
    ids = {state.name: state.id for state in made.states}
    assert ids["sum"] == by_name["total"].id
    assert not {ids["pair"], ids["fresh"]} & {state.id for state in recorded.states}, "ids of states that were dropped"
    with first_versions(made, tmp_path) as checkpoint:
        total = hf.Savepoint(folder / "saved-1").read(OPERATOR, "total").read_all()
        assert rows_of(checkpoint.read(OPERATOR, "sum").read_all()) == rows_of(total)
        assert [checkpoint.read(OPERATOR, name).read_all().num_rows for name in ("pair", "fresh")] == [0, 0]


def test_states_of_a_checkpoint_are_dropped_and_renamed(folder: Path, tmp_path: Path) -> None:
    """Entries of a state that is left behind must not come along: a later state may get its id."""
    earlier = EarlierQuery(str(folder / "checkpoint"), str(folder / "state"), None, StorageOptions(), None)
    recorded, origin = earlier.operator(OPERATOR, "here", None)
    changes = said(["recent", "alarms", "rules"], {"total": "sum"})
    states = [
        replace(state, name={"total": "sum"}.get(state.name, state.name))
        for state in recorded.states
        if state.name not in changes.dropped
    ]
    made = continued(recorded, replace(recorded, slots=3, labels=(0, 1, 2), states=tuple(states)), origin, changes)
    assert OperatorRecord.from_json(made.to_json()) == made and '"version":4' in made.to_json()
    with first_versions(made, tmp_path) as checkpoint:
        total = hf.Savepoint(folder / "saved-1").read(OPERATOR, "total").read_all()
        assert rows_of(checkpoint.read(OPERATOR, "sum").read_all()) == rows_of(total)
        dropped = {state.id for state in recorded.states if state.name in changes.dropped}
        record, handles = checkpoint.record(OPERATOR), checkpoint.at().handles[OPERATOR]
        for slot, handle in handles.items():
            assert not dropped & {expiry.state_id for expiry in handle.expiry}
            for entries in checkpoint.tables.slot(record, slot).entries(handle, [(b"", b"")]):
                assert not dropped & {int.from_bytes(key[2:4], "big") for key in entries["key"].to_pylist()}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (said(["nothing"]), "dropped: 'nothing' is no state there"),
        (said(renamed={"nothing": "x"}), "renamed: 'nothing' is no state there"),
        (said(["pair"], {"pair": "x"}), "'pair' is both dropped and renamed"),
        (said(renamed={"pair": "x", "total": "x"}), "renamed: 'x' is the name of another state already"),
        (said(renamed={"pair": "total"}), "renamed: 'total' is the name of another state already"),
        (said(added=["x"]), "added: 'x' is declared by no state"),
        (said(added=["pair"]), "added: 'pair' is taken over"),
    ],
)
def test_changes_that_speak_of_what_is_not_there_are_refused(folder: Path, changes: StateChanges, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        begun(folder / "saved-1", 2, changes)


def test_a_file_that_was_changed_or_a_savepoint_that_is_another_is_refused(saved: Path, folder: Path, tmp_path) -> None:
    record = begun(saved, 1)
    table = next(saved.glob("operators/*/total/*.parquet"))
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 1
    table.write_bytes(content)
    (state,) = slots_of(record, tmp_path)
    with pytest.raises(Corrupt, match=r"slot 0: its first version cannot be made of .*expected .* bytes with checksum"):
        state.first_version()
    shutil.rmtree(saved)
    with pytest.raises(Corrupt, match="holds no savepoint"):
        state.first_version()
    shutil.copytree(folder / "saved-0", saved)
    with pytest.raises(Corrupt, match="holds another savepoint than the one with which this query began"):
        state.first_version()
    shutil.rmtree(saved)
    shutil.copytree(folder / "saved-1", saved)
    assert state.first_version() is not None


def test_a_time_to_live_that_is_none_is_refused(saved: Path, tmp_path: Path) -> None:
    text = (saved / "savepoint.json").read_text()
    fields = unseal(text, "holdfast.savepoint", 1, "here")
    states = {state["name"]: state for state in fields["operators"][0]["states"]}
    states["recent"]["ttl"][2] = -(1 << 63)
    (saved / "savepoint.json").write_text(seal("holdfast.savepoint", 1, fields))
    (state,) = slots_of(begun(saved, 1), tmp_path)
    with pytest.raises(Corrupt, match="the time to live of state 'recent' is none"):
        state.first_version()


def test_another_savepoint_is_another_origin_and_the_same_one_elsewhere_is_not(
    saved: Path, folder: Path, tmp_path: Path
) -> None:
    store = open_file_store(str(tmp_path / "state"))
    record = begun(saved, 2)
    register_operator(store, record, prefix="q/op")
    assert record.origin is not None
    elsewhere = replace(record.origin, store=str(folder / "saved-1"))
    registered = register_operator(store, begun(folder / "saved-1", 2), prefix="q/op")
    assert registered == replace(record, origin=elsewhere)
    register_operator(store, replace(record, origin=None), prefix="q/op")
    with pytest.raises(Incompatible, match=r"origin: recorded operator .* of the savepoint .*declared operator"):
        register_operator(store, begun(folder / "saved-0", 2), prefix="q/op")


@pytest.mark.parametrize("kind", ["canonical", "native", "query"])
def test_what_was_moved_before_a_slot_had_begun_is_read_where_the_program_has_it(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    """A path that executors do not reach was recorded by the first task: the right one was taken, and not looked at."""
    first, moved = tmp_path / "first", tmp_path / "moved"
    if kind == "native":
        made = folder / "state", folder / "checkpoint"
        hf.Savepoint.create(checkpoint=made[1], to=first, state=made[0], format="native")
    else:
        shutil.copytree(folder / ("saved-1" if kind == "canonical" else "state"), first)

    def declared(at: Path) -> OperatorRecord:
        if kind != "query":
            return begun(at, 2)
        earlier = EarlierQuery(str(folder / "checkpoint"), str(at), None, StorageOptions(), None)
        recorded, origin = earlier.operator(OPERATOR, "here", None)
        return continued(recorded, replace(recorded, slots=2, labels=(0, 1), inputs=()), origin, said())

    store, prefix = open_file_store(str(tmp_path / "state")), operator_prefix(QUERY, OPERATOR)
    recorded = register_operator(store, declared(first), prefix=prefix)
    first.rename(moved)
    with pytest.raises(Corrupt):
        next(registered_slots(recorded, store, prefix, tmp_path / "local")).first_version()
    assert not list((tmp_path / "state").rglob("origin.json"))
    corrected = register_operator(store, declared(moved), prefix=prefix)
    assert corrected.origin == replace(recorded.origin, store=str(moved))  # type: ignore[type-var]
    for state in registered_slots(corrected, store, prefix, tmp_path / "local"):
        assert state.first_version() is not None
    again = register_operator(store, replace(declared(moved), origin=None), prefix=prefix)
    assert again == recorded, "where it was is recorded, for a program that says nothing"


def test_a_savepoint_that_an_executor_does_not_see_is_not_called_one_to_be_deleted(saved: Path, tmp_path: Path) -> None:
    (state,) = slots_of(begun(saved, 1), tmp_path)
    saved.rename(tmp_path / "another machine's")
    with pytest.raises(Corrupt, match="driver and executors must reach the folder under one name") as told:
        state.first_version()
    assert repr(socket.gethostname()) in str(told.value)
    assert "delete" not in str(told.value) and "make the savepoint again" not in str(told.value)


def test_another_native_savepoint_of_the_same_query_is_another_origin(folder: Path, tmp_path: Path) -> None:
    store, checkpoint = open_file_store(str(tmp_path / "state")), folder / "checkpoint"
    for batch_id in range(2):
        to = tmp_path / f"native-{batch_id}"
        hf.Savepoint.create(checkpoint=checkpoint, to=to, state=folder / "state", batch_id=batch_id, format="native")
    shutil.copytree(tmp_path / "native-0", tmp_path / "elsewhere")
    record = begun(tmp_path / "native-0", 2)
    register_operator(store, record, prefix="q/op")
    assert record.origin is not None
    elsewhere = replace(record.origin, store=str(tmp_path / "elsewhere"))
    registered = register_operator(store, begun(tmp_path / "elsewhere", 2), prefix="q/op")
    assert registered == replace(record, origin=elsewhere)
    register_operator(store, replace(record, origin=None), prefix="q/op")
    of_query = EarlierQuery(str(checkpoint), str(folder / "state"), 0, StorageOptions(), None)
    others = begun(tmp_path / "native-1", 2).origin, of_query.operator(OPERATOR, "here", None)[1]
    for other in others:
        with pytest.raises(Incompatible, match=r"origin: recorded operator .* the savepoint .*declared operator"):
            register_operator(store, replace(record, origin=other), prefix="q/op")
    assert isinstance(record.origin, VersionsOrigin)  # as earlier versions recorded it: compared as they did
    register_operator(store, replace(record, origin=replace(record.origin, savepoint=None)), prefix="q/older")
    for other in others:
        register_operator(store, replace(record, origin=other), prefix="q/older")


def test_all_operators_of_a_query_begin_at_one_batch_savepoint_or_not(folder: Path, tmp_path: Path) -> None:
    store = open_file_store(str(tmp_path / "state"))
    begin_together(store, "new", begun(folder / "saved-1", 2))
    of_query = EarlierQuery(str(folder / "checkpoint"), str(folder / "state"), None, StorageOptions(), None)
    recorded, origin = of_query.operator(OPERATOR, "here", None)
    begin_together(store, "new", replace(recorded, origin=origin))
    with pytest.raises(Incompatible, match=f"begins at batch 0 of query {QUERY_ID}, and another operator .* batch 1"):
        begin_together(store, "new", begun(folder / "saved-0", 2))
    by_somebody = begun(folder / "saved-0", 2).origin
    assert isinstance(by_somebody, SavepointOrigin)
    by_nobody = replace(by_somebody, query_id=None, batch_id=None)
    begin_together(store, "new", replace(recorded, origin=by_nobody))
    assert [name for name in store.names("new/") if "savepoint-" in name]
    with pytest.raises(Incompatible, match="begins with nothing"):
        begin_together(store, "new", replace(recorded, origin=None))


def test_a_batch_is_chosen(folder: Path) -> None:
    earlier = EarlierQuery(str(folder / "checkpoint"), str(folder / "state"), 0, StorageOptions(), None)
    assert earlier.batch == (QUERY_ID, 0)
    assert earlier.operator(OPERATOR, "here", None)[1].batch_id == 0
    gone = EarlierQuery(str(folder / "checkpoint"), str(folder / "state"), 7, StorageOptions(), None)
    with pytest.raises(InvalidRequest, match="batch 7 is not among the committed batches"):
        _ = gone.operators


def test_a_dry_run_says_what_would_become_of_each_state(folder: Path) -> None:
    restore = hf.Restore(savepoint=folder / "saved-1")
    assert restore.operators() == (OPERATOR,)
    plan = restore.plan(KeepsAll(), slots=7)
    assert not plan.refused
    assert {state.fate for state in plan.states} == {"taken over"}
    assert "1 slots → 7" in str(plan) and "taken over: total, reducing(value: int64), sum" in str(plan)

    class Other(KeepsAll):
        pair = hf.ListState(pa.int64())  # type: ignore[assignment]
        fresh = hf.ValueState(pa.int64())

    plan = restore.plan(Other)
    fates = {state.was or state.becomes: state.fate for state in plan.states}
    assert (fates["pair"], fates["fresh"], fates["total"]) == ("refused", "refused", "taken over")
    assert "state 'pair': recorded value" in plan.refused[0] and "REFUSED" in str(plan)
    changed = restore.operator(dropped=["pair"], added=["pair", "fresh"]).plan(Other)
    assert not changed.refused
    assert [(one.was, one.becomes, one.fate) for one in changed.states if "pair" in (one.was, one.becomes)] == [
        ("pair", None, "dropped"),
        (None, "pair", "added"),
    ]
    assert json.loads(changed.to_json())["slots_before"] == 1
    assert restore.plan(KeepsAll, slots=100_000).refused


def test_a_dry_run_tells_of_a_time_to_live_that_counts_by_another_time(folder: Path) -> None:
    """What only the first batch would find: stamps of one time cannot be compared with the other."""

    class Other(KeepsAll):
        recent = hf.ValueState(pa.int64(), ttl=hf.TTL("10 s", time="event"))

    of_query = hf.Restore(folder / "checkpoint", state_dir=folder / "state")
    for restore in (hf.Restore(savepoint=folder / "saved-1"), of_query):
        plan = restore.plan(Other)
        assert [state.was for state in plan.states if state.fate == "refused"] == ["recent"]
        assert "'recent': counts its time to live in processing time, and is declared with event" in plan.refused[0]
        assert not restore.operator(dropped=["recent"], added=["recent"]).plan(Other).refused
        assert not restore.plan(KeepsAll).refused


def test_a_dry_run_at_a_shell(folder: Path) -> None:
    run = CliRunner().invoke
    found = run(main, ["restore", "plan", "--checkpoint", str(folder / "checkpoint"), "--batch", "0"])
    assert found.exit_code == 0 and "batch 0 of query" in found.output
    arguments = ["restore", "plan", "--savepoint", str(folder / "saved-1"), "--operator", OPERATOR, "--json"]
    found = run(main, [*arguments, "--processor", "tests.kept_states:KeepsAll", "--renamed", "total=sum"])
    assert found.exit_code == 1
    [plan] = json.loads(found.output)
    assert "state 'sum': recorded reducing" in plan["refused"][0]
    assert run(main, ["restore", "plan", "--savepoint", str(folder / "saved-1"), "--dropped", "x"]).exit_code == 2
    assert run(main, [*arguments, "--processor", "tests.kept_states:ROWS"]).exit_code == 2
    assert run(main, ["restore", "plan", "--savepoint", str(folder)]).exit_code == 1


def test_what_is_given_wrongly_is_told(folder: Path) -> None:
    for given in ({}, {"checkpoint": "/old", "savepoint": "/saved"}, {"savepoint": "/saved", "batch_id": 1}):
        with pytest.raises(InvalidRequest):
            hf.Restore(**given)
    restore = hf.Restore(savepoint=folder / "saved-1")
    with pytest.raises(InvalidRequest, match=r"expected names of states: \['x'\]"):
        restore.operator(dropped="x")
    with pytest.raises(InvalidRequest, match="no state of an operator 'other' in it; there is some of: 'under-test'"):
        restore.plan(name="other")
    (folder / "alone").mkdir(exist_ok=True)
    shutil.copytree(folder / "checkpoint", folder / "alone" / "checkpoint", dirs_exist_ok=True)
    with pytest.raises(InvalidRequest, match="found none in it or beside it: give the folder of .* as state_dir="):
        hf.Restore(folder / "alone" / "checkpoint").plan()
    with pytest.raises(InvalidRequest, match="source 0: expected offsets of Kafka"):
        restore.kafka_offsets()


def test_sources_of_a_savepoint_go_on(saved: Path) -> None:
    fields = unseal((saved / "savepoint.json").read_text(), "holdfast.savepoint", 1, "here")
    for sources in ([KAFKA], []):
        (saved / "savepoint.json").write_text(seal("holdfast.savepoint", 1, {**fields, "sources": sources}))
        restore = hf.Restore(savepoint=saved)
        if sources:
            assert restore.kafka_offsets() == KAFKA
            continue
        with pytest.raises(InvalidRequest, match="has no sources"):
            restore.kafka_offsets()


def test_one_of_several_kafka_sources_is_told_by_its_topic_and_never_guessed(saved: Path) -> None:
    """The first one was taken without a word, though inputs of hf.connect stand in the order of their names."""
    files, ticks = json.dumps({"logOffset": 3}), json.dumps({"ms": 1000})
    clicks, both = json.dumps({"clicks": {"0": 5}}), json.dumps({"clicks": {"0": 1}, "views": {"0": 2}})
    fields = unseal((saved / "savepoint.json").read_text(), "holdfast.savepoint", 1, "here")

    def of(*sources: str) -> hf.Restore:
        (saved / "savepoint.json").write_text(seal("holdfast.savepoint", 1, {**fields, "sources": sources}))
        return hf.Restore(savepoint=saved)

    assert of(files, clicks, ticks).kafka_offsets() == clicks, "one alone is of Kafka"
    assert of(clicks, clicks).kafka_offsets() == clicks, "one source at two places of the plan"
    restore = of(clicks, files, KAFKA)
    assert [restore.kafka_offsets(topic=topic) for topic in ("clicks", "events")] == [clicks, KAFKA]
    assert [restore.kafka_offsets(number) for number in (0, 2)] == [clicks, KAFKA]
    with pytest.raises(InvalidRequest, match=r"which source.* source 0 \(clicks\), source 2 \(events\): give topic="):
        restore.kafka_offsets()
    with pytest.raises(InvalidRequest, match=r"no source.* has read topic 'views'.*source 0 \(clicks\), source 2"):
        restore.kafka_offsets(topic="views")
    with pytest.raises(InvalidRequest, match=r"no source.* has read topic 'events'; topics are those of source 0 \("):
        restore.kafka_offsets(0, topic="events")
    restore = of(clicks, both)
    with pytest.raises(InvalidRequest, match=r"which source.* source 0 \(clicks\), source 1 \(clicks, views\)"):
        restore.kafka_offsets(topic="clicks")
    assert restore.kafka_offsets(1, topic="clicks") == both == restore.kafka_offsets(topic="views")


def test_a_table_that_is_a_link_is_refused(saved: Path, tmp_path: Path) -> None:
    record = begun(saved, 1)
    table = next(saved.glob("operators/*/total/*.parquet"))
    table.rename(tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", table)
    (state,) = slots_of(record, tmp_path)
    with pytest.raises(Corrupt, match="is a symbolic link"):
        state.first_version()
