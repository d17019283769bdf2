"""The documents: formats have pages, links lead somewhere, and what a reader copies is a program that runs."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
import subprocess
from pathlib import Path
from types import ModuleType

import click
import pytest
from tests.tidy.sources import ROOT, cpp_files, files, name, text, tree

import holdfast
from holdfast import testing
from holdfast.cli import main

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SHELL = re.compile(r"^```(?:sh|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)
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


def test_what_a_reader_types_into_a_shell_parses_and_names_commands_and_options_that_exist() -> None:
    wrong, commands = [], 0
    for page in [ROOT / "README.md", *files(".md", under="docs")]:
        for block in _SHELL.findall(text(page)):
            lines = [line.split("   #")[0] for line in block.splitlines() if re.match(r"(\S+=\S+ )?holdfast ", line)]
            commands += len(lines)
            wrong += [f"{name(page)}: {line}: {why}" for line in lines if (why := _misused(line)) is not None]
        for block in re.findall(r"^```sh\n(.*?)^```", text(page), re.DOTALL | re.MULTILINE):
            parsed = subprocess.run(["bash", "-n"], input=block, text=True, capture_output=True)
            wrong += [f"{name(page)}: {parsed.stderr}"] if parsed.returncode and "<its process id>" not in block else []
    assert commands >= 7
    assert not wrong, "\n".join(wrong)


def _misused(line: str) -> str | None:
    """What is wrong with a line that runs `holdfast`; words in capitals stand for what the reader fills in."""
    command: click.Command = main
    for word in shlex.split(re.sub(r"[\[\]…]", " ", line))[1:]:
        if isinstance(command, click.Group):
            found = command.commands.get(word)
            if found is None:
                return f"no command {word!r}"
            command = found
        elif word.startswith("-") and not any(word in option.opts for option in command.params):
            return f"no option {word!r}"
    return None


def _pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pages", ROOT / ".ci" / "pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_has_every_name_once_and_the_site_every_page_of_the_guide() -> None:
    pages = _pages()
    shown = [one for _, names in pages.REFERENCE.values() for one in names]
    assert sorted(shown) == sorted(set(holdfast.__all__) - {"__version__"})
    assert set(pages.TESTING) <= set(testing.__all__)
    site = text(ROOT / ".ci" / "site.yml")
    missing = [page.name for page in files(".md", under="docs/guide") if f"guide/{page.name}\n" not in site]
    assert not missing


def test_the_readme_leads_to_every_page_of_the_guide() -> None:
    missing = [
        page.name
        for page in files(".md", under="docs/guide")
        if f"docs/guide/{page.name}" not in text(ROOT / "README.md")
    ]
    assert not missing


def test_links_on_the_site_lead_to_its_pages_and_others_become_words() -> None:
    pages = _pages()
    places = pages.pages()
    page = ROOT / "docs/guide/states.md"
    written = "[a](timers.md#x) [b](../../examples/once.py) [c](../../README.md) [d](https://e.org)\n```\n[e](timers.md)\n```\n"
    assert pages.with_links(written, page, places) == (
        "[a](timers.md#x) b [c](../index.md) [d](https://e.org)\n```\n[e](timers.md)\n```\n"
    )
