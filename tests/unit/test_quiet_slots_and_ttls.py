"""Slots that get no rows while the program's TTL changes: who reads the state, saves it or begins with it sees what the
query's next batch on the slot sees. Nothing that lives in the query is missing, and what has expired stays gone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.first_versions import begun, first_versions
from tests.quiet_slots import (
    ADA,
    BOB,
    FORMATS,
    HOUR_MS,
    NAME,
    NOON_MS,
    QUERY,
    ROWS,
    STATE,
    Driver,
    found,
    in_slot,
    program,
)

import holdfast as hf
from holdfast.checkpoint import Handle, Lifetime, OperatorRecord, operator_prefix
from holdfast.checkpoint.continued import NOTHING_SAID, continued
from holdfast.checkpoint.ttl_log import DeclaredTtls, declared_ttls, note_ttls
from holdfast.inspect.earlier import EarlierQuery
from holdfast.sealed import seal
from holdfast.settings import Settings
from holdfast.spark import declared_operators, slots, worker
from holdfast.spark.blobs import Payload
from holdfast.spark.blobs import seal as blobs_of
from holdfast.spark.declared_operators import declare, note_declared_ttls, ttls_to_note
from holdfast.spark.keyed import state_records
from holdfast.spark.plan import OperatorPlan
from holdfast.spark.replay import SlotReplay
from holdfast.spark.slot_batch import declared_ttls as ttls_of
from holdfast.spark.worker import BatchIdentity
from holdfast.storage import StorageOptions, open_file_store

RUN = "00000000-0000-4000-8000-000000000001"
SHORT, LONG = hf.TTL("1 h"), hf.TTL("7 d")
CLEANED = hf.TTL("8 h", visibility="until_cleaned")
#: The TTL that the quiet slot's own batch had, a minute after noon; the one since; when it is looked at; what is left.
CHANGES = {
    "as it was": (SHORT, SHORT, 2 * HOUR_MS, False),
    "lengthened": (SHORT, LONG, 2 * HOUR_MS, True),
    "lengthened, and over": (SHORT, LONG, 200 * HOUR_MS, False),
    "shortened": (LONG, SHORT, 2 * HOUR_MS, False),
    "removed": (SHORT, None, 2 * HOUR_MS, True),
    "added": (None, SHORT, 2 * HOUR_MS, True),
    "not cleaned yet": (CLEANED, CLEANED, 8 * HOUR_MS + 30 * 60_000, True),
    "cleaned": (CLEANED, CLEANED, 9 * HOUR_MS, False),
    "cleaned later than it was": (hf.TTL("8 h"), CLEANED, 8 * HOUR_MS + 30 * 60_000, True),
}


@dataclass
class Case:
    """A driver in whose batch ``batch_id`` Ada's slot has had no rows for long. ``alive``: what is there lives."""

    driver: Driver
    batch_id: int
    passed_ms: int
    alive: bool

    @property
    def ada(self) -> str:
        return self.driver.users[ADA]

    def finds(self, source: Any, **batch: Any) -> bool:
        return self.ada in found(source, **batch)


@pytest.fixture(params=["processing", "event"])
def by_events(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "event")


@pytest.fixture(params=CHANGES)
def change(request: pytest.FixtureRequest) -> tuple[hf.TTL | None, hf.TTL | None, int, bool]:
    return CHANGES[request.param]


def timed(ttl: hf.TTL | None, by_events: bool) -> hf.TTL | None:
    return None if ttl is None else replace(ttl, time="event" if by_events else "processing")


@pytest.fixture(params=["no slot", "another slot", "another slot in that batch"])
def case(request: pytest.FixtureRequest, change: Any, by_events: bool, tmp_path: Path) -> Case:
    """``param``: which slots had rows since the restart."""
    before, since, passed_ms, alive = change
    driver = Driver(tmp_path, timed(before, by_events), by_events)
    driver.batch(60_000, ADA)
    driver.start(timed(since, by_events))
    driver.batch(120_000, *([BOB] if request.param == "another slot" else []))
    batch_id = driver.batch(passed_ms, *([BOB] if request.param == "another slot in that batch" else []))
    return Case(driver, batch_id, passed_ms, alive)


def test_readers_see_what_the_slots_next_batch_sees(case: Case) -> None:
    with hf.Checkpoint(case.driver.checkpoint) as checkpoint:
        assert case.finds(checkpoint, batch_id=case.batch_id) == case.alive
        assert case.finds(checkpoint, batch_id=case.batch_id, filter=pc.field("user") == case.ada) == case.alive
        assert case.finds(checkpoint, batch_id=0), "as of its own batch it is there in any case"
        changes = checkpoint.diff(NAME, STATE, 0, case.batch_id).read_all().to_pylist()
        removed = [row["user"] for row in changes if row["change"] == "removed"]
        assert removed == ([] if case.alive else [case.ada])
        verified = checkpoint.verify()
        assert not verified.damaged and case.batch_id in verified.readable
    assert case.driver.sees(ADA, case.passed_ms) == case.alive


def test_savepoints_have_what_the_slots_next_batch_sees(case: Case, tmp_path: Path) -> None:
    for form in FORMATS:
        to = tmp_path / form
        saved = hf.Savepoint.create(checkpoint=case.driver.checkpoint, to=to, batch_id=case.batch_id, format=form)
        assert case.finds(saved) == case.alive
        assert case.finds(saved.convert(tmp_path / f"of-{form}")) == case.alive
        with first_versions(begun(to, NAME, slots=3), tmp_path / f"begun-with-{form}") as checkpoint:
            assert case.finds(checkpoint) == case.alive
    assert case.driver.sees(ADA, case.passed_ms) == case.alive


def test_a_query_begins_with_what_the_slots_next_batch_sees(case: Case, tmp_path: Path) -> None:
    path, state = str(case.driver.checkpoint), str(tmp_path / "state")
    earlier = EarlierQuery(path, state, case.batch_id, StorageOptions(), None)
    recorded, origin = earlier.operator(NAME, "here", None)
    declared = replace(recorded, slots=3, labels=(0, 1, 2), inputs=())
    record = continued(recorded, declared, origin, NOTHING_SAID)
    assert OperatorRecord.from_json(record.to_json()) == record
    # In the same folders: what is made of the earlier versions on the way is the earlier query's too.
    with first_versions(record, tmp_path) as checkpoint:
        assert case.finds(checkpoint) == case.alive
    assert case.driver.sees(ADA, case.passed_ms) == case.alive


@pytest.mark.parametrize("has_rows", [True, False], ids=["with rows since", "without"])
def test_what_is_alive_where_a_ttl_comes_back_counts_from_then(by_events: bool, has_rows: bool, tmp_path: Path) -> None:
    """For readers, savepoints and who begins with it, as in the slot's next batch: ``has_rows`` of another key."""
    driver = Driver(tmp_path / "query", timed(SHORT, by_events), by_events)
    ada = driver.users[ADA]
    driver.batch(60_000, ADA)
    driver.start(None)
    driver.users[ADA] = in_slot(driver.record, ADA, int(ada.partition("-")[2]) + 1)
    driver.batch(120_000, ADA)
    driver.start(timed(LONG, by_events))
    first = driver.batch(1000 * HOUR_MS, *([ADA] if has_rows else []))
    last = driver.batch(1168 * HOUR_MS - 1)
    over = driver.batch(1168 * HOUR_MS)
    for batch_id, alive in ((first, True), (last, True), (over, not has_rows)):
        with hf.Checkpoint(driver.checkpoint) as checkpoint:
            assert (ada in found(checkpoint, batch_id=batch_id)) == alive
        for form in FORMATS:
            to = tmp_path / f"{form}-{batch_id}"
            saved = hf.Savepoint.create(checkpoint=driver.checkpoint, to=to, batch_id=batch_id, format=form)
            assert (ada in found(saved)) == alive
            with first_versions(begun(to, NAME, slots=3), tmp_path / f"of-{form}-{batch_id}") as checkpoint:
                rows = checkpoint.read(NAME, STATE).read_all().to_pylist()
            expires = [row["expiry"].timestamp() * 1000 - NOON_MS for row in rows if row["user"] == ada]
            begins_ms = {first: 1000 * HOUR_MS, last: (1000 if has_rows else 1168) * HOUR_MS - (not has_rows)}
            assert expires == ([begins_ms.get(batch_id, 1168 * HOUR_MS) + 168 * HOUR_MS] if alive else [])
    driver.users[ADA] = ada
    assert driver.sees(ADA, 1168 * HOUR_MS) == (not has_rows)


# --- what the operator notes
def test_without_a_note_the_newest_version_of_all_slots_tells(by_events: bool, tmp_path: Path) -> None:
    """As of a checkpoint that an earlier Holdfast wrote, or a query that Spark's own ``start()`` began."""
    driver = Driver(tmp_path, None, by_events)
    driver.start(timed(SHORT, by_events), noted=False)
    driver.batch(60_000, ADA)
    quiet = driver.batch(2 * HOUR_MS)
    driver.start(timed(LONG, by_events), noted=False)
    lengthened = driver.batch(2 * HOUR_MS, BOB)
    over = driver.batch(200 * HOUR_MS)
    driver.start(None, noted=False)
    removed = driver.batch(300 * HOUR_MS, BOB)
    assert declared_ttls(driver.store, driver.prefix, removed) is None
    ada = driver.users[ADA]
    with hf.Checkpoint(driver.checkpoint) as checkpoint:
        seen = [ada in found(checkpoint, batch_id=batch_id) for batch_id in (quiet, lengthened, over, removed)]
    assert seen == [False, True, False, True]
    assert driver.sees(ADA, 300 * HOUR_MS)


def test_a_note_says_nothing_of_batches_before_it(by_events: bool, tmp_path: Path) -> None:
    driver = Driver(tmp_path, timed(LONG, by_events), by_events)
    driver.batch(60_000, ADA)
    long = driver.batch(2 * HOUR_MS)
    driver.start(timed(SHORT, by_events))
    ada = driver.users[ADA]
    with hf.Checkpoint(driver.checkpoint) as checkpoint:
        assert ada in found(checkpoint, batch_id=long), "nor if the program has begun and has no batch yet"
        short = driver.batch(2 * HOUR_MS)
        assert [ada in found(checkpoint, batch_id=batch_id) for batch_id in (long, short)] == [True, False]


def test_a_note_is_written_where_it_says_something_new(tmp_path: Path) -> None:
    store = open_file_store(str(tmp_path))
    short, long = Lifetime(1, "event", HOUR_MS, 1), Lifetime(1, "event", 2 * HOUR_MS, HOUR_MS // 4, True)

    def noted(batch_id: int, *lifetimes: Lifetime) -> int:
        note_ttls(store, "q/op", DeclaredTtls(batch_id, lifetimes))
        return len(store.list("q/op/ttls/"))

    assert noted(0) == 0, "without a TTL nothing"
    assert [noted(0, short), noted(7, short), noted(9, long), noted(9, long)] == [1, 1, 2, 2]
    assert [noted(12), noted(13), noted(14, short)] == [3, 3, 4]
    said = {batch: declared_ttls(store, "q/op", batch) for batch in (0, 8, 9, 11, 12, 20)}
    as_read = replace(long, refreshes_on_read=False)
    first, longer, none, again = (
        DeclaredTtls(0, (short,)),
        DeclaredTtls(9, (as_read,)),
        DeclaredTtls(12, ()),
        DeclaredTtls(14, (short,)),
    )
    assert said == {0: first, 8: first, 9: longer, 11: longer, 12: none, 20: again}
    # A checkpoint that was rolled back: what its batches went by the first time does not hold any more.
    assert noted(5, short) == 5
    assert declared_ttls(store, "q/op", 10) == DeclaredTtls(5, (short,))
    assert declared_ttls(store, "q/op", 4) == first


@pytest.mark.parametrize(
    "fields",
    [
        {"batch_id": 1},
        {"batch_id": True, "ttls": []},
        {"batch_id": 1, "ttls": [[1, "event", 60, 1], [1, "event", 61, 1]]},
        {"batch_id": 1, "ttls": [[1, "event", 60]]},
        {"batch_id": 1, "ttls": [[1, "wall", 60, 1]]},
        {"batch_id": 1, "ttls": [[1, "event", 60, 61]]},
        {"batch_id": 1, "ttls": [[1, "event", 0, 0]]},
        {"batch_id": 1, "ttls": [[-1, "event", 60, 1]]},
        {"batch_id": 1, "ttls": [[1, "event", "60", 1]]},
    ],
)
def test_a_note_that_says_what_cannot_be_is_refused_by_readers_and_stops_no_query(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    store = open_file_store(str(tmp_path))
    store.put("q/op/ttls/00001.json", seal("holdfast.ttls", 1, fields).encode())
    with pytest.raises(hf.Corrupt, match=r"q/op/ttls/00001\.json"):
        declared_ttls(store, "q/op", 1)
    note_ttls(store, "q/op", DeclaredTtls(2, ()))
    assert declared_ttls(store, "q/op", 2) == DeclaredTtls(2, ())


def test_a_damaged_note_is_told(noted: Driver) -> None:
    note = next(file.name for file in noted.store.list(f"{noted.prefix}/ttls/"))
    path = noted.folder / "state" / note
    path.write_bytes(path.read_bytes().replace(b"3600000", b"3600001"))
    with hf.Checkpoint(noted.checkpoint) as checkpoint:
        with pytest.raises(hf.Corrupt, match=r"ttls/00001\.json"):
            checkpoint.read(NAME, STATE)
        verified = checkpoint.verify()
    assert not verified.readable and "ttls/00001.json" in verified.damaged[0].problem
    with pytest.raises(hf.Corrupt, match=r"ttls/00001\.json"):
        hf.Savepoint.create(checkpoint=noted.checkpoint, to=noted.folder / "saved")


@pytest.mark.parametrize("later", [False, True])
def test_a_damaged_note_may_be_deleted(noted: Driver, later: bool) -> None:
    """As its message says: then the earlier notes and the versions tell, and the next start notes what it declares."""
    noted.start(LONG)
    long = noted.batch(2 * HOUR_MS)
    damaged = noted.folder / "state" / noted.prefix / "ttls" / "00002.json"
    damaged.write_bytes(damaged.read_bytes().replace(b"604800000", b"604800001"))
    if later:
        noted.start(LONG)
    with hf.Checkpoint(noted.checkpoint) as checkpoint:
        with pytest.raises(hf.Corrupt, match=r"ttls/00002\.json.*or delete it"):
            checkpoint.read(NAME, STATE)
        damaged.unlink()
        assert noted.users[ADA] not in found(checkpoint, batch_id=long), "as the earlier note says"
        noted.start(LONG)
        quiet = noted.batch(2 * HOUR_MS)
        assert noted.users[ADA] in found(checkpoint, batch_id=quiet)
        assert not checkpoint.verify().damaged


# --- what the driver notes
@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Driver:
    """A checkpoint whose last program had the short TTL; what this one declares, it has still to say."""
    monkeypatch.setattr(declared_operators, "_declared", {})
    driver = Driver(tmp_path, SHORT, by_events=False)
    driver.batch(60_000, ADA)
    return driver


def plan(driver: Driver, ttl: hf.TTL | None, instance: str, **changes: Any) -> OperatorPlan:
    processor = program(ttl, [])
    declared = replace(driver.record, states=state_records(processor), **changes)
    folder, ttls = str(driver.folder / "state"), ttls_of(processor)
    return OperatorPlan(declared, True, instance, folder, Settings(), (), ROWS, (), 1000, ttls)


class Writer(DataStreamWriter):
    """As Spark's, of a query that does what it is told as it starts."""

    def __init__(self, begin: Callable[[], None]) -> None:
        self.begin = begin

    def option(self, key: str, value: Any) -> Writer:
        return self

    def start(self, *given: Any, **named: Any) -> Any:
        self.begin()
        return SimpleNamespace(_jsq=SimpleNamespace(runId=lambda: SimpleNamespace(toString=lambda: RUN)))


def start(checkpoint: Path, begin: Callable[[], None] = lambda: None) -> None:
    hf.start(Writer(begin), checkpoint=checkpoint)


def test_a_start_that_is_refused_notes_nothing(noted: Driver) -> None:
    """A query that is still active, say: it runs on, and what lives in it was missing in its savepoints."""
    noted.start(LONG)
    quiet = noted.batch(2 * HOUR_MS)
    declare(plan(noted, SHORT, "this one"))

    def refuse() -> None:
        raise RuntimeError("Cannot start query: another query with the same id is already active")

    with pytest.raises(RuntimeError, match="already active"):
        start(noted.checkpoint, refuse)
    with hf.Checkpoint(noted.checkpoint) as checkpoint:
        assert noted.users[ADA] in found(checkpoint, batch_id=quiet)
        quiet = noted.batch(3 * HOUR_MS)
        assert noted.users[ADA] in found(checkpoint, batch_id=quiet)
    assert noted.sees(ADA, 4 * HOUR_MS)


@pytest.mark.parametrize("run_id", [RUN, "another run"])
def test_a_query_may_have_gone_on_before_its_start_is_noted(noted: Driver, run_id: str) -> None:
    """Two batches: the later one's version would tell of a rollback, or a copy, were it another run's."""
    first = noted.batch_id

    def go_on() -> None:
        for minute in (2, 3):
            noted.batch(minute * 60_000, BOB, run_id=run_id)

    declare(plan(noted, LONG, "this one"))
    start(noted.checkpoint, go_on)
    said = declared_ttls(noted.store, noted.prefix, first)
    assert said is not None and said.batch_id == (first if run_id == RUN else 0)


@pytest.mark.parametrize(("ttl", "alive"), [(LONG, True), (None, True), (SHORT, False)])
def test_a_driver_notes_ttls_before_there_are_rows(noted: Driver, ttl: hf.TTL | None, alive: bool) -> None:
    declare(plan(noted, ttl, "this one"))
    start(noted.checkpoint)
    said = declared_ttls(noted.store, noted.prefix, noted.batch_id)
    assert said is not None and said.batch_id == (0 if ttl == SHORT else noted.batch_id), "from the next batch on"
    quiet = noted.batch(2 * HOUR_MS)
    with hf.Checkpoint(noted.checkpoint) as checkpoint:
        assert (noted.users[ADA] in found(checkpoint, batch_id=quiet)) == alive


class GivenHandle:
    """What Spark gives a slot's task of the slot's state."""

    exists = True

    def __init__(self, handle: Handle) -> None:
        self.get = (handle.to_text(),)

    def getCurrentProcessingTimeMs(self) -> int:
        return NOON_MS


def run_task(driver: Driver, plan: OperatorPlan, batch_id: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first task of a worker, on Ada's slot. Its rows are of no input: it gets as far as to them."""
    identity = BatchIdentity(QUERY, f"run of {plan.instance}", batch_id, 0, 0, 0, None)
    monkeypatch.setattr(BatchIdentity, "of_task", lambda: identity)
    settings = Settings.from_mapping({}, {"local.dir": str(driver.folder / "worker")})
    handle: Any = GivenHandle(driver.handles[ADA] or pytest.fail("Ada had no rows"))
    blobs = blobs_of([Payload(0, 0, 0, pa.py_buffer(b""))], [0])
    frames = iter([pd.DataFrame({"blob": blobs.to_pylist()})])
    for _ in slots._run_slot(replace(plan, settings=settings), program(None, []), ADA, frames, handle):
        pass


def test_a_worker_notes_ttls_in_its_first_task(noted: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a query that Spark's own ``start()`` began, in which the driver notes nothing."""
    with pytest.raises(hf.Corrupt, match="is of input 0"):
        run_task(noted, plan(noted, LONG, f"worker of {noted.folder}"), noted.batch_id + 3, monkeypatch)
    said = [declared_ttls(noted.store, noted.prefix, noted.batch_id + later) for later in (2, 3)]
    assert [one is not None and one.lifetimes[0].ttl_ms // HOUR_MS for one in said] == [1, 168]


def test_a_copy_that_is_refused_changes_nothing_for_readers_of_the_original(
    noted: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied, then = copied_checkpoint(noted), list(noted.handles)
    for minute in (2, 3):
        noted.batch(minute * 60_000, ADA)
    noted.start(LONG)
    quiet = noted.batch(2 * HOUR_MS)
    before = noted.store.list(f"{noted.prefix}/ttls/")
    short = plan(noted, SHORT, f"copy of {noted.folder}")
    declare(short)
    start(copied)
    assert noted.store.list(f"{noted.prefix}/ttls/") == before, "a driver cannot tell a copy from a rollback"
    noted.handles = then
    with pytest.raises(hf.Incompatible, match="older"):
        run_task(noted, short, 1, monkeypatch)
    assert noted.store.list(f"{noted.prefix}/ttls/") == before
    with hf.Checkpoint(noted.checkpoint) as checkpoint:
        assert noted.users[ADA] in found(checkpoint, batch_id=quiet)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_copy_notes_nothing_where_any_slot_has_gone_on(noted: Driver, is_damaged: bool) -> None:
    """The original noted long before the copy was made: its slots alone tell that the copy is one."""
    copied = copied_checkpoint(noted)
    for minute in (2, 3):
        noted.batch(minute * 60_000, ADA)
    if is_damaged:
        newest = max(
            noted.store.list(f"{noted.prefix}/slot-"), key=lambda file: ("/delta/" in file.name, file.modified_ms)
        )
        (noted.folder / "state" / newest.name).write_bytes(b"no delta")
    before = noted.store.list(f"{noted.prefix}/ttls/")
    declare(plan(noted, LONG, f"copy of {noted.folder}"))
    start(copied)
    assert noted.store.list(f"{noted.prefix}/ttls/") == before


def copied_checkpoint(driver: Driver) -> Path:
    """A copy of Spark's checkpoint as it is, from well before what comes next."""
    for file in driver.store.list(f"{driver.prefix}/slot-"):
        path = driver.folder / "state" / file.name
        os.utime(path, (path.stat().st_mtime - 60, path.stat().st_mtime - 60))
    return Path(shutil.copytree(driver.checkpoint, driver.folder / "copied"))


@pytest.mark.parametrize("replayed", [False, True])
def test_a_rollback_is_noted_once_its_first_batch_was_committed(
    noted: Driver, replayed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its batches went by the first time does not hold any more. In the first one another slot may refuse."""
    note_ttls(noted.store, noted.prefix, DeclaredTtls(noted.batch_id + 9, ()))
    back = plan(noted, SHORT, f"back in {noted.folder}, replayed: {replayed}")
    first = noted.batch_id + replayed
    if replayed:
        replay = SlotReplay(run_id="before", done={}, lost={0: "a version"})
        identity = BatchIdentity(QUERY, f"run of {back.instance}", noted.batch_id, 0, 0, 0, replay)
        worker.operator(back, identity)
    said = []
    for batch_id in (first, first + 1):
        with pytest.raises(hf.Corrupt, match="is of input 0"):
            run_task(noted, back, batch_id, monkeypatch)
        said.append(declared_ttls(noted.store, noted.prefix, noted.batch_id + 9))
    assert said == [DeclaredTtls(noted.batch_id + 9, ()), DeclaredTtls(first, noted.lifetimes)]


def test_of_declarations_that_differ_a_driver_notes_that_of_its_query_or_none(noted: Driver) -> None:
    for ttl, instance in [(LONG, "a"), (SHORT, "b"), (hf.TTL("30 d"), "contradicts")]:
        declare(plan(noted, ttl, instance, **({"null_keys": True} if instance == "contradicts" else {})))
    notes = []
    for instances in ({"b"}, {"a"}, {"b"}, set(), {"contradicts"}):
        note_declared_ttls(ttls_to_note(QUERY, noted.batch_id, instances), RUN)
        said = declared_ttls(noted.store, noted.prefix, noted.batch_id)
        assert said is not None
        notes.append([lifetime.ttl_ms // HOUR_MS for lifetime in said.lifetimes])
    assert notes == [[1], [168], [1], [1], [1]]


def test_documents_come_only_with_changes(noted: Driver) -> None:
    """Several queries in one process, whose operators have one name: each start knows all of them."""
    declare(plan(noted, LONG, "a"))
    declare(plan(noted, SHORT, "b"))
    for batch_id in range(noted.batch_id, noted.batch_id + 5):
        note_declared_ttls(ttls_to_note(QUERY, batch_id, set()), RUN)
        note_ttls(noted.store, noted.prefix, DeclaredTtls(batch_id, noted.lifetimes))  # the worker's
    assert len(noted.store.list(f"{noted.prefix}/ttls/")) == 1


def test_a_driver_notes_nothing_of_operators_that_the_checkpoint_does_not_know(noted: Driver) -> None:
    declare(plan(noted, LONG, "this one", name="another"))
    note_declared_ttls(ttls_to_note(QUERY, noted.batch_id, {"this one"}), RUN)
    assert not noted.store.list(operator_prefix(QUERY, "another"))
