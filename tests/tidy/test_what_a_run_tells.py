"""A run of the tests begins with the longest files, says once why it left something out, and hears errors that nobody
can catch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests import file_times
from tests.tidy.sources import ROOT

_TESTS = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_without_a_server(number):
    pytest.skip("no server")

@pytest.mark.skipif(True, reason="this Spark has none")
def test_of_another_spark():
    pass

def test_that_passes():
    pass
"""
_UNHEARD = """
class Closed:
    def __del__(self):
        raise ValueError("nobody catches this")

def test_that_drops_one():
    Closed()
"""


def _run(folder: Path, text: str, *arguments: str) -> str:
    """What pytest says of a file of tests, as this tree has it configured."""
    (folder / "test_them.py").write_text(text, encoding="utf-8")
    options = ["-q", "-p", "no:benchmark", "-o", f"cache_dir={folder / 'cache'}", "-c", str(ROOT / "pyproject.toml")]
    command = [sys.executable, "-m", "pytest", *options, "-p", "tests.conftest", *arguments, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500).stdout


@pytest.mark.long
@pytest.mark.parametrize("processes", ["0", "2"])
def test_what_is_left_out_is_told_once_for_each_reason(tmp_path: Path, processes: str) -> None:
    lines = _run(tmp_path, _TESTS, "-n", processes).splitlines()
    said = [line for line in lines if "left out" in line or "SKIP" in line]
    assert said == ["left out: 3 tests: no server", "left out: 1 test: this Spark has none"]


@pytest.mark.long
def test_an_error_that_nobody_can_catch_fails_its_test(tmp_path: Path) -> None:
    said = _run(tmp_path, _UNHEARD)
    assert "1 failed" in said and "nobody catches this" in said


def test_the_longest_files_come_first() -> None:
    known = json.loads(file_times.FILE.read_text(encoding="utf-8"))
    assert list(known.values()) == sorted(known.values(), reverse=True)
    gone = [file for file in known if not (ROOT / file).exists()]
    assert not gone, f"take them out of {file_times.FILE.name}: {gone}"

    class Item:
        def __init__(self, nodeid: str) -> None:
            self.nodeid = nodeid

    longest, second, *_ = known
    given = ["tests/unit/test_a.py::b", f"{second}::one", f"{longest}::b", f"{second}::two", f"{longest}::a"]
    items = [Item(nodeid) for nodeid in given]
    file_times.by_time(items)  # type: ignore[arg-type]
    wanted = [f"{longest}::b", f"{longest}::a", f"{second}::one", f"{second}::two", "tests/unit/test_a.py::b"]
    assert [item.nodeid for item in items] == wanted
