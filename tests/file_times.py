"""How long each file of tests takes, so that long ones begin first: with several processes, one that begins with the
longest file last is at work alone for as long as that takes.

`make file-times` writes tests/file_times.json anew. It says nothing but an order: figures of a slow machine do as well.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

FILE = Path(__file__).with_suffix(".json")
_SHORTEST_S = 5  # files below it come last, in the order of their folders


def by_time(items: list[pytest.Item]) -> None:
    """Puts tests in order, file by file. Within a file they stay as they are, and so do files that are not known."""
    seconds: dict[str, int] = json.loads(FILE.read_text(encoding="utf-8"))
    items.sort(key=lambda item: -seconds.get(_file_of(item.nodeid), 0))


def record(reports: Iterable[pytest.TestReport]) -> None:
    """Writes down what the files of this run took; of others it keeps what it knew, unless they are gone."""
    known: Mapping[str, int] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    took: dict[str, float] = defaultdict(float)
    for report in reports:
        took[_file_of(report.nodeid)] += report.duration
    seconds = {**known, **{file: round(spent) for file, spent in took.items()}}
    root = FILE.parents[1]
    kept = {file: spent for file, spent in seconds.items() if spent >= _SHORTEST_S and (root / file).exists()}
    slowest_first = dict(sorted(kept.items(), key=lambda pair: (-pair[1], pair[0])))
    FILE.write_text(json.dumps(slowest_first, indent=2) + "\n", encoding="utf-8")


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]
