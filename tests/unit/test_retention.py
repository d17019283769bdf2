"""Nothing that a retained handle names is ever deleted, whoever tidies up and whenever.

A history is played without files of content: attempts that Spark commits and attempts that it does not,
ones that do not count and that Spark's file has in place of those that do,
zombies that wake up late, snapshots that are uploaded and named later or never, roll backs.
After each act every handle that Spark retains must still find its deltas, its manifests
and the files of its snapshots.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.example_count import examples

from holdfast.checkpoint.handle import DeltaRef, Handle, SnapshotRef
from holdfast.checkpoint.lineage import is_young, may_name, next_handle
from holdfast.checkpoint.names import delta_name, manifest_name, table_name
from holdfast.checkpoint.retention import (
    RetentionView,
    reason_to_delete,
    tables_by_manifest,
    view_of,
    with_what_is_in_force,
)
from holdfast.storage import StoredFile

GRACE_MS = 3_600_000


@dataclass
class Snapshot:
    ref: SnapshotRef
    diff_parent: str | None
    tables: frozenset[str]
    created_ms: int


@dataclass
class Attempt:
    """A worker that was opened at ``parent``, and what it will tidy up by."""

    parent: Handle | None
    handle: Handle
    opened_ms: int


@dataclass
class Storage:
    files: dict[str, int] = field(default_factory=dict)  # modified_ms by name
    snapshots: dict[str, Snapshot] = field(default_factory=dict)  # by manifest name; what once was

    def put(self, name: str, now_ms: int) -> None:
        assert name not in self.files
        self.files[name] = now_ms


class History(RuleBasedStateMachine):
    @initialize(retained=st.integers(2, 4))
    def start(self, retained):
        self.retained = retained
        self.now_ms = 10 * GRACE_MS
        self.storage = Storage()
        self.ids = 0
        self.committed: list[tuple[int, Handle]] = []  # (batch, handle in force), oldest first
        self.in_spark: dict[str, Handle] = {}  # what Spark's file has in place of a committed one, by its version
        self.batches: dict[str, int] = {}  # in which each version was made
        self.next_batch = 0
        self.purged = 0  # before this batch Spark has removed its own files: no roll back brings them back
        self.attempts: list[Attempt] = []  # all that may still tidy up
        self.pending: list[Snapshot] = []  # uploaded, not named

    def new_id(self) -> str:
        self.ids += 1
        return f"{self.ids:032x}"

    @property
    def current(self) -> Handle | None:
        return self.committed[-1][1] if self.committed else None

    def prepare(self, elsewhere: bool = False) -> Attempt:
        """``elsewhere``: on a machine that has no marks of snapshots."""
        parent = self.current
        sequence = (parent.sequence if parent else 0) + 1
        version_id = self.new_id()
        name = delta_name(sequence, version_id)
        self.storage.put(name, self.now_ms)
        self.batches[version_id] = self.next_batch
        snapshot = None
        for pending in () if elsewhere else self.pending:
            is_in_time = is_young(pending.created_ms, self.now_ms, GRACE_MS)
            if parent and is_in_time and may_name(parent, pending.ref, pending.diff_parent):
                snapshot = pending.ref
        first = Handle("op", 0, version_id, parent.version_id if parent else None, sequence, self.next_batch)
        handle = next_handle(parent, first, DeltaRef(sequence, version_id, 1, "0" * 16), snapshot, self.retained)
        attempt = Attempt(parent, handle, self.now_ms)
        self.attempts.append(attempt)
        return attempt

    @rule(others=st.integers(0, 2), elsewhere=st.booleans())
    def batch(self, others, elsewhere=False):
        """A batch of which Spark commits one attempt."""
        for _ in range(others):
            self.prepare()
        attempt = self.prepare(elsewhere)
        self.committed.append((self.next_batch, attempt.handle))
        self.next_batch += 1

    @rule()
    def batch_whose_other_attempt_spark_has(self):
        """It committed Spark's store last. The slot is told, and goes on from the one that counts."""
        counts, other = self.prepare().handle, self.prepare().handle
        goes_on = replace(other, version_id=counts.version_id, deltas=(*other.deltas[:-1], counts.deltas[-1]))
        self.in_spark[counts.version_id] = other
        self.committed.append((self.next_batch, goes_on))
        self.next_batch += 1

    @rule()
    def batch_without_rows(self):
        """The slot is not called; its handle stays in force."""
        self.next_batch += 1

    @rule()
    def failed_batch(self):
        self.prepare()

    @precondition(lambda self: self.current is not None)
    @rule(age=st.integers(0, 3), shares=st.booleans(), hours=st.sampled_from([0.0, 0.4, 0.6, 1.5]))
    def snapshot(self, age, shares, hours):
        """A background thread uploads the base of some version of the present lineage; it may take its time."""
        handle = self.current
        assert handle is not None
        if age >= len(handle.deltas):
            return
        version = handle.deltas[-1 - age]
        snapshot_id = self.new_id()
        tables = {table_name(snapshot_id, "new.sst")}
        diff_parent = handle.snapshots[0].name if shares and handle.snapshots else None
        began_ms = self.now_ms
        for name in tables:
            self.storage.put(name, self.now_ms)
        if diff_parent:
            shared = sorted(self.storage.snapshots[diff_parent].tables)
            tables |= set(shared[: 1 + len(shared) // 2])
        self.now_ms += int(hours * GRACE_MS)
        name = manifest_name(version.sequence, version.version_id, snapshot_id)
        self.storage.put(name, self.now_ms)
        ref = SnapshotRef(version.sequence, version.version_id, name, 1, "0" * 16, 1)
        made = Snapshot(ref, diff_parent, frozenset(tables), began_ms)
        self.storage.snapshots[name] = made
        self.pending.append(made)

    @precondition(lambda self: self.attempts)
    @rule(data=st.data())
    def tidy_up(self, data):
        """Any attempt that there ever was tidies up:
        the last one, a loser, a zombie on a lineage that was rolled back.
        """
        attempt = data.draw(st.sampled_from(self.attempts[-12:]))
        names = [s.name for s in attempt.handle.snapshots] + [s.name for s in attempt.handle.superseded if s.name]
        is_readable = all(name in self.storage.files for name in names)
        tables = frozenset(t for name in names for t in self.storage.snapshots[name].tables) if is_readable else None
        view = view_of(attempt.handle, attempt.parent, attempt.opened_ms, GRACE_MS, tables)
        files = [StoredFile(name, 1, modified_ms) for name, modified_ms in self.storage.files.items()]
        versions = attempt.handle.versions
        view = with_what_is_in_force(
            view, files, attempt.handle, self.retained, lambda sequence: self.batches[versions[sequence]]
        )
        for name, modified_ms in list(self.storage.files.items()):
            if reason_to_delete(StoredFile(name, 1, modified_ms), view):
                del self.storage.files[name]

    @rule(minutes=st.sampled_from([1, 20, 61, 600]))
    def wait(self, minutes):
        self.now_ms += minutes * 60_000

    @precondition(lambda self: len(self.retained_handles()) > 1)
    @rule(data=st.data())
    def roll_back(self, data):
        """The user starts again from a retained batch."""
        batch = data.draw(st.integers(max(self.oldest_retained(), self.committed[0][0]), self.next_batch - 1))
        self.next_batch = batch + 1
        self.committed = [(b, handle) for b, handle in self.committed if b <= batch]

    def oldest_retained(self) -> int:
        self.purged = max(self.purged, self.next_batch - 1 - self.retained)
        return self.purged

    def retained_handles(self) -> list[Handle]:
        """Handles in force at the newest committed batch and at those that are retained before it."""
        oldest = self.oldest_retained()
        found = []
        for i, (_, handle) in enumerate(self.committed):
            following = self.committed[i + 1][0] if i + 1 < len(self.committed) else self.next_batch
            if following - 1 >= oldest:
                found.append(handle)
                if handle.version_id in self.in_spark:
                    found.append(self.in_spark[handle.version_id])
        return found

    @invariant()
    def all_that_retained_handles_name_is_there(self):
        for handle in self.retained_handles() if hasattr(self, "committed") else ():
            needed = {delta_name(d.sequence, d.version_id) for d in handle.deltas}
            for snapshot in handle.snapshots:
                needed |= {snapshot.name, *self.storage.snapshots[snapshot.name].tables}
            assert needed <= set(self.storage.files), (handle.sequence, needed - set(self.storage.files))


History.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=60, deadline=None)
TestHistory = History.TestCase


def view(**changes) -> RetentionView:
    given_ = {
        "floor": 4,
        "listed_from": 8,
        "listed": {n: f"{n:032x}" for n in range(9, 13)},
        "committed_sequence": 11,
        "strays_before_ms": 1_000,
        "manifests": frozenset({f"snapshot/{8:012d}-{8:032x}-{1:032x}.json"}),
        "tables": frozenset({"sst/named"}),
    }
    return RetentionView(**{**given_, **changes})


def deletable(name: str, modified_ms: int = 0, **changes) -> bool:
    return reason_to_delete(StoredFile(name, 1, modified_ms), view(**changes)) is not None


def test_deltas_up_to_the_floor_go_and_those_above_stay():
    assert deletable(delta_name(4, f"{4:032x}"), modified_ms=9_999)
    assert not deletable(delta_name(5, f"{5:032x}"))
    assert not deletable(delta_name(9, f"{9:032x}"))


def test_a_stray_goes_once_it_is_old_and_the_lineage_is_settled_there():
    assert deletable(delta_name(10, "f" * 32))
    assert not deletable(delta_name(10, "f" * 32), modified_ms=1_000), "younger than the grace time"
    assert not deletable(delta_name(12, "f" * 32)), (
        "the batch at hand: another attempt may be the one that Spark commits"
    )
    assert not deletable(delta_name(7, "f" * 32)), "the handle does not list these: they go when the floor passes them"


def test_what_stands_beside_the_version_that_was_opened_stays():
    """Spark's state may have it until the batch at hand is committed, and in each batch before that is retained."""
    assert not deletable(delta_name(11, "f" * 32))
    assert deletable(delta_name(9, "f" * 32), in_force_from=10)
    assert not deletable(delta_name(10, "f" * 32), in_force_from=10)


def test_files_of_snapshots_go_unless_named():
    assert deletable("sst/unnamed") and not deletable("sst/named")
    assert not deletable("sst/unnamed", modified_ms=1_000)
    assert not deletable("sst/unnamed", tables=None), "a manifest could not be read"
    assert deletable(manifest_name(3, "f" * 32, "e" * 32), modified_ms=9_999)
    assert deletable(manifest_name(9, "f" * 32, "e" * 32))
    assert not deletable(manifest_name(9, "f" * 32, "e" * 32), modified_ms=1_000)
    assert not deletable(f"snapshot/{8:012d}-{8:032x}-{1:032x}.json")


@given(st.text(max_size=40))
def test_files_that_nobody_knows_stay(name):
    assert name.startswith("sst/") or not deletable(name)


def test_everything_useless_does_go_in_a_plain_history():
    """Otherwise the rule that deletes nothing would pass."""
    history = History()
    history.start(retained=2)
    for i in range(60):
        history.batch(others=1)
        if i % 6 == 5:
            history.snapshot(age=0, shares=True, hours=0.0)
        history.wait(minutes=20)
        attempt = history.attempts[-1]
        history.attempts = [attempt]

        class Last:
            @staticmethod
            def draw(_, attempt=attempt):
                return attempt

        history.tidy_up(Last())
    handle = history.current
    assert handle is not None
    deltas = [name for name in history.storage.files if name.startswith("delta/")]
    assert len(handle.deltas) <= len(deltas) <= len(handle.deltas) + 30
    assert len([name for name in history.storage.files if name.startswith("snapshot/")]) <= 4
    assert len([name for name in history.storage.files if name.startswith("sst/")]) <= 10


def test_names_of_files_are_held_once_and_not_for_ever():
    """`sys.intern` never lets go of a text, in some releases of Python: a process that ran for months grew."""

    class Stored:
        def files_named_by(self, name):
            return {f"sst/{n:032x}-000009.sst" for n in range(3)}

    stored: Any = Stored()
    known = tables_by_manifest(stored, [], ["snapshot/a", "snapshot/b"])
    known = tables_by_manifest(stored, [], ["snapshot/b", "snapshot/c"], known)
    assert known.keys() == {"snapshot/b", "snapshot/c"}
    names = [table for tables in known.values() for table in tables]
    assert len(names) == 6 and len({id(name) for name in names}) == 3
    for name in set(names):
        equal = "".join(name)
        assert sys.intern(equal) is equal, "nobody had interned it"
