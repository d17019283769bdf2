"""What no file may do: leave work behind, run what was read, ask the real clock or real chance."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.sources import (
    PACKAGE,
    ROOT,
    all_files,
    cpp_code,
    cpp_files,
    files,
    imports,
    name,
    python_files,
    text,
    tree,
)

CLOCK = PACKAGE / "clock.py"
_LEFT_BEHIND = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b")

# Modules that run, or rebuild objects from, bytes that they are handed.
UNSAFE_MODULES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "jsonpickle"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__", "yaml.load", "yaml.unsafe_load", "os.system", "os.popen"}

# Questions to the real clock and to real chance. Sleeping and timing out are waiting, not asking.
CLOCK_CALLS = {
    "time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter", "time.perf_counter_ns",
    "datetime.now", "datetime.utcnow", "datetime.today", "datetime.datetime.now", "datetime.datetime.utcnow",
    "date.today", "datetime.date.today", "uuid.uuid1", "uuid.uuid4", "os.urandom",
}  # fmt: skip
CHANCE_MODULES = {"random", "secrets"}
# Test equipment runs beside the product, not in it.
EQUIPMENT = PACKAGE / "testing"


def _calls(path: Path) -> Iterator[tuple[int, str, ast.Call]]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            yield node.lineno, ast.unparse(node.func), node


def test_nothing_is_left_for_later() -> None:
    mine = {Path(__file__)}
    found = [
        f"{name(path)}:{number} {line.strip()[:80]}"
        for path in [*python_files(), *cpp_files(), *files(".md", ".toml", ".pyi"), ROOT / "Makefile"]
        if path not in mine
        for number, line in enumerate(text(path).splitlines(), 1)
        if _LEFT_BEHIND.search(line)
    ]
    assert not found, "\n".join(found)


#: Of packages. Which one is asked is for the machine to say, that of its network perhaps; and a project has a page of
#: its own to link.
REGISTRIES = (
    "py" + "pi.org", "python" + "hosted.org", "ana" + "conda.org", "maven" + ".org", "maven" + ".apache.org",
    "np" + "mjs.org", "np" + "mjs.com", "crates" + ".io", "proxy.go" + "lang.org",
)  # fmt: skip
_REGISTRY = re.compile("|".join(map(re.escape, REGISTRIES)).encode(), re.IGNORECASE)


def _hosts_of_registries(content: bytes) -> list[str]:
    lines = content.split(b"\n")
    return [f"{at}: {host.decode()}" for at, line in enumerate(lines, 1) for host in _REGISTRY.findall(line)]


def test_no_file_names_the_host_of_a_registry() -> None:
    found = [f"{name(path)}:{where}" for path in all_files() for where in _hosts_of_registries(path.read_bytes())]
    assert not found, "link the project's own page; leave it to the machine which registry is asked:\n" + "\n".join(
        found
    )


def test_a_host_of_a_registry_is_seen_wherever_it_stands() -> None:
    for host in REGISTRIES:
        assert _hosts_of_registries(f"a\n[x](https://{host}/x)\xff".encode("latin-1")) == [f"2: {host}"]
    assert not _hosts_of_registries(b"from PyPI, by pip install; by Maven, npm, or conda")


def test_nothing_that_was_read_is_run() -> None:
    found = []
    for path in files(".py", under="python/holdfast"):
        found += [f"{name(path)}:{line} imports {m}" for line, m in imports(path) if m.split(".")[0] in UNSAFE_MODULES]
        for line, called, call in _calls(path):
            shell = any(
                k.arg == "shell" and not (isinstance(k.value, ast.Constant) and not k.value.value)
                for k in call.keywords
            )
            if called in UNSAFE_CALLS or called.startswith("pickle.") or shell:
                found.append(f"{name(path)}:{line} calls {called}")
            if called.endswith("load") and any(k.arg == "allow_pickle" for k in call.keywords):
                found.append(f"{name(path)}:{line} unpickles")
    assert not found, "\n".join(found)


def test_one_file_asks_the_clock_and_chance() -> None:
    found = []
    for path in files(".py", under="python/holdfast"):
        if path == CLOCK or path.is_relative_to(EQUIPMENT):
            continue
        found += [f"{name(path)}:{line} imports {m}" for line, m in imports(path) if m.split(".")[0] in CHANCE_MODULES]
        found += [
            f"{name(path)}:{line} imports {m}"
            for line, m in imports(path)
            if m in CLOCK_CALLS or m in {"uuid.uuid4", "time.time", "time.monotonic"}
        ]
        for line, called, call in _calls(path):
            if called in CLOCK_CALLS or (called.endswith("default_rng") and not call.args and not call.keywords):
                found.append(f"{name(path)}:{line} calls {called}")
    assert not found, f"only {name(CLOCK)} may:\n" + "\n".join(found)


def test_the_core_asks_no_clock_and_no_chance() -> None:
    asks = re.compile(r"_clock::now|\bstd::random_device|\bs?rand\s*\(|\bgettimeofday|\bclock_gettime|\bstd::time\b")
    found = [name(path) for path in files(".cc", ".h", under="cpp") if asks.search(cpp_code(path))]
    # The secret of the tables in memory, by which nothing that is stored or given out goes.
    assert found == ["cpp/codec/index_hash.cc"], found


def test_the_tree_names_no_machine() -> None:
    private = re.compile(r"/wo" + r"rk/(?:main|scratch|shared)|/ro" + r"ot/")
    found = [
        f"{name(path)}:{number}"
        for path in files(".py", ".pyi", ".cc", ".h", ".md", ".toml", ".json", ".yaml", ".yml", ".txt")
        for number, line in enumerate(text(path).splitlines(), 1)
        if private.search(line)
    ]
    assert not found, found


def test_no_two_files_of_tests_have_one_name() -> None:
    """Pytest imports them by their bare names: of two it collects the first, where both are asked for."""
    names = [path.name for path in files(".py", under="tests") if path.name.startswith("test_")]
    twins = sorted({one for one in names if names.count(one) > 1})
    assert not twins, twins


def test_no_test_is_skipped_by_an_import_that_fails() -> None:
    """What the tests need stands in pyproject.toml; a module of our own that can no longer be imported is no reason. A
    library of the machine's that is not there is one: Python tells it apart, as an OSError.
    """
    found = [
        f"{name(path)}:{line}"
        for path in files(".py", under="tests")
        if "importorskip" in text(path)
        for line, called, call in _calls(path)
        if called.endswith("importorskip") and "exc_type=OSError" not in ast.unparse(call)
    ]
    assert not found, f"skip by SPARK_RELEASE, or not at all: {found}"
