"""What is recorded of an operator, and what a restart that contradicts it is told."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest

from holdfast.checkpoint import (
    OperatorRecord,
    StateChanges,
    StateRecord,
    check_operator,
    recorded_operator,
    register_operator,
)
from holdfast.checkpoint.evolution import OperatorStates
from holdfast.checkpoint.state_log import write_states
from holdfast.checkpoint.state_record import encode_schema, state_fields
from holdfast.errors import Corrupt, Incompatible
from holdfast.sealed import seal
from holdfast.storage import LocalFileStore, run_parallel

TOTAL = StateRecord(0, "total", "reducing", pa.schema([("value", pa.int64())]), "sum")
SEEN = StateRecord(1, "seen", "map", pa.schema([("key", pa.string()), ("value", pa.list_(pa.float64()))]))
RECORD = OperatorRecord(
    name="totals per/user",
    max_parallelism=4096,
    slots=8,
    labels=(3, 1, 4, 15, 9, 2, 6, 5),
    key_schema=pa.schema([("user", pa.string()), ("at", pa.timestamp("us", "UTC"))]),
    null_keys=False,
    states=(TOTAL, SEEN),
)


@pytest.fixture
def store(tmp_path):
    return LocalFileStore(str(tmp_path))


def test_a_record_comes_back_from_its_text():
    assert OperatorRecord.from_json(RECORD.to_json()) == RECORD
    assert '"types":{"key":"string","value":"list<item: double>"}' in RECORD.to_json()


def test_inputs_are_recorded_only_where_there_are_several():
    """What is recorded of other operators has not changed: an earlier release reads it too."""
    assert "inputs" not in RECORD.to_json()
    several = replace(RECORD, inputs=(("orders", ("user", "at")), ("refunds", ("account", "ts"))))
    assert OperatorRecord.from_json(several.to_json()) == several


def test_a_record_torn_or_changed_is_found():
    text = RECORD.to_json()
    for length in range(0, len(text), 7):
        with pytest.raises(Corrupt):
            OperatorRecord.from_json(text[:length])
    for position in range(0, len(text), 7):
        with pytest.raises((Corrupt, Incompatible)):
            OperatorRecord.from_json(text[:position] + ("x" if text[position] != "x" else "y") + text[position + 1 :])


def test_the_first_run_records_and_a_restart_finds_the_same(store):
    assert register_operator(store, RECORD) == RECORD
    assert register_operator(store, RECORD) == RECORD
    assert [file.name for file in store.list("")] == ["totals%20per%2Fuser/operator.json"]


def test_recorded_labels_and_state_ids_win_over_declared_ones(store):
    register_operator(store, RECORD)
    declared = replace(RECORD, labels=tuple(range(8)), states=(replace(SEEN, id=0), replace(TOTAL, id=1)))
    assert register_operator(store, declared) == RECORD


USER_ALONE = pa.schema([("user", pa.string())])
LARGE_USER = pa.schema([("user", pa.large_string()), ("at", pa.timestamp("us", "UTC"))])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slots": 16}, r"slots: recorded 8, declared 16 \(go back to the recorded number, or rescale"),
        ({"max_parallelism": 128}, r"max parallelism: recorded 4096, declared 128"),
        ({"null_keys": True}, r"null keys: recorded False, declared True"),
        (
            {"key_schema": USER_ALONE},
            r"key columns: recorded \(user: string, at: timestamp\[us, tz=UTC\]\), declared \(user: string\)",
        ),
        ({"key_schema": LARGE_USER}, "key columns"),
        ({"states": (TOTAL,)}, r"'seen': recorded map\(key: string, value: list<item: double>\), declared none"),
        (
            {"states": (replace(TOTAL, function="max"), SEEN)},
            r"'total': recorded reducing\(value: int64\), sum, declared reducing\(value: int64\), max",
        ),
        ({"states": (TOTAL, replace(SEEN, kind="list"))}, "state 'seen'"),
        (
            {"inputs": (("orders", ("user", "at")), ("refunds", ("account", "ts")))},
            r"inputs and their keys: recorded one without a name, declared orders \(user, at\), refunds \(account",
        ),
    ],
)
def test_a_restart_that_contradicts_the_record_names_each_difference_and_a_way_out(store, change, message):
    register_operator(store, RECORD)
    with pytest.raises(Incompatible, match=message):
        register_operator(store, replace(RECORD, **change))
    assert register_operator(store, RECORD) == RECORD


def test_what_spark_knows_of_nulls_in_a_key_is_no_difference(store):
    """It follows from the rest of the plan: a `coalesce` around a field made another key of it."""
    loose, strict = (
        replace(
            RECORD,
            key_schema=pa.schema([pa.field("k", pa.struct([pa.field("user", pa.string(), nullable)]), nullable)]),
        )
        for nullable in (True, False)
    )
    for recorded, declared in ((loose, strict), (strict, loose)):
        assert recorded.differences(declared) == []
    register_operator(store, strict)  # as it was recorded before
    found = register_operator(store, loose)
    assert found.key_schema == OperatorRecord.from_json(strict.to_json()).key_schema == loose.key_schema
    other = replace(loose, key_schema=pa.schema([("k", pa.struct([("user", pa.binary())]))]))
    [difference] = strict.differences(other)
    assert "declared (k: struct<user: binary>)" in difference


def test_all_differences_are_named_at_once(store):
    register_operator(store, RECORD)
    with pytest.raises(Incompatible) as caught:
        register_operator(store, replace(RECORD, slots=4, max_parallelism=64, states=()))
    assert all(text in str(caught.value) for text in ("slots:", "max parallelism:", "state 'total'", "state 'seen'"))


def test_all_slots_may_register_at_once_and_get_the_same(store):
    declared = [replace(RECORD, labels=(i,) * 8) for i in range(12)]
    records = run_parallel([partial(register_operator, store, d) for d in declared], 12)
    assert len({record.labels for record in records}) == 1


def test_a_damaged_record_says_so(store, tmp_path):
    register_operator(store, RECORD)
    path = tmp_path / "totals%20per%2Fuser" / "operator.json"
    path.write_text(path.read_text().replace("4096", "4097"))
    with pytest.raises(Corrupt, match="operator.json"):
        register_operator(store, RECORD)


def test_a_record_in_another_operators_place_says_so(store):
    register_operator(store, RECORD, prefix="query/x")
    with pytest.raises(Corrupt, match="another operator"):
        register_operator(store, replace(RECORD, name="other"), prefix="query/x")


DUE = StateRecord(0x8000, "due", "timers", pa.schema([("namespace", pa.string())]), "event")
CLOCK = replace(DUE, name="clock", function="processing")


def test_timers_are_added_to_an_operator_that_had_none_and_keep_their_id(store):
    register_operator(store, RECORD)
    with_due = replace(RECORD, states=(DUE, *RECORD.states))
    recorded = replace(RECORD, states=(*RECORD.states, DUE))
    assert register_operator(store, with_due) == recorded
    assert register_operator(store, replace(RECORD, states=(*RECORD.states, replace(DUE, id=0x8005)))) == recorded
    with_both = replace(RECORD, states=(*RECORD.states, CLOCK, DUE))
    clock = replace(CLOCK, id=0x8001)
    assert register_operator(store, with_both) == replace(RECORD, states=(*recorded.states, clock))
    assert [file.name for file in store.list("")] == [
        "totals%20per%2Fuser/operator.json",
        "totals%20per%2Fuser/states/00001.json",
        "totals%20per%2Fuser/states/00002.json",
    ]


def test_timers_that_were_there_first_keep_their_ids_when_others_are_added(store):
    first = replace(RECORD, states=(TOTAL, DUE))
    register_operator(store, first)
    added = register_operator(store, replace(RECORD, states=(TOTAL, CLOCK, replace(DUE, id=0x8001))))
    assert added.states == (TOTAL, DUE, replace(CLOCK, id=0x8001))


def test_added_timers_contradict_like_any_state(store):
    register_operator(store, RECORD)
    register_operator(store, replace(RECORD, states=(*RECORD.states, DUE)))
    with pytest.raises(Incompatible, match=r"state 'due': recorded timers\(namespace: string\), event, declared none"):
        register_operator(store, RECORD)
    with pytest.raises(Incompatible, match=r"state 'due': recorded timers.*event, declared timers.*processing"):
        register_operator(store, replace(RECORD, states=(*RECORD.states, replace(DUE, function="processing"))))


def test_the_driver_compares_timers_too_and_adds_none(store):
    """New ones contradict nothing, and only a worker's batch records them; known ones are compared like any state."""
    folder = "totals%20per%2Fuser"
    register_operator(store, RECORD)

    def recorded() -> OperatorRecord:
        found = recorded_operator(store, folder)
        assert found is not None
        return found

    with_due = replace(RECORD, states=(*RECORD.states, DUE))
    check_operator(store, folder, recorded(), with_due)
    assert recorded() == RECORD
    register_operator(store, with_due)
    check_operator(store, folder, recorded(), with_due)
    for contradiction in (RECORD, replace(RECORD, states=(*RECORD.states, replace(DUE, function="processing")))):
        with pytest.raises(Incompatible, match="state 'due': recorded timers"):
            check_operator(store, folder, recorded(), contradiction)


RULES = StateRecord(0x4000, "rules", "broadcast", pa.schema([("key", pa.string()), ("value", pa.int64())]))
HELD = StateRecord(0x4001, "held", "operator", pa.schema([("element", pa.int64())]), "split")


def test_states_that_belong_to_no_key_are_added_like_timers_with_ids_of_their_own(store):
    register_operator(store, RECORD)
    register_operator(store, replace(RECORD, states=(*RECORD.states, DUE, replace(HELD, id=0x4000))))
    every = replace(RECORD, states=(*RECORD.states, DUE, RULES, HELD))
    recorded = (*RECORD.states, DUE, replace(HELD, id=0x4000), replace(RULES, id=0x4001))
    assert register_operator(store, every).states == recorded
    for change, message in (
        (
            replace(RECORD, states=(*RECORD.states, DUE, RULES)),
            r"'held': recorded operator\(element: int64\), split, decl",
        ),
        (
            replace(every, states=(*RECORD.states, DUE, RULES, replace(HELD, function="union"))),
            "split, declared .* union",
        ),
    ):
        with pytest.raises(Incompatible, match=message):
            register_operator(store, change)


def earlier_holdfast_adds(store, *states):
    """Files of their own, as Holdfast wrote before there was a log."""
    for state in states:
        folder, form = ("timers", "timers") if state.kind == "timers" else ("operator_states", "operator_state")
        text = seal(f"holdfast.{form}", 1, state_fields(state))
        store.put(f"totals%20per%2Fuser/{folder}/{state.id:05d}.json", text.encode())


def test_a_state_in_the_folder_of_another_sort_is_corrupt(store, tmp_path):
    register_operator(store, RECORD)
    earlier_holdfast_adds(store, RULES)
    folder = tmp_path / "totals%20per%2Fuser"
    text = (folder / "operator_states/16384.json").read_text()
    fields = {"id": 5, "name": "low", "kind": "broadcast", "types": {}, "function": None}
    lies = {**fields, "schema": encode_schema(RULES.schema)}
    (folder / "operator_states/00005.json").write_text(seal("holdfast.operator_state", 1, lies))
    with pytest.raises(
        Corrupt, match="expected operator states of an id and a name of their own, found id 5, name 'low'"
    ):
        register_operator(store, RECORD)
    (folder / "operator_states/00005.json").unlink()
    (folder / "timers").mkdir()
    (folder / "timers/16384.json").write_text(text)
    with pytest.raises(Corrupt, match="timers/16384.json"):
        register_operator(store, RECORD)


def test_a_broadcast_input_is_recorded_without_a_key(store):
    marked = replace(RECORD, inputs=(("orders", ("user", "at")), ("rules", ())))
    assert OperatorRecord.from_json(marked.to_json()) == marked
    register_operator(store, marked)
    unmarked = replace(marked, inputs=(("orders", ("user", "at")), ("rules", ("user", "at"))))
    with pytest.raises(Incompatible, match=r"recorded orders \(user, at\), rules \(broadcast\), declared orders"):
        register_operator(store, unmarked)


def test_of_all_that_add_timers_at_once_one_wins(store):
    register_operator(store, RECORD)
    declared = [
        replace(RECORD, states=(*RECORD.states, *timers)) for timers in [(DUE, CLOCK), (CLOCK, DUE)] for _ in range(6)
    ]
    records = run_parallel([partial(register_operator, store, d) for d in declared], 12)
    newest = register_operator(store, declared[0])
    assert sorted(state.id for state in newest.states[2:]) == [0x8000, 0x8001]
    assert {state.name: state.id for record in records for state in record.states} == {
        state.name: state.id for state in newest.states
    }


def test_a_damaged_record_of_timers_is_corrupt(store, tmp_path):
    register_operator(store, RECORD)
    earlier_holdfast_adds(store, DUE)
    path = tmp_path / "totals%20per%2Fuser/timers/32768.json"
    text = path.read_text()
    path.write_text(text.replace("due", "duo"))
    with pytest.raises(Corrupt, match="timers/32768.json"):
        register_operator(store, RECORD)
    path.rename(path.with_name("32770.json")).write_text(text)
    with pytest.raises(Corrupt, match="expected timers of an id and a name of their own, found id 32768, name 'due'"):
        register_operator(store, RECORD)


def test_what_an_earlier_holdfast_added_goes_on_in_the_log(store):
    register_operator(store, RECORD)
    earlier_holdfast_adds(store, DUE, RULES)
    every = replace(RECORD, states=(*RECORD.states, DUE, RULES))
    assert register_operator(store, every) == every
    assert not store.list("totals%20per%2Fuser/states/")
    more = register_operator(store, replace(every, states=(*every.states, replace(CLOCK, id=0x8000))))
    assert more.states == (*every.states, replace(CLOCK, id=0x8001))
    assert recorded_operator(store, "totals%20per%2Fuser") == more


def test_an_earlier_holdfast_that_adds_after_the_log_began_is_told_apart(store):
    register_operator(store, RECORD)
    register_operator(store, replace(RECORD, states=(*RECORD.states, NEW)))
    earlier_holdfast_adds(store, DUE)
    with pytest.raises(Incompatible, match="does not know the state 'due', which an earlier Holdfast has added since"):
        recorded_operator(store, "totals%20per%2Fuser")


NEW = replace(TOTAL, id=7, name="new")


def test_any_state_may_be_added_under_the_next_id(store):
    """Also one that is declared before the others: what is recorded keeps its id."""
    register_operator(store, RECORD)
    added = register_operator(store, replace(RECORD, states=(NEW, replace(TOTAL, id=8), replace(SEEN, id=9))))
    assert added.states == (TOTAL, SEEN, replace(NEW, id=2))
    assert register_operator(store, replace(RECORD, states=(SEEN, NEW, TOTAL))) == added
    assert [file.name for file in store.list("totals%20per%2Fuser/states/")] == [
        "totals%20per%2Fuser/states/00001.json"
    ]
    with pytest.raises(Incompatible, match=r"state 'new': recorded reducing\(value: int64\), sum, declared none"):
        register_operator(store, RECORD)


def test_a_state_that_a_program_only_leaves_out_is_not_dropped(store):
    register_operator(store, RECORD)
    with pytest.raises(Incompatible, match=r"<name> = hf.renamed_from\('seen', …\).*seen = hf.DroppedState\(\)"):
        register_operator(store, replace(RECORD, states=(TOTAL, replace(SEEN, name="sene"))))
    assert recorded_operator(store, "totals%20per%2Fuser") == RECORD


def test_neither_the_id_nor_the_name_of_a_dropped_state_is_used_again(store):
    register_operator(store, RECORD)
    without = replace(RECORD, states=(TOTAL,), changes=StateChanges(dropped=("seen",)))
    dropped = register_operator(store, without)
    assert dropped == replace(RECORD, states=(TOTAL,), dropped=(SEEN,))
    assert register_operator(store, without) == dropped, "the line stays"
    assert register_operator(store, replace(RECORD, states=(TOTAL,))) == dropped, "the line goes"
    assert register_operator(store, replace(RECORD, states=(TOTAL, NEW))).states == (TOTAL, replace(NEW, id=2))
    for states in (RECORD.states, (TOTAL, NEW, replace(NEW, name="seen"))):
        with pytest.raises(Incompatible, match="state 'seen': was dropped in this checkpoint, for good"):
            register_operator(store, replace(RECORD, states=states))


def test_a_dropped_name_is_not_to_be_had_by_a_rename_either(store):
    register_operator(store, RECORD)
    register_operator(store, replace(RECORD, states=(TOTAL,), changes=StateChanges(dropped=("seen",))))
    renamed = replace(RECORD, states=(replace(TOTAL, name="seen"),), changes=StateChanges(renamed=(("seen", "total"),)))
    with pytest.raises(Incompatible, match="state 'seen': was dropped in this checkpoint"):
        register_operator(store, renamed)


def test_a_renamed_state_keeps_its_id(store):
    register_operator(store, RECORD)
    sum_ = replace(TOTAL, id=1, name="sum")
    changes = StateChanges(renamed=(("sum", "total"),))
    renamed = register_operator(store, replace(RECORD, states=(sum_, SEEN), changes=changes))
    assert renamed == replace(RECORD, states=(replace(TOTAL, name="sum"), SEEN))
    assert register_operator(store, replace(RECORD, states=(sum_, SEEN), changes=changes)) == renamed, "the line stays"
    assert register_operator(store, replace(RECORD, states=(sum_, SEEN))) == renamed, "the line goes"
    with pytest.raises(Incompatible, match="state 'sum': recorded reducing.*declared none"):
        register_operator(store, RECORD)


@pytest.mark.parametrize(
    ("states", "changes", "message"),
    [
        ((replace(TOTAL, name="sum"), SEEN), {"renamed": (("sum", "totla"),)}, "expected a recorded state 'totla'"),
        ((TOTAL, SEEN), {"renamed": (("total", "seen"),)}, "'total': is recorded, and so is 'seen'"),
        ((TOTAL, SEEN), {"renamed": (("total", "seen"), ("seen", "total"))}, "'total': is recorded, and so is 'seen'"),
        (
            (replace(TOTAL, name="sum", function="max"), SEEN),
            {"renamed": (("sum", "total"),)},
            "'sum': recorded .* sum, declared .* max",
        ),
    ],
)
def test_a_rename_that_cannot_be_meant_is_refused(store, states, changes, message):
    register_operator(store, RECORD)
    with pytest.raises(Incompatible, match=message):
        register_operator(store, replace(RECORD, states=states, changes=StateChanges(**changes)))
    assert recorded_operator(store, "totals%20per%2Fuser") == RECORD


def test_in_a_new_checkpoint_changes_say_nothing(store):
    changes = StateChanges(dropped=("old",), renamed=(("total", "sum"),))
    assert register_operator(store, replace(RECORD, changes=changes)) == RECORD


def test_all_changes_at_once_make_one_document(store):
    register_operator(store, RECORD)
    changes = StateChanges(dropped=("seen",), renamed=(("sum", "total"),))
    declared = replace(RECORD, states=(NEW, DUE, replace(TOTAL, id=5, name="sum")), changes=changes)
    records = run_parallel([lambda: register_operator(store, declared) for _ in range(12)], 12)
    expected = (replace(TOTAL, name="sum"), replace(NEW, id=2), DUE)
    assert {(record.states, record.dropped) for record in records} == {(expected, (SEEN,))}
    assert [file.name for file in store.list("totals%20per%2Fuser/states/")] == [
        "totals%20per%2Fuser/states/00001.json"
    ]


def test_a_log_of_states_that_is_damaged_or_has_a_gap_is_corrupt(store, tmp_path):
    register_operator(store, RECORD)
    for more in ((NEW,), (NEW, DUE)):
        register_operator(store, replace(RECORD, states=(*RECORD.states, *more)))
    folder = tmp_path / "totals%20per%2Fuser/states"
    text = (folder / "00002.json").read_text()
    for damaged in (text[:-9], text.replace("new", "wen"), ""):
        (folder / "00002.json").write_text(damaged)
        with pytest.raises(Corrupt, match="states/00002.json"):
            recorded_operator(store, "totals%20per%2Fuser")
    (folder / "00002.json").write_text(text)
    (folder / "00001.json").unlink()
    with pytest.raises(Corrupt, match="expected documents 1 to 2, found 2"):
        recorded_operator(store, "totals%20per%2Fuser")
    (folder / "00001.json").write_text(text)
    (folder / "other.json").write_text(text)
    with pytest.raises(Corrupt, match="found 0, 1, 2"):
        recorded_operator(store, "totals%20per%2Fuser")


@pytest.mark.parametrize("twin", [{"id": 0}, {"name": "total"}, {"id": 0x4000}, {"id": -1}, {"id": True}, {"id": "5"}])
def test_a_log_with_an_id_or_a_name_twice_or_of_another_sort_is_corrupt(store, twin):
    register_operator(store, RECORD)
    lies = OperatorStates((*RECORD.states, replace(NEW, **twin)))
    write_states(store, "totals%20per%2Fuser", 1, lies)
    with pytest.raises(Corrupt, match="states/00001.json"):
        recorded_operator(store, "totals%20per%2Fuser")


def numbered(number, name, kind, **more):
    default = {"holdfast.default": more.pop("default")} if "default" in more else {}
    return pa.field(name, kind, metadata={"holdfast.field": number, **default}, **more)


@pytest.mark.parametrize(
    "fields",
    [
        [numbered("1", "a", pa.string())],
        [numbered("1", "a", pa.int64()), numbered("1", "b", pa.int8())],
        [numbered("one", "a", pa.int64())],
        [pa.field("a", pa.int64())],
        [numbered("1", "a", pa.float16())],
        [numbered("1", "a", pa.int64()), numbered("2", "b", pa.int8(), nullable=False)],
        [numbered("1", "a", pa.int64()), numbered("2", "b", pa.int8(), default="zz")],
        [numbered("1", "a", pa.int64()), numbered("2", "b", pa.int64(), default="01")],
        [numbered("1", "a", pa.int64()), numbered("2", "b", pa.string(), default="ff01")],
        [numbered("1", "a", pa.int64()), numbered("2", "b", pa.string(), default="02fffe")],
        [numbered("1", "a", pa.int64()), numbered("2", "b", pa.list_(pa.int8()), default="ff")],
    ],
    ids=repr,
)
def test_a_log_whose_schemas_do_not_follow_each_other_is_corrupt_and_read_by_nobody(store, fields):
    """As somebody may write it who knows how to seal: no value is read by it, whatever is in it."""
    register_operator(store, RECORD)
    earlier = pa.schema([("value", pa.struct([numbered("1", "a", pa.int8())]))])
    lies = replace(SEEN, kind="value", schema=pa.schema([("value", pa.struct(fields))]), earlier=(earlier,))
    write_states(store, "totals%20per%2Fuser", 1, OperatorStates((TOTAL, lies)))
    with pytest.raises(Corrupt, match="states/00001.json"):
        recorded_operator(store, "totals%20per%2Fuser")


def test_a_record_with_dropped_states_says_so_in_its_version():
    """So that an earlier Holdfast, which would use their ids again, refuses it."""
    assert '"version":1}' in RECORD.to_json()
    dropped = replace(RECORD, states=(TOTAL,), dropped=(SEEN,))
    assert '"version":4}' in dropped.to_json()
    assert OperatorRecord.from_json(dropped.to_json()) == dropped
