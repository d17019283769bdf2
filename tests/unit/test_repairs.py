"""What `holdfast checkpoints repair` puts right: byte for byte, from where the bytes are, or not at all."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.checkpoint_driver import flip, operator_record
from tests.faulty_file_store import FaultyFileStore
from tests.slot_checkpoint import PREFIX, SlotCheckpoint

from holdfast.checkpoint.evolution import OperatorStates
from holdfast.checkpoint.names import delta_name
from holdfast.checkpoint.state_log import write_states
from holdfast.cli import main
from holdfast.errors import InvalidRequest, Unavailable
from holdfast.inspect import Repairs, checkpoint
from holdfast.inspect.committed import Committed, CommittedState
from holdfast.spark_files.logs import CommittedBatch


@pytest.fixture
def query(tmp_path: Path) -> SlotCheckpoint:
    query = SlotCheckpoint(tmp_path)
    query.batches(14)
    shutil.copytree(tmp_path / "store", tmp_path / "backup")
    return query


def repair(query: SlotCheckpoint, **options: object) -> Repairs:
    with query.open() as opened:
        return opened.repair(**options)  # type: ignore[arg-type]


def needed(query: SlotCheckpoint) -> list[Path]:
    """Files that retained batches need, by what verify says of the loss of each."""
    found = []
    for path in sorted(query.slot.rglob("*")):
        if path.is_file():
            hidden = path.rename(query.folder / "hidden")
            with query.open() as opened:
                if opened.verify().damaged:
                    found.append(path)
            hidden.rename(path)
    return found


def test_what_is_whole_is_left_alone(query: SlotCheckpoint) -> None:
    before = query.stored()
    found = repair(query, apply=True, backup=query.folder / "backup")
    assert found.files == () and found.verification.whole and query.stored() == before


def test_every_file_is_put_back_from_a_backup_and_the_damaged_one_is_kept(query: SlotCheckpoint) -> None:
    before = query.stored()
    paths = needed(query)
    assert {path.parent.name for path in paths} == {"delta", "snapshot", "sst"}
    for number, path in enumerate(paths):
        if number % 2:
            path.unlink()
        else:
            flip(str(path))
    damaged = query.stored()
    dry = repair(query, backup=query.folder / "backup")
    assert query.stored() == damaged and not dry.verification.whole
    assert {file.name for file in dry.files} == {str(path.relative_to(query.folder / "store")) for path in paths}
    found = repair(query, apply=True, backup=query.folder / "backup")
    assert found.verification.whole and all(file.mended for file in found.files)
    after = query.stored()
    assert {name: data for name, data in after.items() if "/damaged/" not in name} == before
    for file in found.files:
        if file.aside is not None:
            assert after[file.aside] == damaged[file.name]
    query.assert_right()
    query.start("local-b")
    query.batches(6)
    query.assert_right()


def test_the_loss_of_the_newest_document_of_the_log_of_states_is_seen(query: SlotCheckpoint) -> None:
    """No other file names it: what tells is that there are entries of a state that nobody knows."""
    record, store = operator_record(), query.driver.store
    (query.slot.parent / "operator.json").write_text(replace(record, states=record.states[:2]).to_json())
    assert write_states(store, PREFIX, 1, OperatorStates(record.states, ()))
    with query.open() as opened:
        assert opened.verify().whole
    (query.slot.parent / "states" / "00001.json").unlink()
    with query.open() as opened:
        found = opened.verify()
    assert not found.whole and not found.readable
    assert [damage.name for damage in found.damaged] == ["the log of states of operator 'sums'"]
    assert "states with the ids [3]" in found.damaged[0].problem and "newest document is missing" in str(found.lost)


def test_tables_are_put_back_from_a_local_folder_and_a_lost_manifest_is_composed(query: SlotCheckpoint) -> None:
    before = query.stored()
    handle = query.driver.handle
    assert handle is not None
    newest = query.slot / handle.snapshots[0].name
    snapshot_id = newest.stem.rpartition("-")[2]
    tables = sorted((query.slot / "sst").glob(f"{snapshot_id}-*"))
    newest.unlink()
    found = repair(query, apply=True)
    assert found.verification.whole and [file.mended for file in found.files] == [True]
    for path in tables:
        flip(str(path))
    found = repair(query, apply=True, local_dirs=[query.folder / "local-a"])
    assert {file.name for file in found.files} == {str(path.relative_to(query.folder / "store")) for path in tables}
    assert all(file.mended == (file.source is not None) for file in found.files)
    assert any(file.mended for file in found.files)
    mended = {file.name for file in found.files if file.mended}
    assert all(query.stored()[name] == before[name] for name in mended)


def test_what_retention_deleted_is_neither_listed_nor_brought_back(tmp_path: Path) -> None:
    """Spark retains more batches than Holdfast, a backup has files of these, and something else is damaged."""
    query = SlotCheckpoint(tmp_path)
    query.batches(7)
    shutil.copytree(tmp_path / "store", tmp_path / "backup")
    shutil.copytree(tmp_path / query.name, tmp_path / "retained-by-spark")
    query.batches(30)
    for log in ("commits", "offsets"):
        shutil.copytree(tmp_path / "retained-by-spark" / log, tmp_path / query.name / log, dirs_exist_ok=True)
    with query.open() as opened:
        before = opened.verify()
        assert before.whole and before.unretained
        kept = opened.gc().kept
        assert not kept, kept
    handle = query.driver.handle
    assert handle is not None
    newest = query.slot / delta_name(handle.deltas[-1].sequence, handle.deltas[-1].version_id)
    shutil.copy(newest, tmp_path / "newest")
    newest.unlink()
    there = query.stored()
    name = str(newest.relative_to(tmp_path / "store"))
    for apply in (False, True):
        found = repair(query, apply=apply, backup=tmp_path / "backup")
        assert [(file.name, file.source) for file in found.files] == [(name, None)]
        assert found.verification.unretained == before.unretained
        assert query.stored() == there
    (tmp_path / "backup" / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(tmp_path / "newest", tmp_path / "backup" / name)
    found = repair(query, apply=True, backup=tmp_path / "backup")
    assert [(file.name, file.mended) for file in found.files] == [(name, True)] and found.verification.whole
    assert query.stored().keys() == {*there, name}


def test_a_wrong_backup_changes_nothing(query: SlotCheckpoint) -> None:
    copies = [path for path in (query.folder / "backup").rglob("*") if path.is_file()]
    lost = needed(query)[:6]
    assert {path.name for path in lost} <= {path.name for path in copies}
    for path in copies:
        path.write_bytes(b"x" + path.read_bytes()[1:])
    for path in lost:
        flip(str(path))
    before = query.stored()
    found = repair(query, apply=True, backup=query.folder / "backup")
    assert query.stored() == before and len(found.files) == 6 and not any(file.mended for file in found.files)


@pytest.mark.long
def test_a_repair_that_is_killed_anywhere_makes_nothing_worse_and_the_next_one_ends_it(query: SlotCheckpoint) -> None:
    """Twenty random points, before or after what the store was asked: random files are damaged or gone."""
    generator = random.Random(7)
    paths = needed(query)
    before = query.stored()
    for _ in range(20):
        for path in generator.sample(paths, 4):
            if path.exists():
                flip(str(path)) if generator.random() < 0.6 else path.unlink()
        with query.open() as opened:
            readable = set(opened.verify().readable)
            changes = ["put_file", "copy_if_absent", "delete"]
            fail_at = [generator.randrange(1, 8)]
            opened._found_state = FaultyFileStore(
                opened._found_state, fail_at=fail_at, fail_after=generator.random() < 0.5, only=changes
            )
            try:
                opened.repair(apply=True, backup=query.folder / "backup")
            except Unavailable:
                pass
            else:
                assert opened._found_state.count < fail_at[0]
            assert readable <= set(opened.verify().readable)
    assert repair(query, apply=True, backup=query.folder / "backup").verification.whole
    after = query.stored()
    assert {n: d for n, d in after.items() if "/damaged/" not in n and ".tmp-" not in n} == before
    query.assert_right()


def test_links_in_a_local_folder_are_not_followed(query: SlotCheckpoint) -> None:
    handle = query.driver.handle
    assert handle is not None
    table = next(iter(sorted((query.slot / "sst").glob("*.sst"))))
    tables = list((query.folder / "local-a").rglob("files/*"))
    assert any(path.suffix == ".sst" for path in tables)
    for path in tables:
        elsewhere = query.folder / f"elsewhere-{path.parent.parent.name}-{path.name}"
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
    flip(str(table))
    found = repair(query, apply=True, local_dirs=[query.folder / "local-a"])
    assert not any(file.mended and "local-a" in str(file.source) for file in found.files)


def test_at_a_shell(query: SlotCheckpoint) -> None:
    arguments = ["checkpoints", "repair", str(query.folder / "checkpoint"), "--state", str(query.folder / "store")]
    delta = sorted((query.slot / "delta").iterdir())[-1]
    delta.unlink()
    said = CliRunner().invoke(main, arguments)
    assert said.exit_code == 1 and "its bytes were found nowhere" in said.output
    assert "the newest is batch 12" in said.output
    arguments += ["--backup", str(query.folder / "backup")]
    said = CliRunner().invoke(main, arguments)
    assert said.exit_code == 0 and "nothing was changed: add --yes to mend" in said.output
    told = json.loads(CliRunner().invoke(main, [*arguments, "--yes", "--json"]).stdout)
    assert told["whole"] and [file["mended"] for file in told["files"]] == [True]


def test_where_the_newest_delta_is_lost_the_batches_before_tell_what_was_before_it(query: SlotCheckpoint) -> None:
    """Of the newest batch nothing but its loss is known; the others are mended."""
    handle = query.driver.handle
    assert handle is not None
    newest, before = (query.slot / delta_name(ref.sequence, ref.version_id) for ref in handle.deltas[:-3:-1])
    newest.unlink()
    (query.folder / "backup" / newest.relative_to(query.folder / "store")).unlink()
    flip(str(before))
    with query.open() as opened:
        batches = [version.batch_id for version in opened.versions()]
        assert {Path(damage.name).name for damage in opened.verify().damaged} == {newest.name, before.name}
    found = repair(query, apply=True, backup=query.folder / "backup")
    assert {Path(file.name).name: file.mended for file in found.files} == {newest.name: False, before.name: True}
    assert found.verification.readable == tuple(batches[:-1]) and set(found.verification.lost) == {batches[-1]}


def goes_on(query: SlotCheckpoint, monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
    """The query runs on as soon as somebody has looked at its first batch."""
    look = Committed._state_of
    looked: list[CommittedBatch] = []

    def state_of(self: Committed, batch: CommittedBatch) -> CommittedState:
        found = look(self, batch)
        if not looked:
            looked.append(batch)
            query.batches(batches)
        return found

    monkeypatch.setattr(Committed, "_state_of", state_of)


@pytest.mark.parametrize("batches", [1, 2, 3, 12])
def test_what_a_running_query_has_deleted_with_its_batch_is_neither_damaged_nor_put_back(
    query: SlotCheckpoint, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    with monkeypatch.context() as patched, query.open() as opened:
        goes_on(query, patched, batches)
        found = opened.verify()
    assert found.whole and set(found.readable) <= set(range(query.driver.next_batch))
    with monkeypatch.context() as patched, query.open() as opened:
        goes_on(query, patched, batches)
        mended = opened.repair(apply=True, backup=query.folder / "backup")
    assert mended.files == () and mended.verification.whole


def test_what_is_damaged_is_said_though_the_query_runs(query: SlotCheckpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = query.driver.handle
    assert handle is not None
    flip(str(query.slot / handle.snapshots[0].name))
    goes_on(query, monkeypatch, 1)
    with query.open() as opened:
        found = opened.verify()
    assert [damage.name.rpartition("slot-00000/")[2] for damage in found.damaged] == [handle.snapshots[0].name]


def test_a_backup_of_something_else_is_refused(query: SlotCheckpoint) -> None:
    flip(str(needed(query)[0]))
    with pytest.raises(InvalidRequest, match="has no state of query .* expected the folder of spark.holdfast"):
        repair(query, backup=query.folder)
    with pytest.raises(InvalidRequest, match="is no folder; expected one of spark.holdfast.local.dir"):
        repair(query, local_dirs=[query.folder / "locale-a"])


@pytest.mark.parametrize("wrong", [{"backup": "nowhere"}, {"local_dirs": ["nowhere"]}], ids=["backup", "local"])
def test_a_wrong_folder_is_told_before_all_is_read(
    query: SlotCheckpoint, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, object]
) -> None:
    """It was told after hours."""

    def verify(*_: object) -> None:
        raise AssertionError("all is read")

    monkeypatch.setattr(checkpoint, "verify_versions", verify)
    with pytest.raises(InvalidRequest, match="has no state of query|is no folder"):
        repair(query, **wrong)
