"""What `holdfast checkpoints gc` deletes, and what it leaves alone: handles, copies, runs at work, what is young."""

from __future__ import annotations

import json
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.checkpoint_driver import OPERATOR, flip, operator_record
from tests.faulty_file_store import FaultyFileStore
from tests.slot_checkpoint import QUERY, SlotCheckpoint, age

import holdfast as hf
from holdfast.checkpoint import Handle, Runs, VersionsOrigin, register_operator
from holdfast.checkpoint.names import delta_name
from holdfast.cli import main
from holdfast.clock import SystemClock
from holdfast.errors import Corrupt, InvalidRequest, Unavailable
from holdfast.inspect.garbage import Collector


@pytest.fixture
def query(tmp_path: Path) -> SlotCheckpoint:
    """With a stray delta of a killed attempt, tables that nobody names, and a snapshot that nobody names."""
    query = SlotCheckpoint(tmp_path)
    query.batches(9)
    query.attempt()
    query.process.rest()
    query.start()
    query.batches(14)
    (query.slot / "sst" / f"{'f' * 32}-000009.sst").write_bytes(b"of a killed upload")
    age(tmp_path / "store")
    return query


def gc(query: SlotCheckpoint, **options: object) -> dict[str, str]:
    with query.open() as opened:
        found = opened.gc(**options)  # type: ignore[arg-type]
        assert not found.kept
        return {file.name.partition("slot-00000/")[2]: file.reason for file in found.files}


def test_what_a_killed_attempt_left_goes_and_all_retained_batches_stay(query: SlotCheckpoint) -> None:
    before = query.stored()
    found = gc(query)
    assert f"sst/{'f' * 32}-000009.sst" in found
    assert query.stored() == before
    assert gc(query, apply=True) == found
    after = query.stored()
    assert {name.partition("slot-00000/")[2] for name in before.keys() - after.keys()} == set(found)
    query.assert_right()
    query.start("local-b")
    query.batches(10)
    query.assert_right()
    assert gc(query, apply=True).keys().isdisjoint(after)


def test_a_stray_delta_of_a_killed_attempt_goes_once_it_is_passed(tmp_path: Path) -> None:
    query = SlotCheckpoint(tmp_path)
    query.batches(5)
    stray, _ = query.attempt()
    name = delta_name(stray.sequence, stray.version_id)  # type: ignore[attr-defined]
    age(tmp_path / "store")
    assert name not in gc(query)  # a replay of an exactly-once batch may still take it over
    query.start()
    query.batches(1)
    age(tmp_path / "store")
    assert gc(query, apply=True) == {name: "of an attempt or a run that was never committed"}
    query.assert_right()


def test_what_is_young_stays_and_less_than_an_hour_is_refused(query: SlotCheckpoint) -> None:
    for path in (query.folder / "store").rglob("*"):
        os.utime(path)
    assert gc(query, apply=True) == {}
    with query.open() as opened, pytest.raises(InvalidRequest, match="an hour or more"):
        opened.gc(older_than="59 min")


def test_a_writer_between_the_look_and_the_deletion_loses_nothing(query: SlotCheckpoint, monkeypatch) -> None:
    """Batches, folds, snapshots and retention run after gc has decided, before it deletes."""
    find = Collector.find

    def find_and_write(self):
        found = find(self)
        query.batches(7)
        return found

    monkeypatch.setattr(Collector, "find", find_and_write)
    assert gc(query, apply=True)
    query.assert_right()


def test_an_unnamed_snapshot_that_the_next_version_may_name_stays_with_its_tables(tmp_path: Path) -> None:
    query = SlotCheckpoint(tmp_path)
    query.batches(4)
    named = {ref.name for ref in query.driver.handle.snapshots}  # type: ignore[union-attr]
    unnamed = [f"snapshot/{path.name}" for path in (query.slot / "snapshot").iterdir()]
    assert set(unnamed) - named  # uploaded after batch 4; the handle after it will name it
    age(tmp_path / "store")
    assert gc(query, apply=True) == {}
    query.start("local-b")  # a process that has nothing but storage
    query.batches(6)
    query.assert_right()


def test_of_a_checkpoint_with_a_copy_that_lives_nothing_goes_until_it_is_given_up(query: SlotCheckpoint) -> None:
    copy = query.copy("copied")
    copy.start("local-copy")
    copy.batches(3)
    age(query.folder / "store")
    before = query.stored()
    with query.open() as opened:
        found = opened.gc(apply=True)
    assert found.files == () and copy.run_id in found.kept[f"{QUERY}/{OPERATOR}/slot-00000"]
    assert query.stored() == before
    copy.assert_right()
    gc(query, apply=True, abandoned_runs=[copy.run_id])
    query.assert_right()


def test_from_the_side_of_the_copy_nothing_goes_while_the_original_goes_on(query: SlotCheckpoint) -> None:
    copy = query.copy("copied")
    original = query.process
    copy.start("local-copy")
    copy.batches(1)
    query.process = original
    query.batches(1)
    age(query.folder / "store")
    for side in (copy, query):
        with side.open() as opened:
            assert opened.gc(apply=True).files == ()
    copy.assert_right()
    query.assert_right()


def test_mended_deltas_of_an_earlier_run_are_no_other_querys(query: SlotCheckpoint) -> None:
    """They are younger than the run, and everything was kept for the run that made them."""
    query.start()
    for path in (query.slot / "delta").iterdir():
        os.utime(path)
    query.batches(1)
    age(query.folder / "store")
    assert f"sst/{'f' * 32}-000009.sst" in gc(query, apply=True)
    query.assert_right()


def test_while_a_later_run_has_committed_nothing_nothing_goes(query: SlotCheckpoint) -> None:
    run = Runs(query.driver.store, f"{QUERY}/{OPERATOR}", OPERATOR, "later", "later")
    run.register()
    with query.open() as opened:
        found = opened.gc(apply=True)
    assert found.files == () and "later" in next(iter(found.kept.values()))


def test_what_a_later_generation_has_yet_to_copy_stays(query: SlotCheckpoint) -> None:
    handle = query.driver.handle
    assert handle is not None
    origin = VersionsOrigin(query.driver.store.uri, QUERY, OPERATOR, handle.batch_id, (handle.stored(),), (OPERATOR,))
    needed = {delta_name(ref.sequence, ref.version_id) for ref in handle.deltas} | {s.name for s in handle.snapshots}
    query.batches(4)
    register_operator(query.driver.store, replace(operator_record(2), origin=origin), prefix=f"later/{OPERATOR}")
    (query.slot / "sst" / f"{'e' * 32}-000001.sst").write_bytes(b"of a killed upload")
    age(query.folder / "store")
    there = {str(path.relative_to(query.slot)) for path in query.slot.rglob("*") if path.is_file()}
    gone = gc(query, apply=True)
    assert not (needed & there & gone.keys()) and f"sst/{'e' * 32}-000001.sst" in gone


@pytest.mark.parametrize("damage", ["missing", "flipped"])
def test_where_the_newest_delta_is_damaged_nothing_goes(query: SlotCheckpoint, damage: str) -> None:
    """It alone says which deltas were before it."""
    handle = query.driver.handle
    assert handle is not None and gc(query)
    path = query.slot / delta_name(handle.sequence, handle.version_id)
    content = path.read_bytes()
    path.unlink() if damage == "missing" else flip(str(path))
    before = query.stored()
    with query.open() as opened:
        found = opened.gc(apply=True)
    assert found.files == () and query.stored() == before
    assert f"of version {handle.sequence}, the newest that is committed, " in next(iter(found.kept.values()))
    assert path.name in next(iter(found.kept.values()))
    path.write_bytes(content)
    age(query.folder / "store")
    assert gc(query, apply=True)
    query.assert_right()


def test_a_damaged_delta_of_an_older_batch_costs_no_file_that_a_retained_batch_needs(query: SlotCheckpoint) -> None:
    older, _ = query.driver.history[-3]
    assert older is not None
    path = query.slot / delta_name(older.sequence, older.version_id)
    content = path.read_bytes()
    flip(str(path))
    age(query.folder / "store")
    assert gc(query, apply=True)
    path.write_bytes(content)
    query.assert_right()


def test_where_what_a_later_generation_has_yet_to_copy_cannot_be_known_nothing_goes(query: SlotCheckpoint) -> None:
    """It begins with a version beside the line, of a batch that was rolled back."""
    stray, _ = query.attempt()
    assert isinstance(stray, Handle)
    path = query.slot / delta_name(stray.sequence, stray.version_id)
    os.link(path, query.folder / "kept")
    query.process.rest()
    query.start()
    query.batches(2)
    os.link(query.folder / "kept", path)  # the query took it for that of a killed attempt
    (query.slot / "sst" / f"{'e' * 32}-000001.sst").write_bytes(b"of a killed upload")
    claimed = (stray.stored(),)
    origin = VersionsOrigin(query.driver.store.uri, QUERY, OPERATOR, stray.batch_id, claimed, (OPERATOR,))
    register_operator(query.driver.store, replace(operator_record(2), origin=origin), prefix=f"later/{OPERATOR}")
    age(query.folder / "store")
    assert gc(query) and f"delta/{path.name}" not in gc(query)
    status = path.stat()
    flip(str(path))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with query.open() as opened:
        found = opened.gc(apply=True)
    assert found.files == () and "cannot be known" in next(iter(found.kept.values()))


def test_where_a_retained_batch_cannot_be_read_nothing_goes(query: SlotCheckpoint) -> None:
    batch_id = query.driver.next_batch - 1
    (query.folder / f"checkpoint/state/0/0/{batch_id}.delta").write_bytes(b"torn")
    before = query.stored()
    with query.open() as opened, pytest.raises(Corrupt, match="nothing is deleted"):
        opened.gc(apply=True)
    assert query.stored() == before


@pytest.mark.parametrize("which", ["delta", "snapshot", "sst", "of the same size"])
def test_nothing_goes_while_the_newest_version_is_not_whole(query: SlotCheckpoint, which: str) -> None:
    """A repair may need any file: tables of the snapshot before, and what a lost manifest shared."""
    handle = query.driver.handle
    assert handle is not None
    newest = query.slot / handle.snapshots[0].name
    if which == "of the same size":
        newest.write_bytes(newest.read_bytes()[::-1])
    elif which == "snapshot":
        newest.write_bytes(b"torn")
    elif which == "sst":
        next((query.slot / "sst").glob(f"{newest.stem.rpartition('-')[2]}-*")).unlink()
    else:
        (query.slot / delta_name(handle.deltas[0].sequence, handle.deltas[0].version_id)).unlink()
    age(query.folder / "store")
    before = query.stored()
    with query.open() as opened:
        found = opened.gc(apply=True)
    assert found.files == () and "checkpoints repair" in found.kept[f"{QUERY}/{OPERATOR}/slot-00000"]
    assert query.stored() == before


def test_tables_stay_while_a_manifest_of_an_older_batch_is_damaged(query: SlotCheckpoint) -> None:
    newest = query.driver.handle
    assert newest is not None
    older = [old.name for old in newest.superseded if old.name is not None]
    (query.slot / older[-1]).write_bytes(b"torn")
    age(query.folder / "store")
    assert not [name for name in gc(query, apply=True) if name.startswith("sst/")]


@pytest.mark.parametrize("further", range(6, 12))
def test_gc_with_an_older_copy_of_the_checkpoint_takes_nothing_from_the_run_that_went_on(
    tmp_path: Path, further: int
) -> None:
    """As a backup of Spark's folder has it: the same run made all versions, those that the copy does not know too."""
    query = SlotCheckpoint(tmp_path)
    query.batches(5)
    older = query.copy("older")
    query.batches(further)
    age(tmp_path / "store")
    with older.open() as opened:
        opened.gc(apply=True)
    query.assert_right()


def test_gc_on_the_backup_of_another_day_takes_nothing_from_it(tmp_path: Path) -> None:
    """The state folder that is found beside a checkpoint may be a copy that was laid aside with another checkpoint."""
    query = SlotCheckpoint(tmp_path)
    query.batches(6)
    monday = query.copy("monday")
    shutil.copytree(tmp_path / "store", tmp_path / "monday-store")
    query.batches(20)
    age(tmp_path)
    with hf.Checkpoint(query.folder / query.name, state=tmp_path / "monday-store") as opened:
        found = opened.gc(apply=True)
    assert found.files == () and "a copy of another day" in next(iter(found.kept.values()))
    with hf.Checkpoint(monday.folder / monday.name, state=tmp_path / "monday-store") as opened:
        assert opened.verify().whole


def test_an_upload_at_work_stays_whatever_the_clock_of_this_machine_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = SlotCheckpoint(tmp_path)
    query.batches(6)
    upload = query.slot / "sst" / f"{'f' * 32}-000009.sst"
    upload.write_bytes(b"its manifest comes last")
    there, real = set(query.stored()), SystemClock.now_ms
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: real(self) + 3 * 86_400_000)
    gc(query, apply=True)
    assert upload.exists() and set(query.stored()) <= there


def test_nothing_goes_by_way_of_a_symbolic_link(query: SlotCheckpoint) -> None:
    elsewhere = query.folder / "elsewhere"
    query.slot.rename(elsewhere)
    query.slot.symlink_to(elsewhere)
    before = {path.name for path in elsewhere.rglob("*")}
    with query.open() as opened:
        found = opened.gc(apply=True)
    assert found.files == () and "symbolic link" in next(iter(found.kept.values()))
    assert {path.name for path in elsewhere.rglob("*")} == before


def test_files_that_are_nobodys_stay(query: SlotCheckpoint) -> None:
    for name in ("notes.txt", "delta/readme", "sst2/x.sst", "repair/x"):
        path = query.slot / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"mine")
    age(query.folder / "store")
    assert not {"notes.txt", "delta/readme", "sst2/x.sst", "repair/x"} & gc(query, apply=True).keys()


@pytest.mark.long
def test_a_gc_that_is_killed_at_any_deletion_leaves_what_the_next_one_deletes(tmp_path: Path) -> None:
    """Twenty random points: the store fails at each file's deletion, before or after it."""
    generator = random.Random(20)
    query = SlotCheckpoint(tmp_path)
    for _ in range(20):
        query.attempt()
        query.batches(2)
        (query.slot / "sst").mkdir(exist_ok=True)
        for number in range(3):
            (query.slot / "sst" / f"{generator.getrandbits(128):032x}-{number:06d}.sst").write_bytes(b"stray")
        age(tmp_path / "store")
        with query.open() as opened:
            one_by_one = OneByOne(opened._found_state, generator.randrange(4), generator.random() < 0.5)
            opened._found_state = one_by_one
            with pytest.raises(Unavailable):
                opened.gc(apply=True)
        query.assert_right()
        query.start(f"local-{generator.randrange(3)}")
    query.batches(1)
    age(tmp_path / "store")
    gc(query, apply=True)
    query.assert_right()
    assert gc(query) == {}
    assert not [name for name in query.stored() if "gc-time-" in name]


class OneByOne(FaultyFileStore):
    """Deletes file by file, and fails at one of them."""

    def __init__(self, inner, at, after):
        super().__init__(inner, fail_at=[at + 1], fail_after=after, only=["delete"])

    def delete(self, names):
        for name in names:
            super().delete([name])


def test_at_a_shell(query: SlotCheckpoint) -> None:
    arguments = ["checkpoints", "gc", str(query.folder / "checkpoint"), "--state", str(query.folder / "store")]
    said = CliRunner().invoke(main, arguments)
    assert said.exit_code == 0 and "nothing was changed: add --yes to delete" in said.output
    assert "of no snapshot that a version names" in said.output
    told = json.loads(CliRunner().invoke(main, [*arguments, "--json", "--yes"]).stdout)
    assert told["deleted"] and told["bytes"] == sum(file["size_bytes"] for file in told["files"]) > 0
    said = CliRunner().invoke(main, [*arguments, "--yes"])
    assert said.exit_code == 0 and said.output == "0 files, 0 B deleted\n"
    assert CliRunner().invoke(main, [*arguments, "--older-than", "1 min"]).exit_code == 1
