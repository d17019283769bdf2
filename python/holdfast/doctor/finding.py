"""A finding of the doctor: one thing that was looked for, how it was found, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(str, Enum):
    """How a thing was found."""

    OK = "ok"
    OPTIONAL = "optional"  # not there; only what it says there needs it
    WARNING = "warning"  # works, but not as it should, or not everywhere
    MISSING = "missing"  # Holdfast does not work without


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for.

    Attributes
    ----------
    name
        What was looked for, in a word or two.
    verdict
        How it was found.
    found
        What was found, and where.
    mend
        What to do; empty when all is well.
    """

    name: str
    verdict: Verdict
    found: str
    mend: str = ""
