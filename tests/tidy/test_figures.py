"""Figures: no page says one that no run has measured."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
from benchmarks.pages import BEGIN, END, ROWS, pages
from benchmarks.records import read_all
from tests.tidy.sources import ROOT, files, name, text, tree

RECORDED = ROOT / "benchmarks" / "recorded"
#: What a measurement looks like in a sentence.
_MEASURED = re.compile(
    r"\d[\d,.]*\s*[kM]?\s*(?:rows|messages|records|events|keys|timers)?(?:/s\b| a second| per second)"
    r"|\b\d[\d.,]* times\b|\d[\d.,]* (?:µs|[MG]i?B/s)|\b\d[\d,.]* (?:ms|seconds) a (?:batch|row|key)"
)
SAMPLES_MIN = 5


def _records() -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RECORDED.glob("*.json"))]


def test_the_pages_are_those_that_the_records_make() -> None:
    stale = [name(path) for path, wanted in pages(read_all()).items() if text(path) != wanted]
    assert not stale, f"not as the records have it; run `make figures`: {stale}"


def _part() -> str:
    return text(ROOT / "README.md").partition(BEGIN)[2].partition(END)[0]


def test_each_value_of_the_readme_is_one_that_a_run_has_measured() -> None:
    """Read without the code that made the table: a number is the rounding of one that stands in a record."""
    measured = [figure["value"] for record in _records() for figure in record["figures"]]
    cells = [line.split(" | ") for line in _part().splitlines() if "`make bench" in line and line.startswith("|")]
    missing = text(ROOT / "docs" / "figures.md").partition("Not recorded yet:")[2].partition("\n#")[0]
    known = {figure["name"] for record in _records() for figure in record["figures"]}
    assert [row[0].removeprefix("| ") for row in cells] == [row.text for row in ROWS if known.intersection(row.names)]
    unsaid = [name for row in ROWS for name in row.names if (name in known) == (f"`{name}`" in missing)]
    assert not unsaid, f"neither recorded nor among what is not, or both: {unsaid}"
    unknown = []
    for row in cells:
        for shown in row[2].split("; "):
            found = re.match(r"(-?[\d.]+)([kM]?)", shown)
            if found is None:
                assert shown == "not recorded", row
                continue
            value = float(found[1]) * {"": 1, "k": 1e3, "M": 1e6}[found[2]]
            if not any(abs(value - one) <= 0.0051 * abs(one) for one in measured):
                unknown.append(f"{row[0]}: {shown}")
    assert not unknown, unknown


@pytest.mark.parametrize("page", ["README.md", "docs/exactly_once.md", "docs/guide"])
def test_no_figure_stands_beside_the_records(page: str) -> None:
    found = []
    for path in files(".md", under=page) or [ROOT / page]:
        prose = text(path).replace(_part(), "") if path.name == "README.md" else text(path)
        found += [f"{name(path)}: {match.group()}" for match in _MEASURED.finditer(prose)]
    assert not found, f"record it (`make bench … ARGS=--record`) and link docs/figures.md: {found}"


def test_the_scanner_sees_figures_in_sentences() -> None:
    said = ["reads some 450,000 a second", "1.4M rows/s", "seven, no, 12 times", "5 to 15 µs", "100 ms a batch"]
    assert all(_MEASURED.search(one) for one in said)
    assert not _MEASURED.search("waits 100 ms, then 30 s")


def test_what_is_compared_was_measured_often_enough() -> None:
    few = [
        f"{record['benchmark']}: {figure['name']}: {side} n = {series['n']}"
        for record in _records()
        for figure in record["figures"]
        if figure["how"] is not None
        for side, series in figure["series"].items()
        if series["n"] < SAMPLES_MIN
    ]
    assert not few, few


def _benchmarks() -> list[Path]:
    """Those with figures of this commit: `beside` compares two."""
    makers = {"pages.py", "scala_jar.py"}
    programs = [path for path in files(".py", under="benchmarks") if '"__main__"' in text(path)]
    return [path for path in programs if path.name not in makers and path.parent.name != "beside"]


def test_every_benchmark_can_be_recorded() -> None:
    without = [name(path) for path in _benchmarks() if "with recorded(given" not in text(path)]
    assert len(_benchmarks()) > 14
    assert not without, without


def test_the_table_names_figures_that_a_benchmark_says() -> None:
    """As far as names stand in the source; of those that are put together, the part that stands there."""
    said = {
        node.value
        for path in _benchmarks()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    known = [one for one in said if re.match(r"[a-z_]+\.", one) or re.match(r"_?p\d+_ms$|_p$", one)]
    unknown = [figure for row in ROWS for figure in row.names if not any(figure.startswith(one) for one in known)]
    assert not unknown, unknown
