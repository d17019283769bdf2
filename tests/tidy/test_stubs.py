"""The stubs of the extension against the extension: every name and every parameter, both ways.

pybind11 writes each function's signature into the first line of its docstring; the stub is read as a syntax tree.
"""

from __future__ import annotations

import ast
import inspect

import pytest
from tests.tidy.sources import PACKAGE, text

STUB = ast.parse(text(PACKAGE / "_core.pyi"))
# Names that only type checkers see.
PROTOCOLS = {"SchemaExportable", "ArrayExportable"}
# What every Python object has; the stub names those that differ.
_OBJECT = set(dir(object)) | {"__module__", "__dict__", "__weakref__"}

Signature = list[str]


@pytest.fixture(scope="module")
def core() -> object:
    """The built extension."""
    from holdfast import _core

    return _core


def _stub_signature(node: ast.FunctionDef) -> Signature:
    arguments = node.args
    names = [a.arg for a in arguments.posonlyargs + arguments.args if a.arg != "self"]
    return names + (["*", *(a.arg for a in arguments.kwonlyargs)] if arguments.kwonlyargs else [])


def _is_property(node: ast.FunctionDef) -> bool:
    return any(isinstance(decorator, ast.Name) and decorator.id == "property" for decorator in node.decorator_list)


def _built_signature(function: object) -> Signature:
    """Parameter names from `name(self: T, a: U, *, b: V = 1) -> W`."""
    doc = inspect.getdoc(function) or ""
    line = next((line for line in doc.splitlines() if "(" in line), "")
    inner, depth, parts = line[line.index("(") + 1 : line.rindex(")")], 0, [""]
    for char in inner:
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    names = [part.split(":")[0].split("=")[0].strip() for part in parts]
    return [name for name in names if name not in ("self", "")]


def _classes() -> dict[str, ast.ClassDef]:
    return {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef) and node.name not in PROTOCOLS}


def _functions() -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}


def test_the_stub_names_what_is_built(core: object) -> None:
    built = {name for name in vars(core) if not name.startswith("_")}
    stubbed = set(_classes()) | set(_functions())
    assert stubbed == built


@pytest.mark.parametrize("name", _functions())
def test_functions_take_what_the_stub_says(core: object, name: str) -> None:
    assert _built_signature(getattr(core, name)) == _stub_signature(_functions()[name])


@pytest.mark.parametrize("name", _classes())
def test_methods_take_what_the_stub_says(core: object, name: str) -> None:
    built_class = getattr(core, name)
    members = {node.name: node for node in _classes()[name].body if isinstance(node, ast.FunctionDef)}
    built = {m for m in vars(built_class) if m not in _OBJECT and not m.startswith("_pybind11")}
    assert {m for m in members if m not in _OBJECT} == built
    for member, node in members.items():
        found = inspect.getattr_static(built_class, member)
        if _is_property(node):
            assert isinstance(found, property), f"{name}.{member} is no property"
        elif not member.startswith("__") or member == "__init__":
            assert _built_signature(found) == _stub_signature(node), f"{name}.{member}"
