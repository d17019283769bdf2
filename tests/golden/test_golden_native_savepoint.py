"""A native savepoint, version 2 of the manifest, as it was written: every later version reads every row of it, makes a
canonical one of it, and begins with it, for ever.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.first_versions import begun, first_versions
from tests.native_savepoints import OPERATOR, rows_of, tables_of

import holdfast as hf
from holdfast.checkpoint.claim import Claim, Claims
from holdfast.checkpoint.native_manifest import NativeManifest, opened_manifest
from holdfast.cli.rows import plain
from holdfast.errors import Incompatible
from holdfast.savepoint import MANIFEST
from holdfast.storage import open_file_store

FOLDER = Path(__file__).parent / "native_savepoint_v2"
EXPECTED = json.loads(FOLDER.with_suffix(".json").read_text())


def plain_rows(saved: hf.Savepoint) -> dict[str, list[list[object]]]:
    return {
        state: [[plain(value) for value in row.values()] for row in table.to_pylist()]
        for state, table in tables_of(saved).items()
    }


def test_it_is_whole_and_every_row_is_read(tmp_path: Path) -> None:
    saved = hf.Savepoint(FOLDER)
    assert saved.format == "native" and saved.verify() == ()
    assert (saved.manifest.batch_id, saved.manifest.watermark_ms) == (7, 77)
    assert plain_rows(saved) == EXPECTED
    assert plain_rows(saved.convert(tmp_path / "canonical")) == EXPECTED
    manifest = opened_manifest(open_file_store(str(FOLDER)))
    assert isinstance(manifest, NativeManifest)
    assert manifest.to_text().encode() == (FOLDER / MANIFEST).read_bytes()


def test_a_note_of_who_claimed_it(tmp_path: Path) -> None:
    stored = (FOLDER.parent / "savepoint_claim_v1.json").read_bytes()
    own = Claim("0f0f0f0f-0000-4000-8000-000000000000", "totals ü")
    assert own.to_text().encode() == stored
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "totals%20%C3%BC.claimed.json").write_bytes(stored)
    claims = Claims(open_file_store(str(tmp_path)))
    claims.make("totals ü", own)
    assert claims.waiting() == [own]
    with pytest.raises(
        Incompatible, match="operator 'totals ü' of query 0f0f0f0f-0000-4000-8000-000000000000 has claim"
    ):
        claims.check("totals ü", Claim("another", "totals ü"))


@pytest.mark.parametrize("slots", [1, 3])
def test_a_query_begins_with_it(slots: int, tmp_path: Path) -> None:
    expected = rows_of(tables_of(hf.Savepoint(FOLDER)), places=False)
    with first_versions(begun(FOLDER, OPERATOR, slots), tmp_path) as checkpoint:
        assert rows_of(tables_of(checkpoint), places=False) == expected
