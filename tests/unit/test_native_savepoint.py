"""Native savepoints: they hold what a canonical one holds, own their files, survive what becomes of the query; hostile
ones, attempts that fail at each step, conversion, disposal.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.faults.handle_reading import told
from tests.faulty_file_store import FaultyFileStore
from tests.first_versions import begun, first_versions
from tests.native_savepoints import OPERATOR, kept_query, rows_of, tables_of

import holdfast as hf
from holdfast import savepoint
from holdfast.checkpoint import OperatorRecord
from holdfast.checkpoint.handle import StoredHandle
from holdfast.cli import main
from holdfast.errors import Corrupt, Incompatible, InvalidRequest, Unavailable
from holdfast.inspect import savepoint as of_savepoints
from holdfast.sealed import seal
from holdfast.storage import open_file_store


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("kept")
    kept_query(folder)
    return folder


@pytest.fixture
def query(kept: Path, tmp_path: Path) -> Path:
    """A query of the test's own, to be changed."""
    for name in ("checkpoint", "state"):
        shutil.copytree(kept / name, tmp_path / name)
    return tmp_path


def native(folder: Path, to: str = "saved", **given: Any) -> hf.Savepoint:
    return hf.Savepoint.create(checkpoint=folder / "checkpoint", to=folder / to, format="native", **given)


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# --- what it holds


def test_it_holds_what_the_checkpoint_holds(query: Path) -> None:
    saved = native(query)
    canonical = hf.Savepoint.create(checkpoint=query / "checkpoint", to=query / "canonical")
    with hf.Checkpoint(query / "checkpoint") as checkpoint:
        expected = tables_of(checkpoint)
        handle = checkpoint.at().handles[OPERATOR][0]
    assert len(handle.snapshots) == 2 and handle.newest, "the query has files of every sort"
    assert all(table.num_rows for table in expected.values())
    assert rows_of(tables_of(saved)) == rows_of(expected) == rows_of(tables_of(canonical))
    assert (saved.format, canonical.format) == ("native", "canonical")
    assert saved.verify() == ()
    ours, theirs = saved.manifest, canonical.manifest
    assert (ours.query_id, ours.batch_id, ours.watermark_ms, ours.sources) == (
        theirs.query_id,
        theirs.batch_id,
        theirs.watermark_ms,
        theirs.sources,
    )
    operator = ours.operator(OPERATOR)
    assert operator.versions == theirs.operator(OPERATOR).versions
    ttls = {state.name: state.ttl for state in theirs.operator(OPERATOR).states}
    assert {state.name: state.ttl for state in operator.states} == ttls


def test_columns_filters_and_what_it_has_not(query: Path) -> None:
    import pyarrow.compute as pc

    saved = native(query)
    rows = saved.read(OPERATOR, "pair", columns=["value", "user"], filter=pc.field("user") == "u1").read_all()
    assert rows.column_names == ["value", "user"] and set(rows["user"].to_pylist()) == {"u1"}
    with pytest.raises(InvalidRequest, match="no column 'x'"):
        saved.read(OPERATOR, "pair", columns=["x"])
    with pytest.raises(InvalidRequest, match="no operator 'x'"):
        saved.read("x", "pair")
    with pytest.raises(InvalidRequest, match="no state 'x'"):
        saved.read(OPERATOR, "x")
    with pytest.raises(InvalidRequest, match=r"a native savepoint, which has no tables.*Savepoint.convert"):
        saved.path(OPERATOR, "pair")
    with pytest.raises(InvalidRequest, match="base is .*a native savepoint"):
        hf.Savepoint.write(query / "edited", base=saved)
    with pytest.raises(InvalidRequest, match="format is 'parquet'; expected one of 'canonical', 'native'"):
        hf.Savepoint.create(checkpoint=query / "checkpoint", to=query / "x", format="parquet")  # type: ignore[arg-type]


def test_it_is_not_taken_for_the_state_folder(query: Path) -> None:
    native(query)
    with hf.Checkpoint(query / "checkpoint", state=query / "saved") as checkpoint:
        with pytest.raises(InvalidRequest, match="it has none: expected the folder of spark.holdfast.checkpoint.dir"):
            checkpoint.gc()


def test_of_an_earlier_batch(query: Path) -> None:
    with hf.Checkpoint(query / "checkpoint") as checkpoint:
        batch_id = checkpoint.versions()[-2].batch_id
        saved = native(query, batch_id=batch_id)
        states = saved.operators[OPERATOR]
        expected = {state: checkpoint.read(OPERATOR, state, batch_id=batch_id).read_all() for state in states}
    assert rows_of(tables_of(saved)) == rows_of(expected) and saved.manifest.batch_id == batch_id


def test_on_one_file_system_no_byte_is_copied_and_one_snapshot_is_enough(query: Path) -> None:
    saved = native(query)
    below = [path for path in (query / "saved").rglob("*") if path.is_file() and path.name != savepoint.MANIFEST]
    assert below and all(path.stat().st_nlink == 2 for path in below)
    assert len([path for path in below if path.parent.name == "snapshot"]) == 1
    assert (saved.files, saved.bytes) == (len(below), sum(path.stat().st_size for path in below))
    (stored,) = filter(None, _handles(query / "saved"))
    deltas = [path for path in below if path.parent.name == "delta"]
    line = told(stored.to_text(), deltas[0].parent.parent)["deltas"]
    assert line[0][0] == stored.snapshots[0].sequence + 1
    assert {path.name for path in deltas} == {f"{sequence:012d}-{version}.arrow" for sequence, version, *_ in line}


def test_a_table_that_lies_elsewhere_behind_a_link_is_the_savepoints_own(query: Path) -> None:
    """A hard link of a symbolic link is one: the savepoint would have a way out of its folder."""
    table = next((query / "state").rglob("sst/*.sst"))
    os.rename(table, query / "moved")
    table.symlink_to(query / "moved")
    assert native(query).verify() == ()
    assert not any(path.is_symlink() for path in (query / "saved").rglob("*"))


def test_it_survives_the_query_its_retention_and_gc(query: Path) -> None:
    saved = native(query)
    expected = rows_of(tables_of(saved))
    with hf.Checkpoint(query / "checkpoint") as checkpoint:
        checkpoint.gc(apply=True, older_than="1 h")
    for name in ("state", "checkpoint"):
        shutil.rmtree(query / name)
    again = hf.Savepoint(query / "saved")
    assert again.verify() == () and rows_of(tables_of(again)) == expected


def test_damage_to_the_original_by_a_later_program_is_found(query: Path) -> None:
    """A hard link shares the bytes: what writes into the one writes into the other, and verify says so."""
    saved = native(query)
    table = max((query / "state").rglob("sst/*.sst"), key=lambda path: path.stat().st_nlink)
    content = table.read_bytes()
    with open(table, "r+b") as file:
        file.write(bytes([content[0] ^ 1]))
    (damage,) = saved.verify()
    assert table.name in damage and "is damaged" in damage
    with pytest.raises(Corrupt, match=f"{table.name}.*is damaged"):
        hf.Savepoint(query / "saved").read(OPERATOR, "pair").read_all()


def test_a_moved_savepoint_is_the_same(query: Path) -> None:
    expected = rows_of(tables_of(native(query)))
    shutil.move(query / "saved", query / "moved")
    assert rows_of(tables_of(hf.Savepoint(query / "moved"))) == expected


def test_beside_the_checkpoint_it_is_not_taken_for_the_state(query: Path) -> None:
    """A folder of the query's id that has operators' records would be a second state, and every command would ask."""
    native(query, "beside")
    with hf.Checkpoint(query / "checkpoint") as checkpoint:
        assert checkpoint.state_uri == str(query / "state")


# --- a query begins with it


@pytest.mark.parametrize("slots", [1, 3, 16])
def test_a_query_begins_with_it(query: Path, slots: int, tmp_path: Path) -> None:
    expected = rows_of(tables_of(native(query)), places=False)
    with first_versions(begun(query / "saved", OPERATOR, slots), tmp_path / "new") as checkpoint:
        assert hf.Savepoint.dispose(query / "saved", apply=True).deleted  # nothing of it is needed any more
        assert not (query / "saved").exists()
        assert checkpoint.verify().whole
        assert rows_of(tables_of(checkpoint), places=False) == expected


def test_a_dry_run_says_what_is_wrong_with_it(query: Path) -> None:
    native(query)
    plan = hf.Restore(savepoint=query / "saved").plan(name=OPERATOR)
    assert plan.refused == () and {state.fate for state in plan.states} == {"taken over"}
    next((query / "saved").rglob("sst/*.sst")).unlink()
    (refused,) = hf.Restore(savepoint=query / "saved").plan(name=OPERATOR).refused
    assert "is missing in the savepoint" in refused


def test_a_table_that_is_damaged_is_refused_by_the_first_batch_until_it_is_put_back(
    query: Path, tmp_path: Path
) -> None:
    expected = rows_of(tables_of(native(query)), places=False)
    table = next((query / "saved").rglob("sst/*.sst"))
    content = table.read_bytes()
    table.unlink()
    table.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    record = begun(query / "saved", OPERATOR, 2)
    with pytest.raises(Corrupt, match=rf"(?s){table.name}.*is damaged.*native savepoint, put its folder back"):
        first_versions(record, tmp_path / "new")
    table.write_bytes(content)
    with first_versions(record, tmp_path / "new") as checkpoint:
        assert rows_of(tables_of(checkpoint), places=False) == expected


# --- the other format


def test_there_and_back(query: Path, tmp_path: Path) -> None:
    saved = native(query)
    tables = tables_of(saved)
    expected = rows_of(tables)
    canonical = saved.convert(query / "canonical")
    assert canonical.format == "canonical" and canonical.verify() == ()
    assert rows_of(tables_of(canonical)) == expected
    back = canonical.convert(query / "native again")
    assert back.format == "native" and back.verify() == ()
    assert rows_of(tables_of(back)) == expected
    assert len({(one.manifest.query_id, one.manifest.batch_id) for one in (saved, canonical, back)}) == 1
    shutil.rmtree(query / "canonical")
    with first_versions(begun(query / "native again", OPERATOR, 3), tmp_path / "new") as checkpoint:
        assert rows_of(tables_of(checkpoint), places=False) == rows_of(tables, places=False)
    with pytest.raises(InvalidRequest, match="holds a savepoint already"):
        saved.convert(query / "native again")


class Total(hf.BatchProcessor):
    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.total.add_only(batch, batch["n"])


def test_one_that_no_query_made(tmp_path: Path) -> None:
    rows = pa.table({"user": [f"u{n}" for n in range(100)], "value": range(100)})
    first = hf.OperatorTables("totals", {"total": rows}, processor=Total, key="user string")
    made = hf.Savepoint.write(tmp_path / "made", first)
    converted = made.convert(tmp_path / "native")
    assert converted.manifest.query_id is None and converted.manifest.batch_id is None
    expected = made.read("totals", "total").read_all()
    assert converted.read("totals", "total").read_all() == expected
    assert tables_of(converted.convert(tmp_path / "again"), "totals") == {"total": expected}
    with first_versions(begun(tmp_path / "native", "totals", 4), tmp_path) as checkpoint:
        found = checkpoint.read("totals", "total").read_all()
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))


# --- what stands in the way of one


def test_a_damaged_newest_snapshot_costs_deltas(query: Path) -> None:
    with hf.Checkpoint(query / "checkpoint") as checkpoint:
        expected = rows_of(tables_of(checkpoint))
        newest, older = checkpoint.at().handles[OPERATOR][0].snapshots
    manifest = next((query / "state").rglob(newest.name))
    manifest.write_bytes(b"x" * newest.size_bytes)
    assert rows_of(tables_of(native(query))) == expected
    next((query / "state").rglob(older.name)).unlink()
    with pytest.raises(Corrupt, match=r"cannot be saved, every way is damaged:\n.*is damaged.*\n.*is missing"):
        native(query, "other")
    assert files_below(query / "other") == set()


def test_a_batch_that_is_cleaned_away_meanwhile_is_unavailable(query: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query goes on, and deletes what was asked for."""
    with hf.Checkpoint(query / "checkpoint") as checkpoint:
        wanted = checkpoint.versions()[-2].batch_id
        real = FaultyFileStore.copy_if_absent

        def copy(store: FaultyFileStore, name: str, target: str, source: Any = None) -> Any:
            shutil.rmtree(query / "state", ignore_errors=True)
            (query / "checkpoint" / "commits" / str(wanted)).unlink(missing_ok=True)
            return real(store, name, target, source)

        monkeypatch.setattr(FaultyFileStore, "copy_if_absent", copy)
        target = FaultyFileStore(open_file_store(str(query / "saved")))
        monkeypatch.setattr(of_savepoints, "_empty_folder", lambda *_: target)
        with pytest.raises(Unavailable, match="was cleaned away while it was read"):
            hf.Savepoint.create(checkpoint=checkpoint, to=query / "saved", format="native", batch_id=wanted)


@pytest.mark.parametrize("fail_after", [False, True])
def test_an_attempt_that_fails_at_any_step_leaves_no_half_of_one(
    query: Path, monkeypatch: pytest.MonkeyPatch, fail_after: bool
) -> None:
    """Of each operation of the target: there is no savepoint, or it is whole; the checkpoint is as it was."""
    before = files_below(query / "state")
    for step in range(1, 200):
        to = query / f"at-{step}"
        faulty = FaultyFileStore(open_file_store(str(to)), fail_at=[step], fail_after=fail_after)
        monkeypatch.setattr(of_savepoints, "_empty_folder", lambda *_, target=faulty: target)
        try:
            hf.Savepoint.create(checkpoint=query / "checkpoint", to=to, format="native")
        except Unavailable:
            pass
        if faulty.count < step:
            break
        if (to / savepoint.MANIFEST).exists():
            assert fail_after and hf.Savepoint(to).verify() == ()
        elif files_below(to):
            with pytest.raises(InvalidRequest, match="holds no savepoint"):
                hf.Savepoint(to)
            monkeypatch.undo()
            with pytest.raises(InvalidRequest, match=r"holds \d+ files already.*may be deleted"):
                hf.Savepoint.create(checkpoint=query / "checkpoint", to=to, format="native")
    assert step > 10
    assert files_below(query / "state") == before


# --- hostile ones


def _handles(folder: Path) -> list[StoredHandle | None]:
    document = json.loads((folder / savepoint.MANIFEST).read_bytes())
    return [None if text is None else StoredHandle.from_text(text) for text in document["operators"][0]["handles"]]


Change = Callable[[dict[str, Any]], None]


def _file(at: int, value: Any) -> Change:
    return lambda document: document["operators"][0]["files"][-1].__setitem__(at, value)


def _record(**fields: Any) -> Change:
    def change(document: dict[str, Any]) -> None:
        record = json.loads(document["operators"][0]["record"])
        for name in ("checksum", "format", "version"):
            del record[name]
        document["operators"][0]["record"] = seal("holdfast.operator", 1, {**record, **fields})

    return change


def _operator(field: str, value: Any) -> Change:
    return lambda document: document["operators"][0].update({field: value})


LIES: dict[str, Change] = {
    "another layout": lambda d: d.update(layout="upside down"),
    "no folder": lambda d: d.pop("folder"),
    "another folder": lambda d: d.update(folder="x"),
    "a folder above": lambda d: d.update(folder="..", query_id=None),
    "a folder of the store's own": lambda d: d.update(folder=".tmp-x", query_id=None),
    "a file above": _file(1, "sst/../../../../../etc/passwd"),
    "a file from the root": _file(1, "/etc/passwd"),
    "a file of the operator": _file(1, "operator.json"),
    "a file in no folder": _file(1, "sst/"),
    "a file twice": lambda d: d["operators"][0]["files"].append(d["operators"][0]["files"][-1]),
    "a name that is a number": _file(1, 7),
    "a negative size": _file(2, -1),
    "a huge size": _file(2, 1 << 64),
    "a checksum that is a path": _file(3, "../../../etc/pass"),
    "a slot that there is not": _file(0, 1),
    "a huge slot": _file(0, 1 << 40),
    "no files": _operator("files", []),
    "no handles": _operator("handles", []),
    "no version at all": _operator("handles", [None]),
    "too many handles": lambda d: d["operators"][0]["handles"].append(None),
    "a handle that is none": _operator("handles", ["{}"]),
    "slots beyond key groups": _record(slots=5000),
    "huge slots": _record(slots=1 << 40, max_parallelism=1 << 41),
    "slots that are a text": _record(slots="1"),
    "no key groups": _record(max_parallelism=0),
    "a record of another": _record(name="another"),
    "states of no kind": _record(states=[{"id": 1, "name": "x", "kind": "heap", "schema": "", "function": None}]),
    "operator twice": lambda d: d["operators"].append(d["operators"][0]),
    "a batch before the versions": lambda d: d.update(batch_id=1),
    "a batch that is true": lambda d: d.update(batch_id=True),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_manifest_that_lies_is_refused(query: Path, lie: Change) -> None:
    native(query)
    path = query / "saved" / savepoint.MANIFEST
    document = json.loads(path.read_bytes())
    for field in ("checksum", "format", "version"):
        del document[field]
    lie(document)
    path.write_text(seal("holdfast.savepoint", 2, document))
    outside = files_below(query)
    for use in (hf.Savepoint, hf.Savepoint.dispose, lambda folder: hf.Restore(savepoint=folder).operators()):
        with pytest.raises(Corrupt):
            use(query / "saved")
    with pytest.raises(Corrupt):
        hf.Savepoint.dispose(query / "saved", apply=True)
    assert files_below(query) == outside


def test_a_delta_that_the_newest_one_names_and_the_manifest_does_not_is_missed(query: Path) -> None:
    with hf.Checkpoint(query / "checkpoint") as checkpoint:
        newest_snapshot, _ = checkpoint.at().handles[OPERATOR][0].snapshots
    next((query / "state").rglob(newest_snapshot.name)).unlink()  # from the one before there are several deltas
    native(query)
    path = query / "saved" / savepoint.MANIFEST
    document = json.loads(path.read_bytes())
    for field in ("checksum", "format", "version"):
        del document[field]
    rows = document["operators"][0]["files"]
    oldest, *_, newest = (row for row in rows if row[1].startswith("delta/"))
    for row, use in ((oldest, None), (newest, hf.Savepoint)):
        document["operators"][0]["files"] = [kept for kept in rows if kept != row]
        path.write_text(seal("holdfast.savepoint", 2, document))
        if use is None:
            assert f"needs {row[1]} ({row[2]} bytes" in str(hf.Savepoint(query / "saved").verify())
        else:
            with pytest.raises(Corrupt, match=f"names {row[1]}"):
                use(query / "saved")


def test_every_flipped_byte_of_the_manifest_is_found(query: Path) -> None:
    native(query)
    path = query / "saved" / savepoint.MANIFEST
    content = path.read_bytes()
    for at in range(0, len(content), 211):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises((Corrupt, Incompatible)):
            hf.Savepoint(query / "saved")


def test_a_file_that_is_missing_cut_or_a_link_is_refused(query: Path) -> None:
    native(query)
    path = next((query / "saved").rglob("delta/*"))
    content = path.read_bytes()
    path.unlink()
    for use in (hf.Savepoint, lambda folder: hf.Savepoint(folder).verify()):
        with pytest.raises(Corrupt, match="is missing in the savepoint"):
            use(query / "saved")
    path.write_bytes(content[:-1])
    with pytest.raises(Corrupt, match=f"expected {len(content)} bytes, found {len(content) - 1}"):
        hf.Savepoint(query / "saved")
    path.unlink()
    (query / "outside").write_bytes(content)
    path.symlink_to(query / "outside")
    for look in (hf.Savepoint, hf.Savepoint.dispose):
        with pytest.raises(Corrupt, match="is a symbolic link"):
            look(query / "saved")


def test_a_folder_that_is_a_link_is_not_emptied(query: Path) -> None:
    """What is below it is named by the manifest, and is another's."""
    native(query)
    folder = next((query / "saved").rglob("sst"))
    os.rename(folder, query / "anothers")
    folder.symlink_to(query / "anothers")
    before = files_below(query / "anothers")
    with pytest.raises(Corrupt, match="is a symbolic link"):
        hf.Savepoint.dispose(query / "saved", apply=True)
    assert files_below(query / "anothers") == before


# --- disposal


@pytest.mark.parametrize("format", ["native", "canonical"])
def test_disposal_says_first_and_takes_nothing_else(query: Path, format: Any) -> None:
    hf.Savepoint.create(checkpoint=query / "checkpoint", to=query / "saved", format=format)
    of_query = files_below(query / "state")
    all_files = files_below(query / "saved")
    (query / "saved" / "notes.txt").write_text("mine")
    found = hf.Savepoint.dispose(query / "saved")
    assert not found.deleted and {file.name for file in found.files} == all_files
    assert found.others == ("notes.txt",) and files_below(query / "saved") == {*all_files, "notes.txt"}
    assert found.bytes == sum((query / "saved" / name).stat().st_size for name in all_files)
    assert hf.Savepoint.dispose(query / "saved", apply=True).deleted
    assert files_below(query / "saved") == {"notes.txt"} and files_below(query / "state") == of_query
    assert [path.name for path in (query / "saved").iterdir()] == ["notes.txt"]
    with hf.Checkpoint(query / "checkpoint") as checkpoint:
        assert checkpoint.verify().whole


@pytest.mark.parametrize("folder", ["checkpoint", "state", "nothing"])
def test_what_is_no_savepoint_is_not_disposed_of(query: Path, folder: str) -> None:
    before = files_below(query)
    with pytest.raises(InvalidRequest, match="holds no savepoint"):
        hf.Savepoint.dispose(query / folder, apply=True)
    assert files_below(query) == before


@pytest.mark.long
@pytest.mark.parametrize("fail_after", [False, True])
@pytest.mark.parametrize("format", ["native", "canonical"])
def test_disposal_that_fails_at_any_step_goes_on(
    query: Path, monkeypatch: pytest.MonkeyPatch, format: Any, fail_after: bool
) -> None:
    monkeypatch.setattr("holdfast.checkpoint.savepoint_files._DELETE_AT_ONCE", 3)
    for step in range(1, 100):
        to = query / f"at-{step}"
        hf.Savepoint.create(checkpoint=query / "checkpoint", to=to, format=format)
        faulty = FaultyFileStore(open_file_store(str(to)), fail_at=[step], fail_after=fail_after)
        with monkeypatch.context() as patch:
            patch.setattr(of_savepoints, "open_file_store", lambda *_, store=faulty: store)
            try:
                hf.Savepoint.dispose(to, apply=True)
            except Unavailable:
                pass
        if faulty.count < step:
            break
        if (to / savepoint.MANIFEST).exists():
            assert hf.Savepoint(to).verify() == (), "it is whole, or it is none"
            hf.Savepoint.dispose(to, apply=True)
        elif files_below(to):
            with pytest.raises(InvalidRequest, match="was being disposed of"):
                hf.Savepoint(to)
            hf.Savepoint.dispose(to, apply=True)
        assert files_below(to) == set()
    assert step > 5


def test_a_damaged_savepoint_can_be_disposed_of(query: Path) -> None:
    native(query)
    next((query / "saved").rglob("delta/*")).unlink()
    assert hf.Savepoint.dispose(query / "saved", apply=True).deleted
    assert not (query / "saved").exists()


# --- at a shell


def run(*words: object, code: int = 0) -> str:
    found = CliRunner().invoke(main, [str(word) for word in words])
    assert found.exit_code == code, found.output
    return found.output


def test_at_a_shell(query: Path) -> None:
    saved, canonical = query / "saved", query / "canonical"
    assert "native, " in run(
        "savepoint", "create", "--checkpoint", query / "checkpoint", "--to", saved, "--format", "native"
    )
    told = json.loads(run("savepoint", "show", saved, "--json"))
    assert told["format"] == "native" and told["files"] > 3 and told["bytes"] > 0
    assert {state["state"] for state in told["states"]} == set(tables_of(hf.Savepoint(saved)))
    assert run("savepoint", "verify", saved) == "all is whole\n"
    assert "u1" in run("savepoint", "read", saved, OPERATOR, "pair", "--where", "user=u1")
    assert json.loads(run("savepoint", "convert", saved, "--to", canonical, "--json"))["format"] == "canonical"
    assert "taken over" in run("restore", "plan", "--savepoint", saved)
    said = run("savepoint", "dispose", saved)
    folders = [path for path in saved.rglob("*") if path.is_dir() and any(one.is_file() for one in path.iterdir())]
    assert folders and all(f"\n{folder.relative_to(saved)}  " in said for folder in folders)
    assert "would be deleted; nothing was changed: add --yes to delete" in said and saved.exists()
    assert "deleted" in run("savepoint", "dispose", saved, "--yes") and not saved.exists()
    assert json.loads(run("savepoint", "dispose", canonical, "--yes", "--json"))["deleted"]
    assert "holds no savepoint" in run("savepoint", "dispose", query / "state", "--yes", code=1)


def test_its_record_is_that_of_the_operator_without_an_origin(query: Path, tmp_path: Path) -> None:
    """The origin names versions of an earlier generation, which may be gone, and would be said of the savepoint."""
    native(query)
    with first_versions(begun(query / "saved", OPERATOR, 2), tmp_path / "new"):
        pass
    made = hf.Savepoint.create(
        checkpoint=tmp_path / "new" / "next", state=tmp_path / "new" / "state", to=query / "again", format="native"
    )
    document = json.loads((query / "again" / savepoint.MANIFEST).read_bytes())
    assert OperatorRecord.from_json(document["operators"][0]["record"]).origin is None
    assert rows_of(tables_of(made), places=False) == rows_of(tables_of(hf.Savepoint(query / "saved")), places=False)


# --- what the guide says of who owns what


def test_stopping_a_query_deletes_nothing(tmp_path: Path) -> None:
    """Retain on cancel: all that was there when it ran is there, and it goes on."""
    from tests.kept_states import OUTPUT, ROWS, RULES, KeepsAll

    from holdfast.testing.harness import Harness

    inputs = {"rows": ROWS, "rules": hf.broadcast(RULES)}
    row = {"user": "ada", "place": 1, "does": "add", "n": 1}
    with Harness(
        KeepsAll(),
        {"rows": ["user", "place"]},
        inputs,
        OUTPUT,
        name=OPERATOR,
        null_keys=True,
        event_time={"rows": "at"},
        folder=tmp_path,
    ) as harness:
        for _ in range(3):
            harness.process(rows=pa.Table.from_pylist([row], ROWS), rules=pa.Table.from_pylist([], RULES))
        running = files_below(tmp_path / "state")
    assert running and files_below(tmp_path / "state") >= running
