"""Prints what pip is to install before Holdfast itself, one requirement a line: what builds it, what it needs, and the
extras and groups that are named. Read from pyproject.toml, which is the only list.

With these in place, Holdfast is installed `--no-build-isolation --no-deps`: its core is built once, again only where
it changed. They themselves are installed in pip's ordinary way, each source package built in an environment of its own:
pyspark, published as source only, does not say that it needs setuptools and wheel, and a fresh environment lacks them.
Python 3.10 has no TOML reader: there the package tomli is needed.
"""

import re
import sys
from pathlib import Path

try:
    import tomllib
except ImportError:
    import tomli as tomllib

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def requirements(pyproject, wanted):
    """All requirements, each once; an extra that names others of this project (`holdfast-spark[kafka]`) is followed."""
    project = pyproject["project"]
    lists = {**project["optional-dependencies"], **pyproject["dependency-groups"]}
    itself = re.compile(re.escape(project["name"]) + r"\[([\w,\s-]+)\]")
    found = dict.fromkeys([*pyproject["build-system"]["requires"], *project["dependencies"]])

    def add(name):
        if name not in lists:
            raise SystemExit(f"{PYPROJECT.name} has no extra or group {name!r}; it has {', '.join(sorted(lists))}")
        for requirement in lists[name]:
            others = itself.fullmatch(requirement)
            if others:
                for other in others[1].split(","):
                    add(other.strip())
            else:
                found[requirement] = None

    for name in wanted:
        add(name)
    return list(found)


if __name__ == "__main__":
    print("\n".join(requirements(tomllib.loads(PYPROJECT.read_text(encoding="utf-8")), sys.argv[1:])))
