"""docs/guide/testing.md: its tests are run as they stand."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "testing.md"


def _tests() -> dict[str, Callable[[], None]]:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"__name__": "testing_guide"}
    for block in blocks:  # each goes on from those before it, as on the page
        exec(compile(block, str(PAGE), "exec"), names)
    return {name: value for name, value in names.items() if name.startswith("test_")}


TESTS = _tests()


@pytest.mark.parametrize("name", TESTS)
def test_the_pages_test_passes(name: str) -> None:
    TESTS[name]()


def test_every_kind_of_state_has_an_example() -> None:
    page = PAGE.read_text(encoding="utf-8")
    kinds = ("Value", "List", "Map", "Reducing", "Aggregating", "Broadcast", "Operator")
    missing = [kind for kind in kinds if f"hf.{kind}State(" not in page]
    assert not missing
    assert len(TESTS) >= 7
