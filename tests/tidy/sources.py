"""The tree as the tidy tests see it: which files there are, and their text."""

from __future__ import annotations

import ast
import os
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "holdfast"
_BUILT = {".git", ".venv", "build", "dist", "demo-output", "demo-output-kafka", "__pycache__"}
_CACHES = {".cache", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".benchmarks"}
_SKIPPED = _BUILT | _CACHES


def files(*suffixes: str, under: str = ".") -> list[Path]:
    """Source files below a folder of the tree, without what is built or ignored."""
    folder = ROOT / under
    return [path for path in all_files() if path.suffix in suffixes and path.is_relative_to(folder)]


@cache
def all_files() -> list[Path]:
    """Of any kind. Looked for once, and not where the environment lies: that alone has more files than all the rest."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [one for one in folders if one not in _SKIPPED]
        found += [Path(folder, one) for one in names]
    return sorted(path for path in found if path.is_file())


def python_files() -> list[Path]:
    """Every Python source."""
    return files(".py")


def cpp_files() -> list[Path]:
    """Every C++ source and header."""
    return files(".cc", ".h")


def name(path: Path) -> str:
    """The path as the reader knows it, from the root of the tree."""
    return str(path.relative_to(ROOT))


@cache
def text(path: Path) -> str:
    """The whole file."""
    return path.read_text(encoding="utf-8")


@cache
def tree(path: Path) -> ast.Module:
    """The file's syntax tree."""
    return ast.parse(text(path), str(path))


@cache
def imports(path: Path) -> list[tuple[int, str]]:
    """(line, module) of every import, wherever it stands; ``from a import b`` counts as ``a.b``."""
    found = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.lineno, f"{_base(path, node)}.{alias.name}") for alias in node.names]
    return found


def _base(path: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = path.relative_to(PACKAGE.parent).with_suffix("").parts[: -node.level]
    return ".".join([*package, *([node.module] if node.module else [])])


_CPP_NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)


@cache
def cpp_code(path: Path) -> str:
    """C++ without comments, and with strings emptied; line numbers stay."""

    def blank(match: re.Match[str]) -> str:
        lines = "\n" * match.group().count("\n")
        return lines if match.group().startswith("/") else f'""{lines}'

    return _CPP_NOISE.sub(blank, text(path))
