"""Handles: their text, the rules they keep, and how one follows from another."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint.handle import DeltaRef, Handle, SnapshotRef, Superseded, broken_rule
from holdfast.checkpoint.lineage import is_expired, may_name, next_handle
from holdfast.errors import Corrupt, Incompatible


def version(sequence: int, branch: str = "0") -> str:
    return f"{branch * 8}{sequence:024x}"


def delta(sequence: int, branch: str = "0") -> DeltaRef:
    return DeltaRef(sequence, version(sequence, branch), 100 + sequence, f"{sequence:016x}")


def snapshot(sequence: int, branch: str = "0") -> SnapshotRef:
    return SnapshotRef(sequence, version(sequence, branch), f"snapshot/{sequence}", 500, "0" * 16, 10_000)


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
    assert Handle.from_text(handle.to_text()) == handle
    assert handle.to_text() == Handle.from_text(handle.to_text()).to_text()


def test_names_that_are_no_ascii_come_back():
    handle = replace(chain(1), operator='sums "per" ünïcøde \n 汉')
    assert Handle.from_text(handle.to_text()) == handle
    assert handle.to_text().isascii()


def test_a_handle_torn_at_any_length_is_found():
    text = chain(3).to_text()
    for length in range(len(text)):
        with pytest.raises(Corrupt, match="damaged"):
            Handle.from_text(text[:length])


def test_any_changed_character_is_found():
    text = chain(3).to_text()
    for position in range(len(text)):
        for other in ("0", "z", '"', " ", ""):
            if text[position] == other:
                continue
            with pytest.raises((Corrupt, Incompatible)):
                Handle.from_text(text[:position] + other + text[position + 1 :])


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", "1", '{"checksum":"0"}', "[" * 100_000, "\ud800"])
def test_what_is_no_handle_is_corrupt(text):
    with pytest.raises(Corrupt):
        Handle.from_text(text)


def test_a_newer_version_says_to_upgrade():
    from holdfast.sealed import seal

    with pytest.raises(Incompatible, match="Upgrade"):
        Handle.from_text(seal("holdfast.handle", 4, {}))


def test_another_sealed_document_is_no_handle():
    from holdfast.sealed import seal

    with pytest.raises(Corrupt, match=r"holdfast\.handle"):
        Handle.from_text(seal("holdfast.base", 1, {}))
    with pytest.raises(Corrupt, match="lacks"):
        Handle.from_text(seal("holdfast.handle", 1, {"operator": "x"}))


def test_a_handle_stays_small():
    handle = chain(1000, {b: b for b in range(64, 1000, 64)}, retained=100)
    assert len(handle.to_text()) < 20_000
    assert json.loads(handle.to_text())["sequence"] == 1000


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
    assert may_name(handle, snapshot(10), "snapshot/9")
    assert may_name(handle, snapshot(10), None)
    assert may_name(handle, snapshot(10), "snapshot/4")
    assert not may_name(handle, snapshot(10), "snapshot/2"), "that snapshot is given up: shared files may be gone"
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
    handle = replace(chain(3), **change)
    assert broken_rule(handle)
    with pytest.raises(Corrupt, match="contradicts itself"):
        Handle.from_text(handle.to_text())


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
        first = Handle("op", 0, version(sequence), None, sequence, batch)
        handles.append(next_handle(parent, first, delta(sequence), ready, retained))
        assert broken_rule(handles[-1]) is None
        assert Handle.from_text(handles[-1].to_text()) == handles[-1]
        for old in handles[max(0, batch - 1 - retained) :]:
            assert handles[-1].floor <= old.start
            kept = {s.name for s in handles[-1].snapshots} | {s.name for s in handles[-1].superseded}
            assert {s.name for s in old.snapshots} <= kept
