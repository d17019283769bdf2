"""A savepoint that is claimed: it stays as long as somebody may need it, then goes, whoever is killed at it; and is
nobody else's meanwhile.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY

import pyarrow as pa
import pytest
from tests.checkpoint_driver import FakeClock
from tests.faulty_file_store import FaultyFileStore
from tests.first_versions import begun

import holdfast as hf
from holdfast._core import KeyCodec
from holdfast.checkpoint import (
    Background,
    CheckpointSettings,
    Handle,
    OperatorRecord,
    SlotState,
    operator_prefix,
    register_operator,
)
from holdfast.checkpoint.operator_record import recorded_operator
from holdfast.errors import Corrupt, HoldfastError, Incompatible, InvalidRequest, Unavailable
from holdfast.inspect.savepoint import Format
from holdfast.storage import FileStore, open_file_store
from holdfast.storage.file_store import TEMPORARY_PREFIX

QUERY, OTHER = "11111111-0000-4000-8000-000000000000", "22222222-0000-4000-8000-000000000000"
ROWS = pa.table({"user": [f"u{n}" for n in range(60)], "value": range(60)})
KEYS = pa.array([f"u{n}" for n in range(60)])


class Total(hf.BatchProcessor):
    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.total.add_only(batch, batch["n"])


@pytest.fixture(params=["canonical", "native"])
def saved(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Of the operators "one" and "two"."""
    format: Format = request.param
    tables = [hf.OperatorTables(name, {"total": ROWS}, processor=Total, key="user string") for name in ("one", "two")]
    made = hf.Savepoint.write(tmp_path / "canonical", *tables)
    if format == "native":
        made.convert(tmp_path / "native")
    return tmp_path / format


class Query:
    """The slots of a query's operators, each batch in processes of its own."""

    def __init__(
        self,
        folder: Path,
        saved: Path,
        query_id: str = QUERY,
        *,
        operators: tuple[str, ...] = ("one", "two"),
        claim: bool = True,
        renamed: str = "",
        slots: int = 2,
    ) -> None:
        self.folder, self.query_id = folder / query_id, query_id
        self.store = open_file_store(str(self.folder / "state"))
        self.open_store: Callable[[str], FileStore] = open_file_store
        self.records = {
            f"{renamed}{name}": replace(begun(saved, name, slots, claim=claim), name=f"{renamed}{name}")
            for name in operators
        }
        for record in self.records.values():
            self.register(record)
        self.handles: dict[tuple[str, int], Handle] = {}

    def register(self, record: OperatorRecord) -> OperatorRecord:
        return register_operator(self.store, record, prefix=operator_prefix(self.query_id, record.name))

    def batch(self, batch_id: int, operators: tuple[str, ...] = ("one", "two"), committed: bool = True) -> None:
        """All slots of these operators, and what they leave to the background."""
        made = {}
        for name in operators:
            record = recorded_operator(self.store, operator_prefix(self.query_id, name))
            assert record is not None
            for slot in range(record.slots):
                made[name, slot] = self.task(record, slot, batch_id)
        if committed:
            self.handles |= made

    def task(self, record: OperatorRecord, slot: int, batch_id: int) -> Handle:
        background = Background()
        state = SlotState(
            record=record,
            slot=slot,
            file_store=self.store,
            prefix=operator_prefix(self.query_id, record.name),
            local_dir=str(self.folder / "local"),
            settings=CheckpointSettings(),
            background=background,
            open_store=self.open_store,
        )
        state.open(self.handles.get((record.name, slot)) or state.first_version())
        state.begin(batch_id)
        handle = state.prepare()
        assert background.drain(240)
        return handle

    def total(self) -> int:
        """Of all keys, of the first operator, as its slots have it."""
        name, record = next(iter(self.records.items()))
        groups = record.max_parallelism
        order, offsets = map(pa.array, KeyCodec(record.key_schema).partition(KEYS, groups, record.slots))
        bounds, found = offsets.to_pylist(), 0
        for slot in range(record.slots):
            state = SlotState(
                record=record,
                slot=slot,
                file_store=self.store,
                prefix=operator_prefix(self.query_id, name),
                local_dir=str(self.folder / "other"),
                settings=CheckpointSettings(),
            )
            store = state.open(self.handles[name, slot])
            own = KEYS.take(order.slice(bounds[slot], bounds[slot + 1] - bounds[slot]))
            values = store.reducing_state(record.states[0].id, pa.int64(), "sum").get(own)
            found += sum(value or 0 for value in pa.array(values).to_pylist())
        return found


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def is_gone(saved: Path) -> bool:
    """But for its manifest and the notes, which are left; and what a write that was torn left."""
    names = [f"claims/{name}.{what}.json" for name in ("one", "two") for what in ("claimed", "taken")]
    left = {name for name in files_in(saved) if TEMPORARY_PREFIX not in name}
    done = {name for name in left if name.endswith(".done.json")}
    if len(done) != 1:
        return False
    left -= done
    return left == {"claimed.json", *names} and {path.name for path in saved.iterdir() if path.is_dir()} == {"claims"}


def test_it_goes_once_a_batch_of_every_operator_is_committed(tmp_path: Path, saved: Path) -> None:
    content = files_in(saved)
    query = Query(tmp_path, saved)
    for committed in (False, True):  # the same again: Spark did not commit it
        query.batch(0, committed=committed)
    assert files_in(saved) >= content
    query.batch(1, ("one",))
    assert files_in(saved) >= content, "operator two may still have to begin"
    query.batch(1, ("two",))
    assert is_gone(saved)
    assert query.total() == sum(range(60))
    query.batch(2)
    assert is_gone(saved)


def test_of_an_operator_that_nobody_took_nothing_is_deleted(tmp_path: Path, saved: Path) -> None:
    content = files_in(saved)
    query = Query(tmp_path, saved, operators=("one",))
    for batch_id in range(3):
        query.batch(batch_id, ("one",))
    assert files_in(saved) >= content
    other = Query(tmp_path, saved, OTHER, operators=("two",))  # another query may have what is left
    for batch_id in range(2):
        other.batch(batch_id, ("two",))
    assert is_gone(saved)


def test_a_program_that_starts_again_says_the_same(tmp_path: Path, saved: Path) -> None:
    query = Query(tmp_path, saved)
    for batch_id in range(2):
        query.batch(batch_id)
    assert is_gone(saved)
    again = begun(saved, "one", 2, claim=True)
    assert query.register(again) == query.records["one"] == again
    restore = hf.Restore(savepoint=saved, claim=True)
    assert restore.operators() == ("one", "two")
    for refused in (
        lambda: begun(saved, "one", 2),
        lambda: hf.Savepoint(saved),
        lambda: hf.Restore(savepoint=saved).operators(),
    ):
        with pytest.raises(InvalidRequest, match=r"which a query has claimed, taken over and deleted.*claim=True"):
            refused()


@pytest.mark.parametrize("claim", [True, False])
def test_nobody_else_begins_with_it(tmp_path: Path, saved: Path, claim: bool) -> None:
    query = Query(tmp_path, saved)
    query.batch(0)
    other = Query(tmp_path, saved, OTHER, claim=claim)
    expected = (
        rf"'one' of query {OTHER} cannot begin with operator 'one' .*: operator 'one' of query {QUERY} has claimed"
    )
    with pytest.raises(Incompatible, match=expected):
        other.batch(0)
    query.batch(1)
    assert is_gone(saved)
    other_id = "33333333-0000-4000-8000-000000000000"
    expected = expected.replace(OTHER, other_id)
    begins_late = Query(tmp_path, saved, other_id)  # what is left says what there was
    with pytest.raises(Incompatible, match=expected):
        begins_late.batch(0)


def test_whoever_reads_it_when_it_goes_is_told_why(tmp_path: Path, saved: Path) -> None:
    other = Query(tmp_path, saved, OTHER, claim=False)
    query = Query(tmp_path, saved)
    query.batch(0)
    query.batch(1)
    assert is_gone(saved)
    shutil.move(saved / "claims", tmp_path / "claims")  # as if both had begun at one time
    opened = open_file_store(str(saved))
    looked: list[str] = []

    def open_store(uri: str) -> FileStore:
        if len(looked) == 1 and not (saved / "claims").exists():
            shutil.copytree(tmp_path / "claims", saved / "claims")
        looked.append(uri)
        return opened

    other.open_store = open_store
    with pytest.raises(Incompatible, match=f"of query {QUERY} has claimed it"):
        other.batch(0)


def test_two_operators_of_one_query_cannot_share_it(tmp_path: Path, saved: Path) -> None:
    Query(tmp_path, saved).batch(0)
    with pytest.raises(Incompatible, match=r"operator 'my one' of query .* cannot begin"):
        Query(tmp_path, saved, renamed="my ").batch(0, ("my one",))


def test_it_is_disposed_of_by_its_query_or_when_that_is_done(tmp_path: Path, saved: Path) -> None:
    query = Query(tmp_path, saved)
    query.batch(0)
    content = files_in(saved)
    for apply in (False, True):
        with pytest.raises(InvalidRequest, match=rf"claimed by operator 'one' of query {QUERY}, which has not taken"):
            hf.Savepoint.dispose(saved, apply=apply)
    assert files_in(saved) == content
    query.batch(1)
    assert is_gone(saved)
    found = hf.Savepoint.dispose(saved, apply=True)
    assert len(found.files) == 6 and not found.others and not saved.exists()
    query.batch(2)
    assert not saved.exists()


def test_the_next_one_in_the_same_folder_is_not_touched(tmp_path: Path, saved: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(saved, copy)
    query = Query(tmp_path, saved)
    query.batch(0)
    shutil.rmtree(saved)
    copy.rename(saved)
    content = files_in(saved)
    for batch_id in range(1, 4):
        query.batch(batch_id)
    assert files_in(saved) == content


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_step_leaves_what_the_next_process_goes_on_with(tmp_path: Path, saved: Path, after: bool) -> None:
    steps = 0
    for number in range(1, 60):
        folder, copy = tmp_path / f"try-{number}", tmp_path / f"saved-{number}"
        shutil.copytree(saved, copy)
        query = Query(folder, copy, slots=1)
        stores: list[FaultyFileStore] = []

        def open_store(uri: str, number: int = number, stores: list[FaultyFileStore] = stores) -> FileStore:
            if not stores:
                stores.append(FaultyFileStore(open_file_store(uri), fail_at=(number,), fail_after=after))
            return stores[0]

        query.open_store = open_store
        for batch_id in range(2):
            try:
                query.batch(batch_id)
            except HoldfastError:
                query.batch(batch_id)
        if stores[0].count < number:
            break
        steps += 1
        query.open_store = open_file_store
        query.batch(2)
        assert is_gone(copy), (number, stores[0].operations, files_in(copy))
        assert query.total() == sum(range(60))
    assert steps > 15


def test_a_note_that_is_damaged_is_told(tmp_path: Path, saved: Path) -> None:
    query = Query(tmp_path, saved)
    query.batch(0)
    note = saved / "claims" / "one.claimed.json"
    fields = json.loads(note.read_text())
    note.write_text(json.dumps({**fields, "query_id": OTHER}))
    with pytest.raises(Corrupt, match=r"claims/one.claimed.json"):
        Query(tmp_path, saved, OTHER).batch(0)
    with pytest.raises(Corrupt, match=r"claims/one.claimed.json"):
        hf.Savepoint.dispose(saved)
    content = files_in(saved)
    query.batch(1)
    assert files_in(saved) >= content - {"claims/two.taken.json"}


def test_what_cannot_be_claimed(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="claim is of a savepoint"):
        hf.Restore(tmp_path, claim=True)


def test_what_a_query_that_came_to_nothing_claimed_can_be_had_again(tmp_path: Path, saved: Path) -> None:
    Query(tmp_path, saved).batch(0)
    other = Query(tmp_path, saved, OTHER)
    with pytest.raises(Incompatible, match="and savepoint.json is still there, delete the folder claims/ beside it"):
        other.batch(0)
    shutil.rmtree(saved / "claims")
    for batch_id in range(2):
        other.batch(batch_id)
    assert is_gone(saved) and other.total() == sum(range(60))


class Process:
    """Slot 0 of operator "one" in one process, batch after batch, each of which is folded."""

    def __init__(self, query: Query, clock: FakeClock, open_store: Callable[[str], FileStore]) -> None:
        self.query, self.background, self.local_dir = query, Background(), query.folder / "kept"
        self.state = SlotState(
            record=query.records["one"],
            slot=0,
            file_store=query.store,
            prefix=operator_prefix(query.query_id, "one"),
            local_dir=str(self.local_dir),
            settings=CheckpointSettings(fold_deltas_max=1),
            clock=clock,
            background=self.background,
            open_store=open_store,
        )

    def batches(self, batch_ids: range) -> None:
        key = "one", 0
        for batch_id in batch_ids:
            self.state.open(self.query.handles.get(key) or self.state.first_version())
            self.state.begin(batch_id)
            self.query.handles[key] = self.state.prepare()
            assert self.background.drain(60)

    def bases(self) -> int:
        return sum(path.is_dir() and path.name.split("-")[0].isdigit() for path in self.local_dir.rglob("bases/*"))


@pytest.mark.parametrize("error", [Unavailable("the bucket is gone"), Corrupt("a note is damaged"), OSError("broken")])
def test_a_claim_that_cannot_end_holds_nothing_else_up(
    tmp_path: Path, saved: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    query, clock, is_gone_now, asked = Query(tmp_path, saved, slots=1), FakeClock(), False, []
    Query(tmp_path, saved, slots=1).batch(0, ("two",))

    def open_store(uri: str) -> FileStore:
        if is_gone_now:
            asked.append(uri)
            raise error
        return open_file_store(uri)

    process = Process(query, clock, open_store)
    process.batches(range(1))
    is_gone_now = True
    bases = []
    for batch_id in range(1, 30):
        process.batches(range(batch_id, batch_id + 1))
        bases.append(process.bases())
        clock.ms += 100
    assert max(bases) <= 3, "bases that nobody needs stay on this disk"
    assert 0 < len(asked) < 5, "it is tried again later, and later still"
    said = [record.getMessage() for record in caplog.records]
    assert sum("maintenance of" in line for line in said) == 0
    told = [line for line in said if "savepoint" in line]
    assert len(told) == 1 and str(error) in told[0] and "dispose" in told[0], said
    is_gone_now = False
    clock.ms += 3_600_000
    process.batches(range(30, 31))
    assert (saved / "claims" / "one.taken.json").exists()


def test_another_savepoint_that_is_copied_into_the_folder_is_not_touched(tmp_path: Path, saved: Path) -> None:
    """Before the first is deleted, in the middle of that, and once it is."""
    other = tmp_path / "other"
    rows = ROWS.set_column(1, "value", pa.array(range(60, 120)))
    tables = [hf.OperatorTables(name, {"total": rows}, processor=Total, key="user string") for name in ("one", "two")]
    made = hf.Savepoint.write(tmp_path / "tables", *tables)
    if saved.name == "native":
        made.convert(other)
    else:
        shutil.copytree(tmp_path / "tables", other)
    content = {name: (other / name).read_bytes() for name in files_in(other)}
    for batches in (1, 2):
        folder, copy = tmp_path / f"after-{batches}", tmp_path / f"saved-{batches}"
        shutil.copytree(saved, copy)
        query = Query(folder, copy)
        for batch_id in range(batches):
            query.batch(batch_id)
        for killed in (False, True):
            shutil.copytree(other, copy, dirs_exist_ok=True)
            if killed:  # before the note that all is done
                notes = list(copy.glob("claims/*.done.json"))
                assert notes
                for note in notes:
                    note.unlink()
            for batch_id in range(batches, batches + 2):
                query.batch(batch_id)
            for name, data in content.items():
                assert (copy / name).read_bytes() == data, (batches, killed, name)


def test_a_claim_that_is_done_costs_each_process_one_request(tmp_path: Path, saved: Path) -> None:
    query = Query(tmp_path, saved, slots=1)
    for batch_id in range(2):
        query.batch(batch_id)
    assert is_gone(saved)
    asked: list[FaultyFileStore] = []

    def open_store(uri: str) -> FileStore:
        asked.append(FaultyFileStore(open_file_store(uri), fail_at=()))
        return asked[-1]

    query.open_store = open_store
    query.batch(2, ("one",))
    assert [operation for store in asked for operation in store.operations] == [("get", ANY)]


@pytest.mark.parametrize("claim", [True, False])
def test_whether_it_is_claimed_cannot_change_once_the_query_has_begun(tmp_path: Path, saved: Path, claim: bool) -> None:
    """A program that fails in its first batch and then says nothing of a claim lost its savepoint all the same."""
    query = Query(tmp_path, saved, claim=claim)
    query.batch(0, committed=False)
    way = rf"\(leave restore= out, or say claim={claim}"
    says = rf"claim of operator 'one' .*: recorded {claim}, declared {not claim} {way}"
    with pytest.raises(Incompatible, match=says):
        query.register(begun(saved, "one", 2, claim=not claim))
    query.register(begun(saved, "one", 2, claim=claim))
    query.register(replace(begun(saved, "one", 2), origin=None))
