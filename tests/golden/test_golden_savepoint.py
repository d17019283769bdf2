"""Savepoints of format version 1, as they were written: every later version reads every row of them, and begins with
them, for ever.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.first_versions import begun, first_versions

import holdfast as hf
from holdfast.cli.rows import plain
from holdfast.savepoint import MANIFEST

FOLDER = Path(__file__).parent
OPERATOR = "totals per/user ü"
#: Of a query, and of tables.
NAMES = ("savepoint_v1", "savepoint_of_tables_v1")
EXPECTED = {name: json.loads((FOLDER / f"{name}.json").read_text()) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_it_is_whole_and_says_what_it_is_of(name: str) -> None:
    saved = hf.Savepoint(FOLDER / name)
    assert saved.verify() == ()
    assert saved.operators == {OPERATOR: tuple(sorted(EXPECTED[name]))}
    assert saved.manifest.to_text().encode() == (FOLDER / name / MANIFEST).read_bytes()


def test_what_the_manifests_say() -> None:
    manifest = hf.Savepoint(FOLDER / "savepoint_v1").manifest
    assert (manifest.batch_id, manifest.watermark_ms, manifest.sources) == (1, 1234, ('{"offset":1}', None))
    recents = manifest.operator(OPERATOR).state("recents")
    assert recents.ttl is not None and (recents.ttl.time, recents.ttl.ttl_ms) == ("processing", 10_000)
    manifest = hf.Savepoint(FOLDER / "savepoint_of_tables_v1").manifest
    assert (manifest.query_id, manifest.batch_id, manifest.watermark_ms, manifest.sources) == (None, None, None, ())
    seen = manifest.operator(OPERATOR).state("seen")
    assert seen.ttl is not None and (seen.ttl.time, seen.ttl.ttl_ms) == ("event", 3_600_000)


@pytest.mark.parametrize(("name", "state"), [(name, state) for name in NAMES for state in EXPECTED[name]])
def test_every_row_is_read(name: str, state: str) -> None:
    rows = hf.Savepoint(FOLDER / name).read(OPERATOR, state).read_all().to_pylist()
    assert [[plain(value) for value in row.values()] for row in rows] == EXPECTED[name][state]


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_a_query_begins_with_it(name: str, slots: int, tmp_path: Path) -> None:
    with first_versions(begun(FOLDER / name, OPERATOR, slots), tmp_path) as checkpoint:
        for state, expected in EXPECTED[name].items():
            table = checkpoint.read(OPERATOR, state).read_all()
            found = [[plain(value) for value in row.values()] for row in table.to_pylist()]
            if "slot" in table.column_names:  # dealt out anew
                found, expected = [row[2:] for row in found], [row[2:] for row in expected]
            assert sorted(map(repr, found)) == sorted(map(repr, expected)), state
