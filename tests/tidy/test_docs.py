"""The documents: formats have pages, links lead somewhere, and what a reader copies is a program that runs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.tidy.sources import ROOT, cpp_files, files, name, text, tree

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
_SECTION_LINK = re.compile(r"\]\(([^)#\s:]*)#([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*?)\s*$", re.MULTILINE)
_MAGIC = re.compile(
    r"""^_?k?MAGIC\w*\s*(?::[^=]*)?=\s*b?["']([^"']+)["']|\bk\w*Magic\w*\s*(?:\[\])?\s*(?:=|\{)\s*"([^"]+)\"""",
    re.MULTILINE,
)

# Pages whose code a reader copies whole: each block stands, as it is, in a program under examples/.
COPIED = ["README.md", "docs/guide/first_program.md"]
REQUIRED = [
    "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE",
    "docs/guide/install.md", "docs/guide/first_program.md", "docs/guide/recovery.md", "docs/guide/settings.md",
    "docs/formats/key.md", "docs/formats/row.md", "docs/formats/delta.md", "docs/formats/snapshot.md",
    "docs/formats/handle.md", "benchmarks/README.md", "docs/exactly_once.md",
]  # fmt: skip


def _blocks(page: Path) -> list[str]:
    return _BLOCK.findall(text(page))


@pytest.mark.parametrize("page", REQUIRED)
def test_the_page_exists(page: str) -> None:
    assert (ROOT / page).is_file()


@pytest.mark.parametrize("page", COPIED)
def test_what_a_reader_copies_is_a_program_that_runs(page: str) -> None:
    programs = [text(path) for path in files(".py", under="examples")]
    lost = [block for block in _blocks(ROOT / page) if not any(block.strip() in program for program in programs)]
    assert not lost, f"{page}: stands in no program under examples/:\n" + "\n---\n".join(lost)


def test_code_in_documents_parses() -> None:
    broken = []
    for page in files(".md"):
        for block in _blocks(page):
            try:
                ast.parse(block)
            except SyntaxError as error:
                broken.append(f"{name(page)}: {error}")
    assert not broken, broken


def test_links_lead_somewhere() -> None:
    dead = [
        f"{name(page)} → {target}"
        for page in files(".md")
        for target in _LINK.findall(text(page))
        if "://" not in target and not target.startswith("mailto:") and not (page.parent / target).exists()
    ]
    assert not dead, dead


def _sections(page: Path) -> set[str]:
    """What a heading is called in links: as GitHub and PyPI make it."""
    headings = _HEADING.findall(re.sub(r"^```.*?^```", "", text(page), flags=re.DOTALL | re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_to_sections_lead_to_one() -> None:
    found = [(page, target, section) for page in files(".md") for target, section in _SECTION_LINK.findall(text(page))]
    dead = [
        f"{name(page)} → {target}#{section}"
        for page, target, section in found
        if section not in _sections(page.parent / target if target else page)
    ]
    assert found
    assert not dead, dead


def test_every_row_of_the_crash_table_names_tests_that_exist() -> None:
    known = {
        path: set(re.findall(r"^def (test_\w+)", text(path), re.MULTILINE)) for path in files(".py", under="tests")
    }
    rows = [row for row in text(ROOT / "docs/exactly_once.md").splitlines() if row.startswith("| ")]
    claims = [row for row in rows if not row.startswith("| ---") and not row.endswith("| proven by |")]
    assert claims
    unproven = [row for row in claims if "::test_" not in row.split("|")[-2]]
    missing = [
        f"{path}::{test}"
        for row in claims
        for path, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        if test not in known.get(ROOT / path, ())
    ]
    assert not unproven, unproven
    assert not missing, missing


def test_every_row_of_a_table_with_tests_names_tests_that_exist() -> None:
    """In the guide a table whose last column is "test"."""
    known = {test for path in files(".py", under="tests") for test in re.findall(r"^def (test_\w+)", text(path), re.M)}
    cited, unknown = 0, []
    for page in files(".md", under="docs/guide"):
        for table in re.findall(r"^\|[^\n]*\| test \|\n\| ---[^\n]*\n((?:\|[^\n]*\n)+)", text(page), re.M):
            for row in table.splitlines():
                tests = re.findall(r"`(test_\w+)`", row.split("|")[-2])
                cited += len(tests)
                unknown += [f"{name(page)}: {row}" for test in tests or [""] if test not in known]
    assert cited > 40
    assert not unknown, "\n".join(unknown)


def test_the_crash_table_says_which_tests_run_at_night_only() -> None:
    """A row that rests on a test that `make test` leaves out says so, and no other does."""
    cited = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`( \*\(nightly\)\*)?", text(ROOT / "docs/exactly_once.md"))
    wrong = [
        f"{path}::{test}: {'is' if told else 'is not'} said to be nightly"
        for path, test, told in cited
        if bool(told) != (test in _slow_tests(ROOT / path))
    ]
    assert cited
    assert not wrong, "\n".join(wrong)


def _slow_tests(path: Path) -> set[str]:
    marks = [ast.unparse(node) for node in tree(path).body if isinstance(node, ast.Assign)]
    of_module = any(mark.startswith("pytestmark") and "mark.slow" in mark for mark in marks)
    return {
        node.name
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef)
        and (of_module or any(ast.unparse(mark) == "pytest.mark.slow" for mark in node.decorator_list))
    }


def test_every_magic_has_a_page() -> None:
    pages = "\n".join(text(page) for page in files(".md", under="docs/formats"))
    unknown = [
        f"{name(path)}: {magic}"
        for path in [*files(".py", under="python/holdfast"), *cpp_files()]
        for found in _MAGIC.findall(text(path))
        if (magic := "".join(found)) and magic not in pages
    ]
    assert not unknown, f"no page in docs/formats has the magic: {unknown}"


def test_every_package_file_cites_pages_that_exist() -> None:
    cited = re.compile(r"\bdocs/(?:formats|rfcs|guide)/[\w./-]+\.md\b")
    dead = [
        f"{name(path)} → {page}"
        for path in [*files(".py", ".pyi"), *cpp_files()]
        for page in cited.findall(text(path))
        if not (ROOT / page).exists()
    ]
    assert not dead, dead
