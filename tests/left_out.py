"""What a run of tests left out: each reason once, and how many tests it is of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pytest


def told(skipped: Iterable[pytest.TestReport | pytest.CollectReport]) -> Iterator[str]:
    """A line for each reason, the most frequent first."""
    reasons: Counter[str] = Counter()
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason.removeprefix("Skipped: ")] += 1
    for reason, tests in reasons.most_common():
        yield f"left out: {tests} test{'s' if tests > 1 else ''}: {reason}"
