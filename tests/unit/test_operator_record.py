"""What is recorded of an operator, and what a restart that contradicts it is told."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from holdfast.checkpoint import OperatorRecord, StateRecord, check_operator, recorded_operator, register_operator
from holdfast.checkpoint.state_record import encode_schema
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
            {"states": (TOTAL, SEEN, replace(TOTAL, id=2, name="new"))},
            r"'new': recorded none, declared reducing\(value: int64\), sum",
        ),
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


def test_all_differences_are_named_at_once(store):
    register_operator(store, RECORD)
    with pytest.raises(Incompatible) as caught:
        register_operator(store, replace(RECORD, slots=4, max_parallelism=64, states=()))
    assert all(text in str(caught.value) for text in ("slots:", "max parallelism:", "state 'total'", "state 'seen'"))


def test_all_slots_may_register_at_once_and_get_the_same(store):
    declared = [replace(RECORD, labels=(i,) * 8) for i in range(12)]
    records = run_parallel([lambda d=d: register_operator(store, d) for d in declared], 12)
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
        "totals%20per%2Fuser/timers/32768.json",
        "totals%20per%2Fuser/timers/32769.json",
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
    with_due = replace(RECORD, states=(*RECORD.states, DUE))
    check_operator(store, folder, recorded_operator(store, folder), with_due)
    assert recorded_operator(store, folder) == RECORD
    register_operator(store, with_due)
    check_operator(store, folder, recorded_operator(store, folder), with_due)
    for contradiction in (RECORD, replace(RECORD, states=(*RECORD.states, replace(DUE, function="processing")))):
        with pytest.raises(Incompatible, match="state 'due': recorded timers"):
            check_operator(store, folder, recorded_operator(store, folder), contradiction)


def test_other_states_are_not_added(store):
    register_operator(store, replace(RECORD, states=(TOTAL,)))
    with pytest.raises(Incompatible, match="state 'seen': recorded none"):
        register_operator(store, RECORD)
    assert len(store.list("")) == 1


RULES = StateRecord(0x4000, "rules", "broadcast", pa.schema([("key", pa.string()), ("value", pa.int64())]))
HELD = StateRecord(0x4001, "held", "operator", pa.schema([("element", pa.int64())]), "split")


def test_states_that_belong_to_no_key_are_added_like_timers_with_ids_of_their_own(store):
    register_operator(store, RECORD)
    register_operator(store, replace(RECORD, states=(*RECORD.states, DUE, replace(HELD, id=0x4000))))
    every = replace(RECORD, states=(*RECORD.states, DUE, RULES, HELD))
    recorded = (*RECORD.states, DUE, replace(HELD, id=0x4000), replace(RULES, id=0x4001))
    assert register_operator(store, every).states == recorded
    assert [file.name for file in store.list("totals%20per%2Fuser/operator_states/")] == [
        "totals%20per%2Fuser/operator_states/16384.json",
        "totals%20per%2Fuser/operator_states/16385.json",
    ]
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


def test_a_state_in_the_folder_of_another_sort_is_corrupt(store, tmp_path):
    register_operator(store, RECORD)
    register_operator(store, replace(RECORD, states=(*RECORD.states, RULES)))
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
    records = run_parallel([lambda d=d: register_operator(store, d) for d in declared], 12)
    newest = register_operator(store, declared[0])
    assert sorted(state.id for state in newest.states[2:]) == [0x8000, 0x8001]
    assert {state.name: state.id for record in records for state in record.states} == {
        state.name: state.id for state in newest.states
    }


def test_a_damaged_record_of_timers_is_corrupt(store, tmp_path):
    register_operator(store, RECORD)
    register_operator(store, replace(RECORD, states=(*RECORD.states, DUE)))
    path = tmp_path / "totals%20per%2Fuser/timers/32768.json"
    text = path.read_text()
    path.write_text(text.replace("due", "duo"))
    with pytest.raises(Corrupt, match="timers/32768.json"):
        register_operator(store, RECORD)
    path.rename(path.with_name("32770.json")).write_text(text)
    with pytest.raises(Corrupt, match="expected timers of an id and a name of their own, found id 32768, name 'due'"):
        register_operator(store, RECORD)
