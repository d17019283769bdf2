"""Handles: their text, the rules they keep, and how one follows from another."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint.expiry import StateExpiry
from holdfast.checkpoint.handle import DeltaRef, Handle, SnapshotRef, StoredHandle, Superseded, broken_rule
from holdfast.checkpoint.lineage import is_expired, listing, may_name, next_handle
from holdfast.checkpoint.names import manifest_name
from holdfast.errors import Corrupt, Incompatible, InternalError
from holdfast.sealed import seal


def version(sequence: int, branch: str = "0") -> str:
    return f"{branch * 8}{sequence:024x}"


def delta(sequence: int, branch: str = "0") -> DeltaRef:
    return DeltaRef(sequence, version(sequence, branch), 100 + sequence, f"{sequence:016x}")


def manifest(sequence: int, branch: str = "0") -> str:
    return manifest_name(sequence, version(sequence, branch), f"{sequence:032x}")


def snapshot(sequence: int, branch: str = "0") -> SnapshotRef:
    return SnapshotRef(sequence, version(sequence, branch), manifest(sequence, branch), 500, "0" * 16, 10_000)


def back(handle: Handle) -> Handle:
    """From its text, where the deltas before the newest are known."""
    return StoredHandle.from_text(handle.to_text()).whole(handle.deltas[:-1])


def unsealed(handle: Handle) -> dict[str, object]:
    """What its text says."""
    fields = json.loads(handle.to_text())
    return {name: fields[name] for name in fields if name not in ("checksum", "format", "version")}


def chain(length: int, snapshots: dict[int, int] | None = None, retained: int = 3) -> Handle:
    """A handle after ``length`` batches; ``snapshots``: sequence of the snapshot that batch b's handle names first."""
    handle = None
    for batch in range(length):
        named = (snapshots or {}).get(batch)
        sequence = batch + 1
        first = Handle("op", 3, version(sequence), version(sequence - 1) if batch else None, sequence, batch)
        handle = next_handle(handle, first, delta(sequence), snapshot(named) if named else None, retained)
    assert handle is not None
    return handle


def test_a_handle_comes_back_from_its_text():
    handle = chain(40, {5: 4, 10: 9, 20: 18, 30: 29})
    for one in (handle, replace(handle, lists_deltas=True)):
        assert back(one) == one
        assert one.to_text() == StoredHandle.from_text(one.to_text()).to_text() == back(one).to_text()
    assert StoredHandle.from_text(replace(handle, lists_deltas=True).to_text()).whole().deltas == handle.deltas


def test_names_that_are_no_ascii_come_back():
    handle = replace(chain(1), operator='sums "per" ünïcøde \n 汉')
    assert back(handle) == handle
    assert handle.to_text().isascii()


def test_a_handle_torn_at_any_length_is_found():
    text = chain(3).to_text()
    for length in range(len(text)):
        with pytest.raises(Corrupt, match="damaged"):
            StoredHandle.from_text(text[:length])


def test_any_changed_character_is_found():
    text = chain(3).to_text()
    for position in range(len(text)):
        for other in ("0", "z", '"', " ", ""):
            if text[position] == other:
                continue
            with pytest.raises((Corrupt, Incompatible)):
                StoredHandle.from_text(text[:position] + other + text[position + 1 :])


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", "1", '{"checksum":"0"}', "[" * 100_000, "\ud800"])
def test_what_is_no_handle_is_corrupt(text):
    with pytest.raises(Corrupt):
        StoredHandle.from_text(text)


def test_a_newer_version_says_to_upgrade():
    with pytest.raises(Incompatible, match="Upgrade"):
        StoredHandle.from_text(seal("holdfast.handle", 6, {}))


def test_another_sealed_document_is_no_handle():
    with pytest.raises(Corrupt, match=r"holdfast\.handle"):
        StoredHandle.from_text(seal("holdfast.base", 1, {}))
    with pytest.raises(Corrupt, match="lacks"):
        StoredHandle.from_text(seal("holdfast.handle", 1, {"operator": "x"}))


def later(handle: Handle, by: int) -> Handle:
    """The same after so many more batches."""
    snapshots = (replace(snapshot(old.sequence + by), state_bytes=10**12) for old in handle.snapshots)
    superseded = (
        Superseded(old.sequence + by, old.batch_id + by, manifest(old.sequence + by)) for old in handle.superseded
    )
    return replace(
        handle,
        version_id=version(handle.sequence + by),
        parent_id=version(handle.sequence + by - 1),
        sequence=handle.sequence + by,
        batch_id=handle.batch_id + by,
        snapshots=tuple(snapshots),
        deltas=tuple(delta(old.sequence + by) for old in handle.deltas),
        superseded=tuple(superseded),
    )


def test_a_handle_stays_below_1_kb():
    """As large as the default settings let it become, with two states that have a TTL: snapshots after 64 deltas each,
    100 batches retained; after thirty years of a batch a second.
    """
    times = (1_900_000_000_000, 1_900_000_000_001, 1_900_000_000_002)
    expiry = tuple(StateExpiry(state_id, "processing", 31_536_000_000, *times) for state_id in (0, 1))
    named = {batch: batch for batch in range(64, 2000, 64)}
    seen = set()
    for length in (961, 977, 995, 996, 1000, 1023, 1024):
        handle = replace(chain(length, named, retained=100), operator="payments by customer", expiry=expiry)
        handle = later(handle, 10**9)
        assert back(handle) == handle and len(handle.snapshots) == 2
        seen |= {("deltas", len(handle.deltas)), ("superseded", len(handle.superseded))}
        assert len(handle.to_text()) < 1_000, (length, len(handle.to_text()))
    assert {("deltas", 128), ("superseded", 2)} <= seen


def test_deltas_are_named_from_the_older_of_two_snapshots():
    handle = chain(5)
    assert (handle.start, handle.floor) == (0, 0)
    assert [d.sequence for d in handle.deltas] == [1, 2, 3, 4, 5]
    handle = chain(6, {5: 4})
    assert (handle.start, len(handle.deltas)) == (0, 6), "one snapshot may be damaged: all deltas are still needed"
    handle = chain(11, {5: 4, 10: 9})
    assert handle.start == 4
    assert [d.sequence for d in handle.deltas] == [5, 6, 7, 8, 9, 10, 11]
    assert handle.superseded == (Superseded(0, 10, None),)
    assert handle.floor == 0, "handles of batches before 10 start from the beginning and are retained"


def test_what_is_superseded_is_forgotten_once_no_retained_batch_needs_it():
    # Batch 10 is the first whose handle does not need the beginning. With 3 retained batches, batch 9 goes once batch
    # 14 runs: 13 is then the newest committed, and 10 to 12 are retained.
    for length, floor in ((14, 0), (15, 4), (16, 4)):
        assert chain(length, {5: 4, 10: 9}).floor == floor
    assert not is_expired(10, 13, 3)
    assert is_expired(10, 14, 3)


def test_a_handle_knows_its_ancestors():
    handle = chain(11, {5: 4, 10: 9})
    assert handle.names(4, version(4)) and handle.names(9, version(9)) and handle.names(11, version(11))
    assert not handle.names(3, version(3)), "no deltas lead on from there"
    assert not handle.names(9, version(9, "b"))
    assert not handle.names(12, version(12))


def test_a_snapshot_is_named_only_if_it_is_newer_of_this_lineage_and_its_shared_files_are_kept():
    handle = chain(11, {5: 4, 10: 9})
    assert may_name(handle, snapshot(10), manifest(9))
    assert may_name(handle, snapshot(10), None)
    assert may_name(handle, snapshot(10), manifest(4))
    assert not may_name(handle, snapshot(10), manifest(2)), "that snapshot is given up: shared files may be gone"
    assert not may_name(handle, snapshot(9), None), "not newer"
    assert not may_name(handle, snapshot(10, "b"), None), "another lineage"
    assert not may_name(handle, snapshot(12), None), "not yet there"


@pytest.mark.parametrize(
    "change",
    [
        {"deltas": (delta(1), delta(3))},
        {"deltas": ()},
        {"deltas": (delta(1), delta(2), delta(3, "b"))},
        {"snapshots": (snapshot(1), snapshot(2))},
        {"snapshots": (snapshot(2, "b"),)},
        {"superseded": (Superseded(0, 1, None),)},
        {"version_id": version(3, "b")},
        {"sequence": 4},
    ],
)
def test_a_handle_that_contradicts_itself_is_refused(change):
    handle = replace(chain(3), lists_deltas=True, **change)
    assert broken_rule(handle)
    with pytest.raises(Corrupt, match="contradicts itself"):
        StoredHandle.from_text(handle.to_text())


@pytest.mark.parametrize(
    "change",
    [
        {"snapshots": (snapshot(1), snapshot(2))},
        {"snapshots": (snapshot(4), snapshot(3))},
        {"snapshots": (snapshot(3, "b"),)},
        {"superseded": (Superseded(0, 1, None),)},
        {"deltas": ()},
        {"sequence": 0},
        {"origin": 1},
    ],
)
def test_a_text_that_contradicts_itself_is_refused_before_any_delta_is_read(change):
    with pytest.raises(Corrupt, match="contradicts itself"):
        StoredHandle.from_text(replace(chain(3), **change).to_text())


@pytest.mark.parametrize(
    "field",
    [
        {"delta": [1, "0" * 16]},
        {"delta": ["1", "0" * 16, 1]},
        {"delta": [-1, "0" * 16, 1]},
        {"delta": [1, "0" * 15, 1]},
        {"delta": [1, "../../x", 1]},
        {"deltas": []},
        {"version_id": "x"},
        {"sequence": "3"},
        {"snapshots": [[1, version(1), "../../../x", 1, "0" * 16, 1]]},
        {"superseded": [[1, 1, "x-y"]]},
        {"superseded": [[1, 1, f"{1:032x}"]]},
    ],
)
def test_a_text_that_is_sealed_and_says_what_no_handle_says_is_corrupt(field):
    document = unsealed(chain(3))
    assert StoredHandle.from_text(seal("holdfast.handle", 4, document)).whole(chain(2).deltas) == chain(3)
    with pytest.raises(Corrupt):
        stored = StoredHandle.from_text(seal("holdfast.handle", 4, {**document, **field}))
        stored.whole(chain(2).deltas)


@pytest.mark.parametrize(("form", "fields"), [(4, {"delta": None}), (1, {"deltas": []}), (3, {"deltas": []})])
def test_a_text_of_many_deltas_is_refused_before_room_is_made_for_them(form, fields):
    """It was a MemoryError, or the machine's memory."""
    document = {"operator": "op", "slot": 3, "version_id": version(1), "parent_id": None, "sequence": 10**12}
    document.update({"batch_id": 0, "snapshots": [], "superseded": [], **fields})
    with pytest.raises(Corrupt, match="contradicts itself"):
        StoredHandle.from_text(seal("holdfast.handle", form, document))


def test_a_newest_delta_that_leads_far_on_is_refused_before_room_is_made():
    text = seal("holdfast.handle", 4, {**unsealed(chain(3)), "sequence": 10**12})
    stored = StoredHandle.from_text(text)
    with pytest.raises(Corrupt, match="contradicts its newest delta"):
        stored.whole(chain(2).deltas)


@pytest.mark.parametrize(
    "earlier",
    [
        (),
        chain(1).deltas,
        (delta(2),),
        (delta(1, "b"), delta(2, "b")),
        (*chain(2).deltas, delta(3)),
        (delta(1), delta(1)),
    ],
)
def test_deltas_that_did_not_lead_to_the_version_are_refused(earlier):
    with pytest.raises(Corrupt, match=r"contradicts its newest delta|follows version"):
        StoredHandle.from_text(chain(3).to_text()).whole(earlier)


def test_deltas_of_other_sizes_than_the_text_says_are_refused():
    earlier = (delta(1), delta(2)._replace(size_bytes=7))
    with pytest.raises(Corrupt, match="since the newest snapshot have 306 bytes"):
        StoredHandle.from_text(chain(3).to_text()).whole(earlier)


def test_deltas_that_are_needed_no_longer_are_left_out():
    handle = chain(11, {5: 4, 10: 9})
    assert StoredHandle.from_text(handle.to_text()).whole(chain(10, {5: 4}).deltas) == handle


def test_a_text_lists_all_deltas_only_where_the_newest_does_not_say_them():
    handle = chain(11, {5: 4, 10: 9})
    for said in (handle.deltas[:-1], chain(10).deltas):
        assert not listing(handle, said).lists_deltas
    for other in (None, (), handle.deltas[1:-1], (*handle.deltas[:-2], delta(10, "b"))):
        listed = listing(handle, other)
        assert listed.lists_deltas and StoredHandle.from_text(listed.to_text()).whole() == listed
    assert not listing(chain(1), None).lists_deltas, "there is nothing to say"
    first = Handle("op", 3, version(12), version(11), 12, 11)
    assert not next_handle(listing(handle, None), first, delta(12), None, 3).lists_deltas, "the next delta says them"


def test_a_handle_names_manifests_of_its_snapshots_alone():
    for name in ("snapshot/../../x.json", manifest(2), f"snapshot/{1}-{version(1)}-{1:032x}.json"):
        with pytest.raises(InternalError, match="no manifest of a snapshot of version 1"):
            replace(chain(3), snapshots=(replace(snapshot(1), name=name),)).to_text()


@given(st.lists(st.booleans(), min_size=1, max_size=80), st.integers(2, 10))
def test_every_handle_of_every_history_keeps_the_rules(named, retained):
    """Snapshots become ready whenever; each handle is whole,
    and needs nothing below the floor of any later one in reach.
    """
    handles: list[Handle] = []
    for batch, is_named in enumerate(named):
        parent = handles[-1] if handles else None
        newest = parent.snapshots[0].sequence if parent and parent.snapshots else 0
        ready = snapshot(parent.sequence) if parent and is_named and parent.sequence > newest else None
        sequence = batch + 1
        parent_id = parent.version_id if parent else None
        first = Handle("op", 0, version(sequence), parent_id, sequence, batch)
        handles.append(next_handle(parent, first, delta(sequence), ready, retained))
        assert broken_rule(handles[-1]) is None
        assert back(handles[-1]) == handles[-1]
        for old in handles[max(0, batch - 1 - retained) :]:
            assert handles[-1].floor <= old.start
            kept = {s.name for s in handles[-1].snapshots} | {s.name for s in handles[-1].superseded}
            assert {s.name for s in old.snapshots} <= kept
