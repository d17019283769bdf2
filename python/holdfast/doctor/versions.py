"""Versions, as numbers that can be compared, and the bounds that Holdfast's own metadata sets for other packages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata

DISTRIBUTION = "holdfast-spark"


@dataclass(frozen=True)
class Bounds:
    """Versions of a package that are wanted: from ``least`` up to, not including, ``below``. Empty is no bound."""

    least: tuple[int, ...] = ()
    below: tuple[int, ...] = ()

    def __str__(self) -> str:
        """As pip takes it."""
        bounds = [(">=", self.least), ("<", self.below)]
        return ",".join(f"{sign}{dotted(bound)}" for sign, bound in bounds if bound)

    def hold(self, version: str) -> bool:
        """Whether the version is within."""
        found = numbers(version)
        return found >= self.least and (not self.below or found < self.below)


def version_of(package: str) -> str | None:
    """The version that is installed; None when it is not."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def wanted(extra: str | None = None) -> dict[str, Bounds]:
    """Package → bounds, of what Holdfast always needs or of one extra; empty where Holdfast has no metadata."""
    try:
        requirements = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return {}
    found = {}
    for requirement in requirements:
        asked, _, marker = requirement.partition(";")
        of_extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        package = re.match(r"[\w.-]+", asked)
        if package is not None and (of_extra[1] if of_extra else None) == extra:
            bounds = dict(re.findall(r"(>=|<)\s*([\d.]+)", asked))
            found[package[0]] = Bounds(numbers(bounds.get(">=", "")), numbers(bounds.get("<", "")))
    return found


def numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:[._]\d+)*", version)
    return tuple(int(part) for part in re.split(r"[._]", match[0])) if match else ()


def dotted(numbers: tuple[int, ...] | list[int]) -> str:
    return ".".join(str(number) for number in numbers)
