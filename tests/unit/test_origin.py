"""Origins: what they may say, how an operator goes on from one, and how what has expired is carried over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.checkpoint_driver import operator_record, through_text

from holdfast.checkpoint import Handle, StateRecord, StoredHandle, VersionsOrigin
from holdfast.checkpoint.carried_expiry import carried, merged_expiry
from holdfast.checkpoint.continued import continued
from holdfast.checkpoint.delta_file import DELTA_SCHEMA
from holdfast.checkpoint.expiry import NOTHING_EXPIRED, StateExpiry
from holdfast.checkpoint.generation import Opening, begin_together, not_begun
from holdfast.checkpoint.handle import DeltaRef, SnapshotRef, broken_rule
from holdfast.checkpoint.lineage import next_handle
from holdfast.checkpoint.names import manifest_name
from holdfast.checkpoint.operator_record import OperatorRecord, register_operator
from holdfast.checkpoint.origin import key_groups_of, slots_of
from holdfast.checkpoint.retention import view_of
from holdfast.errors import Corrupt, Incompatible
from holdfast.sealed import seal
from holdfast.storage import LocalFileStore


def version(sequence: int) -> str:
    return f"{sequence:032x}"


def delta(sequence: int) -> DeltaRef:
    return DeltaRef(sequence, version(sequence), 100, "0" * 16)


def manifest(sequence: int) -> str:
    return manifest_name(sequence, version(sequence), version(1000 + sequence))


def snapshot(sequence: int) -> SnapshotRef:
    return SnapshotRef(sequence, version(sequence), manifest(sequence), 500, "0" * 16, 10_000)


FIRST = Handle("sums", 1, version(9), None, 9, -1, snapshots=(snapshot(9),), origin=9)
EARLIER = Handle("sums", 0, version(1), None, 1, 5, deltas=(delta(1),))
ORIGIN = VersionsOrigin("/state", "query", "sums", 7, (EARLIER.stored(), None), ("others", "sums"))


def after(handle: Handle, batches: int, named: dict[int, int] | None = None, retained: int = 2) -> Handle:
    """``named``: the sequence of the snapshot that a batch's handle names first."""
    for _ in range(batches):
        sequence = handle.sequence + 1
        first = Handle("sums", 1, version(sequence), handle.version_id, sequence, handle.batch_id + 1)
        newly = (named or {}).get(first.batch_id)
        handle = next_handle(handle, first, delta(sequence), snapshot(newly) if newly else None, retained)
        assert through_text(handle) == handle
    return handle


def test_a_line_that_begins_with_an_origin_names_its_snapshot_until_there_are_two() -> None:
    assert through_text(FIRST) == FIRST
    handle = after(FIRST, 3)
    assert (handle.start, handle.floor, [ref.sequence for ref in handle.deltas]) == (9, 9, [10, 11, 12])
    handle = after(handle, 2, {3: 11})
    assert [ref.sequence for ref in handle.snapshots] == [11, 9]
    assert (handle.start, handle.superseded) == (9, ())
    handle = after(handle, 1, {5: 13})
    assert [ref.sequence for ref in handle.snapshots] == [13, 11]
    assert (handle.start, handle.floor, [old.name for old in handle.superseded]) == (11, 9, [manifest(9)])
    assert view_of(handle, None, 0, 0, None).manifests == {manifest(13), manifest(11), manifest(9)}
    assert after(handle, 4).superseded == ()


@pytest.mark.parametrize(
    "change",
    [{"origin": 8}, {"origin": 0}, {"origin": -1}, {"snapshots": ()}, {"sequence": 10}, {"version_id": version(8)}],
)
def test_a_first_version_that_contradicts_itself_is_found(change) -> None:
    with pytest.raises(Corrupt, match="contradicts itself"):
        StoredHandle.from_text(replace(FIRST, **change).to_text())


def test_earlier_versions_read_handles_without_an_origin() -> None:
    """Of those that list their deltas, as earlier versions of Holdfast wrote them: a copy is the same text."""
    listed = replace(EARLIER, lists_deltas=True)
    assert '"version":1,' in listed.to_text() and "origin" not in listed.to_text()
    assert '"version":3,' in replace(FIRST, lists_deltas=True).to_text()
    assert '"version":4,' in EARLIER.to_text() and '"version":4,' in FIRST.to_text()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"handles": (None, None)}, "at least one slot"),
        ({"handles": (None, EARLIER.stored())}, "expected a version of slot 1, found that of operator 'sums', slot 0"),
        ({"operator": "others"}, "found that of operator 'sums'"),
        ({"operators": ("others",)}, "expected 'sums' among the operators"),
        ({"batch_id": 4}, "expected versions up to batch 4, found that of batch 5"),
    ],
)
def test_an_origin_that_contradicts_itself_is_found(change, says: str) -> None:
    record = replace(operator_record(2), origin=ORIGIN)
    assert OperatorRecord.from_json(record.to_json()) == record
    with pytest.raises(Corrupt, match=says):
        OperatorRecord.from_json(replace(record, origin=replace(ORIGIN, **change)).to_json())


def test_every_key_group_is_of_one_slot_and_every_overlap_is_found() -> None:
    for groups in (1, 2, 7, 16):
        for slots in range(1, groups + 1):
            owner = [group * slots // groups for group in range(groups)]
            for slot in range(slots):
                first, end = key_groups_of(slot, slots, groups)
                assert [group for group in range(groups) if owner[group] == slot] == list(range(first, end))
            for first in range(groups):
                for end in range(first + 1, groups + 1):
                    assert slots_of(first, end, slots, groups) == sorted(set(owner[first:end]))


def test_states_keep_their_ids_and_those_that_are_added_get_the_next() -> None:
    timers = StateRecord(0x8000, "due", "timers", pa.schema([("namespace", pa.string())]), "event")
    buffer = StateRecord(0x4000, "buffer", "operator", pa.schema([("element", pa.int64())]), "split")
    earlier = operator_record(2)
    earlier = replace(earlier, states=(*earlier.states, replace(timers, name="other")))
    states = tuple(replace(state, id=10 - state.id) for state in reversed(earlier.states[:3]))
    declared = replace(operator_record(5), states=(*states, replace(timers, name="other"), timers, buffer))
    made = continued(earlier, declared, ORIGIN)
    assert made.states == (*earlier.states, replace(timers, id=0x8001), buffer)
    assert (made.slots, made.labels, made.origin) == (5, declared.labels, ORIGIN)


def test_a_state_that_is_missing_or_new_is_refused() -> None:
    earlier = operator_record(2)
    with pytest.raises(Incompatible, match="state 'numbers': recorded list.*, declared none"):
        continued(earlier, replace(earlier, states=earlier.states[:2]), ORIGIN)
    new = replace(earlier.states[0], id=9, name="new")
    with pytest.raises(Incompatible, match="state 'new': recorded none, declared value"):
        continued(earlier, replace(earlier, states=(*earlier.states, new)), ORIGIN)


def test_all_slots_are_called_until_one_has_a_handle_and_below_that_batch_again(tmp_path) -> None:
    store = LocalFileStore(str(tmp_path))
    assert not Opening(store, "q/op", None).calls_all(0)
    opening, other = Opening(store, "q/op", ORIGIN), Opening(store, "q/op", ORIGIN)
    assert [opening.calls_all(batch_id) for batch_id in (0, 0, 3)] == [True] * 3
    opening.note_handle(4)
    other.note_handle(6)
    assert [other.calls_all(batch_id) for batch_id in (3, 4, 5)] == [True, False, False]
    assert not Opening(store, "q/op", ORIGIN).calls_all(4)


def begins(name: str, origin: VersionsOrigin | None = ORIGIN) -> OperatorRecord:
    return replace(operator_record(2, name), origin=origin)


def test_operators_that_begin_at_different_batches_are_refused(tmp_path) -> None:
    store = LocalFileStore(str(tmp_path))
    elsewhere = replace(ORIGIN, query_id="another", batch_id=9)
    for record in (begins("new", None), begins("sums"), begins("sums"), begins("others"), begins("more", elsewhere)):
        begin_together(store, "new", record)
    with pytest.raises(Incompatible, match="'sums' begins at batch 8 of query query, and another operator .* batch 7"):
        begin_together(store, "new", begins("sums", replace(ORIGIN, batch_id=8)))
    store.put("later/takeover-query.json", seal("holdfast.takeover", 1, {"batch_id": "7"}).encode())
    with pytest.raises(Corrupt, match="expected the number of a batch, and names, found"):
        begin_together(store, "later", begins("sums"))


@pytest.mark.parametrize("first", ["sums", "others"])
def test_an_operator_that_had_state_and_begins_with_nothing_is_refused_whoever_comes_first(tmp_path, first) -> None:
    store = LocalFileStore(str(tmp_path))
    records = {"sums": begins("sums"), "others": begins("others", None)}
    second = "others" if first == "sums" else "sums"
    register_operator(store, records[first], prefix=f"new/{first}")
    begin_together(store, "new", records[first])
    register_operator(store, records[second], prefix=f"new/{second}")
    with pytest.raises(Incompatible, match="operator 'others' begins with nothing, while another"):
        begin_together(store, "new", records[second])


def test_operators_that_have_not_begun_are_known_by_their_record_or_by_the_note(tmp_path) -> None:
    store = LocalFileStore(str(tmp_path))
    assert not_begun(store, "new", ()) == []
    record = begins("sums")
    register_operator(store, record, prefix="new/sums")
    assert not_begun(store, "new", ()) == ["sums"]
    begin_together(store, "new", record)
    assert not_begun(store, "new", ()) == ["others", "sums"]
    assert not_begun(store, "new", ("sums",)) == ["others"]
    # Another name here: that of the record counts. One that begins with nothing has nothing to wait for.
    of_others = (replace(EARLIER, operator="others").stored(),)
    renamed = begins("renamed", replace(ORIGIN, operator="others", handles=of_others))
    register_operator(store, renamed, prefix="new/renamed")
    register_operator(store, begins("new one", None), prefix="new/new%20one")
    assert not_begun(store, "new", ("sums",)) == ["renamed"]
    assert not_begun(store, "new", ("sums", "renamed")) == []


def stamped(stamp: int | None) -> bytes:
    return b"\x01row" if stamp is None else b"\x81" + stamp.to_bytes(8, "big", signed=True) + b"row"


def entries(state: int, *stamps: int | None) -> pa.RecordBatch:
    keys = [b"%d" % i for i in range(len(stamps))]
    columns: list[Iterable[Any]] = [[0] * len(stamps), [state] * len(stamps), keys, map(stamped, stamps)]
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, DELTA_SCHEMA)]
    return pa.RecordBatch.from_arrays(arrays, schema=DELTA_SCHEMA)


def expiry(cutoff: int, since: int = 0, latest: int = 100, ttl: int | None = 10, state: int = 1) -> StateExpiry:
    return StateExpiry(state, "processing", ttl, since, cutoff, latest)


def test_what_had_expired_in_its_own_slot_stays_gone_and_nothing_else_goes() -> None:
    ahead, behind = (expiry(50, since=40),), (expiry(20, since=30, latest=70),)
    merged = merged_expiry([ahead, behind], "here")
    assert merged == (expiry(20, since=40),)
    rows = entries(1, 10, 20, 21, 50, 51, None)
    assert carried(rows, ahead, merged, "here")["value"].to_pylist() == [stamped(51)]
    assert carried(rows, behind, merged, "here")["value"].to_pylist() == [
        stamped(21),
        stamped(50),
        stamped(51),
        stamped(30),  # written before there was a TTL: it ages from where its own slot says
    ]
    assert carried(entries(2, 1, None), ahead, merged, "here") == entries(2, 1, None)


def test_entries_of_a_slot_that_saw_no_batch_with_the_ttl_age_from_the_newest_slot() -> None:
    merged = merged_expiry([(expiry(50),), ()], "here")
    assert carried(entries(1, None, None), (), merged, "here")["value"].to_pylist() == [stamped(100)] * 2


def test_entries_of_a_slot_whose_ttl_came_back_have_the_stamp_from_which_they_count() -> None:
    back, gone_on = (replace(expiry(20, since=30), floor_ms=70),), (expiry(50, since=40),)
    merged = merged_expiry([back, gone_on], "here")
    assert merged == (expiry(20, since=40),)
    rows = entries(1, 20, 21, 70, 71, None)
    assert carried(rows, back, merged, "here")["value"].to_pylist() == [*map(stamped, (70, 70, 71, 70))]
    assert carried(rows, gone_on, merged, "here")["value"].to_pylist() == [stamped(70), stamped(71)]


def test_entries_of_a_slot_that_saw_its_ttl_go_and_not_come_back_count_from_the_newest_slot() -> None:
    away, back = (expiry(20, latest=30, ttl=None),), (expiry(50),)
    merged = merged_expiry([away, back], "here")
    assert merged == (expiry(20),)
    assert carried(entries(1, 20, 21), away, merged, "here")["value"].to_pylist() == [stamped(100)]
    assert carried(entries(1, 20, 21), away, merged_expiry([away], "here"), "here") == entries(1, 20, 21).slice(1)


def test_a_ttl_that_came_back_before_there_was_a_watermark_still_waits_for_one() -> None:
    waiting = (replace(expiry(20), time="event", floor_ms=(1 << 63) - 1),)
    merged = merged_expiry([waiting, (replace(expiry(10), time="event"),)], "here")
    assert merged == (replace(waiting[0], cutoff_ms=10),)
    assert carried(entries(1, 21, 99), waiting, merged, "here") == entries(1, 21, 99)


def test_entries_whose_time_has_not_begun_in_any_slot_do_not_age_yet() -> None:
    waiting = tuple(replace(one, time="event") for one in (expiry(NOTHING_EXPIRED, since=(1 << 63) - 1),))
    merged = merged_expiry([waiting, ()], "here")
    assert merged == waiting
    rows = entries(1, 60, None)
    assert carried(rows, waiting, merged, "here") == rows
    assert carried(rows, (), merged, "here") == rows


def test_a_slice_of_entries_is_carried_as_such() -> None:
    merged = (expiry(50),)
    assert carried(entries(1, 1, 60, 2, 70).slice(1, 3), merged, merged, "here")["value"].to_pylist() == [
        stamped(60),
        stamped(70),
    ]


@pytest.mark.parametrize("value", [b"", b"\x81short"])
def test_values_that_end_within_their_stamp_are_corrupt(value: bytes) -> None:
    rows = entries(1, 5).set_column(3, DELTA_SCHEMA.field(3), pa.array([value], pa.binary()))
    with pytest.raises(Corrupt, match="expected values"):
        carried(rows, (expiry(1),), (expiry(1),), "here")


def test_slots_that_count_by_different_times_cannot_be_put_together() -> None:
    with pytest.raises(Incompatible, match="processing time in some slots, in event time in others"):
        merged_expiry([(expiry(5),), (replace(expiry(5), time="event"),)], "here")


def test_the_rule_that_is_broken_is_said() -> None:
    assert (
        broken_rule(replace(FIRST, origin=3))
        == "a line that begins at version 3 names its snapshot until there are two, found [9]"
    )
