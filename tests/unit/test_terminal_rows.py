"""Rows on a terminal: some for people, who are told of more, all for machines."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import holdfast as hf
from holdfast.cli import main

OPERATOR, STATE = "totals", "total"


class Total(hf.BatchProcessor):
    total = hf.ReducingState(pa.int64(), "sum")

    def process(self, batch: pa.RecordBatch, ctx: hf.Context) -> None:
        self.total.add_only(batch, batch["n"])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 30 keys."""
    folder: Path = tmp_path_factory.mktemp("rows") / "saved"
    rows = pa.table({"user": [f"u{number}" for number in range(30)], "value": range(30)})
    hf.Savepoint.write(folder, hf.OperatorTables(OPERATOR, {STATE: rows}, processor=Total, key="user string"))
    return folder


@pytest.mark.parametrize(
    ("given", "shown", "is_all"),
    [
        ([], 20, False),
        (["--limit", "29"], 29, False),
        (["--limit", "30"], 30, True),
        (["--limit", "31"], 30, True),
        (["--json"], 30, True),
        (["--json", "--limit", "7"], 7, False),
        (["--json", "--limit", "30"], 30, True),
    ],
)
def test_who_is_not_shown_all_is_told_so(saved: Path, given: list[str], shown: int, is_all: bool) -> None:
    told = CliRunner().invoke(main, ["savepoint", "read", str(saved), OPERATOR, STATE, *given])
    assert told.exit_code == 0
    lines = told.stdout.splitlines()
    if "--json" in given:
        values = [json.loads(line)["value"] for line in lines]
    else:
        values = [int(line.split()[lines[0].split().index("value")]) for line in lines[1:]]
    assert len(values) == len(set(values)) == shown and set(values) <= set(range(30))
    assert ("--limit gives more" in told.stderr) is not is_all


def test_all_of_them_into_a_file(saved: Path, tmp_path: Path) -> None:
    target = tmp_path / "rows.parquet"
    told = CliRunner().invoke(main, ["savepoint", "read", str(saved), OPERATOR, STATE, "--to", str(target)])
    assert told.exit_code == 0, told.output
    assert sorted(pq.read_table(target)["value"].to_pylist()) == list(range(30))
