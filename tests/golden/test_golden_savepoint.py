"""A savepoint of format version 1, as it was written: every later version reads every row of it, for ever."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.cli.rows import plain
from holdfast.savepoint import MANIFEST

FOLDER = Path(__file__).parent
EXPECTED = json.loads((FOLDER / "savepoint_v1.json").read_text())
OPERATOR = "totals per/user ü"


def test_it_is_whole_and_says_what_it_is_of() -> None:
    saved = hf.Savepoint(FOLDER / "savepoint_v1")
    assert saved.verify() == ()
    assert saved.operators == {OPERATOR: tuple(sorted(EXPECTED))}
    manifest = saved.manifest
    assert (manifest.batch_id, manifest.watermark_ms, manifest.sources) == (1, 1234, ('{"offset":1}', None))
    assert manifest.to_text().encode() == (FOLDER / "savepoint_v1" / MANIFEST).read_bytes()
    recents = manifest.operator(OPERATOR).state("recents")
    assert recents.ttl is not None and (recents.ttl.time, recents.ttl.ttl_ms) == ("processing", 10_000)


@pytest.mark.parametrize("state", EXPECTED)
def test_every_row_is_read(state: str) -> None:
    rows = hf.Savepoint(FOLDER / "savepoint_v1").read(OPERATOR, state).read_all().to_pylist()
    assert [[plain(value) for value in row.values()] for row in rows] == EXPECTED[state]
