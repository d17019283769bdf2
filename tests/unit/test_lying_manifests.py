"""Manifests and marks of snapshots that are sealed and lie: Corrupt, so that whoever restores takes the next way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoint_driver import SlotDriver

from holdfast.checkpoint.base_folder import FORMAT as BASE_FORMAT
from holdfast.checkpoint.base_folder import MARKER_FORMAT, BaseFile, BaseRecord, SnapshotMarker
from holdfast.checkpoint.handle import SnapshotRef
from holdfast.checkpoint.names import manifest_name
from holdfast.checkpoint.snapshot import FORMAT, VERSION, Manifest
from holdfast.errors import Corrupt
from holdfast.sealed import checksum_of, seal, unseal

VERSION_ID, CHECKSUM = f"{3:032x}", f"{7:016x}"
ROW: list[Any] = ["000012.sst", 2, CHECKSUM, f"sst/{9:032x}-000012.sst"]
LIES: dict[str, tuple[int, Any]] = {
    "a name that is a number": (0, 1),
    "a name that leads elsewhere": (0, "../000012.sst"),
    "a name that ends early": (0, "a\0b"),
    "no name": (0, ""),
    "a size that is a text": (1, "2"),
    "a size that is true": (1, True),
    "a size below zero": (1, -1),
    "a size of no file": (1, 1 << 63),
    "a checksum that is a number": (2, 7),
    "a checksum of other digits": (2, "x" * 16),
    "a place that leads elsewhere": (3, "../../x"),
    "a place that leads elsewhere behind its folder": (3, "sst/../../x"),
    "a place in another folder": (3, f"delta/{9:032x}-000012.sst"),
    "a place that is a list": (3, ["sst"]),
    "a place that is the folder": (3, "sst/"),
}


@pytest.mark.parametrize(("at", "lie"), LIES.values(), ids=LIES.keys())
@pytest.mark.parametrize("form", [FORMAT, BASE_FORMAT])
def test_a_row_that_names_no_file_is_corrupt(form: str, at: int, lie: Any) -> None:
    def read(row: list[Any]) -> tuple[BaseFile, ...]:
        fields = {"operator": "op", "slot": 0, "sequence": 3, "version_id": VERSION_ID, "files": [row]}
        if form == BASE_FORMAT:
            return BaseRecord.from_text(seal(form, VERSION, {**fields, "boot_id": "boot"}), "here").files
        return Manifest.from_text(
            seal(form, VERSION, {**fields, "diff_parent": None, "state_bytes": 2}).encode(), "here"
        ).files

    assert read(ROW) == (BaseFile(*ROW),)
    with pytest.raises(Corrupt, match="here is not the"):
        read([*ROW[:at], lie, *ROW[at + 1 :]])
    with pytest.raises(Corrupt, match="here is not the"):
        read(ROW[:3])


def test_a_manifest_that_shares_files_with_what_is_none_is_corrupt() -> None:
    manifest = Manifest("op", 0, 3, VERSION_ID, None, (BaseFile(*ROW),))
    fields = unseal(manifest.to_text(), FORMAT, VERSION, "here")
    with pytest.raises(Corrupt, match="here is not the manifest of a snapshot"):
        Manifest.from_text(seal(FORMAT, VERSION, {**fields, "diff_parent": 7}).encode(), "here")


@pytest.mark.parametrize(
    "change",
    [
        {"ref": [1]},
        {"ref": [3, VERSION_ID, "../x", 2, CHECKSUM, 2]},
        {"ref": [4, VERSION_ID, manifest_name(3, VERSION_ID, f"{9:032x}"), 2, CHECKSUM, 2]},
        {"ref": ["3", VERSION_ID, manifest_name(3, VERSION_ID, f"{9:032x}"), 2, CHECKSUM, 2]},
        {"ref": [3, VERSION_ID, manifest_name(3, VERSION_ID, f"{9:032x}"), "2", CHECKSUM, 2]},
        {"diff_parent": 1},
        {"created_ms": "now"},
        {"stored": {"000012.sst": 1}},
        {"stored": 1},
    ],
)
def test_a_mark_that_lies_is_corrupt(change: dict[str, Any], tmp_path: Path) -> None:
    ref = SnapshotRef(3, VERSION_ID, manifest_name(3, VERSION_ID, f"{9:032x}"), 2, CHECKSUM, 2)
    mark = SnapshotMarker(ref, None, 1, {"000012.sst": str(ROW[3])})
    mark.write(str(tmp_path))
    text = (tmp_path / "SNAPSHOT.json").read_bytes()
    assert SnapshotMarker.from_text(text, "here") == mark
    fields = unseal(text, MARKER_FORMAT, VERSION, "here")
    with pytest.raises(Corrupt, match="here is not the mark of a snapshot"):
        SnapshotMarker.from_text(seal(MARKER_FORMAT, VERSION, {**fields, **change}).encode(), "here")


def as_text(files: list[list[Any]]) -> None:
    files[0][1] = str(files[0][1])


def as_number(files: list[list[Any]]) -> None:
    files[0][0] = 1


@pytest.mark.parametrize("lie", [as_text, as_number])
def test_a_restore_falls_back_to_the_snapshot_before(tmp_path: Path, lie: Callable[[list[list[Any]]], None]) -> None:
    """It ended in a TypeError, in every attempt."""
    driver = SlotDriver(tmp_path)
    process = driver.process()
    while len(driver.committed.snapshots if driver.handle else ()) < 2 or driver.committed.start == 0:
        driver.play(process, dict.fromkeys(range(5_000), 7))
    newest, older = driver.committed.snapshots
    path = Path(driver.stored(newest.name)[0])
    fields = unseal(path.read_bytes(), FORMAT, VERSION, "here")
    lie(fields["files"])
    text = seal(FORMAT, VERSION, fields).encode()
    path.write_bytes(text)
    lied_about = replace(newest, size_bytes=len(text), checksum=checksum_of(text))
    driver.handle = replace(driver.committed, snapshots=(lied_about, older))
    assert driver.check(driver.process(local="elsewhere")) == "fallback"
