"""The snippets of docs/guide/checkpoints.md run as they stand, one after the other."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.processors import TOTALS, RunningTotal
from tests.spark_files import SparkFiles

import holdfast as hf
from holdfast.cli import main
from holdfast.testing.harness import QUERY_ID, Harness

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "checkpoints.md"
BATCHES = 22


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    spark = SparkFiles(tmp_path / "checkpoint", QUERY_ID)
    with Harness(RunningTotal(), "user", "user string, amount long", TOTALS, name="totals", folder=tmp_path) as harness:
        for batch_id in range(BATCHES):
            harness.process([{"user": "ada", "amount": batch_id}, {"user": f"user-{batch_id}", "amount": 1}])
            handle = harness.snapshot().handle
            assert handle is not None
            spark.commit(batch_id, [handle.to_text()])
    return tmp_path


def placed(text: str, folder: Path) -> str:
    return text.replace("/data/", f"{folder}/").replace("/backup/", f"{folder}/backup/")


def test_python(folder: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 4
    left: dict[str, Any] = {"RunningTotal": RunningTotal}
    for block in blocks:
        exec(compile(placed(block, folder), str(PAGE), "exec"), left)
    assert left["ada"]["value"].to_pylist() == [sum(range(BATCHES))]
    assert len(left["before"]) == 17 + 2
    assert sorted(left["changes"]["change"].to_pylist()) == ["added"] * 3 + ["changed"]
    assert left["saved"].manifest.batch_id == BATCHES - 1
    assert isinstance(left["changes"], pa.Table)
    rows = left["saved"].read("totals", "total").read_all().to_pandas()
    for found in (left["by_pandas"], left["by_polars"].to_pandas(), left["by_duckdb"]):
        assert found["user"].tolist() == rows["user"].tolist() and found["value"].tolist() == rows["value"].tolist()
    edited = hf.Savepoint(folder / "backup" / "edited").read("totals", "total").read_all()
    assert {row["user"]: row["value"] for row in edited.to_pylist()}["ada"] == 0 and len(edited) == BATCHES + 1
    first = hf.Savepoint(folder / "backup" / "first").read("totals", "total").read_all()
    assert {row["user"]: row["value"] for row in first.to_pylist()} == {"ada": 17, "bob": 4}


def test_commands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    monkeypatch.chdir(folder)
    with hf.Checkpoint(folder / "checkpoint") as opened:
        shutil.copytree(opened.state_uri, folder / "backup" / "state")
    lines = [line.partition("#")[0].split() for line in placed("".join(blocks), folder).splitlines()]
    for program, *arguments in lines:
        assert program == "holdfast"
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, (arguments, done.output)
    assert (folder / "total.parquet").exists()
    assert hf.Savepoint(folder / "backup/monday").verify() == ()
    assert hf.Savepoint(folder / "backup/tables").format == "canonical"
    assert not (folder / "before-upgrade").exists()
