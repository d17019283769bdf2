"""The shape of files and functions: their length, their first lines, their names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.sources import PACKAGE, cpp_code, cpp_files, files, name, python_files, text, tree

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
VAGUE = {"util", "utils", "manager", "helper", "helpers", "impl", "misc"}

_NOT_A_FUNCTION = re.compile(r"^(?:if|else|for|while|switch|do|try|catch|namespace|struct|class|enum|union|extern)\b")
_SIGNATURE = re.compile(
    r"\)\s*(?:const|noexcept|override|final|mutable|&&?|->\s*[\w:<>,&*\s]+)*\s*(?::[^;{}]*(?:\{[^{}]*\}[^;{}]*)*)?$"
)


def _cpp_functions(path: Path) -> Iterator[tuple[int, int, str]]:
    """(first line, lines, signature) of each function body. Knows as much C++ as clang-format leaves to know."""
    code = cpp_code(path)
    open_at: list[tuple[int, str | None]] = []
    start = 0
    for match in re.finditer(r"[{};]", code):
        char, at = match.group(), match.start()
        if char == "{":
            head = re.sub(r"\s+", " ", code[start:at]).strip()
            is_function = bool(_SIGNATURE.search(head)) and not _NOT_A_FUNCTION.match(head) and "(" in head
            first = code.count("\n", 0, start + len(code[start:at]) - len(code[start:at].lstrip())) + 1
            open_at.append((first, head if is_function else None))
        elif char == "}" and open_at:
            first, signature = open_at.pop()
            if signature is not None:
                yield first, code.count("\n", 0, at) + 2 - first, signature
        start = at + 1


def _python_functions(path: Path) -> Iterator[tuple[int, int, str]]:
    for node in ast.walk(tree(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            doc = ast.get_docstring(node, clean=False)
            lines = (node.end_lineno or node.lineno) - node.lineno + 1 - (doc.count("\n") + 1 if doc else 0)
            yield node.lineno, lines, node.name


def _words(identifier: str) -> set[str]:
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", identifier)
    return {word.lower() for word in re.split(r"[^A-Za-z0-9]+", spaced) if word}


def test_no_file_is_two_things() -> None:
    long = {
        name(path): lines
        for path in [*python_files(), *cpp_files()]
        if (lines := text(path).count("\n")) > FILE_LINES_MAX
    }
    assert not long, f"more than {FILE_LINES_MAX} lines: split by noun: {long}"


def test_functions_fit_on_a_screen() -> None:
    long = [
        f"{name(path)}:{line} {signature[-70:]}: {lines} lines"
        for paths, functions in ((python_files(), _python_functions), (cpp_files(), _cpp_functions))
        for path in paths
        for line, lines, signature in functions(path)
        if lines > FUNCTION_LINES_MAX
    ]
    assert not long, "\n".join(long)


def test_the_scanner_sees_functions() -> None:
    found = sum(len(list(_cpp_functions(path))) for path in cpp_files())
    assert found > 200, f"only {found} C++ functions found: the scanner has gone blind"


def test_files_say_what_they_are() -> None:
    spoken_for = {path.with_suffix(".cc") for path in cpp_files() if path.suffix == ".h"}
    doors = {path.stem for path in files(".h", under="cpp/include")}
    silent = [
        name(path)
        for path in files(".cc", ".h", under="cpp")
        if not text(path).startswith("//") and path not in spoken_for and path.stem not in doors
    ]
    silent += [name(path) for path in python_files() if text(path).strip() and not ast.get_docstring(tree(path))]
    assert not silent, f"no first lines that say what the file is: {silent}"


def test_names_say_something() -> None:
    vague = [name(path) for path in [*python_files(), *cpp_files()] if VAGUE & _words(path.stem)]
    for path in python_files():
        for node in ast.walk(tree(path)):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and VAGUE & _words(node.name):
                vague.append(f"{name(path)}:{node.lineno} {node.name}")
    for path in cpp_files():
        for kind, identifier in re.findall(r"\b(class|struct|namespace) (\w+)", cpp_code(path)):
            if VAGUE & _words(identifier):
                vague.append(f"{name(path)} {kind} {identifier}")
    assert not vague, f"{sorted(VAGUE)} name nothing: {vague}"


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()
