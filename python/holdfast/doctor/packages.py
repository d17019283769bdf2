"""Python, Holdfast itself, and the packages that it needs, against what Holdfast's own metadata asks for."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import holdfast
from holdfast.doctor.finding import Finding, Verdict
from holdfast.doctor.versions import DISTRIBUTION, Bounds, dotted, numbers, version_of, wanted

PYTHON_LEAST = (3, 10)
#: What Holdfast was tried with, up to; docs/guide/install.md says the same.
PYTHON_NEWEST, PYSPARK_NEWEST = (3, 14), (4, 3)
# On PyPI, another project by this name brings a package of the same name.
NAMESAKE = "holdfast"


def check_python() -> Finding:
    found = f"{dotted(sys.version_info[:3])} ({sys.executable})"
    if sys.version_info[:2] < PYTHON_LEAST:
        return Finding("Python", Verdict.MISSING, found, f"install Python {dotted(PYTHON_LEAST)} or later")
    return _newer_than_tried("Python", found, sys.version_info[:2], PYTHON_NEWEST)


def check_holdfast() -> Finding:
    from holdfast import _core

    found = f"{holdfast.__version__} ({_core.__file__})"
    namesake = version_of(NAMESAKE)
    if namesake is not None:
        return Finding(
            "Holdfast",
            Verdict.WARNING,
            f"{found}; but {NAMESAKE} {namesake}, another project, is installed into the same package",
            f"pip uninstall {NAMESAKE}, then pip install --force-reinstall --no-deps {DISTRIBUTION}",
        )
    installed = version_of(DISTRIBUTION)
    if installed is None:
        return Finding(
            "Holdfast",
            Verdict.WARNING,
            f"{found}, without its metadata: whether other packages have the right versions cannot be told",
            f"install it with pip: pip install {DISTRIBUTION}",
        )
    if installed != holdfast.__version__:
        return Finding(
            "Holdfast",
            Verdict.WARNING,
            f"{found}; but pip knows {DISTRIBUTION} {installed}: another copy stands before it on Python's path",
            "remove one of them",
        )
    return Finding("Holdfast", Verdict.OK, found)


def check_pyspark(environment: Mapping[str, str]) -> Finding:
    bounds = wanted().get("pyspark", Bounds())
    mend = f"pip install 'pyspark{bounds}'"
    version, client = version_of("pyspark"), version_of("pyspark-client")
    if version is None and client is not None:
        return Finding("pyspark", Verdict.MISSING, f"only pyspark-client {client}, which ships no Spark", mend)
    if version is None:
        return _check_platforms_pyspark(environment.get("SPARK_HOME"), bounds)
    if not bounds.hold(version):
        return Finding("pyspark", Verdict.MISSING, f"{version}; supported is {bounds}", mend)
    other = _spark_version(environment.get("SPARK_HOME"))
    if other is not None and numbers(other) != numbers(version):  # a platform's has a suffix: 4.0.1-amzn-0
        return Finding(
            "pyspark",
            Verdict.WARNING,
            f"{version}, but SPARK_HOME has Spark {other} ({environment['SPARK_HOME']}), which pyspark would run",
            "unset SPARK_HOME, or install the pyspark of the same version",
        )
    return _newer_than_tried("pyspark", version, numbers(version)[:2], PYSPARK_NEWEST)


def _check_platforms_pyspark(home: str | None, bounds: Bounds) -> Finding:
    """One that pip does not know: images and services bring Spark as a folder, with pyspark in it."""
    imported, of_home = _importable_pyspark(), _spark_version(home)
    version = of_home or imported
    if version is None:
        return Finding("pyspark", Verdict.MISSING, "not installed", f"pip install 'pyspark{bounds}'")
    found = f"{version}, which pip does not know" + (f" (SPARK_HOME is {home})" if of_home else "")
    if not bounds.hold(version):
        mend = f"take a Spark {bounds}, or pip install 'pyspark{bounds}' and unset SPARK_HOME"
        return Finding("pyspark", Verdict.MISSING, f"{found}; supported is {bounds}", mend)
    mend = f"pip install 'pyspark=={dotted(numbers(version))}'"
    if imported is None:
        found, mend = f"{found}: only under spark-submit does Python find it", f"{mend}, or start with spark-submit"
        return Finding("pyspark", Verdict.WARNING, found, mend)
    if numbers(imported) != numbers(version):
        return Finding("pyspark", Verdict.WARNING, f"{found}; but Python finds pyspark {imported}", mend)
    return _newer_than_tried("pyspark", found, numbers(version)[:2], PYSPARK_NEWEST)


def _newer_than_tried(name: str, found: str, version: tuple[int, ...], newest: tuple[int, ...]) -> Finding:
    if version <= newest:
        return Finding(name, Verdict.OK, found)
    mend = f"take {name} {dotted(newest)} if something fails, and report it"
    return Finding(name, Verdict.WARNING, f"{found}: newer than what Holdfast was tried with, {dotted(newest)}", mend)


def check_package(name: str) -> Finding:
    bounds = wanted().get(name, Bounds())
    version = version_of(name)
    if version is not None and bounds.hold(version):
        return Finding(name, Verdict.OK, version)
    found = "not installed" if version is None else f"{version}; needed is {bounds}"
    return Finding(name, Verdict.MISSING, found, f"pip install '{name}{bounds}'")


def check_extra(extra: str, needed_for: str) -> Finding:
    """The packages of an extra: none of them is no fault, some of them or other versions are."""
    name, mend = f"extra {extra}", f"pip install '{DISTRIBUTION}[{extra}]', on the driver and on all executors"
    packages = wanted(extra)
    versions = {package: version_of(package) for package in packages}
    installed = {package: version for package, version in versions.items() if version is not None}
    if not installed:
        return Finding(name, Verdict.OPTIONAL, f"not installed: {needed_for} need it", mend)
    found = ", ".join(f"{package} {version or 'is not installed'}" for package, version in versions.items())
    wrong = [f"{package}{bounds}" for package, bounds in packages.items()
             if package not in installed or not bounds.hold(installed[package])]  # fmt: skip
    if wrong:
        return Finding(name, Verdict.WARNING, f"{found}; {needed_for} need {' and '.join(wrong)}", mend)
    return Finding(name, Verdict.OK, found)


def spark_version(environment: Mapping[str, str]) -> str | None:
    """Of the Spark that pyspark runs: the one of SPARK_HOME, where that is set."""
    return _spark_version(environment.get("SPARK_HOME")) or version_of("pyspark") or _importable_pyspark()


def _importable_pyspark() -> str | None:
    """The version of the pyspark that this Python finds, whoever brought it: found, not imported."""
    package = importlib.util.find_spec("pyspark")
    if package is None or importlib.util.find_spec("py4j") is None:  # a platform's py4j is an archive of its own
        return None
    folder = next(iter(package.submodule_search_locations or ()), "")
    try:
        text = package.loader.get_data(os.path.join(folder, "version.py"))  # type: ignore[union-attr]
    except (AttributeError, OSError):  # something else of that name
        return None
    match = re.search(rb"^__version__[^=]*= *[\"']([\w.]+)", text, re.MULTILINE)
    return match[1].decode() if match else None


def _spark_version(home: str | None) -> str | None:
    """The version of the Spark in ``home``, by the name of its main jar."""
    jars = (Path(home) / "jars").glob("spark-core_*.jar") if home else []
    for jar in jars:
        if match := re.fullmatch(r"spark-core_[\d.]+-([\w.-]+)\.jar", jar.name):
            return match[1]
    return None
